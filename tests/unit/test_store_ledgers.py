"""Ledgers and holds in every store: counted once, said last, never read as nothing when they are damaged."""

import os
from datetime import UTC, datetime, timedelta, timezone

import apsw
import pytest

from loopwright.errors import Corrupt, StoreError
from loopwright.ports import Kept
from loopwright.stores import database
from loopwright.stores.files import FilesStore
from loopwright.stores.memory import MemoryStore
from loopwright.stores.sqlite import SqliteStore

DAY = "2026-11-30"
LATE = datetime(9000, 1, 1, tzinfo=UTC)
KINDS = {
    "memory": lambda folder: MemoryStore(),
    "files": lambda folder: FilesStore(folder / "s"),
    "sqlite": lambda folder: SqliteStore(folder / "s" / "runs.db"),
}


@pytest.fixture(params=KINDS)
def store(request, tmp_path):
    made = KINDS[request.param](tmp_path)
    yield made
    made.close()


def test_an_entry_is_counted_once(store):
    assert store.total("usd", DAY) == 0.0
    assert store.add("usd", DAY, "r/1/1", 1.5) == 1.5
    assert store.add("usd", DAY, "r/1/1", 1.5) == 1.5
    assert store.add("usd", DAY, "r/1/1", 99) == 1.5
    assert store.add("usd", DAY, "r/1/2", -0.5) == 1.0
    assert store.total("usd", DAY) == 1.0
    assert store.total("usd", DAY, "r/1/2") == -0.5
    assert store.total("usd", DAY, "r/9/9") == 0.0


def test_ledgers_of_other_days_and_keys_are_others(store):
    keys = ["usd/spent", "usd%2Fspent", "usd", "..", ".lock", "spënt $"]
    for n, key in enumerate(keys, 1):
        store.add(key, DAY, "r/1/1", n)
    store.add("usd", "2026-12-01", "r/1/1", 50)
    assert [store.total(key, DAY) for key in keys] == [1, 2, 3, 4, 5, 6]
    assert store.total("usd", "2026-12-02") == 0.0


def test_cents_add_up(store):
    for n in range(30):
        store.add("usd", DAY, f"r/{n}/1", 0.1)
    assert store.total("usd", DAY) == 3.0
    for n in range(30):
        store.add("usd", DAY, f"r/{n}/1/settled", -0.1)
    assert store.total("usd", DAY) == 0.0


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), float("-inf"), 1e308])
def test_what_cannot_be_counted_is_refused_and_changes_nothing(store, amount):
    store.add("usd", DAY, "r/1/1", 1e308)
    with pytest.raises(ValueError, match="usd"):
        store.add("usd", DAY, "r/2/1", amount)
    assert store.add("usd", DAY, "r/3/1", -1.0) == 1e308


@pytest.mark.parametrize(
    ("key", "day"),
    [
        ("", DAY),
        ("k" * 300, DAY),
        ("usd", ""),
        ("usd", "20261130"),
        ("usd", "2026-11-31"),
        ("usd", "../../x"),
    ],
)
def test_what_names_no_ledger_is_refused(store, key, day):
    with pytest.raises(ValueError):
        store.add(key, day, "r/1/1", 1.0)
    with pytest.raises(ValueError):
        store.total(key, day)


def test_what_was_said_last_of_a_login_counts(store):
    assert list(store.holds()) == []
    before = datetime.now(UTC)
    store.hold("claude/key-3fa9", None, "the login is lost")
    store.hold("codex/home", LATE, "usage limit")
    store.hold("codex/home", datetime(9000, 1, 1, 5, tzinfo=timezone(timedelta(hours=2))), "a later one")
    first, second = store.holds()
    assert (first.login, first.until, first.why) == ("claude/key-3fa9", None, "the login is lost")
    assert (second.until, second.why) == (datetime(9000, 1, 1, 3, tzinfo=UTC), "a later one")
    assert before <= first.since <= second.since <= datetime.now(UTC)
    store.hold("codex/home", before, "over already")
    store.lift("claude/key-3fa9")
    store.lift("nobody")
    assert list(store.holds()) == []


def test_a_hold_that_is_over_is_forgotten(store):
    store.hold("a", datetime.now(UTC) - timedelta(seconds=1), "over")
    assert list(store.holds()) == []
    store.hold("b", None, "x" * 5000)
    made = store._ledgers() if callable(store._ledgers) else store._ledgers
    assert b'"a"' not in made.sheets.look("holds/logins.holds")
    assert len(store.holds()[0].why) == 1000


