"""Killed at any operation: a forked process does some work and ends as `kill -9` ends it.

Rule: the work says through a pipe what was acknowledged to it; nothing else of it is believed. What a process
that is killed has written stays written, so syncs are counted and not done: `power` is where they matter.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from loopwright.testing.operations import Do, Op, Tap

How: TypeAlias = Literal["before", "after", "torn", "short", "eio", "enospc"]
Say: TypeAlias = Callable[[str], None]
LIMIT_S: Final = 60  # for one piece of work
FAILED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens at operation `at` (from 1).

    `before`, `after`: killed there; `torn`: half of a write, then killed; `short`: half of a write, and the
    system says so; `eio`, `enospc`: refused from here on, by a broken or a full disk.
    """

    at: int
    how: How = "before"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the work ended: its operations, what it said, and its error if it ended by one."""

    killed: bool
    operations: int
    said: tuple[str, ...]
    error: str = ""


def unsynced(op: Op, do: Do) -> Any:
    """Performs an operation, but no sync."""
    return None if op.kind == "sync" else do(None)


class _Trip:
    """Counts operations and does the fault at its place."""

    def __init__(self, fault: Fault | None, see: Callable[[Op, Any], None]) -> None:
        self._fault = fault
        self._see = see
        self.n = 0

    def __call__(self, op: Op, do: Do) -> Any:
        result = self._done(op, do)
        self._see(op, result)
        return result

    def _done(self, op: Op, do: Do) -> Any:
        self.n += 1
        fault = self._fault
        if fault is None or self.n < fault.at:
            return unsynced(op, do)
        half = op.data[: max(1, len(op.data) // 2)] if op.kind == "write" else None
        match fault.how:
            case "eio" | "enospc":
                full = fault.how == "enospc"
                if full and op.kind not in {"write", "create", "mkdir"}:
                    return do(None)
                code = errno.ENOSPC if full else errno.EIO
                raise OSError(code, os.strerror(code), op.path)
            case _ if self.n > fault.at:
                return unsynced(op, do)
            case "short":
                return do(None if op.whole else half)
            case "torn" if half is not None:
                do(half)
            case "after":
                self._see(op, do(None))
            case _:
                pass
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed")


def _unseen(op: Op, result: Any) -> None:
    pass


def crashed(
    work: Callable[[Say], None],
    folder: Path,
    tap: Tap,
    fault: Fault | None = None,
    see: Callable[[Op, Any], None] = _unseen,
) -> Ended:
    """How `work` ends in a process of its own, with `fault` at one of its operations below `folder`.

    `see` is told there of every operation that was done, with its result.
    """
    return ended(*begun(work, folder, tap, fault, see))


def begun(
    work: Callable[[Say], None],
    folder: Path,
    tap: Tap,
    fault: Fault | None = None,
    see: Callable[[Op, Any], None] = _unseen,
) -> tuple[int, int]:
    """The process that does `work`, and the pipe by which it says what was acknowledged: for `ended`."""
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # other threads of ours hold nothing the child needs
        pid = os.fork()
    if pid == 0:
        leave, code = os._exit, FAILED  # whatever happens, the child never goes on as its parent
        try:
            os.close(readable)
            code = _child(work, folder, tap, _Trip(fault, see), writable)
        finally:
            leave(code)
    os.close(writable)
    return pid, readable


def ended(pid: int, readable: int) -> Ended:
    """How the work ended, once it has."""
    said = b""
    while part := os.read(readable, 65536):
        said += part
    os.close(readable)
    _, status = os.waitpid(pid, 0)
    rows = said.decode().split("\n")[:-1]
    count = next((int(row[1:]) for row in rows if row.startswith("#")), 0)
    error = next((row[1:] for row in rows if row.startswith("!")), "")
    killed = os.WIFSIGNALED(status)
    if killed and os.WTERMSIG(status) != signal.SIGKILL:
        error = f"ended by signal {os.WTERMSIG(status)}"
    return Ended(
        killed=killed,
        operations=count,
        said=tuple(row[1:] for row in rows if row.startswith("+")),
        error=error,
    )


def _child(work: Callable[[Say], None], folder: Path, tap: Tap, trip: _Trip, writable: int) -> int:
    write = os.write  # as it is before it is tapped
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LIMIT_S)
    sys.excepthook = lambda *_: None  # what matters is said; the rest is noise of the fault
    sys.unraisablehook = lambda _: None

    def say(mark: str, text: str) -> None:
        write(writable, f"{mark}{text.replace(chr(10), ' | ')}\n".encode())

    code = FAILED
    try:
        with tap(folder, trip):
            work(lambda text: say("+", text))
        code = 0
    except BaseException as error:  # noqa: BLE001 - it is told, and the process ends here
        where = traceback.extract_tb(error.__traceback__)[-1]
        say("!", f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})")
    say("#", str(trip.n))
    return code
