"""Tests that an agent may change, run again as they were at the start: what passed by changing them has not passed.

Rule: one gate, one score. Whatever the tests say now, a gate is no better than the same gate with the old text of the
tests on the same work. What is no test then and now is no ground for a fail.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from loopwright.core.judge import settle
from loopwright.core.ratchet import counts, forgiven
from loopwright.core.values import Score, Scored
from loopwright.evidence.text import clip
from loopwright.gates.measure import REASON
from loopwright.ports import Gate
from loopwright.running import Run, in_checkout
from loopwright.workspace.named import starts_tests
from loopwright.workspace.opened import shown

WHAT: Final = "the tests as they were at the start"
_RANK: Final = ("pass", "fail", "error")
_LISTED: Final = 20


async def with_old(run: Run, gate: Gate, score: Score, measured: Callable[[Path], Awaitable[Score]]) -> Score:
    """The score, no better than what `measured` gives in a checkout of the work where the old tests are back.

    The same score where the gate runs no tests, or the tests that may change are as they were.
    """
    state = run.journal.state
    if score.status not in {"pass", "fail"} or not _runs_tests(score):
        return score
    old = await asyncio.to_thread(
        run.workspace.old_tests, state.base, state.snapshot, state.edits, _named(gate, score)
    )
    if old is None:
        return score
    found = await in_checkout(run, measured, old)
    found = _held_against(run, gate, score, settle(gate.rule, run.policy.threshold, found))
    return _both(score, found, tuple(map(shown, old.paths[:_LISTED])))


def _runs_tests(score: Score) -> bool:
    """Whether a gate ran tests itself: it counted them, or its command names a runner of tests."""
    command = score.evidence.get("command")
    if not isinstance(command, list):
        return False
    return _counted(score) or (not score.graded and starts_tests(command))


def _counted(score: Score) -> bool:
    return bool(counts((Scored(gate="", score=score),)))


def _named(gate: Gate, score: Score) -> tuple[str, ...]:
    """The words of its command that may be files: a new one that a gate is to run stays."""
    words = (str(word).partition("::")[0] for word in score.evidence["command"])
    return tuple(os.path.normpath(f"{gate.cwd or '.'}/{word}") for word in words)


def _held_against(run: Run, gate: Gate, now: Score, old: Score) -> Score:
    """The score of the old tests, as a pass where it says nothing against the work.

    That is so where they are only too few, where the gate could not read them at the start either, and for known
    failures.
    """
    zero, then = run.journal.state.zero, run.journal.state.counted
    if not _counted(now) or zero is None:
        idle = _counted(now) and old.status == "fail" and not old.failing
    elif old.status == "error":
        idle = gate.name not in then
    else:
        idle = not old.failing
        if run.policy.known_failures:
            old = forgiven((Scored(gate=gate.name, score=old),), zero.failing)[0].score
    return replace(old, value=1.0, status="pass") if idle else old


def _both(now: Score, old: Score, paths: tuple[str, ...]) -> Score:
    """The worse of two scores, told together; `paths` are the tests that were put back."""
    told = {"status": old.status, "paths": list(paths), "counts": old.evidence.get("counts")}
    evidence = {**now.evidence, "old_tests": told}
    if old.status == "pass":
        return replace(now, evidence=evidence)
    against = "must still pass" if old.status == "fail" else "could not be judged"
    said = f"{WHAT} {against}: {old.reason}"
    status = max(now.status or "pass", old.status or "fail", key=_RANK.index)
    if now.status != "pass" and now.reason:
        said = f"{clip(now.reason, REASON // 2 - 10)}\n{clip(said, REASON // 2 - 10)}"
    return replace(
        now,
        value=min(now.value, old.value),
        reason=clip(said, REASON),
        status=status,
        cause="evidence" if status == "error" else None,
        failing=(*now.failing, *(f"as at the start: {item}" for item in old.failing)),
        evidence=evidence,
    )