def test_a_hold_without_a_zone_is_refused(store):
    with pytest.raises(ValueError, match="time zone"):
        store.hold("a", datetime(2026, 11, 30), "?")
    assert list(store.holds()) == []


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_another_process_finds_them(kind, tmp_path):
    mine, theirs = KINDS[kind](tmp_path), KINDS[kind](tmp_path)
    mine.add("usd", DAY, "r/1/1", 1.0)
    assert theirs.add("usd", DAY, "q/1/1", 1.0) == 2.0
    theirs.hold("a", LATE, "why")
    assert mine.holds() == theirs.holds() == KINDS[kind](tmp_path).holds()
    assert KINDS[kind](tmp_path).total("usd", DAY) == 2.0


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_what_another_wrote_and_may_not_have_synced_is_synced_before_it_is_acknowledged(
    kind, tmp_path, monkeypatch
):
    store, syncs, real = KINDS[kind](tmp_path), [], os.fsync
    for _ in range(2):  # the folder's own names are synced once
        store.add("usd", DAY, "r/1/1", 1.0)
        store.hold("a", LATE, "why")
        store.lift("a")
    monkeypatch.setattr(os, "fsync", lambda fd: syncs.append(fd) or real(fd))
    for act in (lambda: store.add("usd", DAY, "r/1/1", 1.0), lambda: store.lift("a")):
        act()
        assert len(syncs) == 1
        syncs.clear()


# files


def filled(folder):
    store = FilesStore(folder)
    for n in range(3):
        store.add("usd/spent", DAY, f"r/{n}/1", 1.0)
    store.hold("a", LATE, "why")
    return store, folder / "ledgers" / DAY / "usd%2Fspent.ledger", folder / "holds/logins.holds"


DAMAGE = {
    "empty": lambda p: p.write_bytes(b""),
    "zeros": lambda p: p.write_bytes(bytes(p.stat().st_size)),
    "cut": lambda p: p.write_bytes(p.read_bytes()[:-2]),
    "longer": lambda p: p.write_bytes(p.read_bytes() + b"\n"),
    "a bit": lambda p: p.write_bytes(
        p.read_bytes().replace(b'"r/1/1": 1.0', b'"r/1/1": 0.0').replace(b"why", b"whx")
    ),
    "another's": lambda p: p.write_bytes(p.with_name("other").read_bytes()),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_said_with_its_place_and_kept(tmp_path, name):
    store, ledger, holds = filled(tmp_path)
    store.add("other", DAY, "r/1/1", 0.0)
    (ledger.parent / "other.ledger").rename(ledger.parent / "other")
    (holds.parent / "other").write_bytes((ledger.parent / "other").read_bytes())
    DAMAGE[name](ledger)
    DAMAGE[name](holds)
    before = ledger.read_bytes(), holds.read_bytes()
    for act in (
        lambda: store.total("usd/spent", DAY),
        lambda: store.total("usd/spent", DAY, "r/1/1"),
        lambda: FilesStore(tmp_path).add("usd/spent", DAY, "r/9/1", 1.0),
    ):
        with pytest.raises(Corrupt, match=r"usd%2Fspent\.ledger is damaged: what was spent cannot be read"):
            act()
    for act in (store.holds, lambda: store.hold("b", LATE, "why"), lambda: store.lift("a")):
        with pytest.raises(Corrupt, match=r"logins\.holds is damaged: which logins"):
            act()
    assert (ledger.read_bytes(), holds.read_bytes()) == before
    assert store.add("usd/reserved", DAY, "r/1/1", 1.0) == 1.0


def test_a_whole_file_that_is_no_ledger_is_damage(tmp_path):
    from loopwright.stores import disk

    store, ledger, holds = filled(tmp_path)
    for body in (b"[]", b'{"r": NaN}', b'{"r": 1e999}', b'{"r": "1"}', b'{"r": true}', b"[" * 100_000, b"no"):
        ledger.write_bytes(disk.frame(body, sheet=f"ledgers/{DAY}/usd%2Fspent.ledger"))
        with pytest.raises(Corrupt, match="is damaged"):
            store.total("usd/spent", DAY)
    for body in (
        b"[]",
        b'{"a": {}}',
        b'{"a": 1}',
        b'{"a": {"until": "2026-11-30", "why": "", "since": "soon"}}',
    ):
        holds.write_bytes(disk.frame(body, sheet="holds/logins.holds"))
        with pytest.raises(Corrupt, match="is damaged"):
            store.holds()


def test_a_file_that_leads_elsewhere_or_may_not_be_read_is_no_empty_ledger(tmp_path):
    store, ledger, _ = filled(tmp_path)
    ledger.unlink()
    ledger.symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"usd%2Fspent\.ledger cannot be used"):
        store.total("usd/spent", DAY)
    ledger.unlink()
    assert store.total("usd/spent", DAY) == 0.0
    if os.geteuid():
        ledger.parent.chmod(0)
        try:
            with pytest.raises(StoreError, match="cannot be used"):
                store.total("usd/spent", DAY)
        finally:
            ledger.parent.chmod(0o700)


def test_what_lies_there_is_for_its_owner_and_for_people(tmp_path):
    _, ledger, _ = filled(tmp_path / "kept")
    for path in (tmp_path / "kept").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert ledger.read_text().splitlines()[1:] == ['{"r/0/1": 1.0,', '"r/1/1": 1.0,', '"r/2/1": 1.0}']
    assert not list((tmp_path / "kept").rglob(".new-*"))
    assert list(FilesStore(tmp_path / "kept").heads()) == []


