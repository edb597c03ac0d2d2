"""Working on the runs of a store that nobody drives: those that were begun, woken, answered, or left by a dead process.

Rules. What there is to do is read from the store each time, so a server that starts, dies or is one of several needs no
list of its own. A run belongs to whoever takes it; to be refused is no error. What cannot be taken up is said, and
tried again later and later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
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

    news: str = ""  # the head's `updated_at`: what follows is of that state
    due: float = 0.0  # when its wait is over, by the monotonic clock
    again: float = 0.0  # not looked at before
    pause_s: float = AGAIN_S


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
        self._seen.clear()
        self._news.set()

    async def work(self) -> None:
        """Takes up what there is to do until it is cancelled; a store that cannot be read is tried again."""
        pause_s = TICK_S
        while True:
            try:
                self.sweep()
                pause_s = TICK_S
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
            left = 0.0
            if wake is not None:
                since = max(datetime.fromisoformat(news), datetime.now().astimezone())
                left = (datetime.fromisoformat(wake) - since).total_seconds()
            self._seen[run] = seen = _Seen(news=news, due=now + left)
        if now < seen.again:
            return False
        signalled = any(not key.startswith(NOTICED) for key, _ in self.store.signals(run))
        return wants(head, signalled=signalled, left_s=seen.due - now)

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
            ways = self.ways(run, self._states[run])
            try:
                await take_up(run, self._connected(ways))
            except Locked:
                self._later(run)
                return
            except LoopwrightError as error:
                self._failed(run, error)
                await self._settled(run, ways)
                return
            self.problems.pop(run, None)
            self._seen[run] = _Seen(again=time.monotonic() + TICK_S)
        finally:
            self._tasks.pop(run, None)
            self._states.pop(run, None)
            self._open.pop(run, None)
            self._news.set()

    async def _settled(self, run: str, ways: Ways) -> Held | None:
        """What an answer can do without agent and gates is done, where these cannot start."""
        try:
            return await settle(run, ways)
        except LoopwrightError:  # it was told why
            return None

    def _connected(self, ways: Ways) -> Ways:
        """The same ways, by which the open run can be told to leave."""

        def opened(run: Run) -> None:
            self._open[run.journal.run] = run
            if self._leaving:
                run.leaving.set()

        return replace(ways, signals=opened)

    def _later(self, run: str, pause_s: float | None = None) -> None:
        seen = self._seen.setdefault(run, _Seen())
        seen.again = time.monotonic() + (seen.pause_s if pause_s is None else pause_s)
        seen.pause_s = min(30.0, seen.pause_s * 1.5)

    def _failed(self, run: str, error: LoopwrightError) -> None:
        seen = self._seen.setdefault(run, _Seen())
        seen.again = time.monotonic() + seen.pause_s
        seen.pause_s = min(LATEST_S, seen.pause_s * 2)
        if self.problems.get(run) != str(error):
            self.problems[run] = str(error)
            self.tell(f"{run} cannot be taken up: {error}")

    async def leave(self, grace_s: float) -> None:
        """Hands every run in hand over, within so many seconds; what is not given up by then is cut."""
        self._leaving = True
        for run in self._open.values():
            run.leaving.set()
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_s)
            await _cut(late)


async def _cut(tasks: Iterable[asyncio.Task[None]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=5.0)
