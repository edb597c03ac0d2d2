"""Put and remove single files below a root.

The rule: every step goes through a directory descriptor and follows no symlink, so a link that an
agent planted cannot lead a write outside the root; and a file is replaced whole (temporary file,
fsync, rename) or not at all.
"""

# Names are bytes here, which pathlib cannot hold.
# ruff: noqa: PTH123

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def look(root: Path, path: bytes) -> os.stat_result | None:
    """What stands at `path` below the root, itself and not what it links to; None when nothing does.

    Nothing does, either, when the root or a parent of it is missing or a file, or a parent a symlink.
    """
    folder = _open_parent(root, path, make=False, clear=False)
    if folder is None:
        return None
    try:
        return os.stat(path.rpartition(b"/")[2], dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    finally:
        os.close(folder)


def read(root: Path, path: bytes) -> int | None:
    """An open descriptor on the regular file at `path`, or None when there is none that can be read."""
    folder = _open_parent(root, path, make=False, clear=False)
    if folder is None:
        return None
    try:
        # O_NONBLOCK: a FIFO that an agent left here must not hold us.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(path.rpartition(b"/")[2], flags, dir_fd=folder)
    except OSError:
        return None
    finally:
        os.close(folder)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return None


def put(root: Path, path: bytes, data: bytes, *, mode: int, link: bool = False, clear: bool = False) -> None:
    """The file (or symlink, when `link`) at `path` with exactly these bytes, replaced in one step.

    `mode` is the permission bits; None of them is masked by the umask. With `clear`, links and files
    that stand where a parent folder must be are removed, and a folder that stands where the file must
    be is moved aside; without it both raise OSError. A folder that holds no files is no obstacle.
    """
    folder = _open_parent(root, path, make=True, clear=clear)
    if folder is None:
        raise NotADirectoryError(f"a parent of {os.fsdecode(path)!r} is not a folder")
    name = path.rpartition(b"/")[2]
    temp = b".loopwright-%s.tmp" % secrets.token_hex(8).encode()
    try:
        if link:
            os.symlink(data, temp, dir_fd=folder)
        else:
            _write(folder, temp, data, mode)
        _clear_folder(folder, name, aside=clear)
        os.rename(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temp, dir_fd=folder)
        os.close(folder)


def drop(root: Path, path: bytes) -> bool:
    """True when a file or link stood at `path` and is gone now; folders are never removed."""
    folder = _open_parent(root, path, make=False, clear=False)
    if folder is None:
        return False
    try:
        os.unlink(path.rpartition(b"/")[2], dir_fd=folder)
        return True
    except (FileNotFoundError, IsADirectoryError):
        return False
    finally:
        os.close(folder)


def prune(root: Path, gone: Iterable[bytes], keep: Iterable[bytes] = ()) -> None:
    """Remove the folders that the removal of the files `gone` left empty, but none that `keep` needs."""
    needed = {parent for path in keep for parent in parents(path)}
    left = {parent for path in gone for parent in parents(path)} - needed
    for path in sorted(left, key=lambda path: path.count(b"/"), reverse=True):
        folder = _open_parent(root, path, make=False, clear=False)
        if folder is None:
            continue
        try:
            with suppress(OSError):  # not empty, or a link by now: not ours to remove
                os.rmdir(path.rpartition(b"/")[2], dir_fd=folder)
        finally:
            os.close(folder)


def parents(path: bytes) -> list[bytes]:
    """The folders that hold `path`, outermost first, without the root itself."""
    parts = path.split(b"/")
    return [b"/".join(parts[:i]) for i in range(1, len(parts))]


def _open_parent(root: Path, path: bytes, *, make: bool, clear: bool) -> int | None:
    parts = path.split(b"/")
    if any(part in {b"", b".", b"..", b".git"} for part in parts):
        raise PermissionError(f"{os.fsdecode(path)!r} does not name a file below {root}")
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        if make:
            raise
        return None
    for part in parts[:-1]:
        inner = _enter(folder, part, make=make, clear=clear)
        os.close(folder)
        if inner is None:
            return None
        folder = inner
    return folder


def _enter(folder: int, part: bytes, *, make: bool, clear: bool) -> int | None:
    for _ in range(2):
        try:
            return os.open(part, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            if not make:
                return None
        except OSError:  # a file or a symlink
            if not clear:
                return None
            os.unlink(part, dir_fd=folder)
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=folder)
    return None


def _write(folder: int, name: bytes, data: bytes, mode: int) -> None:
    file = os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
    )
    with open(file, "wb") as out:
        out.write(data)
        out.flush()
        os.fchmod(file, mode)
        os.fsync(file)


def _clear_folder(folder: int, name: bytes, *, aside: bool) -> None:
    """Make room where a folder stands: one without files is removed, another moved aside if allowed."""
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return
    except FileNotFoundError:
        return
    for _, inner, _, opened in os.fwalk(name, topdown=False, dir_fd=folder):
        for each in inner:
            with suppress(OSError):
                os.rmdir(each, dir_fd=opened)
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError:
        if aside:
            beside = b"%s.replaced-%s" % (name, secrets.token_hex(4).encode())
            os.rename(name, beside, src_dir_fd=folder, dst_dir_fd=folder)
