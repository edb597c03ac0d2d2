"""A new run that begins where another one stood.

Rules. The fork's journal is whole by itself: the parent's facts up to the close of iteration N, in one
commit that is there or is not, under the fork's id. Three things in it differ from the parent's: the run's
id, where it came from, and an acceptance of iteration N that ended the parent and not the fork. Keys of
attempts stay as they were: they name what has happened outside. What its snapshots hold is kept under the
fork's own refs first, so that the parent can be forgotten. The checkout is moved only for a run that works
in it: the folder of a fork that works apart is made of those snapshots when it is resumed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

from loopwright.clock import Clock
from loopwright.core import events as ev
from loopwright.core.ending import final, unhealthy
from loopwright.core.limits import exceeded
from loopwright.core.recorded import policy_of
from loopwright.core.state import LoopState
from loopwright.errors import Locked, UsageError
from loopwright.hosts.apart import beside, is_apart
from loopwright.hosts.take import check_id, check_place, made_id, outputs_of
from loopwright.hosts.ways import STATE
from loopwright.journal import Journal, history
from loopwright.loop import Loop
from loopwright.ports import Store
from loopwright.prompting import PAYLOAD
from loopwright.stores.opened import owner
from loopwright.workspace import copies, plumbing
from loopwright.workspace.git import open_git
from loopwright.workspace.lock import lock
from loopwright.workspace.opened import Workspace, open_workspace
from loopwright.workspace.ours import open_ours

Facts: TypeAlias = list[tuple[datetime, ev.Event]]
LABEL: Final = "fork_of"
AGAIN: Final = "the fork goes on where its parent ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """The fork as it stands, and the files that changed when the workspace became its snapshot.

    `recorded`: there is a snapshot of that iteration; without one the workspace stays as it is.
    """

    state: LoopState
    changed: tuple[str, ...] = ()
    recorded: bool = True


def fork(
    project: Path, store: Store, parent: str, number: int, name: str | None, *, by: str = "", force: bool
) -> Forked:
    """Makes a run of the first `number` iterations of `parent`, open and ready to be resumed.

    `UsageError` when that iteration is not closed, the id is taken, or the workspace holds other work
    (unless `force`); `Locked` while a runner works in it. Nothing is made then.
    """
    facts, state = _upto(store, parent, number)
    check_place(parent, state, project)
    run = made_id(str(state.spec.get("name") or "run")) if name is None else check_id(name)
    loop = Loop.from_spec(state.spec)
    apart = is_apart(loop.mode())
    with ExitStack() as stack:
        if state.workspace is not None:
            root = copies.home(project / STATE, run) if apart else project
            stack.enter_context(lock(root, project / STATE, run, owner()))
        journal = Journal(store, run)
        if journal.exists:
            raise UsageError(f"there is a run {run} already: name the fork otherwise with --as")
        changed: tuple[str, ...] = ()
        if apart:
            _inherited(project, parent, run, _trees(facts), apart=True)
        elif state.workspace is not None:
            workspace = _of_parent(project, parent, loop)
            if workspace.recorded and state.snapshot is not None:
                changed = _brought_back(workspace, store, parent, state.snapshot, project, force=force)
            _inherited(project, parent, run, _trees(facts) if workspace.recorded else (), apart=False)
        ends = number == 0 or state.spec.get("until") != "limits"
        _record(journal, _renamed(facts, parent, number, run, ends=ends), number, by)
    return Forked(state=journal.state, changed=changed, recorded=state.snapshot is not None)


def _upto(store: Store, parent: str, number: int) -> tuple[Facts, LoopState]:
    """The parent's facts up to the first close of that iteration, as `show --checkpoint` has it."""
    facts: Facts = []
    for _, at, event, state in history(store, parent):
        facts.append((at, event))
        closed = isinstance(event, ev.IterationClosed)
        if closed and state.iteration == number and (number or state.zero is not None):
            return facts, state
    raise UsageError(f"run {parent} has no checkpoint {number}: that iteration is not closed")


def _trees(facts: Facts) -> tuple[str, ...]:
    """Every snapshot that the fork's facts name, oldest first."""
    found = (getattr(event, "snapshot", None) for _, event in facts)
    return tuple(dict.fromkeys(tree for tree in found if tree is not None))


def _of_parent(project: Path, parent: str, loop: Loop) -> Workspace:
    return open_workspace(
        "in_place", project, project / STATE, parent, outputs=outputs_of(project), beside=beside(loop)
    )


