"""What a server takes up and when, without a process of its own: the rule, clocks that jump, lost logins."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loopwright import Loop
from loopwright.core import events as ev
from loopwright.core.values import Failed, Result, Usage, Worked
from loopwright.errors import StoreError
from loopwright.hosts.local import start
from loopwright.hosts.ways import Ways
from loopwright.journal import Journal, history
from loopwright.ports import Agent
from loopwright.serving import workers as workers_module
from loopwright.serving.workers import Workers, wants
from loopwright.stores.memory import MemoryStore

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
