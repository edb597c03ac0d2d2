"""What is remembered of an iteration once it is closed, and whether it is the best so far.

Rule: the same function tells `apply` what is, and the monitors what would be.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from loopwright.core.judge import ROUNDING
from loopwright.core.state import Iteration, LoopState
from loopwright.core.values import Best, Closed, Outcome, Scored, Verdict

RATCHET: Final = "ratchet"  # the blocker of a verdict whose tests or checks became less
BRIEF: Final = 200  # characters of an agent's summary kept
ITEMS: Final = 500  # failing items kept of an iteration, the same choice each time; enough to see progress


def closing(state: LoopState, it: Iteration, outcome: Outcome, verdict: Verdict | None) -> Closed:
    """The open iteration as it will be remembered once closed so."""
    if verdict is None:
        return Closed(
            number=it.number,
            outcome=outcome,
            score=None,
            passed=False,
            peak=state.peak,
            snapshot=state.snapshot,
            work=state.work,
            seconds=it.seconds,
            cost_usd=it.cost_usd,
            summary=it.summary[:BRIEF],
        )
    peak = state.peak
    if (peak is None or verdict.score > peak) and not doubtful(state, verdict):
        peak = verdict.score
    return Closed(
        number=it.number,
        outcome=outcome,
        score=verdict.score,
        passed=verdict.passed,
        peak=peak,
        graded=verdict.graded,
        failing=_kept(verdict.failing) if verdict.failing else (),
        fingerprint=verdict.fingerprint,
        snapshot=state.snapshot,
        work=state.work,
        seconds=it.seconds,
        cost_usd=it.cost_usd,
        summary=it.summary[:BRIEF],
    )


def better(state: LoopState, it: Iteration, verdict: Verdict, *, accepted: bool = False) -> Best | None:
    """The best iteration once this one is closed: passed, then score or objective, then the earliest.

    One that a person sent back is not kept before a later one that is as good. One whose evidence became less is
    none, unless a person `accepted` it as it is.
    """
    best = state.best
    if state.tampered is not None or (doubtful(state, verdict) and not accepted):
        return best
    if best is not None and not _beats(verdict, best, even=_sent_back(state, best)):
        return best
    return Best(
        iteration=it.number,
        score=verdict.score,
        passed=verdict.passed,
        snapshot=state.snapshot,
        output=it.output,
        objective=verdict.objective,
    )


def doubtful(state: LoopState, verdict: Verdict) -> bool:
    """Whether the evidence is not what it was: changed, or less of it. Its score is no measure."""
    return state.tampered is not None or RATCHET in verdict.blockers


def best_now(state: LoopState) -> Best | None:
    """The best so far, the judged iteration that is still open included: it is what a person is asked about."""
    it = state.current
    if it is None or it.verdict is None or it.number == 0:
        return state.best
    return better(state, it, it.verdict)


def best_measures(before: Mapping[str, float], scores: tuple[Scored, ...]) -> Mapping[str, float]:
    """The best raw measure of each gate, in its own direction, with these scores taken in."""
    new: dict[str, float] = {}
    for scored in scores:
        raw, direction = scored.score.raw, scored.score.direction
        if raw is None or direction is None:
            continue
        best = before.get(scored.gate)
        if best is None or (raw > best if direction == "max" else raw < best):
            new[scored.gate] = raw
    return {**before, **new} if new else before


def _sent_back(state: LoopState, best: Best) -> bool:
    return state.fresh_from >= best.iteration > 0 and any(
        closed.number == best.iteration and closed.outcome == "revised" for closed in state.recent
    )


def _beats(verdict: Verdict, best: Best, *, even: bool) -> bool:
    """Whether this is better, or as good where that is enough."""
    if verdict.passed != best.passed:
        return verdict.passed
    if verdict.objective is None and best.objective is None:
        return verdict.score > best.score or (even and verdict.score == best.score)
    if verdict.objective is None or best.objective is None:
        return best.objective is None  # a measure beats none; the two are never compared
    gain = verdict.objective - best.objective
    return (even and gain >= 0) or (gain > 0 and gain >= verdict.min_gain - ROUNDING)


def _kept(failing: Iterable[str]) -> tuple[str, ...]:
    """The failing items as they are remembered, in one order."""
    return tuple(sorted({short(item) for item in failing})[:ITEMS])


def short(item: str) -> str:
    """A failing item as it is remembered."""
    return hashlib.sha256(item.encode("utf-8", "surrogatepass")).hexdigest()[:8]
