"""`run`: the one synchronous door for Python programs.

Rule: three names and it is durable. Nothing is printed; `observe` sees every fact.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopwright.calling import alone
from loopwright.core.closing import best_now
from loopwright.core.head import explanation, head, next_step, passed, reason
from loopwright.core.state import LoopState
from loopwright.core.values import Best, Phase
from loopwright.hosts.local import start
from loopwright.hosts.ways import Held, Ways
from loopwright.loop import Loop
from loopwright.ports import Observe, Store


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
        best=best_now(state),
        iterations=state.iteration,
        cost_usd=head(state)["cost_usd"],
        exit_code=code,
    )
