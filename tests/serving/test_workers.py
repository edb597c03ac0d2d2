"""What a server takes up and when, without a process of its own: the rule, clocks that jump, lost logins."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loopwright import Loop
from loopwright.assembled import assemble
from loopwright.codec import encode_signal
from loopwright.core import events as ev
from loopwright.core.values import Failed, Result, Usage, Worked
from loopwright.errors import StoreError
from loopwright.hosts.local import start
from loopwright.hosts.ways import Ways
from loopwright.journal import Journal, history
from loopwright.ports import Agent
from loopwright.serving import workers as workers_module
from loopwright.serving.starts import begin
from loopwright.serving.workers import Workers, wants
from loopwright.stores.memory import MemoryStore
from loopwright.stores.sqlite import SqliteStore
from loopwright.workspace import copies

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def head(**said):
    return {"wake": None, "exit_code": None, "updated_at": NOW.isoformat(), **said}


@pytest.mark.parametrize(
    ("found", "signalled", "left_s", "wanted"),
    [
        (head(), False, 0.0, True),  # begun, or left by a dead process
        (head(wake="x"), False, 5.0, False),  # waits for a time
        (head(wake="x"), False, 0.0, True),
        (head(wake="x"), True, 5.0, True),  # somebody said something
        (head(exit_code=6), False, 0.0, False),  # paused, or asks without an end
        (head(exit_code=6), True, 0.0, True),
        (head(exit_code=6, wake="x"), False, 5.0, False),  # asks, with a deadline
        (head(exit_code=6, wake="x"), False, -1.0, True),
    ],
)
def test_what_wants_to_be_taken_up(found, signalled, left_s, wanted):
    assert wants(found, signalled=signalled, left_s=left_s) is wanted


def working(store, limit=2, **more):
    told: list[str] = []
    ways = Ways(project=Path.cwd(), store=store, holds=True, patience_s=0.0)
    return Workers(store=store, limit=limit, ways=lambda run, state: ways, tell=told.append, **more), told


class Heads:
    """A store of heads alone, for looking at."""

    def __init__(self, *heads):
        self.rows = heads

    def heads(self, *, active=None, limit=1000):
        return [(f"r{i}", json.dumps(row).encode()) for i, row in enumerate(self.rows)]

    def signals(self, run):
        return ()


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(days=1), timedelta(days=-1)])
def test_a_wait_is_as_long_as_it_was_said_to_be_whatever_the_clock_says_now(ahead, monkeypatch):
    """On record by a clock that is `ahead` of the present one: never longer than the minute that was asked for."""
    at, mono = datetime.now(UTC) + ahead, [1000.0]
    monkeypatch.setattr(workers_module.time, "monotonic", lambda: mono[0])
    row = head(updated_at=at.isoformat(), wake=(at + timedelta(seconds=60)).isoformat())
    watch, _ = working(Heads(row))
    body = json.dumps(row).encode()
    due = [watch._due("r0", body)]
    mono[0] += 61
    assert [*due, watch._due("r0", body)] == [ahead.days < 0, True]


def test_a_store_that_cannot_be_read_is_tried_again(monkeypatch):
    monkeypatch.setattr(workers_module, "TICK_S", 0.01)
    store = MemoryStore()
    watch, told = working(store)
    fails = [StoreError("the disk is full"), None]

    async def play():
        seen = asyncio.Event()

        def sweep():
            if (error := fails.pop(0) if fails else None) is not None:
                raise error
            seen.set()

        monkeypatch.setattr(Workers, "sweep", lambda self: sweep())
        task = asyncio.create_task(watch.work())
        await asyncio.wait_for(seen.wait(), 5)
        task.cancel()

    asyncio.run(play())
    assert told == ["the store cannot be read: the disk is full"]


def agent(*outcomes):
    left = list(outcomes)

    async def call(attempt, place):
        return left.pop(0) if len(left) > 1 else left[0]

    return Agent(name="scripted", call=call, in_folder=False, login=lambda place: "claude/key-1")


WORKED = Worked(result=Result("x", usage=Usage(cost_usd=0.5, tokens=1)))
LOST = Failed(kind="permanent", message="authentication: 401", of_login=True)


def facts(store, run, kind):
    return [event for _, _, event, _ in history(store, run) if isinstance(event, kind)]


def hosted(store, worker, run="r", **limits):
    """The run as a server holds it, until it is over or given back."""
    loop = Loop("g", agent=worker, gates=[lambda output: True], **limits)
    ways = Ways(project=Path.cwd(), store=store, holds=True, patience_s=0.0)
    return asyncio.run(start(loop, run, ways))


def test_a_lost_login_makes_a_run_wait_instead_of_ending_it():
    store = MemoryStore()
    held = hosted(store, agent(LOST))
    assert (held.state.phase, held.state.finished, held.waiting.what) == ("waiting", None, "rate limited")
    assert [hold.until for hold in store.holds()] == [None]
    (failed,) = facts(store, "r", ev.AttemptFailed)
    assert (failed.kind, failed.retry_after) == ("rate_limited", 900.0)
    again = hosted(store, agent(WORKED), "s")
    assert again.state.finished.phase == "complete"
    assert store.holds() == []  # it works again, and whoever waits hears of it


def test_a_lost_login_is_waited_for_no_longer_than_the_loop_waits():
    held = hosted(MemoryStore(), agent(LOST), max_wait=600)
    assert held.state.finished.reason == "max_wait"


def test_by_hand_a_lost_login_still_ends_the_run():
    loop = Loop("g", agent=agent(LOST), gates=[lambda output: True])
    held = asyncio.run(start(loop, "r", Ways(project=Path.cwd(), store=MemoryStore())))
    assert held.state.finished.reason == "permanent_error"


def test_what_is_not_for_a_server_is_left_alone():
    store = MemoryStore()
    journal = Journal(store, "r")
    journal.record(datetime.now(UTC), ev.RunStarted(run="r", spec={"goal": "g"}, digest="d", origin="python"))
    journal.flush()
    watch, told = working(store, mine=lambda state: state.origin != "python")

    async def swept():
        watch.sweep()
        return watch.working

    assert asyncio.run(swept()) == frozenset()
    assert (told, watch.problems) == ([], {})
    assert Journal(store, "r").state.claim is None


# runs that cannot go on, on a real store


def project(tmp_path, **said):
    """A store with one run, begun by a server's `start`, of a loop whose agent is a shell command."""
    loop = Loop(
        "g", name="n", **{"gates": ["true"], "workspace": {"mode": "none"}, "if_passing": "run", **said}
    )
    store = SqliteStore(tmp_path / "runs.db")
    environ = {"PATH": os.environ["PATH"]}
    assembled = assemble(loop, project=tmp_path, path=environ["PATH"])
    begin(store, assembled, "r", project=tmp_path, environ=environ, origin="start")
    ways = Ways(project=tmp_path, store=store, environ=environ, holds=True, patience_s=0.0)
    told: list[str] = []
    return store, Workers(store=store, limit=2, ways=lambda run, state: ways, tell=told.append), told


