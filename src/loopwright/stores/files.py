"""Journals in a folder of plain files, which people read without loopwright.

    <run>.journal.jsonl        the truth: one commit a line, appended and fsynced
    <run>.json                 the latest state, by the mission's names
    checkpoints/<run>-0007.json  the state as iteration 7 closed; <run>.sha256 lists their digests
    heads/<run>.head           the run document, and what the journal was when it was written
    folds/<run>.fold           a cached fold
    signals/<run>/<key>.signal   created once; <key>.settled beside it when it was consumed
    leases/<run>.lock          held by the process that drives the run
    ledgers/ holds/            what was spent in a day, and which logins must wait: `ledgers`

Rules. A commit is durable by one fsync of the journal; what people read is written after it, whole or not at
all, and only a checkpoint is fsynced too, so that none is ever seen torn. Everything but journal, signals, ledgers
and holds can be made anew (`mend`). A file that exists is never taken for a new one: the first commit is on disk before the
journal has its name, so an empty one is damage. One host only: the kernel's file locks decide who writes.
"""

from __future__ import annotations

import json
import os
import stat
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from loopwright.errors import Corrupt, StoreError, Taken
from loopwright.ports import Hold, Kept, Refused
from loopwright.stores import disk, lines
from loopwright.stores.beside import Beside
from loopwright.stores.lines import Seen

if TYPE_CHECKING:
    from loopwright.stores.ledgers import Ledgers

JOURNAL: Final = ".journal.jsonl"
LONGEST: Final = 200  # bytes of a signal's key, as a file's name
KeptOf = Callable[[], Iterator[tuple[int, Kept]]]


class FilesLease:
    """A locked file that says who drives a run; it is free as soon as its process is gone."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd: int | None = fd
        self._path = path
        _HELD.add(self)

    def renew(self) -> bool:
        """Whether it is still ours."""
        try:
            return self._fd is not None and os.path.samestat(os.fstat(self._fd), self._path.lstat())
        except OSError:
            return False

    def release(self) -> None:
        """Gives it back."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


_HELD: Final[weakref.WeakSet[FilesLease]] = weakref.WeakSet()


def _let_go() -> None:
    """A child that only forks must not keep locks alive after our death."""
    for lease in tuple(_HELD):
        lease.release()


os.register_at_fork(after_in_child=_let_go)


