"""Steering a run from beside it: stop, pause.

Rule: what is asked is on record before the verb returns; who drives the run takes it in, and if
nobody does, this verb does so as far as no agent or gate is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from loopwright.calling import alone
from loopwright.cli import words
from loopwright.cli.where import Where, find, opened, outside, places, the_run, who
from loopwright.core.state import LoopState
from loopwright.errors import ConfigError, Locked, LoopwrightError, UsageError, WorkspaceError
from loopwright.hosts import steer
from loopwright.hosts.local import settle
from loopwright.hosts.ways import Ways
from loopwright.journal import Journal

TOO_LATE = 3


def ask(where: Where, name: str, kind: steer.What, *, now: bool) -> int:
    """Leaves the signal, sees to it where nobody drives the run, and says what follows. The exit code."""
    with opened(where) as store:
        run = the_run(store, name)
        state = Journal(store, run).state
        if state.finished is not None:
            click.echo(f"{run} is over already: {state.finished.reason}", err=True)
            return TOO_LATE
        now = steer.ask(store, state, kind, by=who(), now=now).now
    went = settled(where, run)
    if isinstance(went, Locked):
        click.echo(f"{run} will {kind} {'now' if now else 'after this iteration'}", err=True)
    elif isinstance(went, LoopwrightError):  # it is on record all the same
        click.echo(f"{run} will {kind} when it is resumed; for now: {went}", err=True)
    else:
        for line in words.three_lines(went, where, ours=True):
            click.echo(line, err=True)
    return 0


def settled(
    where: Where, run: str, *, tell: Callable[[str], None] = lambda _: None
) -> LoopState | Locked | ConfigError | UsageError | WorkspaceError:
    """The run once it took in what is asked of it; or why not here and now: another drives it, or it cannot be opened."""
    ways = Ways(project=where.project, store=where.store, environ=dict(os.environ), by=who(), tell=tell)
    try:
        return alone(lambda: settle(run, ways)).state
    except (Locked, ConfigError, UsageError, WorkspaceError) as error:
        return error


@click.command("stop")
@click.argument("run")
@click.option("--now", is_flag=True, help="Cut the agent off instead of letting the iteration end.")
@places
def stop_(run: str, now: bool, folder: str, store: str | None) -> int:
    """End RUN after this iteration; its state and work are kept."""
    outside("stop")
    return ask(find(folder, store), run, "stop", now=now)


@click.command("pause")
@click.argument("run")
@click.option("--now", is_flag=True, help="Cut the agent off instead of letting the iteration end.")
@places
def pause_(run: str, now: bool, folder: str, store: str | None) -> int:
    """Let RUN rest after this iteration, until it is resumed."""
    outside("pause")
    return ask(find(folder, store), run, "pause", now=now)
