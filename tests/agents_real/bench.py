"""The bench: a project, a scratch home, a scripted server for models, and one real CLI that loopwright loops.

Rule: nothing is simulated but the model. Everything the CLI may reach is on loopback: its home and its folders for
configuration are new, its key is no key, and the proxies that it is told of are a port nobody listens on.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "cli"))
sys.path.append(str(Path(__file__).parents[1] / "llm"))

from dialects import Dialect, Turn
from fake_script import Script
from fakellm import Fake
from stage import Ran, Stage

AGENTS = Path(__file__).parents[2] / ".venv" / "agents"
DEAD = "http://127.0.0.1:9"  # the port of the discard service: nobody listens
KEY = "sk-not-a-key"
LONG_S = 240.0  # for a run of CLIs that try again by themselves, on a machine that has other work, too

WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
TESTS = "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
CHECK = "python -S check.py"
CHECKED = "from calc import add\n\nassert add(2, 3) == 5, f'it is {add(2, 3)}'\n"
LIMITS = {
    "max_iterations": 3,
    "attempts": 1,
    "max_consecutive_errors": 1,
    "attempt_timeout": 60,
    "idle_timeout": 60,
    "grace": 3,
    "backoff.first": 0.5,
    "backoff.max": 2,
}


@dataclass(frozen=True)
class Denied:
    """What `trust = "edit"` does not let it do: a command, the file it would make, the word of `allow` that lets it."""

    command: str
    makes: str
    word: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One adapter: how a loop file names it, what its CLI needs, how its model talks, what it can do."""

    name: str
    program: str
    dialect: Dialect
    agent: dict[str, Any]  # as the table `agent = {…}` of a loop file
    setting: Callable[[str, Path], dict[str, str]]  # (server, home): variables; may write files into the home
    price: tuple[float, float]  # US dollars for a million tokens in, and out
    limit: Callable[[datetime], dict[str, Any]] = lambda _: {}  # the error of a usage limit with this reset
    denied: Denied | None = None
    tries: int = 1  # how often it asks before it gives up at a fault, as loopwright runs it
    tokens: bool = True  # whether it tells those of an attempt
    can: frozenset[str] = frozenset()  # shell, deny, looks, session, cut, resets, waits: see README.md

    def usd(self, turns: int, tokens_in: int | None = None) -> float:
        """What so many turns of a script cost that say nothing of what they use."""
        tokens = turns * 100 if tokens_in is None else tokens_in
        return (tokens * self.price[0] + turns * 20 * self.price[1]) / 1e6


def missing(row: Row) -> str:
    """Why this CLI cannot be tried, or nothing."""
    note = AGENTS / f"{row.program}.failed"
    if note.exists():
        return " ".join(note.read_text().split())[-300:]
    return "" if (AGENTS / "bin" / row.program).exists() else "it is not installed: make test-agents"


def adapter(row: Row) -> str:
    """Why there is no adapter to try, or nothing."""
    found = find_spec(f"loopwright.agents.{row.agent['use']}")
    return "" if found else f"loopwright has no adapter {row.agent['use']}"


@dataclass
class Bench:
    """One CLI beside one scripted server."""

    row: Row
    stage: Stage
    home: Path
    fake: Fake
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def made(cls, row: Row, tmp_path: Path, fake: Fake) -> Bench:
        """A project whose one test fails, committed, and an empty home."""
        stage = Stage.made(tmp_path)
        bench = cls(row, stage, tmp_path / "home", fake)
        (bench.home / "tmp").mkdir(parents=True)
        stage.write("calc.py", WRONG)
        stage.write("test_calc.py", TESTS)
        stage.write("check.py", CHECKED)
        for argv in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "it is wrong")):
            stage.git(*argv)
        stage.env = bench.environment(fake.url)
        return bench

    def environment(self, server: str) -> dict[str, str]:
        """All that loopwright, and so the CLI, is given."""
        path = [AGENTS / "bin", Path(sys.executable).parent, *os.environ["PATH"].split(":")]
        home = str(self.home)
        proxies = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        return {
            **dict.fromkeys((*proxies, *(name.lower() for name in proxies)), DEAD),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
            "PATH": ":".join(map(str, path)),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "HOME": home,
            "TMPDIR": f"{home}/tmp",  # a Codex whose home is below it has no sandbox: it can run nothing
            "XDG_CONFIG_HOME": f"{home}/.config",
            "XDG_DATA_HOME": f"{home}/.local/share",
            "XDG_STATE_HOME": f"{home}/.local/state",
            "XDG_CACHE_HOME": f"{home}/.cache",
            "IS_SANDBOX": "1",
            "BENCH_MARK": self.mark,
            **self.row.setting(server, self.home),
        }

    def loop(
        self,
        *,
        goal: str = "mend calc.py",
        gates: str = CHECK,
        limits: Mapping[str, float] | None = None,
        **options: Any,
    ) -> None:
        """Writes loop.toml; `options` are of the agent."""
        agent = {**self.row.agent, **options}
        table = ", ".join(f"{key} = {json.dumps(value)}" for key, value in agent.items())
        bounds = "\n".join(f"{key} = {value}" for key, value in {**LIMITS, **(limits or {})}.items())
        top = f"goal = {json.dumps(goal)}\nagent = {{ {table} }}\ngates = [{json.dumps(gates)}]\n"
        self.stage.write("loop.toml", f"{top}[limits]\n{bounds}\n")

    def run(self, *args: str) -> tuple[Ran, float]:
        """`loopwright run` of that loop as run `r`, and the seconds it took."""
        begun = time.monotonic()
        with self.stage.started("run", "loop.toml", "--as", "r", "--json", *args) as process:
            out, err = process.communicate(LONG_S)
            ran = Ran(process.wait(), out, err)
        assert "Traceback" not in err, err
        return ran, time.monotonic() - begun

    def script(self, *turns: Turn, **rest: Any) -> None:
        """What the model says from now on."""
        self.fake.script = Script({"turns": list(turns), "sides": list(self.row.dialect.sides), **rest}, {})

    def mends(self, old: str = WRONG, new: str = RIGHT) -> list[Turn]:
        """The turns of an attempt that writes `new` over `old` in calc.py."""
        change = self.row.dialect.change(str(self.stage.folder), "calc.py", old, new)
        return self.row.dialect.attempt(change)

    def shells(self, *commands: str) -> list[Turn]:
        """The turns of an attempt that runs these commands."""
        assert self.row.dialect.shell is not None
        return self.row.dialect.attempt(*(self.row.dialect.shell(command) for command in commands))

    def asked(self) -> list[dict[str, Any]]:
        """The requests that took a turn of the script."""
        return [
            e for e in self.fake.entries if str(e.get("answer", "")).startswith(("turn", "repeat", "exh"))
        ]

    def alive(self) -> list[str]:
        """The command lines of processes that still carry this bench's mark."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with suppress(OSError):
                    if f"BENCH_MARK={self.mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                        words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                        found.append(f"{entry.name} {words}")
        return found

    def ended(self, seconds: float) -> list[str]:
        """What is still alive after so long; returns as soon as nothing is."""
        end = time.monotonic() + seconds
        while (left := self.alive()) and time.monotonic() < end:
            time.sleep(0.02)
        return left
