"""Getting a run's workspace ready: the user's folder, or the folder apart of mode `worktree` or `folder`.

Rule: the workspace is locked before it is touched. Nothing is on record before the folder is whole: made, linked, set up, and its agent and gates found. What
fails before that leaves no folder behind; a folder that a run on record worked in is never removed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from loopwright.argv import words
from loopwright.assembled import Assembled
from loopwright.errors import ConfigError, NotStartable
from loopwright.hosts import environment, sandbox
from loopwright.hosts.take import outputs_of
from loopwright.hosts.ways import STATE, Ways
from loopwright.journal import Journal
from loopwright.loop import Loop
from loopwright.ports import Lease
from loopwright.supervise import Exit, Process, supervise
from loopwright.workspace import copies
from loopwright.workspace.evidence import Evidence
from loopwright.workspace.installs import leading_back
from loopwright.workspace.lock import borrow, lock
from loopwright.workspace.opened import Workspace, open_workspace
from loopwright.workspace.ours import Copy, open_ours
from loopwright.workspace.plumbing import find_repository

T = TypeVar("T")


def is_apart(mode: str) -> bool:
    """Whether runs of this mode work in a folder of their own."""
    return mode in {"worktree", "folder"}


def copy_of(run: str, assembled: Assembled, ways: Ways) -> Copy | None:
    """The folder apart that `run` works in, when it has one."""
    return copies.find(ways.project / STATE, run) if is_apart(assembled.mode) else None


def check(assembled: Assembled, ways: Ways) -> None:
    """`ConfigError` for a copy that cannot be made, or work that cannot be delivered from here; makes nothing."""
    if is_apart(assembled.mode):
        said = _said(assembled)
        copies.check(ways.project, assembled.mode, said.get("base", "HEAD"), said.get("link", ()))
    to = assembled.policy.deliver
    if to != "none" and (assembled.mode == "none" or find_repository(ways.project) is None):
        raise ConfigError(f'deliver.to: "{to}" needs a workspace in a git repository')


async def enter(
    journal: Journal,
    assembled: Assembled,
    ways: Ways,
    stack: ExitStack,
    lease: tuple[Lease, float],
    me: str,
    *,
    idle: bool,
) -> tuple[Workspace, list[str]]:
    """The workspace of a run, locked until `stack` ends, and what a person should know of it.

    `lease` and its seconds are kept meanwhile. `idle`: nothing will be started in it, so it is not set up.
    """
    run, state, root = journal.run, ways.state, ways.project
    copy, made = None, False
    if is_apart(assembled.mode):
        stack.enter_context(lock(copies.home(state, run), state, run, me))
        copy, made = await _move_in(
            run, assembled, ways, lease, known=journal.state.claim is not None, idle=idle
        )
        root = copy.root
    elif assembled.mode != "none":
        lend = borrow if ways.scratch is not None else lock
        stack.enter_context(lend(root, ways.project / STATE, run, me))
    there = assembled.mode != "none"
    workspace = open_workspace(
        assembled.mode,
        root,
        state,
        run,
        evidence=_evidence(root, assembled, ways) if there else None,
        outputs=(*outputs_of(root), *journal.store.files) if there else (),
        beside=beside(assembled.loop),
        copy=copy,
        aside=ways.scratch is not None,
    )
    snapshot = journal.state.snapshot
    if made and snapshot is not None:  # the folder was gone, or of a fork: its work is in the snapshots
        workspace.restore(snapshot)
        return workspace, [f"made of the run's snapshot {snapshot[:12]}"]
    return workspace, _news(copy, ways) if copy is not None and made else []


def beside(loop: Loop) -> tuple[str, ...]:
    """Files of the workspace that are no part of the work: the agent's notes."""
    return (loop.notes,) if isinstance(loop.notes, str) else ()


def _evidence(root: Path, assembled: Assembled, ways: Ways) -> Evidence:
    """What the gates judge by. Where the loop is written is part of it, also in a copy of the project."""
    loop = assembled.loop
    files = (path.resolve() for path in ways.defined_in)
    inside = (p.relative_to(top) for p in files if p.is_relative_to(top := ways.project.resolve()))
    return Evidence(
        root,
        protected=loop.protected,
        may_change=loop.may_change,
        gates=loop.spec().get("gates", ()),
        defined_in=tuple(map(str, inside)),
        project=ways.project,
    )


