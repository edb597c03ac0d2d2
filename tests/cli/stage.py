"""A stage for the program itself: a folder, a scripted agent, and what came of it on disk.

Rule: `loopwright` runs as a process of its own (forked from one that has it loaded: warm.py), with a small environment
and no HOME. What it did is read from its exit code, its two streams and the journal; nothing sleeps where something
can be waited for.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from warm import Begun, begun, called

from loopwright import codec
from loopwright.core import events as ev
from loopwright.journal import Journal, history
from loopwright.stores.sqlite import SqliteStore

SCRIPTED = Path(__file__).parents[1] / "agents" / "scripted.py"
PYTHON = f"{sys.executable} -I -S"
WORK: dict[str, Any] = {"append": {"work.txt": "{call}\n"}, "say": "worked"}
FREE = {"result": {"summary": "worked", "cost_usd": 0.0, "tokens": 0}}
AT_START = ("PYTHON", "LC_", "LANG", "TZ")  # what Python reads only while it starts
T = TypeVar("T")


def until(holds: Callable[[], T], seconds: float = 30.0) -> T:
    """The first true value of `holds`, looked at often; fails when there is none in time."""
    end = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < end, f"nothing came of it within {seconds} s"
        time.sleep(0.005)
    return value


def environment() -> dict[str, str]:
    """All that the program gets: where tools are, and which loopwright is tested."""
    names = ("PATH", "PYTHONPATH")
    return {"LANG": "C.UTF-8", **{name: os.environ[name] for name in names if name in os.environ}}


@dataclass
class Ran:
    """How a call of the program went."""

    code: int
    out: str
    err: str

    @property
    def doc(self) -> Any:
        """Its one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """The three lines that every ending prints: what, why, next."""
        return self.err.splitlines()[-3:]


@dataclass
class Stage:
    """A workspace with a scripted agent and no HOME."""

    folder: Path
    plan: Path
    env: dict[str, str] = field(default_factory=environment)

    @classmethod
    def made(cls, tmp_path: Path, *calls: dict[str, Any]) -> Stage:
        """A stage below `tmp_path`; the agent makes these calls, by default each adds a line to work.txt."""
        stage = cls(tmp_path / "work", tmp_path / "plan.json")
        stage.folder.mkdir()
        stage.script(*calls or (WORK,))
        return stage

    def script(self, *calls: dict[str, Any]) -> None:
        """What the agent does from its next call on; its counter starts anew."""
        self.plan.write_text(json.dumps(calls))
        self._beside("calls").unlink(missing_ok=True)

    @property
    def agent(self) -> str:
        """The scripted agent as a command."""
        return f"{PYTHON} {SCRIPTED} {self.plan}"

    @property
    def calls(self) -> list[str]:
        """The agent's calls so far: `KEY ATTEMPT`."""
        log = self._beside("calls")
        return log.read_text().splitlines() if log.exists() else []

    def _beside(self, end: str) -> Path:
        return self.plan.with_name(f"{self.plan.name}.{end}")

    def go(self) -> None:
        """Lets a held agent end."""
        self._beside("go").touch()

    def held(self, process: Begun | None = None) -> None:
        """Waits until the agent holds, and forgets that it did."""
        mark = self._beside("held")
        until(lambda: mark.exists() or (process is not None and process.poll() is not None))
        assert mark.exists(), process and process.communicate()[1]
        mark.unlink()

    def command(self, *args: str) -> list[str]:
        """The program with these arguments."""
        return [sys.executable, "-m", "loopwright", *args]

    def __call__(self, *args: str, expect: int | None = None, **env: str) -> Ran:
        """Calls the program in the folder and waits for it."""
        given, usual = {**self.env, **env}, environment()
        alike = all(given[name] == usual.get(name) for name in given if name.startswith(AT_START))
        ran = Ran(*called([*args], self.folder, given)) if alike else self.anew(given, *args)
        assert "Traceback" not in ran.err, ran.err
        assert expect is None or ran.code == expect, f"exit {ran.code}\n{ran.err}\n{ran.out}"
        return ran

    def anew(self, env: dict[str, str], *args: str) -> Ran:
        """The same with a Python of its own from the start."""
        done = subprocess.run(
            self.command(*args),
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def started(self, *args: str) -> Iterator[Begun]:
        """The program, started and left running; killed at the end of the block if it still runs."""
        process = begun([*args], self.folder, self.env)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def run(self, *args: str, gate: str | None = "false", expect: int | None = None) -> Ran:
        """`run` with the scripted agent as run `r`, quick and with one JSON document."""
        return self(*self.loop(*args, gate=gate), "--json", expect=expect)

    def loop(self, *args: str, gate: str | None = "false") -> list[str]:
        """The arguments of `run`: goal, agent, a gate, and the run's id `r`."""
        gates = ["--gate", gate] if gate else []
        return ["run", "--goal", "g", "--agent", self.agent, *gates, "--as", "r", *args]

    def file(self, text: str) -> str:
        """A loop file with the scripted agent and a goal; `text` is the rest of it."""
        self.write("loop.toml", f"goal = 'g'\nagent = '{self.agent}'\n{text}\n")
        return "loop.toml"

    def facts(self, run: str = "r") -> list[ev.Event]:
        """Every fact on record about a run; none when there is no store yet."""
        return [event for _, event in self.timed(run)]

    def timed(self, run: str = "r") -> list[tuple[Any, ev.Event]]:
        """The same, each with when it happened."""
        path = self.folder / ".agent-state/loopwright.db"
        if not path.exists():
            return []
        store = SqliteStore(path)
        try:
            return [(at, event) for _, at, event, _ in history(store, run)]
        finally:
            store.close()

    def of(self, kind: type[T], run: str = "r") -> list[T]:
        """The facts of one kind."""
        return [fact for fact in self.facts(run) if isinstance(fact, kind)]

    def state(self, run: str = "r") -> Any:
        """The fold of a run, as plain data."""
        store = SqliteStore(self.folder / ".agent-state/loopwright.db")
        try:
            return codec.plain(Journal(store, run).state)
        finally:
            store.close()

    def signal(self, key: str, event: ev.Event, run: str = "r") -> None:
        """Leaves a signal for a run, as another process would."""
        store = SqliteStore(self.folder / ".agent-state/loopwright.db")
        try:
            assert store.signal(run, key, codec.encode_signal(event))
        finally:
            store.close()

    def write(self, name: str, text: str) -> Path:
        """A file of the workspace."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def git(self, *args: str) -> str:
        """git as the user would call it."""
        identity = ("-c", "user.name=u", "-c", "user.email=u@example.invalid")
        env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *identity, *args], cwd=self.folder, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout

    def processes(self) -> list[int]:
        """Processes of the scripted agent that are alive."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if os.fsencode(str(SCRIPTED)) in words and os.fsencode(str(self.plan)) in words:
                    found.append(int(entry.name))
        return found


def files(folder: Path) -> list[str]:
    """Everything in a folder, for `nothing half-created`."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def tools(folder: Path) -> str:
    """A PATH of this one new folder, with no more in it than every system has: what else is installed here is unknown."""
    folder.mkdir()
    for name in ("sh", "git", "true", "false", "sleep"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return str(folder)
