"""What is on record of a message: that it is begun, that it was sent, or that it never will be.

Rule: the run's own record of it comes first, for what the post has put down it does not look at again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from loopwright.cards import Card, Channel
from loopwright.codec import encode_signal
from loopwright.core.events import Noticed
from loopwright.ports import Store
from loopwright.serving import due as dues
from loopwright.serving.due import Due


def begun(store: Store, due: Due) -> bool:
    """Whether this is still to be sent; that it is begun is on record then."""
    done = dues.records(store, due.run)
    if due.mark == "ask":
        if {f"{due.key}/sent", f"{due.key}/lost"} & done.keys():
            return False
        dues.record(store, due, "began")
        return True
    return dues.record(store, due, due.mark)  # told at most once


def was_sent(store: Store, due: Due, ref: str) -> None:
    """Puts on record that a message was sent, and where it stands."""
    if due.mark == "over":
        dues.record(store, due, "over")
    if due.mark != "ask":
        return
    _notice(store, due.card, due.channel, ref=ref)  # before it: what has this is looked at no more
    dues.record(store, due, "sent", ref=ref, approval=due.card.approval, remote=due.channel.remote)


def was_lost(store: Store, due: Due, problem: str) -> None:
    """Puts on record that a message is given up, and why."""
    if due.mark == "over":
        dues.record(store, due, "over", problem=problem)
    if due.mark != "ask":
        return
    _notice(store, due.card, due.channel, problem=problem)
    dues.record(store, due, "lost", problem=problem)


def _notice(store: Store, card: Card, channel: Channel, *, ref: str = "", problem: str | None = None) -> None:
    """What became of a request's notice, for the run's own record."""
    if card.approval is None:
        return
    said = Noticed(approval=card.approval, channel=channel.name, ref=ref, problem=problem)
    key = f"noticed/{card.approval[: dues.SHORT]}/{channel.name}"
    store.signal(card.run, key, encode_signal(said, datetime.now(UTC)))


def still(store: Store, due: Due) -> Due | None:
    """The same message with what is known now, or `None` where it is not wanted any more."""
    if due.mark == "over" or due.card.approval is None:
        return due
    if not dues.is_open(store, due.run, due.card.approval):
        return None
    lost = dues.unreached(dues.records(store, due.run), due.what)
    others = tuple(name for name in lost if name != due.channel.name)
    return replace(due, card=replace(due.card, unreached=others))
