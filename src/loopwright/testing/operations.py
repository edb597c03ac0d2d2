"""Every operation by which a store changes its disk, seen one at a time.

Rule: an operation is shown before it is done, and whoever looks decides whether it is done, in part, or not at
all. Nothing is guessed from what a store says of itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

Kind: TypeAlias = Literal["create", "write", "truncate", "sync", "rename", "link", "unlink", "mkdir"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation on a file or folder: `to` is a rename's or link's new name, `at` a byte, `file` the inode.

    `whole`: who asked for it cannot be told that only a part was done.
    """

    kind: Kind
    path: str
    to: str = ""
    at: int = 0
    data: bytes = b""
    file: int = 0
    whole: bool = False


Do: TypeAlias = Callable[[bytes | None], Any]  # performs it; with bytes, writes these instead
Around: TypeAlias = Callable[[Op, Do], Any]
Tap: TypeAlias = Callable[[Path, Around], AbstractContextManager[None]]
CALLS: Final = (
    "open",
    "close",
    "write",
    "pwrite",
    "fsync",
    "fdatasync",
    "ftruncate",
    "rename",
    "replace",
    "link",
    "unlink",
    "remove",
    "mkdir",
)


@contextmanager
def os_calls(folder: Path, around: Around) -> Iterator[None]:
    """Shows `around` what is done below `folder` through functions of `os` in this process.

    What Python's `open()` writes and what libraries in C do is not seen.
    """
    real = {name: getattr(os, name) for name in CALLS}
    shown = _Shown(str(folder), around, real)
    for name in CALLS:
        setattr(os, name, getattr(shown, name))
    try:
        yield
    finally:
        for name, call in real.items():
            setattr(os, name, call)


class _Shown:
    """The functions of `os`, each showing what it is about to do; named as they are."""

    def __init__(self, below: str, around: Around, real: dict[str, Callable[..., Any]]) -> None:
        self._below = below
        self._around = around
        self._real = real
        self._open: dict[int, str] = {}

    def _ours(self, path: object) -> str | None:
        try:
            text = os.fsdecode(path)  # type: ignore[arg-type]
        except TypeError:  # a descriptor
            return None
        return text if text == self._below or text.startswith(f"{self._below}/") else None

    def open(self, path: Any, flags: int, *rest: Any, **more: Any) -> int:
        """Making a file, or emptying one, is an operation."""
        real, name = self._real["open"], self._ours(path)
        if name is None:
            return int(real(path, flags, *rest, **more))
        there = os.path.exists(name)  # noqa: PTH110
        if flags & os.O_CREAT and not there:
            fd = self._around(Op(kind="create", path=name), lambda _: real(path, flags, *rest, **more))
        elif flags & os.O_TRUNC and there:
            op = Op(kind="truncate", path=name, file=os.stat(name).st_ino)  # noqa: PTH116
            fd = self._around(op, lambda _: real(path, flags, *rest, **more))
        else:
            fd = real(path, flags, *rest, **more)
        self._open[fd] = name
        return int(fd)

    def close(self, fd: int) -> None:
        """No operation."""
        self._open.pop(fd, None)
        self._real["close"](fd)

    def write(self, fd: int, data: Any) -> Any:
        """At the file's position, or its end when it was opened to append."""
        name, real = self._open.get(fd), self._real["write"]
        if name is None:
            return real(fd, data)
        at = os.lseek(fd, 0, os.SEEK_CUR)
        op = Op(kind="write", path=name, at=at, data=bytes(data), file=os.fstat(fd).st_ino)
        return self._around(op, lambda part: real(fd, data if part is None else part))

    def pwrite(self, fd: int, data: Any, at: int) -> Any:
        """At a byte."""
        name, real = self._open.get(fd), self._real["pwrite"]
        if name is None:
            return real(fd, data, at)
        op = Op(kind="write", path=name, at=at, data=bytes(data), file=os.fstat(fd).st_ino)
        return self._around(op, lambda part: real(fd, data if part is None else part, at))

    def _sync(self, call: str, fd: int) -> Any:
        name, real = self._open.get(fd), self._real[call]
        if name is None:
            return real(fd)
        return self._around(Op(kind="sync", path=name, file=os.fstat(fd).st_ino), lambda _: real(fd))

    def fsync(self, fd: int) -> Any:
        """Of a file, or of a folder's names."""
        return self._sync("fsync", fd)

    def fdatasync(self, fd: int) -> Any:
        """As `fsync`."""
        return self._sync("fdatasync", fd)

    def ftruncate(self, fd: int, size: int) -> Any:
        """To `size` bytes."""
        name, real = self._open.get(fd), self._real["ftruncate"]
        if name is None:
            return real(fd, size)
        op = Op(kind="truncate", path=name, at=size, file=os.fstat(fd).st_ino)
        return self._around(op, lambda _: real(fd, size))

    def _two(self, call: str, kind: Kind, source: Any, target: Any, **more: Any) -> Any:
        real, name = self._real[call], self._ours(source)
        if name is None:
            return real(source, target, **more)
        op = Op(kind=kind, path=name, to=os.fsdecode(target))
        return self._around(op, lambda _: real(source, target, **more))

    def rename(self, source: Any, target: Any, **more: Any) -> Any:
        """To a new name."""
        return self._two("rename", "rename", source, target, **more)

    def replace(self, source: Any, target: Any, **more: Any) -> Any:
        """As `rename`."""
        return self._two("replace", "rename", source, target, **more)

    def link(self, source: Any, target: Any, **more: Any) -> Any:
        """A second name."""
        return self._two("link", "link", source, target, **more)

    def _one(self, call: str, kind: Kind, path: Any, *rest: Any, **more: Any) -> Any:
        real, name = self._real[call], self._ours(path)
        if name is None:
            return real(path, *rest, **more)
        return self._around(Op(kind=kind, path=name), lambda _: real(path, *rest, **more))

    def unlink(self, path: Any, **more: Any) -> Any:
        """A name less."""
        return self._one("unlink", "unlink", path, **more)

    def remove(self, path: Any, **more: Any) -> Any:
        """As `unlink`."""
        return self._one("remove", "unlink", path, **more)

    def mkdir(self, path: Any, *rest: Any, **more: Any) -> Any:
        """A folder more."""
        return self._one("mkdir", "mkdir", path, *rest, **more)
