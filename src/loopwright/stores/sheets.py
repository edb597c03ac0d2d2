"""Ledgers and holds of the files store: a framed file each, which is replaced whole.

Rule: a file that exists is damaged or as it was written, never new; who writes has the lock of the folder it is in.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from loopwright.stores import disk, ledgers

LOCK: Final = ".lock"


class FileSheets:
    """The sheets in `folder`; `ready` makes the folder of a file, and what is there durable."""

    def __init__(self, folder: Path, ready: Callable[[Path], None]) -> None:
        self._folder = folder
        self._ready = ready

    def place(self, name: str) -> str:
        """The file."""
        return str(self._folder / name)

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
                raise ledgers.spoilt(str(path), name)
            return body

    def edit(self, name: str, change: ledgers.Change) -> None:
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