async def swept(watch, times=1):
    """So many looks, each until nothing is in hand."""
    for _ in range(times):
        watch.sweep()
        while watch.working:
            await asyncio.wait(watch._tasks.values())


def test_a_run_whose_setup_fails_is_not_tried_again_at_once(tmp_path):
    setup = f"sh -c 'echo x >> {tmp_path}/tries; exit 3'"
    store, watch, told = project(tmp_path, agent="true", workspace={"mode": "folder", "setup": [setup]})
    watch.nudge()
    asyncio.run(swept(watch, 5))
    watch.nudge()  # others are begun
    asyncio.run(swept(watch))
    assert (tmp_path / "tries").read_text() == "x\n"
    (line,) = told
    assert "loopwright stop r ends it" in line
    assert [*watch.problems] == ["r"]
    left = [each.name for each in (tmp_path / ".agent-state/workspaces").glob("r~*")]
    assert left == []
    store.signal("r", "stop/1", encode_signal(ev.StopRequested(by="mira", key="stop/1"), NOW))
    asyncio.run(swept(watch))  # what a person asks needs no folder that was set up
    assert Journal(store, "r").state.finished.reason == "stopped_by_user"


def test_a_fault_of_our_own_in_one_run_is_told_and_not_met_again_at_once(tmp_path, monkeypatch):
    tried = []

    async def take_up(run, ways):
        tried.append(run)
        raise OSError("no space left on device")

    monkeypatch.setattr(workers_module, "take_up", take_up)
    _, watch, told = project(tmp_path, agent="true")
    asyncio.run(swept(watch, 3))
    assert tried == ["r"]
    assert "OSError: no space left on device" in told[0]


