"""What runs of one store tell each other: limits and lost logins of an agent, and a day's money."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from loopwright import Loop, ledger, run
from loopwright.core import events as ev
from loopwright.core.values import Failed, Result, Usage, Worked
from loopwright.ports import Agent
from loopwright.stores.memory import MemoryStore


@pytest.fixture
def store():
    return MemoryStore()


def agent(*outcomes, login="claude/key-1", calls=None):
    """An agent of this login that comes to these, the last one again and again."""
    left = list(outcomes)

    async def call(attempt, place):
        if calls is not None:
            calls.append(attempt)
        return left.pop(0) if len(left) > 1 else left[0]

    return Agent(name="scripted", call=call, in_folder=False, login=lambda place: login)


def worked(cost=0.5):
    return Worked(result=Result("x", usage=Usage(cost_usd=cost, tokens=1)))


def limited(seconds=7200.0):
    return Failed(kind="rate_limited", message="rate limited: 429", retry_after_s=seconds, of_login=True)


LOST = Failed(kind="permanent", message="authentication: 401", of_login=True)


def looped(store, worker, name="r", passing=True, **limits):
    loop = Loop("g", agent=worker, gates=[lambda output: passing], max_iterations=3, **limits)
    return run(loop, name, store=store)


def facts(store, name, kind):
    from loopwright.codec import commits

    return [e for c in commits(name, store.read(name)) for _, e in c.facts if isinstance(e, kind)]


def test_a_limit_that_one_run_met_is_waited_for_by_another_of_its_login(store):
    first = looped(store, agent(limited()), max_wait=3600)
    assert first.reason == "max_wait"
    (hold,) = store.holds()
    assert (hold.until - datetime.now(UTC)).total_seconds() == pytest.approx(7200, abs=60)
    store.hold("claude/key-1", datetime.now(UTC) + timedelta(seconds=0.5), "rate limited: 429")
    calls = []
    second = looped(store, agent(worked(), calls=calls), "s")
    assert (second.passed, second.cost_usd, len(calls)) == (True, 0.5, 1)
    assert "another run of this login found" in facts(store, "s", ev.AttemptFailed)[0].message


def test_who_may_not_wait_so_long_tries_it_once_and_another_login_is_not_held(store):
    store.hold("claude/key-1", datetime.now(UTC) + timedelta(days=365), "wrong")
    assert looped(store, agent(worked(), login="claude/key-2"), "t").passed
    assert looped(store, agent(worked())).passed
    assert store.holds() == []


def test_a_hold_that_is_over_holds_nobody(store):
    store.hold("claude/key-1", datetime.now(UTC) - timedelta(seconds=1), "over")
    assert looped(store, agent(worked())).passed


def test_a_lost_login_ends_the_runs_under_way_and_not_those_started_after(store):
    calls = []

    def meanwhile(output):
        store.hold("claude/key-1", None, "authentication: 401")
        return False

    loop = Loop("g", agent=agent(worked(), calls=calls), gates=[meanwhile], max_iterations=5)
    first = run(loop, "r", store=store)
    assert (first.reason, len(calls)) == ("permanent_error", 1)
    assert "authentication: 401 (so another run" in first.explanation
    assert looped(store, agent(worked()), "s").passed
    assert store.holds() == []  # it works again


def test_what_an_attempt_finds_out_is_told(store):
    assert looped(store, agent(LOST)).reason == "permanent_error"
    (hold,) = store.holds()
    assert (hold.login, hold.until) == ("claude/key-1", None)
    assert "401" in hold.why


@pytest.mark.parametrize(
    "failed",
    [
        replace(limited(), of_login=False),
        replace(limited(), retry_after_s=None),
        replace(LOST, of_login=False),
        Failed(kind="unknown", message="x", of_login=True),
    ],
)
def test_what_is_not_of_the_login_or_has_no_end_holds_nobody(store, failed):
    looped(store, agent(failed, worked()), max_wait=1, attempts=1)
    assert store.holds() == []


# ── a day's money ───────────────────────────────────────────────────────────────────────────────────────────────────


def today():
    return ledger.today(datetime.now(UTC))


def test_a_days_money_is_for_all_runs(store):
    first = looped(store, agent(worked()), passing=False, budget_per_day=1.2, reserve=0.5)
    assert (first.reason, first.cost_usd) == ("budget", 1.0)
    assert "(UTC) by all runs here" in first.explanation
    assert ledger.spent(store, today()) == (pytest.approx(1.0), pytest.approx(0.0))
    second = looped(store, agent(worked()), "s", budget_per_day=1.2, reserve=0.5)
    assert (second.reason, second.iterations) == ("budget", 0)
    assert looped(store, agent(worked()), "t", budget_per_day=5.0, reserve=0.5).passed


def test_the_agent_is_told_what_the_day_leaves(store):
    calls = []
    looped(store, agent(worked(), calls=calls), passing=False, budget_per_day=1.75)
    assert [c.left.budget_usd for c in calls] == [1.75, 1.25, 0.75]
    assert [c.reserve_usd for c in calls] == [1.75, 0.5, 0.5]


def test_what_others_have_set_aside_is_waited_for(store):
    booking = ledger.booking(datetime.now(UTC), "other/1/1")
    ledger.reserve(store, booking, 1.0)
    held = looped(store, agent(worked()), budget_per_day=1.2, reserve=0.5, max_wait=10)
    assert held.reason == "max_wait"
    assert "set aside for other attempts" in facts(store, "r", ev.AttemptFailed)[0].message


def test_an_attempt_of_unknown_cost_keeps_what_was_set_aside_or_its_estimate(store):
    unknown = looped(store, agent(worked(cost=None)), passing=False, budget_per_day=2.0)
    assert unknown.reason == "cost_unknown"
    assert sum(ledger.spent(store, today())) == pytest.approx(2.0)
    other = MemoryStore()
    looped(other, agent(worked(cost=None)), passing=False, budget_per_day=2.0, reserve=0.6)
    assert ledger.spent(other, today()) == (pytest.approx(1.8), pytest.approx(0.0))


def test_without_a_bound_the_day_is_counted_all_the_same(store):
    looped(store, agent(worked(cost=0.25)))
    looped(store, agent(worked(cost=0.0)), "s")
    assert ledger.spent(store, today()) == (pytest.approx(0.25), 0.0)


def test_runs_beside_each_other_never_spend_more_than_the_day_has(store):
    ends = []

    def one(name):
        ends.append(
            looped(store, agent(worked()), name, passing=False, budget_per_day=2.0, reserve=0.5, max_wait=0.1)
        )

    threads = [threading.Thread(target=one, args=(f"r{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    spent, reserved = ledger.spent(store, today())
    assert spent == pytest.approx(sum(end.cost_usd or 0.0 for end in ends))
    assert spent <= 2.0
    assert reserved == pytest.approx(0.0)
    assert {end.reason for end in ends} <= {"budget", "max_wait", "max_iterations"}
