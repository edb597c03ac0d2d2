"""What a request shows a person: one frozen value that every channel draws in its own way.

Rule: made from policy and state alone, so every channel says the same. The digest of a request is a
hash of exactly this value: who answered is known to have seen it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from datetime import datetime
from typing import Final, Literal, assert_never

from loopwright.core.frozen import frozen
from loopwright.core.limits import in_force
from loopwright.core.policy import Policy
from loopwright.core.state import LoopState
from loopwright.core.values import About, Scored

TREND: Final = 10  # scores shown
ALERTS: Final = 5
SILENCE: Final = {
    "hold": "the run rests, its work kept, until somebody lets it ask again",
    "reject": "the run stops, its work kept",
    "continue": "the run goes on, and this is not accepted",
}


@frozen
class Effect:
    """What one answer will do."""

    answer: Literal["approve", "revise", "reject"]
    does: str


@frozen
class Shown:
    """Everything a person is shown who is asked something.

    `blockers` are what approving must override. `trend` are the last scores, oldest first, `None` where
    nothing was judged. US dollars, tokens: `None` when unknown; `projected_usd` is with one more iteration like
    those so far. `plan`: a flat plan pays. The diff is between the trees `before` and `after`; `summary` is the agent's own claim.
    """

    run: str
    goal: str
    iteration: int
    number: int
    about: About
    question: str
    why: str
    effects: tuple[Effect, ...]
    silence: str
    deadline: datetime | None
    blockers: tuple[str, ...]
    gates: tuple[Scored, ...]
    score: float | None
    trend: tuple[float | None, ...]
    cost_usd: float | None
    projected_usd: float | None
    tokens: int | None
    plan: bool
    seconds: float
    alerts: tuple[str, ...]
    before: str | None
    after: str | None
    summary: str


def showing(
    policy: Policy,
    state: LoopState,
    *,
    about: About,
    number: int,
    question: str,
    deadline: datetime | None,
) -> Shown:
    """What the request with this number shows, asked of a run that stands so."""
    it, totals = state.current, state.totals
    verdict = it.verdict if it else None
    best = state.best if it is None and about == "accept" else None  # asked at the end, about the best
    known = totals.known_costs and not totals.unknown_costs
    cost = round(totals.cost_usd, 6) if known else None
    scores = [*(c.score for c in state.recent), *([verdict.score] if verdict else [])]
    alerts = [a for a in state.alerts if a.iteration > state.calm_from]
    return Shown(
        run=state.run,
        goal=policy.goal,
        iteration=it.number if it else state.iteration,
        number=number,
        about=about,
        question=question,
        why=_why(policy, state, about),
        effects=_effects(policy, state, about),
        silence=SILENCE[policy.approval.on_timeout],
        deadline=deadline,
        blockers=verdict.blockers if verdict and about == "accept" else (),
        gates=it.scores if it else (),
        score=best.score if best else verdict.score if verdict else None,
        trend=tuple(scores[-TREND:]),
        cost_usd=cost,
        projected_usd=None if cost is None else round(cost + cost / max(1, state.iteration), 6),
        tokens=None if totals.unknown_tokens or totals.cut else totals.tokens,
        plan=totals.plan,
        seconds=totals.seconds,
        alerts=tuple(f"{a.kind} (#{a.iteration}): {a.message}" for a in alerts[-ALERTS:]),
        before=state.base,
        after=best.snapshot if best else state.snapshot,
        summary=it.summary if it else state.summary,
    )


def shown(policy: Policy, state: LoopState) -> Shown | None:
    """What the open request of a run shows; `None` when nothing is asked."""
    asked = state.approval
    if asked is None:
        return None
    return showing(
        policy,
        state,
        about=asked.about,
        number=asked.number,
        question=asked.question,
        deadline=asked.deadline,
    )


def digest(view: Shown) -> str:
    """A hash of exactly what is shown."""
    text = json.dumps(asdict(view), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _why(policy: Policy, state: LoopState, about: About) -> str:
    """The rule by which a person is asked now."""
    match about:
        case "accept" if state.current is None:
            return "the run is at its end, and a person accepts the best of it"
        case "accept" if policy.approval.when == "always":
            return "every iteration is shown to a person"
        case "accept":
            return "every required gate passed, and a person has the last word"
        case "alert":
            return "a monitor raised an alert that a person decides about"
        case "blocked":
            return "the agent says it cannot go on alone"
        case "evidence":
            return "files that the gates judge by were changed during the work"
        case _:
            assert_never(about)


def _effects(policy: Policy, state: LoopState, about: About) -> tuple[Effect, ...]:
    """What each answer will do."""
    stops = "the run stops; its work is kept"
    it = state.current
    match about:
        case "accept" if it is None:
            approve = "the run is complete, with the best iteration"
            revise = "the run ends unaccepted; with a limit raised the agent reads the note and goes on"
        case "accept":
            open_ = ", ".join(it.verdict.blockers) if it and it.verdict else ""
            approve = "the run is complete, with this work"
            if open_:
                approve = f"only with a reason to override {open_}: then {approve}"
            revise = "the agent reads the note and goes on"
            if state.iteration >= in_force(policy.limits, state).max_iterations:
                revise = f"the run ends at its limit of {_iterations(state.iteration)}, unless you raise it too: then {revise}"
        case "alert":
            approve = "the run goes on, and alerts count anew"
            revise = f"{approve}; the agent reads the note"
        case "blocked":
            approve = "the agent tries again"
            revise = f"{approve}, and reads the note"
        case "evidence":
            approve = "the files as they are now are what the gates judge by; they judge again"
            revise = "the files are put back, the gates judge again, and the agent reads the note"
        case _:
            assert_never(about)
    return (
        Effect(answer="approve", does=approve),
        Effect(answer="revise", does=revise),
        Effect(answer="reject", does=stops),
    )


def _iterations(n: int) -> str:
    return "1 iteration" if n == 1 else f"{n} iterations"


def allow_line(what: tuple[str, ...]) -> str:
    """The line of a loop file that lets an agent do this, as TOML: a command may hold quotes and line ends."""
    words = (json.dumps(word, ensure_ascii=False).replace("\x7f", "\\u007f") for word in what)
    return f"allow = [{', '.join(words)}]"


def listed(what: tuple[str, ...]) -> str:
    """What an agent was not allowed to do, on one line: a command may hold line ends."""
    return ", ".join(" ".join(word.split()) for word in what)
