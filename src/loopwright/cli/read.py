"""Reading verbs: show, why.

Rule: they read journals and exit 0 whatever the run's end; they change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from loopwright import codec
from loopwright.cli import words
from loopwright.cli.where import Where, as_json, find, opened, places, the_run
from loopwright.core import events as ev
from loopwright.core.head import health, readable
from loopwright.core.state import LoopState
from loopwright.errors import UsageError
from loopwright.figures import tokens
from loopwright.journal import Journal, history
from loopwright.ports import Store
from loopwright.report.rows import Row, one, rows, table
from loopwright.report.spent import parts, told_of


def emit(value: Any) -> None:
    """`value` as one JSON document on stdout."""
    words.put(codec.dumps(value, indent=2))


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
        elif json_ and iteration is not None:
            emit(one(runs, name, iteration))
        elif json_:
            from loopwright.core.head import document

            state = Journal(runs, name).state
            emit({**document(state), **({"next": f"loopwright resume {name}"} if words.left(state) else {})})
        else:
            _summary(runs, name, iteration, where)


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
    told = table(store, run, iteration)
    if json_:
        emit(told)
        return
    for each in told:
        show_score(f"#{each['iteration']}", each)


def show_score(begin: str, told: dict[str, Any]) -> None:
    """Prints one score with its reason."""
    mark = words.MARKS.get(told["status"], "?")
    first, *rest = words.safe(told["reason"]).splitlines() or [""]
    cost = _of_gate(told.get("spent"))
    click.echo(f"{begin:<4} {told['gate']:<14} {mark} {words.score(told['value'])}{cost}  {first}")
    for more in words.at_most(rest, 20):
        click.echo(f"{'':26}{more}")


def _of_gate(told: Mapping[str, Any] | None) -> str:
    """What a gate itself spent, beside its score; nothing for one that asks no model."""
    if told is None:
        return ""
    cost = words.paid(told["cost_usd"], told["tokens"], plan=told["plan"])
    return (
        f"  ({cost})" if told["plan"] or told["tokens"] is None else f"  ({cost}, {tokens(told['tokens'])})"
    )


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
        why = "" if what == "log" else ": that of a function is kept when it reads attempt.prompt"
        raise UsageError(f"run {run} kept no {name} of iteration {iteration}{why}")
    text = words.safe(found[-1].read_bytes().decode("utf-8", "replace"))
    if json_:
        emit({"iteration": iteration, "attempt": int(found[-1].parent.name.split("-")[1]), "text": text})
    elif text:
        click.echo(text, nl=False)
    else:
        click.echo(f"the agent printed nothing in iteration {iteration}", err=True)


def _summary(store: Store, run: str, iteration: int | None, where: Where) -> None:
    for row in list(rows(store, run)):  # all of it is whole before any of it is shown
        if iteration is not None and row.number != iteration:
            continue
        gates = "   ".join(words.gate(gate, score) for gate, score in row.scores)
        cost = _cost(row)
        detail = gates or words.safe(row.problem.splitlines()[0] if row.problem else "under way")
        click.echo(
            f"#{row.number:<3} {detail}   score {words.score(row.score)}  {row.outcome}{cost}  {words.seconds(row.seconds)}"
        )
        for each in row.spent:
            if each.session or parts(each.usage) or each.usage.model:
                click.echo(f"     {told_of(each)}")
        for note in row.notes:
            click.echo(f"     ! {words.safe(note)}")
    state = Journal(store, run).state
    if state.approval is not None and iteration is None:
        from loopwright.cli.asked import asked_lines

        for line in asked_lines(state, where):
            click.echo(line)
    for line in words.three_lines(state, where):
        click.echo(line)


def _cost(row: Row) -> str:
    """What an iteration cost: dollars, or tokens where a plan pays; nothing where nobody knows."""
    if any(each.usage.plan for each in row.spent):
        return f"  {tokens(row.tokens)}"
    return "" if row.cost is None else f"  {words.money(row.cost)}"


@click.command("why")
@click.argument("run")
@places
def why_(run: str, folder: str, store: str | None) -> None:
    """Say why RUN stands where it stands."""
    from loopwright.report.gather import gather
    from loopwright.report.why import why

    where = find(folder, store)
    with opened(where) as runs:
        report = gather(history(runs, the_run(runs, run)))
    report = replace(report, alone=words.left(report.state))
    for line in words.three_lines(report.state, where):
        click.echo(line)
    click.echo("")
    for line in why(report).lines:
        click.echo(line)
