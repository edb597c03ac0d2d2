"""Ledgers and holds of the files store: a framed file each, which is replaced whole.

Rule: a file that exists is damaged or as it was written, never new; who writes has the lock of the folder it is in.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from loopwright.errors import Corrupt
from loopwright.stores import disk
from loopwright.stores.ledgers import HOLDS, Change

LOCK: Final = ".lock"


class FileSheets:
    """The sheets in `folder`; `ready` makes the folder of a file, and what is there durable."""

    def __init__(self, folder: Path, ready: Callable[[Path], None]) -> None:
        self._folder = folder
        self._ready = ready

    def spoilt(self, name: str) -> Corrupt:
        """The error for a damaged file: what it means, and what to do."""
        lost, anew = "what was spent cannot be read", "its day then begins at zero"
        if name == HOLDS:
            lost, anew = "which logins must wait cannot be read", "then none does"
        return Corrupt(f"{self._folder / name} is damaged: {lost}. Restore a copy, or move it aside ({anew})")

    def look(self, name: str) -> bytes | None:
        """What the sheet holds; `Corrupt` where the file is not what was written under this name."""
        path = self._folder / name
        with disk.said(path):
            try:  # only what is not there is nothing: a file that may not be read is an error
                os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
            except FileNotFoundError:
                return None
            fields, body = disk.framed(path) or ({}, b"")
            if fields.get("sheet") != name:
                raise self.spoilt(name)
            return body

    def edit(self, name: str, change: Change) -> None:
        """Puts what `change` makes of it in its place, durably."""
        path = self._folder / name
        lock = path.with_name(LOCK)
        with disk.said(path):
            self._ready(path)
            os.close(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            with disk.held(lock):
                made = change(self.look(name))
                disk.swept(path.parent)
                if made is not None:
                    disk.put(path, disk.frame(made, sheet=name), sync=True)
                disk.sync_dir(path.parent)  # its name, whoever made it
