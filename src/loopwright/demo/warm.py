"""A warm process that runs a project's test-suite many times, each time in a fork of its own.

The process has pytest and what the project borrows from others imported, and never the project itself: a run
imports the project's modules anew, so a module can be replaced by another text of it (a `Patch`) before any test
sees it. The rule: what a run does (loops for ever, eats memory, prints, kills itself) ends with its fork. The
project's folder is only read; bytecode goes to a folder that is removed at the end.

    this process ──requests──▶ warm process ──fork──▶ one run: pytest, patched module, limits
                 ◀──reports───               ◀─pipe──
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import math
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# A suite that takes longer than this (seconds) without any change is not small.
SUITE_SECONDS: Final = 120.0
# Waiting is cheap and machines are busy: the wall limit is for tests that sleep, the CPU limit for those that spin.
WALL_PER_CPU: Final = 10
_MEMORY: Final = 2 << 30
_FILE_SIZE: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Patch:
    """Another text for one module, in memory only."""

    path: str
    source: str


@dataclass(frozen=True, slots=True)
class Request:
    """One run: which tests (None = all), with which patch, under which limits, traced or not.

    With `hoped` the run ends as soon as it is known that none of these tests passes, or that another one fails. A
    `scout` runs nothing: it finds what the project borrows, for the warm process to import.
    """

    tests: list[str] | None = None
    hoped: list[str] = field(default_factory=list)
    patch: Patch | None = None
    files: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    cpu: float | None = None
    wall: float = SUITE_SECONDS
    scout: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of one test: its outcome, the file it is in, the lines it ran."""

    outcome: str
    file: str
    lines: dict[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one run. `error` says why there are no outcomes, `cut` which limit ended it."""

    tests: dict[str, Ran]
    at_import: dict[str, frozenset[int]]
    error: str
    cut: str
    cpu: float

    def having(self, outcome: str) -> list[str]:
        """Name the tests with this outcome, in the order they ran."""
        return [name for name, test in self.tests.items() if test.outcome == outcome]


@dataclass(slots=True)
class Warm:
    """The near end of the pipes to the warm process."""

    requests: IO[str]
    reports: IO[str]

    def run(self, request: Request) -> Report:
        """Run the suite as asked and wait for the report."""
        self.requests.write(json.dumps(asdict(request)) + "\n")
        self.requests.flush()
        line = self.reports.readline()
        raw: dict[str, Any] = json.loads(line) if line else {"error": "the warm process ended"}
        return Report(
            tests={
                name: Ran(test["outcome"], test["file"], _lines(test["lines"]))
                for name, test in raw.get("tests", {}).items()
            },
            at_import=_lines(raw.get("at_import", {})),
            error=raw.get("error", ""),
            cut=raw.get("cut", ""),
            cpu=raw.get("cpu", 0.0),
        )


@contextlib.contextmanager
def warm(arguments: Sequence[str]) -> Iterator[Warm]:
    """Start the warm process with these arguments for pytest; it ends with the block, or with this process."""
    for_requests, requests = os.pipe()
    reports, for_reports = os.pipe()
    far = _Far(for_requests, for_reports, tempfile.mkdtemp(prefix="loopwright-warm-"))
    pid = os.fork()
    if pid == 0:
        os.close(requests)
        os.close(reports)
        _live(far, list(arguments))
    os.close(for_requests)
    os.close(for_reports)
    try:
        with os.fdopen(requests, "w", encoding="utf-8") as near, os.fdopen(reports, encoding="utf-8") as back:
            runs = Warm(near, back)
            runs.run(Request(scout=True))
            yield runs
    finally:
        os.waitpid(pid, 0)


def _lines(raw: dict[str, list[int]]) -> dict[str, frozenset[int]]:
    return {path: frozenset(lines) for path, lines in raw.items()}


# What follows happens in the warm process and its forks.


@dataclass(slots=True)
class _Far:
    """The far end of the pipes, and in a fork the pipe to send its report through."""

    requests: int
    reports: int
    folder: str
    unread: bytes = b""
    fork_reports: int = -1

    def accept(self) -> Request:
        """Fork for every request, and return in the fork only."""
        while True:
            if (line := self._next_line()) is None:
                self.leave()
            raw = json.loads(line)
            patch = Patch(**raw.pop("patch")) if raw["patch"] else raw.pop("patch")
            request = Request(**raw, patch=patch)
            start, self.fork_reports = os.pipe()
            pid = os.fork()
            if pid == 0:
                self._become_run(request)
                return request
            os.close(self.fork_reports)
            self.fork_reports = -1
            answer = self._outcome(pid, start, request)
            os.close(start)
            shutil.rmtree(Path(self.folder, "run"), ignore_errors=True)
            _borrow(answer.pop("borrowed", []))
            _send(self.reports, answer)

    def finish(self, report: dict[str, Any]) -> NoReturn:
        """Send what a run found and end its fork, without the tidying up that a fork can do without."""
        _send(self.fork_reports, report)
        os._exit(0)

    def leave(self) -> NoReturn:
        """End the warm process, again without tidying up more than what others would see."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(0)

    def complain(self, why: str) -> NoReturn:
        """Answer every request with the reason why there will be no run."""
        while self._next_line() is not None:
            _send(self.reports, {"error": why})
        self.leave()

    @property
    def errors(self) -> str:
        """The file that standard error goes to."""
        return str(Path(self.folder, "errors"))

    def _next_line(self) -> bytes | None:
        while b"\n" not in self.unread:
            if not (more := os.read(self.requests, 65536)):
                return None
            self.unread += more
        line, _, self.unread = self.unread.partition(b"\n")
        return line

    def _become_run(self, request: Request) -> None:
        """Own process group, own place for errors, own limits."""
        os.setpgid(0, 0)
        os.close(self.requests)
        os.close(self.reports)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _speak_into(self.errors)
        # Temporary files of tests go where they are removed with the run.
        Path(self.folder, "run").mkdir(exist_ok=True)
        tempfile.tempdir = os.environ["TMPDIR"] = str(Path(self.folder, "run"))
        # Bytecode in the project's folder is neither trusted nor made. A scout leaves bytecode alone: it is there to
        # find the big imports, and those have theirs beside them.
        sys.dont_write_bytecode = request.scout
        sys.pycache_prefix = None if request.scout else str(Path(self.folder, "bytecode"))
        if request.cpu is not None:
            seconds = max(1, math.ceil(request.cpu))
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_SIZE, _FILE_SIZE))
            with contextlib.suppress(OSError, ValueError):
                room = (
                    int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
                    + _MEMORY
                )
                resource.setrlimit(resource.RLIMIT_AS, (room, room))

    def _outcome(self, pid: int, start: int, request: Request) -> dict[str, Any]:
        """Wait for a fork's report, its end or its limit; nothing of it is alive afterwards."""
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        deadline = time.monotonic() + request.wall
        text, late = b"", False
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([start, self.requests], [], [], max(0.0, deadline - time.monotonic()))
            # Nobody asks before the answer, so anything on this pipe is its end: the near side is gone.
            if late := not ready or self.requests in ready:
                break
            if not (more := os.read(start, 1 << 20)):
                break
            text += more
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        cpu = usage.ru_utime + usage.ru_stime
        if text.endswith(b"\n"):
            return {**json.loads(text), "cpu": cpu}
        spun = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
        return {"cut": "wall" if late else "cpu" if spun else "died", "cpu": cpu}