def _brought_back(
    workspace: Workspace, store: Store, parent: str, tree: str, project: Path, *, force: bool
) -> tuple[str, ...]:
    """The workspace becomes the snapshot, as `restore` does it: what is there is kept, other work refused."""
    now = workspace.look()
    if now.tree == tree:
        return ()
    known = {getattr(event, "snapshot", None) for _, _, event, _ in history(store, parent)}
    if not force and now.tree not in known:
        raise UsageError(
            f"{project} was edited since run {parent} last looked: its present state is kept as snapshot {now.tree}; "
            "use --force to replace it all the same"
        )
    return workspace.restore(tree)


def _inherited(project: Path, parent: str, run: str, trees: tuple[str, ...], *, apart: bool) -> None:
    """What the fork needs of its parent beside the facts: snapshots, what they leave out, protected files.

    Where they work `apart` also what the parent's folder was made of.
    """
    state = project / STATE
    if apart:
        copies.inherit(open_ours(project, state), parent, run)
    if trees:
        kept = state / "git" / plumbing.key_of(Path(os.path.relpath(project, state.resolve())))
        own = kept / ("copies" if apart else "runs")
        for name in ("head", "exclude"):  # in this order: the second says that the first is whole
            source = own / parent / name
            if source.is_file():
                (own / run).mkdir(mode=0o700, parents=True, exist_ok=True)
                shutil.copyfile(source, own / run / name)
        git = open_git(project, state, run)
        for n, tree in enumerate(trees):
            git.keep(n, tree)
    artifacts = state / "artifacts"
    if (artifacts / parent / "protected").is_dir():
        shutil.copytree(artifacts / parent / "protected", artifacts / run / "protected", dirs_exist_ok=True)
    for name in ("gate-files.json", PAYLOAD):
        if (artifacts / parent / name).is_file():
            (artifacts / run).mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copyfile(artifacts / parent / name, artifacts / run / name)
            (artifacts / run / name).chmod(0o600)


def _renamed(
    facts: Facts, parent: str, number: int, run: str, *, ends: bool
) -> Iterator[tuple[datetime, ev.Event]]:
    """The facts as the fork's: its own beginning, and a last iteration that does not end it (`ends`)."""
    for i, (at, event) in enumerate(facts):
        if isinstance(event, ev.RunStarted):
            labels = {**event.labels, LABEL: f"{parent}@{number}"}
            yield at, replace(event, run=run, labels=labels, origin=f"fork of {parent} at {number}")
        elif ends and i == len(facts) - 1 and event == ev.IterationClosed(outcome="accepted"):
            yield at, ev.IterationClosed(outcome="not_accepted")
        elif isinstance(event, ev.AttemptSucceeded | ev.AttemptFailed) and event.session:
            yield at, replace(event, session=None)  # the parent goes on in it: it knows what came later
        else:
            yield at, event


def _record(journal: Journal, facts: Iterator[tuple[datetime, ev.Event]], number: int, by: str) -> None:
    """One commit: the parent's facts, and what takes the fork."""
    for at, event in facts:
        journal.record(at, event)
    clock, me = Clock(), owner()
    clock.after(journal.state.updated_at)
    _, host, boot = me.split("@")
    epoch = (journal.state.claim.epoch if journal.state.claim else 0) + 1
    journal.claim(ev.Claimed(epoch=epoch, owner=me, host=host, boot=boot), clock.now())
    state = journal.state
    if _would_end(state):
        explanation = f"it ended so at iteration {number} of its parent; {AGAIN}"
        ended = ev.RunFinished(phase="stopped", reason="stopped_by_user", explanation=explanation)
        journal.record(clock.now(), ended, ev.RunReopened(by=by))
    journal.record(clock.now(), ev.PauseRequested(now=True, by=by))  # rests until somebody resumes it
    try:
        journal.flush()
    except Locked:
        raise UsageError(f"there is a run {journal.run} already: name the fork otherwise with --as") from None


def _would_end(state: LoopState) -> bool:
    """Whether what ended the parent there (a stop, a no, an alert, a streak) would end the fork at once.

    Limits stand: only a person raises them.
    """
    policy = policy_of(state)
    limit = exceeded(policy.limits, state)
    streak = limit is not None and limit[0] in {"consecutive_errors", "converged"}
    return streak or final(policy, state) is not None or unhealthy(state) is not None
