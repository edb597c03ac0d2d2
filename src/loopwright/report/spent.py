"""What each attempt of an iteration used, and each gate that asks a model, as people and JSON read it.

Rule: from the facts alone; what an attempt did not tell is unknown, and one that told nothing has no line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from loopwright.core import events as ev
from loopwright.core.values import NO_USAGE, PARTS, UNKNOWN_USAGE, Usage
from loopwright.figures import brief, paid, short, tokens

MOST: Final = 40  # of one iteration that are kept, the last ones
USED: Final = 200  # lines of a table
NAMES: Final = dict(zip(PARTS, ("input", "cache write", "cache read", "output"), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one attempt used, by its number, or one gate by itself, by its name."""

    usage: Usage
    attempt: int | None = None
    gate: str | None = None
    session: str | None = None


def spent(event: ev.Event, attempt: int) -> Spent | None:
    """What this fact says was used, in the attempt with this number; `None` where it says nothing."""
    match event:
        case (
            ev.AttemptSucceeded(usage=usage, session=session) | ev.AttemptFailed(usage=usage, session=session)
        ) if session or usage not in {UNKNOWN_USAGE, NO_USAGE}:
            return Spent(usage=usage, attempt=attempt, session=session or None)
        case ev.GateScored(gate=gate, usage=Usage() as usage):
            return Spent(usage=usage, gate=gate)
        case _:
            return None


def who(each: Spent) -> str:
    """`attempt 2`, `gate review`."""
    return f"attempt {each.attempt}" if each.gate is None else f"gate {brief(each.gate, 60)}"


def parts(usage: Usage) -> str:
    """`12.0k input, 3.4k cache write, 900 output`: as far as the parts of the tokens are known."""
    known = ((name, getattr(usage, key)) for key, name in NAMES.items())
    return ", ".join(f"{short(value)} {name}" for name, value in known if value is not None)


def told_of(each: Spent) -> str:
    """All that is known of one of them, in a line."""
    usage = each.usage
    counted = tokens(usage.tokens) if usage.tokens is not None else ""
    split = parts(usage)
    told = (
        f"{counted} ({split})" if counted and split else counted,
        "" if usage.cost_usd is None or usage.plan else paid(usage.cost_usd, None),
        brief(usage.model or "", 60),
        f"session {brief(each.session, 60)}" if each.session else "",
    )
    return f"{who(each)}: {' · '.join(text for text in told if text) or 'unknown'}"


def cells(usage: Usage) -> list[str]:
    """The parts of the tokens by `NAMES`, all of them, and the cost, for a table; nothing for what is unknown."""
    counts = [getattr(usage, key) for key in (*PARTS, "tokens")]
    cost = "a plan" if usage.plan else "" if usage.cost_usd is None else paid(usage.cost_usd, None)
    return [*("" if value is None else f"{value:,}" for value in counts), cost]


def plain(each: Spent) -> dict[str, Any]:
    """The same as data; unknown is `None`."""
    return {"attempt": each.attempt, "session": each.session, **as_data(each.usage)}


def as_data(usage: Usage) -> dict[str, Any]:
    """A usage as data; unknown is `None`."""
    names = ("cost_usd", "plan", "tokens", *PARTS, "turns", "model")
    return {name: getattr(usage, name) for name in names}
