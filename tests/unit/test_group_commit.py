"""What several runs write in one turn of the event loop is one wait for the disk, and no less safe."""

import asyncio

import pytest

from loopwright import Loop
from loopwright.errors import StoreError, Taken
from loopwright.hosts.local import start
from loopwright.hosts.ways import Ways
from loopwright.ports import Kept
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
        waiting = [together.write(run, 1, b"x", kept(run)) for run in "ab"]
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert [str(error) for error in asyncio.run(both())] == ["the disk is full"] * 2


def test_who_is_cancelled_while_waiting_writes_nothing_and_stops_nobody():
    async def one_of_two():
        store = MemoryStore()
        together = Together(store)
        gone = asyncio.ensure_future(together.write("gone", 1, b"x", kept("gone")))
        stays = asyncio.ensure_future(together.write("stays", 1, b"x", kept("stays")))
        asyncio.get_running_loop().call_soon(gone.cancel)
        await asyncio.wait({gone, stays})
        return store, gone.cancelled(), stays.result()

    store, cancelled, refused = asyncio.run(one_of_two())
    assert cancelled
    assert lines(store, "gone") == []
    assert refused is None
    assert lines(store, "stays") == [b"x"]
