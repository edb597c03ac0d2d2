"""Slots: the minutes at which schedules start runs. Each is decided once, by whoever is first.

Rules. A slot is decided by one record that is created if absent, and the run's id is made of the slot: any number of
servers start it once. A record that says `started` is kept: whoever sees that its run was never begun begins it. What is
due is worked out from the records and the wall clock alone, so a clock set back starts nothing twice, and one set ahead
is a time that was missed.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from loopwright.errors import LoopwrightError
from loopwright.ports import Store
from loopwright.serving import starts, turns
from loopwright.serving.book import Book, Served
from loopwright.serving.slot_records import (
    MINUTES,
    Records,
    Slot,
    history,
    key,
    of,
    read,
    surplus,
    told,
    written,
)
from loopwright.serving.slots_due import Due, What, delay, due
from loopwright.stores.opened import owner
from loopwright.triggers.cron import Schedule
from loopwright.unattended import Trigger

__all__ = ["Coming", "Hosting", "Slot", "Watch", "history", "plans", "step", "tick", "told", "upcoming"]
TICK_S: Final = 1.0  # the longest wait: the wall clock may be set meanwhile
MEND_S: Final = 60.0  # how often records without their run are looked for
LEASE_S: Final = 60.0
TOLD: Final = 1000  # troubles remembered
_FAR: Final = datetime.max.replace(tzinfo=UTC)


class Hosting(Protocol):
    """What of a server this needs (`live.Live`)."""

    @property
    def project(self) -> Path:
        """The folder that its runs work in."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The server's environment."""

    @property
    def book(self) -> Book:
        """The loops it knows."""

    @property
    def tell(self) -> Callable[[str], None]:
        """Takes a line for the operator."""

    def stores(self) -> AbstractContextManager[Store]:
        """The store, for the thread that asks."""

    def nudge(self) -> None:
        """There is a new run to take up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """A start that is to come: at `at`, which is later than its slot where a delay was drawn for it."""

    slot: datetime
    at: datetime
    trigger: Trigger
    schedule: Schedule


def upcoming(served: Served, n: int, now: datetime) -> list[Coming]:
    """The next `n` starts by schedule after `now`, in their order; each slot once."""
    found: dict[datetime, Coming] = {}
    for _, schedule, trigger in plans(served):
        for i, slot in enumerate(schedule.later(now - timedelta(seconds=trigger.jitter))):
            at = slot + delay(schedule, trigger, served.name, slot)
            if at > now and (slot not in found or at < found[slot].at):
                found[slot] = Coming(slot=slot, at=at, trigger=trigger, schedule=schedule)
            if i >= 2 * n and slot > now:
                break
    return sorted(found.values(), key=lambda each: (each.at, each.slot))[:n]


def plans(served: Served) -> list[tuple[str, Schedule, Trigger]]:
    """The schedules of a loop with the triggers that say them; each has a mark by which records know it."""
    pairs = zip(served.schedules, served.triggers, strict=False)
    return [(_mark(schedule), schedule, trigger) for schedule, trigger in pairs if schedule is not None]


def _mark(schedule: Schedule) -> str:
    return hashlib.sha256(f"{schedule.expr}\0{schedule.name}".encode()).hexdigest()[:8]


# deciding


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """A slot that is due, with the trigger whose rules it goes by and all schedules it is a slot of."""

    one: Due
    trigger: Trigger
    marks: tuple[str, ...]


@dataclass(slots=True)
class _Known:
    """What this server remembers of a loop, only to look less often."""

    marks: frozenset[str]
    now: datetime
    look: datetime  # nothing is due before
    mend: float  # when to look for records without their run, by the monotonic clock
    done: dict[str, datetime] = field(
        default_factory=dict
    )  # the last slot of each schedule that was looked at


@dataclass(slots=True)
class Watch:
    """What a server remembers between two looks; all of it can be made again from the store."""

    mend_s: float = MEND_S
    count: Callable[[str, What], None] = lambda _loop, _what: None  # told of each slot that is decided here
    known: dict[str, _Known] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)


async def tick(
    live: Hosting,
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    wait_s: float = TICK_S,
    mend_s: float = MEND_S,
    count: Callable[[str, What], None] = lambda _loop, _what: None,
) -> None:
    """Starts what is due by the schedules of a server's loops, until it is cancelled."""
    watch = Watch(mend_s=mend_s, count=count)
    while True:
        left_s = (await asyncio.to_thread(step, live, watch, now) - now()).total_seconds()
        await asyncio.sleep(left_s if 0 < left_s < wait_s else wait_s)


def step(live: Hosting, watch: Watch, now: Callable[[], datetime]) -> datetime:
    """One look at every loop: what is due is decided and begun. When to look again at the latest, by the wall clock.

    What goes wrong with one loop is told once, and the others go on.
    """
    loops = live.book.loops
    with live.stores() as store:
        for name in {*watch.known, *loops}:
            try:
                if (served := loops.get(name)) is not None:
                    _attend(live, store, served, watch, now())
                else:
                    _forget(store, name, read(store, name), frozenset())
                    del watch.known[name]
                watch.told.pop(name, None)
            except LoopwrightError as error:
                _tell(live, watch, name, f"{name}: its schedule cannot be kept: {error}")
    return min((known.look for known in watch.known.values()), default=_FAR)


def _tell(live: Hosting, watch: Watch, about: str, line: str) -> None:
    """Tells what goes wrong, the same thing once."""
    if watch.told.get(about) != line:
        live.tell(line)
    if len(watch.told) >= TOLD:
        watch.told.clear()
    watch.told[about] = line


