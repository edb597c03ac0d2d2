"""Ledgers and holds, as every store keeps them: on sheets, small documents that are replaced whole.

    ledgers/2026-11-30/usd%2Fspent.ledger   amounts by entry: one key's ledger of one day
    holds/logins.holds                      what was last said of each login

Rule: nobody sees half a sheet; one that cannot be read is `Corrupt`, never empty: an empty ledger is money to spend.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from loopwright.errors import Corrupt

if TYPE_CHECKING:  # what only types need is not loaded: verbs that read start the sooner
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

    def place(self, name: str) -> str:
        """Where it stands, for a message."""


def spoilt(place: str, name: str) -> Corrupt:
    """The error for a sheet that is not as it was written."""
    lost, anew = "what was spent cannot be read", "its day then begins at zero"
    if name == HOLDS:
        lost, anew = "which logins must wait cannot be read", "then none does"
    return Corrupt(f"{place} is damaged: {lost}. Restore a copy, or move it aside ({anew})")


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


def _rows(sheets: Sheets, name: str, body: bytes | None) -> dict[str, Any]:
    if body is None:
        return {}
    try:
        rows = json.loads(body)
    except (ValueError, RecursionError):
        rows = None
    if not isinstance(rows, dict):
        raise spoilt(sheets.place(name), name)
    return rows


def _amounts(sheets: Sheets, name: str, body: bytes | None) -> dict[str, float]:
    rows = _rows(sheets, name, body)
    if not all(type(amount) is float and math.isfinite(amount) for amount in rows.values()):
        raise spoilt(sheets.place(name), name)
    return rows


def add(sheets: Sheets, key: str, day: str, entry: str, amount: float) -> float:
    """The ledger's total with this entry, which is counted once; `ValueError` for what cannot be counted."""
    name, totals = _name(key, day), [0.0]
    if not math.isfinite(amount):
        raise ValueError(f"{amount} is no amount for {key}: it must be finite")

    def change(body: bytes | None) -> bytes | None:
        amounts = _amounts(sheets, name, body)
        new = entry not in amounts
        amounts.setdefault(entry, float(amount))
        try:
            totals[0] = math.fsum(amounts.values())
        except OverflowError:
            raise ValueError(f"{amount} is too much for the ledger {key} of {day}") from None
        return _written(amounts) if new else None

    sheets.edit(name, change)
    return totals[0]


def total(sheets: Sheets, key: str, day: str, entry: str | None = None) -> float:
    """The ledger's total, or what is counted of one entry; 0.0 where nothing is."""
    name = _name(key, day)
    amounts = _amounts(sheets, name, sheets.look(name))
    return math.fsum(amounts.values()) if entry is None else amounts.get(entry, 0.0)


def _of(sheets: Sheets, body: bytes | None) -> dict[str, Hold]:
    from loopwright.ports import Hold

    rows = _rows(sheets, HOLDS, body)
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
        raise spoilt(sheets.place(HOLDS), HOLDS) from None


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


def hold(sheets: Sheets, login: str, until: datetime | None, why: str) -> None:
    """This login waits from now; `ValueError` for a time without a zone."""
    from loopwright.ports import Hold

    if until is not None:
        if until.tzinfo is None:
            raise ValueError(f"{until} has no time zone: nobody could tell when {login} may go on")
        until = until.astimezone(UTC)

    def change(body: bytes | None) -> bytes:
        said = Hold(login=login, until=until, why=why[:WHY], since=datetime.now(UTC))
        return _put(_standing(_of(sheets, body)) | {login: said})

    sheets.edit(HOLDS, change)


def holds(sheets: Sheets) -> list[Hold]:
    """The holds in force, by login."""
    return list(_standing(_of(sheets, sheets.look(HOLDS))).values())


def lift(sheets: Sheets, login: str) -> None:
    """This login need not wait any more."""

    def change(body: bytes | None) -> bytes | None:
        found = _of(sheets, body)
        if found.pop(login, None) is None:
            return None
        return _put(_standing(found))

    sheets.edit(HOLDS, change)
