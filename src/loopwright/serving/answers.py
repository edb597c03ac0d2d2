"""What a person is told of an answer, whatever it came through: the page, a channel, a signed request.

Rule: one sentence and one word for each outcome, so that everybody hears the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, assert_never

from loopwright.cards import Answered, Told
from loopwright.core.events import ApprovalDecided
from loopwright.errors import UsageError
from loopwright.hosts import people
from loopwright.ports import Store

SHORT: Final = 12  # characters of a request's id that say which it is
_DONE = {"approve": "approved", "revise": "sent back", "reject": "rejected", "expired": "expired"}


def answered(
    store: Store,
    said: Answered,
    channel: str,
    *,
    environ: Mapping[str, str],
    add: Mapping[str, float] | None = None,
) -> Told:
    """What becomes of what a person said through `channel`; it is durable when the word is `recorded`.

    `add` raises limits with the answer.
    """
    if len(said.approval) < SHORT:  # what is guessed, or meant for another, could begin like it
        return Told(word="unknown", text=f"that is no request's id: it has {SHORT} characters or more")
    given = people.Said(
        answer=said.answer, by=said.by, channel=channel, note=said.note, override=said.override, add=add or {}
    )
    try:
        redact = people.redacting(store, said.run, environ)
        outcome = people.answer(
            store, said.run, given, now=datetime.now(UTC), approval=said.approval, redact=redact
        )
    except UsageError as error:
        return Told(word="unknown", text=str(error))
    return told(outcome)


def told(outcome: people.Outcome) -> Told:
    """The word and the sentence for an outcome."""
    match outcome:
        case people.Recorded(decision=decision, at=at, again=again):
            return Told(word="again" if again else "recorded", text=_stands(decision, at, again=again))
        case people.Conflict(decision=decision, at=at):
            return Told(word="conflict", text=_stands(decision, at, again=True))
        case people.Late(why=why):
            return Told(word="late", text=f"too late: {why}")
        case people.Stale(live=live):
            return Told(
                word="stale", text=f"this was about an earlier state; now it is asked: {live.question}"
            )
        case people.Nothing(why=why):
            return Told(word="nothing", text=why)
        case people.Refused(why=why):
            return Told(word="refused", text=why)
        case _:
            assert_never(outcome)


def _stands(decision: ApprovalDecided, at: datetime | None, *, again: bool) -> str:
    when = "" if at is None else f" at {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    already = "already " if again else ""
    return f"{already}{_DONE[decision.answer]} by {decision.by} ({decision.channel}){when}"
