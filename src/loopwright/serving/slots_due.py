"""What is due by a schedule: which slots have come since the last one, and what each should come to.

Rule: values in, values out. A slot is the minute of the schedule; a delay that is drawn for it never moves it, and
lateness counts from the end of the delay. However long nobody looked, the answer is short.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from loopwright.triggers.cron import Schedule
from loopwright.unattended import Trigger
from loopwright.units import duration

ALL: Final = 100  # missed slots that are looked at one by one; what is older is summed up


What: TypeAlias = Literal["started", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A slot that is due and what it should come to. `first` and `count` where one record stands for many.

    `whole` is false where there were more than `count`, not looked at one by one.
    """

    slot: datetime
    what: What
    reason: str = ""
    first: datetime | None = None
    count: int = 1
    whole: bool = True


def delay(schedule: Schedule, trigger: Trigger, loop: str, slot: datetime) -> timedelta:
    """How much later than its slot a run starts: drawn from the loop's name and the slot, the same for every server.

    Never so long that the next slot comes first.
    """
    if not trigger.jitter:
        return timedelta()
    drawn = hashlib.sha256(f"{loop}\0{slot.astimezone(UTC):%Y%m%dT%H%MZ}".encode()).digest()[:7]
    following = schedule.next(slot)
    room = trigger.jitter if following is None else (following - slot).total_seconds()
    return timedelta(seconds=int.from_bytes(drawn, "big") / 2**56 * min(trigger.jitter, room))


def due(
    schedule: Schedule,
    trigger: Trigger,
    loop: str,
    *,
    since: datetime,
    now: datetime,
    decided: frozenset[datetime] = frozenset(),
) -> list[Due]:
    """The slots after `since` whose time has come, and what each should come to, in their order; at most 101.

    `decided` are slots that are on record already.
    """
    passed = _passed(schedule, since, now)
    recent = [slot for slot in passed.recent if slot not in decided]
    if recent and recent[-1] + delay(schedule, trigger, loop, recent[-1]) > now:
        recent.pop()  # only the last can be: a delay ends before the next slot
    late = {slot: now - slot - delay(schedule, trigger, loop, slot) for slot in recent}
    missed = [slot for slot in recent if late[slot].total_seconds() > trigger.grace]
    made = [_made(trigger, slot, late[slot], recent, missed) for slot in recent]
    if passed.last is not None and passed.last not in decided:
        why = f"missed by {_length(now - passed.last)} or more; {ALL} were missed after it"
        more: dict[str, Any] = {"first": passed.first, "count": passed.count, "whole": passed.whole}
        made.insert(0, Due(slot=passed.last, what="skipped", reason=why, **more))
    return made


def _made(
    trigger: Trigger, slot: datetime, late: timedelta, recent: list[datetime], missed: list[datetime]
) -> Due:
    """What one slot should come to."""
    if slot not in missed:
        return Due(slot=slot, what="started")
    by = f"missed by {_length(late)}"
    if trigger.misfire == "skip":
        return Due(slot=slot, what="skipped", reason=f"{by}; misfire = skip")
    if trigger.misfire == "run_all":
        return Due(slot=slot, what="started", reason=by)
    if slot == recent[-1]:  # none is on time
        others = f" and stands for {len(missed) - 1} more" if len(missed) > 1 else ""
        return Due(slot=slot, what="started", reason=f"{by}{others}")
    return Due(slot=slot, what="skipped", reason=f"{by}; {recent[-1]:%Y-%m-%d %H:%M} UTC stands for it")


def _length(late: timedelta) -> str:
    """A lateness for people: without what is small beside it."""
    seconds = late.total_seconds()
    if seconds >= 172_800:
        return f"{seconds // 86_400:.0f} days"
    return duration(seconds // 60 * 60 if seconds >= 60 else max(1.0, seconds // 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passed:
    """The slots of a time that is over: the newest one by one, and how many are older, `first` to `last`."""

    recent: list[datetime]
    first: datetime | None = None
    last: datetime | None = None
    count: int = 0
    whole: bool = True


def _passed(schedule: Schedule, since: datetime, now: datetime) -> _Passed:
    """The slots after `since` up to `now`; years of minutes are not counted one by one."""
    span = timedelta(hours=1)
    while True:
        start = max(since, now - span)
        recent: deque[datetime] = deque(maxlen=ALL)
        count, last = 0, None
        for slot in schedule.later(start):
            if slot > now:
                break
            if len(recent) == ALL:
                count, last = count + 1, recent[0]
            recent.append(slot)
        if start == since or last is not None:
            break
        span *= 4
    if last is None:
        return _Passed(recent=list(recent))
    return _Passed(
        recent=list(recent),
        first=schedule.next(since),
        last=last,
        count=count,
        whole=start == since,
    )
