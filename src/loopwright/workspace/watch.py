"""Folders outside the workspace that no agent may change: `[workspace] watch`.

Rule: they are only ever looked at. Size, times and inode of every entry are compared, not contents: the
change time cannot be set back, so a change is seen whatever was done to hide it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from loopwright.errors import ConfigError


def roots(project: Path, names: Iterable[str]) -> tuple[Path, ...]:
    """The watched files and folders, relative names below `project`; ConfigError naming each that is not there."""
    found = tuple(project / name for name in names)
    missing = [path for path in found if not path.exists()]
    if missing:
        raise ConfigError(*(f"workspace.watch: there is no {path} to watch" for path in missing))
    return found


def prints(watched: Sequence[Path], workspace: Path) -> dict[Path, str]:
    """The fingerprint of each of `watched`; what belongs to the workspace below it is not looked at."""
    return {root: _print(root, os.fspath(workspace.resolve())) for root in watched}


def _print(root: Path, workspace: str) -> str:
    """Names, kinds, sizes, times and inodes below `root`, hashed. What cannot be read is part of it."""
    seen = hashlib.sha256(_entry(os.fspath(root)))
    folders = [os.path.realpath(root)]
    while folders:
        folder = folders.pop()
        if folder == workspace:
            continue
        try:
            with os.scandir(folder) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except NotADirectoryError:
            continue
        except OSError as error:
            seen.update(f"{folder}\0{error.errno}".encode(errors="surrogateescape"))
            continue
        for entry in inside:
            if entry.path == workspace:
                continue
            seen.update(_entry(entry.path))
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
    return seen.hexdigest()


def _entry(path: str) -> bytes:
    """One entry; of a folder only what it is: what happens inside it is seen inside it."""
    try:
        st = os.lstat(path)
    except OSError as error:
        return f"{path}\0{error.errno}\n".encode(errors="surrogateescape")
    folder = (st.st_mode & 0o170000) == 0o040000
    facts = (st.st_mode, st.st_ino) if folder else (st.st_mode, st.st_ino, st.st_size, st.st_ctime_ns)
    return f"{path}\0{facts}\n".encode(errors="surrogateescape")
