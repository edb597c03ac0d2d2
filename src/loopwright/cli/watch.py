"""The verb watch: a run followed from beside it.

Rule: it reads the journal and the agent's log and changes nothing. It ends when the run is over, waits
for a person or has nobody who drives it, and exits 0 like every reading verb.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

import click

from loopwright.cli import words
from loopwright.cli.view import SPINNER, fancy
from loopwright.cli.where import find, opened, places, the_run
from loopwright.core import events as ev
from loopwright.core.head import exit_code
from loopwright.core.state import LoopState
from loopwright.figures import brief, colourless, seconds
from loopwright.hosts.ways import STATE
from loopwright.journal import commits, followed
from loopwright.ports import Store
from loopwright.report.telling import gate, told

if TYPE_CHECKING:
    from rich.console import Console

POLL_S: Final = 0.3
QUIET_S: Final = 15.0  # without news, off a terminal, a sign of life is printed so often
GONE_S: Final = 2.0  # a run taken over by another process has nobody for a moment
BEFORE: Final = 10  # lines of what happened before the watching began
TAIL: Final = 400


@dataclass(slots=True)
class Feed:
    """The facts of one run as they come."""

    store: Store
    run: str
    state: LoopState = field(default_factory=LoopState)
    n: int = 0
    link: str = ""
    began: datetime | None = None  # the attempt or gate under way

    def news(self) -> Iterator[str]:
        """A line for each fact since the last call that is news."""
        for commit in commits(self.store, self.run, self.n, self.link):
            for at, event, state in followed(self.store, self.run, self.state, commit):
                before, self.state = self.state, state
                self.began = at
                if (line := _line(before, event, self.state)) is not None:
                    yield f"{at.astimezone(UTC):%H:%M:%S}  #{self.state.iteration:<3} {line}"
            self.n, self.link = commit.n, commit.link


def _line(before: LoopState, event: ev.Event, after: LoopState) -> str | None:
    if isinstance(event, ev.GateScored) and after.current is not None:
        scored = after.current.scores[-1]
        reason = "" if scored.score.status == "pass" else f"  {brief(scored.score.reason, 120)}"
        return f"{gate(scored)}{reason}"
    if isinstance(event, ev.AttemptStarted):
        return f"the agent begins, attempt {event.attempt}"
    news = told(before, event, after)
    return None if news is None else news[1]


@dataclass(slots=True)
class Screen:
    """Where the lines go: a terminal with a last line that moves, or plain lines on stdout."""

    console: Console | None = None
    said: str = ""
    printed: float = field(default_factory=time.monotonic)

    def line(self, text: str) -> None:
        """One line that stays."""
        self.printed = time.monotonic()
        if self.console is not None:
            self.console.print(words.safe(text), markup=False, soft_wrap=True)
        else:
            click.echo(words.safe(text))

    def status(self, text: str, *, first: bool) -> None:
        """What happens just now; off a terminal it is printed at first and after a long silence."""
        self.said = text
        if self.console is None and text and (first or time.monotonic() - self.printed >= QUIET_S):
            self.line(f"          … {text}")


@contextmanager
def _screen() -> Iterator[Screen]:
    if not (fancy() and sys.stdout.isatty()):
        yield Screen()
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    screen = Screen(console=Console(highlight=False))

    def now() -> Text:
        spin = SPINNER[int(time.monotonic() * 8) % len(SPINNER)]
        text = Text(f"  {spin} {screen.said}" if screen.said else "", style="dim", no_wrap=True)
        text.truncate(screen.console.width - 1 if screen.console else 79, overflow="ellipsis")
        return text

    with Live(get_renderable=now, console=screen.console, transient=True, refresh_per_second=8):
        yield screen


@click.command("watch")
@click.argument("run")
@places
def watch_(run: str, folder: str, store: str | None) -> None:
    """Follow RUN until it is over or waits for a person.

    Ctrl-C ends the watching; the run goes on.
    """
    where = find(folder, store)
    with opened(where) as runs, _screen() as screen, _interrupted() as enough:
        feed = Feed(runs, the_run(runs, run))
        _follow(feed, screen, where.project, enough)
        state = feed.state
    for line in words.three_lines(state, where):
        click.echo(line)


@contextmanager
def _interrupted() -> Iterator[Event]:
    """Set by Ctrl-C: an exception could be lost where it is raised, in the middle of a library."""
    enough = Event()
    before = signal.signal(signal.SIGINT, lambda _number, _frame: enough.set())
    try:
        yield enough
    finally:
        signal.signal(signal.SIGINT, before)


def _follow(feed: Feed, screen: Screen, project: Path, enough: Event) -> None:
    earlier = deque(feed.news(), maxlen=BEFORE)
    for line in earlier:
        screen.line(line)
    first, alone = True, 0.0
    while exit_code(feed.state) is None:
        screen.status(_doing(feed, project), first=first)
        first = False
        if not words.left(feed.state):
            alone = 0.0
        elif not alone:
            alone = time.monotonic()
        elif time.monotonic() - alone > GONE_S:
            screen.line("nobody drives this run: its process is gone")
            return
        if enough.wait(POLL_S):
            screen.line("no longer watched; the run goes on by itself")
            return
        for line in feed.news():
            screen.line(line)


def _doing(feed: Feed, project: Path) -> str:
    """What happens just now, and the last sign of life."""
    state, it = feed.state, feed.state.current
    if state.wait_until is not None:
        left = (state.wait_until - datetime.now(UTC)).total_seconds()
        return f"waits {seconds(max(0.0, left))} more: {brief(state.wait_why)}"
    if it is None:
        return ""
    since = f" for {seconds((datetime.now(UTC) - feed.began).total_seconds())}" if feed.began else ""
    if it.open is None:
        return f"gates at work{since}"
    log = project / STATE / "artifacts" / feed.run / f"{it.number:04d}" / f"attempt-{it.open.attempt}"
    return f"agent at work{since}{_sign(log / 'agent.log')}"


def _sign(log: Path) -> str:
    """The last output of the agent and how long ago it was."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            text = colourless(file.read(TAIL).decode("utf-8", "replace")).strip()
        ago = max(0.0, time.time() - log.stat().st_mtime)
    except OSError:
        return ""
    last = text.splitlines()[-1][-100:] if text else ""
    if last.endswith("}"):  # an event of a CLI is for programs
        return f", last output {seconds(ago)} ago"
    return f', last output {seconds(ago)} ago: "{words.safe(last)}"' if last else ", no output yet"
