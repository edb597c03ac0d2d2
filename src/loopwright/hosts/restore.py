"""Bringing a snapshot back into the workspace: the user's folder, or the run's own.

Rule: the present state is kept in a snapshot first, and a tree that is not the run's is refused
unless forced: nobody's edits are overwritten unasked.
"""

from __future__ import annotations

from pathlib import Path

from loopwright.clock import Clock
from loopwright.core import events as ev
from loopwright.errors import UsageError
from loopwright.hosts.apart import beside
from loopwright.hosts.take import check_place, outputs_of
from loopwright.hosts.ways import STATE
from loopwright.journal import Journal, history
from loopwright.loop import Loop
from loopwright.ports import Store
from loopwright.stores.opened import owner
from loopwright.workspace import copies
from loopwright.workspace.lock import lock
from loopwright.workspace.opened import open_workspace


def restore(project: Path, store: Store, run: str, tree: str | None, *, force: bool) -> tuple[str, ...]:
    """The paths that changed when the workspace became `tree`.

    `UsageError` when there is no such snapshot or the workspace holds other work; `Locked` while a
    runner works in it.
    """
    journal = Journal(store, run)
    state = journal.state
    check_place(run, state, project)
    if tree is None:
        raise UsageError(f"run {run} has no snapshot of that iteration")
    me, here = owner(), project / STATE
    loop = Loop.from_spec(state.spec)
    mode = loop.mode()
    apart = mode in {"worktree", "folder"}
    with lock(copies.home(here, run) if apart else project, here, run, me):
        copy = copies.find(here, run) if apart else None
        if apart and copy is None:
            raise UsageError(f"run {run} has no folder now; loopwright resume {run} makes it")
        root = copy.root if copy is not None else project
        workspace = open_workspace(
            mode,
            root,
            here,
            run,
            outputs=(*outputs_of(root), *store.files),
            beside=beside(loop),
            copy=copy,
        )
        now = workspace.look()
        if now.tree == tree:
            return ()
        if not force and now.tree not in _trees(store, run):
            raise UsageError(
                f"{root} was edited since run {run} last looked: its present state is kept as snapshot {now.tree}; "
                "use --force to replace it all the same"
            )
        changed = workspace.restore(tree)
        if state.finished is None:
            _record(journal, me, workspace.look().tree)
        return changed


def _trees(store: Store, run: str) -> set[str]:
    """Every state of the workspace that is on record for the run, and so can be brought back."""
    facts = (event for _, _, event, _ in history(store, run))
    return {tree for fact in facts if (tree := getattr(fact, "snapshot", None)) is not None}


def _record(journal: Journal, me: str, tree: str | None) -> None:
    """Scores of the tree that was there before are void."""
    clock = Clock()
    _, host, boot = me.split("@")
    epoch = (journal.state.claim.epoch if journal.state.claim else 0) + 1
    journal.claim(ev.Claimed(epoch=epoch, owner=me, host=host, boot=boot), clock.now())
    it = journal.state.current
    if it is not None and it.open is not None:  # nobody drives it, so it was cut off
        journal.record(clock.now(), ev.AttemptInterrupted(cause="crash"))
    journal.record(clock.now(), ev.WorkspaceChanged(snapshot=tree, cause="restored"))
    journal.flush()
