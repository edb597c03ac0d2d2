"""The lock that gives a workspace to one run.

The rule: the kernel decides who holds the lock. What the file says is for messages only, so garbage or
the name of a dead process in it never blocks, and a killed process holds nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import weakref
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from loopwright.errors import Locked, WorkspaceError
from loopwright.state_folder import create_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


def lock(root: Path, state: Path, run: str, owner: str) -> WorkspaceLock:
    """The workspace `root` for this run alone, until the lock is released or the process ends.

    `owner` says who runs (process and start time). Locked, naming run and process, when another run has
    it; WorkspaceError when the state folder cannot be written.
    """
    real = root.resolve()
    file = _file(real, state)
    try:
        create_state(state)
        file.parent.mkdir(mode=0o700, exist_ok=True)
        opened = _take(file, real, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise WorkspaceError(f"{file} cannot be locked: {error.strerror or error}") from error
    _say(opened, real, run, owner)
    return WorkspaceLock(opened)


def _file(real: Path, state: Path) -> Path:
    return state / "locks" / f"{hashlib.sha256(os.fsencode(real)).hexdigest()[:16]}.lock"


def _say(opened: int, real: Path, run: str, owner: str) -> None:
    """Writes who holds it."""
    holder = {
        "run": run,
        "pid": os.getpid(),
        "started": _start_time(),
        "host": socket.gethostname(),
        "boot": _read("/proc/sys/kernel/random/boot_id"),
        "owner": owner,
        "root": os.fsencode(real).decode(errors="replace"),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    _write(opened, json.dumps(holder).encode() + b"\n")


def _write(opened: int, text: bytes) -> None:
    with suppress(OSError):  # a full disk costs a better message, not the lock
        os.ftruncate(opened, 0)
        os.pwrite(opened, text, 0)


@contextmanager
def borrow(root: Path, state: Path, run: str, owner: str) -> Iterator[None]:
    """Like `lock`, for somebody who leaves nothing behind: the lock is made for no one, and says afterwards what it said.

    Where no run has ever worked in `root` there is no lock yet, and a run that begins meanwhile is not kept out.
    """
    real = root.resolve()
    try:
        opened = _take(_file(real, state), real, os.O_RDWR)
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        raise WorkspaceError(f"{_file(real, state)} cannot be locked: {error.strerror or error}") from error
    with WorkspaceLock(opened):
        said = os.pread(opened, 4096, 0)
        _say(opened, real, run, owner)
        try:
            yield
        finally:
            _write(opened, said)


def holders(state: Path) -> list[str]:
    """Who holds the locks of a project just now, as they say; asks the kernel, and takes none.

    Nothing where the kernel does not list its locks.
    """
    taken = {
        tuple(line.split()[5].split(":")) for line in _read("/proc/locks").splitlines() if " FLOCK " in line
    }
    held = []
    for file in sorted(state.glob("locks/*.lock")):
        with suppress(OSError):
            opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                seen = os.fstat(opened)
                device = f"{os.major(seen.st_dev):02x}", f"{os.minor(seen.st_dev):02x}", str(seen.st_ino)
                if device in taken:
                    held.append(_holder(opened))
            finally:
                os.close(opened)
    return held


class WorkspaceLock:
    """A held lock; leaving its `with` block or `release` gives it back."""

    def __init__(self, opened: int) -> None:
        self._opened: int | None = opened
        # The descriptor is closed when a child starts a program. A child that only forks (multiprocessing)
        # would keep the lock alive after our death, so it closes its copy at once.
        mine = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _close(mine()))

    def release(self) -> None:
        """Give the workspace back; a second time does nothing."""
        opened, self._opened = self._opened, None
        if opened is not None:
            os.close(opened)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


def _close(held: WorkspaceLock | None) -> None:
    if held is not None:
        held.release()


def _take(file: Path, root: Path, flags: int) -> int:
    while True:
        opened = os.open(file, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Somebody may have removed the file between open and lock: then we hold nothing others see.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(opened), file.lstat()):
                    return opened
        except BlockingIOError:
            message = f"{root} is in use by {_holder(opened)}: wait for it, or stop it"
            os.close(opened)
            raise Locked(message) from None
        os.close(opened)


def _holder(opened: int) -> str:
    try:
        said = json.loads(os.pread(opened, 4096, 0))
        return f"run {said['run']} (process {said['pid']} on {said['host']}, since {said['since']})"
    except (ValueError, KeyError, TypeError, OSError):
        return "another run (it has not said which)"


def _start_time() -> str:
    # Field 22 of /proc/self/stat, in clock ticks since boot; the name in field 2 may hold spaces.
    return next(iter(_read("/proc/self/stat").rpartition(")")[2].split()[19:]), "")


def _read(file: str) -> str:
    with suppress(OSError):
        return Path(file).read_text(errors="replace").strip()
    return ""
