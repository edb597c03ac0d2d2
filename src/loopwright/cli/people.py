"""Answering: approve, revise, reject, ask-again, and the inbox: approvals.

Rule: an answer is on record before the verb returns. Who drives the run goes on with it; if nobody
does, this verb does so as far as no agent or gate is needed, and says how to go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import click

from loopwright.cli import words
from loopwright.cli.asked import TOO_LATE, asked_lines, left, told
from loopwright.cli.read import emit
from loopwright.cli.run import Amount, Money
from loopwright.cli.steer import settled
from loopwright.cli.where import Where, as_json, enter, find, nearest, opened, outside, places, the_run, who
from loopwright.core.state import LoopState
from loopwright.errors import Locked, LoopwrightError, StoreError, UsageError
from loopwright.hosts import people
from loopwright.report import inbox
from loopwright.stores.opened import owner_alive

F = TypeVar("F", bound=Callable[..., Any])


def adds(command: F) -> F:
    """Adds the options that raise limits to a verb."""
    for option in (
        click.option("--add-budget", type=Money(), metavar="USD", help="Allow so much more money."),
        click.option("--add-duration", type=Amount(), metavar="D", help="Allow so much more time."),
        click.option(
            "--add-iterations", type=click.IntRange(1), metavar="N", help="Allow N more iterations."
        ),
    ):
        command = option(command)
    return command


def which(command: F) -> F:
    """Adds `--approval ID` to a verb."""
    return click.option("--approval", metavar="ID", help="Answer this request and no other.")(command)


@click.command("approve")
@click.argument("run")
@click.option("--note", metavar="TEXT", help="Words on record with the answer.")
@click.option("--override", metavar="REASON", help="Accept what has not passed, for this reason.")
@adds
@which
@places
def approve_(run: str, folder: str, store: str | None, **said: Any) -> int:
    """Say yes to what RUN asks: accept its work, or let it go on."""
    return _answer("approve", run, folder, store, **said)


@click.command("revise")
@click.argument("run")
@click.option("--note", metavar="TEXT", help="What to change: the agent reads it. Needed.")
@adds
@which
@places
def revise_(run: str, folder: str, store: str | None, **said: Any) -> int:
    """Send the work of RUN back with a note for its agent."""
    return _answer("revise", run, folder, store, **said)


@click.command("reject")
@click.argument("run")
@click.option("--note", metavar="TEXT", help="Words on record with the answer.")
@which
@places
def reject_(run: str, folder: str, store: str | None, **said: Any) -> int:
    """Say no to what RUN asks: the run stops, its work is kept."""
    return _answer("reject", run, folder, store, **said)


@click.command("ask-again")
@click.argument("run")
@places
def ask_again_(run: str, folder: str, store: str | None) -> int:
    """Let RUN ask anew what nobody answered in time."""
    outside("ask-again")
    where = find(folder, store)
    with opened(where) as runs:
        name = the_run(runs, run)
        outcome = people.ask_again(runs, name, by=who(), now=datetime.now(UTC))
    match outcome:
        case None:
            click.echo(f"{name} asks again", err=True)
            _go_on(where, name)
            return 0
        case people.Stale(live=live):
            click.echo(
                f"{name} still asks: {live.question} ({left(live.deadline, datetime.now(UTC))})", err=True
            )
        case people.Late(why=why) | people.Nothing(why=why):
            click.echo(f"{why}: nothing expired", err=True)
    return TOO_LATE


@click.command("approvals")
@click.option("--all", "all_", is_flag=True, help="Answered and expired requests too.")
@as_json
@places
def approvals_(all_: bool, json_: bool, folder: str, store: str | None) -> int:
    """Show what waits for a person.

    The nearest deadline first; with --all everything that was asked, newest first.
    """
    where = nearest(enter(folder), store)
    now = datetime.now(UTC)
    rows: list[dict[str, Any]] = []
    damaged: list[str] = []
    if where is not None:
        with opened(where) as runs:
            found, damaged = people.inbox(runs, every=all_)
            rows = [inbox.row(runs, state, asked, now) for state, asked in found]
    _show(
        rows,
        where,
        now,
        nothing="nothing was ever asked" if all_ else "nothing waits for a person",
        json_=json_,
    )
    for line in damaged:
        click.echo(f"loopwright: {line}", err=True)
    return StoreError.exit_code if damaged else 0


def _show(
    rows: list[dict[str, Any]], where: Where | None, now: datetime, *, nothing: str, json_: bool
) -> None:
    if json_:
        emit(rows)
        return
    if not rows:
        click.echo(nothing, err=True)
    for row in rows:
        number = f"#{row['iteration']} {row['about']}"
        click.echo(f"{row['run']}  {number}  {_stands(row, now)}  {words.safe(row['question'])}")
        if row["next"] and where is not None:
            click.echo(f"    {words.typed(row['next'], row['run'], where)}")


def _stands(row: dict[str, Any], now: datetime) -> str:
    """How a request stands, in a word or two."""
    if row["answer"] == "expired":
        return "expired"
    if row["answer"]:
        return f"{row['answer']} by {row['by']}"
    return left(row["deadline"], now) if row["left_s"] is not None else "withdrawn"


def _answer(
    answer: Literal["approve", "revise", "reject"], run: str, folder: str, store: str | None, **more: Any
) -> int:
    """Leaves the answer, sees to it where nobody drives the run, and says what follows. The exit code."""
    outside(answer)
    if answer == "revise" and not (more["note"] or "").strip():
        raise UsageError("revise needs --note TEXT: it is what the agent reads")
    where = find(folder, store)
    add = {
        "max_iterations": more.get("add_iterations"),
        "max_duration": more.get("add_duration"),
        "budget": more.get("add_budget"),
    }
    said = people.Said(
        answer=answer,
        by=who(),
        channel="cli",
        note=_text(more.get("note")) or "",
        override=_text(more.get("override")),
        add={name: amount for name, amount in add.items() if amount is not None},
    )
    with opened(where) as runs:
        name = the_run(runs, run)
        outcome = people.answer(
            runs,
            name,
            said,
            now=datetime.now(UTC),
            approval=more["approval"],
            redact=people.redacting(runs, name, os.environ),
        )
    text, code = told(outcome, name, where)
    click.echo(words.safe(text), err=True)
    if code:
        if isinstance(outcome, people.Late) and outcome.expired:
            _go_on(where, name)  # so that what silence means has happened
        return code
    state = _go_on(where, name)
    taken_in = isinstance(outcome, people.Recorded) and f"decision/{outcome.decision.id}"
    if state is not None and taken_in and taken_in not in state.signals:
        click.echo(
            "the question was withdrawn before the answer was taken in: nothing follows from it", err=True
        )
        return TOO_LATE
    if state is not None and answer == "approve" and _moved(state):
        return TOO_LATE
    return 0


def _text(given: str | None) -> str | None:
    """What was typed, as text that can be kept."""
    return None if given is None else os.fsencode(given).decode(errors="replace")


def _moved(state: LoopState) -> bool:
    """Whether an acceptance did not count, because the work is no longer what was judged."""
    it = state.current
    return state.finished is None and state.subject == "accept" and it is not None and it.verdict is None


def _go_on(where: Where, run: str) -> LoopState | None:
    """The run once it took the answer in, if that is ours to do; says how it goes on."""
    state = settled(where, run, tell=lambda line: click.echo(words.safe(line), err=True))
    if isinstance(state, LoopwrightError):
        with opened(where) as runs:
            claim = people.driver(runs, run)
        if isinstance(state, Locked) and claim is not None and owner_alive(claim.owner):
            click.echo("the process that drives it goes on from here", err=True)
        else:
            resume = words.typed(f"loopwright resume {run}", run, where)
            click.echo(f"{resume} takes it in; for now: {state}", err=True)
        return None
    for line in (*asked_lines(state, where), *words.three_lines(state, where, ours=True)):
        click.echo(line, err=True)
    return state
