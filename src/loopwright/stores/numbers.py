"""The numbers of the runs in one SQLite file, by which their commits are found.

Rule: a run has a number if table and index say so; believing one alone could begin a second history.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from loopwright.stores.database import NUMBERS, damaged

if TYPE_CHECKING:
    import apsw

KNOWN: Final = 10_000  # runs of which something is remembered
# The number of a run by its index, and by the table; one statement, as others may begin it meanwhile.
_FIND: Final = (
    "SELECT number, CASE WHEN number IS NULL THEN (SELECT id FROM runs NOT INDEXED WHERE run=?1)"
    " ELSE (SELECT id FROM runs WHERE id=number AND +run=?1) END"
    " FROM (SELECT (SELECT id FROM runs WHERE run=?1) AS number)"
)


class Numbers:
    """The numbers of the runs in the file at `path`, as far as they were asked for."""

    def __init__(self, path: Path, db: apsw.Connection) -> None:
        self._path = path
        self._db = db
        self._known: dict[str, int] = {}

    def of(self, run: str, *, make: bool = False) -> int | None:
        """The number of a run, made with its first commit; `None` when it has none, `Corrupt` when that cannot be told."""
        known = self._known.get(run)
        if known is None:
            known = self._found(run)
            if known is None and not make:
                return None
            if known is None:
                self._db.execute("INSERT INTO runs (run) VALUES (?)", (run,))
                known = self._db.last_insert_rowid()
            if known >= NUMBERS >> 1:
                raise damaged(self._path, f"run {run} has the number {known}")
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[run] = known
        return known

    def _found(self, run: str) -> int | None:
        ((indexed, number),) = self._db.execute(_FIND, (run,))
        if indexed != number:
            raise damaged(self._path, f"index and table of runs do not agree about {run}")
        return None if number is None else int(str(number))

    def forget(self, run: str | None = None) -> None:
        """The number of this run, or of any, is looked for anew."""
        if run is None:
            self._known.clear()
        else:
            self._known.pop(run, None)