def _attend(live: Hosting, store: Store, served: Served, watch: Watch, now: datetime) -> None:
    """One look at a loop."""
    mine = plans(served)
    marks = frozenset(mark for mark, _, _ in mine)
    known = watch.known.get(served.name)
    if known is None or known.marks != marks:
        known = _Known(marks=marks, now=now, look=now, mend=0.0, done=known.done if known else {})
    if time.monotonic() < known.mend and known.now <= now < known.look:
        known.now = now
        return
    records = read(store, served.name)
    _forget(store, served.name, records, marks)
    for each in records.slots:
        if each.what == "started" and each.slot not in records.begun:
            _begin(live, store, served, each, watch)
    pending = _pending(store, served, records, known, now)
    if len(pending) > len(mine):  # a time that was missed: one server goes through it
        lease = store.lease(of(served.name), owner(), LEASE_S)
        if lease is None:
            return
        try:
            records = read(store, served.name)
            pending = _pending(store, served, records, known, now)
            _decide_all(live, store, served, pending, watch, known, now)
        finally:
            lease.release()
    else:
        _decide_all(live, store, served, pending, watch, known, now)
    decided = frozenset(each.slot for each in records.slots)
    known.look = min(
        (_start(*plan[1:], served.name, known.done[plan[0]], decided) for plan in mine), default=_FAR
    )
    known.now = now
    known.mend = time.monotonic() + (watch.mend_s if mine else float("inf"))
    watch.known[served.name] = known
    store.settle(of(served.name), surplus(records, marks))


def _pending(
    store: Store, served: Served, records: Records, known: _Known, now: datetime
) -> dict[datetime, _Pending]:
    """The slots of a loop that are due, each once, whichever schedules it is a slot of."""
    decided = frozenset(each.slot for each in records.slots)
    pending: dict[datetime, _Pending] = {}
    for mark, schedule, trigger in plans(served):
        since = known.done[mark] = _since(store, served.name, records, mark, known, now)
        for one in due(schedule, trigger, served.name, since=since, now=now, decided=decided):
            other = pending.get(one.slot)
            marks = (mark, *(other.marks if other else ()))
            if other is None or one.what == "started":
                pending[one.slot] = _Pending(one=one, trigger=trigger, marks=marks)
            else:
                pending[one.slot] = replace(other, marks=marks)
    return pending


def _decide_all(
    live: Hosting,
    store: Store,
    served: Served,
    pending: Mapping[datetime, _Pending],
    watch: Watch,
    known: _Known,
    now: datetime,
) -> None:
    for slot, each in sorted(pending.items()):
        _decide(live, store, served, each, watch=watch, now=now)
        known.done |= dict.fromkeys(each.marks, slot)


def _start(
    schedule: Schedule, trigger: Trigger, loop: str, after: datetime, decided: frozenset[datetime]
) -> datetime:
    """When the first slot after this one that nobody has decided yet is due."""
    while (slot := schedule.next(after)) in decided and slot is not None:
        after = slot
    return _FAR if slot is None else slot + delay(schedule, trigger, loop, slot)


def _since(store: Store, loop: str, records: Records, mark: str, known: _Known, now: datetime) -> datetime:
    """The last slot of a schedule that was looked at, or when it was first seen; never ahead of the clock."""
    seen = [since for of, since, _ in records.seen if of == mark and since <= now]
    if not seen:
        seen = [now.astimezone(UTC).replace(second=0, microsecond=0)]
        store.signal(of(loop), f"seen/{mark}/{seen[0]:{MINUTES}}", b"{}")
    slots = [each.slot for each in records.slots if mark in each.marks]
    done = [known.done[mark]] if mark in known.done else []
    return max(at for at in (min(seen), *slots, *done) if at <= now)


def _forget(store: Store, loop: str, records: Records, marks: frozenset[str]) -> None:
    """A schedule that a loop does not have any more is new when it comes back: nothing was missed meanwhile."""
    store.settle(of(loop), [key for mark, _, key in records.seen if mark not in marks])


def _decide(
    live: Hosting,
    store: Store,
    served: Served,
    each: _Pending,
    *,
    watch: Watch,
    now: datetime,
) -> bool:
    """Whether this server was the one to decide a slot; where it comes to a start, its run is begun then."""
    one = each.one
    what, reason, run = one.what, one.reason, starts.id_of_slot(served.name, one.slot)
    if what == "started":
        in_the_way = turns.in_the_way(turns.under_way(store, served.name), each.trigger.overlap)
        if in_the_way:
            what, reason = "skipped", f"{in_the_way}; overlap = {each.trigger.overlap}"
    record = Slot(
        slot=one.slot,
        what=what,
        reason=reason,
        run=run if what == "started" else None,
        at=now,
        first=one.first,
        count=one.count,
        whole=one.whole,
        marks=each.marks,
    )
    if not store.signal(of(served.name), key("slot", one.slot), written(record)):
        return False
    live.tell(f"{served.name}: {told(record)}")
    watch.count(served.name, what)
    if what == "started":
        _begin(live, store, served, record, watch)
    return True


def _begin(live: Hosting, store: Store, served: Served, each: Slot, watch: Watch) -> None:
    """Begins the run of a slot that was decided so, whoever decided it; where it cannot, it is tried again."""
    run = starts.id_of_slot(served.name, each.slot)
    try:
        starts.begin(
            store,
            served.assembled,
            run,
            project=live.project,
            environ=live.environ,
            origin="cron",
            labels={"slot": f"{each.slot.astimezone(UTC):%Y-%m-%dT%H:%MZ}"},
        )
        store.signal(of(served.name), key("begun", each.slot), b"{}")
    except LoopwrightError as error:  # the other slots go on
        _tell(live, watch, run, f"{run} cannot be begun: {error}")
        return
    watch.told.pop(run, None)
    live.nudge()