class FilesStore:
    """A store in `folder`, made on first write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        self._seen: dict[str, Seen] = {}  # how far each journal was read or written here
        self._beside = Beside(folder)
        self._durable: set[Path] = set()  # whose names were synced by this process

    # where things are

    @property
    def files(self) -> tuple[Path, ...]:
        """The folder."""
        return (self.folder,)

    def _journal(self, run: str) -> Path:
        if "/" in run or "\0" in run or run.startswith(".") or not run:
            raise StoreError(f"{run!r} cannot name a run")
        return self.folder / f"{run}{JOURNAL}"

    def place(self, run: str, n: int) -> str:
        """Where commit `n` stands: the file and its first byte."""
        at = 0
        with suppress(OSError), self._journal(run).open("rb") as file:
            for _ in range(n - 1):
                at += len(file.readline())
        return f"{self._journal(run)}, byte {at}"

    # the journal

    def append(self, run: str, n: int, commit: bytes) -> None:
        """Writes commit `n` if absent, durably; `Taken` if not."""
        self._write(run, n, commit, None)

    def append_with(self, run: str, n: int, commit: bytes, kept: Kept) -> None:
        """Like `append`; then head, latest state and, where it closed an iteration, a checkpoint."""
        self._write(run, n, commit, kept)

    def append_all(self, commits: Sequence[tuple[str, int, bytes, Kept]]) -> list[Refused | None]:
        """Like `append_with` for each: journals are files of their own, so each waits for the disk."""
        refused: list[Refused | None] = []
        for run, n, commit, kept in commits:
            try:
                self.append_with(run, n, commit, kept)
                refused.append(None)
            except (Taken, StoreError) as why:  # the others stand already
                refused.append(why)
        return refused

    def _write(self, run: str, n: int, commit: bytes, kept: Kept | None) -> None:
        path = self._journal(run)
        if b"\n" in commit:
            raise ValueError(f"commit {n} of {run} is more than one line")
        with self._lock, disk.said(path):
            if n == 1:
                self._begin(run, commit)
            elif not path.exists():
                next(self.read(run), None)  # says what became of it
                raise ValueError(f"commit {n} of {run} would leave a gap")
            with disk.held(path) as fd:
                seen, _ = lines.current(fd, path, self._seen.get(run), lambda: self._beside.known(run))
                self._ready(path)
                if n > 1:
                    seen = lines.add(fd, path, seen, n, commit)
                self._seen[run] = seen
                if kept is not None and seen.n == n:
                    with suppress(OSError):  # the commit stands; `mend` makes these anew
                        self._beside.keep(run, seen, commit, kept)

    def _begin(self, run: str, commit: bytes) -> None:
        """The journal, with its first commit: whole before it has its name, so it is never seen empty."""
        path = self._journal(run)
        if path.exists() or self._beside.traces(run):
            raise Taken(1, next(body for _, body in self.read(run)))
        self._ready(path)
        if not disk.create(path, commit + b"\n"):
            raise Taken(1, next(body for _, body in self.read(run)))

    def _ready(self, path: Path) -> None:
        """The folder of `path` stands, and it and its names are durable, whoever made them and was killed then.

        Once in this process for each path.
        """
        if path in self._durable:
            return
        if not self.folder.is_dir():
            disk.make_dir(self.folder)
        if self.folder.stat().st_mode & stat.S_IWOTH:
            raise StoreError(
                f"{self.folder} is writable by everybody, so what it says cannot be trusted: chmod 700 it"
            )
        if not (self.folder / ".gitignore").exists():
            disk.put(self.folder / ".gitignore", b"*\n", sync=False)
        disk.make_dir(path.parent)
        for folder in (path.parent, *path.parent.parents):
            disk.sync_dir(folder)
            if folder == self.folder.parent:
                break
        if path.exists():
            self._durable.add(path)

    def read(self, run: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """The commits above `after`, in order; `Corrupt` where they are not what was written."""
        path = self._journal(run)
        known = self._beside.known(run)  # before the journal, which then reaches at least as far
        with disk.said(path):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                if self._beside.traces(run):
                    raise Corrupt(f"{path} is missing, but the run was here: restore a copy") from None
                return
            try:
                last, inode = self._seen.get(run), os.fstat(fd).st_ino
                goes_on = last is not None and last.n <= after and last.inode == inode
                seen = last.copy() if last is not None and goes_on else Seen(inode=inode)
                for line in lines.read(fd, path, seen, known):
                    if seen.n > after:
                        yield seen.n, line
                self._seen[run] = seen
            finally:
                os.close(fd)

    # what is kept beside it

    def heads(self, *, active: bool | None = None, limit: int = 1000) -> Iterable[tuple[str, bytes]]:
        """Runs with their heads, newest first; an empty head where it must be made from the journal."""
        found = []
        with disk.said(self.folder):
            for run in self._runs():
                fields, body = self._beside.framed(run, self._beside.head(run)) or ({}, b"")
                if active is None or fields.get("active", True) == active:
                    found.append((fields.get("touched", 0), run, body))
        return [(run, body) for _, run, body in sorted(found, reverse=True)[:limit]]

    def _runs(self) -> set[str]:
        named = [
            *disk.names(self.folder, JOURNAL),
            *disk.names(
                self.folder / "heads", ".head"
            ),  # a journal that is gone is damage, not a run that never was
        ]
        return {name for name in named if not name.startswith(".")}

    def cached(self, run: str) -> tuple[int, bytes] | None:
        """A cached fold, as long as every byte of the journal it stands for is as it was written."""
        found, known = self._beside.framed(run, self._beside.fold(run)), self._beside.known(run)
        if (
            found is None
            or known is None
            or not isinstance(found[0].get("n"), int)
            or found[0]["n"] > known.n
        ):
            return None
        with suppress(OSError):
            fd = os.open(self._journal(run), os.O_RDONLY | os.O_CLOEXEC)
            try:
                whole = lines.intact(fd, known)
            finally:
                os.close(fd)
            return None if whole is None else (found[0]["n"], found[1])
        return None

    def mend(self, run: str, kept_of: KeptOf) -> list[str]:
        """Cuts off what was never acknowledged, and makes anew what is not as the journal says; what was done.

        `kept_of` makes what is kept beside each commit, from the journal. `Corrupt` when the journal itself is
        damaged, or older than what stands beside it.
        """
        path, told = self._journal(run), []
        with self._lock, disk.said(path):
            if not path.exists():
                return []
            with disk.held(path) as fd:
                seen, torn = lines.current(fd, path, self._seen.get(run), lambda: self._beside.known(run))
                self._seen[run] = seen
                if torn is not None:
                    told.append(f"{path}: what was cut off while it was written is kept as {torn.name}")
                if not self._beside.sound(run, seen):
                    os.fsync(fd)  # who wrote the last commit may have been killed before it was durable
                    told += self._beside.anew(run, seen, lines.line(fd, path, seen.n), kept_of())
            for folder in (self.folder, path.parent / "heads", path.parent / "checkpoints"):
                disk.swept(folder)
        return told

    # signals

    def _signals(self, run: str) -> Path:
        self._journal(run)  # refuses what names no run
        return self.folder / "signals" / run

    def signal(self, run: str, key: str, record: bytes) -> bool:
        """Whether this key was free; it is taken for ever, durably."""
        folder, name = self._signals(run), quote(key, safe="")
        if not 0 < len(name) <= LONGEST:
            raise StoreError(f"the signal {key!r} has no fit name: {LONGEST} bytes at most")
        with disk.said(folder):
            self._ready(folder / name)
            seq = len(disk.names(folder, ".signal")) + 1
            return disk.create(folder / f"{name}.signal", disk.frame(record, run=run, key=key, seq=seq))

    def signals(self, run: str) -> Iterable[tuple[str, bytes]]:
        """The signals not yet settled, oldest first; `Corrupt` for a damaged one."""
        folder = self._signals(run)
        found = []
        with disk.said(folder):
            for name in set(disk.names(folder, ".signal")) - set(disk.names(folder, ".settled")):
                path = folder / f"{name}.signal"
                fields, record = disk.framed(path) or ({}, b"")
                if (fields.get("run"), fields.get("key")) != (run, unquote(name)):
                    raise Corrupt(
                        f"{path} is damaged: what was asked cannot be read. Move it aside, and ask again"
                    )
                found.append((fields.get("seq", 0), fields["key"], record))
        return [(key, record) for _, key, record in sorted(found)]

    def settle(self, run: str, keys: Iterable[str]) -> None:
        """Marks signals as consumed, durably."""
        folder = self._signals(run)
        marks = [folder / f"{quote(key, safe='')}.settled" for key in keys]
        with disk.said(folder):
            for mark in marks:
                if mark.with_suffix(".signal").exists():
                    os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            if marks and folder.exists():
                disk.sync_dir(folder)

    def lease(self, run: str, owner: str, ttl: float) -> FilesLease | None:  # noqa: ARG002 - the kernel ends it
        """A lease on the run, or `None` while another process has it."""
        path = self._journal(run).parent / "leases" / f"{run}.lock"
        with disk.said(path):
            self._ready(path)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if not disk.flock(fd) or not os.path.samestat(os.fstat(fd), path.lstat()):
                os.close(fd)
                return None
            with suppress(OSError):  # for people; what stands in it decides nothing
                os.ftruncate(fd, 0)
                disk.write_all(fd, json.dumps({"owner": owner}).encode() + b"\n", 0)
            return FilesLease(fd, path)

    # what belongs to no run

    def _ledgers(self) -> Ledgers:
        from loopwright.stores.ledgers import Ledgers  # verbs that read have no use for it
        from loopwright.stores.sheets import FileSheets

        return Ledgers(FileSheets(self.folder, self._ready))

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
        """Nothing is held open."""
