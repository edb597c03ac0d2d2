"""The verb backtest.

Rule: it reads; nothing runs and nothing is changed.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any, Final

import click

from loopwright.assembled import assemble
from loopwright.cli import words
from loopwright.cli.read import emit
from loopwright.cli.where import as_json, enter, find, opened, places
from loopwright.config import load
from loopwright.figures import brief, count, money, score
from loopwright.journal import history
from loopwright.report.backtest import BEYOND, Standing, Tested, backtest, record, unfit

SCHEMA: Final = "loopwright/backtest/v1"
MOST: Final = 1000  # runs looked at, newest first


@click.command("backtest")
@click.argument("loopfile")
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="K=V",
    help="Any setting of a loop file, such as limits.max_iterations=5.",
)
@as_json
@places
def backtest_(loopfile: str, sets: tuple[str, ...], json_: bool, folder: str, store: str | None) -> None:
    """Ask where recorded runs would have ended under LOOPFILE."""
    path = os.environ.get("PATH", "")
    loaded = load(loopfile, folder=enter(folder), path=path, sets=sets)
    assembled = assemble(loaded.loop, project=loaded.project, path=path)
    where = find(folder, store or loaded.loop.store)
    tested: list[Tested] = []
    passed_over: list[dict[str, str]] = []
    with opened(where) as runs:
        for run, _ in runs.heads(limit=MOST):
            recorded = record(history(runs, run))
            if recorded.state.spec.get("name") != assembled.loop.name:
                continue
            if why := unfit(assembled.policy, recorded):
                passed_over.append({"run": run, "why": why})
            else:
                tested.append(backtest(assembled.policy, recorded))
    if json_:
        emit(
            {
                "schema": SCHEMA,
                "loop": assembled.loop.name,
                "runs": [{**asdict(row), "same": row.same} for row in tested],
                "passed_over": passed_over,
            }
        )
        return
    _table(tested)
    for row in passed_over:
        click.echo(f"{row['run']}: passed over, {words.safe(row['why'])}", err=True)
    if not tested and not passed_over:
        click.echo(f"no run of a loop named {words.safe(str(assembled.loop.name))} to ask about", err=True)


def _table(tested: list[Tested]) -> None:
    if not tested:
        return
    rows: list[tuple[str, ...]] = [("RUN", "", "ENDED", "IT", "BEST", "COST")]
    for row in tested:
        rows.append((row.run, "really", *_cells(row.really)))
        rows.append(("", "same" if row.same else "would", *_cells(row.would)))
    wide = [max(len(line[i]) for line in rows) for i in range(6)]
    notes: dict[int, str] = {2 + 2 * i: row.would.explanation for i, row in enumerate(tested) if not row.same}
    for i, line in enumerate(rows):
        name, kind, ended, *figures = line
        numbers = "  ".join(f"{text:>{wide[3 + j]}}" for j, text in enumerate(figures))
        note = f"  {brief(notes[i], 120)}" if i in notes else ""
        click.echo(f"{name:<{wide[0]}}  {kind:<{wide[1]}}  {ended:<{wide[2]}}  {numbers}{note}")
    changed = sum(not row.same for row in tested)
    beyond = sum(row.would.reason == BEYOND for row in tested)
    text = f"{count(len(tested), 'run')}, {changed} would have ended otherwise"
    click.echo(f"{text}, {beyond} of them beyond the record" if beyond else text, err=True)


def _cells(standing: Standing) -> tuple[str, ...]:
    values: tuple[Any, ...] = (standing.best_score, standing.cost_usd)
    return standing.reason, str(standing.iterations), score(values[0]), money(values[1])
