"""The post: sends requests and news through channels, once, and tries again until they are there.

Rules. One sender per store at a time, by a lease; another takes over when it dies. A message is on record before its
first try (`began`) and after its last (`sent`, or `lost` with the reason): at least once, and a second time only where
the process died between the two; channels then use the same message id. What could not be sent is never silent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal, TypeVar

from loopwright.cards import Channel, Line
from loopwright.channels._tickets import LINK_KEY
from loopwright.errors import ConfigError, LoopwrightError, StoreError, Undelivered, WorkspaceError
from loopwright.figures import brief, safe, seconds
from loopwright.hosts.ways import STATE
from loopwright.ports import Lease, Store
from loopwright.serving import delivered, links
from loopwright.serving import due as dues
from loopwright.serving.card import Source, secrets_of
from loopwright.serving.due import Desk, Due

LEADER: Final = "post:"  # who has this lease sends
MOST: Final = 1000  # messages under way
KEPT: Final = 500  # messages and channels remembered
LONGEST_S: Final = 3600.0  # that a channel may want to be left alone: it is asked again
QUEUE_S: Final = 1.0  # after so long in its queue a message is looked at again before it is sent
T = TypeVar("T")
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often it looks, how long a try may take, how long until the next; in seconds."""

    look_s: float = 0.7
    lease_s: float = 10.0
    try_s: float = 15.0
    delays_s: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0, 600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A message that is not there yet, or (`lost`) never will be; `problem` is what its last try met."""

    run: str
    what: str
    channel: str
    tries: int
    problem: str
    again_s: float | None
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """How the post stands. `undelivered` counts what no channel that leaves here could be reached with so far.

    `sent` and `lost` count messages since this process leads; `problems` are runs whose channels cannot be used, and why.
    """

    leads: bool
    pending: tuple[Pending, ...]
    undelivered: int
    sent: int
    lost: int
    problems: Mapping[str, str]


@dataclass(slots=True)
class _Way:
    """A channel, opened once."""

    lock: asyncio.Lock
    line: Line | None = None
    problem: str = ""  # what the last try met


@dataclass(slots=True)
class _Task:
    due: Due
    tries: int = 0
    problem: str = ""
    again: float | None = None  # by the monotonic clock
    task: asyncio.Task[None] | None = None
    sent: bool = False


@dataclass(slots=True, kw_only=True)
class Post:
    """The sender of one server. `source` and `stores` are asked each time; `me` is this process, as leases name it.

    `count` is told of every message that was sent, of every try that failed, and of what is given up.
    """

    source: Callable[[], Source]
    stores: Callable[[], AbstractContextManager[Store]]
    me: str
    tell: Callable[[str], None]
    pace: Pace = field(default_factory=Pace)
    count: Callable[[str, Literal["sent", "failed", "undelivered"]], None] = lambda _channel, _status: None
    _desk: Desk = field(default_factory=Desk)
    _tasks: dict[_Key, _Task] = field(default_factory=dict)
    _ways: dict[Channel, _Way] = field(default_factory=dict)
    _lost: dict[_Key, Pending] = field(default_factory=dict)  # news that are given up
    _sent: dict[tuple[str, str], None] = field(default_factory=dict)
    _counts: list[int] = field(default_factory=lambda: [0, 0])
    _leads: bool = False
    _trouble: str = ""  # what the store said last
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _thread: ThreadPoolExecutor | None = None

    def nudge(self) -> None:
        """Looks now; from the thread that it works in."""
        self._news.set()

    def state(self) -> Posted:
        """How it stands just now."""
        under_way = [
            (each.due, found) for each in list(self._tasks.values()) if (found := self._pending(each))
        ]
        lost, reached, sent = dict(self._desk.lost), set(self._desk.reached), set(self._sent)
        asked = [
            Pending(run=run, what="ask", channel=name, tries=0, problem=why, again_s=None, lost=True)
            for run, names in lost.items()
            for name, why in names.items()
        ]
        away = {(p.run, p.what) for due, p in under_way if due.channel.remote and not due.reached}
        away |= {(p.run, p.what) for p in list(self._lost.values())}
        alone = {run for run, what in away - sent if what.startswith("ask/")} | (lost.keys() - reached)
        news = [what for _, what in away - sent if what.startswith("news/")]
        return Posted(
            leads=self._leads,
            pending=(*(p for _, p in under_way), *asked, *self._lost.values()),
            undelivered=len(alone) + len(news),
            sent=self._counts[0],
            lost=self._counts[1],
            problems=dict(self._desk.problems),
        )

    def _pending(self, each: _Task) -> Pending | None:
        """What keeps a message from being there: what its own last try met, or that of the one before it in the queue."""
        way = self._ways.get(each.due.channel)
        problem = each.problem or (way.problem if way is not None else "")
        return _as_pending(each, problem) if problem else None

    async def work(self) -> None:
        """Sends what is due until it is cancelled, whenever no other does."""
        # One thread with a store of its own, so that nothing is written while it looks.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="post")
        try:
            while True:
                with self._whatever_the_store_says():
                    lease = await self._in_store(
                        lambda store: store.lease(LEADER, self.me, self.pace.lease_s)
                    )
                    if lease is not None:
                        await self._lead(lease)
                await asyncio.sleep(self.pace.look_s)
        finally:
            await self._stop(list(self._tasks.values()))
            self._thread.shutdown(wait=False)

    async def _lead(self, lease: Lease) -> None:
        self._leads, self._desk = True, Desk()
        kept = time.monotonic()
        try:
            while time.monotonic() - kept < self.pace.lease_s:
                with self._whatever_the_store_says():
                    if not await self._in_store(lambda _: lease.renew()):
                        break
                    kept = time.monotonic()
                    for each in await self._in_store(self._look):
                        self._begin(each)
                    self._trouble = ""
                self._news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.pace.look_s):
                        await self._news.wait()
        finally:
            self._leads = False
            # What is sent and not on record yet is not let go of: the next who leads would send it again.
            await self._stop([each for each in self._tasks.values() if not each.sent])
            self._lost.clear()
            self._sent.clear()
            with suppress(LoopwrightError):
                await self._in_store(lambda _: lease.release())

    @contextmanager
    def _whatever_the_store_says(self) -> Iterator[None]:
        """A store that fails just now is said, once, and is used again a little later."""
        try:
            yield
        except StoreError as error:
            if str(error) != self._trouble:
                self.tell(f"the post cannot use the store: {error}")
            self._trouble = str(error)

    def _look(self, store: Store) -> list[Due]:
        return self._desk.look(store, self.source(), datetime.now(UTC), room=MOST - len(self._tasks))

    async def _stop(self, messages: list[_Task]) -> None:
        tasks = [each.task for each in messages if each.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self.pace.try_s)

    def _begin(self, due: Due) -> None:
        key = (due.run, due.key, due.mark)
        if key in self._tasks:
            return
        each = self._tasks[key] = _Task(due)
        each.task = asyncio.create_task(self._seen_to(key, each), name=f"post {due.run} {due.key}")

    async def _seen_to(self, key: _Key, each: _Task) -> None:
        """Sends one message, however many tries that takes, and puts on record what became of it."""
        due = each.due
        try:
            if due.mark != "over" and not await self._in_store(lambda store: delivered.begun(store, due)):
                return  # another did
            ref = await self._tried(each)
            if ref is not None:
                each.sent = True
                self._counts[0] += 1
                self.count(due.channel.name, "sent")
                if due.channel.remote:
                    self._sent[due.run, due.what] = None
                    _bound(self._sent)
                await self._on_record(lambda store: delivered.was_sent(store, due, ref))
            elif each.problem:
                await self._given_up(each)
        except StoreError as error:
            self.tell(f"{due.run}: {due.what} cannot be put on record: {error}")
            await asyncio.sleep(self.pace.look_s)
        finally:
            self._tasks.pop(key, None)
            self._desk.again(due.run)
            self._news.set()

    async def _tried(self, each: _Task) -> str | None:
        """Where the message stands once it is sent; `None` where it is given up, or not wanted any more."""
        while True:
            fault = await self._shown(each)
            if fault is None or isinstance(fault, str):
                return fault
            each.tries += 1
            self.count(each.due.channel.name, "failed")
            delays = self.pace.delays_s
            pause_s = max(
                delays[min(each.tries, len(delays)) - 1], min(LONGEST_S, fault.retry_after_s or 0.0)
            )
            left_s = (each.due.until - datetime.now(UTC)).total_seconds()
            first, each.problem = not each.problem, await self._clean(each.due, str(fault))
            self._way(each.due.channel).problem = each.problem
            if fault.final or pause_s > left_s:
                return None
            if first:
                self.tell(f"{_named(each.due)} is tried again in {seconds(pause_s)}: {each.problem}")
            each.again = time.monotonic() + pause_s
            await asyncio.sleep(pause_s)
            each.again = None
            if not await self._wanted(each):
                return None

    async def _wanted(self, each: _Task) -> bool:
        """Whether a message that waited is wanted still; it then says what is known by now."""
        still = await self._in_store(partial(delivered.still, due=each.due))
        if still is None:
            each.problem = ""
            return False
        each.due = still
        return True

    def _way(self, channel: Channel) -> _Way:
        way = self._ways.setdefault(channel, _Way(asyncio.Lock()))
        _bound(self._ways)
        return way

    async def _shown(self, each: _Task) -> str | Undelivered | None:
        """One try, once it is its turn; `None` where it is not wanted any more by then."""
        way, queued = self._way(each.due.channel), time.monotonic()
        try:
            async with way.lock:
                if time.monotonic() - queued > QUEUE_S and not await self._wanted(each):
                    return None
                async with asyncio.timeout(self.pace.try_s):
                    if way.line is None:
                        way.line = await asyncio.to_thread(each.due.channel.open, self._environ())
                    ref = str(await way.line.show(each.due.card, each.due.ref))[:500]
                way.problem = ""
                return ref
        except Undelivered as error:
            return error
        except TimeoutError:
            return Undelivered(f"no answer within {seconds(self.pace.try_s)}")
        except (ConfigError, StoreError) as error:
            return Undelivered(str(error))
        except Exception as error:  # noqa: BLE001 - a channel is other people's code
            return Undelivered(f"{type(error).__name__}: {error}")

    def _environ(self) -> Mapping[str, str]:
        """The environment that channels get, with the secret of links where there is a page to link to."""
        source = self.source()
        if source.public_url is None:
            return source.environ
        with suppress(WorkspaceError):
            return {**source.environ, LINK_KEY: links.key_of(source.project / STATE).decode()}
        return source.environ

    async def _clean(self, due: Due, text: str) -> str:
        """What a try met, without secrets and on one line."""

        def said(store: Store) -> str:
            spec = dues.spec_of(store, due.run)
            return safe(brief(secrets_of(spec, self.source().environ).text(text), 300))

        with suppress(LoopwrightError):
            return await self._in_store(said)
        return "the store cannot be read"

    async def _given_up(self, each: _Task) -> None:
        """Says of a message, on record and aloud, that it is not sent."""
        due, problem = each.due, each.problem
        self.tell(f"{_named(due)} could not be sent and is given up: {problem}")
        if due.mark == "ask":
            self._counts[1] += 1
            self.count(due.channel.name, "undelivered")
            if due.card.approval is None:
                self._lost[due.run, due.what, due.channel.name] = _as_pending(each, problem, lost=True)
                _bound(self._lost)
        await self._on_record(lambda store: delivered.was_lost(store, due, problem))

    async def _on_record(self, write: Callable[[Store], None]) -> None:
        """Writes, whatever it takes: what was sent and is not on record would be sent again."""
        pause_s = 1.0
        while True:
            with self._whatever_the_store_says():
                await asyncio.shield(self._in_store(write))
                return
            await asyncio.sleep(pause_s)
            pause_s = min(30.0, 2 * pause_s)

    async def _in_store(self, call: Callable[[Store], T]) -> T:
        """What `call` gives with the store, in the thread that has it."""

        def called() -> T:
            with self.stores() as store:
                return call(store)

        assert self._thread is not None
        return await asyncio.get_running_loop().run_in_executor(self._thread, called)


def _bound(found: dict[Any, Any]) -> None:
    """Forgets the oldest of too many."""
    while len(found) > KEPT:
        del found[next(iter(found))]


def _as_pending(each: _Task, problem: str, *, lost: bool = False) -> Pending:
    again = None if each.again is None else max(0.0, each.again - time.monotonic())
    return Pending(
        run=each.due.run,
        what=each.due.what,
        channel=each.due.channel.name,
        tries=each.tries,
        problem=problem,
        again_s=again,
        lost=lost,
    )


def _named(due: Due) -> str:
    kind, _, _ = due.what.removeprefix("news/").partition("/")
    what = (
        f"news ({kind})"
        if kind != "ask"
        else "how the request ended"
        if due.mark == "over"
        else "the request"
    )
    return f"{due.run}: {what} by {due.channel.name}"
