"""`apply`: one fact folded into the state.

Rules. `apply` is a pure function: the same facts give the same state, for ever. A fact that cannot
follow the ones before it raises `IllegalEvent` and changes nothing. How each kind of fact is folded
stands in `working` (attempts, gates, closing) and `asking` (people).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, assert_never

from loopwright.core import asking, working
from loopwright.core import events as ev
from loopwright.core.limits import WAITING_KINDS
from loopwright.core.replacing import replace
from loopwright.core.state import ALERTS, LoopState
from loopwright.errors import IllegalEvent

AFTER_THE_END: Final = (
    ev.RunReopened,
    ev.Claimed,
    ev.Noticed,
    ev.Delivered,
    ev.LimitsChanged,
    ev.NoteAdded,
)
PHASES: Final[dict[ev.StopReason, ev.EndPhase]] = {
    "quality_reached": "complete",
    "already_satisfied": "complete",
    "limits_reached": "complete",
    "max_iterations": "failed",
    "max_duration": "failed",
    "max_wait": "failed",
    "budget": "failed",
    "cost_unknown": "failed",
    "max_tokens": "failed",
    "converged": "failed",
    "consecutive_errors": "failed",
    "permanent_error": "failed",
    "gate_error": "failed",
    "interrupted_too_often": "failed",
    "health": "stopped",
    "rejected": "stopped",
    "stopped_by_user": "stopped",
    "policy_violation": "stopped",
}


def fold(state: LoopState, facts: Iterable[tuple[datetime, ev.Event]]) -> LoopState:
    """`state` after these facts, in order."""
    for at, event in facts:
        state = apply(state, event, at)
    return state


def apply(state: LoopState, event: ev.Event, at: datetime) -> LoopState:
    """`state` after `event`, which happened `at` (aware UTC); `IllegalEvent` when it cannot follow."""
    if at.tzinfo is not UTC and at.utcoffset() is None:  # nearly always UTC, told at a glance
        raise IllegalEvent(f"{_name(event)} at {at.isoformat()} has no time zone")
    if isinstance(event, ev.RunStarted):
        return _run_started(state, event, at)
    if state.updated_at is None:
        raise IllegalEvent(f"{_name(event)} before RunStarted")
    if state.finished is not None and not isinstance(event, AFTER_THE_END):
        raise IllegalEvent(f"{_name(event)} after the run finished ({state.finished.reason})")
    after = _follow(state, event)
    if after is state:
        after = replace(state)
    # The copy is ours alone until it is returned, so this one field is set in place, not by another copy.
    # A clock set back never moves a run backwards.
    before = state.updated_at
    after.__dict__["updated_at"] = at if at >= before else before  # noqa: FURB136 - max() is three times the price
    return after


def _follow(state: LoopState, event: ev.Event) -> LoopState:
    match event:
        case ev.AttemptStarted():
            return working.attempt_started(state, event)
        case ev.AttemptSucceeded() | ev.AttemptFailed() | ev.AttemptInterrupted():
            return working.attempt_ended(state, event)
        case ev.GateScored():
            return working.gate_scored(state, event)
        case ev.Judged():
            return working.judged(state, event)
        case ev.IterationClosed():
            return working.closed(state, event)
        case ev.WaitStarted():
            return working.wait_started(state, event)
        case ev.DaySpent():
            return replace(state, day=event)
        case ev.WorkspaceChanged():
            return working.workspace_changed(state, event)
        case ev.EvidenceChanged():
            return working.evidence_changed(state, event)
        case ev.AlertRaised():
            return _alert_raised(state, event)
        case ev.ApprovalRequested():
            return asking.requested(state, event)
        case ev.ApprovalDecided():
            return asking.decided(state, event)
        case ev.Noticed():
            return state
        case ev.StopRequested() | ev.PauseRequested() | ev.NoteAdded() | ev.LimitsChanged():
            return asking.signalled(state, event)
        case ev.Resumed():
            return asking.resumed(state, event)
        case ev.Claimed():
            if event.epoch != (state.claim.epoch if state.claim else 0) + 1:
                raise IllegalEvent(f"Claimed with epoch {event.epoch} does not follow {state.claim}")
            return replace(state, claim=event)
        case ev.Delivered():
            if state.current is not None:
                raise IllegalEvent(f"Delivered while iteration {state.current.number} is open")
            return replace(state, delivered=event)
        case ev.PolicyChanged():
            return _policy_changed(state, event)
        case ev.RunReopened():
            return _reopened(state)
        case ev.RunFinished():
            return _finished(state, event)
        case ev.RunStarted():  # pragma: no cover - apply took it
            raise IllegalEvent("RunStarted twice")
        case _:
            assert_never(event)


def _run_started(state: LoopState, event: ev.RunStarted, at: datetime) -> LoopState:
    if state.started_at is not None:
        raise IllegalEvent(f"RunStarted twice: {state.run} already exists")
    return replace(
        state,
        run=event.run,
        spec=event.spec,
        digest=event.digest,
        workspace=event.workspace,
        labels=event.labels,
        origin=event.origin,
        started_at=at,
        updated_at=at,
    )


def _alert_raised(state: LoopState, event: ev.AlertRaised) -> LoopState:
    if event.iteration != state.iteration:
        raise IllegalEvent(f"AlertRaised about iteration {event.iteration} in {state.iteration}")
    nudged = event.iteration if event.kind == "NO_PROGRESS" else state.nudged
    return replace(state, alerts=(*state.alerts, event)[-ALERTS:], nudged=nudged)


def _policy_changed(state: LoopState, event: ev.PolicyChanged) -> LoopState:
    """Another goal, other gates: what was judged by the old ones is no measure for the new.

    Only other limits or channels (the same digest) void nothing.
    """
    if event.digest == state.digest:
        return replace(state, spec=event.spec)
    moot = state.approval is not None and state.approval.about in {"accept", "blocked"}
    it = state.current
    if (
        it is not None and it.failed is not None and it.failed.kind == "blocked"
    ):  # what it now may is not known
        state = replace(state, current=replace(it, failed=None, used=0, kinds=()))
    return replace(
        working.voided(state) if it is not None else _unjudged(state),
        spec=event.spec,
        digest=event.digest,
        approval=None if moot else state.approval,
        answer=None,
        best=None,
        peak=None,
        counted={},
        broken=(),
        broke_twice=(),
        session=None,
        denied=(),
        denied_again=(),
        fresh_from=state.iteration,
    )


def _finished(state: LoopState, event: ev.RunFinished) -> LoopState:
    if state.current is not None:
        raise IllegalEvent(f"RunFinished while iteration {state.current.number} is open")
    if PHASES[event.reason] != event.phase:
        raise IllegalEvent(f"RunFinished as {event.phase} for {event.reason}")
    last = state.recent[-1].outcome if state.recent else ""
    if event.reason == "quality_reached" and last != "accepted":
        raise IllegalEvent("RunFinished(quality_reached) without an accepted iteration")
    return replace(
        state,
        finished=event,
        stop=None,
        pause=None,
        paused=False,
        approval=None,
        answer=None,
        wait_until=None,
    )


def _reopened(state: LoopState) -> LoopState:
    if state.finished is None or state.finished.phase == "complete":
        raise IllegalEvent("RunReopened: only a failed or stopped run is reopened")
    waited = state.failure is not None and state.failure.kind in WAITING_KINDS
    return replace(
        _unjudged(state),
        finished=None,
        errors=0,
        interruptions=0,
        broken=(),
        broke_twice=(),
        refused=None,
        fatal=None,
        failure=None if waited else state.failure,  # what it asked to wait was asked long ago
        fresh_from=state.iteration,
        calm_from=state.iteration,
    )


def _unjudged(state: LoopState) -> LoopState:
    """Before the first attempt, iteration 0 is judged again: its tools may have been mended, its gates changed."""
    if state.iteration:
        return state
    return replace(state, baseline=None, zero=None, last=None, best=None, peak=None)


def _name(event: ev.Event) -> str:
    return type(event).__name__
