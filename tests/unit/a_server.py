"""A server's schedules without a server: a clock that is set by hand, a store, loops from real files."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from loopwright.core import events as ev
from loopwright.journal import Journal
from loopwright.serving import slots
from loopwright.serving.book import Book
from loopwright.stores.memory import MemoryStore

LOOP = 'goal = "x"\nagent = "true"\ngates = ["true"]\n'
ENVIRON = {"PATH": "/usr/bin:/bin", "TZ": "UTC"}


def utc(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


BEGAN = utc("2026-11-30T10:00:30")


def cron(expr, **more):
    said = {"cron": expr, "tz": "UTC", **more}
    return "[[trigger]]\n" + "".join(f'{key} = "{value}"\n' for key, value in said.items())


@dataclass
class Server:
    """What `slots` needs of one; several on the same store and files are several servers."""

    project: Path
    store: object = field(default_factory=MemoryStore)
    at: datetime = BEGAN
    told: list = field(default_factory=list)
    nudged: int = 0
    mend_s: float = 0.0

    def __post_init__(self):
        self.environ = ENVIRON
        self.book = Book([self.project], project=self.project, environ=ENVIRON)
        self.watch = slots.Watch(mend_s=self.mend_s)
        self.tell = self.told.append
        self.read()

    def read(self):
        self.book.refresh()
        assert not self.book.problems, self.book.problems

    @contextmanager
    def stores(self):
        yield self.store

    def nudge(self):
        self.nudged += 1

    def look(self, at=None, **later):
        """One look at the clock's time, which is set to `at` or so much later before."""
        self.at = utc(at) if at else self.at + timedelta(**later)
        return slots.step(self, self.watch, lambda: self.at)

    def again(self, **more):
        """The same server after a restart: it remembers nothing."""
        return Server(self.project, self.store, self.at, mend_s=self.mend_s, **more)

    def served(self, name="nightly"):
        return self.book.loops[name]

    def history(self, loop="nightly"):
        """What became of its slots, the oldest decision first."""
        return slots.history(self.store, loop)[::-1]

    def began(self, loop="nightly"):
        return [f"{each.slot:%d %H:%M}" for each in self.history(loop) if each.what == "started"]

    def active(self):
        return [run for run, _ in self.store.heads(active=True)]

    def end(self, *runs):
        for run in runs or self.active():
            finish(self.store, run, self.at)


def finish(store, run, at):
    journal = Journal(store, run)
    journal.record(at, ev.RunFinished(phase="stopped", reason="stopped_by_user", explanation="over"))
    journal.flush()
