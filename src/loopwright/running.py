"""One run as its host holds it open: who performs, where, for whom, and what was last seen of the workspace.

Rule: nothing here decides or performs; these are the hands that `perform` and `scoring` share.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import ChainMap
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, cast

from loopwright import traces
from loopwright.clock import Clock
from loopwright.core import events as ev
from loopwright.core.policy import Deliver, Policy
from loopwright.core.values import Attempt, Score
from loopwright.errors import NotStartable, WorkspaceError
from loopwright.journal import Journal
from loopwright.ports import Agent, Gate, Lease, Place
from loopwright.workspace.earlier import Old
from loopwright.workspace.opened import Look, Workspace

UNSEEN: Final = Look(tree=None, evidence=None)
FRESH_S: Final = 0.03  # a look so young need not be repeated: each costs as much as a small gate
Watched = Callable[[Awaitable[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Cut:
    """The work was cut from outside, and why."""

    cause: Literal["stop", "pause", "handover"]


@dataclass(slots=True, kw_only=True)
class Run:
    """One run as its host holds it open: its journal, its pure policy, and who performs."""

    journal: Journal
    policy: Policy
    agent: Agent
    improve: Agent | None
    gates: Mapping[str, Gate]
    workspace: Workspace
    project: Path
    artifacts: Path
    env: Mapping[str, str]
    clock: Clock
    keys: Mapping[str, str] = field(default_factory=dict)  # secrets that one agent or gate alone may see
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    lease: Lease | None = None
    lease_s: float = 30.0
    taken: datetime = field(default_factory=lambda: datetime.now(UTC))  # when this host took it
    renewed: float = field(default_factory=time.monotonic)
    began: float = field(default_factory=time.monotonic)  # when the attempt under way did
    watched: tuple[Path, ...] = ()  # what no agent may change
    dice: Callable[[], float] = lambda: 0.5
    hear: Callable[[bytes], None] | None = None
    begin: Callable[[str], None] = lambda _: None  # told what starts now, for a live view
    tell: Callable[[str], None] = lambda _: None  # a line of news for the person who started it
    deliver: Callable[[Deliver], ev.Delivered] = lambda asked: ev.Delivered(
        to=asked.to, problem="no workspace"
    )
    sandbox: Callable[[tuple[Path, ...], bool], tuple[str, ...]] = (
        lambda _folders, _agent: ()
    )  # before a command
    gated: bool = False  # gates ran since the last look
    left: str | None = None  # the tree that they left
    fresh: tuple[Look, float] | None = None  # what was seen a moment ago, and when: nothing has run since
    template: str | None = None  # of the prompts
    notes: str | bool | None = None  # a file that the agent keeps: in the workspace, or (true) outside it
    payload: Path | None = None  # the file with what started the run
    render: Callable[[Attempt], str] | None = None  # makes the prompt of an attempt, when it is asked for
    on_tamper: Literal["restore", "block", "ask"] | None = None  # what becomes of changed evidence
    patience_s: float = inf  # a longer wait is given back to the host
    holds: bool = False  # a lost login is waited for
    waits: bool = False  # for the person who is asked, with the run kept open
    person: Callable[[Run], None] = lambda _: None  # called again and again while one is waited for
    trace: traces.Trace | None = None  # made when it is first asked for
    inside: dict[str, Place] = field(default_factory=dict)  # of those that are not told where they work


def traceparent(run: Run, *span: object) -> str:
    """What is started below this span of the run is told of it (`TRACEPARENT`)."""
    if run.trace is None:
        state = run.journal.state
        run.trace = traces.trace_of(state.run, state.started_at or run.taken, state.labels)
    return run.trace.header(*span)


async def look(run: Run) -> Look:
    """The workspace as it is now."""
    return await asyncio.to_thread(run.workspace.look) if run.workspace.watched else UNSEEN


def just_seen(run: Run) -> Look | None:
    """The last look, where nothing has run or waited since."""
    fresh, run.fresh = run.fresh, None
    return fresh[0] if fresh is not None and run.clock.monotonic() - fresh[1] < FRESH_S else None


async def in_checkout(
    run: Run, measured: Callable[[Path], Awaitable[Score]], old: Old | None = None
) -> Score:
    """What `measured` gives in a pristine checkout of the judged snapshot, with the `old` text of its tests if told."""
    # Not below the project: its tools look upwards for settings and for what git ignores.
    with tempfile.TemporaryDirectory(prefix="loopwright-", ignore_cleanup_errors=True) as beside:
        folder = Path(beside, "work")
        try:
            await asyncio.to_thread(run.workspace.checkout, run.journal.state.snapshot, folder, old)
            return await measured(folder)
        except NotStartable as error:
            return Score(0.0, str(error), status="error", cause="tool")


def folder_of(run: Run, iteration: int, name: str) -> Path:
    """A folder for the files of one attempt or gate."""
    folder = run.artifacts / f"{iteration:04d}" / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise WorkspaceError(f"{folder} cannot be made: {error.strerror or error}") from error
    return folder


def inside(run: Run, who: str, timeout_s: float) -> Place:
    """The place of the agent (`who` is "") or a gate that is not told where it works: the same one each time."""
    place = run.inside.get(who)
    if place is None or place.timeout_s != timeout_s:
        place = run.inside[who] = Place(
            root=run.workspace.root,
            project=run.project,
            artifacts=run.artifacts,
            env=run.env,
            timeout_s=timeout_s,
            grace_s=run.policy.limits.grace,
            redact=run.journal.redact,
        )
    return place


def environment_of(run: Run, names: tuple[str, ...], own: dict[str, str]) -> Mapping[str, str]:
    """What one agent or gate sees: its own marks, what all see, and the secrets of these names alone.

    A view, not a copy: a function looks at none of it.
    """
    secrets = {name: run.keys[name] for name in names if name in run.keys}
    shared = cast("dict[str, str]", run.env)  # nobody writes to it
    return ChainMap(own, shared, secrets)
