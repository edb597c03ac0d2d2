"""Answers of people, for every channel: one function, whoever asks through whatever.

Rules. A decision is the signal `decision/<approval id>`, created if absent: once it stands it is durable,
and no other will ever stand there. What a person is told is read back from what stands. Nothing here
drives a run.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, NoReturn, TypeAlias

from loopwright.codec import decode_signal, encode_signal, loads, said_at
from loopwright.core import events as ev
from loopwright.core.showing import Shown, shown
from loopwright.core.state import LoopState
from loopwright.drive import expire
from loopwright.errors import StoreError, UsageError
from loopwright.figures import brief
from loopwright.hosts import attempts
from loopwright.hosts.take import raised
from loopwright.journal import Journal, history
from loopwright.loop import Loop
from loopwright.ports import Agent, Store
from loopwright.redact import PLAIN, Redactor, redactor


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a person says to a request. `override` is why work that has not passed is accepted; `add` raises limits."""

    answer: Literal["approve", "revise", "reject"]
    by: str
    channel: str
    note: str = ""
    override: str | None = None
    add: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """It stands, durably; `again`: the same was said before, `at` that time."""

    decision: ev.ApprovalDecided
    at: datetime | None = None
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Somebody else was first with another answer."""

    decision: ev.ApprovalDecided
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """The request is over: nobody answered in time, or the run has ended."""

    why: str
    expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """The answer is to another request than the one that is open."""

    live: ev.ApprovalRequested


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """Nothing is asked."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The request does not allow this answer as it was given."""

    why: str


Outcome: TypeAlias = Recorded | Conflict | Late | Stale | Nothing | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request of a run and what became of it. `void`: the work changed, so that nobody's answer holds."""

    request: ev.ApprovalRequested
    at: datetime
    decision: ev.ApprovalDecided | None = None
    decided_at: datetime | None = None
    before: LoopState = field(default_factory=LoopState)  # the run when it was decided
    void: bool = False


def answer(
    store: Store,
    run: str,
    said: Said,
    *,
    now: datetime,
    approval: str | None = None,
    redact: Redactor = PLAIN,
) -> Outcome:
    """What becomes of an answer to the open request of `run`, or to `approval` (an id, or how it begins).

    What a person wrote goes through `redact` before it is on record. `UsageError` for a run or a request that was never there.
    """
    if approval is not None and not approval:
        raise UsageError("--approval is empty: name the request, or leave it out for the open one")
    override = None if said.override is None else redact.text(said.override)
    said = replace(said, note=redact.text(said.note), override=override)
    state = _state(store, run)
    live = state.approval
    if live is not None and (approval is None or live.id.startswith(approval)):
        outcome, meant = _decide(store, state, live, said, now), live.id
    else:
        past = _meant(store, run, approval)
        outcome, meant = _of_past(state, past, said), "" if past is None else past.request.id
    if (why := _in_vain(state, outcome, said)) is not None:
        problem = f"{said.answer} by {brief(said.by, 80)} {why}"
        attempts.put_down(store, run, ev.Noticed(approval=meant, channel=said.channel, problem=problem), now)
    return outcome


def _of_past(state: LoopState, past: Asked | None, said: Said) -> Outcome:
    """What becomes of an answer to a request that is not the open one."""
    if past is None:
        return Nothing(why=_unasked(state))
    if past.decision is not None and not past.void:
        return _compared(state, past.decision, past.decided_at, past.before, said)
    if state.approval is not None:
        return Stale(live=state.approval)
    if state.finished is not None:
        return Late(why=f"{state.run} is over: {state.finished.reason}", expired=False)
    return Nothing(why=_unasked(state))


def _in_vain(state: LoopState, outcome: Outcome, said: Said) -> str | None:
    """What the record has to say of an answer that did not count; `None` of one that did, or that can be given anew."""
    match outcome:
        case Conflict(decision=decision):
            return f"came second: {decision.answer} by {brief(decision.by, 80)} ({decision.channel}) stands"
        case Late(why=why):
            return f"came too late: {why}"
        case Stale(live=live):
            return f"came too late: {live.id} is asked by now"
        case Refused() if not _may(state, said):
            return "was refused: not among approval.approvers"
        case _:
            return None


