"""Working on the runs of a store that nobody drives: those that were begun, woken, answered, or left by a dead process.

Rules. What there is to do is read from the store each time, so a server that starts, dies or is one of several needs no
list of its own. A run belongs to whoever takes it; to be refused is no error. What cannot be taken up is said, and
tried again later and later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from loopwright.codec import loads
from loopwright.core.state import LoopState
from loopwright.errors import Locked, LoopwrightError, StoreError
from loopwright.hosts.local import settle, take_up
from loopwright.hosts.ways import Held, Ways
from loopwright.journal import Journal
from loopwright.ports import Store
from loopwright.running import Run
from loopwright.stores.opened import owner

TICK_S: Final = 0.5
REST: Final = 30.0  # so many times as long as a look took, at least, nothing is looked at
PATIENCE_S: Final = 20.0  # a longer wait gives its place to others
AGAIN_S: Final = 2.0  # how soon a run that another drives is looked at again, at first
LATEST_S: Final = 600.0  # and at last, or one that cannot be taken up
MOST: Final = 100_000  # runs looked at
NOTICED: Final = "noticed/"  # what became of a notice: on record when somebody has the run anyway


def wants(head: Mapping[str, Any], *, signalled: bool, left_s: float) -> bool:
    """Whether a run that nobody has in hand has something to do; `left_s` is what is left of its wait.

    One that rests (paused, a person asked, an answer that never came) waits for a signal, or the end of a deadline.
    """
    if signalled:
        return True
    if head.get("wake") is not None:
        return left_s <= 0
    return head.get("exit_code") is None


def left_behind(state: LoopState) -> bool:
    """Whether the process that had this run is gone in the middle of an attempt."""
    return state.current is not None and state.current.open is not None


@dataclass(slots=True)
class _Seen:
    """What this server knows of a run that it does not have: only to look less often."""

    news: str = ""  # the head's `updated_at`: `due` is of that state
    wake: datetime | None = None
    due: float = 0.0  # when its wait is over, by the monotonic clock
    again: float = 0.0  # not looked at before
    pause_s: float = AGAIN_S
    tried: frozenset[str] | None = (
        None  # its signals when it was tried here in vain: new ones are worth a try
    )


@dataclass(slots=True)
class Workers:
    """At most `limit` runs in hand at once; `ways` says how to go about one (it is given the run's state)."""

    store: Store
    limit: int
    ways: Callable[[str, LoopState], Ways]
    tell: Callable[[str], None]
    mine: Callable[[LoopState], bool] = lambda _: True
    turn: Callable[[LoopState, Mapping[str, LoopState]], bool] = lambda _state, _others: True
    problems: dict[str, str] = field(default_factory=dict)  # run → why it cannot be taken up
    waiting: int = 0  # runs that want a place and have none
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _states: dict[str, LoopState] = field(default_factory=dict)
    _open: dict[str, Run] = field(default_factory=dict)
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _leaving: bool = False

    @property
    def working(self) -> frozenset[str]:
        """The runs in hand."""
        return frozenset(self._tasks)

    def nudge(self) -> None:
        """Looks now, not at the next tick."""
        for seen in self._seen.values():
            if seen.tried is None:  # what cannot be taken up is not tried faster because others are begun
                seen.again = 0.0
        self._news.set()

    async def work(self) -> None:
        """Takes up what there is to do until it is cancelled; a store that cannot be read is tried again."""
        pause_s = TICK_S
        while True:
            began = time.thread_time()
            try:
                self.sweep()
                pause_s = max(TICK_S, REST * (time.thread_time() - began))
            except StoreError as error:
                self.tell(f"the store cannot be read: {error}")
                pause_s = min(60.0, 2 * pause_s)
            self._news.clear()
            try:
                async with asyncio.timeout(pause_s):
                    await self._news.wait()
            except TimeoutError:
                continue

    def sweep(self) -> None:
        """One look at the store: takes up what wants to be, oldest first, as far as there are places."""
        self.waiting, resumed = 0, False
        heads = list(self.store.heads(active=True, limit=MOST))
        known = {run for run, _ in heads}
        self._seen = {run: seen for run, seen in self._seen.items() if run in known}
        self.problems = {run: why for run, why in self.problems.items() if run in known}
        for run, body in reversed(heads):
            if run in self._tasks or not self._due(run, body):
                continue
            if len(self._tasks) >= self.limit:
                self.waiting += 1
                continue
            state = self._unheld(run)
            if state is None:
                continue
            if left_behind(state):  # what a dead process left comes back one by one
                if resumed:
                    continue
                resumed = True
            self._states[run] = state
            self._tasks[run] = asyncio.create_task(self._take(run), name=run)

    def _due(self, run: str, body: bytes) -> bool:
        """Whether there is something to do for a run, as far as its head and its signals tell."""
        seen, now = self._seen.setdefault(run, _Seen()), time.monotonic()
        try:
            head = loads(body)
            news, wake = str(head["updated_at"]), head.get("wake")
        except (ValueError, TypeError, KeyError, AttributeError):
            head, news, wake = {"exit_code": None}, "damaged", None
        if news != seen.news:  # a wait is as long as it was said to be, whatever became of the clock since
            left, until = 0.0, None if wake is None else datetime.fromisoformat(wake)
            if until is not None:
                since = max(datetime.fromisoformat(news), datetime.now().astimezone())
                left = (until - since).total_seconds()
            seen.news, seen.wake, seen.due = news, until, now + left
            if seen.tried is None:  # else it may be what was written here, in vain
                seen.again, seen.pause_s = 0.0, AGAIN_S
        if now < seen.again and seen.tried is None:
            return False
        signals = self._signals(run)
        if now < seen.again and seen.tried is not None and signals <= seen.tried:
            return False
        return wants(head, signalled=bool(signals), left_s=seen.due - now)

    def _signals(self, run: str) -> frozenset[str]:
        """What somebody asks of a run."""
        return frozenset(key for key, _ in self.store.signals(run) if not key.startswith(NOTICED))

    def _unheld(self, run: str) -> LoopState | None:
        """The run as it stands, if nobody has it and it may be taken up here and now."""
        try:
            state = Journal(self.store, run).state
            if state.finished is not None or not self.mine(state):
                self._later(run, LATEST_S)
                return None
            if not self.turn(state, self._states):
                self.waiting += 1
                return None
            lease = self.store.lease(run, owner(), AGAIN_S)
            if lease is None:
                self._later(run)
                return None
            lease.release()
        except LoopwrightError as error:
            self._failed(run, error)
            return None
        return state

    async def _take(self, run: str) -> None:
        try:
            held = await take_up(run, self._connected(self._ways(run)))
        except Locked:
            self._later(run)
        except Exception as error:  # noqa: BLE001 - of one run; the others go on
            if self._failed(run, error):
                await self._settled(run)
        else:
            self.problems.pop(run, None)
            self._given_back(run, held)
        finally:
            self._tasks.pop(run, None)
            self._states.pop(run, None)
            self._open.pop(run, None)
            self._news.set()

    async def _settled(self, run: str) -> None:
        """What an answer can do without agent and gates is done, where these cannot start."""
        with suppress(Exception):  # it was told why
            await settle(run, self._ways(run))

    def _given_back(self, run: str, held: Held) -> None:
        """A run that is not over is looked at again in a moment; one with which nothing could be done, later and later."""
        before, after = self._states[run], held.state
        if replace(after, claim=before.claim, updated_at=before.updated_at) == before:
            self._in_vain(run)
        else:
            self._seen[run] = _Seen(again=time.monotonic() + TICK_S, tried=frozenset())

    def _ways(self, run: str) -> Ways:
        """How to go about it; where its wait is over, it is so for the run as well."""
        seen, ways = self._seen.get(run, _Seen()), self.ways(run, self._states[run])
        return ways if seen.wake is None or time.monotonic() < seen.due else replace(ways, since=seen.wake)

    def _connected(self, ways: Ways) -> Ways:
        """The same ways, by which the open run can be told to leave."""

        def opened(run: Run) -> None:
            self._open[run.journal.run] = run
            if self._leaving:
                run.leaving.set()

        return replace(ways, signals=opened)

    def _later(self, run: str, pause_s: float | None = None) -> None:
        seen = self._seen.setdefault(run, _Seen())
        seen.again, seen.tried = time.monotonic() + (seen.pause_s if pause_s is None else pause_s), None
        seen.pause_s = min(30.0, seen.pause_s * 1.5)

    def _in_vain(self, run: str, tried: frozenset[str] = frozenset()) -> None:
        """Not before later; sooner only where somebody asks something new of it."""
        seen = self._seen.setdefault(run, _Seen())
        seen.again, seen.tried = time.monotonic() + seen.pause_s, tried
        seen.pause_s = min(LATEST_S, seen.pause_s * 2)

    def _failed(self, run: str, error: Exception) -> bool:
        """Says it, once; whether there is something asked of the run."""
        why = str(error) if isinstance(error, LoopwrightError) else f"{type(error).__name__}: {error}"
        if self.problems.get(run) != why:
            self.problems[run] = why
            self.tell(f"{run} cannot be taken up (it is tried again; loopwright stop {run} ends it): {why}")
        try:
            tried = self._signals(run)
        except LoopwrightError:
            tried = frozenset()
        self._in_vain(run, tried)
        return bool(tried)

    async def leave(self, grace_s: float) -> None:
        """Hands every run in hand over, within so many seconds; what is not given up by then is cut.

        One that is only made ready is cut at once: it has nothing yet that could be handed over.
        """
        self._leaving = True
        for run in self._open.values():
            run.leaving.set()
        tasks = list(self._tasks.values())
        await _cut(task for run, task in self._tasks.items() if run not in self._open)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_s)
            await _cut(late)


async def _cut(tasks: Iterable[asyncio.Task[None]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=5.0)
