"""What ledgers and holds must keep, apart from crashes: what is counted, how often, and what is said last.

Rule: times are far away, so that no clock decides a trial.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from loopwright.errors import LoopwrightError
from loopwright.ports import Store

DAY: Final = "2026-11-30"
PAST: Final = datetime(2001, 1, 1, tzinfo=UTC)
LATE: Final = datetime(9000, 1, 1, tzinfo=UTC)


def order(store: Store) -> list[str]:
    """What is wrong with totals, and with which hold counts."""
    found: list[str] = []
    totals = [store.add("usd/a", DAY, f"r/{i}/1", 0.1) for i in range(20)]
    if totals != sorted(totals) or totals[-1] != 2.0 or store.total("usd/a", DAY) != 2.0:
        found.append("twenty times 0.1 is not 2.0 in a ledger, or the totals do not grow")
    store.add("usd/b", DAY, "r/0/1", 4.0)
    store.add("usd/a", "2026-12-01", "r/0/1", -1.5)
    there = (
        store.total("usd/b", DAY),
        store.total("usd/a", "2026-12-01"),
        store.total("usd/a", "2026-12-02"),
    )
    if there != (4.0, -1.5, 0.0):
        found.append("ledgers of other keys or days are mixed up")
    if (store.total("usd/a", DAY, "r/7/1"), store.total("usd/a", DAY, "none")) != (0.1, 0.0):
        found.append("what was counted of one entry is not told")
    said = [("b", None), ("a", PAST), ("c", None), ("c", PAST), ("a", LATE), ("d", None), ("b", LATE)]
    for i, (login, until) in enumerate(said):
        store.hold(login, until, f"why {i}")
    store.lift("d")
    store.lift("nobody")
    if [(h.login, h.until, h.why) for h in store.holds()] != [("a", LATE, "why 4"), ("b", LATE, "why 6")]:
        found.append("the holds in force are not those that were said last, by login")
    if not all(abs(datetime.now(UTC) - h.since) < timedelta(minutes=5) for h in store.holds()):
        found.append("a hold does not tell since when")
    return found


def uniqueness(store: Store) -> list[str]:
    """What is wrong with an entry that comes twice, and with amounts that are none."""
    found: list[str] = []
    totals = [
        store.add("usd", DAY, entry, n) for entry, n in (("r/1/1", 1.5), ("r/1/1", 9.0), ("r/1/2", 1.0))
    ]
    if totals != [1.5, 1.5, 2.5]:
        found.append("an entry was counted twice")
    for amount in (float("nan"), float("inf"), float("-inf")):
        try:
            store.add("usd", DAY, f"r/{amount}", amount)
            found.append(f"{amount} was counted")
        except (ValueError, LoopwrightError):
            pass
    if store.total("usd", DAY) != 2.5:
        found.append("what was refused is in the ledger")
    return found


def write(store: Store, me: int, n: int) -> None:
    """What one of several writers does in its round `n`: an entry of its own, one that all want, and a hold."""
    store.add("usd", DAY, f"{me}/{n}", 1.0)
    store.add("usd", DAY, f"all/{n}", 1.0)
    if n == 1:
        store.hold(f"login {me}", LATE, "")


def kept(store: Store, writers: int, rounds: int) -> list[str]:
    """What is missing after all of them, or there too often."""
    found: list[str] = []
    if (total := store.total("usd", DAY)) != (writers + 1) * rounds:
        found.append(f"{writers} writers counted {(writers + 1) * rounds}, and the ledger says {total}")
    if (there := len(store.holds())) != writers:
        found.append(f"of the holds of {writers} logins {there} are there")
    return found
