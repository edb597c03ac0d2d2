"""Hosting: everything a server does at once, from its start until it hands over.

Rule: a part that fails is said and begun again, later and later; none takes another with it. Whoever stops the server
waits a bounded time.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from loopwright.errors import ConfigError
from loopwright.serving import slots
from loopwright.serving.book import Book, Served
from loopwright.serving.checks import problems
from loopwright.serving.live import Live
from loopwright.serving.watches import watching

REFRESH_S: Final = 2.0  # how soon a changed loop file is read again
GRACE_S: Final = 15.0  # what runs get to hand over
LONGEST_S: Final = 60.0

Part: TypeAlias = Callable[[Live], Awaitable[None]]


async def refreshing(live: Live) -> None:
    """Reads loop files again when they change, until it is cancelled."""
    while True:
        for line in await asyncio.to_thread(live.book.refresh):
            live.tell(line)
        await asyncio.sleep(REFRESH_S)


async def posting(live: Live) -> None:
    """Sends requests and news, until it is cancelled."""
    await live.post.work()


async def listening(live: Live) -> None:
    """Hears what channels bring, until it is cancelled."""
    await live.ears.work()


def parts() -> Mapping[str, Part]:
    """What a server does beside driving runs, by name."""
    return {
        "loops": refreshing,
        "schedules": lambda live: slots.tick(live, count=live.figures.slot),
        "watches": watching,
        "post": posting,
        "ears": listening,
    }


async def host(live: Live, *, leaving: Callable[[], None] = lambda: None) -> int:
    """Runs the server until a signal ends it; the number of that signal.

    The first signal hands every run over, and `leaving` is called; a second one ends what is still there.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def leave(number: int) -> None:
        if not ended.done():
            ended.set_result(number)
        else:
            hurry.set()

    hurry = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leave, number)
    work = asyncio.create_task(_kept(live, "runs", Live.work), name="runs")
    tasks = [asyncio.create_task(_kept(live, name, part), name=name) for name, part in parts().items()]
    received = await ended
    live.tell("leaving: runs are handed over")
    await asyncio.to_thread(leaving)
    await _ended([work, *tasks])
    handing = asyncio.create_task(live.workers.leave(GRACE_S))
    hurried = asyncio.create_task(hurry.wait())
    await asyncio.wait({handing, hurried}, return_when=asyncio.FIRST_COMPLETED)
    if not handing.done():
        await live.workers.leave(0.0)
    await _ended([handing, hurried])
    return received


async def _kept(live: Live, name: str, part: Part) -> None:
    """A part, begun again when it fails."""
    pause_s = 1.0
    while True:
        began = asyncio.get_running_loop().time()
        try:
            await part(live)
        except Exception as error:  # noqa: BLE001 - a server goes on
            live.tell(f"{name} failed and is begun again in {pause_s:.0f} s: {type(error).__name__}: {error}")
        else:
            return
        if asyncio.get_running_loop().time() - began > LONGEST_S:
            pause_s = 1.0
        await asyncio.sleep(pause_s)
        pause_s = min(LONGEST_S, 2 * pause_s)


async def _ended(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=5.0)


def first_look(book: Book, environ: Mapping[str, str] | None = None) -> None:
    """Reads the loop files for the first time; `ConfigError` with all that is wrong, in any of them.

    With `environ` they must be fit to be served in it, then and whenever they are read again.
    """
    book.refresh()
    if book.problems:
        raise ConfigError(*(why for _, why in sorted(book.problems.items())))
    if not book.loops:
        raise ConfigError(
            "there is no loop to serve: name loop files, or a folder with some (*.toml with a goal)"
        )
    if environ is None:
        return

    def check(served: Served, loops: Sequence[Served]) -> list[str]:
        return problems(served, loops, environ=environ, server=book.server)

    loops = tuple(book.loops.values())
    if wrong := [why for served in loops for why in check(served, loops)]:
        raise ConfigError(*dict.fromkeys(wrong))
    book.check = check
