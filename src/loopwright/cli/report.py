"""The verb report, and the summary that GitHub shows of a step.

Rule: the environment is read here; what cannot be written for GitHub is a line on stderr, never another
exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from loopwright.cli import words
from loopwright.cli.where import Where, enter, find, opened, places, the_run
from loopwright.errors import LoopwrightError, UsageError, WorkspaceError
from loopwright.hosts.ways import STATE
from loopwright.idempotency import write_once
from loopwright.journal import history
from loopwright.ports import Store
from loopwright.redact import redactor
from loopwright.report.gather import gather
from loopwright.report.html import html
from loopwright.report.json import json
from loopwright.report.junit import junit
from loopwright.report.markdown import markdown
from loopwright.report.values import Changes, Report
from loopwright.workspace.opened import Workspace, open_workspace, shown

FORMATS: Final[Mapping[str, tuple[str, Callable[[Report, str], str]]]] = {
    "md": ("report.md", lambda report, step: markdown(report, next_step=step)),
    "html": ("report.html", lambda report, step: html(report, next_step=step)),
    "json": ("report.json", lambda report, step: json(report, next_step=step)),
    "junit": ("junit.xml", lambda report, _: junit(report)),
}
SUMMARY_BYTES: Final = 1024 * 1024  # of one step's summary; GitHub drops a larger one whole


@click.command("report")
@click.argument("run")
@click.option(
    "--format",
    "formats",
    metavar="md,html,json,junit",
    help="One or more of them; without -o one, by default md.",
)
@click.option("-o", "--output", metavar="DIR", help="Write files into DIR: all four, or those of --format.")
@places
def report_(run: str, formats: str | None, output: str | None, folder: str, store: str | None) -> None:
    """Write RUN down for others: text, page, data, CI."""
    names = _names(formats, output)
    where = find(folder, store)
    with opened(where) as runs:
        found = gathered(where, runs, the_run(runs, run))
    step = words.next_of(found.state)
    secrets = redactor(os.environ)  # facts hold none, the text of diffs may
    if output is None:
        click.echo(secrets.text(FORMATS[names[0]][1](found, step)), nl=False)
        return
    place = enter(folder) / output
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            file, written = FORMATS[name]
            write_once(place / file, secrets.text(written(found, step)))
            click.echo(os.path.join(output, file))  # noqa: PTH118 - as it was typed
    except OSError as error:
        raise UsageError(f"-o {output}: {error.strerror or error}") from None


def _names(formats: str | None, output: str | None) -> list[str]:
    if formats is None:
        return ["md"] if output is None else list(FORMATS)
    names = list(dict.fromkeys(part.strip() for part in formats.split(",")))
    if unknown := [name for name in names if name not in FORMATS]:
        raise UsageError(f"--format {unknown[0]}: the formats are {', '.join(FORMATS)}")
    if output is None and len(names) > 1:
        raise UsageError(f"--format {formats}: several formats are files, so say where with -o DIR")
    return names


def gathered(where: Where, store: Store, run: str) -> Report:
    """The report of a run, with what its snapshots say has changed where they can be read."""
    workspace: Workspace | None
    try:
        workspace = open_workspace("in_place", where.project, where.project / STATE, run)
    except WorkspaceError:  # the facts are there all the same
        workspace = None

    def diff(old: str, new: str) -> Changes | None:
        try:
            found = None if workspace is None else workspace.diff(old, new)
        except WorkspaceError:  # a snapshot that git has cleaned up
            return None
        if found is None:
            return None
        return Changes(
            files=len(found.files),
            added=found.added,
            removed=found.removed,
            paths=tuple((f.status, shown(f.path), f.added, f.removed) for f in found.files[:1000]),
            patch=found.text,
        )

    report = gather(history(store, run), diff)
    return replace(report, alone=words.left(report.state))


def summarize(run: str, where: Where) -> None:
    """Adds the report to the summary of this step of a GitHub workflow, when this is one."""
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if os.environ.get("GITHUB_ACTIONS") != "true" or not target:
        return
    try:
        path = Path(target)
        left = SUMMARY_BYTES - (path.stat().st_size if path.exists() else 0)
        if left < 2000:
            raise UsageError("it is full: a step's summary may have 1 MiB")
        with opened(where) as runs:
            report = gathered(where, runs, the_run(runs, run))
        # A tenth is kept free: a tag may be longer than the secret it stands for.
        text = markdown(report, next_step=words.next_of(report.state), most=left * 9 // 10)
        text = redactor(os.environ).text(text)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n{text}")
    except (LoopwrightError, OSError) as error:
        print(f"loopwright: no summary for GitHub: {words.safe(str(error))}", file=sys.stderr)
