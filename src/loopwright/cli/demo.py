"""The demo: a loop repairs a small program, refuses a cheat, and leaves its folder to look around in.

Rule: what it shows are ordinary runs of an ordinary loop file; nothing is staged but the bugs.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from loopwright.calling import alone
from loopwright.cli import words
from loopwright.cli.view import View, fancy
from loopwright.cli.where import Where, enter
from loopwright.config import load
from loopwright.demo.stage import add_project, set_up, tools_path
from loopwright.hosts.local import start
from loopwright.hosts.ways import Held, Ways


@click.command("demo")
@click.option("-C", "folder", metavar="DIR", default=".", help="Make loopwright-demo/ in DIR.")
def demo_(folder: str) -> int:
    """Watch a loop repair a small program: offline, in a minute."""
    environ = {**os.environ, "PATH": tools_path(os.environ.get("PATH", ""), sys.executable)}
    environ.pop("LOOPWRIGHT_RUN", None)
    place = set_up(enter(folder))
    view = View()
    view.line("Act 1. A small program with four bugs and some lint. An agent searches for one fix per call;")
    view.line("pytest and ruff judge; the loop stops when both pass.")
    mended = _play(add_project(place, "pocket"), "repair", environ, view)
    view.line("")
    view.line(
        "Act 2. The same loop with an agent that rewrites the tests. They are protected: put back, judged again."
    )
    refused = _play(
        add_project(place, "cheated"), "cheat", environ, view, agent="python -m loopwright.demo.cheat"
    )
    view.line("")
    view.line("Act 3. Yours. Everything is kept in loopwright-demo/; try")
    where = Path(os.path.relpath(place, Path.cwd())) / "pocket"
    named = Path(sys.argv[0]).name == "loopwright" and not shutil.which("loopwright")
    program = sys.argv[0] if named else "loopwright"  # as it was called, where PATH does not find it
    for verb in (
        f"{program} show repair -C {where}",
        f"{program} diff repair -C {where}",
        f"{program} why cheat -C {where.parent}/cheated",
    ):
        view.line(f"  {verb}")
    return 0 if mended.exit_code == 0 and refused.exit_code in {3, 4} else 1


def _play(project: Path, run: str, environ: dict[str, str], view: View, **flags: Any) -> Held:
    loaded = load("loop.toml", folder=project, path=environ["PATH"], flags=flags)
    ways = Ways(
        project=project,
        environ=environ,
        observe=(view.see,),
        hear=view.hear if fancy() else None,
        begin=view.begin,
        tell=view.line,
        origin="demo",
    )
    with view.live():
        held = alone(lambda: start(loaded.loop, run, ways))
    for line in words.three_lines(held.state, Where(project, None)):
        view.line(line)
    return held
