"""Journals in one SQLite file: the default store.

Rules. WAL with `synchronous=FULL`, so what was acknowledged survives power loss; every write is one
`BEGIN IMMEDIATE` transaction. A file that exists is never taken for a new one: it is created whole
under another name and linked into place, so an empty or foreign file is damage, and is said.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import apsw

from loopwright.errors import Corrupt, StoreError, Taken
from loopwright.ports import Kept
from loopwright.stores import disk

APPLICATION: Final = 0x4C505752  # "LPWR"
VERSION: Final = 1
BUSY_MS: Final = 5000
SAFE: Final = (3, 51, 3)  # older ones can corrupt a WAL with two writers (sqlite.org/wal.html#walresetbug)

_SCHEMA: Final = """
CREATE TABLE commits (run TEXT NOT NULL, n INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (run, n)) WITHOUT ROWID;
CREATE TABLE heads (run TEXT PRIMARY KEY, touched INTEGER NOT NULL, active INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX heads_touched ON heads (active, touched);
CREATE TABLE folds (run TEXT PRIMARY KEY, n INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE signals (seq INTEGER PRIMARY KEY, run TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, settled INTEGER NOT NULL DEFAULT 0, UNIQUE (run, key));
CREATE TABLE leases (run TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
"""


class SqliteLease:
    """A row that says who drives a run, until when."""

    def __init__(self, store: SqliteStore, run: str, owner: str, ttl: float) -> None:
        self._store = store
        self._run = run
        self._owner = owner
        self._ttl = ttl

    def renew(self) -> bool:
        """Whether it is still ours."""
        return self._store.renew(self._run, self._owner, self._ttl)

    def release(self) -> None:
        """Gives it back."""
        self._store.release(self._run, self._owner)


class SqliteStore:
    """A store in the SQLite file at `path`, made on first use. `alive` tells whether an owner still lives."""

    def __init__(self, path: Path, *, alive: Callable[[str], bool | None] = lambda _: None) -> None:
        self.path = path
        self._alive = alive
        if tuple(int(p) for p in apsw.sqlite_lib_version().split(".")[:3]) < SAFE:
            raise StoreError(
                f"SQLite {apsw.sqlite_lib_version()} can corrupt a shared file: install apsw 3.51.3 or newer"
            )
        if not path.exists():
            self._create()
        elif path.stat().st_size == 0:
            raise Corrupt(
                f"{path} is empty: it held runs and was damaged. Restore a copy, or move it aside to start anew"
            )
        self._db = self._connect(path)
        self._check()  # before anything is set: a file of somebody else's stays as it is
        self._tune(self._db)
        self._file = path.stat().st_ino
        self._durable = (
            False  # whether the file's name and its folder's are: who made them may have been killed
        )
        self._quiet: tuple[int, set[str]] = (-1, set())  # data_version, runs known to have no signals

    def _create(self) -> None:
        """Makes the file whole under another name, then links it into place: it is never seen half made."""
        disk.make_dir(self.path.parent)
        fd, name = tempfile.mkstemp(prefix=".new-", suffix=".db", dir=self.path.parent)
        os.close(fd)
        made = Path(name)
        try:
            db = self._connect(made)
            self._tune(db)
            db.pragma("application_id", APPLICATION)
            db.pragma("user_version", VERSION)
            db.execute(_SCHEMA)
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            db.close()
            with suppress(FileExistsError):  # another process was first: its file is as good
                os.link(made, self.path)
        finally:
            for suffix in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    Path(name + suffix).unlink()

    def _connect(self, path: Path) -> apsw.Connection:
        try:
            db = apsw.Connection(str(path))
            db.set_busy_timeout(BUSY_MS)
        except apsw.Error as error:
            raise self._problem(error) from None
        return db

    def _tune(self, db: apsw.Connection) -> None:
        try:
            # each pragma alone: a script stops at the first statement that returns a row
            for name, value in (
                ("journal_mode", "wal"),
                ("synchronous", "full"),
                ("wal_autocheckpoint", 1000),
            ):
                db.pragma(name, value)
        except apsw.Error as error:
            raise self._problem(error) from None

    def _check(self) -> None:
        try:
            (app,) = next(iter(self._db.execute("PRAGMA application_id")))
            (version,) = next(iter(self._db.execute("PRAGMA user_version")))
            tables = {
                name for (name,) in self._db.execute("SELECT name FROM sqlite_schema WHERE type='table'")
            }
        except apsw.Error as error:
            raise self._problem(error) from None
        if app != APPLICATION:
            raise StoreError(f"{self.path} is a database of something else: name another file")
        if version != VERSION:
            raise StoreError(
                f"{self.path} has store version {version}; this loopwright reads {VERSION}: use the version that wrote it"
            )
        if not {"commits", "heads", "folds", "signals", "leases"} <= tables:
            raise Corrupt(f"{self.path} has lost tables: restore a copy, or move it aside to start anew")

    def _problem(self, error: apsw.Error) -> StoreError:
        if isinstance(error, apsw.NotADBError | apsw.CorruptError):
            return Corrupt(
                f"{self.path} is damaged ({error}): restore a copy, or move it aside to start anew"
            )
        return StoreError(f"{self.path} cannot be used: {error}")

    def append(self, run: str, n: int, commit: bytes) -> None:
        """Writes commit `n` if absent, durably; `Taken` if not."""
        self._write(lambda: self._insert(run, n, commit))

    def append_with(self, run: str, n: int, commit: bytes, kept: Kept) -> None:
        """Like `append`, with head and fold in the same transaction."""

        def put() -> None:
            self._insert(run, n, commit)
            self._db.execute(
                "INSERT INTO heads VALUES (?, ?, ?, ?) ON CONFLICT (run) DO UPDATE SET "
                "touched=excluded.touched, active=excluded.active, body=excluded.body",
                (run, time.time_ns(), kept.active, kept.head),
            )
            if kept.fold is not None:
                self._db.execute("INSERT OR REPLACE INTO folds VALUES (?, ?, ?)", (run, n, kept.fold))

        self._write(put)

    def _write(self, put: Callable[[], None]) -> None:
        db = self._db
        try:
            there = self.path.stat().st_ino == self._file
        except OSError:
            there = False
        if not there:  # SQLite would go on writing into a file that has no name
            raise StoreError(f"{self.path} was removed or replaced while it was in use: nothing more is kept")
        if not self._durable:
            for folder in (self.path.parent, self.path.parent.parent):
                disk.sync_dir(folder)
            self._sync_found()
            self._durable = True
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                put()
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:  # a full disk has rolled back already
                    db.execute("ROLLBACK")
                raise
        except apsw.Error as error:
            raise self._problem(error) from None

    def _sync_found(self) -> None:
        """What is found on record is durable: who wrote it may have been killed before it was."""
        with suppress(FileNotFoundError):
            fd = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)  # SQLite keeps no lock on this file
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _insert(self, run: str, n: int, commit: bytes) -> None:
        try:
            self._db.execute("INSERT INTO commits VALUES (?, ?, ?)", (run, n, commit))
        except apsw.ConstraintError:
            self._sync_found()
            rows = self._db.execute("SELECT body FROM commits WHERE run=? AND n=?", (run, n))
            raise Taken(n, next(iter(rows))[0]) from None
        if n > 1 and not list(self._db.execute("SELECT 1 FROM commits WHERE run=? AND n=?", (run, n - 1))):
            raise Corrupt(f"{self.path} has lost commit {n - 1} of run {run}")

    def _rows(self, sql: str, *values: str | int) -> list[Any]:
        try:
            return list(self._db.execute(sql, values))
        except apsw.Error as error:
            raise self._problem(error) from None

    def read(self, run: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """The commits above `after`, in order, a bounded number in memory at a time."""
        while rows := self._rows(
            "SELECT n, body FROM commits WHERE run=? AND n>? ORDER BY n LIMIT 256", run, after
        ):
            for n, body in rows:
                if not isinstance(body, bytes):  # SQLite keeps what it is given, whatever the column says
                    raise Corrupt(f"{self.path} holds text where commit {n} of run {run} should be")
                yield n, body
            after = rows[-1][0]

    def place(self, run: str, n: int) -> str:  # noqa: ARG002 - every row is in the one file
        """Where commit `n` stands: the file."""
        return str(self.path)

    def heads(self, *, active: bool | None = None, limit: int = 1000) -> Iterable[tuple[str, bytes]]:
        """Runs with their heads, newest first."""
        where = "" if active is None else f"WHERE active={int(active)}"
        return self._rows(f"SELECT run, body FROM heads {where} ORDER BY touched DESC LIMIT ?", limit)  # noqa: S608 - a constant

    def cached(self, run: str) -> tuple[int, bytes] | None:
        """A cached fold and the commit it reaches to."""
        rows = self._rows("SELECT n, body FROM folds WHERE run=?", run)
        return rows[0] if rows else None

    def signal(self, run: str, key: str, record: bytes) -> bool:
        """Whether this key was free."""
        free: list[bool] = []

        def put() -> None:
            self._db.execute(
                "INSERT OR IGNORE INTO signals (run, key, body) VALUES (?, ?, ?)", (run, key, record)
            )
            free.append(self._db.changes() == 1)

        self._write(put)
        self._quiet = (-1, set())
        if not free[0]:
            self._sync_found()
        return free[0]

    def signals(self, run: str) -> Iterable[tuple[str, bytes]]:
        """The signals not yet settled, oldest first; nearly free while nobody else writes."""
        version = self._db.pragma("data_version")  # looks at the file; the C call of that name does not
        if version == self._quiet[0] and run in self._quiet[1]:
            return ()
        rows = self._rows("SELECT key, body FROM signals WHERE run=? AND settled=0 ORDER BY seq", run)
        if not rows:
            known = self._quiet[1] if version == self._quiet[0] else set()
            self._quiet = (version, known | {run})
        return rows

    def settle(self, run: str, keys: Iterable[str]) -> None:
        """Marks signals as consumed."""
        rows = [(run, key) for key in keys]
        if rows:
            self._write(
                lambda: _all(self._db.executemany("UPDATE signals SET settled=1 WHERE run=? AND key=?", rows))
            )

    def lease(self, run: str, owner: str, ttl: float) -> SqliteLease | None:
        """A lease on the run, or `None` while another living owner has one."""
        got: list[bool] = []

        def put() -> None:
            rows = list(self._db.execute("SELECT owner, until FROM leases WHERE run=?", (run,)))
            held = rows[0] if rows else None
            if held and self._holds(str(held[0]), float(str(held[1]))):
                got.append(False)
                return
            self._db.execute(
                "INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", (run, owner, time.time() + ttl)
            )
            got.append(True)

        self._write(put)
        return SqliteLease(self, run, owner, ttl) if got[0] else None

    def _holds(self, owner: str, until: float) -> bool:
        """An owner known to live or to be dead decides; the clock only where that cannot be known."""
        alive = self._alive(owner)
        return until > time.time() if alive is None else alive

    def renew(self, run: str, owner: str, ttl: float) -> bool:
        """Whether the lease is still `owner`'s; it then holds for `ttl` seconds more."""
        kept: list[bool] = []

        def put() -> None:
            self._db.execute(
                "UPDATE leases SET until=? WHERE run=? AND owner=?", (time.time() + ttl, run, owner)
            )
            kept.append(self._db.changes() == 1)

        self._write(put)
        return kept[0]

    def release(self, run: str, owner: str) -> None:
        """Gives the lease back."""
        self._write(
            lambda: _all(self._db.execute("DELETE FROM leases WHERE run=? AND owner=?", (run, owner)))
        )

    def close(self) -> None:
        """Lets go of the file."""
        self._db.close()


def _all(rows: Iterable[object]) -> None:
    for _ in rows:
        pass
