"""Every store keeps the contract through crashes and power loss; and the suite that says so sees what is broken."""

import os
import shutil
import tempfile
from pathlib import Path
from zlib import crc32

import apsw
import pytest
from sqlite_tap import sqlite_calls
from whole import STORES, calls, dropped, every_crash, every_power_loss, loop_of

from loopwright import run
from loopwright.errors import StoreError, Taken
from loopwright.ports import Kept
from loopwright.stores import database, disk, lines
from loopwright.stores.files import FilesStore
from loopwright.stores.ledgers import Ledgers
from loopwright.stores.memory import MemoryStore
from loopwright.stores.sheets import FileSheets
from loopwright.stores.sqlite import SqliteStore
from loopwright.testing import check_store, os_calls, recorded, states, written

TAPS = {"files": os_calls, "sqlite": sqlite_calls}
MAKE = {"files": FilesStore, "sqlite": lambda folder: SqliteStore(folder / "runs.db")}


@pytest.fixture
def place(tmp_path):
    """Scratch where syncing costs nothing, if this machine has it: what syncs do is simulated."""
    fast = Path("/dev/shm")
    made = Path(
        tempfile.mkdtemp(
            dir=fast if fast.is_dir() and os.access(fast, os.W_OK) else tmp_path, prefix="crash-"
        )
    )
    yield made
    shutil.rmtree(made)


def test_memory_keeps_the_contract(place):
    checked = check_store(lambda _: MemoryStore(), place, lasting=False)
    assert not checked.losses, checked


class Plain:
    """A store without ledgers and holds, as the protocol allows."""

    def __init__(self):
        inner = MemoryStore()
        for name in (
            "append",
            "append_with",
            "append_all",
            "read",
            "heads",
            "cached",
            "signal",
            "signals",
            "settle",
            "lease",
            "close",
        ):
            setattr(self, name, getattr(inner, name))


@pytest.mark.parametrize("ledgers", [True, False])
def test_a_store_without_ledgers_says_so_or_is_told(ledgers, place):
    checked = check_store(lambda _: Plain(), place, lasting=False, ledgers=ledgers)
    assert [loss.partition(":")[0] for loss in checked.losses] == (["order", "uniqueness"] if ledgers else [])
    assert not ledgers or "say ledgers=False" in str(checked)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "every"), [("files", 89), ("sqlite", 89)])
def test_a_store_keeps_the_contract(kind, every, place, record_property):
    checked = check_store(MAKE[kind], place, tap=TAPS[kind], every=every, chances=3)
    record_property("measured", f"check_store({kind}): {checked}")
    assert not checked.losses, checked
    assert all(checked.tried.values())


def leased(folder, *, after_each=lambda _: None):
    """Commits among changes of a lease, which do not wait for the disk: some of these begin the log anew."""

    def work(say):
        store = SqliteStore(folder / "runs.db")
        lease = store.lease("r", "me", 30)
        for n in range(1, 8):
            if n % 2 == 0:
                store._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            assert lease.renew()
            after_each(store)
            store.append("r", n, b"%d" % n * 3000)
            say(str(n))

    return work


def grouped(folder, *, after_each=lambda _: None):
    """Commits of two runs that wait for the disk together, among checkpoints and a lone commit now and then."""

    def work(say):
        store = SqliteStore(folder / "runs.db")
        for n in range(1, 8):
            if n % 3 == 0:
                store._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            after_each(store)
            both = [(run, n, b"%d" % n * 3000, Kept(head=b"h", active=True)) for run in "rq"]
            assert not any(store.append_all(both[: 1 if n == 5 else 2]))
            if n == 5:
                store.append_with(*both[1])
            say(str(n))

    return work


def lost_power(ops, base, place, runs="r"):
    """What of the acknowledged is not there, whenever power is lost."""
    losses, tried = [], 0
    for number, found, said in states(ops, base, profile="posix", chances=1, seed="0"):
        if not said or ops[number].kind == "sync":  # a sync only makes things better
            continue
        tried += 1
        folder = place / str(tried)
        folder.mkdir()
        written(found, folder)
        store = SqliteStore(folder / "s/runs.db")
        wanted = [(n, b"%d" % n * 3000) for n in range(1, len(said) + 1)]
        for name in runs:
            there = list(store.read(name))
            if there[: len(said)] != wanted:
                losses.append((number, len(said), len(there)))
        store.close()
    return tried, losses


def through_power_loss(work, broken, place, *runs):
    """What `work` did, how often power was lost in it, and what of these runs was lost; `broken`: nothing waits."""
    base = place / "base"
    base.mkdir()
    normal = (lambda store: store._db.execute("PRAGMA synchronous=normal")) if broken else lambda _: None
    ops = recorded(work(base / "s", after_each=normal), base, sqlite_calls)
    return ops, *lost_power(ops, base, place, *runs)


@pytest.mark.parametrize("broken", [False, True])
def test_a_lease_that_does_not_wait_for_the_disk_takes_no_commit_with_it(broken, place, record_property):
    ops, tried, losses = through_power_loss(leased, broken, place)
    begun = [op for op in ops if op.path.endswith("-wal") and op.kind == "write" and op.at == 0]
    assert len(begun) > 3  # the log was begun anew, each time by a lease
    record_property("measured", f"commits among leases, power lost {tried} times: {len(losses)} losses")
    assert bool(losses) == broken


@pytest.mark.parametrize("broken", [False, True])
def test_commits_that_wait_together_survive_the_loss_of_power(broken, place, record_property):
    _, tried, losses = through_power_loss(grouped, broken, place, "rq")
    record_property("measured", f"commits that wait together, power lost {tried} times: {len(losses)} losses")
    assert tried > 50
    assert bool(losses) == broken


