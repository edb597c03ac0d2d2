"""Journals in one SQLite file: the default store.

Rules. WAL with `synchronous=FULL`, so what was acknowledged survives power loss; every write is one
`BEGIN IMMEDIATE` transaction, of one thread at a time. The file itself, and what is no file of ours: `database`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final
from zlib import crc32

import apsw

from loopwright.errors import Corrupt, Taken
from loopwright.stores import disk
from loopwright.stores.database import (
    NUMBERS,
    UNREADABLE,
    VERSION,
    check_there,
    damaged,
    grow,
    open_database,
    problem,
    version_of,
)
from loopwright.stores.leases import SqliteLease, leased
from loopwright.stores.numbers import KNOWN, Numbers

if TYPE_CHECKING:  # what only types need is not loaded: verbs that read start the sooner
    from datetime import datetime

    from loopwright.ports import Hold, Kept, Refused
    from loopwright.stores.ledgers import Ledgers

LOOK_S: Final = 0.02  # between looks, in a row of quick commits, whether the file is still there
FRESH_S: Final = 0.001  # as old may be what is known of other processes' signals
# A commit that stands in the other table leaves no sum, which a row must have: it is refused as one in the same table is.
_PUT: Final = "INSERT INTO commits VALUES (?1, (SELECT ?2 WHERE ?1 NOT IN (SELECT id FROM log)), ?3)"
_LOG: Final = "INSERT INTO log VALUES (NULL, ?1, (SELECT ?2 WHERE ?1 NOT IN (SELECT id FROM commits)), ?3)"
_OLD_ROWS: Final = "SELECT id, sum, body FROM commits WHERE id>?1 AND id<?2"
_ROWS: Final = f"{_OLD_ROWS} UNION ALL SELECT id, sum, body FROM log WHERE id>?1 AND id<?2"  # noqa: S608 - a constant
_SOME: Final = " ORDER BY id LIMIT 256"
_HEAD: Final = "REPLACE INTO heads VALUES (?, ?, ?, ?, ?)"
_BOTH: Final = f"BEGIN IMMEDIATE; {_PUT}; {_HEAD}; COMMIT"  # one call instead of four
_FOLD: Final = "REPLACE INTO folds VALUES (?, ?, ?)"


class SqliteStore:
    """A store in the SQLite file at `path`, made on first use. `alive` tells whether an owner still lives."""

    told: ClassVar = object()  # another one with every signal of this process: it hears itself at once

    def __init__(self, path: Path, *, alive: Callable[[str], bool | None] = lambda _: None) -> None:
        self.path = path
        self._alive = alive
        self._turn = threading.RLock()  # held through a transaction, which is the connection's
        self._db = open_database(path)
        self._execute = self._db.cursor().execute  # of one cursor, for what is executed all the time
        self._file = path.stat().st_ino
        self._name = os.fspath(path)
        self._numbers = Numbers(path, self._db)
        self._old = version_of(self._db) < VERSION  # without its newer tables
        self._durable = False  # whether its name and its folder's are: who made them may have been killed
        self._look_at = 0.0  # when to look again whether the file is there
        self._last: dict[str, int] = {}  # the key of the last commit that was written here, of each run
        self._version = -1  # of the file, as SQLite saw it when `_seen`
        self._seen = 0.0
        self._heard: object = None
        self._quiet: set[str] = set()  # runs that had no signals then

    @property
    def files(self) -> tuple[Path, ...]:
        """The file, its log and its shared memory."""
        return tuple(self.path.with_name(self.path.name + end) for end in ("", "-wal", "-shm"))

    def append(self, run: str, n: int, commit: bytes) -> None:
        """Writes commit `n` if absent, durably; `Taken` if not."""
        self._write(lambda: self._insert(run, n, commit))

    def append_with(self, run: str, n: int, commit: bytes, kept: Kept) -> None:
        """Like `append`, with head and fold in the same transaction."""
        with self._turn:
            last = self._last.get(run, -1)  # which is before no number
            if last % NUMBERS != n - 1 or kept.fold is not None or not self._put(run, last + 1, commit, kept):
                self._write(lambda: self._insert(run, n, commit, kept))

    def _put(self, run: str, key: int, commit: bytes, kept: Kept) -> bool:
        """Whether a commit went in after one of ours: as little as can be done, since a loop waits for it twice an iteration."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look(now)
        try:
            if kept.head is None:
                self._execute(_PUT, (key, crc32(commit), commit))  # a transaction by itself
            else:
                number, n = divmod(key, NUMBERS)
                row = (key, crc32(commit), commit, number, time.time_ns(), kept.active, n, kept.head)
                self._execute(_BOTH, row)
        except apsw.ConstraintError:  # somebody was first
            self._take_back()
            return False
        except BaseException as error:
            self._take_back()
            if isinstance(error, UNREADABLE):
                raise problem(self.path, error) from None
            raise
        self._last[run] = key
        self._wrote(now)
        return True

    def append_all(self, commits: Sequence[tuple[str, int, bytes, Kept]]) -> list[Refused | None]:
        """Like `append_with` for each, in one transaction; a refusal takes no other with it."""
        if len(commits) == 1:
            return [_refusal(self.append_with, commits[0])]
        refused: list[Refused | None] = [None] * len(commits)

        def put() -> None:
            follow = {}  # the keys of those after one of ours: they go in at once
            for i, (run, n, _, _) in enumerate(commits):
                last = self._last.get(run, -1)
                if last % NUMBERS != n - 1:
                    refused[i] = _refusal(self._insert, commits[i])
                else:
                    follow[i] = self._last[run] = last + 1
            if not self._logged([(key, *commits[i][2:]) for i, key in follow.items()]):
                for i in follow:  # somebody is refused: who?
                    refused[i] = _refusal(self._insert, commits[i])

        self._write(put)
        return refused

    def _logged(self, commits: Sequence[tuple[int, bytes, Kept]]) -> bool:
        """Whether all of these, by their keys, each after one of ours, went in at once; else none did."""
        db, bodies, heads, folds = self._db, [], [], []
        for key, commit, kept in commits:
            number, n = divmod(key, NUMBERS)
            bodies.append((key, crc32(commit), commit))
            if kept.head is not None:
                heads.append((number, time.time_ns(), kept.active, n, kept.head))
            if kept.fold is not None:
                folds.append((number, n, kept.fold))
        db.execute("SAVEPOINT several")
        try:
            db.executemany(_LOG, bodies)
        except apsw.ConstraintError:
            db.execute("ROLLBACK TO several; RELEASE several")
            return False
        db.execute("RELEASE several")
        db.executemany(_HEAD, heads)
        db.executemany(_FOLD, folds)
        return True

    def _look(self, now: float) -> None:
        """The file is the one that was opened, and its name is durable."""
        check_there(self._name, self._file)
        self._look_at = now + LOOK_S
        if not self._durable:
            for folder in (self.path.parent, self.path.parent.parent):
                disk.sync_dir(folder)
            self._sync_found()
            self._durable = True

    def _write(self, put: Callable[[], object], *, durable: bool = True) -> None:
        """One transaction.

        A lease need not outlive the power: without `durable` the disk is not waited for.
        """
        with self._turn:
            db, now = self._db, time.monotonic()
            self._look(now)
            try:
                try:
                    if not durable:
                        db.execute("PRAGMA synchronous=normal")
                    db.execute("BEGIN IMMEDIATE")
                    if self._old:
                        grow(db)
                    put()
                    db.execute("COMMIT")
                except BaseException:
                    self._take_back()
                    raise
                finally:
                    if not durable:
                        db.execute("PRAGMA synchronous=full")
            except UNREADABLE as error:
                raise problem(self.path, error) from None
            self._old = False
            self._wrote(now)

    def _take_back(self) -> None:
        """Ends a transaction that failed, and forgets what was known by it."""
        self._last.clear()
        self._numbers.forget()  # some may have been made in it
        if self._db.in_transaction:  # a full disk has rolled back already
            self._db.execute("ROLLBACK")

    def _wrote(self, began: float) -> None:
        """What others wrote before a commit of ours is known, but not what they wrote as its log was put into the file."""
        version = self._db.data_version()  # one more for each commit of ours, one for all that others wrote
        if version != self._version + 1:
            self._quiet.clear()
        self._version, self._seen, self._heard = version, began, SqliteStore.told

    def _sync_found(self) -> None:
        """What is found on record is durable: who wrote it may have been killed before it was."""
        with suppress(FileNotFoundError):
            fd = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)  # SQLite keeps no lock on this file
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _insert(self, run: str, n: int, commit: bytes, kept: Kept | None = None) -> None:
        """Puts in a commit, with a look at what stands there and before it."""
        db, number = self._db, self._numbers.of(run, make=n == 1)
        if number is None:
            raise Corrupt(f"{self.path} has lost the commits of run {run} before {n}")
        key = number * NUMBERS + n
        self._last.pop(run, None)
        if len(self._last) >= KNOWN:
            self._last.clear()
        there = {at: row for at, *row in db.execute(_ROWS, (key - 2, key + 1))}
        if n > 1 and key - 1 not in there:
            raise Corrupt(f"{self.path} has lost commit {n - 1} of run {run}")
        if key in there:
            self._sync_found()
            raise Taken(n, self._whole(run, n, *there[key]))
        db.execute(_PUT, (key, crc32(commit), commit))
        self._last[run] = key
        if kept is not None and kept.head is not None:
            db.execute(_HEAD, (number, time.time_ns(), kept.active, n, kept.head))
        if kept is not None and kept.fold is not None:
            db.execute(_FOLD, (number, n, kept.fold))

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """What `ask` finds in the file, between the transactions of other threads."""
        try:
            with self._turn:
                return ask()
        except UNREADABLE as error:
            raise problem(self.path, error) from None

    def _rows(self, sql: str, *values: str | int) -> list[Any]:
        rows: list[Any] = self._asked(lambda: list(self._db.execute(sql, values)))
        return rows

    def read(self, run: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """The commits above `after`, in order, a bounded number in memory at a time."""
        number: int | None = self._asked(lambda: self._numbers.of(run))
        if number is None:
            return
        base = number * NUMBERS
        # Before the commits, which then reach at least as far; the first one is never without its run.
        found = self._rows("SELECT CAST(n AS INTEGER) FROM heads WHERE id=?", number)
        known = (found[0][0] if found else None) or 1
        while rows := self._some(base + after, base + NUMBERS):
            for key, there, body in rows:
                yield key - base, self._whole(run, key - base, there, body)
            after = rows[-1][0] - base
        if after < known:
            raise damaged(self.path, f"run {run} has lost commits: {known} were acknowledged")

    def _some(self, after: int, before: int) -> list[Any]:
        """The first rows of commits with keys in between."""
        if self._old:
            rows = self._rows(_OLD_ROWS + _SOME, after, before)
            if self._asked(lambda: version_of(self._db)) < VERSION:  # still, after it was read
                return rows
            self._old = False
        return self._rows(_ROWS + _SOME, after, before)

    def one(self, run: str, n: int) -> bytes | None:
        """Commit `n` as it stands now, whatever was known of the run before; `None` when it is gone."""
        self._numbers.forget(run)
        return next((body for number, body in self.read(run, n - 1) if number == n), None)

    def _whole(self, run: str, n: int, there: object, body: object) -> bytes:
        """The bytes of a commit, if they are as they were written."""
        # SQLite keeps what it is given, whatever the column says.
        if not isinstance(body, bytes) or there != crc32(body):
            raise damaged(self.path, f"commit {n} of run {run} is not as it was written")
        return body

    def place(self, run: str, n: int) -> str:  # noqa: ARG002 - every row is in the one file
        """Where commit `n` stands: the file."""
        return str(self.path)

    def heads(self, *, active: bool | None = None, limit: int = 1000) -> Iterable[tuple[str, bytes]]:
        """Runs with their heads, newest first."""
        check_there(self._name, self._file)
        where = "" if active is None else f"WHERE active={int(active)}"
        return self._rows(
            f"SELECT run, body FROM heads JOIN runs USING (id) {where} ORDER BY touched DESC LIMIT ?",  # noqa: S608 - a constant
            limit,
        )

    def cached(self, run: str) -> tuple[int, bytes] | None:
        """A cached fold and the commit it reaches to."""
        rows = self._rows("SELECT n, body FROM folds JOIN runs USING (id) WHERE run=?", run)
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
        self._quiet.clear()
        SqliteStore.told = object()
        if not free[0]:
            self._sync_found()
        return free[0]

    def signals(self, run: str) -> Iterable[tuple[str, bytes]]:
        """The signals not yet settled, oldest first; nearly free while nobody else writes."""
        with self._turn:
            now, told = time.monotonic(), SqliteStore.told
            if now - self._seen > FRESH_S or told is not self._heard:
                self._rows("PRAGMA data_version")  # looks at the file, which the C call of that name does not
                version = self._db.data_version()
                if version != self._version:
                    self._quiet.clear()
                self._version, self._seen, self._heard = version, now, told
            if run in self._quiet:
                return ()
            rows = self._rows("SELECT key, body FROM signals WHERE run=? AND settled=0 ORDER BY seq", run)
            if not rows:
                if len(self._quiet) >= KNOWN:
                    self._quiet.clear()
                self._quiet.add(run)
            return rows

    def settle(self, run: str, keys: Iterable[str]) -> None:
        """Marks signals as consumed."""
        rows = [(run, key) for key in keys]
        if rows:
            self._write(
                lambda: self._db.executemany("UPDATE signals SET settled=1 WHERE run=? AND key=?", rows)
            )

    def lease(self, run: str, owner: str, ttl: float) -> SqliteLease | None:
        """A lease on the run, or `None` while another living owner has one."""
        return leased(SqliteLease(self._db, self._write, run, owner, ttl), self._alive)

    def _ledgers(self) -> Ledgers:
        from loopwright.stores.ledgers import Ledgers  # verbs that read have no use for it
        from loopwright.stores.rows import RowSheets

        return Ledgers(RowSheets(self.path, self._db, self._write, self._asked, self._sync_found))

    def add(self, key: str, day: str, entry: str, amount: float) -> float:
        """The ledger's total with this entry, which is counted once, durably."""
        return self._ledgers().add(key, day, entry, amount)

    def total(self, key: str, day: str, entry: str | None = None) -> float:
        """The ledger's total, or what was counted of one entry."""
        return self._ledgers().total(key, day, entry)

    def hold(self, login: str, until: datetime | None, why: str) -> None:
        """Says that a login must wait, durably."""
        self._ledgers().hold(login, until, why)

    def holds(self) -> list[Hold]:
        """The holds in force, by login."""
        return self._ledgers().holds()

    def lift(self, login: str) -> None:
        """Ends the hold of a login."""
        self._ledgers().lift(login)

    def close(self) -> None:
        """Lets go of the file."""
        with self._turn:
            self._db.close()


def _refusal(put: Callable[..., None], commit: tuple[str, int, bytes, Kept]) -> Refused | None:
    """Why this commit was not put in, if it was not."""
    try:
        put(*commit)
    except (Taken, Corrupt) as why:
        return why
    return None