def redacting(store: Store, run: str, environ: Mapping[str, str]) -> Redactor:
    """What takes the secrets of this environment out, those that the run's loop lets through included."""
    spec = _state(store, run).spec
    parts = [spec.get("agent"), spec.get("improve"), *spec.get("gates", ())]
    said = [part.get("env", ()) for part in parts if isinstance(part, Mapping)]
    return redactor(environ, allowed={name for names in (spec.get("env", ()), *said) for name in names})


def ask_again(store: Store, run: str, *, by: str, now: datetime) -> Late | Stale | Nothing | None:
    """Lets a request that expired be asked anew; `None` once that is on record."""
    state = _state(store, run)
    if state.finished is not None:
        return Late(why=f"{run} is over: {state.finished.reason}", expired=False)
    live = state.approval
    if live is not None and not _over(live, now):
        return Stale(live=live)
    if live is not None:
        expire(store, run, live.id, now)
    elif not state.expired:
        return Nothing(why=_unasked(state))
    key = f"ask/{secrets.token_hex(8)}"
    store.signal(run, key, encode_signal(ev.Resumed(by=by, key=key), now))
    return None


def driver(store: Store, run: str) -> ev.Claimed | None:
    """Who took a run last."""
    return _state(store, run).claim


def view(state: LoopState) -> Shown | None:
    """What the open request of a run shows; needs neither its agent nor its gates."""
    if state.approval is None:
        return None
    return shown(Loop.from_spec(state.spec).policy(agent=Agent(name="", call=_nobody), gates=()), state)


def requests(store: Store, run: str) -> Iterator[Asked]:
    """Every request of a run, oldest first, the open one last."""
    asked: Asked | None = None
    before = LoopState()
    for _, at, event, state in history(store, run):
        match event:
            case ev.ApprovalRequested():
                if asked is not None:
                    yield asked
                asked = Asked(request=event, at=at)
            case ev.ApprovalDecided() if asked is not None and asked.decision is None:
                asked = Asked(
                    request=asked.request, at=asked.at, decision=event, decided_at=at, before=before
                )
            case ev.WorkspaceChanged() | ev.EvidenceChanged() | ev.PolicyChanged() if asked is not None:
                pending = before.answer is not None and before.answer.answer in {"approve", "revise"}
                if pending and state.answer is None:
                    asked = Asked(
                        request=asked.request,
                        at=asked.at,
                        decision=asked.decision,
                        decided_at=asked.decided_at,
                        before=asked.before,
                        void=True,
                    )
            case _:
                pass
        before = state
    if asked is not None:
        yield asked


def standing(store: Store, run: str, request: str) -> tuple[ev.ApprovalDecided, datetime | None] | None:
    """The decision that waits to be taken in under a request's key, and when it was made."""
    for key, record in store.signals(run):
        if key == f"decision/{request}":
            event = decode_signal(run, key, record)
            return (event, said_at(record)) if isinstance(event, ev.ApprovalDecided) else None
    return None


def inbox(
    store: Store, *, every: bool = False, limit: int = 100_000
) -> tuple[list[tuple[LoopState, Asked]], list[str]]:
    """What waits for a person, the nearest deadline first; `every`: all that was ever asked, newest first.

    Of the `limit` runs with the latest news.

    And what cannot be read: one damaged run does not hide the others.
    """
    found, damaged = [], []
    for run, body in store.heads(active=None if every else True, limit=limit):
        try:
            if not every and not _may_wait(body):
                continue
            state = _state(store, run)
            asked = list(requests(store, run)) if state.requests else []
        except StoreError as error:
            damaged.append(str(error))
            continue
        found += [(state, each) for each in (asked if every else asked[-1:])]
    if every:
        return sorted(found, key=lambda each: each[1].at, reverse=True), damaged
    waits = [(state, asked) for state, asked in found if state.approval is not None or state.expired]
    return sorted(waits, key=lambda each: str(each[1].request.deadline)), damaged


def _may_wait(body: bytes) -> bool:
    """Whether a head says that its run waits for a person; one that cannot be read may."""
    try:
        head = loads(body)
        return bool(head.get("approval")) or head.get("reason") == "approval_expired"
    except (ValueError, AttributeError):
        return True


