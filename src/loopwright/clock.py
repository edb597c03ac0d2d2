"""The time of one process: wall time that only moves forward, at the pace of the monotonic clock.

Rule: the wall clock is read once. A clock set back or forward, or a machine asleep, changes no
limit and no wait; timestamps are for people.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime


class Clock:
    """Aware UTC now, seconds of a monotonic clock, and sleep."""

    def __init__(self) -> None:
        self._ahead = datetime.now(UTC).timestamp() - time.monotonic()  # the wall clock is read once

    def after(self, at: datetime | None) -> None:
        """Goes on from `at` where the wall clock was set back since: a wait is not longer for it."""
        if at is not None:
            self._ahead += max(0.0, (at - self.now()).total_seconds())

    def now(self) -> datetime:
        """The present, in UTC."""
        return datetime.fromtimestamp(self._ahead + time.monotonic(), UTC)

    def monotonic(self) -> float:
        """Seconds, for lengths."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Returns after so many seconds."""
        await asyncio.sleep(seconds)
