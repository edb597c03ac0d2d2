"""A server while it lives: its loops, its store, who works. What the page, the triggers and the post are given.

Rule: everything that lasts is in the store; what is here can be made again from it. One thread drives the runs; others
read and write through stores of their own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loopwright.calling import alone
from loopwright.cards import Incoming, Reply
from loopwright.core.state import LoopState
from loopwright.errors import UsageError
from loopwright.hosts.local import resume
from loopwright.hosts.take import made_id
from loopwright.hosts.ways import Ways
from loopwright.journal import Journal
from loopwright.ports import Follow, Store
from loopwright.serving import starts, turns
from loopwright.serving.book import Book, Served
from loopwright.serving.card import Source
from loopwright.serving.ears import Ears
from loopwright.serving.metrics import Metrics
from loopwright.serving.metrics import Server as Figures
from loopwright.serving.post import Post
from loopwright.serving.spans import loop_name
from loopwright.serving.workers import PATIENCE_S, Workers
from loopwright.stores.opened import open_store, owner
from loopwright.together import Together
from loopwright.unattended import Server


@dataclass(slots=True, kw_only=True)
class Live:
    """What a server is while it lives. Made in the thread that drives its runs; `store` is that thread's alone.

    `url` is the store's address (`None`: the project's own). `server` are the settings in force. `figures` counts what
    happens, `follow` makes whoever else is told the facts of a run.
    """

    project: Path
    environ: Mapping[str, str]
    book: Book
    store: Store
    server: Server
    tell: Callable[[str], None]
    url: str | None = None
    figures: Metrics = field(default_factory=Metrics)
    follow: tuple[Callable[[Journal], Follow], ...] = ()
    me: str = field(default_factory=owner)
    workers: Workers = field(init=False)
    post: Post = field(init=False)
    ears: Ears = field(init=False)
    _together: Together = field(init=False)
    _of_thread: threading.local = field(default_factory=threading.local)
    _loop: asyncio.AbstractEventLoop | None = None
    _thread: int = field(default_factory=threading.get_ident)

    def __post_init__(self) -> None:
        self._together = Together(self.store)
        follows = turns.turn(self)
        self.workers = Workers(
            store=self.store,
            limit=self.server.workers,
            ways=self._ways,
            tell=self.tell,
            mine=self._is_mine,
            turn=lambda state, others: _has_turn(state, others) and follows(state, others),
        )
        self.post = Post(
            source=self.source, stores=self.stores, me=self.me, tell=self.tell, count=self.figures.notice
        )
        self.ears = Ears(
            project=self.project,
            environ=self.environ,
            book=self.book,
            stores=self.stores,
            nudge=self.nudge,
            tell=self.tell,
        )

    @property
    def problems(self) -> Mapping[str, str]:
        """Runs that cannot be taken up, and why."""
        return self.workers.problems

    @property
    def working(self) -> frozenset[str]:
        """The runs in hand."""
        return self.workers.working

    @contextmanager
    def stores(self) -> Iterator[Store]:
        """The store, for the thread that asks."""
        if threading.get_ident() == self._thread:
            yield self.store
            return
        mine: Store | None = getattr(self._of_thread, "store", None)
        if mine is None:
            mine = self._of_thread.store = self._opened()
        yield mine

    def _opened(self) -> Store:
        return self.store if self.url == "memory:" else open_store(self.url, self.project)

    def served(self, loop: str) -> Served:
        """The loop of that name; `UsageError` where there is none."""
        if (found := self.book.loops.get(loop)) is None:
            known = ", ".join(sorted(self.book.loops)) or "none"
            raise UsageError(f"there is no loop {loop!r} here; there is: {known}")
        return found

    def begin(
        self, loop: str, *, origin: str, key: str | None = None, labels: Mapping[str, str] | None = None
    ) -> tuple[str, bool]:
        """The id of a run of that loop, and whether it was begun now: the same `key`, the same run. Any thread may ask."""
        served = self.served(loop)
        run = made_id(served.name) if key is None else starts.id_of_key(served.name, "key", key)
        with self.stores() as store:
            begun = starts.begin(
                store,
                served.assembled,
                run,
                project=self.project,
                environ=self.environ,
                origin=origin,
                labels=labels,
            )
        self.nudge()
        return run, begun

    def reopen(
        self, run: str, *, by: str, add: Mapping[str, float] | None = None, note: str | None = None
    ) -> LoopState:
        """Lets a run that rests or has ended go on, durably, with limits raised. Any thread but the driving one may ask.

        `UsageError` where it cannot, `Locked` while somebody drives it.
        """
        with self.stores() as store:
            ways = Ways(
                project=self.project, store=store, environ=self.environ, by=by, add=add or {}, note=note
            )
            held = alone(lambda: resume(run, ways, idle=True))
        self.nudge()
        return held.state

    def metrics(self) -> bytes:
        """What Prometheus reads. Any thread may ask."""
        mine = Figures(
            queue_length=self.workers.waiting,
            workers_busy=len(self.working),
            workers=self.server.workers,
            notices_undelivered=self.post.state().undelivered,
        )
        with self.stores() as store:
            return self.figures.text(store, mine)

    def nudge(self) -> None:
        """What was written just now is looked at at once. Any thread may say so."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.workers.nudge)
            self._loop.call_soon_threadsafe(self.post.nudge)

    async def hear(self, name: str, incoming: Incoming) -> Reply:
        """What a channel answers to a request of its service. Any event loop may ask."""
        return await self.ears.hear(name, incoming)

    async def work(self) -> None:
        """Drives runs until it is cancelled."""
        self._loop = asyncio.get_running_loop()
        await self.workers.work()

    def source(self) -> Source:
        """What cards and links are made of."""
        return Source(project=self.project, environ=self.environ, public_url=self.server.public_url)

    def _ways(self, run: str, state: LoopState) -> Ways:
        return Ways(
            project=self.project,
            store=self.store,
            together=self._together,
            environ=self.environ,
            narrow=True,
            observe=(self.figures.observe(run, loop_name(state.spec)),),
            follow=self.follow,
            tell=lambda line: self.tell(f"{run}: {line.strip()}"),
            by="server",
            origin="server",
            patience_s=PATIENCE_S,
            holds=True,
        )

    def _is_mine(self, state: LoopState) -> bool:
        """Whether a run is one to take up here: of this project, and not of a program that holds its functions."""
        here = state.workspace in {None, str(self.project)}
        return here and state.origin != "python"


def _has_turn(state: LoopState, others: Mapping[str, LoopState]) -> bool:
    """Whether a run can work beside these: one at a time where they share the user's own folder."""
    return not _in_place(state) or not any(_in_place(other) for other in others.values())


def _in_place(state: LoopState) -> bool:
    return (state.spec.get("workspace") or {}).get("mode") == "in_place"
