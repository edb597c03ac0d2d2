"""Ledgers and holds, as every store keeps them: on sheets, small documents that are replaced whole.

    ledgers/2026-11-30/usd%2Fspent.ledger   amounts by entry: one key's ledger of one day
    holds/logins.holds                      what was last said of each login

Rule: nobody sees half a sheet; one that cannot be read is `Corrupt`, never empty: an empty ledger is money to spend.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

if TYPE_CHECKING:  # what only types need is not loaded: verbs that read start the sooner
    from loopwright.errors import Corrupt
    from loopwright.ports import Hold

HOLDS: Final = "holds/logins.holds"
LONGEST: Final = 200  # bytes of a key, as a file's name
WHY: Final = 1000  # characters of a reason that are kept
Change: TypeAlias = Callable[[bytes | None], bytes | None]


class Sheets(Protocol):
    """Where a store has its sheets."""

    def look(self, name: str) -> bytes | None:
        """What the sheet holds; `None` when there is none, `Corrupt` when it is not as it was written."""

    def edit(self, name: str, change: Change) -> None:
        """Puts what `change` makes of the sheet in its place, durably, while nobody else writes it.

        Where that is `None` it stays as it stands, and that is durable then.
        """

    def spoilt(self, name: str) -> Corrupt:
        """The error for a sheet that is not as it was written: where it is, and what to do."""


def _name(key: str, day: str) -> str:
    from urllib.parse import quote  # verbs that read have no use for it

    named = quote(key, safe="")
    if not 0 < len(named) <= LONGEST:
        raise ValueError(f"{key!r} cannot name a ledger: {LONGEST} bytes at most")
    if date.fromisoformat(day).isoformat() != day:
        raise ValueError(f"{day!r} is no day as in 2026-11-30")
    return f"ledgers/{day}/{named}.ledger"


def _written(rows: dict[str, Any]) -> bytes:
    return json.dumps(rows, separators=(",\n", ": "), allow_nan=False).encode()  # a row a line, for people


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return moment


def _standing(found: dict[str, Hold]) -> dict[str, Hold]:
    """Those that are in force, by login."""
    now = datetime.now(UTC)
    return {name: hold for name, hold in sorted(found.items()) if hold.until is None or hold.until > now}


def _put(found: dict[str, Hold]) -> bytes:
    return _written(
        {
            hold.login: {
                "until": hold.until and hold.until.isoformat(),
                "why": hold.why,
                "since": hold.since.isoformat(),
            }
            for hold in found.values()
        }
    )


@dataclass(frozen=True, slots=True)
class Ledgers:
    """The ledgers and holds on these sheets."""

    sheets: Sheets

    def add(self, key: str, day: str, entry: str, amount: float) -> float:
        """The ledger's total with this entry, which is counted once; `ValueError` for what cannot be counted."""
        name, totals = _name(key, day), [0.0]
        if not math.isfinite(amount):
            raise ValueError(f"{amount} is no amount for {key}: it must be finite")

        def change(body: bytes | None) -> bytes | None:
            amounts = self._amounts(name, body)
            new = entry not in amounts
            amounts.setdefault(entry, float(amount))
            try:
                totals[0] = math.fsum(amounts.values())
            except OverflowError:
                raise ValueError(f"{amount} is too much for the ledger {key} of {day}") from None
            return _written(amounts) if new else None

        self.sheets.edit(name, change)
        return totals[0]

    def total(self, key: str, day: str, entry: str | None = None) -> float:
        """The ledger's total, or what is counted of one entry; 0.0 where nothing is."""
        name = _name(key, day)
        amounts = self._amounts(name, self.sheets.look(name))
        return math.fsum(amounts.values()) if entry is None else amounts.get(entry, 0.0)

    def hold(self, login: str, until: datetime | None, why: str) -> None:
        """This login waits from now; `ValueError` for a time without a zone."""
        from loopwright.ports import Hold

        if until is not None:
            if until.tzinfo is None:
                raise ValueError(f"{until} has no time zone: nobody could tell when {login} may go on")
            until = until.astimezone(UTC)

        def change(body: bytes | None) -> bytes:
            said = Hold(login=login, until=until, why=why[:WHY], since=datetime.now(UTC))
            return _put(_standing(self._of(body)) | {login: said})

        self.sheets.edit(HOLDS, change)

    def holds(self) -> list[Hold]:
        """The holds in force, by login."""
        return list(_standing(self._of(self.sheets.look(HOLDS))).values())

    def lift(self, login: str) -> None:
        """This login need not wait any more."""

        def change(body: bytes | None) -> bytes | None:
            found = self._of(body)
            return None if found.pop(login, None) is None else _put(_standing(found))

        self.sheets.edit(HOLDS, change)

    def _rows(self, name: str, body: bytes | None) -> dict[str, Any]:
        if body is None:
            return {}
        try:
            rows = json.loads(body)
        except (ValueError, RecursionError):
            rows = None
        if not isinstance(rows, dict):
            raise self.sheets.spoilt(name)
        return rows

    def _amounts(self, name: str, body: bytes | None) -> dict[str, float]:
        rows = self._rows(name, body)
        if not all(type(amount) is float and math.isfinite(amount) for amount in rows.values()):
            raise self.sheets.spoilt(name)
        return rows

    def _of(self, body: bytes | None) -> dict[str, Hold]:
        rows = self._rows(HOLDS, body)
        if not rows:
            return {}
        from loopwright.ports import Hold

        try:
            return {
                login: Hold(
                    login=login,
                    until=None if row["until"] is None else _moment(row["until"]),
                    why=str(row["why"]),
                    since=_moment(row["since"]),
                )
                for login, row in rows.items()
            }
        except (ValueError, KeyError, TypeError):
            raise self.sheets.spoilt(HOLDS) from None
