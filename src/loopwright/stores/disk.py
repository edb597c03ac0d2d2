"""Files that are whole or not there: what the files store is made of.

Rules. Everything goes through functions of `os`, one operation each, so that `loopwright.testing` can fail
every one of them. A short write is continued; a file gets its name only when all of it is written; a file
that others must find after power loss is fsynced first and its folder after.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from loopwright.errors import StoreError

VERSION: Final = 1
NEW: Final = ".new-"
OLD_S: Final = 60.0  # what was begun so long ago and has no name yet will get none
WAIT_S: Final = 10.0  # how long a file may be held by another process: it is held for milliseconds


def write_all(fd: int, data: bytes, at: int) -> None:
    """Writes all of `data` at byte `at`, however little the system takes at a time."""
    left = memoryview(data)
    while left:
        done = os.pwrite(fd, left, at)
        at, left = at + done, left[done:]


def sync_dir(folder: Path) -> None:
    """Names in `folder` that were made, moved or removed survive power loss from now on."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_dir(folder: Path) -> None:
    """`folder` stands, for its owner only, durably; its parents too."""
    if folder.is_dir():
        return
    make_dir(folder.parent)
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)  # noqa: PTH102 - one operation of `os`, see the rules
    sync_dir(folder.parent)


def _new(folder: Path, data: bytes, *, sync: bool) -> Path:
    """A file with `data` under a name of its own, which tells whose it is."""
    made = folder / f"{NEW}{os.getpid()}-{secrets.token_hex(6)}"
    fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data, 0)
        if sync:
            os.fsync(fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(made)  # noqa: PTH108 - a full disk must not stay full for it
        raise
    finally:
        os.close(fd)
    return made


def put(path: Path, data: bytes, *, sync: bool) -> None:
    """`path` holds `data` or what it held before, never a part; with `sync` also after power loss."""
    made = _new(path.parent, data, sync=sync)
    try:
        os.rename(made, path)  # noqa: PTH104 - see the rules
    except OSError:
        with suppress(OSError):
            os.unlink(made)  # noqa: PTH108
        raise


def create(path: Path, data: bytes) -> bool:
    """Whether `path` was free: it then holds `data`, durably. If not, what stands there is durable."""
    made = _new(path.parent, data, sync=True)
    try:
        os.link(made, path)  # the kernel lets one of many win
        won = True
    except FileExistsError:
        won = False
    finally:
        os.unlink(made)  # noqa: PTH108
    sync_dir(path.parent)
    return won


def aside(path: Path, word: str = "damaged") -> Path:
    """Moves a file out of the way; it is kept, under the name that is returned."""
    now = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
    kept = path.with_name(f"{path.name}.{word}-{now}")
    while kept.exists():
        kept = path.with_name(f"{path.name}.{word}-{now}-{secrets.token_hex(2)}")
    os.rename(path, kept)  # noqa: PTH104
    return kept


def swept(folder: Path) -> None:
    """Removes what processes that are gone were about to write in `folder`."""
    for made in folder.glob(f"{NEW}*"):
        pid = made.name.removeprefix(NEW).partition("-")[0]
        with suppress(OSError, ValueError):
            if time.time() - made.stat().st_mtime > OLD_S and not Path(f"/proc/{int(pid)}").exists():
                made.unlink(missing_ok=True)


def extend(path: Path, data: bytes) -> None:
    """`data` at the end of `path`, not durably; the file is made when there is none."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def names(folder: Path, end: str) -> list[str]:
    """The files in `folder` whose names end so, without the end; none when there is no folder."""
    try:
        return [name.removesuffix(end) for name in os.listdir(folder) if name.endswith(end)]  # noqa: PTH208
    except FileNotFoundError:
        return []


def digest(data: bytes) -> str:
    """SHA-256, in hex."""
    return hashlib.sha256(data).hexdigest()


def frame(body: bytes, **fields: Any) -> bytes:
    """`body` under one line that says what it is and has its digest."""
    line = json.dumps({"v": VERSION, **fields, "sha256": digest(body)}, allow_nan=False)
    return line.encode() + b"\n" + body


def framed(path: Path) -> tuple[dict[str, Any], bytes] | None:
    """What `frame` wrote: the fields and the body; `None` when it is missing, damaged or of another version."""
    try:
        line, _, body = path.read_bytes().partition(b"\n")
        fields = json.loads(line)
        whole = fields["v"] == VERSION and fields["sha256"] == digest(body)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return (fields, body) if whole else None


@contextmanager
def said(path: Path) -> Iterator[None]:
    """What the system refuses is a `StoreError` that names the file."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{error.filename or path} cannot be used: {error.strerror or error}") from error


@contextmanager
def held(path: Path) -> Iterator[int]:
    """The file `path`, open, while no other process has it in this way; `StoreError` when one does not let go."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        end = time.monotonic() + WAIT_S
        while not flock(fd):
            if time.monotonic() > end:
                raise StoreError(f"{path} is held by another process that does not go on: see what it does")
            time.sleep(0.001)
        yield fd
    finally:
        os.close(fd)


def flock(fd: int) -> bool:
    """Whether the kernel gave us the lock of this file; it is ours until it is closed or we end."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
