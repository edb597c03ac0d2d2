"""One journal as a file: a commit is a line, and the file only grows.

Rules. A line without its newline, or a last one with holes in it, was never acknowledged: it is cut off and
kept aside. Unless the head, which is written after a commit is durable, names it: then it is damage, like
everything else that is not as it was written.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopwright.errors import Corrupt, StoreError, Taken
from loopwright.stores import disk

if TYPE_CHECKING:
    from hashlib import _Hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """What a head knows of the journal: up to `end` it held `n` commits, the last one `line`, all of it `journal`."""

    n: int
    end: int
    line: str
    journal: str


@dataclass(slots=True, kw_only=True)
class Seen:
    """How far a journal was read: `n` whole lines, `end` bytes, and the digest of them."""

    inode: int
    n: int = 0
    end: int = 0
    hash: _Hash = field(default_factory=hashlib.sha256)

    def after(self, line: bytes) -> Seen:
        """One line further."""
        self.hash.update(line)
        self.n, self.end = self.n + 1, self.end + len(line)
        return self

    def copy(self) -> Seen:
        """The same, to go on from by itself."""
        return Seen(inode=self.inode, n=self.n, end=self.end, hash=self.hash.copy())


def damaged(path: Path, n: int, at: int, what: str) -> Corrupt:
    """The error for a damaged journal: which file, commit and byte."""
    return Corrupt(
        f"{path} is damaged at commit {n}, byte {at}: {what}. Restore a copy, or move it aside to start anew"
    )


def read(fd: int, path: Path, seen: Seen, known: Witness | None) -> Iterator[bytes]:
    """The whole lines beyond `seen`, which follows; `Corrupt` where they are not what the head knows."""
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(seen.end)
        for line in file:
            at, n = seen.end, seen.n + 1
            if not line.endswith(b"\n") or b"\0" in line:
                if known is not None and n <= known.n:
                    raise damaged(path, n, at, f"{len(line)} bytes that were acknowledged are cut or blank")
                if file.read(1):
                    raise damaged(path, n, at, "it is blank, and more follows")
                break
            if known is not None and n == known.n and disk.digest(line[:-1]) != known.line:
                raise damaged(path, n, at, "it is not the commit that was acknowledged")
            seen.after(line)
            yield line[:-1]
    if known is not None and seen.n < known.n:
        raise damaged(
            path,
            seen.n + 1,
            seen.end,
            f"it ends here, but commit {known.n} was acknowledged (an older copy?)",
        )
    if seen.n == 0:  # the first commit is on disk before the file has its name
        raise damaged(path, 1, 0, "it holds no commit")


def intact(fd: int, known: Witness) -> Seen | None:
    """What the head knows of, when all its bytes are as they were written."""
    seen = Seen(inode=os.fstat(fd).st_ino, n=known.n, end=known.end)
    at = 0
    while at < known.end and (data := os.pread(fd, min(1 << 20, known.end - at), at)):
        seen.hash.update(data)
        at += len(data)
    return seen if at == known.end and seen.hash.hexdigest() == known.journal else None


def current(
    fd: int, path: Path, seen: Seen | None, known: Callable[[], Witness | None]
) -> tuple[Seen, Path | None]:
    """How far the journal reaches, and where a torn tail is kept that was cut off; the lock must be held."""
    now = os.fstat(fd)
    if seen is not None and seen.inode != now.st_ino:
        raise StoreError(f"{path} was replaced while it was in use: nothing more is kept")
    seen = Seen(inode=now.st_ino) if seen is None else seen.copy()
    if now.st_size < seen.end:
        raise damaged(path, seen.n, now.st_size, "it was cut while it was in use")
    if now.st_size > seen.end or seen.n == 0:
        for _ in read(fd, path, seen, known()):
            pass
    if now.st_size == seen.end:
        return seen, None
    torn = path.with_name(f"{path.name}.torn-{seen.n + 1}")
    disk.put(torn, os.pread(fd, now.st_size - seen.end, seen.end), sync=False)
    os.ftruncate(fd, seen.end)
    os.fsync(fd)
    return seen, torn


def line(fd: int, path: Path, n: int) -> bytes:
    """Commit `n`, which is there."""
    for number, found in enumerate(read(fd, path, Seen(inode=0), None), 1):
        if number == n:
            return found
    raise damaged(path, n, os.fstat(fd).st_size, "it ends before it")


def add(fd: int, path: Path, seen: Seen, n: int, commit: bytes) -> Seen:
    """Writes commit `n` after `seen`, durably; `Taken` if it stands there. The lock must be held."""
    if n <= seen.n:
        os.fsync(fd)  # another process may have written it and not come so far
        raise Taken(n, line(fd, path, n))
    if n != seen.n + 1:
        raise ValueError(f"commit {n} would leave a gap after {seen.n} in {path}")
    data = commit + b"\n"
    try:
        disk.write_all(fd, data, seen.end)
        os.fsync(fd)
    except OSError:  # never tried again: after a failed fsync the next one says nothing
        with suppress(OSError):
            os.ftruncate(fd, seen.end)
        raise
    return seen.copy().after(data)


def witness(fields: dict[str, Any]) -> Witness:
    """What a head's fields say of the journal; `ValueError` or `KeyError` when they do not."""
    return Witness(
        n=int(fields["n"]), end=int(fields["end"]), line=str(fields["line"]), journal=str(fields["journal"])
    )
