"""The API's deciding side: answers to requests, stop, pause, resume, ask again.

Rule: what is answered with 200 is on record, durably; nothing here drives a run.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, assert_never

from fastapi import APIRouter, Header

from loopwright.core.state import LoopState
from loopwright.errors import Locked, LoopwrightError, StoreError
from loopwright.hosts import people, steer
from loopwright.ports import Store
from loopwright.serving.answers import told
from loopwright.web import reading, shapes
from loopwright.web.api_runs import RunId
from loopwright.web.asking import Behind, Who, because
from loopwright.web.problems import Trouble

routes = APIRouter(tags=["decisions"])
CHANNEL: Final = "page"  # its people and tokens are the page's
Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", max_length=200, description="The same key asks it once."),
]
_NO_RUN: Final = "There is no such run."
_OVER: Final = "The run is over."


@routes.post(
    "/runs/{run}/approvals/{approval}/decision",
    tags=["approvals"],
    responses=because(
        _404="There is no such run, or it never asked this.",
        _409="Another answer stands (`answer`, `by`, `channel`, `at` say which), or another request is open (`live` is its id), or nothing is asked.",
        _410="Too late: nobody answered in time, or the run has ended.",
        _422="The request does not allow this answer as it was given, or the body is not as described.",
    ),
)
def decide(live: Behind, who: Who, run: RunId, approval: str, body: shapes.Decision) -> shapes.Decided:
    """Answers a request, once: the first answer stands, the same again is told what stands."""
    said = people.Said(
        answer=body.answer,
        by=who,
        channel=CHANNEL,
        note=body.note,
        override=body.override,
        add=body.add.limits(),
    )
    with live.stores() as store:
        state = reading.known(store, run)
        if not _asked(store, state, approval):
            raise Trouble(404, "this run never asked that")
        clean = people.redacting(store, run, live.environ)
        outcome = people.answer(store, run, said, now=datetime.now(UTC), approval=approval, redact=clean)
    live.nudge()
    return _decided(run, outcome)


def _asked(store: Store, state: LoopState, approval: str) -> bool:
    """Whether it is a request of this run by its whole id: how an id begins is no proof of having been asked."""
    if state.approval is not None and state.approval.id == approval:
        return True
    return bool(state.requests) and any(
        each.request.id == approval for each in people.requests(store, state.run)
    )


def _decided(run: str, outcome: people.Outcome) -> shapes.Decided:
    """What stands now; `Trouble` where this answer does not."""
    text = told(outcome).text
    match outcome:
        case people.Recorded(decision=decision, at=at, again=again):
            return shapes.Decided(
                word="again" if again else "recorded",
                text=text,
                run=run,
                approval=decision.id,
                answer=decision.answer,
                by=decision.by,
                channel=decision.channel,
                at=at,
            )
        case people.Conflict(decision=decision, at=at):
            who = {"answer": decision.answer, "by": decision.by, "channel": decision.channel}
            raise Trouble(
                409, text, more={**who, "at": None if at is None else at.astimezone(UTC).isoformat()}
            )
        case people.Stale(live=live):
            raise Trouble(409, text, more={"live": live.id})
        case people.Nothing():
            raise Trouble(409, text)
        case people.Late():
            raise Trouble(410, text)
        case people.Refused():
            raise Trouble(422, text)
        case _:
            assert_never(outcome)


@routes.post("/runs/{run}/stop", responses=because(_404=_NO_RUN, _409=_OVER))
def stop(
    live: Behind, who: Who, run: RunId, body: shapes.Asking | None = None, key: Key = None
) -> shapes.Done:
    """Ends a run after this iteration, or now; its state and work are kept."""
    return _steered(live, who, run, "stop", body, key)


@routes.post("/runs/{run}/pause", responses=because(_404=_NO_RUN, _409=_OVER))
def pause(
    live: Behind, who: Who, run: RunId, body: shapes.Asking | None = None, key: Key = None
) -> shapes.Done:
    """Lets a run rest after this iteration, or now, until it is resumed."""
    return _steered(live, who, run, "pause", body, key)


def _steered(
    live: Behind, who: str, run: str, what: steer.What, body: shapes.Asking | None, key: str | None
) -> shapes.Done:
    with live.stores() as store:
        state = reading.known(store, run)
        if state.finished is not None:
            raise Trouble(409, f"{run} is over already: {state.finished.reason}")
        cut = body is not None and body.now
        left = steer.ask(store, state, what, by=who, now=cut, at=datetime.now(UTC), key=key)
    live.nudge()
    text = f"{run} will {what} {'now' if left.now else 'after this iteration'}"
    return shapes.Done(run=run, word="again" if left.again else "recorded", text=text)


@routes.post(
    "/runs/{run}/resume",
    responses=because(
        _404=_NO_RUN,
        _409="It cannot go on like this (`detail` says why: complete, or at a limit that would end it at once), or is driven just now.",
    ),
)
def resume(live: Behind, who: Who, run: RunId, body: shapes.Resuming | None = None) -> shapes.Done:
    """Lets a run that is paused, expired or over go on, with words for its agent and higher limits."""
    said = body or shapes.Resuming()
    with live.stores() as store:
        reading.known(store, run)
    try:
        state = live.reopen(run, by=who, add=said.add.limits(), note=said.note)
    except Locked as error:
        raise Trouble(409, str(error), headers={"retry-after": "2"}) from None
    except StoreError:
        raise
    except LoopwrightError as error:
        raise Trouble(409, str(error)) from None
    if state.finished is not None:
        raise Trouble(409, f"{run} is over: {state.finished.reason}")
    live.nudge()
    return shapes.Done(run=run, word="recorded", text=f"{run} goes on")


@routes.post(
    "/runs/{run}/ask-again",
    tags=["approvals"],
    responses=because(
        _404=_NO_RUN, _409="Nothing expired: it still asks (`live`), or asks nothing.", _410=_OVER
    ),
)
def ask_again(live: Behind, who: Who, run: RunId, body: shapes.Nothing | None = None) -> shapes.Done:  # noqa: ARG001 - an empty body is one
    """Lets a run ask anew what nobody answered in time."""
    with live.stores() as store:
        reading.known(store, run)
        outcome = people.ask_again(store, run, by=who, now=datetime.now(UTC))
    match outcome:
        case None:
            live.nudge()
            return shapes.Done(run=run, word="recorded", text=f"{run} asks again")
        case people.Stale(live=open_):
            raise Trouble(409, f"{run} still asks: {open_.question}", more={"live": open_.id})
        case people.Nothing(why=why):
            raise Trouble(409, f"{why}: nothing expired")
        case people.Late(why=why):
            raise Trouble(410, why)
        case _:
            assert_never(outcome)
