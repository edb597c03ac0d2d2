"""Steering a run from beside it: stop, pause.

Rule: what is asked is on record before the verb returns; who drives the run takes it in, and if
nobody does, this verb does so as far as no agent or gate is needed.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

import click

from loopwright.calling import alone
from loopwright.cli import words
from loopwright.cli.where import Where, find, opened, outside, places, the_run, who
from loopwright.codec import encode_signal
from loopwright.core import events as ev
from loopwright.errors import ConfigError, Locked
from loopwright.hosts.local import settle
from loopwright.hosts.ways import Ways
from loopwright.journal import Journal

TOO_LATE = 3


def ask(
    where: Where, name: str, kind: str, event_of: type[ev.StopRequested | ev.PauseRequested], *, now: bool
) -> int:
    """Leaves the signal, sees to it where nobody drives the run, and says what follows. The exit code."""
    with opened(where) as store:
        run = the_run(store, name)
        state = Journal(store, run).state
        if state.finished is not None:
            click.echo(f"{run} is over already: {state.finished.reason}", err=True)
            return TOO_LATE
        key = f"{kind}/{secrets.token_hex(8)}"
        store.signal(run, key, encode_signal(event_of(now=now, by=who(), key=key)))
    ways = Ways(project=where.project, store=where.store, environ=dict(os.environ), by=who())
    with suppress(Locked):
        try:
            held = alone(lambda: settle(run, ways))
        except ConfigError as error:  # it is on record all the same
            click.echo(f"{run} will {kind} when it is resumed; for now: {error}", err=True)
            return 0
        for line in words.three_lines(held.state, where.project, ours=True):
            click.echo(line, err=True)
        return 0
    when = "now" if now else "after this iteration"
    click.echo(f"{run} will {kind} {when}", err=True)
    return 0


@click.command("stop")
@click.argument("run")
@click.option("--now", is_flag=True, help="Cut the agent off instead of letting the iteration end.")
@places
def stop_(run: str, now: bool, folder: str, store: str | None) -> int:
    """End RUN after this iteration; its state and work are kept."""
    outside("stop")
    return ask(find(folder, store), run, "stop", ev.StopRequested, now=now)


@click.command("pause")
@click.argument("run")
@click.option("--now", is_flag=True, help="Cut the agent off instead of letting the iteration end.")
@places
def pause_(run: str, now: bool, folder: str, store: str | None) -> int:
    """Let RUN rest after this iteration, until it is resumed."""
    outside("pause")
    return ask(find(folder, store), run, "pause", ev.PauseRequested, now=now)
