"""What is on record of a loop's slots: what each came to, which runs were begun, since when a schedule is seen.

Rule: a record is created once and never changed, under a key that is never free again. What need not be read any more
is settled, so that reading stays short.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from loopwright import codec
from loopwright.ports import Store

KEEP: Final = 120  # records of each schedule that stay to be read: more than one look can make
MINUTES: Final = "%Y%m%dT%H%MZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What became of a slot: `started` with its run, or `skipped` with its reason.

    Where one record stands for many, `count` slots (more, unless `whole`) from `first` on were skipped. `marks` are the
    schedules it is a slot of.
    """

    slot: datetime
    what: str
    reason: str = ""
    run: str | None = None
    at: datetime | None = None
    first: datetime | None = None
    count: int = 1
    whole: bool = True
    marks: tuple[str, ...] = ()


def history(store: Store, loop: str) -> list[Slot]:
    """What became of the last slots of a loop, decided last first."""
    return read(store, loop).slots[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What the store has of a loop's slots, oldest first: decisions, runs begun for them, schedules seen since."""

    slots: list[Slot]
    begun: frozenset[datetime]
    seen: list[tuple[str, datetime, str]]  # mark, since when, key


def of(loop: str) -> str:
    """The name under which the slots of a loop are kept; no run has one like it."""
    return f"trigger:{loop}"


def key(kind: str, slot: datetime) -> str:
    """What a record about a slot is called: kind `slot`, or `begun` where its run was begun."""
    return f"{kind}/{slot.astimezone(UTC):{MINUTES}}"


def time_of(text: str) -> datetime:
    """The minute that is written in a key."""
    return datetime.strptime(text, MINUTES).replace(tzinfo=UTC)


def read(store: Store, loop: str) -> Records:
    """What is on record of a loop's slots, as far as it is still read."""
    slots, begun, seen = [], set(), []
    for name, record in store.signals(of(loop)):
        kind, _, rest = name.partition("/")
        if kind == "slot":
            slots.append(slot_of(time_of(rest), record))
        elif kind == "begun":
            begun.add(time_of(rest))
        elif kind == "seen":
            mark, _, since = rest.partition("/")
            seen.append((mark, time_of(since), name))
    return Records(slots=slots, begun=frozenset(begun), seen=seen)


def slot_of(slot: datetime, record: bytes) -> Slot:
    """What a record says became of a slot."""
    try:
        found: Any = codec.loads(record)
        first = found.get("first")
        return Slot(
            slot=slot,
            what=found["what"],
            reason=str(found["reason"]),
            run=found["run"],
            at=datetime.fromisoformat(found["at"]),
            first=None if first is None else datetime.fromisoformat(first),
            count=int(found["count"]),
            whole=bool(found["whole"]),
            marks=tuple(found["marks"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError):  # decided it is, by its key
        return Slot(slot=slot, what="skipped", reason="its record cannot be read")


def written(each: Slot) -> bytes:
    """The record of it."""
    return codec.dumps({name: getattr(each, name) for name in each.__slots__})


def surplus(records: Records, marks: Iterable[str]) -> list[str]:
    """The keys of what need not be read any more: of each schedule the last records stay, of those that are gone some."""
    kept: set[datetime] = set()
    for mark in (None, *marks):
        mine = [each.slot for each in records.slots if mark is None or mark in each.marks]
        kept.update(mine[-KEEP:])
    gone = [each.slot for each in records.slots if each.slot not in kept]
    if len(gone) < KEEP // 2:  # not a write for each
        return []
    alone = records.begun - {each.slot for each in records.slots}  # somebody was cut off here
    return [key("slot", slot) for slot in gone] + [key("begun", slot) for slot in (*gone, *alone)]


def told(each: Slot) -> str:
    """What became of a slot, in a line."""
    if each.count > 1 and each.first is not None:
        more = "" if each.whole else "more than "
        return f"{more}{each.count} slots from {each.first:%Y-%m-%d %H:%M} to {each.slot:%Y-%m-%d %H:%M} UTC skipped: {each.reason}"
    reason = f": {each.reason}" if each.reason else ""
    return f"slot {each.slot:%Y-%m-%d %H:%M} UTC {each.what}{reason}"
