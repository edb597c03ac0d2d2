"""What a car park charges, in cents.

The first half hour is free. Every hour begun after it costs the hourly rate, up to a
daily maximum. At night, from 20:00 to 8:00, the gate is shut to all but residents.
"""

from datetime import datetime, timedelta

FREE = timedelta(minutes=30)
HOURLY = 250
DAILY = 1800


def hours_begun(stay: timedelta) -> int:
    """Return how many hours have begun, one minute counting as an hour."""
    return -(-stay // timedelta(hours=1))


def day_fee(stay: timedelta) -> int:
    """Return the fee of a stay of one day at most."""
    if stay <= FREE:
        return 0
    return min(hours_begun(stay + FREE) * HOURLY, DAILY)


def fee(arrival: datetime, departure: datetime) -> int:
    """Return the fee of any stay: full days at the maximum, then the rest."""
    if departure < arrival:
        raise ValueError("left before it came")
    days, rest = divmod(departure - arrival, timedelta(days=1))
    return days * DAILY + day_fee(rest)


def gate_opens(when: datetime, *, resident: bool) -> bool:
    """Whether the gate opens for a car at this time."""
    return resident and 8 <= when.hour < 20


def free_places(capacity: int, events: list[str]) -> int:
    """Return the places left after cars came ("in") and went ("out")."""
    taken = 0
    for event in events:
        if event == "in":
            taken = min(taken + 1, capacity)
        else:
            taken = max(taken - 1, 0)
    return capacity - taken
