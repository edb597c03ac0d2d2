"""Runs that somebody looks at, followed from commit to commit so that a page need not read a journal from its beginning.

Rule: a cache and nothing more. Bounded in runs and in what is kept of each; all of it can be made again from the store.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from loopwright.core.state import LoopState
from loopwright.errors import UsageError
from loopwright.journal import commits, followed
from loopwright.ports import Store
from loopwright.report.gather import Fact, Gathering
from loopwright.report.values import Moment, Report, Row

RUNS: Final = 24
MARKS: Final = 128  # places of one run from which its middle is read again
SPACING: Final = 20  # iterations between them, at first


@dataclass(frozen=True, slots=True)
class _Mark:
    """The run as it stood after commit `n`, which closed an iteration."""

    n: int
    link: str
    state: LoopState
    tree: str | None


@dataclass(slots=True)
class Followed:
    """One run, read up to commit `n`; `lock` is for whoever reads on."""

    run: str
    n: int = 0
    link: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    _gathering: Gathering = field(default_factory=Gathering)
    _marks: list[_Mark] = field(default_factory=lambda: [_Mark(0, "", LoopState(), None)])
    _spacing: int = SPACING
    _report: Report | None = None

    @property
    def state(self) -> LoopState:
        """The run as of commit `n`."""
        return self._gathering.state

    def catch_up(self, store: Store) -> None:
        """Reads what was written since; `UsageError` for a run that is not there, `StoreError` for a damaged one."""
        for commit in commits(store, self.run, self.n, self.link):
            facts = [
                (commit.n, at, event, after)
                for at, event, after in followed(store, self.run, self.state, commit)
            ]
            closed = self.state.closed
            self._gathering.take(facts)
            state, self.n, self.link, self._report = self.state, commit.n, commit.link, None
            if state.closed != closed and state.closed % self._spacing == 0:
                self._marks.append(_Mark(self.n, self.link, state, self._gathering.tree))
                if len(self._marks) > MARKS:
                    self._marks, self._spacing = self._marks[::2], 2 * self._spacing
        if not self.n:
            raise UsageError(f"there is no run {self.run} here")

    @property
    def report(self) -> Report:
        """The run, gathered, without what its snapshots say has changed."""
        if self._report is None:
            self._report = self._gathering.report()
        return self._report

    def rows(self, store: Store, low: int, high: int) -> tuple[tuple[Row, ...], tuple[Moment, ...]]:
        """The iterations from `low` to `high` with their moments, however old they are."""
        have = {row.number: row for row in self.report.rows}
        wanted = range(max(0, low), min(high, self.state.iteration) + 1)
        if not all(number in have for number in wanted):
            between = self._between(store, wanted)
            have.update({row.number: row for row in between.rows})
            moments = between.moments
        else:
            moments = self.report.moments
        rows = tuple(have[number] for number in wanted if number in have)
        return rows, tuple(m for m in moments if wanted.start <= m.iteration < wanted.stop)

    def _between(self, store: Store, wanted: range) -> Report:
        mark = max((m for m in self._marks if m.state.iteration < max(1, wanted.start)), key=lambda m: m.n)
        gathering = Gathering(mark.state, mark.tree, last=len(wanted))
        gathering.take(self._facts(store, mark, wanted.stop - 1))
        return gathering.report()

    def _facts(self, store: Store, mark: _Mark, last: int) -> Iterator[Fact]:
        """The facts after a mark, up to the close of iteration `last`."""
        state = mark.state
        for commit in commits(store, self.run, mark.n, mark.link):
            for at, event, after in followed(store, self.run, state, commit):
                if after.iteration > last or commit.n > self.n:
                    return
                state = after
                yield commit.n, at, event, after


class Shelf:
    """The runs that were looked at last."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, Followed] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, run: str) -> Followed:
        """The place of a run, to be locked and caught up."""
        with self._lock:
            found = self._runs.pop(run, None) or Followed(run)
            self._runs[run] = found
            while len(self._runs) > RUNS:
                self._runs.popitem(last=False)
            return found

    def forget(self, run: str) -> None:
        """Drops what cannot be read on."""
        with self._lock:
            self._runs.pop(run, None)
