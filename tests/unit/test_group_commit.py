"""What several runs write in one turn of the event loop is one wait for the disk, and no less safe."""

import asyncio
from datetime import UTC, datetime

import apsw
import pytest

from loopwright import Loop
from loopwright.core import events as ev
from loopwright.errors import Corrupt, Locked, StoreError, Taken
from loopwright.hosts.local import start
from loopwright.hosts.ways import Ways
from loopwright.journal import Journal
from loopwright.ports import Kept
from loopwright.stores import sqlite
from loopwright.stores.files import FilesStore
from loopwright.stores.memory import MemoryStore
from loopwright.stores.sqlite import SqliteStore
from loopwright.together import Together


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "runs.db")
    yield made
    made.close()


def kept(run, **more):
    return Kept(head=run.encode(), active=True, **more)


def lines(store, run):
    return [body for _, body in store.read(run)]


def test_a_refusal_takes_no_other_commit_with_it(store):
    for run in "abc":
        store.append(run, 1, b"1")
    store.append("b", 2, b"somebody was first")
    refused = store.append_all([(run, 2, f"{run}2".encode(), kept(run)) for run in "abc"])
    assert refused[0] is None
    assert refused[2] is None
    assert isinstance(refused[1], Taken)
    assert refused[1].standing == b"somebody was first"
    assert [lines(store, run)[1] for run in "abc"] == [b"a2", b"somebody was first", b"c2"]
    assert sorted(dict(store.heads())) == ["a", "c"]


def test_first_and_later_commits_with_heads_and_folds_go_in_together(store):
    store.append("a", 1, b"a1")
    done = store.append_all(
        [
            ("a", 2, b"a2", kept("a", fold=b"fold")),
            ("new", 1, b"n1", kept("new")),
            ("a", 3, b"a3", Kept(head=None, active=True)),
        ]
    )
    assert done == [None, None, None]
    assert lines(store, "a") == [b"a1", b"a2", b"a3"]
    assert lines(store, "new") == [b"n1"]
    assert dict(store.heads()) == {"a": b"a", "new": b"new"}
    assert store.cached("a") == (2, b"fold")


def test_a_commit_without_a_head_leaves_the_one_before(store):
    store.append_with("a", 1, b"a1", kept("a"))
    store.append_with("a", 2, b"a2", Kept(head=None, active=False))
    assert list(store.heads(active=True)) == [("a", b"a")]


def test_a_fold_is_kept_with_a_commit_that_comes_alone(store):
    for n in (1, 2):
        store.append_with("a", n, b"a", kept("a"))
    store.append_with("a", 3, b"a3", kept("a", fold=b"fold"))
    assert store.cached("a") == (3, b"fold")


def written_by_two(folder):
    """Commits 1 and 2 of `a` and `b` by one store, 2 of them together; and another store."""
    mine, other = SqliteStore(folder / "runs.db"), SqliteStore(folder / "runs.db")
    for run in "ab":
        mine.append(run, 1, f"{run}1".encode())
    together(mine, 2)
    return mine, other


def together(store, n, runs="ab", **more):
    return store.append_all([(run, n, f"{run}{n}".encode(), kept(run, **more)) for run in runs])


def test_commits_that_came_alone_and_with_others_are_one_history(tmp_path):
    mine, other = written_by_two(tmp_path)
    mine.append_with("a", 3, b"a3", kept("a"))
    assert together(mine, 4, "a") == [None]
    other.append("b", 3, b"b3")
    together(mine, 5)
    mine.append_with("a", 6, b"a6", kept("a"))
    for store in (mine, other, SqliteStore(tmp_path / "runs.db")):
        assert list(store.read("a")) == [(n, b"a%d" % n) for n in range(1, 7)]
        assert list(store.read("a", 3)) == [(n, b"a%d" % n) for n in range(4, 7)]
        assert list(store.read("b")) == [(n, b"b%d" % n) for n in range(1, 4)]
        assert store.one("b", 2) == b"b2"


def test_a_long_history_of_both_kinds_is_read_in_order(tmp_path):
    mine, _ = written_by_two(tmp_path)
    for n in range(3, 700):
        together(mine, n, "ab" if n % 3 else "a")
    assert [n for n, _ in mine.read("a")] == list(range(1, 700))
    assert [n for n, _ in mine.read("a", 256)] == list(range(257, 700))


