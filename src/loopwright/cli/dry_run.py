"""What `run --dry-run` prints: how the work stands by its gates, and what a run would be bound by.

Rule: it says what the run would do next, and does none of it. Exit 0 once that is said, whatever the gates say.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from loopwright.calling import alone
from loopwright.cli import words
from loopwright.cli.read import emit, show_score
from loopwright.cli.view import View
from loopwright.cli.where import no_bytecode
from loopwright.config import load
from loopwright.hosts.rehearse import Rehearsal, rehearse
from loopwright.hosts.take import check_id
from loopwright.hosts.ways import Ways
from loopwright.report.rows import scored
from loopwright.running import Run

SCHEMA = "loopwright/dry-run/v1"


def dry(
    loopfile: str | None,
    folder: Path,
    run_id: str | None,
    sets: tuple[str, ...],
    flags: Mapping[str, Any],
    *,
    json_: bool,
) -> int:
    """Rehearses the loop that `run` would start with these words and prints what came of it; the exit code."""
    environ, view, ended = dict(os.environ), View(), list[int]()
    if run_id is not None:
        check_id(run_id)
    with no_bytecode():
        loaded = load(loopfile, folder=folder, path=environ.get("PATH", ""), sets=sets, flags=flags)
        ways = Ways(
            project=loaded.project,
            environ=environ,
            begin=view.begin,
            tell=view.line,
            signals=lambda run: _connect(run, ended),
        )
        with view.live():
            seen = alone(lambda: rehearse(loaded.loop, ways))
    if ended and not seen.judged:
        view.line("ended before every gate was heard: nothing is known")
        return ended[0]
    if json_:
        emit(document(seen))
    else:
        _print(seen)
    return seen.exit_code


def _connect(run: Run, ended: list[int]) -> None:
    """Ctrl-C and TERM end it: nothing is to be finished first."""

    def leave(code: int) -> None:
        ended.append(code)
        run.leaving.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, leave, 130)
    loop.add_signal_handler(signal.SIGTERM, leave, 143)


def document(seen: Rehearsal) -> dict[str, Any]:
    """What came of it as one document."""
    verdict = seen.state.baseline
    agent, *others = ({"who": who, "command": command or None} for who, command in seen.programs)
    return {
        "schema": SCHEMA,
        "goal": seen.spec["goal"],
        "project": str(seen.project),
        "workspace": seen.mode,
        "passed": None if verdict is None else verdict.passed,
        "verdict": verdict
        and {key: getattr(verdict, key) for key in ("passed", "score", "blockers", "reasons")},
        "gates": [scored(0, gate, score) for gate, score in seen.scores.items()],
        "agent": agent,
        "programs": others,
        "limits": {key: value for key, value in seen.spec["limits"].items() if value is not None},
        "monitors": seen.spec["monitors"],
        "approval": seen.spec["approval"],
        "withheld": list(seen.withheld),
        "notes": list(seen.notes),
        "next": _next(seen),
        "exit_code": seen.exit_code,
    }


def _next(seen: Rehearsal) -> str:
    """What the run would do after this."""
    end, verdict = seen.state.finished, seen.state.baseline
    if end is not None:
        return f"the run would end here: {end.reason} ({end.explanation.partition(chr(10))[0]})"
    if verdict is not None and verdict.passed:
        return 'it passes already; a run would go on all the same, unless if_passing = "finish"'
    most = seen.spec["limits"]["max_iterations"]
    return f"the run would start the agent: iteration 1 of at most {most}"


def _print(seen: Rehearsal) -> None:
    """The same for people."""
    click.echo(f"dry run: in {words.safe(str(seen.project))}, nothing is recorded and no agent is started")
    for who, command in seen.programs:
        click.echo(f"  {words.safe(f'{who}: {command}' if command else who)}")
    for gate, score in seen.scores.items():
        show_score("now", scored(0, gate, score))
    verdict = seen.state.baseline
    if verdict is None:
        click.echo("? not judged")
    else:
        held = "" if verdict.passed else f": {', '.join(verdict.blockers)}"
        mark, word = ("✓", "passes") if verdict.passed else ("✗", "does not pass")
        click.echo(
            words.plain(f"{mark} it {word} today (score {words.score(verdict.score)}){words.safe(held)}")
        )
    click.echo(f"  limits:   {seen.bounds}")
    click.echo(f"  monitors: {_monitors(seen.spec['monitors'])}")
    asked = seen.spec["approval"]
    click.echo(f"  approval: {_asked(asked['when'], asked)}")
    if seen.withheld:
        click.echo(f"  withheld from agent and gates: {', '.join(seen.withheld)}")
    for note in seen.notes:
        click.echo(f"  note:     {words.safe(note)}")
    click.echo(f"  next:     {words.safe(_next(seen))}")


def _monitors(said: Mapping[str, Any]) -> str:
    """Each monitor with what it does, and how many alerts end a run."""
    told = [f"{kind} {each['action']}" for kind, each in said.items() if "action" in each]
    critical = said["critical"]
    return f"{', '.join(told)}; {critical['alerts']} alerts within {critical['within']} iterations end it"


def _asked(when: str, asked: Mapping[str, Any]) -> str:
    if when == "never":
        return "never"
    return f"{when}, {asked['on_timeout']} when nobody answers within {words.seconds(asked['timeout'])}"
