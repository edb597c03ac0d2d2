"""The first verbs in a project: init, doctor.

Rule: nothing is asked. `init` writes one new file, `doctor` none.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loopwright.calling import alone
from loopwright.cli import words
from loopwright.cli.read import emit
from loopwright.cli.view import View
from loopwright.cli.where import as_json, enter, no_bytecode, places
from loopwright.errors import UsageError

if TYPE_CHECKING:
    from loopwright.begin.findings import Finding


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
@click.argument("what", nargs=-1)
@click.option("--send", is_flag=True, help="With slack: post a test card.")
@as_json
@places
def doctor_(what: tuple[str, ...], send: bool, json_: bool, folder: str, store: str | None) -> int:
    """Say whether all is well here, and what to do.

    It reads only. Exit 0 when nothing fails, else 2; a warning fails nothing. `doctor slack [LOOPFILE]` prints the
    manifest of a Slack app and looks whether Slack can be reached with it.
    """
    from loopwright.begin.doctor import examine

    if what:
        return _slack(what, enter(folder), send=send, json_=json_)
    if send:
        raise UsageError("--send posts a test card: loopwright doctor slack --send")
    with no_bytecode():
        found = examine(enter(folder), dict(os.environ), store)
    return _found(found, json_=json_)


def _slack(what: tuple[str, ...], folder: Path, *, send: bool, json_: bool) -> int:
    from loopwright.begin.slack import examine

    if what[0] != "slack" or len(what) > 2:
        raise UsageError(
            f"doctor {' '.join(what)}: it is loopwright doctor, or loopwright doctor slack [LOOPFILE]"
        )
    with no_bytecode():
        manifest, found = examine(folder, what[1] if len(what) > 1 else None, dict(os.environ), send=send)
    if not json_:
        emit(manifest)
        click.echo("The manifest is for api.slack.com/apps: Create New App, From a manifest.", err=True)
    return _found(found, json_=json_, err=True, manifest=manifest)


def _found(found: list[Finding], *, json_: bool, err: bool = False, **more: Any) -> int:
    """Prints what was found, beside a document on stderr; the exit code."""
    code = 2 if any(each.status == "fail" for each in found) else 0
    if json_:
        checks = [asdict(each) for each in found]
        document = {
            "schema": "loopwright/doctor/v1",
            "healthy": code == 0,
            "checks": checks,
            "exit_code": code,
        }
        emit({**document, **more})
        return code
    marks = {"ok": "✓", "warn": "!", "fail": "✗"}
    wide = max(len(each.name) for each in found)
    for each in found:
        line = f"{marks[each.status]} {each.name:<{wide}}  {each.what}"
        click.echo(words.plain(words.safe(line)), err=err)
        if each.do:
            click.echo(words.plain(words.safe(f"  {'':<{wide}}  → {each.do}")), err=err)
    return code
