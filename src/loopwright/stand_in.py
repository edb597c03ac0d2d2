"""A task that stands in for coroutines that end at once: one of its own for each costs a turn of the event loop.

Rule: from its first step to its last a coroutine runs in a task that is not its caller's, as it would in any other:
what it asks of `asyncio.current_task`, as timeouts and task groups do, is about itself. One that does not end at once
is taken over by the task in whose name it began, which then stands in for no other. The two functions of asyncio used
here are those that its documentation names for tasks of other makers ("Extending", task lifetime support).
"""

from __future__ import annotations

import asyncio
import contextvars
import types
from collections.abc import Coroutine, Generator
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

_enter: Final = asyncio._enter_task  # noqa: SLF001 - documented for this
_leave: Final = asyncio._leave_task  # noqa: SLF001 - documented for this
# A coroutine that has begun, what it waits for, the context of its steps, and what it must hear first.
_Begun: TypeAlias = tuple[Coroutine[Any, Any, Any], Any, contextvars.Context, BaseException | None]


class StandIn:
    """The task of a coroutine that has yet to come."""

    __slots__ = ("_handed", "_loop", "_started", "_task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handed: asyncio.Future[_Begun] = loop.create_future()
        self._started = False  # a task that is cancelled before its first step makes none
        self._task: asyncio.Task[Any] = loop.create_task(self._taken_over())

    @property
    def free(self) -> bool:
        """Whether it has taken over nothing yet, and was not cancelled by what it stood in for."""
        return not self._handed.done()

    @property
    def ready(self) -> bool:
        """Whether it can stand in for a coroutine: from the next turn of the event loop on."""
        return self._started and self.free

    def begin(self, work: Coroutine[Any, Any, Any]) -> tuple[Any, asyncio.Task[Any] | None]:
        """The value of `work` if it ended with its first step; else the task that goes on with it."""
        loop, context = self._loop, contextvars.copy_context()
        caller = asyncio.current_task(loop)
        assert caller is not None
        _leave(loop, caller)
        _enter(loop, self._task)
        try:
            waits = context.run(work.send, None)
        except StopIteration as end:
            return end.value, None
        finally:
            _leave(loop, self._task)
            _enter(loop, caller)
        if asyncio.isfuture(waits):  # one that nobody waits for yet: others may, before the task does
            waits._asyncio_future_blocking = False  # noqa: SLF001 - set by the one who awaits, read by his task
        if self.free:
            self._handed.set_result((work, waits, context, None))
            return None, self._task
        other = StandIn(loop)  # the coroutine has cancelled its own task
        other._handed.set_result((work, waits, context, asyncio.CancelledError()))
        return None, other._task

    def dismiss(self) -> None:
        """It ends; what it has taken over goes on."""
        if self.free:
            self._handed.cancel()

    async def _taken_over(self) -> Any:
        """The value of the coroutine that is handed over."""
        self._started = True
        try:
            work, waits, context, error = await self._handed
        except asyncio.CancelledError as cancelled:
            work, waits, context, _ = self._handed.result()  # raises it again where there was none
            error = cancelled
        if error is not None and asyncio.isfuture(waits) and waits.cancel():
            error = None  # it hears of it from what it waits for
        if error is not None:
            return await _rest(work, context, error)
        if asyncio.isfuture(waits):
            waits._asyncio_future_blocking = True  # noqa: SLF001 - now somebody does
        return await _rest(work, context, None, waits)


@types.coroutine
def _rest(
    work: Coroutine[Any, Any, Any], context: contextvars.Context, error: BaseException | None, *waits: Any
) -> Generator[Any, Any, Any]:
    """Makes the other steps of a coroutine, each in its own context; before the next it waits for this, if anything."""
    while True:
        for wait in waits:
            try:
                yield wait
            except BaseException as thrown:  # noqa: BLE001 - the coroutine sorts them
                error = thrown
        try:
            waits = (context.run(work.send, None) if error is None else context.run(work.throw, error),)
        except StopIteration as end:
            return end.value
        error = None


_STAND_INS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, StandIn]] = WeakKeyDictionary()


def stand_in(loop: asyncio.AbstractEventLoop) -> StandIn | None:
    """The one of this event loop that is ready; `None` when it will be one turn later."""
    found = _STAND_INS.get(loop)
    if found is None or not found.free:
        found = _STAND_INS[loop] = StandIn(loop)
    return found if found.ready else None


def dismiss(loop: asyncio.AbstractEventLoop) -> None:
    """None is kept for this event loop: it may end."""
    found = _STAND_INS.pop(loop, None)
    if found is not None:
        found.dismiss()
