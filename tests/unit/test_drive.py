"""Driving: what is cut, who gets a turn, and that a cancellation from outside stays one."""

import asyncio
import os
import time

import pytest

from loopwright import Loop, drive, gate, running
from loopwright.codec import encode_signal
from loopwright.core import events as ev
from loopwright.errors import WorkspaceError
from loopwright.hosts.local import start
from loopwright.hosts.ways import Ways
from loopwright.journal import history
from loopwright.stores.memory import MemoryStore
from loopwright.workspace.opened import Workspace


def facts(store, run="r"):
    return [event for _, _, event, _ in history(store, run)]


def test_others_get_a_turn_while_a_loop_of_instant_functions_runs(tmp_path):
    until = time.monotonic() + 0.4
    gaps = []

    def agent(attempt):
        return attempt.iteration

    def gate(number):
        return time.monotonic() > until

    async def both():
        async def ticks():
            last = time.monotonic()
            while True:
                await asyncio.sleep(0.01)
                gaps.append(time.monotonic() - last)
                last = time.monotonic()

        other = asyncio.create_task(ticks())
        loop = Loop(
            "g",
            agent=agent,
            gates=[gate],
            max_iterations=100_000,
            convergence=False,
            monitors={"stall": "off"},
        )
        held = await start(loop, "r", Ways(project=tmp_path, store=MemoryStore()))
        other.cancel()
        return held

    held = asyncio.run(both())
    assert held.state.finished.reason == "quality_reached"
    assert held.state.iteration > 20
    assert len(gaps) >= 5


@pytest.mark.parametrize("answer", ["ends", "goes on"])
def test_an_agent_that_is_cut_by_a_stop_is_cut_whatever_it_makes_of_it(tmp_path, answer):
    store = MemoryStore()
    begun = asyncio.Event()

    async def agent(attempt):
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if answer == "ends":
                raise
        return "done all the same"

    async def stopped():
        run = asyncio.create_task(
            start(Loop("g", agent=agent, gates=[lambda _: True]), "r", Ways(project=tmp_path, store=store))
        )
        await begun.wait()
        store.signal("r", "stop/1", encode_signal(ev.StopRequested(now=True, by="me", key="stop/1")))
        return await run

    held = asyncio.run(stopped())
    assert held.state.finished.reason == "stopped_by_user"
    assert [e.cause for e in facts(store) if isinstance(e, ev.AttemptInterrupted)] == ["stop"]
    assert not any(isinstance(e, ev.AttemptSucceeded) for e in facts(store))


def test_a_cancellation_from_outside_hands_the_run_over_and_is_not_swallowed(tmp_path):
    store = MemoryStore()
    begun = asyncio.Event()

    async def agent(attempt):
        begun.set()
        if attempt.number == 1:
            await asyncio.sleep(60)
        return "done"

    loop = Loop("g", agent=agent, gates=[lambda _: True])

    async def cancelled():
        run = asyncio.create_task(start(loop, "r", Ways(project=tmp_path, store=store)))
        await begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(cancelled())
    assert [e.cause for e in facts(store) if isinstance(e, ev.AttemptInterrupted)] == ["handover"]
    held = asyncio.run(_again(loop, tmp_path, store))
    assert held.state.finished.reason == "quality_reached"


async def _again(loop, folder, store):
    return await start(loop, "r", Ways(project=folder, store=store))


def test_an_answer_whose_question_a_stop_withdrew_is_on_record(tmp_path):
    store = MemoryStore()
    loop = Loop("g", agent=lambda _: 1, gates=[lambda _: True], approval="passed")

    async def asked_then_stopped():
        ways = Ways(project=tmp_path, store=store)
        held = await start(loop, "r", ways)
        request = held.state.approval.id
        store.signal("r", "stop/1", encode_signal(ev.StopRequested(by="ann", key="stop/1")))
        late = ev.ApprovalDecided(id=request, answer="approve", by="bob", channel="cli")
        assert store.signal("r", f"decision/{request}", encode_signal(late))
        return request, await start(loop, "r", ways)

    request, held = asyncio.run(asked_then_stopped())
    assert held.state.finished.reason == "stopped_by_user"
    (noticed,) = [e for e in facts(store) if isinstance(e, ev.Noticed)]
    assert (noticed.approval, noticed.channel) == (request, "cli")
    assert noticed.problem == "approve by bob came after the question was withdrawn"