def test_reading_makes_nothing(tmp_path):
    store = FilesStore(tmp_path / "kept")
    assert (store.total("usd", DAY), store.holds()) == (0.0, [])
    assert not (tmp_path / "kept").exists()


# SQLite


def old(path, version):
    """A file as version 3 or 4 wrote it."""
    store = SqliteStore(path)
    store.append_with("r", 1, b"one", Kept(head=b"h", active=True))
    store.close()
    db = apsw.Connection(str(path))
    for table in {3: ("log", "sheets"), 4: ("log",)}[version]:
        db.execute(f"DROP TABLE {table}")
    db.execute(f"PRAGMA user_version={version}")
    db.close()


def version(path):
    ((found,),) = apsw.Connection(str(path)).execute("PRAGMA user_version")
    return found


@pytest.mark.parametrize("was", [3, 4])
def test_an_old_database_opens_and_grows_with_the_first_write(tmp_path, was):
    path = tmp_path / "runs.db"
    old(path, was)
    store, other = SqliteStore(path), SqliteStore(path)
    assert (store.total("usd", DAY), store.holds()) == (0.0, [])
    assert [n for n, _ in store.read("r")] == [1]
    assert version(path) == was
    assert store.add("usd", DAY, "r/1/1", 1.0) == 1.0
    assert version(path) == database.VERSION
    store.append("q", 1, b"one")
    store.append_all([(run, 2, b"two", Kept(head=b"h", active=True)) for run in "rq"])
    assert [n for n, _ in other.read("r")] == [n for n, _ in other.read("q")] == [1, 2]
    assert other.add("usd", DAY, "r/1/2", 1.0) == 2.0
    other.append("r", 3, b"three")
    assert [n for n, _ in SqliteStore(path).read("r")] == [1, 2, 3]
    assert SqliteStore(path).total("usd", DAY) == 2.0


@pytest.mark.parametrize("was", [3, 4])
def test_a_refused_first_entry_leaves_an_old_database_as_it_was(tmp_path, was):
    path = tmp_path / "runs.db"
    old(path, was)
    store = SqliteStore(path)
    store._db.pragma("max_page_count", store._db.pragma("page_count") + 3)
    with pytest.raises(StoreError, match="full"):
        store.add("usd", DAY, "r" * 100_000, 1.0)
    store.close()
    assert version(path) == was
    assert SqliteStore(path).total("usd", DAY) == 0.0


@pytest.mark.parametrize("table", ["sheets", "log"])
def test_a_new_database_without_its_table_is_damaged(tmp_path, table):
    path = tmp_path / "runs.db"
    SqliteStore(path).close()
    assert version(path) == database.VERSION
    apsw.Connection(str(path)).execute(f"DROP TABLE {table}")
    with pytest.raises(Corrupt, match="has lost tables"):
        SqliteStore(path)


def flipped(path, where, old, new):
    db = apsw.Connection(str(path))
    ((page,),) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name=?", (where,))
    db.close()
    whole, start = path.read_bytes(), (page - 1) * 4096
    assert whole[start : start + 4096].count(old) == 1
    path.write_bytes(whole[:start] + whole[start : start + 4096].replace(old, new) + whole[start + 4096 :])


@pytest.mark.parametrize(
    ("where", "old", "new"),
    [
        ("sheets", b'"r/1/1": 1.0', b'"r/1/1": 0.0'),
        ("sqlite_autoindex_sheets_1", b"/usd%2Fspent", b"/usd%2Fspeot"),
        ("sqlite_autoindex_sheets_1", b"usd%2Fspent.ledger\x02", b"usd%2Fspent.ledger\x03"),
    ],
    ids=["a body", "the index has lost it", "the index gives another's"],
)
def test_one_bit_of_a_ledger_is_seen(tmp_path, where, old, new):
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    store.hold("a", LATE, "why")  # is number 1, which an index writes without a byte of its own
    store.add("usd/spent", DAY, "r/1/1", 1.0)
    store.close()
    flipped(path, where, old, new)
    for act in (
        lambda: SqliteStore(path).total("usd/spent", DAY),
        lambda: SqliteStore(path).add("usd/spent", DAY, "r/2/1", 1.0),
    ):
        with pytest.raises(Corrupt, match=r"runs\.db is damaged.*move it"):
            act()


def test_a_ledger_in_a_database_that_one_may_only_read(tmp_path, monkeypatch):
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    store.add("usd", DAY, "r/1/1", 1.0)
    store.close()
    monkeypatch.setattr(os, "access", lambda *_: False)
    looking = SqliteStore(path)
    assert looking.total("usd", DAY) == 1.0
    assert looking.holds() == []
    with pytest.raises(StoreError, match="cannot be used"):
        looking.add("usd", DAY, "r/2/1", 1.0)
