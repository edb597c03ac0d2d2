"""A server behind the page: a real one in a real folder, whose runs nobody drives unless a test does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from loopwright.cards import Reply
from loopwright.hosts.local import take_up
from loopwright.hosts.ways import Ways
from loopwright.serving.book import Book
from loopwright.serving.live import Live
from loopwright.state_folder import create_state
from loopwright.stores.opened import open_store

LOOP = """\
name = "tidy"
goal = "Make it tidy"
agent = {{ use = "command", run = "{agent}", result = "none" }}
gates = ["true"]
until = "passed"

[limits]
max_iterations = 3

[workspace]
mode = "none"

[approval]
when = "passed"
"""


class Behind(Live):
    """As it lives in a server; metrics and channels say what a test looks for."""

    def metrics(self):
        return b"loopwright_up 1\n"

    async def hear(self, name, incoming):
        return Reply(status=202, body=f"{name} {len(incoming.body)}".encode(), media="text/plain")

    def go(self, run):
        """Drives a run until it is over or waits."""
        with self.stores() as store:
            ways = Ways(project=self.project, store=store, environ=self.environ)
            return asyncio.run(take_up(run, ways)).state

    def asks(self, **more):
        """A run that waits for a person, and its request."""
        run, _ = self.begin("tidy", origin="test", **more)
        return run, self.go(run).approval.id


@contextlib.contextmanager
def behind(folder: Path, text: str = LOOP, work: str = "", **server):
    """A server in `folder` with one loop."""
    create_state(folder / ".agent-state")
    agent = folder / "agent"
    agent.write_text(f"#!{sys.executable} -IS\nprint('worked')\n{work}\n")
    agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
    (folder / "tidy.toml").write_text(text.format(agent=agent))
    environ = {"PATH": os.environ["PATH"], "LOGNAME": "mira", "DEPLOY_TOKEN": "horse-battery-staple"}
    book = Book((folder / "tidy.toml",), project=folder, environ=environ)
    told = book.refresh()
    assert not book.problems, told
    store = open_store(None, folder)
    live = Behind(
        project=folder,
        environ=environ,
        book=book,
        store=store,
        server=replace(book.server, **server),
        tell=lambda line: None,
    )
    try:
        yield live
    finally:
        store.close()


def now():
    return datetime.now(UTC)
