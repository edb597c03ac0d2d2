"""Ledgers and holds of the SQLite store: a row each, which is replaced whole.

Rule: a row tells by its check that it is as it was written, under its own name; an index alone never says that one
is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zlib import crc32

from loopwright.errors import Corrupt
from loopwright.stores.database import SHEETS, damaged, version_of
from loopwright.stores.ledgers import Change

if TYPE_CHECKING:
    import apsw

_SHEET: Final = (
    "INSERT INTO sheets (name, sum, body) VALUES (?, ?, ?)"
    " ON CONFLICT (name) DO UPDATE SET sum=excluded.sum, body=excluded.body"
)


@dataclass(frozen=True, slots=True)
class RowSheets:
    """Ledgers and holds, a row each.

    `write` is one durable transaction, `ask` a look between those of other threads; `found` makes durable what is found.
    """

    path: Path
    db: apsw.Connection
    write: Callable[[Callable[[], object]], None]
    ask: Callable[[Callable[[], bytes | None]], bytes | None]
    found: Callable[[], None]

    def spoilt(self, name: str) -> Corrupt:
        """The error for a damaged row: it is in the one file."""
        return damaged(self.path, f"{name} is not as it was written")

    def look(self, name: str) -> bytes | None:
        """What the sheet holds; `Corrupt` where the row is not as it was written."""
        return self.ask(lambda: self._body(name))

    def edit(self, name: str, change: Change) -> None:
        """Puts what `change` makes of it in its place, durably."""
        stays: list[bool] = []

        def put() -> None:
            made = change(self._body(name))
            stays.append(made is None)
            if made is not None:
                self.db.execute(_SHEET, (name, _sum(name, made), made))

        self.write(put)
        if stays[0]:
            self.found()

    def _body(self, name: str) -> bytes | None:
        if version_of(self.db) < SHEETS:
            return None
        rows = list(self.db.execute("SELECT sum, body FROM sheets WHERE name=?", (name,)))
        if not rows:  # by the index; nothing is believed to be nothing by it alone
            if list(self.db.execute("SELECT 1 FROM sheets NOT INDEXED WHERE name=?", (name,))):
                raise self.spoilt(name)
            return None
        there, body = rows[0]
        if not isinstance(body, bytes) or there != _sum(name, body):
            raise self.spoilt(name)
        return body


def _sum(name: str, body: bytes) -> int:
    """The check of a row, which is another's under another name."""
    return crc32(body, crc32(name.encode()))
