"""Verbs on the work itself: diff, restore, apply.

Rule: they look at snapshots; restore and apply write, and keep what they replace.
"""

from __future__ import annotations

import os

import click

from loopwright.cli import words
from loopwright.cli.read import emit
from loopwright.cli.where import Where, as_json, find, opened, outside, places, the_run
from loopwright.errors import UsageError
from loopwright.hosts.deliver import apply, to_branch, work_of
from loopwright.hosts.restore import restore
from loopwright.hosts.ways import STATE
from loopwright.journal import Journal
from loopwright.ports import Store
from loopwright.report.rows import snapshot_of
from loopwright.workspace.git import Diff
from loopwright.workspace.opened import open_workspace, shown


def print_diff(where: Where, store: Store, run: str, iteration: str | int | None, *, json_: bool) -> None:
    """What an iteration changed, or the run in all."""
    old, new = snapshot_of(store, run, iteration)
    if old is None or new is None:
        raise UsageError(f"run {run} kept no snapshots; they need git and a workspace")
    diff = changes(where, run, old, new)
    if diff is None:
        raise UsageError(f"the snapshots of run {run} cannot be read: is git on PATH?")
    if json_:
        emit(
            {
                "from": old,
                "to": new,
                "files": [shown(f.path) for f in diff.files],
                "lines": diff.lines,
                "text": diff.text,
            }
        )
    elif not diff.text:
        click.echo("no changes", err=True)
    else:
        click.echo(words.safe(diff.text), nl=False)


def changes(where: Where, run: str, old: str | None, new: str | None) -> Diff | None:
    """What changed between two trees of a run; `None` where nothing was snapshotted."""
    if old is None or new is None:
        return None
    return open_workspace("in_place", where.project, where.project / STATE, run).diff(old, new)


@click.command("diff")
@click.argument("run")
@click.option("--iteration", metavar="N|best", help="Only what this iteration changed.")
@as_json
@places
def diff_(run: str, iteration: str | None, json_: bool, folder: str, store: str | None) -> None:
    """Show what RUN changed since it began."""
    where = find(folder, store)
    with opened(where) as runs:
        print_diff(where, runs, the_run(runs, run), iteration, json_=json_)


@click.command("restore")
@click.argument("run")
@click.option(
    "--iteration", metavar="N|best", default="best", show_default=True, help="0 is the state before the run."
)
@click.option(
    "--force", is_flag=True, help="Replace edits that are not the run's (they are kept in a snapshot)."
)
@places
def restore_(run: str, iteration: str, force: bool, folder: str, store: str | None) -> None:
    """Bring back the work as it was after an iteration of RUN."""
    outside("restore")
    where = find(folder, store)
    with opened(where) as runs:
        name = the_run(runs, run)
        _, tree = snapshot_of(runs, name, iteration)
        changed = restore(where.project, runs, name, tree, force=force)
    for path in changed:
        click.echo(words.safe(path))
    click.echo(
        f"{len(changed)} file{'' if len(changed) == 1 else 's'} restored"
        if changed
        else "nothing to restore: it is as it was",
        err=True,
    )


@click.command("apply")
@click.argument("run")
@click.option(
    "--branch", metavar="B", help="Make a branch with one commit instead; the folder stays as it is."
)
@click.option("--iteration", metavar="N|best", help="Which work; else the accepted one, else the best.")
@places
def apply_(run: str, branch: str | None, iteration: str | None, folder: str, store: str | None) -> None:
    """Bring the work of RUN into your checkout, uncommitted.

    What you changed meanwhile stays. Where both changed the same lines nothing is applied (exit 3).
    """
    outside("apply")
    where = find(folder, store)
    with opened(where) as runs:
        name = the_run(runs, run)
        work = work_of(runs, name, iteration)
        if branch is not None:
            state = Journal(runs, name).state
            made, new = to_branch(where.project, state, work, branch, os.environ)
            click.echo(made)
            click.echo(f"iteration {work.iteration}: {'one commit' if new else 'there already'}", err=True)
            return
        changed = apply(where.project, runs, name, work)
    for path in changed:
        click.echo(words.safe(shown(path)))
    count = f"{len(changed)} file{'' if len(changed) == 1 else 's'} changed, not committed"
    click.echo(f"iteration {work.iteration}: {count if changed else 'applied already'}", err=True)
