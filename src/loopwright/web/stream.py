"""The live view: one stream for a page, over which parts of it are sent when they have changed.

Rule: a stream says only what the page would say if it were loaded now. Its ids are commit numbers; who comes back with
the last one gets what was missed. It asks the store at intervals, so news of other processes is seen as well.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Container, Mapping
from dataclasses import dataclass
from typing import Final

from loopwright.errors import LoopwrightError
from loopwright.web.problems import Trouble

POLL_S: Final = 0.5
AGAIN_S: Final = 5.0  # after a look that failed
PING_S: Final = 15.0
TICK_S: Final = 5.0  # how often what only time changes is said anew
SLOW_S: Final = 30.0  # the same of a long list
RETRY_MS: Final = 1500
LONGEST_S: Final = 3600.0  # then the browser comes again


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The parts of a page as they are now, by the id of their element; `id` says of which commit."""

    id: str
    parts: Mapping[str, str]


Peek = Callable[[], str]  # what is other as soon as there is news; cheap
Look = Callable[[], Looked]


async def stream(
    peek: Peek,
    look: Look,
    *,
    last: str | None,
    seen: str | None = None,
    late: Container[str] = (),
    tick_s: float = TICK_S,
) -> AsyncIterator[bytes]:
    """The stream: `last` is the id that the page is of, `seen` the same as the browser says it when it comes back.

    `late` are parts that a page may have been loaded without: they are said anyway.
    """
    yield f"retry: {RETRY_MS}\n: live\n\n".encode()
    sent: dict[str, str] = {}
    news: str | None = None
    begun = looked_at = said_at = time.monotonic()
    known = seen or last
    while time.monotonic() - begun < LONGEST_S:
        now, pause_s = time.monotonic(), POLL_S
        try:
            found = await asyncio.to_thread(peek)
            if found != news or now - looked_at >= tick_s:
                looked = await asyncio.to_thread(look)
                first = news is None
                news, looked_at = found, now
                body = _changed(sent, looked, only=late if first and looked.id == known else None)
                if body:
                    said_at = now
                    yield body
        except Trouble:  # what the page is of was removed
            return
        except (
            LoopwrightError
        ):  # the store cannot be read just now: a later look may, and each costs as much as a first
            news, pause_s = None, AGAIN_S
        if now - said_at >= PING_S:
            said_at = now
            yield b": ping\n\n"
        await asyncio.sleep(pause_s)


def _changed(sent: dict[str, str], looked: Looked, *, only: Container[str] | None) -> bytes:
    """The message with the parts that are other than what was sent; the page has all but `only` these already."""
    fresh: list[str] = []
    for part, text in looked.parts.items():
        digest = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
        if sent.get(part) != digest:
            sent[part] = digest
            if only is None or part in only:
                fresh.append(f'<hx-partial hx-target="#{part}" hx-swap="outerMorph">{text}</hx-partial>')
    if not fresh:
        return b""
    lines = "".join(fresh).replace("\r", "").split("\n")
    data = "".join(f"data: {line}\n" for line in lines)
    return f"id: {looked.id}\n{data}\n".encode()
