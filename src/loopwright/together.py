"""Group commit: the runs of one process wait for the disk together.

Rule: a commit that others wait with is as durable, and as refused, as one alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from loopwright.errors import LoopwrightError
from loopwright.ports import Kept, Refused, Store


class Together:
    """What several runs write in one turn of the event loop waits for the disk once.

    A refusal takes no other run's commit with it; a store that fails, fails for all that waited.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._waiting: list[tuple[tuple[str, int, bytes, Kept], asyncio.Future[Refused | None]]] = []

    async def write(
        self, run: str, n: int, line: bytes, kept: Kept, settle: Callable[[Refused | None], None]
    ) -> None:
        """Returns once `settle` was told that the commit is durable, or why it is not.

        A task that is cancelled after its commit was written is told too, before it hears that it was cancelled.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Refused | None] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._go)
        self._waiting.append(((run, n, line, kept), done))
        try:
            await done
        except asyncio.CancelledError:
            if not done.cancelled() and done.exception() is None:
                with suppress(LoopwrightError):  # a refusal is met again by who writes next
                    settle(done.result())
            raise
        settle(done.result())

    def _go(self) -> None:
        asked = [one for one in self._waiting if not one[1].done()]  # a task that was cancelled waits no more
        self._waiting.clear()
        if not asked:
            return
        try:
            refused = self.store.append_all([commit for commit, _ in asked])
        except Exception as error:  # noqa: BLE001 - told to everybody who waits
            for _, done in asked:
                done.set_exception(error)
        else:
            for (_, done), why in zip(asked, refused, strict=True):
                done.set_result(why)
