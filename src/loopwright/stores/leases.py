"""Leases of the SQLite store: a row that says who drives a run, until when.

Rule: an owner known to live or to be dead decides; the clock only where that cannot be known. A lease need not outlive
the power, so none waits for the disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import apsw


class Write(Protocol):
    """One transaction of the store."""

    def __call__(self, put: Callable[[], object], *, durable: bool = True) -> None:
        """Does what `put` does, whole or not at all."""


@dataclass(frozen=True, slots=True)
class SqliteLease:
    """A lease of `owner` on `run`, for `ttl` seconds each time."""

    db: apsw.Connection
    write: Write
    run: str
    owner: str
    ttl: float

    def renew(self) -> bool:
        """Whether it is still ours; it then holds for `ttl` seconds more."""
        kept: list[bool] = []

        def put() -> None:
            until = time.time() + self.ttl
            self.db.execute(
                "UPDATE leases SET until=? WHERE run=? AND owner=?", (until, self.run, self.owner)
            )
            kept.append(self.db.changes() == 1)

        self.write(put, durable=False)
        return kept[0]

    def release(self) -> None:
        """Gives it back."""
        sql = "DELETE FROM leases WHERE run=? AND owner=?"
        self.write(lambda: self.db.execute(sql, (self.run, self.owner)), durable=False)


def leased(lease: SqliteLease, alive: Callable[[str], bool | None]) -> SqliteLease | None:
    """The lease, now on record, or `None` while another owner that lives has one."""
    db, got = lease.db, []

    def put() -> None:
        rows = list(db.execute("SELECT owner, until FROM leases WHERE run=?", (lease.run,)))
        free = not rows or not _holds(str(rows[0][0]), float(str(rows[0][1])), alive)
        if free:
            row = (lease.run, lease.owner, time.time() + lease.ttl)
            db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", row)
        got.append(free)

    lease.write(put, durable=False)
    return lease if got[0] else None


def _holds(owner: str, until: float, alive: Callable[[str], bool | None]) -> bool:
    lives = alive(owner)
    return until > time.time() if lives is None else lives
