"""The first verbs in a project: init, doctor.

Rule: nothing is asked. `init` writes one new file, `doctor` none.
"""

from __future__ import annotations

import os
from typing import Any

import click

from loopwright.calling import alone
from loopwright.cli import words
from loopwright.cli.read import emit
from loopwright.cli.view import View
from loopwright.cli.where import as_json, enter, no_bytecode, places


@click.command("init")
@click.option("--agent", metavar="NAME|CMD", help="Who does the work; else the first coding agent on PATH.")
@click.option("-C", "folder", metavar="DIR", default=".", help="Work as if started in DIR.")
@as_json
def init_(agent: str | None, folder: str, json_: bool) -> None:
    """Write loop.toml for the project here.

    The tools that the project uses become its gates; each is run once, to say how it stands today.
    """
    from loopwright.begin.loopfile import draft, write
    from loopwright.hosts.ways import Ways

    view = View()
    ways = Ways(project=enter(folder), environ=dict(os.environ), begin=view.begin)
    with view.live():
        made = alone(lambda: draft(agent, ways))
    write(made)
    if json_:
        emit(_written(made))
    else:
        _told(made)


def _written(made: Any) -> dict[str, Any]:
    return {
        "schema": "loopwright/init/v1",
        "file": str(made.file),
        "agent": made.agent,
        "gates": [
            {
                "tool": each.found.tool,
                "seen": each.found.why,
                "gate": each.found.gate,
                "written": each.score is not None,
                "status": each.score and each.score.status,
                "value": each.score and each.score.value,
                "reason": each.found.problem if each.score is None else each.score.reason,
            }
            for each in made.tried
        ],
        "protected": list(made.protected),
        "notes": list(made.notes),
    }


def _told(made: Any) -> None:
    from loopwright.begin.loopfile import stands

    click.echo(f"written: {os.path.relpath(made.file)}")
    for each in made.tried:
        mark = "-" if each.score is None else words.MARKS.get(each.score.status, "?")
        said = (
            f"left out: {words.brief(each.found.problem, 100)}" if each.score is None else stands(each.score)
        )
        click.echo(words.plain(words.safe(f"  {mark} {each.found.tool:<10} {said}  ({each.found.why})")))
    for note in made.notes:
        click.echo(f"  {words.safe(note)}")
    click.echo("next: say in it what you want done, then loopwright run --dry-run")


@click.command("doctor")
@as_json
@places
def doctor_(json_: bool, folder: str, store: str | None) -> int:
    """Say whether all is well here, and what to do.

    It reads only. Exit 0 when nothing fails, else 2; a warning fails nothing.
    """
    from dataclasses import asdict

    from loopwright.begin.doctor import examine

    with no_bytecode():
        found = examine(enter(folder), dict(os.environ), store)
    code = 2 if any(each.status == "fail" for each in found) else 0
    if json_:
        checks = [asdict(each) for each in found]
        emit({"schema": "loopwright/doctor/v1", "healthy": code == 0, "checks": checks, "exit_code": code})
        return code
    marks = {"ok": "✓", "warn": "!", "fail": "✗"}
    wide = max(len(each.name) for each in found)
    for each in found:
        click.echo(words.plain(words.safe(f"{marks[each.status]} {each.name:<{wide}}  {each.what}")))
        if each.do:
            click.echo(words.plain(words.safe(f"  {'':<{wide}}  → {each.do}")))
    return code
