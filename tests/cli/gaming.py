"""Loops for the table of gaming: the agent is a list of deeds, one per iteration, done in the folder.

Rule: the loops are real (own git, own processes for the gates); only the agent runs in this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopwright import Final, Loop, run
from loopwright.core import events as ev
from loopwright.core.values import Result, Usage, Worked
from loopwright.ports import Agent

Deed = Callable[[Path], Any]
PYTEST: Mapping[str, Any] = {
    "use": "pytest",
    "python": sys.executable,
}  # takes 1.5 s: its bytecode is not kept
TESTS = Path(__file__).with_name("counted_tests.py")
DONE = {"work.txt": "done\n"}


def put(files: Mapping[str, str]) -> Deed:
    """Writes these files."""

    def deed(root: Path) -> None:
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)

    return deed


def both(*deeds: Deed) -> Deed:
    """One after another."""
    return lambda root: [deed(root) for deed in deeds]


def remove(path: str) -> Deed:
    """Deletes a file."""
    return lambda root: (root / path).unlink()


def git(root: Path, *words: str) -> None:
    """git as the agent or user would call it."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *who, *words], cwd=root, env=env, check=True, capture_output=True)


def commit(root: Path) -> None:
    """Commits everything."""
    git(root, "add", "-A")
    git(root, "commit", "-qm", "work")


@dataclass(frozen=True)
class Played:
    """What came of a loop."""

    final: Final
    facts: list[ev.Event]

    def of(self, kind: type) -> list[Any]:
        """The facts of one kind."""
        return [fact for fact in self.facts if isinstance(fact, kind)]

    @property
    def blockers(self) -> list[tuple[str, ...]]:
        """What each verdict was blocked by, iteration 0 included."""
        return [fact.verdict.blockers for fact in self.of(ev.Judged)]

    @property
    def actions(self) -> list[tuple[str, tuple[str, ...]]]:
        """What was done about evidence, with the paths."""
        return [(fact.action, fact.paths) for fact in self.of(ev.EvidenceChanged)]


def play(root: Path, gates: Sequence[Any], *deeds: Deed, says: str = "worked", **more: Any) -> Played:
    """A loop with an iteration for each deed."""
    left = list(deeds)

    async def call(_asked: Any, _place: Any) -> Worked:
        left.pop(0)(root)
        return Worked(result=Result(output=says, usage=Usage()))

    facts: list[ev.Event] = []
    options = {"max_iterations": len(deeds), "baseline": False, "monitors": {"stall": "off"}, **more}
    loop = Loop("g", agent=Agent(name="gamer", call=call), gates=gates, **options)
    return Played(run(loop, "r", folder=root, observe=facts.append), facts)
