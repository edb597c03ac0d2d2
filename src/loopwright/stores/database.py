"""The SQLite file of the default store: made, opened, and known for what it is.

Rule: a file that exists is never taken for a new one. It is created whole under another name and linked into
place, so an empty or foreign file is damage, and is said.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from loopwright.errors import Corrupt, StoreError
from loopwright.stores import disk

APPLICATION: Final = 0x4C505752  # "LPWR"
VERSION: Final = 5
ANEW: Final = "move it and, where they are, its -wal and -shm files aside; then restore a copy, or start anew"
UNREADABLE: Final = (apsw.Error, UnicodeDecodeError)  # a name that is no text any more
BUSY_MS: Final = 5000
SAFE: Final = (3, 51, 3)  # older ones can corrupt a WAL with two writers (sqlite.org/wal.html#walresetbug)

# Commits are rows by number alone: `run << 32 | n`. Those of a lone run append to the end of one B-tree, so that a
# commit writes one page; a key of text would make every few commits rewrite three. `sum` is the CRC of the
# body: by the hash links, rot in a commit is known only once another one follows. A head says of which commit
# it is, `n`: so many there were.
NUMBERS: Final = 1 << 32
_SCHEMA: Final = """
CREATE TABLE runs (id INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE);
CREATE TABLE commits (id INTEGER PRIMARY KEY, sum INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE heads (id INTEGER PRIMARY KEY, touched INTEGER NOT NULL, active INTEGER NOT NULL, n INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE folds (id INTEGER PRIMARY KEY, n INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE signals (seq INTEGER PRIMARY KEY, run TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, settled INTEGER NOT NULL DEFAULT 0, UNIQUE (run, key));
CREATE TABLE leases (run TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
"""
# Since version 4: ledgers and holds.
SHEETS: Final = 4
_SHEETS: Final = """
CREATE TABLE sheets (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, sum INTEGER NOT NULL, body BLOB NOT NULL);
"""
# Since version 5: the commits of runs that wait for the disk together, in the order in which they came. In `commits`
# those of a thousand runs would each go into a page of their own, and split it: six times as many pages are written.
# A commit stands in one of the two; who writes one looks in the other.
_LOG: Final = """
CREATE TABLE log (seq INTEGER PRIMARY KEY, id INTEGER NOT NULL UNIQUE, sum INTEGER NOT NULL, body BLOB NOT NULL);
"""
_ADDED: Final = ((SHEETS, _SHEETS), (VERSION, _LOG))  # what an older file lacks


def _tables(schema: str) -> set[bytes]:
    return {line.rstrip(";").encode() for line in schema.split("\n") if line}


_TABLES: Final = {
    SHEETS - 1: _tables(_SCHEMA),
    SHEETS: _tables(_SCHEMA + _SHEETS),
    VERSION: _tables(_SCHEMA + _SHEETS + _LOG),
}


def open_database(path: Path) -> apsw.Connection:
    """The database at `path`, made on first use; `StoreError` when it is another's or cannot be used."""
    if tuple(int(p) for p in apsw.sqlite_lib_version().split(".")[:3]) < SAFE:
        raise StoreError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a shared file: install apsw 3.51.3 or newer"
        )
    try:
        if not path.exists():
            _no_log(path)
            _create(path)
        elif path.stat().st_size == 0:
            raise Corrupt(f"{path} is empty: it held runs and was damaged. {ANEW.capitalize()}")
        looking = not os.access(path.parent, os.W_OK)
        db = _connect_to_look(path) if looking else _connect(path)
        _check(path, db)  # before anything is set: a file of somebody else's stays as it is
        if not looking:
            _tune(db)
    except UNREADABLE as error:
        raise problem(path, error) from None
    return db


def _no_log(path: Path) -> None:
    """`Corrupt` where a log lies without its database: a new one would take over what stands in it.

    An empty log tells nothing, and shared memory without a log is made anew.
    """
    log = path.with_name(f"{path.name}-wal")
    with suppress(FileNotFoundError):
        if log.stat().st_size and not path.exists():  # made by somebody else meanwhile, it has a log
            raise Corrupt(
                f"{path} is missing, but its log {log} is here: put the file back, or move "
                f"{log} and {path.name}-shm aside too to start anew"
            )


def _create(path: Path) -> None:
    """Makes the file whole under another name, then links it into place: it is never seen half made."""
    import tempfile  # only once in the life of a store

    disk.make_dir(path.parent)
    fd, name = tempfile.mkstemp(prefix=".new-", suffix=".db", dir=path.parent)
    os.close(fd)
    made = Path(name)
    try:
        db = _connect(made)
        _tune(db)
        db.pragma("application_id", APPLICATION)
        db.pragma("user_version", VERSION)
        db.execute(_SCHEMA + _SHEETS + _LOG)
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        db.close()
        with suppress(FileExistsError):  # another process was first: its file is as good
            os.link(made, path)
    finally:
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(name + suffix).unlink()


def _connect(path: Path) -> apsw.Connection:
    db = apsw.Connection(str(path))
    db.set_busy_timeout(BUSY_MS)
    return db


def _connect_to_look(path: Path) -> apsw.Connection:
    """For a folder in which no log can be made: what is in it can be read.

    A log that is there is read too, with its shared memory. Where there is none the file is all, and is taken as it
    is, because without a log SQLite would not open it.
    """
    log = path.with_name(f"{path.name}-wal")
    whole = not log.exists() or log.stat().st_size == 0
    db = apsw.Connection(
        f"{path.absolute().as_uri()}{'?immutable=1' if whole else ''}",
        flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
    )
    db.set_busy_timeout(BUSY_MS)
    return db


def _tune(db: apsw.Connection) -> None:
    # each pragma alone: a script stops at the first statement that returns a row
    for name, value in (("journal_mode", "wal"), ("synchronous", "full"), ("wal_autocheckpoint", 500)):
        db.pragma(name, value)


def _check(path: Path, db: apsw.Connection) -> None:
    ((app,),) = db.execute("PRAGMA application_id")
    version = version_of(db)
    schema = db.execute("SELECT CAST(sql AS BLOB) FROM sqlite_schema WHERE type='table'")
    tables = {sql for (sql,) in schema}
    if app != APPLICATION:
        raise StoreError(f"{path} is a database of something else: name another file")
    if version not in _TABLES:
        raise StoreError(
            f"{path} has store version {version}; this loopwright reads {VERSION}: use the version that wrote it"
        )
    if not tables >= _TABLES[version]:
        raise Corrupt(f"{path} has lost tables, or their columns: {ANEW}")


def version_of(db: apsw.Connection) -> int:
    """The store version that the file has now."""
    ((version,),) = db.execute("PRAGMA user_version")
    return int(str(version))


def grow(db: apsw.Connection) -> None:
    """Gives an older file the tables it lacks, in the transaction that first writes to it."""
    found = version_of(db)
    for since, table in _ADDED:
        if found < since:
            db.execute(table.replace("TABLE", "TABLE IF NOT EXISTS"))  # SQLite keeps it without these words
            db.execute(f"PRAGMA user_version={VERSION}")


def problem(path: Path, error: Exception) -> StoreError:
    """What SQLite said, as an error of ours: damage, or a file that cannot be used."""
    if isinstance(error, apsw.NotADBError | apsw.CorruptError | UnicodeDecodeError):
        return damaged(path, str(error))
    return StoreError(f"{path} cannot be used: {error}")


def damaged(path: Path, what: str) -> Corrupt:
    """The error for damage in what a file holds."""
    return Corrupt(f"{path} is damaged ({what}): {ANEW}")


def check_there(name: str, number: int) -> None:
    """`StoreError` where the file of this name is not the one (by its inode) that was opened: SQLite would go on with it."""
    try:
        there = os.stat(name).st_ino == number  # noqa: PTH116 - a tenth of the time
    except OSError:
        there = False
    if not there:
        raise StoreError(
            f"{name} was removed or replaced while it was in use: nothing more is kept; put it back, or start this program anew"
        )
