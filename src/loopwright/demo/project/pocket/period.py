"""Periods of days. A period begins with its first day and stops before its end."""

from dataclasses import dataclass
from datetime import date, timedelta


@dataclass(frozen=True, order=True)
class Period:
    """The days from `start` up to, but not including, `end`."""

    start: date
    end: date

    def __contains__(self, day: date) -> bool:
        return self.start <= day <= self.end

    @property
    def days(self) -> int:
        """How many days the period has."""
        return (self.end - self.start).days

    def overlaps(self, other: "Period") -> bool:
        """Whether the two periods have a day in common."""
        return self.start < other.end and other.start < self.end


def month(year: int, number: int) -> Period:
    """Return the period of one month, January being 1."""
    end = date(year + number // 12, number % 12 + 1, 1)
    return Period(date(year, number, 1), end)


def merge(periods: list[Period]) -> list[Period]:
    """Join the periods that overlap or touch, the earliest first."""
    merged: list[Period] = []
    for period in sorted(periods):
        if merged and period.start <= merged[-1].end:
            last = merged.pop()
            period = Period(last.start, max(last.end, period.end))
        merged.append(period)
    return merged