LIMITED = "sh -c 'echo 429 too many requests. Retry-After: 60 >&2; exit 1'"


def later(monkeypatch, seconds):
    """The monotonic clock of the server's looks, so much later."""
    real = time.monotonic
    monkeypatch.setattr(workers_module.time, "monotonic", lambda: real() + seconds)


def test_a_run_that_is_paused_in_a_wait_rests_when_the_wait_is_over(tmp_path, monkeypatch):
    store, watch, _ = project(tmp_path, agent=LIMITED)
    asyncio.run(swept(watch))
    pause = ev.PauseRequested(now=True, by="mira", key="pause/1")
    store.signal("r", "pause/1", encode_signal(pause, NOW))
    monkeypatch.setattr(workers_module, "TICK_S", 0.0)
    asyncio.run(swept(watch, 2))
    later(monkeypatch, 100)
    before = Journal(store, "r").n
    asyncio.run(swept(watch, 3))
    assert Journal(store, "r").state.paused
    assert Journal(store, "r").n == before


def test_a_run_with_which_nothing_can_be_done_is_looked_at_later_and_later(tmp_path, monkeypatch):
    store, watch, _ = project(tmp_path, agent=LIMITED)
    monkeypatch.setattr(workers_module, "TICK_S", 0.0)
    asyncio.run(swept(watch))
    monkeypatch.setattr(workers_module, "wants", lambda head, **_: True)
    asyncio.run(swept(watch, 6))
    assert len(facts(store, "r", ev.Claimed)) == 2


def test_a_wait_is_over_although_the_clock_was_set_back_a_day(tmp_path, monkeypatch):
    class Tomorrow:
        fromtimestamp = datetime.fromtimestamp

        @staticmethod
        def now(tz=None):
            return datetime.now(tz) + timedelta(days=1)

    store, watch, _ = project(tmp_path, agent=LIMITED)
    with monkeypatch.context() as patch:
        patch.setattr("loopwright.clock.datetime", Tomorrow)
        asyncio.run(swept(watch))
    assert len(facts(store, "r", ev.AttemptStarted)) == 1
    asyncio.run(swept(watch))
    later(monkeypatch, 100)
    asyncio.run(swept(watch))
    assert len(facts(store, "r", ev.AttemptStarted)) == 2


def test_a_store_whose_file_is_gone_cannot_be_read(tmp_path):
    _store, watch, _ = project(tmp_path, agent="true")
    (tmp_path / "runs.db").unlink()
    with pytest.raises(StoreError, match="was removed or replaced while it was in use"):
        watch.sweep()


def test_a_run_that_is_only_made_ready_does_not_keep_a_server_from_leaving(tmp_path):
    setup = f"sh -c 'echo x > {tmp_path}/begun; sleep 60; true'"
    store, watch, _ = project(tmp_path, agent="true", workspace={"mode": "folder", "setup": [setup]})

    async def left():
        watch.sweep()
        while not (tmp_path / "begun").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        began = time.monotonic()
        await watch.leave(30.0)
        return time.monotonic() - began

    assert asyncio.run(left()) < 15
    assert list((tmp_path / ".agent-state/workspaces").glob("r*")) == []
    assert (watch.working, Journal(store, "r").state.claim) == (frozenset(), None)


def test_a_folder_that_is_being_made_when_a_server_leaves_is_removed(tmp_path, monkeypatch):
    making, goes_on, make = threading.Event(), threading.Event(), copies.make

    def slowly(*args, **more):
        making.set()
        goes_on.wait(20)
        return make(*args, **more)

    monkeypatch.setattr(copies, "make", slowly)
    _, watch, told = project(tmp_path, agent="true", workspace={"mode": "folder"})

    async def left():
        watch.sweep()
        await asyncio.to_thread(making.wait, 20)
        asyncio.get_running_loop().call_later(0.2, goes_on.set)
        await watch.leave(30.0)

    asyncio.run(left())
    assert (list((tmp_path / ".agent-state/workspaces").glob("r*")), told) == ([], [])
