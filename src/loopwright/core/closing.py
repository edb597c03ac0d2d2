"""What is remembered of an iteration once it is closed, and whether it is the best so far.

Rule: the same function tells `apply` what is, and the monitors what would be.
"""

from __future__ import annotations

import hashlib

from loopwright.core.state import Iteration, LoopState
from loopwright.core.values import Best, Closed, Outcome, Verdict


def closing(state: LoopState, it: Iteration, outcome: Outcome, verdict: Verdict | None) -> Closed:
    """The open iteration as it will be remembered once closed so."""
    score = verdict.score if verdict else None
    return Closed(
        number=it.number,
        outcome=outcome,
        score=score,
        peak=max((s for s in (score, state.peak) if s is not None), default=None),
        passed=verdict.passed if verdict else False,
        graded=verdict.graded if verdict else False,
        failing=tuple(_short(f) for f in verdict.failing) if verdict else (),
        fingerprint=verdict.fingerprint if verdict else "",
        snapshot=state.snapshot,
        seconds=it.seconds,
        cost_usd=it.cost_usd,
        summary=it.summary[:200],
    )


def better(state: LoopState, it: Iteration, verdict: Verdict) -> Best | None:
    best = state.best
    mine = verdict.score if verdict.objective is None else verdict.objective
    if best is not None:
        theirs = best.score if best.objective is None else best.objective
        if verdict.passed < best.passed:
            return best
        if verdict.passed == best.passed and mine <= theirs + verdict.min_gain:
            return best
    return Best(
        iteration=it.number,
        score=verdict.score,
        passed=verdict.passed,
        snapshot=state.snapshot,
        output=it.output,
        objective=verdict.objective,
    )


def _short(item: str) -> str:
    return hashlib.sha256(item.encode("utf-8", "surrogatepass")).hexdigest()[:8]
