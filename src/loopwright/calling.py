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
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from types import CoroutineType
from typing import Any, Final, TypeAlias, TypeVar

from loopwright.beat import beat_of, end

T = TypeVar("T")
IDLE_S: Final = 5.0  # how long a thread without work stays
AT_ONCE_S: Final = 0.0005  # a function that was over so soon the last time is waited for on the spot
_Inbox: TypeAlias = "queue.SimpleQueue[_Call]"
_AWAITED: Final = (CoroutineType, Awaitable)  # most are found by the first, without asking an abstract class
# From Python 3.12 on a task may begin at once, which saves those that never wait a turn of the loop.
_EAGER: Final = getattr(asyncio, "eager_task_factory", None)


@dataclass(frozen=True, slots=True)
class Raised:
    """What a function raised. A value, because a future cannot carry every exception (StopIteration hangs it)."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Late:
    """The function took longer than it may. `running`: it could not be ended and may still be at work."""

    running: bool


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling `fn` gives something to await."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


class _Call:
    """One call that a thread makes: what to run, and how its end is heard of."""

    __slots__ = ("arguments", "arrive", "context", "fn", "over", "value")

    def __init__(self, fn: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.fn = fn
        self.arguments = arguments
        self.context = contextvars.copy_context()
        self.value: Any = None
        self.over = threading.Lock()
        self.over.acquire()
        self.arrive: Callable[[], None] | None = None  # set once the event loop waits for it

    def make(self) -> None:
        """Calls the function; its value or what it `Raised` stands in `value` before `over` is released."""
        try:
            self.value = self.context.run(self.fn, *self.arguments)
        except BaseException as error:  # noqa: BLE001 - carried over to the loop's thread
            self.value = Raised(error)

    def tell(self) -> None:
        """Lets whoever waits go on."""
        self.over.release()
        if (arrive := self.arrive) is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                arrive()


class Threads:
    """Calls one function; a sync one in daemon threads that end after some idle seconds.

    Not an executor: one of those makes the exit of the process wait for a function that hangs, and
    has a fixed number of places, which hanging functions use up.
    """

    __slots__ = ("_async", "_at_once", "_fn", "_idle")

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn
        self._async = is_async(fn)
        self._at_once = False
        self._idle: list[_Inbox] = []

    async def call(self, *arguments: Any, timeout_s: float, grace_s: float) -> Any:
        """What the function returned, awaited where it must be, or what it `Raised`, or `Late`.

        An async function that is late is cancelled and has `grace_s` to end. Raises only CancelledError,
        when the call itself is cancelled.
        """
        began = time.monotonic()
        if self._async:
            try:
                value = self._fn(*arguments)
            except Exception as error:  # noqa: BLE001 - the caller sorts them
                return Raised(error)
        else:
            value = await self._apart(arguments, timeout_s)
        if not isinstance(value, _AWAITED):
            return value
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[None]] = []  # of who waits for its end, once anybody must
        work = _caught(value, waiting)
        task: asyncio.Task[Any] = loop.create_task(work) if _EAGER is None else _EAGER(loop, work)
        try:
            if self._at_once and not task.done():
                # It begins in this turn of the loop; to be told of its end takes another.
                await asyncio.sleep(0)
            if not task.done():
                await _over(loop, waiting, timeout_s - (time.monotonic() - began))
        except asyncio.CancelledError:
            await _cancel(task, grace_s)
            raise
        self._at_once = time.monotonic() - began < AT_ONCE_S
        if not task.done():
            await _cancel(task, grace_s)
            return Late(running=not task.done())
        return task.result()

    async def _apart(self, arguments: tuple[Any, ...], timeout_s: float) -> Any:
        """What the function returned or `Raised` in one of these threads, or `Late`."""
        call = _Call(self._fn, arguments)
        self._start(call)
        began = time.monotonic()
        # Two turns of the event loop cost more than such a function does.
        if self._at_once and call.over.acquire(timeout=AT_ONCE_S):
            return call.value
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def arrive() -> None:
            loop.call_soon_threadsafe(end, future)

        call.arrive = arrive
        if not call.over.acquire(blocking=False):  # else it was over before it could know who waits
            beat = beat_of(loop)
            beat.limit(loop, future, timeout_s)
            try:
                await future
            finally:
                beat.lift(future)
            if not call.over.acquire(blocking=False):
                return Late(running=True)
        self._at_once = time.monotonic() - began < AT_ONCE_S
        return call.value

    def _start(self, call: _Call) -> None:
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), name="loopwright call", daemon=True).start()
        inbox.put(call)

    def _serve(self, inbox: _Inbox) -> None:
        while True:
            try:
                call = inbox.get(timeout=IDLE_S)
            except queue.Empty:
                try:
                    self._idle.remove(inbox)
                except ValueError:
                    continue  # somebody has just taken it: work is coming
                return
            call.make()
            self._idle.append(inbox)  # before anybody hears of it, so that the next call finds it
            call.tell()
            del call  # an idle thread keeps nothing alive


async def _caught(value: Awaitable[Any], waiting: list[asyncio.Future[None]]) -> Any:
    """The value, or what was `Raised` for it; tells who waits that it is over, a turn of the loop before a task does."""
    try:
        return await value
    except BaseException as error:  # noqa: BLE001 - the caller sorts them
        return Raised(error)
    finally:
        for over in waiting:
            end(over)


async def _over(
    loop: asyncio.AbstractEventLoop, waiting: list[asyncio.Future[None]], timeout_s: float
) -> None:
    """Joins those who wait, until the end or the limit."""
    over: asyncio.Future[None] = loop.create_future()
    waiting.append(over)
    beat = beat_of(loop)
    beat.limit(loop, over, timeout_s)
    try:
        await over
    finally:
        beat.lift(over)


async def _cancel(task: asyncio.Future[Any], grace_s: float) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=grace_s)


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
