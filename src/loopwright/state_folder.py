"""The folder that holds a project's runs and records.

Rule: readable by its owner only, ignored by git, never behind a link.
"""

from __future__ import annotations

import secrets
import stat
from pathlib import Path

from loopwright.errors import WorkspaceError


def create_state(state: Path) -> None:
    """The state folder stands, readable by its owner only, and git ignores all of it.

    WorkspaceError when it is a symlink, not a folder, or writable by everybody.
    """
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        seen = state.lstat()
    except FileExistsError:
        seen = state.lstat()
    except OSError as error:
        raise WorkspaceError(f"{state} cannot be made: {error.strerror or error}") from error
    if stat.S_ISLNK(seen.st_mode):
        raise WorkspaceError(f"{state} is a symlink: replace it by a folder, runs are not kept through links")
    if not stat.S_ISDIR(seen.st_mode):
        raise WorkspaceError(f"{state} is not a folder: move it away")
    if seen.st_mode & stat.S_IWOTH:
        raise WorkspaceError(
            f"{state} is writable by everybody, so what it says cannot be trusted: chmod 700 {state}"
        )
    try:
        if stat.S_IMODE(seen.st_mode) != 0o700:
            state.chmod(0o700)
        ignore = state / ".gitignore"
        if not ignore.is_file():
            temp = state / f".gitignore.{secrets.token_hex(8)}.new"
            temp.write_bytes(b"*\n")
            temp.replace(ignore)
    except OSError as error:
        raise WorkspaceError(f"{state} cannot be written: {error.strerror or error}") from error
