"""A workspace in which an agent misbehaves through a whole run, held in this process.

Rule: the agent is a real process in a real folder; what came of it is its ending, its facts and the disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopwright.calling import alone
from loopwright.core import events as ev
from loopwright.hosts.door import Final, final
from loopwright.hosts.local import start
from loopwright.hosts.ways import Ways
from loopwright.loop import Loop
from loopwright.supervise import sweep

CASES = Path(__file__).parents[1] / "cases"
GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_NAME": "u" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "u@example.invalid" for who in ("AUTHOR", "COMMITTER")},
}


@dataclass
class Case:
    """A workspace, and runs of a case file in it."""

    folder: Path
    name: str = "r"
    environ: dict[str, str] = field(
        default_factory=lambda: {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **GIT}
    )
    facts: list[ev.Event] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def run(self, name: str, *gates: Any, options: dict[str, Any] | None = None, **said: Any) -> Final:
        """The ending of a run with that agent; gates are `true` unless said."""
        self.facts.clear()
        agent = {"use": "command", "run": [str(CASES / "agents" / name)], **(options or {})}
        usual = {"max_iterations": 1, "grace": "200ms", "backoff": {"first": "10ms", "max": "20ms"}}
        loop = Loop("g", agent=agent, gates=list(gates or ("true",)), **{**usual, **said})
        ways = Ways(
            project=self.folder,
            environ=self.environ,
            observe=(self.facts.append,),
            tell=self.told.append,
        )
        end = final(alone(lambda: start(loop, self.name, ways)))
        assert sweep({"LOOPWRIGHT_WORKDIR": str(self.folder)}) == 0, "something lives"
        return end

    def of(self, *kinds: type) -> list[Any]:
        """The facts of these kinds."""
        return [fact for fact in self.facts if isinstance(fact, kinds)]

    @property
    def kinds(self) -> list[str]:
        """The kinds of the failed attempts."""
        return [fact.kind for fact in self.of(ev.AttemptFailed)]

    @property
    def worked(self) -> ev.AttemptSucceeded:
        """The one attempt, which succeeded."""
        assert self.kinds == []
        (fact,) = self.of(ev.AttemptSucceeded)
        return fact

    @property
    def log(self) -> bytes:
        """What the first attempt printed."""
        return (self.folder / ".agent-state/artifacts" / self.name / "0001/attempt-1/agent.log").read_bytes()

    def git(self, *args: str) -> str:
        """git as the user would call it."""
        return subprocess.run(
            ["git", *args], cwd=self.folder, env=self.environ, capture_output=True, text=True, check=True
        ).stdout

    def repository(self) -> None:
        """The workspace is a repository with one commit."""
        (self.folder / "old.txt").write_text("old\n")
        self.git("init", "-q", "-b", "main")
        self.git("add", ".")
        self.git("commit", "-qm", "first")


def judged(case: Case) -> list[int]:
    """The iterations whose gates ran."""
    number, found = 0, []
    for fact in case.facts:
        if isinstance(fact, ev.AttemptStarted):
            number = fact.iteration
        if isinstance(fact, ev.Judged):
            found.append(number)
    return found
