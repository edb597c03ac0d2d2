"""Where a run will land if it goes on as it did: what it will have cost, and which bound ends it.

Rule: from means of what is on record; what is not known is not said. It is an estimate and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from loopwright.core.limits import spent, used_tokens
from loopwright.core.recorded import limits_of
from loopwright.core.state import LoopState

Bound = Literal["max_iterations", "max_duration", "budget", "max_tokens"]
WORDS: Final[dict[Bound, str]] = {
    "max_iterations": "its iterations",
    "max_duration": "its time",
    "budget": "its budget",
    "max_tokens": "its tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """Where it lands: `iteration` is the last one if nothing is accepted before, `bound` what ends it then.

    `per_usd` and `per_tokens` are what an iteration takes, `usd` and `tokens` what all will have taken; `None` where
    nobody knows.
    """

    iteration: int
    bound: Bound
    per_usd: float | None = None
    usd: float | None = None
    per_tokens: float | None = None
    tokens: float | None = None


def landing(state: LoopState) -> Landing | None:
    """Where a run that is under way lands; `None` for one that is over, or has done nothing yet."""
    limits, totals, done = limits_of(state), state.totals, min(state.iteration, state.closed)
    if state.finished is not None or done < 1:
        return None
    known = totals.known_costs and not totals.unknown_costs
    per_usd = spent(limits, totals) / done if known or limits.reserve else None
    per_tokens = used_tokens(totals) / done if totals.tokens and not totals.unknown_tokens else None
    last: dict[Bound, float] = {"max_iterations": limits.max_iterations}
    if totals.seconds > 0:
        last["max_duration"] = limits.max_duration / (totals.seconds / done)
    if limits.budget is not None and per_usd:
        last["budget"] = limits.budget / per_usd
    if limits.max_tokens is not None and per_tokens:
        last["max_tokens"] = limits.max_tokens / per_tokens
    bound = min(last, key=lambda name: last[name])
    end = max(state.iteration, _whole(bound, last[bound]))
    return Landing(
        iteration=end,
        bound=bound,
        per_usd=per_usd,
        usd=_at(per_usd, end, done, limits.budget),
        per_tokens=per_tokens,
        tokens=_at(per_tokens, end, done, limits.max_tokens),
    )


def _whole(bound: Bound, value: float) -> int:
    """The last iteration that fits: time that is short cuts one, money that is short lets none begin."""
    return int(value) if bound != "max_duration" or value == int(value) else int(value) + 1


def _at(per: float | None, end: int, done: int, most: float | None) -> float | None:
    if per is None:
        return None
    total = per * max(end, done)
    return total if most is None else min(total, most)
