"""How the facts of people are folded: requests and their answers, stop, pause, notes, limits.

Rules. A request has one answer. A signal read twice counts once. Notes wait until an attempt that
was shown them has given a result.
"""

from __future__ import annotations

from typing import Final, Literal, assert_never

from loopwright.core import events as ev
from loopwright.core.replacing import replace
from loopwright.core.state import SIGNALS, LoopState
from loopwright.core.working import voided
from loopwright.errors import IllegalEvent

NOTES: Final = 20  # notes that wait for the next attempt; of more, the oldest are dropped


def requested(state: LoopState, event: ev.ApprovalRequested) -> LoopState:
    """A person is asked; one thing at a time, and never while the agent works."""
    if state.approval is not None:
        raise IllegalEvent(f"ApprovalRequested while {state.approval.id} is open")
    if state.current is not None and state.current.open is not None:
        raise IllegalEvent("ApprovalRequested during an attempt")
    if state.stop:
        raise IllegalEvent("ApprovalRequested after a stop")
    if event.number != state.requests + 1:
        raise IllegalEvent(f"ApprovalRequested with number {event.number} after {state.requests}")
    return replace(state, approval=event, answer=None, requests=event.number, subject=event.about)


def decided(state: LoopState, event: ev.ApprovalDecided) -> LoopState:
    """The one answer. To an alert or a block a go-ahead is acted on at once; the rest `decide` acts on."""
    key = f"decision/{event.id}"
    if key in state.signals:
        return state
    request = state.approval
    if request is None or request.id != event.id:
        raise IllegalEvent(f"ApprovalDecided for {event.id}, which is not the open request")
    state = replace(
        _noted(state, event.note) if event.note else state,
        approval=None,
        answer=event,
        signals=(*state.signals, key)[-SIGNALS:],
        limits={**state.limits, **event.edits} if event.edits else state.limits,
    )
    if event.answer in {"reject", "expired"}:
        return state
    match request.about:
        case "accept":
            return state
        case "alert":  # goes on, and the alerts count anew; a revised iteration is closed as such
            judged = state.current is not None and event.answer == "revise"
            return replace(state, calm_from=state.iteration, answer=event if judged else None)
        case "blocked":  # tried again, with its attempts anew
            it = state.current
            return replace(
                state,
                current=replace(it, failed=None, used=0, kinds=()) if it else None,
                denied=(),
                denied_again=(),
                answer=None,
            )
        case "evidence":
            return _evidence_decided(state, event)
        case _:
            assert_never(request.about)


def _evidence_decided(state: LoopState, event: ev.ApprovalDecided) -> LoopState:
    """Approved: the change is the new baseline, judged again. Else it stays a change that never passes."""
    touched = state.tampered
    if event.answer == "approve":
        digest = (touched.digest if touched else None) or state.evidence
        return replace(voided(state), tampered=None, evidence=digest, answer=None)
    blocked = (
        ev.EvidenceChanged(paths=touched.paths, action="blocked", digest=touched.digest) if touched else None
    )
    return replace(state, tampered=blocked, answer=None)


def signalled(
    state: LoopState, event: ev.StopRequested | ev.PauseRequested | ev.NoteAdded | ev.LimitsChanged
) -> LoopState:
    """What people ask of a run that goes on by itself."""
    if event.key:
        if event.key in state.signals:
            return state
        state = replace(state, signals=(*state.signals, event.key)[-SIGNALS:])
    match event:
        case ev.StopRequested():
            stop: Literal["now", "later"] = "now" if event.now else state.stop or "later"
            return replace(state, stop=stop, approval=None)  # who wants it to end is asked nothing more
        case ev.PauseRequested():
            now = event.now or state.current is None
            return replace(state, pause="now" if now else state.pause or "later", paused=state.paused or now)
        case ev.NoteAdded():
            return _noted(state, event.text)
        case ev.LimitsChanged():
            return replace(state, limits={**state.limits, **event.limits})
        case _:
            assert_never(event)


def _noted(state: LoopState, text: str) -> LoopState:
    """One more note; what the attempt under way was shown stays known when an old one is dropped."""
    notes = (*state.notes, text)
    dropped = max(0, len(notes) - NOTES)
    it = state.current
    if it is not None and dropped:
        it = replace(it, notes_shown=max(0, it.notes_shown - dropped))
    return replace(state, notes=notes[dropped:], current=it)


def resumed(state: LoopState, event: ev.Resumed) -> LoopState:
    """The pause is over; what nobody decided in time is asked again."""
    if event.key:
        if event.key in state.signals:
            return state
        state = replace(state, signals=(*state.signals, event.key)[-SIGNALS:])
    return replace(state, pause=None, paused=False, answer=None if state.expired else state.answer)
