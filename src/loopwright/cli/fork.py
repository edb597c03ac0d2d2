"""The verb fork.

Rule: what is refused is refused before anything is made; the fork starts nothing by itself.
"""

from __future__ import annotations

import click

from loopwright.cli import words
from loopwright.cli.where import find, opened, outside, places, the_run, who
from loopwright.core.limits import exceeded
from loopwright.core.recorded import limits_of
from loopwright.hosts.fork import fork

ADD = {
    "max_iterations": " --add-iterations 10",
    "max_duration": " --add-duration 30m",
    "budget": " --add-budget 5",
}


@click.command("fork")
@click.argument("run")
@click.option(
    "--from", "number", type=click.IntRange(0), metavar="N", required=True, help="Its last iteration."
)
@click.option("--as", "run_id", metavar="RUN", help="The new run's id.")
@click.option(
    "--force", is_flag=True, help="Replace edits that are not the run's (they are kept in a snapshot)."
)
@places
def fork_(run: str, number: int, run_id: str | None, force: bool, folder: str, store: str | None) -> None:
    """Begin a new run where RUN stood after iteration N."""
    outside("fork")
    where = find(folder, store)
    with opened(where) as runs:
        name = the_run(runs, run)
        made = fork(where.project, runs, name, number, run_id, by=who(), force=force)
    state = made.state
    click.echo(state.run)
    for path in made.changed[:20]:
        click.echo(f"  {words.safe(path)}", err=True)
    if len(made.changed) > 20:
        click.echo(f"  … and {len(made.changed) - 20} more files", err=True)
    if state.workspace is not None and not made.recorded:
        click.echo("  there is no snapshot of that iteration: the folder stays as it is", err=True)
    limit = exceeded(limits_of(state), state)
    more = ADD.get(limit[0], "") if limit else ""
    click.echo(f"{state.run} stands where {name} stood after iteration {number}", err=True)
    if limit:
        click.echo(f"  a limit of {name} holds for it as well: {limit[1]}", err=True)
    click.echo(f"  next: loopwright resume {state.run}{more}", err=True)