def _decide(store: Store, state: LoopState, live: ev.ApprovalRequested, said: Said, now: datetime) -> Outcome:
    """Writes the answer under the open request's key, unless the time is over or another one stands there."""
    run = state.run
    if (there := standing(store, run, live.id)) is not None:
        return _compared(state, *there, state, said)
    if (why := _refused(state, live, said)) is not None:
        return Refused(why=why)
    if _over(live, now):
        expire(store, run, live.id, now)
    else:
        decision = ev.ApprovalDecided(
            id=live.id,
            answer=said.answer,
            by=said.by,
            channel=said.channel,
            note=said.note,
            override=said.override,
            edits=_edits(state, said),
        )
        if store.signal(run, f"decision/{live.id}", encode_signal(decision, now)):
            return Recorded(decision=decision, at=now)
    if (there := standing(store, run, live.id)) is not None:
        return _compared(state, *there, state, said)
    past = _meant(store, run, live.id)  # taken in meanwhile: the journal has it
    if past is not None and past.decision is not None:
        return _compared(state, past.decision, past.decided_at, past.before, said)
    return Nothing(why=_unasked(_state(store, run)))


def _refused(state: LoopState, live: ev.ApprovalRequested, said: Said) -> str | None:
    """Why this answer cannot be taken as it is; `None` when it can."""
    if not _may(state, said):
        return f"{said.by} on {said.channel} is not among this loop's approval.approvers"
    if said.answer == "revise" and not said.note.strip():
        return "revise needs a note: it is what the agent reads"
    if said.override is not None and not said.override.strip():
        return "an override needs a reason: it is what the record will say"
    verdict = state.current.verdict if state.current is not None and live.about == "accept" else None
    if said.answer == "approve" and verdict is not None and not verdict.passed and not said.override:
        return (
            f"iteration {live.iteration} has not passed ({', '.join(verdict.blockers)}): "
            "to accept it all the same, approve with a reason to override that"
        )
    return None


def _may(state: LoopState, said: Said) -> bool:
    """Whether the loop lets this person decide: all may where it names none, else `channel:who` or a whole `channel`."""
    named = (state.spec.get("approval") or {}).get("approvers") or ()
    return not named or said.channel in named or f"{said.channel}:{said.by}" in named


def _compared(
    state: LoopState, decision: ev.ApprovalDecided, at: datetime | None, before: LoopState, said: Said
) -> Outcome:
    """What a person is told who comes second."""
    if decision.answer == "expired":
        over = f", and the run is over: {state.finished.reason}" if state.finished is not None else ""
        return Late(why=f"nobody answered in time{over}", expired=True)
    same = (decision.answer, decision.note, decision.override) == (said.answer, said.note, said.override)
    if same and decision.edits == _edits(before, said):
        return Recorded(decision=decision, at=at, again=True)
    return Conflict(decision=decision, at=at)


def _edits(state: LoopState, said: Said) -> dict[str, float]:
    """The limits that come with the answer."""
    if not said.add:
        return {}
    policy = Loop.from_spec(state.spec).policy(agent=Agent(name="", call=_nobody), gates=())
    return raised(state, policy.limits, said.add)


def _meant(store: Store, run: str, approval: str | None) -> Asked | None:
    """The request that a person means: the last one, or the one with this id."""
    last, found = None, []
    for asked in requests(store, run):
        last = asked
        if approval is not None and asked.request.id.startswith(approval):
            found.append(asked)
    if approval is None:
        return last
    if len(found) != 1:
        many = f"{len(found)} requests" if found else "no request"
        raise UsageError(f"run {run} has {many} with an id that begins with {approval!r}")
    return found[0]


def _unasked(state: LoopState) -> str:
    """Why there is nothing to answer."""
    if state.finished is not None:
        return f"{state.run} is over: {state.finished.reason}; nobody was asked"
    if state.paused:
        return f"{state.run} is paused and asks nothing"
    if state.current is not None and state.requests and state.current.done:
        return f"{state.run} asks nothing just now: its work is judged again first"
    return f"{state.run} asks nothing just now"


def _over(asked: ev.ApprovalRequested, now: datetime) -> bool:
    return asked.deadline is not None and now >= asked.deadline


def _state(store: Store, run: str) -> LoopState:
    journal = Journal(store, run)
    if not journal.exists:
        raise UsageError(f"there is no run {run} here; loopwright list --all shows what there is")
    return journal.state


async def _nobody(*_: object) -> NoReturn:
    raise AssertionError("only a policy was wanted")
