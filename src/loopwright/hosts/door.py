"""`run`: the one synchronous door for Python programs.

Rule: three names and it is durable. Nothing is printed; `observe` sees every fact.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from loopwright.core.head import explanation, head, next_step, passed, reason
from loopwright.core.state import LoopState
from loopwright.core.values import Best, Phase
from loopwright.hosts.local import start
from loopwright.hosts.ways import Held, Ways
from loopwright.loop import Loop
from loopwright.ports import Observe, Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """How a run stands when `run` returns: over, or waiting for a person.

    `cost_usd` is US dollars, `None` when unknown. `best` is the best iteration, whatever the ending.
    """

    run: str
    passed: bool
    phase: Phase
    reason: str | None
    explanation: str
    next: str
    output: Any
    best: Best | None
    iterations: int
    cost_usd: float | None
    exit_code: int


def run(
    loop: Loop,
    run_id: str | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    store: Store | str | None = None,
    observe: Observe | None = None,
) -> Final:
    """Runs `loop` until it is over or needs a person; the same `run_id` again resumes it.

    `folder` is the project (default: the current one), where `.agent-state/` keeps the run. `store`
    is a store or its URL. Works inside a running event loop too. Raises `ConfigError` for a loop that
    cannot run, `UsageError` for an id that stands for another loop, `Locked` while another process
    drives the run.
    """
    ways = Ways(
        project=Path(folder or ".").resolve(),
        store=store if store is not None else loop.store,
        environ=dict(os.environ),
        observe=(observe,) if observe is not None else (),
        origin="python",
    )
    return final(alone(lambda: start(loop, run_id, ways)))


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


def final(held: Held) -> Final:
    """What a caller wants to know of a run that was held."""
    return of_state(held.state, held.exit_code)


def of_state(state: LoopState, code: int) -> Final:
    """The same, of a state."""
    return Final(
        run=state.run,
        passed=passed(state),
        phase=state.phase,
        reason=reason(state),
        explanation=explanation(state),
        next=next_step(state),
        output=state.output,
        best=state.best,
        iterations=state.iteration,
        cost_usd=head(state)["cost_usd"],
        exit_code=code,
    )
