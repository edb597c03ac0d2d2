"""Reading verbs: list, show, why.

Rule: they read journals and exit 0 whatever the run's end; they change nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from loopwright import codec
from loopwright.cli import words
from loopwright.cli.where import Where, as_json, enter, find, nearest, opened, places, the_run
from loopwright.core import events as ev
from loopwright.core.head import head, health, readable
from loopwright.core.state import LoopState
from loopwright.core.values import Score
from loopwright.errors import StoreError, UsageError
from loopwright.journal import Journal, history
from loopwright.ports import Store
from loopwright.stores.opened import store_exists, store_path

HEAD_KEYS = ("updated_at", "approval", "wake")


def emit(value: Any) -> None:
    """`value` as one JSON document on stdout; a reader that went away changes nothing."""
    try:
        click.echo(codec.dumps(value, indent=2))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@click.command("list")
@click.option("--all", "all_", is_flag=True, help="Finished runs too.")
@click.option("--since", metavar="AGE", help="Only runs with news in the last AGE, such as 12h.")
@as_json
@places
def list_(all_: bool, since: str | None, json_: bool, folder: str, store: str | None) -> int:
    """Show active runs, newest first."""
    after = datetime.now(UTC) - timedelta(seconds=_age(since)) if since else None
    where = nearest(enter(folder), store)
    heads: list[dict[str, Any]] = []
    damaged: list[str] = []
    path = None if where is None else store_path(where.store, where.project)
    if where is not None and (where.store or (path is not None and store_exists(path))):
        with opened(where) as runs:
            for run, body in runs.heads(active=None if all_ else True):
                try:
                    row = _head(runs, run, body)
                    heads.append(row)
                    if row["exit_code"] is None and words.left(Journal(runs, run).state):
                        row["next"] = f"loopwright resume {run}"
                except StoreError as error:  # one damaged run does not hide the others
                    damaged.append(str(error))
        heads = [h for h in heads if after is None or datetime.fromisoformat(h["updated_at"]) >= after]
    _table(heads, json_=json_, nothing="no runs yet" if all_ else "no active runs; --all shows finished ones")
    for line in damaged:
        click.echo(f"loopwright: {line}", err=True)
    return StoreError.exit_code if damaged else 0


def _table(heads: list[dict[str, Any]], *, json_: bool, nothing: str) -> None:
    if json_:
        emit([{k: v for k, v in row.items() if k not in HEAD_KEYS} for row in heads])
        return
    if not heads:
        click.echo(nothing, err=True)
        return
    now = datetime.now(UTC)
    wide = max(len("RUN"), *(len(row["run"]) for row in heads))
    long = max(len("STATE"), *(len(row["reason"] or row["phase"]) for row in heads))
    click.echo(f"{'RUN':<{wide}} {'STATE':<{long}} {'IT':>4} {'SCORE':>6} {'COST':>7} {'NEWS':>8}  NEXT")
    for row in heads:
        state = row["reason"] or row["phase"]
        news = words.ago(now, datetime.fromisoformat(row["updated_at"]))
        click.echo(
            f"{row['run']:<{wide}} {state:<{long}} {row['iterations']:>4} {words.score(row['score']):>6} "
            f"{words.money(row['cost_usd']):>7} {news:>8}  {row['next']}"
        )


def _head(store: Store, run: str, body: bytes) -> dict[str, Any]:
    """The head of a run; a damaged one is made anew from the journal, which alone is the truth."""
    try:
        kept = codec.loads(body)
    except ValueError:
        kept = None
    if isinstance(kept, dict) and {*HEAD_KEYS, "run", "reason", "phase", "next"} <= kept.keys():
        return kept
    made: dict[str, Any] = codec.loads(codec.dumps(head(Journal(store, run).state)))
    return made


def _age(text: str) -> float:
    try:
        return words.duration(text)
    except ValueError as error:
        raise UsageError(f"--since: {error}") from None


@dataclass(slots=True)
class Row:
    """One iteration as its facts tell it."""

    number: int
    scores: list[tuple[str, Score]] = field(default_factory=list)
    attempts: int = 0
    outcome: str = "open"
    score: float | None = None
    seconds: float = 0.0
    cost: float | None = None
    summary: str = ""
    snapshot: str | None = None
    problem: str = ""
    notes: list[str] = field(default_factory=list)


def rows(store: Store, run: str) -> Iterator[Row]:
    """The iterations of a run, the open one last."""
    row: Row | None = None
    for _, _, event, state in history(store, run):
        match event:
            case ev.AttemptStarted(iteration=number):
                row = row if row is not None and row.number == number else Row(number)
                row.attempts += 1
            case ev.GateScored(gate=gate, score=score):
                row = row or Row(0)
                row.scores = [pair for pair in row.scores if pair[0] != gate] + [(gate, score)]
            case ev.AttemptFailed(kind=kind, message=message) if row is not None:
                row.problem = f"{kind}: {message}"
            case ev.EvidenceChanged(paths=paths, action=action) if row is not None:
                row.notes.append(f"{action}: {', '.join(paths[:5])}")
            case ev.AlertRaised(kind=kind, message=message) if row is not None:
                row.notes.append(f"{kind}: {message}")
            case ev.IterationClosed(outcome=outcome) if row is not None:
                last = state.recent[-1] if row.number else state.zero
                row.outcome = outcome
                row.snapshot = state.snapshot
                if last is not None:
                    row.score, row.seconds, row.cost, row.summary = (
                        last.score,
                        last.seconds,
                        last.cost_usd,
                        last.summary,
                    )
                yield row
                row = None
            case _:
                pass
    if row is not None:
        yield row


def snapshot_of(store: Store, run: str, iteration: str | int | None) -> tuple[str | None, str | None]:
    """The trees before and after an iteration (a number or `best`); of all the run when `None`."""
    state = Journal(store, run).state
    if iteration is None:
        return state.base, state.snapshot
    if iteration == "best":
        if state.best is None:
            raise UsageError(f"run {run} has no best iteration yet")
        iteration = state.best.iteration
    try:
        wanted = int(iteration)
    except ValueError:
        raise UsageError(f"--iteration {iteration}: a number or 'best'") from None
    if wanted == 0:
        return state.base, state.base
    before = state.base
    for row in rows(store, run):
        if row.number == wanted:
            return before, row.snapshot or state.snapshot
        before = row.snapshot if row.number else before
    raise UsageError(f"run {run} has no iteration {wanted}")


@click.command("show")
@click.argument("run")
@click.option("--iteration", type=int, metavar="N", help="Only iteration N.")
@click.option("--checkpoint", type=int, metavar="N", help="The state as of the close of iteration N.")
@click.option("--gates", "what", flag_value="gates", help="Every score with its reason and evidence.")
@click.option("--diff", "what", flag_value="diff", help="What changed.")
@click.option("--events", "what", flag_value="events", help="Every fact on record.")
@click.option("--health", "what", flag_value="health", help="Whether the loop is well.")
@click.option("--log", "what", flag_value="log", help="What the agent printed.")
@click.option("--prompt", "what", flag_value="prompt", help="What the agent was asked (with --iteration).")
@as_json
@places
def show_(
    run: str,
    iteration: int | None,
    checkpoint: int | None,
    what: str | None,
    json_: bool,
    folder: str,
    store: str | None,
) -> None:
    """Show RUN: its iterations, scores, and how it stands."""
    where = find(folder, store)
    with opened(where) as runs:
        name = the_run(runs, run)
        if iteration is not None and not 0 <= iteration <= Journal(runs, name).state.iteration:
            raise UsageError(f"run {name} has no iteration {iteration}")
        if checkpoint is not None:
            _checkpoint(runs, name, checkpoint, json_=json_)
        elif what == "gates":
            _gates(runs, name, iteration, json_=json_)
        elif what == "events":
            _events(runs, name, json_=json_)
        elif what == "health":
            found = health(Journal(runs, name).state)
            emit(found) if json_ else click.echo(found["summary"])
        elif what == "diff":
            from loopwright.cli.files import print_diff

            print_diff(where, runs, name, iteration, json_=json_)
        elif what in {"log", "prompt"}:
            last = Journal(runs, name).state.iteration
            _file(where, name, last if iteration is None else iteration, what, json_=json_)
        elif json_:
            from loopwright.core.head import document

            state = Journal(runs, name).state
            emit({**document(state), **({"next": f"loopwright resume {name}"} if words.left(state) else {})})
        else:
            _summary(runs, name, iteration, where.project)


def _checkpoint(store: Store, run: str, number: int, *, json_: bool) -> None:
    """The fold up to the close of iteration `number`, as the files store keeps it in a file."""
    found: LoopState | None = None
    closed: set[int] = set()
    for _, _, event, state in history(store, run):
        if isinstance(event, ev.IterationClosed):
            closed.add(state.iteration)
            found = state if state.iteration == number else found
    if found is None:
        there = f"there are {min(closed)} to {max(closed)}" if closed else "no iteration is closed yet"
        raise UsageError(f"run {run} has no checkpoint {number}: {there}")
    told = readable(found)
    if json_:
        emit(told)
        return
    best = f" · best {words.score(told['best_score'])}" if told["best_score"] is not None else ""
    click.echo(
        f"{run} as iteration {number} closed: {told['phase']} · score {words.score(told['score'])}{best}"
    )
    for step in told["step_log"][-10:]:
        summary = f"  {words.safe(step['summary'])}" if step["summary"] else ""
        click.echo(
            f"  #{step['iteration']:<3} {step['outcome']}   score {words.score(step['score'])}{summary}"
        )


def _gates(store: Store, run: str, iteration: int | None, *, json_: bool) -> None:
    table: list[dict[str, Any]] = [
        {
            "iteration": row.number,
            "gate": gate,
            "status": s.status,
            "value": s.value,
            "raw": s.raw,
            "unit": s.unit,
            "reason": s.reason,
            "cause": s.cause,
            "evidence": s.evidence,
        }
        for row in rows(store, run)
        if iteration is None or row.number == iteration
        for gate, s in row.scores
    ]
    if json_:
        emit(table)
        return
    for line in table:
        mark = words.MARKS.get(line["status"], "?")
        first, *rest = words.safe(line["reason"]).splitlines() or [""]
        click.echo(f"#{line['iteration']:<3} {line['gate']:<14} {mark} {line['value']:.2f}  {first}")
        for more in words.at_most(rest, 20):
            click.echo(f"{'':26}{more}")


def _events(store: Store, run: str, *, json_: bool) -> None:
    facts = [
        {"n": n, "type": type(event).__name__, "at": at, **codec.plain(event)}
        for n, at, event, _ in history(store, run)
    ]
    if json_:
        emit(facts)
        return
    for fact in facts:
        rest = {
            k: v
            for k, v in fact.items()
            if k not in {"n", "type", "at", "spec"} and v not in (None, "", [], {})
        }
        text = words.safe(codec.dumps(rest).decode())
        click.echo(f"{fact['n']:>5} {fact['at']:%H:%M:%S} {fact['type']:<18} {text[:160]}")


def _file(where: Where, run: str, iteration: int, what: str, *, json_: bool) -> None:
    folder = where.project / ".agent-state" / "artifacts" / run / f"{iteration:04d}"
    name = "agent.log" if what == "log" else "prompt.md"
    found: list[Path] = sorted(
        folder.glob(f"attempt-*/{name}"), key=lambda p: int(p.parent.name.split("-")[1])
    )
    if not found:
        raise UsageError(f"run {run} kept no {name} of iteration {iteration}")
    text = words.safe(found[-1].read_bytes().decode("utf-8", "replace"))
    if json_:
        emit({"iteration": iteration, "attempt": len(found), "text": text})
    elif text:
        click.echo(text, nl=False)
    else:
        click.echo(f"the agent printed nothing in iteration {iteration}", err=True)


def _summary(store: Store, run: str, iteration: int | None, project: Path) -> None:
    for row in list(rows(store, run)):  # all of it is whole before any of it is shown
        if iteration is not None and row.number != iteration:
            continue
        gates = "   ".join(words.gate(gate, score) for gate, score in row.scores)
        cost = "" if row.cost is None else f"  {words.money(row.cost)}"
        detail = gates or words.safe(row.problem.splitlines()[0] if row.problem else "under way")
        click.echo(
            f"#{row.number:<3} {detail}   score {words.score(row.score)}  {row.outcome}{cost}  {words.seconds(row.seconds)}"
        )
        for note in row.notes:
            click.echo(f"     ! {words.safe(note)}")
    for line in words.three_lines(Journal(store, run).state, project):
        click.echo(line)


@click.command("why")
@click.argument("run")
@places
def why_(run: str, folder: str, store: str | None) -> None:
    """Say why RUN stands where it stands."""
    where = find(folder, store)
    with opened(where) as runs:
        state: LoopState = Journal(runs, the_run(runs, run)).state
    for line in words.three_lines(state, where.project):
        click.echo(line)
    if state.last is not None and state.last.reasons:
        click.echo("  last verdict:")
        for text in state.last.reasons:
            for i, line in enumerate(words.at_most(words.safe(text).splitlines(), 12)):
                click.echo(f"    {line}" if i == 0 else f"      {line}")
