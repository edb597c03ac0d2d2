"""What was spent in a day, of all runs that share a store: dollars spent, and dollars reserved by open attempts.

Rule: money goes on the ledger before it can be spent (`reserve`), and a reservation is given back only after what was
really spent stands there (`settle`). A crash in between leaves both: too much is counted for a while, never too little.
An attempt is counted once however often it is said, so whoever comes after a crash says it all again. One whose cost
never becomes known keeps its reservation: unknown is not zero.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final
from uuid import uuid4

from loopwright.core.limits import day_of
from loopwright.errors import StoreError
from loopwright.ports import Store

SPENT: Final = "usd/spent"
RESERVED: Final = "usd/reserved"
BY_PLAN: Final = "usd/plan"  # what of that is list prices, because a flat plan paid


def kept(store: Store) -> bool:
    """Whether this store keeps ledgers and holds; one that somebody else wrote may not."""
    return all(hasattr(store, name) for name in ("add", "total", "hold", "holds", "lift"))


def today(now: datetime) -> str:
    """The day of a moment, as ledgers name it: `2026-11-30`, in UTC; `ValueError` for a time without a zone."""
    if now.tzinfo is None:
        raise ValueError(f"{now} has no time zone: it could be of two days")
    return day_of(now)


def booking(now: datetime, key: str) -> str:
    """What an attempt that begins now is booked as, in the ledgers of its day: the same `key`, the same attempt."""
    return f"{today(now)}/{key}"


def unique(key: str) -> str:
    """A key that is never the same again."""
    return f"{key}/{uuid4().hex[:8]}"


def standing(store: Store, booking: str) -> float | None:
    """The dollars that are reserved as this booking, `None` where nothing ever was; 0.0 once they are given back."""
    day, entry = _parts(booking)
    reserved = store.total(RESERVED, day, entry)
    return reserved + store.total(RESERVED, day, f"{entry}/settled") if reserved else None


def reserve(store: Store, booking: str, usd: float) -> float:
    """Puts what an attempt may cost on the ledger; all that is spent and reserved that day, with it.

    Of two that reserve at once, at least one is told of both. One that is not begun after all is settled with 0.
    """
    _checked(store, usd)
    day, entry = _parts(booking)
    store.add(RESERVED, day, entry, usd)
    return sum(spent(store, day))


def settle(store: Store, booking: str, usd: float, *, plan: bool = False) -> None:
    """Puts what an attempt did cost on the ledger of the day it began, and gives its reservation back.

    `plan`: these dollars are list prices, because a flat plan paid.
    """
    _checked(store, usd)
    day, entry = _parts(booking)
    if plan:  # first: what nobody paid is never taken for paid
        store.add(BY_PLAN, day, entry, usd)
    store.add(SPENT, day, entry, usd)
    reserved = store.total(RESERVED, day, entry)  # as it stands there, whatever a loop file says by now
    if reserved:
        store.add(RESERVED, day, f"{entry}/settled", -reserved)


def spent(store: Store, day: str) -> tuple[float, float]:
    """The dollars spent that day, and those that open attempts have reserved."""
    _checked(store, 0.0)
    reserved = store.total(
        RESERVED, day
    )  # first: what is settled meanwhile is then counted twice, and not left out
    return store.total(SPENT, day), reserved


def _parts(booking: str) -> tuple[str, str]:
    day, _, entry = booking.partition("/")
    return day, entry


def _checked(store: Store, usd: float) -> None:
    if not kept(store):
        raise StoreError(
            "this store keeps no ledgers, so nobody can tell what a day has cost: use sqlite:///PATH or files:DIR"
        )
    if not (math.isfinite(usd) and usd >= 0):
        raise ValueError(f"{usd} is no amount of dollars")
