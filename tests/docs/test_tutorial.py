"""The tutorial is typed as it stands, command by command, into two shells; what it shows is what they print.

A block of `sh` that begins with "# second terminal" goes to the other shell. Each line of a `text` block must have been
printed since the last one; lengths, times and ids count as alike. Where a reader looks at the screen and waits, the
test waits for the same thing in the journal.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cli"))

from stage import until

from loopwright.core import events as ev
from loopwright.journal import history
from loopwright.stores.sqlite import SqliteStore

PAGE = (Path(__file__).parents[2] / "docs/tutorial.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECOND = "# second terminal\n"
LIMIT_S = 60


class Shell:
    """A terminal: a shell that is left open, and all that it printed."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["sh"], cwd=folder, env=env, text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self.printed: list[str] = []
        self.codes: list[int] = []
        self.typed: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            if line.startswith("@@exit "):
                self.codes.append(int(line.split()[1]))
            else:
                self.printed.append(line.rstrip("\n"))

    def type(self, command: str) -> None:
        """Types a command; what was typed before must have ended."""
        self.ended()
        self.typed.append(command)
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\necho @@exit $?\n")

    @property
    def busy(self) -> bool:
        """Whether a command is under way."""
        return len(self.codes) < len(self.typed)

    def ended(self) -> None:
        """Waits for the command under way, which must have exited as the page says."""
        until(lambda: time.sleep(0.02) or not self.busy, LIMIT_S)
        for command, code in zip(self.typed, self.codes, strict=True):
            promised = re.search(r"# exit (\d+)$", command)
            assert code == (int(promised[1]) if promised else 0), f"{command}\n" + "\n".join(self.printed)

    def close(self) -> None:
        """Ends it with what it left running."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self.busy:
            os.killpg(self.process.pid, 9)
        self.process.wait(LIMIT_S)
        self.reader.join(LIMIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def commands(block: str) -> list[str]:
    """The commands of a block: a line each, with its here-document."""
    found, end = [], None
    for line in block.splitlines():
        if end is None:
            found.append(line)
            begins = re.search(r"<<'(\w+)'$", line)
            end = begins[1] if begins else None
        else:
            found[-1] += f"\n{line}"
            end = None if line == end else end
    assert end is None
    return found


def alike(line: str) -> str:
    """A line without what differs between two evenings: lengths, times, people."""
    line = re.sub(r"\b\d\d:\d\d:\d\d\b", "TIME", line)
    line = re.sub(r"\b\d+h\d\dm\b|\b\d+m\d\ds\b|\b\d+(\.\d)?[smh]\b", "LONG", line)
    line = re.sub(r"\bby .* \((cli|terminal)\)", r"by SOMEBODY (\1)", line)
    return re.sub(r" +(?=LONG)", " ", line)


class Evening:
    """The two terminals and the journal."""

    def __init__(self, folder: Path) -> None:
        env = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "LANG": "C.UTF-8",
        }
        self.folder = folder
        self.first, self.second = Shell(folder, env), Shell(folder, env)
        self.seen = [0, 0]

    def facts(self) -> list[ev.Event]:
        """What is on record about the run of the night, not asked for all the time: others have work to do."""
        time.sleep(0.05)
        store = SqliteStore(self.folder / "slugs/.agent-state/loopwright.db")
        try:
            return [event for _, _, event, _ in history(store, "night")]
        finally:
            store.close()

    def asked(self, times: int) -> Callable[[], bool]:
        """Whether a person has been asked so many times."""
        return lambda: sum(isinstance(fact, ev.ApprovalRequested) for fact in self.facts()) == times

    def works(self) -> bool:
        """Whether the agent is in its second iteration."""
        *_, last = self.facts() or [None]
        return isinstance(last, ev.AttemptStarted) and last.iteration == 2

    def new(self) -> set[str]:
        """What both printed since the last call."""
        shells = (self.first, self.second)
        lines = [line for shell, seen in zip(shells, self.seen, strict=True) for line in shell.printed[seen:]]
        return {alike(line) for line in lines}


@pytest.fixture
def evening(tmp_path):
    """The two terminals, in an empty folder."""
    made = Evening(tmp_path)
    yield made
    made.first.close()
    made.second.close()


def test_the_evening_goes_as_the_page_says(evening):
    waits = [
        ("loopwright show night", lambda: bool(evening.facts())),
        ("kill -9 $!", evening.works),
        ("loopwright approvals", evening.asked(1)),
        ('loopwright approve night --note "good"', evening.asked(2)),
        ("loopwright show night", lambda: not evening.first.busy),
    ]
    blocks = [(lang, body) for lang, body in FENCE.findall(PAGE) if lang in {"sh", "text"}]
    for number, (lang, body) in enumerate(blocks):
        if lang == "sh":
            shell = evening.second if body.startswith(SECOND) else evening.first
            for command in commands(body.removeprefix(SECOND)):
                if waits and command == waits[0][0]:
                    until(waits.pop(0)[1], LIMIT_S)
                shell.type(command)
            after = [other for language, other in blocks[number + 1 :] if language == "sh"]
            if shell is evening.second or not after or not after[0].startswith(SECOND):
                shell.ended()
        else:
            promised = [alike(line) for line in body.splitlines()]
            until(lambda p=promised: shown(evening, p), LIMIT_S)
            assert [line for line in promised if line not in evening.new()] == [], "\n".join(evening.new())
            if not running(evening):
                evening.seen = [len(evening.first.printed), len(evening.second.printed)]
    assert not waits, "the page no longer has a moment that is waited for"
    assert not running(evening)
    said = [line for shell in (evening.first, evening.second) for line in shell.printed]
    assert [line for line in said if line.startswith(("loopwright: ", "sh: "))] == []
    every_file_of_the_page_was_made(evening.folder)


def every_file_of_the_page_was_made(folder):
    """Not a test of its own: it is no evening without the one before."""
    made = set(re.findall(r"^cat > (\S+) <<", PAGE, re.MULTILINE))
    assert {"slug.py", "check.py", "agent.py", "loop.toml"} == made
    assert {path.name for path in (folder / "slugs").iterdir()} >= made
    assert {path.name for path in (folder / "out").iterdir()} >= {"report.md", "report.html"}


def shown(evening, promised):
    """Whether all that is promised has been printed, or nothing more can be."""
    time.sleep(0.05)
    return set(promised) <= evening.new() or not running(evening)


def running(evening):
    """Whether a command is under way in a terminal."""
    return evening.first.busy or evening.second.busy


def test_the_page_is_short_enough_for_an_evening():
    assert PAGE.count("\n") <= 270
