"""`apply`: one fact folded into the state.

Rules. `apply` is a pure function: the same facts give the same state, for ever. A fact that cannot
follow the ones before it raises `IllegalEvent` and changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from loopwright.core import events as ev
from loopwright.core.closing import better, closing
from loopwright.core.state import ALERTS, RECENT, SIGNALS, Iteration, LoopState, Totals
from loopwright.core.values import Scored, Usage
from loopwright.errors import IllegalEvent


def fold(state: LoopState, facts: tuple[tuple[datetime, ev.Event], ...]) -> LoopState:
    """`state` after these facts, in order."""
    for at, event in facts:
        state = apply(state, event, at)
    return state


def apply(state: LoopState, event: ev.Event, at: datetime) -> LoopState:
    """`state` after `event`, which happened `at` (aware UTC); `IllegalEvent` when it cannot follow."""
    if at.tzinfo is None:
        raise IllegalEvent(f"{_name(event)} at {at.isoformat()} has no time zone")
    if state.updated_at is not None and at < state.updated_at:
        at = state.updated_at  # a clock set back never moves a run backwards
    if isinstance(event, ev.RunStarted):
        return _run_started(state, event, at)
    if state.started_at is None:
        raise IllegalEvent(f"{_name(event)} before RunStarted")
    if state.finished is not None and not isinstance(
        event, ev.RunReopened | ev.Claimed | ev.Noticed | ev.Delivered | ev.LimitsChanged | ev.NoteAdded
    ):
        raise IllegalEvent(f"{_name(event)} after the run finished ({state.finished.reason})")
    return replace(_follow(state, event), updated_at=at)


def _follow(state: LoopState, event: ev.Event) -> LoopState:
    match event:
        case ev.AttemptStarted():
            return _attempt_started(state, event)
        case ev.AttemptSucceeded() | ev.AttemptFailed() | ev.AttemptInterrupted():
            return _attempt_ended(state, event)
        case ev.GateScored():
            return _gate_scored(state, event)
        case ev.Judged():
            it = _open(state, event)
            if not it.done:
                raise IllegalEvent("Judged before the agent's work was done")
            return replace(state, current=replace(it, verdict=event.verdict))
        case ev.IterationClosed():
            return _closed(state, event)
        case ev.WaitStarted():
            it = _open(state, event)
            totals = replace(state.totals, waited_s=state.totals.waited_s + event.seconds)
            return replace(
                state, current=replace(it, wait_until=event.until, wait_why=event.why), totals=totals
            )
        case ev.WorkspaceChanged():
            return _workspace_changed(state, event)
        case ev.EvidenceChanged():
            return replace(state, evidence=event.digest or state.evidence)
        case ev.AlertRaised():
            return replace(state, alerts=(*state.alerts, event)[-ALERTS:])
        case ev.ApprovalRequested() | ev.ApprovalDecided() | ev.Noticed():
            return _approval(state, event)
        case ev.Claimed():
            if event.epoch != (state.claim.epoch if state.claim else 0) + 1:
                raise IllegalEvent(f"Claimed with epoch {event.epoch} does not follow {state.claim}")
            return replace(state, claim=event)
        case ev.Delivered():
            return replace(state, delivered=event)
        case ev.PolicyChanged():
            again = replace(state.current, scores=(), verdict=None) if state.current else None
            return replace(state, spec=event.spec, digest=event.digest, current=again)
        case ev.RunReopened():
            return _reopened(state)
        case ev.RunFinished():
            if state.current is not None:
                raise IllegalEvent(f"RunFinished while iteration {state.current.number} is open")
            return replace(state, finished=event, stop=None, pause=None, paused=False, approval=None)
        case ev.StopRequested() | ev.PauseRequested() | ev.Resumed() | ev.NoteAdded() | ev.LimitsChanged():
            return _asked(state, event)
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


def _attempt_started(state: LoopState, event: ev.AttemptStarted) -> LoopState:
    it = state.current
    if it is None:
        if event.iteration != state.iteration + 1:
            raise IllegalEvent(f"AttemptStarted in iteration {event.iteration} after {state.iteration}")
        it = Iteration(number=event.iteration)
    if it.open is not None or it.done or it.number != event.iteration:
        raise IllegalEvent(f"AttemptStarted in iteration {event.iteration} while {it.number} is under way")
    if state.stop or state.approval or state.paused:
        raise IllegalEvent("AttemptStarted after a stop, a pause or an open request")
    it = replace(
        it,
        open=event,
        started=it.started + 1,
        notes_shown=len(state.notes),
        failed=None,
        interrupted=False,
        wait_until=None,
        wait_why="",
    )
    return replace(
        state,
        iteration=it.number,
        current=it,
        snapshot=event.snapshot or state.snapshot,
        evidence=event.evidence or state.evidence,
        totals=replace(state.totals, attempts=state.totals.attempts + 1),
    )


def _attempt_ended(
    state: LoopState, event: ev.AttemptSucceeded | ev.AttemptFailed | ev.AttemptInterrupted
) -> LoopState:
    it = _open(state, event)
    if it.open is None:
        raise IllegalEvent(f"{_name(event)} without an open attempt")
    reserve = it.open.reserve_usd
    it = replace(it, open=None, seconds=it.seconds + event.seconds)
    totals = replace(state.totals, seconds=state.totals.seconds + event.seconds)
    interruptions = 0
    output, summary, notes = state.output, state.summary, state.notes
    match event:
        case ev.AttemptInterrupted():
            it = replace(it, interrupted=True)
            interruptions = state.interruptions + (event.cause == "crash")
            totals, it = _spend(totals, it, Usage(cost_usd=reserve))
        case ev.AttemptFailed():
            it = replace(
                it,
                failed=event,
                used=it.used + (event.kind != "rate_limited"),
                kinds=(*it.kinds, event.kind)[-RECENT:],
            )
            totals, it = _spend(totals, it, event.usage)
        case ev.AttemptSucceeded():
            it = replace(it, done=True, output=event.result, summary=event.summary)
            totals, it = _spend(totals, it, event.usage)
            output, summary = event.result, event.summary
            notes = notes[it.notes_shown :]
        case _:
            assert_never(event)
    return replace(
        state,
        current=it,
        totals=totals,
        interruptions=interruptions,
        output=output,
        summary=summary,
        notes=notes,
        snapshot=event.snapshot or state.snapshot,
        evidence=event.evidence or state.evidence,
    )


def _spend(totals: Totals, it: Iteration, usage: Usage) -> tuple[Totals, Iteration]:
    """Books what an attempt used; an unknown amount is counted as unknown, never as zero."""
    if usage.tokens is None:
        totals = replace(totals, unknown_tokens=totals.unknown_tokens + 1)
    else:
        totals = replace(totals, tokens=totals.tokens + usage.tokens)
    cost = usage.cost_usd
    if cost is None:
        return replace(totals, unknown_costs=totals.unknown_costs + 1), replace(it, cost_usd=None)
    totals = replace(
        totals,
        cost_usd=totals.cost_usd + cost,
        known_costs=totals.known_costs + 1,
        dearest_usd=max(cost, totals.dearest_usd or 0.0),
    )
    return totals, replace(it, cost_usd=None if it.cost_usd is None else it.cost_usd + cost)


def _gate_scored(state: LoopState, event: ev.GateScored) -> LoopState:
    it = state.current
    if it is None:
        if state.iteration or state.closed or state.baseline:
            raise IllegalEvent(f"GateScored({event.gate}) outside an iteration")
        it = Iteration(number=0, done=True)
    if not it.done:
        raise IllegalEvent(f"GateScored({event.gate}) before the agent's work was done")
    if event.snapshot != state.snapshot:
        raise IllegalEvent(f"GateScored({event.gate}) of a snapshot that is not the present one")
    scores = tuple(s for s in it.scores if s.gate != event.gate)
    scored = Scored(gate=event.gate, score=event.score, seconds=event.seconds)
    return replace(
        state,
        current=replace(it, scores=(*scores, scored), seconds=it.seconds + event.seconds, verdict=None),
        totals=replace(state.totals, seconds=state.totals.seconds + event.seconds),
    )


def _workspace_changed(state: LoopState, event: ev.WorkspaceChanged) -> LoopState:
    it = state.current
    if it is not None and it.open is not None:
        raise IllegalEvent("WorkspaceChanged during an attempt")
    if it is not None and event.snapshot != state.snapshot:
        it = replace(it, scores=(), verdict=None)
    return replace(
        state,
        current=it,
        answer=state.answer if event.snapshot == state.snapshot else None,
        snapshot=event.snapshot,
        evidence=event.evidence or state.evidence,
        base=event.snapshot if event.cause == "baseline" else state.base,
    )


def _closed(state: LoopState, event: ev.IterationClosed) -> LoopState:
    it = _open(state, event)
    if it.open is not None:
        raise IllegalEvent(f"IterationClosed({event.outcome}) during an attempt")
    verdict = it.verdict
    if event.outcome in {"accepted", "not_accepted", "revised"} and verdict is None:
        raise IllegalEvent(f"IterationClosed({event.outcome}) without a verdict")
    closed = closing(state, it, event.outcome, verdict)
    rejected = state.answer is not None and state.answer.answer == "reject"
    state = replace(
        state,
        current=None,
        approval=None,
        answer=state.answer if rejected else None,
        paused=state.paused or state.pause is not None,
        peak=closed.peak,
    )
    if verdict is not None:
        state = replace(
            state,
            ran=state.ran | {s.gate for s in it.scores if s.score.status != "skipped"},
            last=verdict,
            best=better(state, it, verdict),
            broken=verdict.broken,
            broke_twice=tuple(g for g in verdict.broken if g in state.broken),
        )
    if it.number == 0:
        return replace(state, baseline=verdict, zero=closed)
    unfinished = event.outcome in {"errored", "cut"}
    kind = it.failed.kind if it.failed and unfinished else None
    return replace(
        state,
        recent=(*state.recent, closed)[-RECENT:],
        closed=state.closed + 1,
        errors=state.errors + 1 if event.outcome == "errored" else state.errors if unfinished else 0,
        failure=it.failed if unfinished else None,
        fatal=kind if kind in {"permanent", "policy_violation"} else None,
        fresh_from=it.number if event.outcome == "revised" else state.fresh_from,
    )


def _approval(state: LoopState, event: ev.ApprovalRequested | ev.ApprovalDecided | ev.Noticed) -> LoopState:
    match event:
        case ev.Noticed():
            return state
        case ev.ApprovalRequested():
            if state.approval is not None:
                raise IllegalEvent(f"ApprovalRequested while {state.approval.id} is open")
            return replace(state, approval=event, answer=None, requests=state.requests + 1)
        case ev.ApprovalDecided():
            return _decided(state, event)
        case _:
            assert_never(event)


def _decided(state: LoopState, event: ev.ApprovalDecided) -> LoopState:
    request = state.approval
    if request is None or request.id != event.id:
        raise IllegalEvent(f"ApprovalDecided for {event.id}, which is not the open request")
    state = replace(
        state,
        approval=None,
        answer=event,
        notes=(*state.notes, event.note)[-20:] if event.note else state.notes,
        limits={**state.limits, **event.edits},
    )
    if event.answer in {"reject", "expired"} or request.about in {"accept", "evidence"}:
        return state
    if request.about == "alert":  # the alert counts anew
        return replace(state, calm_from=state.iteration, answer=None)
    it = state.current  # blocked: tried again, with its attempts anew
    fresh = replace(it, failed=None, used=0, kinds=()) if it else None
    return replace(state, current=fresh, answer=None)


def _asked(
    state: LoopState,
    event: ev.StopRequested | ev.PauseRequested | ev.Resumed | ev.NoteAdded | ev.LimitsChanged,
) -> LoopState:
    key = "" if isinstance(event, ev.Resumed) else event.key
    if key and key in state.signals:
        return state  # the same signal read twice counts once
    if key:
        state = replace(state, signals=(*state.signals, key)[-SIGNALS:])
    match event:
        case ev.StopRequested():
            return replace(state, stop="now" if event.now else state.stop or "later")
        case ev.PauseRequested():
            now = event.now or state.current is None
            return replace(state, pause="now" if now else state.pause or "later", paused=now)
        case ev.Resumed():
            return replace(state, pause=None, paused=False)
        case ev.NoteAdded():
            return replace(state, notes=(*state.notes, event.text)[-20:])
        case ev.LimitsChanged():
            return replace(state, limits={**state.limits, **event.limits})
        case _:
            assert_never(event)


def _reopened(state: LoopState) -> LoopState:
    if state.finished is None or state.finished.phase == "complete":
        raise IllegalEvent("RunReopened: only a failed or stopped run is reopened")
    return replace(
        state,
        finished=None,
        errors=0,
        interruptions=0,
        broken=(),
        broke_twice=(),
        answer=None,
        fatal=None,
        fresh_from=state.iteration,
        calm_from=state.iteration,
    )


def _open(state: LoopState, event: ev.Event) -> Iteration:
    if state.current is None:
        raise IllegalEvent(f"{_name(event)} outside an iteration")
    return state.current


def _name(event: ev.Event) -> str:
    return type(event).__name__
