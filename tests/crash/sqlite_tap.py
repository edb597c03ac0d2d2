"""SQLite's operations on its files, seen through a VFS of our own; a tap like `loopwright.testing.os_calls`.

Rule: the VFS below does the work. What it does besides, syncing the folder of a new journal, is told as it does it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from loopwright.testing import Around, Op, os_calls

JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_SUPER_JOURNAL


def sync_of(folder: str) -> Op:
    return Op(kind="sync", path=folder, file=os.stat(folder).st_ino)


@contextmanager
def sqlite_calls(folder: Path, around: Around) -> Iterator[None]:
    """Shows `around` what SQLite, and Python through `os`, do below `folder`."""

    below = apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def __init__(self, name, flags):
            self.path = name.filename() if isinstance(name, apsw.URIFilename) else name
            self.dirsync = bool(flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & JOURNALS)
            if flags[0] & apsw.SQLITE_OPEN_CREATE and not os.path.exists(self.path):
                around(
                    Op(kind="create", path=self.path),
                    lambda _: super(File, self).__init__(below, name, flags),
                )
            else:
                super().__init__(below, name, flags)
            self.inode = os.stat(self.path).st_ino

        def xWrite(self, data, offset):
            op = Op(kind="write", path=self.path, at=offset, data=bytes(data), file=self.inode, whole=True)
            around(op, lambda part: super(File, self).xWrite(data if part is None else part, offset))

        def xTruncate(self, size):
            op = Op(kind="truncate", path=self.path, at=size, file=self.inode)
            around(op, lambda _: super(File, self).xTruncate(size))

        def xSync(self, flags):
            op = Op(kind="sync", path=self.path, file=self.inode)
            around(op, lambda _: super(File, self).xSync(flags))
            if self.dirsync:
                self.dirsync = False
                around(sync_of(os.path.dirname(self.path)), lambda _: None)

    class Vfs(apsw.VFS):
        def __init__(self):
            super().__init__("seen", below, makedefault=True)

        def xOpen(self, name, flags):
            path = name.filename() if isinstance(name, apsw.URIFilename) else name
            if path is None or not path.startswith(f"{folder}/"):
                return super().xOpen(name, flags)
            return File(name, flags)

        def xDelete(self, name, syncdir):
            around(Op(kind="unlink", path=name), lambda _: super(Vfs, self).xDelete(name, syncdir))
            if syncdir:
                around(sync_of(os.path.dirname(name)), lambda _: None)

    vfs = Vfs()
    try:
        with os_calls(folder, around):
            yield
    finally:
        vfs.unregister()