async def cut_while(work, monkeypatch, *, outside=False):
    """What comes of work that is cut, by a watch of its own in this task."""
    monkeypatch.setattr(drive, "_interruption", lambda _: running.Cut("stop"))
    monkeypatch.setattr(drive, "POLL_S", 0.0)
    watch = drive._Watch(None)
    if outside:
        task = asyncio.current_task()
        asyncio.get_running_loop().call_later(0.05, lambda: (watch._look(), task.cancel()))
    try:
        return await watch.watched(work())
    finally:
        watch.over()


def test_work_that_swallows_its_cut_is_cut_all_the_same_and_the_next_is_not(monkeypatch):
    async def deaf():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "done all the same"

    async def then_more():
        cut = await cut_while(deaf, monkeypatch)
        await asyncio.sleep(0)  # a cancellation that was left over would end this
        return cut, asyncio.current_task().cancelling()

    assert asyncio.run(then_more()) == (running.Cut("stop"), 0)


def test_who_is_cancelled_from_outside_while_being_cut_is_cancelled(monkeypatch):
    async def both():
        with pytest.raises(asyncio.CancelledError):
            await cut_while(lambda: asyncio.sleep(60), monkeypatch, outside=True)

    asyncio.run(both())


def test_a_gate_that_writes_runs_beside_no_other(tmp_path):
    (tmp_path / "work.py").write_text("x=0")
    store = MemoryStore()

    def tidies(result):
        (result.workdir / "work.py").write_text("x = 1")
        return True

    def reads(result):
        return "x" in (result.workdir / "work.py").read_text()

    def agent(attempt):
        (tmp_path / "work.py").write_text("x=1")
        return "worked"

    beside = [gate(reads, parallel=True, name=name) for name in ("before", "after")]
    gates = [beside[0], gate(tidies, writes=True, parallel=True), beside[1]]
    loop = Loop("g", agent=agent, gates=gates, workspace="in_place", max_iterations=1, baseline=False)
    held = asyncio.run(start(loop, "r", Ways(project=tmp_path, store=store)))
    assert held.state.finished.reason == "quality_reached"
    scores = [(e.gate, e.score.status) for e in facts(store) if isinstance(e, ev.GateScored)]
    assert {status for _, status in scores} == {"pass"}, scores


def test_time_in_which_gates_run_side_by_side_counts_once(tmp_path):
    async def slow(_):
        await asyncio.sleep(0.1)
        return True

    gates = [gate(slow, name=name, parallel=True) for name in "abc"]
    loop = Loop("g", agent=lambda _: 1, gates=gates)
    store = MemoryStore()
    state = asyncio.run(start(loop, "r", Ways(project=tmp_path, store=store))).state
    each = [e.seconds for e in facts(store) if isinstance(e, ev.GateScored)]
    assert min(each) >= 0.1 and max(each) <= state.totals.seconds < sum(each) - 0.1


def test_gates_beside_one_that_ends_the_run_are_ended_too(tmp_path, monkeypatch):
    ended = []

    def lost(*_):
        raise WorkspaceError("the snapshots are gone")

    async def endless(_):
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("endless")

    monkeypatch.setattr(Workspace, "checkout", lost)
    gates = [gate(endless, parallel=True), {"use": "command", "run": "true", "clean": True, "parallel": True}]
    loop = Loop("g", agent=lambda _: 1, gates=gates, workspace="in_place")

    async def runs():
        with pytest.raises(WorkspaceError):
            await start(loop, "r", Ways(project=tmp_path, store=MemoryStore(), environ=os.environ))
        return tuple(ended)

    assert asyncio.run(runs()) == ("endless",)
