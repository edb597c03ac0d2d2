"""Journals in this process only: for tests, and for loops that need not outlive it.

Rule: the same contract as every store, with a lock instead of a disk.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loopwright.errors import Corrupt, Taken
from loopwright.stores.ledgers import Change, Ledgers

if TYPE_CHECKING:  # what only types need is not loaded: verbs that read start the sooner
    from datetime import datetime

    from loopwright.ports import Hold, Kept, Refused


class MemoryLease:
    """A lease that ends with the process."""

    def __init__(self, leases: dict[str, str], run: str, owner: str) -> None:
        self._leases = leases
        self._run = run
        self._owner = owner

    def renew(self) -> bool:
        """Whether it is still ours."""
        return self._leases.get(self._run) == self._owner

    def release(self) -> None:
        """Gives it back."""
        if self._leases.get(self._run) == self._owner:
            del self._leases[self._run]


class MemorySheets:
    """Ledgers and holds of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sheets: dict[str, bytes] = {}

    def look(self, name: str) -> bytes | None:
        """What the sheet holds."""
        return self._sheets.get(name)

    def edit(self, name: str, change: Change) -> None:
        """Puts what `change` makes of it in its place."""
        with self._lock:
            made = change(self._sheets.get(name))
            if made is not None:
                self._sheets[name] = made

    def spoilt(self, name: str) -> Corrupt:
        """The error for what cannot be."""
        return Corrupt(f"{name} in memory is not as it was written")


class MemoryStore:
    """A store in memory; one instance is one store."""

    files: Sequence[Path] = ()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._commits: dict[str, list[bytes]] = {}
        self._heads: dict[str, tuple[bool, bytes]] = {}
        self._folds: dict[str, tuple[int, bytes]] = {}
        self._signals: dict[str, dict[str, tuple[bytes, bool]]] = {}
        self._leases: dict[str, str] = {}
        self._ledgers = Ledgers(MemorySheets())

    def append(self, run: str, n: int, commit: bytes) -> None:
        """Writes commit `n` if absent; `Taken` if not."""
        with self._lock:
            self._append(run, n, commit)

    def _append(self, run: str, n: int, commit: bytes) -> None:
        lines = self._commits.setdefault(run, [])
        if n <= len(lines):
            raise Taken(n, lines[n - 1])
        if n != len(lines) + 1:
            raise ValueError(f"commit {n} of {run} would leave a gap after {len(lines)}")
        lines.append(commit)

    def append_with(self, run: str, n: int, commit: bytes, kept: Kept) -> None:
        """Like `append`, with the head and a fold."""
        with self._lock:
            self._append(run, n, commit)
            if kept.head is not None:
                self._heads.pop(run, None)  # newest last
                self._heads[run] = (kept.active, kept.head)
            if kept.fold is not None:
                self._folds[run] = (n, kept.fold)

    def append_all(self, commits: Sequence[tuple[str, int, bytes, Kept]]) -> list[Refused | None]:
        """Like `append_with` for each."""
        refused: list[Refused | None] = []
        for run, n, commit, kept in commits:
            try:
                self.append_with(run, n, commit, kept)
                refused.append(None)
            except Taken as taken:
                refused.append(taken)
        return refused

    def read(self, run: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """The commits above `after`, in order."""
        with self._lock:
            lines = self._commits.get(run, [])[after:]
        return iter(list(enumerate(lines, after + 1)))

    def heads(self, *, active: bool | None = None, limit: int = 1000) -> Iterable[tuple[str, bytes]]:
        """Runs with their heads, newest first."""
        with self._lock:
            found = [(r, h) for r, (a, h) in reversed(self._heads.items()) if active is None or a == active]
        return found[:limit]

    def cached(self, run: str) -> tuple[int, bytes] | None:
        """A cached fold."""
        with self._lock:
            return self._folds.get(run)

    def signal(self, run: str, key: str, record: bytes) -> bool:
        """Whether this key was free."""
        with self._lock:
            mine = self._signals.setdefault(run, {})
            if key in mine:
                return False
            mine[key] = (record, False)
            return True

    def signals(self, run: str) -> Iterable[tuple[str, bytes]]:
        """The signals not yet settled."""
        if run not in self._signals:
            return ()
        with self._lock:
            return [(k, r) for k, (r, settled) in self._signals[run].items() if not settled]

    def settle(self, run: str, keys: Iterable[str]) -> None:
        """Marks signals as consumed."""
        with self._lock:
            mine = self._signals.get(run, {})
            for key in keys:
                if key in mine:
                    mine[key] = (mine[key][0], True)

    def lease(self, run: str, owner: str, ttl: float) -> MemoryLease | None:  # noqa: ARG002 - it cannot expire
        """A lease on the run, or `None`."""
        with self._lock:
            if run in self._leases:
                return None
            self._leases[run] = owner
        return MemoryLease(self._leases, run, owner)

    def add(self, key: str, day: str, entry: str, amount: float) -> float:
        """The ledger's total with this entry, which is counted once."""
        return self._ledgers.add(key, day, entry, amount)

    def total(self, key: str, day: str, entry: str | None = None) -> float:
        """The ledger's total, or what was counted of one entry."""
        return self._ledgers.total(key, day, entry)

    def hold(self, login: str, until: datetime | None, why: str) -> None:
        """Says that a login must wait."""
        self._ledgers.hold(login, until, why)

    def holds(self) -> list[Hold]:
        """The holds in force, by login."""
        return self._ledgers.holds()

    def lift(self, login: str) -> None:
        """Ends the hold of a login."""
        self._ledgers.lift(login)

    def close(self) -> None:
        """Nothing to let go of."""
