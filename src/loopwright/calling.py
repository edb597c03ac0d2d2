"""Calling a user's function, sync or async, from an event loop; and one of ours from where there is none.

Rule: the loop never blocks on it and the process never waits for it: a function that hangs keeps
its thread, which is a daemon and takes no place from others. Whatever it raises is a value.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")
IDLE_S: Final = 5.0  # how long a thread without work stays
_Inbox: TypeAlias = "queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]]]"


@dataclass(frozen=True, slots=True)
class Raised:
    """What a function raised. A value, because a future cannot carry every exception (StopIteration hangs it)."""

    error: BaseException


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling `fn` gives something to await."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


class Threads:
    """Daemon threads that run one call after another and end after some idle seconds.

    Not an executor: one of those makes the exit of the process wait for a function that hangs, and
    has a fixed number of places, which hanging functions use up.
    """

    __slots__ = ("_idle",)

    def __init__(self) -> None:
        self._idle: list[_Inbox] = []

    async def call(self, fn: Callable[..., Any], *arguments: Any) -> Any:
        """What `fn` returned, awaited where it must be, or what it `Raised`; raises only CancelledError."""
        try:
            value = fn(*arguments) if is_async(fn) else await self._apart(fn, arguments)
            return await value if isinstance(value, Awaitable) else value
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the caller sorts them
            return Raised(error)

    async def _apart(self, fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """What `fn` returned or `Raised`, in one of these threads."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        run = contextvars.copy_context().run

        def work() -> Any:
            try:
                return run(fn, *arguments)
            except BaseException as error:  # noqa: BLE001 - carried over to the loop's thread
                return Raised(error)

        def arrive(value: Any) -> None:
            if not future.done():
                future.set_result(value)

        def deliver(value: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(arrive, value)

        self._start(work, deliver)
        return await future

    def _start(self, work: Callable[[], Any], deliver: Callable[[Any], None]) -> None:
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), name="loopwright call", daemon=True).start()
        inbox.put((work, deliver))

    def _serve(self, inbox: _Inbox) -> None:
        while True:
            try:
                work, deliver = inbox.get(timeout=IDLE_S)
            except queue.Empty:
                try:
                    self._idle.remove(inbox)
                except ValueError:
                    continue  # somebody has just taken it: work is coming
                return
            value = work()
            self._idle.append(inbox)  # before anybody hears of it, so that the next call finds it
            deliver(value)
            del work, deliver, value  # an idle thread keeps nothing alive


def alone(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of `work` in an event loop of its own, in another thread when this one has a loop running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    box: list[T] = []
    failed: list[BaseException] = []
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = []
    over = threading.Event()

    async def known() -> T:
        begun.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await work()

    def inside() -> None:
        try:
            box.append(asyncio.run(known()))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failed.append(error)
        over.set()

    threading.Thread(target=inside, name="loopwright").start()
    try:
        over.wait()  # not join: one that is interrupted takes the thread for ended
    except BaseException:  # Ctrl-C: the run is given back, it does not go on behind the caller's back
        for loop, task in begun:
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)
        over.wait()
        raise
    if failed:
        raise failed[0]
    return box[0]