def test_who_was_first_is_told_whichever_way_it_came(tmp_path):
    mine, other = written_by_two(tmp_path)
    with pytest.raises(Taken) as taken:  # together, by others: one who looks finds it
        other.append("a", 2, b"x")
    assert taken.value.standing == b"a2"
    other.append("a", 3, b"alone")
    refused = together(mine, 3)
    assert [type(why) for why in refused] == [Taken, type(None)]
    assert refused[0].standing == b"alone"
    other._last["b"] = (2 << 32) + 1  # as if commit 1 had been its own: it does not look first
    with pytest.raises(Taken) as taken:
        other.append_with("b", 2, b"x", kept("b"))
    assert taken.value.standing == b"b2"
    assert lines(mine, "b") == [b"b1", b"b2", b"b3"]


def test_a_gap_among_commits_that_came_together_is_damage(tmp_path):
    mine, other = written_by_two(tmp_path)
    together(mine, 3)
    mine._db.execute("DELETE FROM log WHERE id=(1 << 32) + 3")
    with pytest.raises(Corrupt, match="has lost commit 3 of run a"):
        other.append("a", 4, b"x")
    with pytest.raises(Corrupt, match=r"lost commits: 3 were acknowledged"):
        list(other.read("a"))
    assert lines(other, "b") == [b"b1", b"b2", b"b3"]


@pytest.mark.parametrize("lost", ["a3", "b3"])
def test_an_index_that_lost_a_commit_hides_none(tmp_path, lost):
    mine, other = written_by_two(tmp_path)
    together(mine, 3)
    ((page,),) = mine._db.execute("SELECT rootpage FROM sqlite_schema WHERE name='sqlite_autoindex_log_1'")
    mine.close()
    other.close()
    path, start = tmp_path / "runs.db", (page - 1) * 4096
    whole = path.read_bytes()
    key = ((" ab".index(lost[0]) << 32) + 3).to_bytes(6, "big")
    found = whole[start : start + 4096]
    assert found.count(key) == 1
    wrong = found.replace(key, key[:1] + b"\x07" + key[2:])
    path.write_bytes(whole[:start] + wrong + whole[start + 4096 :])
    with pytest.raises(Corrupt, match=r"lost commits: 3 were acknowledged"):
        lines(SqliteStore(path), lost[0])


def test_a_refusal_leaves_what_was_known_of_the_others(tmp_path):
    mine, other = written_by_two(tmp_path)
    other.append("a", 3, b"alone")
    assert [type(why) for why in together(mine, 3, "ba")] == [type(None), Taken]
    assert together(mine, 4, "b") == [None]
    mine._db.execute("DELETE FROM commits WHERE id=(1 << 32) + 3")
    with pytest.raises(Corrupt, match="lost commit 3"):  # it was none of ours: it is looked for
        mine.append_with("a", 4, b"x", kept("a"))
    assert lines(mine, "b")[2:] == [b"b3", b"b4"]


def test_the_first_commit_after_anothers_stands_where_older_versions_look(tmp_path):
    _, other = written_by_two(tmp_path)
    together(other, 3)  # as who takes both runs over from one that sleeps
    together(other, 4)
    assert [key & 7 for (key,) in other._db.execute("SELECT id FROM commits ORDER BY id")] == [1, 3, 1, 3]


def test_a_new_run_that_makes_a_store_forget_stops_no_other(tmp_path, monkeypatch):
    mine, _ = written_by_two(tmp_path)
    monkeypatch.setattr(sqlite, "KNOWN", 2)  # it remembers so many runs, and has two
    new = ("new", 1, b"new1", kept("new"))
    assert mine.append_all([("a", 3, b"a3", kept("a")), new, ("b", 3, b"b3", kept("b"))]) == [None] * 3
    assert [lines(mine, run)[-1] for run in ("a", "new", "b")] == [b"a3", b"new1", b"b3"]


def test_commits_that_come_together_are_written_side_by_side(tmp_path):
    store, runs = SqliteStore(tmp_path / "runs.db"), [f"r{n}" for n in range(200)]
    for run in runs:
        store.append(run, 1, b"x" * 700)
    before, _ = store._db.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)
    for n in range(2, 12):
        done = store.append_all([(run, n, b"x" * 700, Kept(head=None, active=True)) for run in runs])
        assert not any(done)
    after, _ = store._db.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)
    assert (
        after - before < 2000 / 5 + 200 + 200
    )  # five of them fill a page; besides, the first group and the index


class Counting(SqliteStore):
    """Counts the waits for the disk."""

    waits = 0

    def append_all(self, commits):
        Counting.waits += 1
        return super().append_all(commits)


