"""How much a server takes in: bodies, rates, live views.

Rule: what is counted is counted as it comes, and what is remembered of who asks has a bound itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import Message, Receive, Scope

from loopwright.web.problems import Trouble

_DRAINED: Final = 64_000_000  # bytes that are thrown away before a sender is cut off


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much a server takes in: sizes in bytes, rates per minute."""

    body: int = 1_000_000
    headers: int = 32_768
    body_s: float = 20.0
    streams: int = 64
    wrong_tokens: int = 20  # of one address
    changes: int = 120  # of one person


class Rate:
    """At most `most` of each key in a minute; it remembers a bounded number of keys."""

    def __init__(self, most: int, *, now: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self._now = now
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, key: str) -> float:
        """Counts one more; 0.0, or the seconds after which it would be taken."""
        now = self._now()
        times = self._seen.setdefault(key, deque(maxlen=self.most))
        self._seen.move_to_end(key)
        while len(self._seen) > 4096:
            self._seen.popitem(last=False)
        if len(times) == self.most and now - times[0] < 60:
            return 60 - (now - times[0])
        times.append(now)
        return 0.0


class Streams:
    """The responses that stay open, `most` at once; `close` ends them all, from any thread."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open = 0
        self._closed = False
        self._waiting: set[asyncio.Future[None]] = set()

    def close(self) -> None:
        """Ends every stream that is open, and every one that begins from now on."""
        self._closed = True
        for over in tuple(self._waiting):
            with suppress(RuntimeError):  # its loop is closed: nothing is open there any more
                over.get_loop().call_soon_threadsafe(over.cancel)

    def hearing(self, receive: Receive) -> tuple[Receive, Callable[[], object]]:
        """What hears a client until streams are closed, and what ends it before: then all it hears is a good-bye."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        return lambda: self._heard(receive, over), over.cancel

    async def _heard(self, receive: Receive, over: asyncio.Future[None]) -> Message:
        self._waiting.add(over)
        message: asyncio.Future[Message] = asyncio.ensure_future(receive())
        both: set[asyncio.Future[Any]] = {message, over}
        try:
            if not self._closed and not over.done():
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return message.result() if message.done() else {"type": "http.disconnect"}
        finally:
            self._waiting.discard(over)
            message.cancel()


async def whole_body(receive: Receive, bounds: Bounds) -> bytes:
    """The whole body of a request; `Trouble` as soon as it is larger than it may be, or too slow."""
    body = bytearray()

    async def read() -> None:
        while True:
            message: dict[str, Any] = dict(await receive())
            if message["type"] == "http.disconnect":
                raise Trouble(400, "the request broke off")
            body.extend(message.get("body", b""))
            if len(body) > bounds.body:
                raise Trouble(413, f"more than {bounds.body} bytes are not taken")
            if not message.get("more_body", False):
                return

    try:
        await asyncio.wait_for(read(), bounds.body_s)
    except TimeoutError:
        raise Trouble(408, f"the request was not whole within {bounds.body_s:g} s") from None
    return bytes(body)


async def drained(scope: Scope, receive: Receive) -> None:
    """Throws away what still comes, for a moment: who is cut off while sending never reads why."""
    if any(name == b"expect" for name, _ in scope["headers"]):  # it waits for our word before it sends
        return
    left = _DRAINED
    with suppress(TimeoutError):
        async with asyncio.timeout(2.0):
            while left > 0:
                message = await asyncio.wait_for(receive(), 0.2)
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return