def _live(far: _Far, arguments: list[str]) -> NoReturn:
    """Be the warm process until nobody asks any more, and in its forks a run until it has reported."""
    owner = os.getpid()
    # Ctrl-C is for the near side; its end is what ends this process, after the fork that may be running.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _speak_into(far.errors)
    try:
        if importlib.util.find_spec("pytest") is None:
            far.complain(
                f"there is no pytest in {sys.executable}; try: {sys.executable} -m pip install pytest"
            )
        from loopwright.demo import session

        session.serve(far.accept, far.finish, arguments)
        why = Path(far.errors).read_text("utf-8", "replace").strip() or "pytest ended before any test"
    except BaseException as error:  # noqa: BLE001 - a fork must never come back as a second copy of the agent
        why = repr(error)
    if os.getpid() == owner:
        far.complain(why)
    far.finish({"error": why})


def _borrow(names: list[str]) -> None:
    """Import what the next forks would import each for itself."""
    for name in names:
        with contextlib.suppress(Exception):
            __import__(name)
    if names:
        # To show a failure pytest asks inspect whose file a line is in, which looks at every module once.
        inspect.getmodule(compile("", "<nobody's>", "exec"))


def _speak_into(errors: str) -> None:
    """Nothing to read, nothing said, errors kept for the report."""
    sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_RDWR)
    kept = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number, source in ((0, nothing), (1, nothing), (2, kept)):
        os.dup2(source, number)
    os.close(nothing)
    os.close(kept)


def _send(pipe: int, message: dict[str, Any]) -> None:
    text = json.dumps(message).encode() + b"\n"
    while text:
        text = text[os.write(pipe, text) :]
