"""A server behind the page: a real store in a real folder, real loops; what would drive runs only takes note."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field

from loopwright.cards import Reply
from loopwright.serving.book import Book
from loopwright.serving.starts import begin, id_of_key
from loopwright.stores.opened import open_store

LOOP = """\
goal = "Make it good"
agent = "{agent}"
gates = ["true"]
{more}
"""


@dataclass
class Behind:
    """As `serving.live.Live`, as far as the web needs it."""

    project: object
    environ: dict
    server: object = None
    problems: dict = field(default_factory=dict)
    working: frozenset = frozenset()
    nudged: int = 0
    reopened: list = field(default_factory=list)
    heard: list = field(default_factory=list)
    local: object = field(default_factory=threading.local)

    def __post_init__(self):
        self.book = Book((), project=self.project, environ=self.environ)
        self.book.refresh()
        if self.server is None:
            self.server = self.book.server

    @contextlib.contextmanager
    def stores(self):
        if not hasattr(self.local, "store"):
            self.local.store = open_store(None, self.project)
        yield self.local.store

    def begin(self, loop, *, origin, key=None, labels=None):
        served = self.book.loops[loop]
        run = id_of_key(loop, "key", key or f"n{len(self.heard)}{self.nudged}")
        with self.stores() as store:
            begin(
                store,
                served.assembled,
                run,
                project=self.project,
                environ=self.environ,
                origin=origin,
                labels=labels,
            )
        return run

    def reopen(self, run, *, by, add, note):
        self.reopened.append((run, by, dict(add), note))

    def nudge(self):
        self.nudged += 1

    def metrics(self):
        return b"loopwright_up 1\n"

    async def hear(self, name, incoming):
        self.heard.append((name, incoming))
        return Reply(status=200, body=b"{}")
