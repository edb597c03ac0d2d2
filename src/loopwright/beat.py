"""One coarse timer for an event loop, shared by all that wait for what rarely comes: deadlines, signals, a lost lease.

Rule: nothing here is exact, but for short limits. A timer of its own for every call and every run would be pushed through the loop's heap
with each iteration, only to be cancelled; in a process of a thousand runs that is a tenth of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

BEAT_S: Final = 0.2
EXACT_S: Final = 10.0  # shorter limits have a timer of their own
_BEATS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Beat]] = WeakKeyDictionary()


class Beat:
    """Calls everybody who joined, every `BEAT_S` while anybody has; made by `beat_of`."""

    __slots__ = ("__weakref__", "_due", "_exact", "_joined", "_timer")

    def __init__(self) -> None:
        self._joined: dict[object, Callable[[], None]] = {}
        self._due: dict[asyncio.Future[None], float] = {}
        self._exact: dict[asyncio.Future[None], asyncio.TimerHandle] = {}
        self._timer: asyncio.TimerHandle | None = None

    def join(self, who: object, look: Callable[[], None]) -> None:
        """`look` is called with every beat until `who` leaves."""
        self._joined[who] = look
        self._begin(asyncio.get_running_loop())

    def leave(self, who: object) -> None:
        """No more calls."""
        self._joined.pop(who, None)

    def limit(self, loop: asyncio.AbstractEventLoop, over: asyncio.Future[None], seconds: float) -> None:
        """Ends `over` once the time is up, a beat later at most."""
        if seconds < EXACT_S:
            self._exact[over] = loop.call_later(max(0.0, seconds), end, over)
            return
        self._due[over] = loop.time() + seconds
        self._begin(loop)

    def lift(self, over: asyncio.Future[None]) -> None:
        """The limit is no longer needed."""
        if self._due.pop(over, None) is None and (exact := self._exact.pop(over, None)) is not None:
            exact.cancel()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None:
            self._timer = loop.call_later(BEAT_S, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._joined or self._due:
            self._begin(loop)
        for look in list(self._joined.values()):
            look()
        now = loop.time()
        for over in [over for over, due in self._due.items() if due <= now]:
            del self._due[over]
            end(over)


def end(over: asyncio.Future[None]) -> None:
    """Lets whoever awaits `over` go on; once is enough."""
    if not over.done():
        over.set_result(None)


def beat_of(loop: asyncio.AbstractEventLoop) -> Beat:
    """The beat of this event loop."""
    beat = _BEATS.get(loop)
    if beat is None:
        beat = _BEATS[loop] = Beat()
    return beat
