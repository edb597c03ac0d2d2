"""Journals in one SQLite file: the default store.

Rules. WAL with `synchronous=FULL`, so what was acknowledged survives power loss; every write is one
`BEGIN IMMEDIATE` transaction. The file itself, and what is no file of ours: `database`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import apsw

from loopwright.errors import Corrupt, Taken
from loopwright.stores import disk
from loopwright.stores.database import ANEW, NUMBERS, UNREADABLE, check_there, open_database, problem

if TYPE_CHECKING:  # what only types need is not loaded: verbs that read start the sooner
    from datetime import datetime

    from loopwright.ports import Hold, Kept, Refused
    from loopwright.stores.ledgers import Ledgers


KNOWN: Final = 10_000  # runs whose numbers are remembered
_PUT: Final = "INSERT INTO commits VALUES (?, ?, ?)"
_ADD: Final = "INSERT INTO commits SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM commits WHERE id = ?1 - 1)"
# The number of a run by its index, and by the table; one statement, as others may begin it meanwhile.
_FIND: Final = (
    "SELECT number, CASE WHEN number IS NULL THEN (SELECT id FROM runs NOT INDEXED WHERE run=?1)"
    " ELSE (SELECT id FROM runs WHERE id=number AND +run=?1) END"
    " FROM (SELECT (SELECT id FROM runs WHERE run=?1) AS number)"
)
_HEAD: Final = "INSERT OR REPLACE INTO heads VALUES (?, ?, ?, ?, ?)"
_FOLD: Final = "INSERT OR REPLACE INTO folds VALUES (?, ?, ?)"


@dataclass(frozen=True, slots=True)
class SqliteLease:
    """A row that says who drives a run, until when."""

    store: SqliteStore
    run: str
    owner: str
    ttl: float

    def renew(self) -> bool:
        """Whether it is still ours."""
        return self.store.renew(self.run, self.owner, self.ttl)

    def release(self) -> None:
        """Gives it back."""
        self.store.release(self.run, self.owner)


class SqliteStore:
    """A store in the SQLite file at `path`, made on first use. `alive` tells whether an owner still lives."""

    def __init__(self, path: Path, *, alive: Callable[[str], bool | None] = lambda _: None) -> None:
        self.path = path
        self._alive = alive
        self._db = open_database(path)
        self._file = path.stat().st_ino
        self._name = os.fspath(path)
        self._ids: dict[str, int] = {}
        self._durable = False  # whether its name and its folder's are: who made them may have been killed
        self._last: dict[int, int] = {}  # the last commit that was written here, of each run
        self._quiet: tuple[int, set[str]] = (-1, set())  # data_version, runs known to have no signals

    @property
    def files(self) -> tuple[Path, ...]:
        """The file, its log and its shared memory."""
        return tuple(self.path.with_name(self.path.name + end) for end in ("", "-wal", "-shm"))

    def append(self, run: str, n: int, commit: bytes) -> None:
        """Writes commit `n` if absent, durably; `Taken` if not."""
        self._write(lambda: self._insert(run, n, commit))

    def append_with(self, run: str, n: int, commit: bytes, kept: Kept) -> None:
        """Like `append`, with head and fold in the same transaction."""
        alone = n > 1 and kept.head is None and kept.fold is None
        self._write(lambda: self._insert(run, n, commit, kept), one=alone)

    def append_all(self, commits: Sequence[tuple[str, int, bytes, Kept]]) -> list[Refused | None]:
        """Like `append_with` for each, in one transaction; a refusal takes no other with it."""
        refused: list[Refused | None] = [None] * len(commits)

        def put() -> None:
            with suppress(Corrupt):  # of one of them
                if self._inserted(commits):
                    return
            for i, (run, n, commit, kept) in enumerate(commits):  # somebody is refused: who?
                try:
                    self._insert(run, n, commit, kept)
                except (Taken, Corrupt) as why:
                    refused[i] = why

        self._write(put)
        return refused

    def _inserted(self, commits: Sequence[tuple[str, int, bytes, Kept]]) -> bool:
        """Whether all of these went in at once, a third of the time of one by one; else none did."""
        db, bodies, heads, folds, sql = self._db, [], [], [], _PUT
        for run, n, commit, kept in commits:
            number = self._id(run, make=n == 1)
            if number is None or n == 1 or len(commits) == 1:
                return False
            if self._last.get(number) != n - 1:  # else the one before was written by us
                sql = _ADD
            bodies.append((number * NUMBERS + n, crc32(commit), commit))
            if kept.head is not None:
                heads.append((number, time.time_ns(), kept.active, n, kept.head))
            if kept.fold is not None:
                folds.append((number, n, kept.fold))
        db.execute("SAVEPOINT several")
        before = db.total_changes()
        try:
            db.executemany(sql, bodies)
            whole = db.total_changes() - before == len(bodies)
        except apsw.ConstraintError:
            whole = False
        if whole:
            db.executemany(_HEAD, heads)
            db.executemany(_FOLD, folds)
            self._last.update((key // NUMBERS, key % NUMBERS) for key, _, _ in bodies)
        else:
            db.execute("ROLLBACK TO several")
        db.execute("RELEASE several")
        return whole

    def _write(self, put: Callable[[], object], *, durable: bool = True, one: bool = False) -> None:
        """One transaction; where `one` statement is all that writes, it is one by itself.

        A lease need not outlive the power: without `durable` the disk is not waited for.
        """
        db = self._db
        check_there(self._name, self._file)
        if not self._durable:
            for folder in (self.path.parent, self.path.parent.parent):
                disk.sync_dir(folder)
            self._sync_found()
            self._durable = True
        try:
            try:
                if not durable:
                    db.execute("PRAGMA synchronous=normal")
                if not one:
                    db.execute("BEGIN IMMEDIATE")
                put()
                if not one:
                    db.execute("COMMIT")
            except BaseException:
                self._last.clear()
                self._ids.clear()  # some may have been made in what is taken back now
                if db.in_transaction:  # a full disk has rolled back already
                    db.execute("ROLLBACK")
                raise
            finally:
                if not durable:
                    db.execute("PRAGMA synchronous=full")
        except UNREADABLE as error:
            raise problem(self.path, error) from None

    def _sync_found(self) -> None:
        """What is found on record is durable: who wrote it may have been killed before it was."""
        with suppress(FileNotFoundError):
            fd = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)  # SQLite keeps no lock on this file
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _id(self, run: str, *, make: bool = False) -> int | None:
        """The number of a run in this file, made with its first commit; `None` when it has none."""
        known = self._ids.get(run)
        if known is None:
            known = self._found(run)
            if known is None and not make:
                return None
            if known is None:
                self._db.execute("INSERT INTO runs (run) VALUES (?)", (run,))
                known = self._db.last_insert_rowid()
            if known >= NUMBERS >> 1:
                raise self._damaged(f"run {run} has the number {known}")
            if len(self._ids) >= KNOWN:
                self._ids.clear()
                self._last.clear()
            self._ids[run] = known
        return known

    def _found(self, run: str) -> int | None:
        """The number of a run, if table and index agree: believing one alone could begin a second history."""
        ((indexed, number),) = self._db.execute(_FIND, (run,))
        if indexed != number:
            raise self._damaged(f"index and table of runs do not agree about {run}")
        return None if number is None else int(number)

    def _damaged(self, what: str) -> Corrupt:
        return Corrupt(f"{self.path} is damaged ({what}): {ANEW}")

    def _insert(self, run: str, n: int, commit: bytes, kept: Kept | None = None) -> None:
        db, number = self._db, self._id(run, make=n == 1)
        if number is None:
            raise Corrupt(f"{self.path} has lost the commits of run {run} before {n}")
        key = number * NUMBERS + n
        try:
            if n == 1 or self._last.get(number) == n - 1:  # the one before was written by us
                db.execute(_PUT, (key, crc32(commit), commit))
            else:
                db.execute(_ADD, (key, crc32(commit), commit))
                if not db.changes():
                    raise Corrupt(f"{self.path} has lost commit {n - 1} of run {run}")
            self._last[number] = n
        except apsw.ConstraintError:
            self._sync_found()
            ((there, body),) = db.execute("SELECT sum, body FROM commits WHERE id=?", (key,))
            raise Taken(n, self._whole(run, n, there, body)) from None
        if kept is not None and kept.head is not None:
            db.execute(_HEAD, (number, time.time_ns(), kept.active, n, kept.head))
        if kept is not None and kept.fold is not None:
            db.execute(_FOLD, (number, n, kept.fold))

    def _rows(self, sql: str, *values: str | int) -> list[Any]:
        try:
            return list(self._db.execute(sql, values))
        except UNREADABLE as error:
            raise problem(self.path, error) from None

    def read(self, run: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """The commits above `after`, in order, a bounded number in memory at a time."""
        try:
            number = self._id(run)
        except UNREADABLE as error:
            raise problem(self.path, error) from None
        if number is None:
            return
        base = number * NUMBERS
        # Before the commits, which then reach at least as far; the first one is never without its run.
        found = self._rows("SELECT CAST(n AS INTEGER) FROM heads WHERE id=?", number)
        known = (found[0][0] if found else None) or 1
        while rows := self._rows(
            "SELECT id, sum, body FROM commits WHERE id>? AND id<? ORDER BY id LIMIT 256",
            base + after,
            base + NUMBERS,
        ):
            for key, there, body in rows:
                yield key - base, self._whole(run, key - base, there, body)
            after = rows[-1][0] - base
        if after < known:
            raise self._damaged(f"run {run} has lost commits: {known} were acknowledged")

    def one(self, run: str, n: int) -> bytes | None:
        """Commit `n` as it stands now, whatever was known of the run before; `None` when it is gone."""
        self._ids.pop(run, None)
        return next((body for number, body in self.read(run, n - 1) if number == n), None)

    def _whole(self, run: str, n: int, there: object, body: object) -> bytes:
        """The bytes of a commit, if they are as they were written."""
        # SQLite keeps what it is given, whatever the column says.
        if not isinstance(body, bytes) or there != crc32(body):
            raise self._damaged(f"commit {n} of run {run} is not as it was written")
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
        self._quiet = (-1, set())
        if not free[0]:
            self._sync_found()
        return free[0]

    def signals(self, run: str) -> Iterable[tuple[str, bytes]]:
        """The signals not yet settled, oldest first; nearly free while nobody else writes."""
        # The statement looks at the file; the C call of that name does not.
        ((version,),) = self._rows("PRAGMA data_version")
        if version == self._quiet[0] and run in self._quiet[1]:
            return ()
        rows = self._rows("SELECT key, body FROM signals WHERE run=? AND settled=0 ORDER BY seq", run)
        if not rows:
            if version != self._quiet[0]:
                self._quiet = (version, set())
            self._quiet[1].add(run)
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

        self._write(put, durable=False)
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

        self._write(put, durable=False)
        return kept[0]

    def release(self, run: str, owner: str) -> None:
        """Gives the lease back."""
        self._write(
            lambda: self._db.execute("DELETE FROM leases WHERE run=? AND owner=?", (run, owner)),
            durable=False,
        )

    def _ledgers(self) -> Ledgers:
        from loopwright.stores.ledgers import Ledgers  # verbs that read have no use for it
        from loopwright.stores.rows import RowSheets

        return Ledgers(RowSheets(self.path, self._db, self._write, self._sync_found))

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
        self._db.close()
