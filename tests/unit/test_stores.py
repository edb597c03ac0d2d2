"""Every store keeps the same contract."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from loopwright.errors import Corrupt, StoreError, Taken
from loopwright.ports import Kept
from loopwright.stores import sqlite
from loopwright.stores.files import FilesStore
from loopwright.stores.memory import MemoryStore
from loopwright.stores.opened import open_store, owner, owner_alive, store_path
from loopwright.stores.sqlite import LOOK_S, SqliteStore

KINDS = {
    "memory": lambda folder: MemoryStore(),
    "files": lambda folder: FilesStore(folder / "s"),
    "sqlite": lambda folder: SqliteStore(folder / "s" / "runs.db", alive=owner_alive),
}


@pytest.fixture(params=KINDS)
def store(request, tmp_path):
    made = KINDS[request.param](tmp_path)
    yield made
    made.close()


def test_commits_come_back_in_order(store):
    for n in range(1, 600):
        store.append("r", n, b"%d" % n)
    assert list(store.read("r")) == [(n, b"%d" % n) for n in range(1, 600)]
    assert list(store.read("r", 597)) == [(598, b"598"), (599, b"599")]
    assert list(store.read("other")) == []


def test_a_number_is_written_once(store):
    store.append("r", 1, b"first")
    with pytest.raises(Taken) as taken:
        store.append("r", 1, b"second")
    assert taken.value.standing == b"first"
    assert list(store.read("r")) == [(1, b"first")]


def test_a_gap_is_refused(store):
    store.append("r", 1, b"a")
    with pytest.raises((ValueError, Corrupt)):
        store.append("r", 3, b"c")
    assert list(store.read("r")) == [(1, b"a")]


def test_a_refused_commit_leaves_head_and_fold_alone(store):
    store.append_with("r", 1, b"a", Kept(head=b"head 1", fold=b"fold 1", active=True))
    with pytest.raises(Taken):
        store.append_with("r", 1, b"b", Kept(head=b"head 2", fold=b"fold 2", active=False))
    assert list(store.heads()) == [("r", b"head 1")]
    assert store.cached("r") == (1, b"fold 1")


def test_heads_are_newest_first_and_know_what_is_active(store):
    for run in ("a", "b", "c"):
        store.append_with(run, 1, b"x", Kept(head=run.encode(), active=run != "b"))
    store.append_with("a", 2, b"x", Kept(head=b"a2", active=True))
    assert list(store.heads()) == [("a", b"a2"), ("c", b"c"), ("b", b"b")]
    assert [run for run, _ in store.heads(active=True)] == ["a", "c"]
    assert [run for run, _ in store.heads(active=False)] == ["b"]
    assert len(list(store.heads(limit=1))) == 1


def test_a_signal_key_is_free_once_and_for_ever(store):
    assert store.signal("r", "stop/1", b"one")
    assert not store.signal("r", "stop/1", b"two")
    assert store.signal("r", "note/1", b"three")
    assert list(store.signals("r")) == [("stop/1", b"one"), ("note/1", b"three")]
    store.settle("r", ["stop/1"])
    assert list(store.signals("r")) == [("note/1", b"three")]
    assert not store.signal("r", "stop/1", b"again")
    assert list(store.signals("other")) == []


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_a_signal_from_another_connection_is_seen(kind, tmp_path):
    mine, theirs = KINDS[kind](tmp_path), KINDS[kind](tmp_path)
    assert list(mine.signals("r")) == []
    theirs.signal("r", "stop/1", b"x")
    assert list(mine.signals("r")) == [("stop/1", b"x")]
    mine.settle("r", ["stop/1"])
    assert list(mine.signals("r")) == []
    theirs.signal("r", "stop/2", b"y")
    assert list(mine.signals("r")) == [("stop/2", b"y")]


def test_a_lease_is_one_owners_until_released(store):
    mine = owner()
    held = store.lease("r", mine, 30)
    assert held is not None
    assert held.renew()
    other = store.lease("r", f"1:1@elsewhere@{mine}", 30)
    assert other is None
    held.release()
    assert not held.renew()
    assert store.lease("r", f"1:1@elsewhere@{mine}", 30) is not None


def test_what_another_process_asks_for_is_heard_a_moment_after_a_commit(tmp_path):
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    store.append("r", 1, b"1")
    assert not list(store.signals("r"))
    script = (
        "import sys; from pathlib import Path\n"
        "from loopwright.stores.sqlite import SqliteStore\n"
        "assert SqliteStore(Path(sys.argv[1])).signal('r', 'stop/1', b'x')\n"
    )
    store.append("r", 2, b"2")
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    assert list(store.signals("r")) == [("stop/1", b"x")]


def test_the_lease_of_a_dead_process_is_void_at_once(tmp_path):
    path = tmp_path / "runs.db"
    script = (
        "import sys; from pathlib import Path\n"
        "from loopwright.stores.opened import owner\n"
        "from loopwright.stores.sqlite import SqliteStore\n"
        "assert SqliteStore(Path(sys.argv[1])).lease('r', owner(), 3600)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    assert SqliteStore(path, alive=owner_alive).lease("r", owner(), 30) is not None


def test_the_lease_on_files_of_a_dead_process_is_void_at_once(tmp_path):
    script = (
        "import sys, os, signal; from pathlib import Path\n"
        "from loopwright.stores.files import FilesStore\n"
        "lease = FilesStore(Path(sys.argv[1])).lease('r', 'me', 3600)\n"
        "assert lease and lease.renew()\n"
        "if os.fork() == 0:\n"
        "    signal.pause()\n"
        "print(flush=True); sys.stdin.read(1); os.kill(os.getpid(), 9)\n"
    )
    store = FilesStore(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        process.stdout.readline()
        assert store.lease("r", owner(), 30) is None
        process.stdin.write(b"g")
        process.stdin.flush()
        process.wait(30)
        end = time.monotonic() + 20  # the child lets go as its first act, once it gets its turn
        while store.lease("r", owner(), 30) is None:  # though it lives
            assert time.monotonic() < end
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, 9)
        process.communicate()


def test_a_lease_leaves_nothing_to_do_at_a_fork(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(os, "register_at_fork", lambda **what: asked.append(what))
    store = FilesStore(tmp_path)
    for _ in range(3):
        store.lease("r", owner(), 30).release()
    assert not asked


def test_a_lease_whose_file_was_taken_away_is_lost(tmp_path):
    lease = FilesStore(tmp_path).lease("r", owner(), 30)
    (tmp_path / "leases/r.lock").unlink()
    assert not lease.renew()


def test_files_are_for_their_owner_and_for_no_commit(tmp_path):
    store = FilesStore(tmp_path / "deep" / "kept")
    store.append_with("r", 1, b"{}", Kept(head=b"{}", active=True, closed=1))
    for path in (tmp_path / "deep" / "kept").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert (tmp_path / "deep/kept").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "deep/kept/.gitignore").read_text() == "*\n"
    assert (tmp_path / "deep/kept/checkpoints/r-0001.json").exists()


def test_a_folder_that_everybody_may_write_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(StoreError, match="writable by everybody"):
        FilesStore(tmp_path).append("r", 1, b"{}")


@pytest.mark.parametrize("run", ["", "../r", "a/b", ".hidden", "a\0b"])
def test_a_name_that_leaves_the_folder_is_no_run(tmp_path, run):
    store = FilesStore(tmp_path / "kept")
    for call in (
        lambda: store.append(run, 1, b"{}"),
        lambda: list(store.read(run)),
        lambda: store.signals(run),
    ):
        with pytest.raises(StoreError, match="cannot name a run"):
            call()
    assert not list(tmp_path.iterdir())


def test_a_commit_on_files_costs_two_syncs_at_most(tmp_path, monkeypatch):
    store, syncs, real = FilesStore(tmp_path), [], os.fsync
    store.append_with("r", 1, b"{}", Kept(head=b"{}", active=True, closed=1))
    monkeypatch.setattr(os, "fsync", lambda fd: syncs.append(fd) or real(fd))
    for n, closed, cost in ((2, None, 1), (3, None, 1), (4, 2, 2)):
        store.append_with("r", n, b"{}", Kept(head=b"{}", active=True, closed=closed))
        assert len(syncs) == cost, n
        syncs.clear()


def test_a_fold_is_used_only_while_all_it_stands_for_is_as_it_was_written(tmp_path):
    store, path = FilesStore(tmp_path), tmp_path / "r.journal.jsonl"
    for n in range(1, 6):
        store.append_with(
            "r", n, b'{"n":%d}' % n, Kept(head=b"{}", active=True, fold=b"F" if n == 3 else None)
        )
    assert FilesStore(tmp_path).cached("r") == (3, b"F")
    assert store.place("r", 3) == f"{path}, byte 16"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"n":1', b'"n":7'))
    assert FilesStore(tmp_path).cached("r") is None
    path.write_bytes(whole)
    (tmp_path / "heads/r.head").unlink()
    assert FilesStore(tmp_path).cached("r") is None


def test_a_fold_of_commits_that_are_gone_is_damage(tmp_path):
    from datetime import UTC, datetime

    from loopwright.core import events as ev
    from loopwright.journal import KEEP_FOLD_EVERY, Journal

    store = KINDS["sqlite"](tmp_path)
    journal = Journal(store, "r")
    journal.record(datetime.now(UTC), ev.RunStarted(run="r", spec={}, digest="d"))
    for n in range(KEEP_FOLD_EVERY + 3):
        journal.record(datetime.now(UTC), ev.NoteAdded(text=str(n)))
        journal.flush()
    assert Journal(store, "r").n == KEEP_FOLD_EVERY + 3
    store._db.execute("DELETE FROM commits WHERE id % 4294967296 > 50")
    with pytest.raises(Corrupt, match="run r has lost commits"):
        Journal(store, "r")


def test_a_journal_replaced_while_in_use_is_said(tmp_path):
    store = FilesStore(tmp_path)
    store.append("r", 1, b"{}")
    path = tmp_path / "r.journal.jsonl"
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    copy.rename(path)
    with pytest.raises(StoreError, match="replaced while it was in use"):
        store.append("r", 2, b"{}")


def test_the_lease_of_a_living_process_holds_whatever_the_clock_says(tmp_path):
    store = SqliteStore(tmp_path / "runs.db", alive=lambda _: True)
    assert store.lease("r", "1:1@here@boot", -1000) is not None
    assert store.lease("r", owner(), 30) is None


def test_eight_writers_take_each_number_once(tmp_path):
    path = tmp_path / "runs.db"
    SqliteStore(path).close()
    won: list[int] = []

    def work(me: int) -> None:
        mine = SqliteStore(path)
        for n in range(1, 41):
            try:
                mine.append("r", n, b"%d" % me)
                won.append(n)
            except Taken:
                pass
            except Corrupt:
                pytest.fail("a gap was seen")
        mine.close()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(won) == list(range(1, 41))
    assert [n for n, _ in SqliteStore(path).read("r")] == list(range(1, 41))


def test_two_processes_that_make_the_file_at_once_share_it(tmp_path):
    script = (
        "import sys; from pathlib import Path\n"
        "from loopwright.stores.sqlite import SqliteStore\n"
        "sys.stdin.read(1)\n"
        "SqliteStore(Path(sys.argv[1])).signal('r', sys.argv[2], b'x')\n"
    )
    path = tmp_path / "new" / "runs.db"
    made = [
        subprocess.Popen([sys.executable, "-c", script, str(path), f"k{i}"], stdin=subprocess.PIPE)
        for i in range(6)
    ]
    for process in made:
        process.stdin.write(b"g")
        process.stdin.flush()
    for process in made:
        process.stdin.close()
        assert process.wait() == 0
    assert len(list(SqliteStore(path).signals("r"))) == 6
    assert not [f for f in os.listdir(path.parent) if f.startswith(".new-")]


@pytest.mark.parametrize(
    "damage",
    [
        lambda p: p.write_bytes(b""),
        lambda p: p.write_bytes(b"\0" * p.stat().st_size),
        lambda p: p.write_bytes(b"this is not a database" * 100),
        lambda p: p.write_bytes(p.read_bytes()[:1000]),
        lambda p: p.write_bytes(b"\0" * 4096 + p.read_bytes()[4096:]),
    ],
    ids=["empty", "zeros", "text", "truncated", "no header"],
)
def test_a_damaged_file_is_said_and_kept(tmp_path, damage):
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    for n in range(1, 50):
        store.append("r", n, b"x" * 500)
    store.close()
    damage(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="runs.db"):
        list(SqliteStore(path).read("r"))
    assert path.read_bytes() == before


def test_a_log_without_its_database_is_no_new_store(tmp_path):
    path, log = tmp_path / "runs.db", tmp_path / "runs.db-wal"
    store = SqliteStore(path)
    store.append("r", 1, b"old")
    path.rename(tmp_path / "aside.db")
    before = log.read_bytes()
    with pytest.raises(Corrupt, match=r"runs\.db is missing.*runs\.db-wal and runs\.db-shm aside"):
        SqliteStore(path)
    assert not path.exists()
    assert log.read_bytes() == before
    for file in store.files[1:]:
        file.rename(tmp_path / f"aside-{file.name}")
    assert list(SqliteStore(path).read("r")) == []


WRONG = {
    "the index has lost it": ("sqlite_autoindex_runs_1", b"run-3", b"ruN-3"),
    "the table has lost it": ("runs", b"run-3", b"ruN-3"),
    "the index gives another's number": ("sqlite_autoindex_runs_1", b"run-3\x03", b"run-3\x13"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_damaged_index_of_runs_begins_no_second_history(tmp_path, name):
    path = tmp_path / "runs.db"
    what, old, new = WRONG[name]
    store = SqliteStore(path)
    for i in range(1, 5):
        store.append(f"run-{i}", 1, b"%d" % i)
    ((page,),) = store._db.execute("SELECT rootpage FROM sqlite_schema WHERE name=?", (what,))
    store.close()
    whole, start = path.read_bytes(), (page - 1) * 4096
    found = whole[start : start + 4096]
    assert found.count(old) == 1
    path.write_bytes(whole[:start] + found.replace(old, new) + whole[start + 4096 :])
    store = SqliteStore(path)
    for act in (lambda: list(store.read("run-3")), lambda: store.append("run-3", 1, b"second")):
        with pytest.raises(Corrupt, match=r"runs\.db is damaged.*do not agree about run-3"):
            act()
    assert list(store.read("run-2")) == [(1, b"2")]
    assert list(store.read("run-5")) == []
    store.append("run-5", 1, b"5")


@pytest.mark.parametrize("group", [False, True])
def test_one_bit_of_the_last_commit_is_seen(tmp_path, group):
    store, path = SqliteStore(tmp_path / "runs.db"), tmp_path / "runs.db"
    for n in (1, 2):
        store.append("r", n, b"commit %d" % n)
    two = [(run, 3, b"the last of %s" % run.encode(), Kept(head=None, active=True)) for run in ("r", "q")]
    if group:
        store.append("q", 1, b"q1")
        store.append("q", 2, b"q2")
        store.append_all(two)
    else:
        store.append_with(*two[0])
    store.close()
    whole = path.read_bytes()
    assert whole.count(b"the last of r") == 1
    path.write_bytes(whole.replace(b"the last of r", b"the lasv of r"))
    store = SqliteStore(path)
    assert list(store.read("q", 2)) == ([(3, b"the last of q")] if group else [])
    for act in (lambda: list(store.read("r")), lambda: store.append("r", 3, b"x")):
        with pytest.raises(Corrupt, match=r"runs\.db is damaged \(commit 3 of run r"):
            act()


def test_a_last_commit_that_is_gone_is_missed(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    for n in (1, 2, 3):
        store.append_with("r", n, b"x", Kept(head=b"h", active=True))
    store._db.execute("DELETE FROM commits WHERE id = (1 << 32) + 3")
    for after in (0, 2):
        with pytest.raises(Corrupt, match=r"runs\.db is damaged \(run r has lost commits: 3 were"):
            list(store.read("r", after))


def test_a_number_that_no_run_can_have_is_damage(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    store._db.execute("INSERT INTO runs VALUES (1 << 40, 'r')")
    for act in (lambda: list(store.read("r")), lambda: store.append("new", 1, b"x")):
        with pytest.raises(Corrupt, match=r"runs\.db is damaged"):
            act()


DAMAGED = {
    "a column": (b"runs (id INTEGER", b"runs (iD INTEGER", "has lost tables"),
    "no text": (b"runs (id INTEGER", b"runs (\xffd INTEGER", "has lost tables"),
    "a name": (b"some-run", b"some-ru\xff", "is damaged"),
    "a commit's number": (
        b"\x90\x80\x80\x80\x01",
        b"\xb0\x80\x80\x80\x01",
        "has lost commits: 1 were acknowledged",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_flips_outside_of_commits_are_seen(tmp_path, name):
    path = tmp_path / "runs.db"
    old, new, said = DAMAGED[name]
    store = SqliteStore(path)
    store.append_with("some-run", 1, b"x", Kept(head=b"h", active=True))
    store.close()
    whole = path.read_bytes()
    assert old in whole
    path.write_bytes(whole.replace(old, new))
    with pytest.raises(Corrupt, match=rf"runs\.db.*{said}"):
        store = SqliteStore(path)
        list(store.heads())
        list(store.read("some-run"))


def test_signals_that_cannot_be_read_are_a_store_error(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    other = SqliteStore(store.path)
    other.append("r", 1, b"x" * 5000)
    other._db.wal_checkpoint(mode=3)  # so that it must be read from the file
    with store.path.open("r+b") as file:
        file.write(b"garbage!" * 512)
    with pytest.raises(Corrupt, match=r"runs\.db is damaged"):
        store.signals("r")


def test_a_signal_of_this_process_is_heard_at_once_and_that_of_another_soon(tmp_path, monkeypatch):
    store, other = SqliteStore(tmp_path / "runs.db"), SqliteStore(tmp_path / "runs.db")
    monkeypatch.setattr(sqlite, "FRESH_S", 60.0)
    store.append("r", 1, b"x")
    assert list(store.signals("r")) == []
    assert store.signals("r") == ()
    other.signal("r", "stop/1", b"a")
    assert list(store.signals("r")) == [("stop/1", b"a")]
    store.settle("r", ["stop/1"])
    assert list(store.signals("r")) == []
    assert store.signals("r") == ()
    other.signal("r", "stop/2", b"b")
    monkeypatch.setattr(SqliteStore, "told", store._heard)  # as of another process
    assert list(store.signals("r")) == []
    monkeypatch.setattr(sqlite, "FRESH_S", 0.0)
    assert list(store.signals("r")) == [("stop/2", b"b")]
    store.settle("r", ["stop/2"])
    monkeypatch.setattr(sqlite, "FRESH_S", 60.0)
    assert list(store.signals("r")) == []
    other.signal("r", "stop/3", b"c")
    monkeypatch.setattr(SqliteStore, "told", store._heard)
    store.append("r", 2, b"y")  # saw it
    assert list(store.signals("r")) == [("stop/3", b"c")]


@pytest.mark.parametrize("quick", [True, False])
def test_a_signal_that_came_while_a_commit_tidied_up_is_heard_as_soon(tmp_path, quick):
    store, other = SqliteStore(tmp_path / "runs.db"), SqliteStore(tmp_path / "runs.db")
    store.append("r", 1, b"x")
    assert list(store.signals("r")) == []

    def tidy(*_):  # in its place: SQLite puts the log into the file when nobody is kept from writing any more
        told = SqliteStore.told
        other.signal("r", "stop/1", b"a")
        SqliteStore.told = told  # as of another process
        time.sleep(2 * sqlite.FRESH_S)
        return 0

    store._db.set_wal_hook(tidy)
    if quick:
        store.append_with("r", 2, b"y", Kept(head=b"h", active=True))
    else:
        store.append("r", 2, b"y")
    assert list(store.signals("r")) == [("stop/1", b"a")]


def test_what_a_thread_takes_back_takes_no_commit_of_another_with_it(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    more = Kept(head=None, active=True)
    store.append_with("r", 1, b"1", more)
    inside, go = threading.Event(), threading.Event()

    def fails():
        store._db.execute("INSERT INTO runs (run) VALUES ('not there')")
        inside.set()
        assert go.wait(10)
        raise StoreError("as for an amount that is too much")

    def books():
        with pytest.raises(StoreError, match="too much"):
            store._write(fails)

    def asks():
        seen.extend(store.read("not there"))
        seen.extend(store.signals("r"))
        seen.append(store.total("usd", "2026-11-30"))
        store.append_with("r", 2, b"2", more)

    seen: list[object] = []
    threads = [threading.Thread(target=books), threading.Thread(target=asks)]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    threads[1].join(0.1)  # nothing is told of what may be taken back
    early = list(seen)
    go.set()
    for thread in threads:
        thread.join(10)
    assert (early, seen) == ([], [0.0])
    assert list(SqliteStore(store.path).read("r")) == [(1, b"1"), (2, b"2")]


def test_a_file_that_is_removed_between_quick_commits_is_missed_soon(tmp_path):
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    for n in (1, 2):
        store.append_with("r", n, b"x", Kept(head=b"h", active=True))
    path.unlink()
    with pytest.raises(StoreError, match="was removed or replaced while it was in use"):
        store.lease("r", owner(), 30)
    time.sleep(LOOK_S)
    with pytest.raises(StoreError, match="was removed or replaced while it was in use"):
        store.append_with("r", 3, b"x", Kept(head=b"h", active=True))


def test_a_database_of_something_else_is_refused(tmp_path):
    import apsw

    path = tmp_path / "other.db"
    apsw.Connection(str(path)).execute("CREATE TABLE t (x)")
    with pytest.raises(StoreError, match="something else"):
        SqliteStore(path)


def test_a_store_of_the_future_is_refused(tmp_path):
    import apsw

    path = tmp_path / "runs.db"
    SqliteStore(path).close()
    apsw.Connection(str(path)).pragma("user_version", 99)
    with pytest.raises(StoreError, match="version 99"):
        SqliteStore(path)


def test_what_is_written_is_durable_by_its_settings(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    assert store._db.pragma("journal_mode") == "wal"
    assert store._db.pragma("synchronous") == 2


def test_a_lease_that_fails_leaves_commits_as_durable_as_before(tmp_path):
    store, other = SqliteStore(tmp_path / "runs.db"), SqliteStore(tmp_path / "runs.db")
    lease = store.lease("r", owner(), 30)
    store._db.set_busy_timeout(0)
    other._db.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        lease.renew()
    other._db.execute("ROLLBACK")
    assert store._db.pragma("synchronous") == 2


def test_a_full_disk_is_a_store_error_and_loses_nothing(tmp_path):
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    store.append("r", 1, b"a")
    store._db.pragma("max_page_count", store._db.pragma("page_count"))
    with pytest.raises(StoreError, match="full"):
        store.append("r", 2, b"x" * 1_000_000)
    store.close()
    assert list(SqliteStore(path).read("r")) == [(1, b"a")]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        (None, "/p/.agent-state/loopwright.db"),
        ("sqlite:////tmp/x.db", "/tmp/x.db"),
        ("sqlite:///x.db", "/p/x.db"),
    ],
)
def test_a_url_names_a_file(url, path):
    assert store_path(url, Path("/p")) == Path(path)


def test_memory_is_no_file():
    assert store_path("memory:", Path("/p")) is None
    assert isinstance(open_store("memory:", Path("/p")), MemoryStore)


@pytest.mark.parametrize(
    "url", ["files:", "s3://b/p", "postgresql://h/d", "sqlite:", "sqlite:///", "mysql://x", "memory:x", ""]
)
def test_a_url_that_names_no_store_is_an_error(url, tmp_path):
    from loopwright.errors import UsageError

    with pytest.raises(UsageError):
        open_store(url, tmp_path)
    assert not list(tmp_path.iterdir())