async def _move_in(
    run: str, assembled: Assembled, ways: Ways, lease: tuple[Lease, float], *, known: bool, idle: bool
) -> tuple[Copy, bool]:
    """The copy that `run` works in, and whether it is a new one.

    `known`: somebody had the run before. `ConfigError` when it cannot be made or set up, or agent or gates are not found
    in it.
    """
    state = ways.project / STATE
    found = copies.find(state, run) if known else None
    if found is not None:
        return found, False
    said = _said(assembled)
    if known and (aside := copies.set_aside(state, run)) is not None:
        ways.tell(f"the folder of run {run} is not as it was made: moved to {aside}, another is made")
    copy = None
    try:
        making = asyncio.to_thread(
            copies.make,
            ways.project,
            state,
            run,
            mode=assembled.mode,
            rev=said.get("base", "HEAD"),
            links=said.get("link", ()),
            again=known,
        )
        copy = await _wholly(making, undone=lambda: copies.remove(state, run))
        if idle:
            return copy, True
        for number, command in enumerate(said.get("setup", ()), 1):
            ways.begin(f"setup: {command}")
            ways.tell(f"setup: {command}")
            log = state / "artifacts" / run / f"setup-{number}.log"
            await _keeping(lease, _set_up(command, log, copy, run, assembled, ways))
        environment.probe(assembled, ways, copy.root)
        _stands_alone(run, copy, assembled, ways)
    except BaseException:
        if copy is not None or not known:
            copies.remove(state, run)
        raise
    return copies.settled(state, run, copy), True


def _stands_alone(run: str, copy: Copy, assembled: Assembled, ways: Ways) -> None:
    """`ConfigError` when Python code in the copy would import the user's files in place of the copy's own."""
    env = environment.environment(run, ways, allow=assembled.loop.env, root=copy.root)
    repository = find_repository(ways.project)
    led = leading_back(
        env["PATH"],
        env.get("PYTHONPATH", ""),
        checkout=ways.project if repository is None else repository.top,
        root=copy.top,
    )
    if led:
        raise ConfigError(
            f"workspace.mode: Python in the run's folder would import your own files and not those the agent works on: "
            f"{', '.join(led[:5])}. Give it an environment of its own: "
            'setup = ["python -m venv .venv", "pip install -e ."]'
        )


def _said(assembled: Assembled) -> Mapping[str, Any]:
    return assembled.loop.spec().get("workspace") or {}


def _news(copy: Copy, ways: Ways) -> list[str]:
    """What a person should know of a copy that was just made: where it comes from and what is not in it."""
    if copy.mode == "folder":
        return ["copied as it is now; what git ignores, secret-looking and large files are not in it"]
    told = [f"made of commit {copy.commit[:12]}"]
    missing = copies.uncommitted(open_ours(ways.project, ways.project / STATE))
    if missing is None:
        told.append("uncommitted work is not in it (what there is of it cannot be told)")
    elif missing:
        names = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        told.append(f"your uncommitted work is not in it: {names} (commit it, or use --workspace folder)")
    return told


async def _set_up(command: str, log: Path, copy: Copy, run: str, assembled: Assembled, ways: Ways) -> None:
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    limits = assembled.policy.limits
    process = Process(
        argv=(*sandbox.wrapping(assembled.loop, ways, copy.root, copy)((), False), *words(command)),
        cwd=copy.root,
        env=environment.environment(run, ways, allow=assembled.loop.env, root=copy.root),
        log=log,
        timeout_s=limits.attempt_timeout,
        grace_s=limits.grace,
        redact=environment.redacting(assembled, ways),
    )
    try:
        ended = await supervise(process)
    except NotStartable as error:
        raise ConfigError(f"workspace.setup: {command}: {error}") from error
    if ended.code != 0:
        raise ConfigError(f"workspace.setup: {command}: {_how(ended)} ({log})\n{_last_words(ended)}".rstrip())


def _how(ended: Exit) -> str:
    if ended.ended != "exited":
        return f"was ended after {ended.seconds:.0f} s ({ended.ended})"
    return f"exit {ended.code}" if ended.code is not None else f"ended by signal {ended.signal}"


def _last_words(ended: Exit) -> str:
    text = (ended.stderr.strip() or ended.stdout.strip()).decode(errors="replace")
    return os.linesep.join(text.splitlines()[-10:])[-2000:]


async def _wholly(work: Awaitable[T], *, undone: Callable[[], None]) -> T:
    """The result of work in a thread, which cannot be cut: who does not wait for it waits until it can be undone."""
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if task.exception() is None:
            undone()
        raise


async def _keeping(lease: tuple[Lease, float], work: Awaitable[T]) -> T:
    """The result of `work`, the lease kept meanwhile."""
    task: asyncio.Future[Any] = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=lease[1] / 3))[0]:
            lease[0].renew()
        result: T = task.result()
        return result
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