def no_sync(_):
    """Names are not made durable."""


def no_fence(fd, path, seen, n, commit):
    """Whoever comes last, writes."""
    try:
        return lines_add(fd, path, seen, n, commit)
    except Taken:
        return seen


def forgotten(*_):
    """What was consumed is not marked."""


def unsynced_wal(db):
    for name, value in (("journal_mode", "wal"), ("synchronous", "normal")):
        db.pragma(name, value)


def overwrites(self, run, n, commit, kept=None):
    key = self._numbers.of(run, make=True) * 4294967296 + n
    self._db.execute("INSERT OR REPLACE INTO commits VALUES (?, ?, ?)", (key, crc32(commit), commit))


def without_lock(self, name, change):
    """Whoever comes at the same time loses what it wrote."""
    path = self._folder / name
    self._ready(path)
    made = change(self.look(name))
    if made is not None:
        disk.put(path, disk.frame(made, sheet=name), sync=False)


def counted_again(self, key, day, entry, amount):
    """By whoever says it."""
    return ledgers_add(self, key, day, f"{entry}/{os.urandom(8).hex()}", amount)


def held_for_ever(*_):
    """What was lifted goes on."""


def torn_checkpoint(path, data, *, sync):
    path.write_bytes(data)


lines_add = lines.add
ledgers_add = Ledgers.add
BROKEN = {
    "files: folders are not synced": ("files", disk, "sync_dir", no_sync, "durability"),
    "files: the fence is down": ("files", lines, "add", no_fence, "fencing"),
    "files: consumed signals come again": ("files", FilesStore, "settle", forgotten, "crash"),
    "sqlite: commits are not synced": ("sqlite", database, "_tune", unsynced_wal, "durability"),
    "sqlite: the fence is down": ("sqlite", SqliteStore, "_insert", overwrites, "fencing"),
    "sqlite: consumed signals come again": ("sqlite", SqliteStore, "settle", forgotten, "crash"),
    "files: ledgers have no lock": ("files", FileSheets, "edit", without_lock, "concurrency"),
    "files: ledgers are not synced": ("files", FileSheets, "edit", without_lock, "durability"),
    "sqlite: an entry is counted again": ("sqlite", Ledgers, "add", counted_again, "uniqueness"),
    "sqlite: a lifted hold is there again": ("sqlite", SqliteStore, "lift", held_for_ever, "order"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_suite_sees_a_broken_store(name, place, monkeypatch, record_property):
    kind, where, what, broken, family = BROKEN[name]
    monkeypatch.setattr(where, what, broken)
    checked = check_store(MAKE[kind], place, tap=TAPS[kind], families=(family,), every=90, chances=2)
    record_property("measured", f"broken on purpose, {name}: {len(checked.losses)} losses seen")
    assert checked.losses


def test_a_store_whose_operations_are_not_seen_is_said(place):
    checked = check_store(
        MAKE["sqlite"],
        place,
        tap=lambda folder, _: os_calls(folder / "x", None),
        families=("crash", "durability"),
    )
    assert [loss.partition(":")[0] for loss in checked.losses] == ["crash", "durability"]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "every"), [("files", 59), ("sqlite", 83)])
def test_a_whole_run_killed_anywhere_goes_on(kind, every, place, record_property):
    hows = ("before", "after", "torn", "short", "eio", "enospc")
    tried, losses = every_crash(STORES[kind], place, TAPS[kind], hows=hows, every=every, twice=90)
    told = ", ".join(f"{n} {how}" for how, n in tried.items())
    record_property(
        "measured", f"whole runs on {kind}, killed or refused at an operation: {told}; losses {len(losses)}"
    )
    assert not losses
    assert tried["twice"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORES)
def test_a_whole_run_survives_power_loss(kind, place, record_property):
    tried, losses = every_power_loss(STORES[kind], place, TAPS[kind], chances=1, every=5, resumed=50)
    told = ", ".join(f"{n} {how}" for how, n in tried.items())
    record_property("measured", f"whole runs on {kind}, power lost: {told}; losses {len(losses)}")
    assert not losses


class Refusing:
    """A store in memory whose `n`th call fails, before or after it is done."""

    def __init__(self, inner, at, after):
        self.inner, self.at, self.after, self.calls = inner, at, after, 0

    files = ()

    def __getattr__(self, name):
        def call(*args, **more):
            self.calls += 1
            if self.calls == self.at and not self.after:
                raise StoreError("refused")
            result = getattr(self.inner, name)(*args, **more)
            if self.calls == self.at and self.after:
                raise StoreError("done, and then refused")
            return result

        if name in {"mend", "place"}:
            raise AttributeError(name)
        return call


@pytest.mark.parametrize("after", [False, True])
def test_a_whole_run_in_memory_goes_on_after_a_refused_call(after, place, record_property):
    effects, tried = place / "r.effects", 0
    while True:
        tried += 1
        inner, folder = MemoryStore(), place / "r"
        folder.mkdir()
        store = Refusing(inner, tried, after)
        try:
            run(loop_of(effects), "r", folder=folder, store=store)
            broke = False
        except StoreError:
            broke = True
        inner._leases.clear()  # the process that had it is gone
        final = run(loop_of(effects), "r", folder=folder, store=inner)
        assert final.reason == "approval_requested"
        assert final.iterations == 3
        assert all(n <= 1 + broke for n in calls(folder).values())
        dropped(folder)
        if not broke:
            break
    record_property(
        "measured", f"whole runs in memory, one call refused {'after' if after else 'before'}: {tried - 1}"
    )
    assert tried > 10
