"""What a crash or a shutdown leaves of a run, put on record so that the next host can go on.

Rule: an attempt that began has an end on record before anything else happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from loopwright import spending
from loopwright.core import events as ev
from loopwright.hosts import take
from loopwright.hosts.ways import Ways
from loopwright.running import UNSEEN, Run, look
from loopwright.standing import answer_tampering
from loopwright.supervise import sweep


async def mend(run: Run, ways: Ways, marks: Mapping[str, str], *, rested: bool) -> None:
    """What a crash left: the old tree is ended, the present state kept, the attempt recorded as interrupted.

    Unless the run rested (paused, a person asked), what became of evidence in an iteration is nobody's edit.
    """
    journal, workspace = run.journal, run.workspace
    state = journal.state
    workspace.remember(state.evidence)
    if workspace.problem:
        ways.tell(f"no snapshots: {workspace.problem}")
        if workspace.frees:
            ways.tell("may_change: tests are judged as they are; their old text needs snapshots")
    taken_over = state.claim is not None and state.claim.epoch > 1  # a new run has left nothing behind
    left = await asyncio.to_thread(sweep, marks) if taken_over else 0
    if left:
        ways.tell(f"ended {left} processes that an earlier runner left behind")
    it = state.current
    if it is None or (it.open is None and rested):
        return
    await answer_tampering(run, crashed=True)
    if it.open is None:
        return
    folder = run.artifacts / f"{it.number:04d}" / f"attempt-{it.open.attempt}"
    seen = await look(run)
    seconds = min(it.open.allowance_s, take.cut_off_seconds(folder))
    if it.open.booking is not None:
        await asyncio.to_thread(spending.settle, run, it.open, None)
    journal.record(
        run.clock.now(),
        ev.AttemptInterrupted(cause="crash", seconds=seconds, snapshot=seen.tree),
    )
    journal.flush()


def handed_over(run: Run) -> None:
    """Cancelled from outside: the agent is dead by now; the next host finds its attempt cut, not crashed."""
    state = run.journal.state
    if state.current is not None and state.current.open is not None:
        seen = run.workspace.look() if run.workspace.watched else UNSEEN
        seconds = round(run.clock.monotonic() - run.began, 3)
        run.journal.record(
            run.clock.now(),
            ev.AttemptInterrupted(cause="handover", seconds=seconds, snapshot=seen.tree),
        )
        if state.current.open.booking is not None:
            spending.settle(run, state.current.open, None)
    run.journal.flush()
