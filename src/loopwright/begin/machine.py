"""Probes of the machine: programs, clock, environment, terminal.

Rule: a program is only asked for its version, or to do nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final

from loopwright.begin.findings import Finding, Here, Status
from loopwright.begin.tools import CODERS, wanted
from loopwright.config import Loaded
from loopwright.errors import WorkspaceError
from loopwright.figures import brief
from loopwright.supervise import child_environment, tool_path
from loopwright.workspace.plumbing import find_git

ASK_S: Final = 8.0  # for a program that is asked for its version
_OLDEST: Final = (3, 11)
_BUILT: Final = datetime(2025, 1, 1, tzinfo=UTC)  # no clock that is right is before this


def python(here: Here) -> Iterator[Finding]:
    """The Python that runs loopwright."""
    del here
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _OLDEST:
        yield Finding(name="python", status="fail", what=version, do="install Python 3.11 or newer")
    else:
        yield Finding(name="python", status="ok", what=f"{version} ({sys.executable})")


def git(here: Here) -> Iterator[Finding]:
    """Git, which snapshots need."""
    del here
    try:
        program, version = find_git()
    except WorkspaceError as error:
        do = "install git 2.30 or newer: without it there are no snapshots, and no diff, restore or apply"
        yield Finding(name="git", status="warn", what=str(error), do=do)
    else:
        yield Finding(name="git", status="ok", what=f"{'.'.join(map(str, version))} ({program})")


def clock(here: Here) -> Iterator[Finding]:
    """The clock: facts are dated by it."""
    del here
    now = datetime.now(UTC)
    if now < _BUILT:
        yield Finding(name="clock", status="fail", what=f"it says {now:%Y-%m-%d}", do="set the clock")
    else:
        yield Finding(name="clock", status="ok", what=f"{now:%Y-%m-%d %H:%M:%S} UTC")


def coders(here: Here) -> Iterator[Finding]:
    """The coding agents that are known by name, with their versions."""
    path = tool_path(here.project, here.path)
    there = [(name, found) for name in CODERS if (found := shutil.which(name, path=path))]
    if not there:
        names = ", ".join(CODERS)
        what = f"no coding agent is on PATH ({names})"
        yield Finding(
            name="agents", status="warn", what=what, do="install one, or name your own command as agent"
        )
    with ThreadPoolExecutor(len(CODERS)) as pool:
        asked = pool.map(lambda each: _asked((each[1], "--version"), here), there)
        for (name, found), (code, said) in zip(there, asked, strict=True):
            yield _version(name, found, code, said)
    for name in CODERS:
        if name not in dict(there):
            what = f"{name} is not here; to get it: {wanted(name)[0]}"
            yield Finding(name="agents", status="ok", what=what)


def _version(name: str, found: str, code: int | None, said: str) -> Finding:
    """A coding agent that is here, by what it answered when it was asked for its version."""
    if code != 0:
        what = f"{name} at {found} does not say its version: {said}"
        return Finding(name="agents", status="warn", what=what, do=f"try {name} --version")
    get, least = wanted(name)
    numbers = tuple(int(part) for part in re.findall(r"\d+", said)[: len(least)])
    if numbers and numbers < least:
        oldest = ".".join(map(str, least))
        what = f"{name} {said} ({found}) is older than {oldest}, the oldest that is known"
        return Finding(name="agents", status="warn", what=what, do=get)
    return Finding(name="agents", status="ok", what=f"{name} {said} ({found})")


def sandbox(here: Here) -> Iterator[Finding]:
    """Bubblewrap, where a loop may want it."""
    loaded = here.loaded
    wanted = isinstance(loaded, Loaded) and loaded.loop.sandbox == "bwrap"
    bad: Status = "fail" if wanted else "warn"
    do = 'install bubblewrap, or leave sandbox = "bwrap" out'
    program = shutil.which("bwrap", path=here.path)
    if program is None:
        what = "bwrap is not installed; only sandbox needs it"
        yield Finding(name="sandbox", status=bad if wanted else "ok", what=what, do=do if wanted else "")
        return
    code, said = _asked((program, "--ro-bind", "/", "/", "true"), here)
    if code == 0:
        yield Finding(name="sandbox", status="ok", what=f"bwrap works ({program})")
    else:
        yield Finding(name="sandbox", status=bad, what=f"bwrap cannot make a sandbox here: {said}", do=do)


def environment(here: Here) -> Iterator[Finding]:
    """What loopwright reads from the environment, and what agents are not shown of it."""
    ours = sorted(name for name in here.environ if name.startswith("LOOPWRIGHT_"))
    if run := here.environ.get("LOOPWRIGHT_RUN"):
        do = "type verbs that decide about runs in a shell of your own"
        yield Finding(name="environment", status="warn", what=f"this is inside run {run}", do=do)
    elif ours:
        yield Finding(name="environment", status="ok", what=f"set: {', '.join(ours)}")
    withheld = [name for name in child_environment(here.environ)[1] if name not in ours]
    names = f"withheld from agents: {', '.join(withheld)}" if withheld else "no name looks like a secret"
    yield Finding(name="environment", status="ok", what=names)


def terminal(here: Here) -> Iterator[Finding]:
    """Whether a person can be asked, and drawn for, here."""
    reads, shows = sys.stdin is not None and sys.stdin.isatty(), sys.stderr.isatty()
    plain = [name for name in ("NO_COLOR", "CI") if here.environ.get(name)]
    plain += ["TERM=dumb"] if here.environ.get("TERM") == "dumb" else []
    asked = "people are asked here" if reads and shows else "no terminal: nobody is asked here"
    drawn = "" if not shows else f"; plain lines ({', '.join(plain)})" if plain else "; drawn"
    yield Finding(name="terminal", status="ok", what=asked + drawn)


def _asked(argv: Sequence[str], here: Here) -> tuple[int | None, str]:
    """The exit code of a program that was asked something, and the first line it said."""
    try:
        done = subprocess.run(
            argv,
            cwd="/",
            env=child_environment(here.environ)[0],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {ASK_S:.0f} s"
    except OSError as error:
        return None, os.strerror(error.errno or 0)
    said = brief((done.stdout or done.stderr).decode(errors="replace"), 80)
    version = re.search(r"\d+(\.\d+)+\S*", said) if done.returncode == 0 else None
    return done.returncode, version[0] if version else said or f"exit {done.returncode}"
