"""The ledger: what was earned and spent, day by day."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

from pocket import money
from pocket.period import Period


@dataclass(frozen=True)
class Entry:
    """One line of the book: income is positive, an expense negative."""

    day: date
    amount: int
    category: str


def read(text: str) -> list[Entry]:
    """Read lines such as "2024-03-01  -12.50  food"; the oldest entry comes first."""
    entries = []
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if line:
            day, amount, category = line.split(maxsplit=2)
            entries.append(
                Entry(date.fromisoformat(day), money.parse(amount), category)
            )
    return sorted(entries, key=lambda entry: entry.day)


def balance(entries: list[Entry], opening: int = 0) -> int:
    """Return what is left of the opening balance after all entries."""
    return opening + sum(entry.amount for entry in entries)


def lowest(entries: list[Entry], opening: int = 0) -> int:
    """Return the lowest balance on the way from the first entry to the last."""
    now = low = opening
    for entry in entries:
        now += entry.amount
        low = min(low, now)
    return low


def spent(entries: list[Entry], period: Period) -> Counter[str]:
    """Return what was spent in the period, by category."""
    totals: Counter[str] = Counter()
    for entry in entries:
        if entry.amount < 0 and entry.day in period:
            totals[entry.category] -= entry.amount
    return totals


def longest_pause(entries: list[Entry]) -> int:
    """Return the most days in a row, between two entries, without any entry."""
    days = sorted({entry.day for entry in entries})
    gaps = [(after - before).days - 2 for before, after in pairwise(days)]
    return max(gaps, default=0)