async def agent(attempt):
    await asyncio.sleep(0)
    return attempt.iteration


async def gate(number):
    return number == 5


def test_many_runs_of_one_process_share_their_waits_and_all_end(tmp_path):
    store = Counting(tmp_path / "runs.db")
    loop = Loop("g", agent=agent, gates=[gate])

    async def many():
        ways = Ways(project=tmp_path, store=store, together=Together(store))
        return await asyncio.gather(*(start(loop, f"r{i}", ways) for i in range(40)))

    held = asyncio.run(many())
    assert {h.state.finished.reason for h in held} == {"quality_reached"}
    assert {h.state.iteration for h in held} == {5}
    assert sum(len(lines(store, f"r{i}")) for i in range(40)) >= 40 * 11
    assert Counting.waits < 40 * 11 / 5
    store.close()


class Full(MemoryStore):
    """A store that cannot write any more."""

    def append_all(self, commits):
        raise StoreError("the disk is full")


def test_a_store_that_fails_fails_for_all_that_waited():
    async def both():
        together = Together(Full())
        waiting = [together.write(run, 1, b"x", kept(run), print) for run in "ab"]
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert [str(error) for error in asyncio.run(both())] == ["the disk is full"] * 2


def test_who_is_cancelled_while_waiting_writes_nothing_and_stops_nobody():
    async def one_of_two():
        store = MemoryStore()
        together = Together(store)
        gone = asyncio.ensure_future(together.write("gone", 1, b"x", kept("gone"), told.append))
        stays = asyncio.ensure_future(together.write("stays", 1, b"x", kept("stays"), told.append))
        asyncio.get_running_loop().call_soon(gone.cancel)
        await asyncio.wait({gone, stays})
        return store, gone.cancelled()

    told = []
    store, cancelled = asyncio.run(one_of_two())
    assert cancelled
    assert lines(store, "gone") == []
    assert told == [None]
    assert lines(store, "stays") == [b"x"]


def begun(store, run, together=None):
    journal = Journal(store, run, together=together)
    journal.record(datetime.now(UTC), ev.RunStarted(run=run, spec={}, digest="d"))
    journal.flush()
    journal.record(datetime.now(UTC), ev.NoteAdded(text="one"))
    return journal


def test_who_is_cancelled_as_its_commit_was_written_goes_on_after_it(store):
    async def cancelled():
        journal = begun(store, "r", Together(store))
        saving = asyncio.ensure_future(journal.save())
        await asyncio.sleep(0)  # it waits for the turn in which its commit is written
        asyncio.get_running_loop().call_soon(saving.cancel)
        with pytest.raises(asyncio.CancelledError):
            await saving
        journal.record(datetime.now(UTC), ev.NoteAdded(text="two"))
        journal.flush()
        return journal.state

    state = asyncio.run(cancelled())
    there = Journal(store, "r")
    assert there.n == 3
    assert there.state == state


def test_who_is_cancelled_as_its_commit_was_refused_hears_that_it_was_cancelled(store):
    async def cancelled():
        journal = begun(store, "r", Together(store))
        store.append("r", 2, b"somebody was first")
        saving = asyncio.ensure_future(journal.save())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(saving.cancel)
        with pytest.raises(asyncio.CancelledError):
            await saving
        with pytest.raises(Locked):
            journal.flush()

    asyncio.run(cancelled())


def lost_in_sqlite(folder):
    store = SqliteStore(folder / "runs.db")

    def damage():
        store._db.execute("DELETE FROM commits WHERE id = (2 << 32) + 1")
        store._last.clear()  # as another process finds it: who wrote a commit itself looks for none

    return store, damage


def lost_in_files(folder):
    store = FilesStore(folder)
    return store, (folder / "b.journal.jsonl").unlink


@pytest.mark.parametrize("made", [lost_in_sqlite, lost_in_files])
def test_one_damaged_run_stops_no_other_run_of_the_group(made, tmp_path):
    store, damage = made(tmp_path)
    together = Together(store)
    journals = [begun(store, run, together) for run in "abc"]
    damage()

    async def all_of_them():
        return await asyncio.gather(*(journal.save() for journal in journals), return_exceptions=True)

    ends = asyncio.run(all_of_them())
    assert ends[::2] == [None, None]
    assert isinstance(ends[1], Corrupt)
    assert [journal.n for journal in journals] == [2, 1, 2]
    assert [len(lines(store, run)) for run in "ac"] == [2, 2]
    store.close()
