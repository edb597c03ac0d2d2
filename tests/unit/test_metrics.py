"""What Prometheus is told: counted from real runs, read anew from the store, bounded, without content."""

import asyncio
import re
import sys
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from loopwright import Loop, Score, ledger
from loopwright.core import events as ev
from loopwright.core.values import Failed, Result, Usage, Worked
from loopwright.errors import Corrupt, NotStartable
from loopwright.hosts import people
from loopwright.hosts.local import start
from loopwright.hosts.ways import Ways
from loopwright.ports import Agent, Gate
from loopwright.serving.metrics import COUNTED, ENDED, MOST, PRESENT, Metrics, Server
from loopwright.stores.memory import MemoryStore

CANARY = "canary-7f3a"
PAID = Worked(result=Result(CANARY, summary=CANARY, usage=Usage(cost_usd=0.5, tokens=100)))
QUIET = Worked(result=Result(CANARY, summary=CANARY))


@pytest.fixture
def store():
    return MemoryStore()


def scraped(text):
    """Each sample by its name and labels."""
    return {
        (sample.name.removeprefix("loopwright_"), *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def of(found, name, **labels):
    return found.get((name, *sorted(labels.items())))


def agent(*outcomes):
    left = list(outcomes)

    async def call(attempt, place):
        return left.pop(0) if len(left) > 1 else left[0]

    return Agent(name="scripted", call=call, in_folder=False)


def go(metrics, store, folder, loop, run="r"):
    ways = Ways(project=folder, store=store, observe=(metrics.observe(run, loop.name),), environ={})
    return asyncio.run(start(loop, run, ways)).state


def rising(output, seen):
    return Score(min(1.0, seen.iteration / 3), CANARY)


def test_a_run_is_counted_as_it_happened(store, tmp_path):
    metrics = Metrics()
    overflow = Failed(kind="context_overflow", message=CANARY)
    loop = Loop(CANARY, name="nightly", agent=agent(PAID, overflow, QUIET, PAID), gates=[rising])
    state = go(metrics, store, tmp_path, loop)
    assert (state.finished.reason, state.iteration) == ("quality_reached", 3)
    found = scraped(metrics.text(store))
    assert not [key for key in found if key[0].endswith("_created")]
    assert of(found, "runs_started_total", loop="nightly") == 1
    assert of(found, "runs_finished_total", loop="nightly", phase="complete", reason="quality_reached") == 1
    assert of(found, "iterations_total", loop="nightly", outcome="not_accepted") == 2
    assert of(found, "iterations_total", loop="nightly", outcome="accepted") == 1
    assert of(found, "attempts_total", loop="nightly", kind="succeeded") == 3
    assert of(found, "attempts_total", loop="nightly", kind="context_overflow") == 1
    assert of(found, "attempt_seconds_count", loop="nightly") == 4
    assert of(found, "gate_seconds_count", loop="nightly", gate="rising") == 3
    assert of(found, "gate_results_total", loop="nightly", gate="rising", status="fail") == 2
    assert of(found, "cost_usd_total", loop="nightly", spender="agent") == 1.0
    assert of(found, "cost_unknown_total", loop="nightly", spender="agent") == 2  # never as zero
    assert of(found, "tokens_total", loop="nightly", spender="agent") == 200
    assert of(found, "tokens_unknown_total", loop="nightly", spender="agent") == 2
    assert of(found, "runs", loop="nightly", phase="complete", reason="quality_reached") == 1
    assert of(found, "score", loop="nightly") == of(found, "best_score", loop="nightly") == 1.0
    succeeded = of(found, "last_success_timestamp_seconds", loop="nightly")
    assert succeeded == pytest.approx(state.updated_at.timestamp(), abs=0.001)


def test_no_run_and_nothing_that_was_said_is_in_it(store, tmp_path):
    metrics = Metrics()
    loop = Loop(CANARY, name="n", agent=agent(Failed(kind="unknown", message=CANARY), QUIET), gates=[rising])
    go(metrics, store, tmp_path, loop, run=f"run-{CANARY}")
    text = metrics.text(store)
    assert b"unknown" in text
    assert CANARY.encode() not in text


def test_the_baseline_is_no_iteration_and_a_gate_that_pays_is_counted(store, tmp_path):
    async def check(seen, place):
        place.spend(Usage(cost_usd=0.25, tokens=7))
        return seen.iteration >= 1

    from loopwright.core.judge import Rule

    loop = Loop(
        "g", name="n", agent=agent(PAID), gates=[Gate(rule=Rule(name="judge"), check=check)], baseline=True
    )
    metrics = Metrics()
    go(metrics, store, tmp_path, loop)
    found = scraped(metrics.text(store))
    assert of(found, "gate_seconds_count", loop="n", gate="judge") == 2
    assert sum(value for key, value in found.items() if key[0] == "iterations_total") == 1
    assert of(found, "cost_usd_total", loop="n", spender="gate") == 0.5
    assert of(found, "cost_usd_total", loop="n", spender="agent") == 0.5


def test_what_is_so_is_known_to_a_server_that_has_just_begun(store, tmp_path):
    metrics = Metrics()
    asks = {"when": "passed", "timeout": "12h"}
    asking = Loop("g", name="asks", agent=agent(QUIET), gates=[lambda output: True], approval=asks)
    state = go(metrics, store, tmp_path, asking, run="a")
    failing = Loop("g", name="fails", agent=agent(QUIET), gates=[lambda output: False], max_iterations=1)
    go(metrics, store, tmp_path, failing, run="b")
    now = datetime.now(UTC)
    store.hold("claude/KEY-1234abcd", now + timedelta(hours=1), CANARY)
    store.hold("claude/KEY-5678abcd", None, CANARY)
    store.add(ledger.SPENT, ledger.today(now), "x", 1.5)
    asked = next(people.requests(store, "a")).at
    for each in (metrics, Metrics()):
        found = scraped(each.text(store, now=asked + timedelta(minutes=90)))
        assert of(found, "runs", loop="asks", phase="human_review", reason="approval_requested") == 1
        assert of(found, "runs", loop="fails", phase="failed", reason="max_iterations") == 1
        assert of(found, "approvals_pending", loop="asks") == 1
        assert of(found, "approval_oldest_seconds") == pytest.approx(5400)
        assert of(found, "agent_holds", agent="claude") == 2
        assert of(found, "store_up") == 1
        assert of(found, "last_success_timestamp_seconds", loop="fails") is None
    assert of(scraped(metrics.text(store, now=now)), "spent_today_usd") == 1.5
    assert b"abcd" not in metrics.text(store)

    said = people.Said(answer="approve", by="ann", channel="slack")
    people.answer(store, "a", said, now=now, approval=state.approval.id)
    go(metrics, store, tmp_path, asking, run="a")
    found = scraped(metrics.text(store))
    assert of(found, "approvals_requested_total", loop="asks", about="accept") == 1
    assert of(found, "approvals_decided_total", answer="approve", channel="slack") == 1
    assert of(found, "approvals_pending", loop="asks") is None
    assert of(found, "approval_oldest_seconds") is None  # nobody waits: no age, not zero
    assert of(found, "runs_started_total", loop="asks") == 1  # going on is no start


def test_figures_of_the_server_itself_are_shown_where_they_are_known(store):
    metrics = Metrics()
    found = scraped(metrics.text(store))
    assert of(found, "queue_length") is None
    metrics.slot("nightly", "started")
    metrics.slot("nightly", "skipped")
    metrics.slot("nightly", "skipped")
    metrics.delivery("ci", "forged")
    metrics.notice("slack", "undelivered")
    found = scraped(metrics.text(store, Server(queue_length=3, workers_busy=0, workers=2)))
    assert (of(found, "queue_length"), of(found, "workers_busy"), of(found, "workers")) == (3, 0, 2)
    assert of(found, "notices_undelivered") is None
    assert of(found, "slots_total", loop="nightly", status="skipped") == 2
    assert of(found, "deliveries_total", hook="ci", status="forged") == 1
    assert of(found, "notices_total", channel="slack", status="undelivered") == 1


def test_waits_alerts_and_crashes_are_counted(store):
    metrics = Metrics()
    observe = metrics.observe("r", "n")
    now = datetime.now(UTC)
    observe(ev.WaitStarted(until=now, seconds=90, why=CANARY))
    observe(ev.AlertRaised(kind="STALL", iteration=3, action="stop", message=CANARY))
    observe(ev.AttemptInterrupted(cause="crash", seconds=5))
    found = scraped(metrics.text(store))
    assert of(found, "wait_seconds_total", loop="n") == 90
    assert of(found, "alerts_total", loop="n", kind="STALL") == 1
    assert of(found, "attempts_total", loop="n", kind="interrupted") == 1
    assert of(found, "cost_unknown_total", loop="n", spender="agent") == 1


def test_however_many_names_come_the_labels_stay_few(store):
    metrics = Metrics()
    for n in range(3 * MOST):
        observe = metrics.observe("r", f"loop-{n}")
        observe(ev.Claimed(epoch=1, owner="o", host="h", boot="b"))
        observe(ev.GateScored(gate=f"gate-{n}", score=Score(1.0, status="pass"), seconds=1))
        store.append_with(f"r{n}", 1, b"x", kept(f"loop-{n}"))
    found = scraped(metrics.text(store))
    assert sum(key[0] == "runs_started_total" for key in found) == MOST + 1
    assert of(found, "runs_started_total", loop="other") == 2 * MOST
    assert of(found, "runs", loop="other", phase="planning", reason="") == 2 * MOST


def kept(loop, phase="planning", active=True, head=None):
    from loopwright.codec import dumps
    from loopwright.ports import Kept

    said = {"loop": loop, "phase": phase, "reason": None, "score": 0.5, "updated_at": "2026-03-01T12:00:00Z"}
    return Kept(head=dumps(said) if head is None else head, active=active)


def test_old_runs_under_way_are_counted_and_old_ends_are_not(store):
    store.append_with("old", 1, b"x", kept("n"))
    for n in range(ENDED + 5):
        store.append_with(f"r{n}", 1, b"x", kept("n", "complete", active=False))
    found = scraped(Metrics().text(store))
    assert of(found, "runs", loop="n", phase="planning", reason="") == 1
    assert of(found, "runs", loop="n", phase="complete", reason="") == ENDED


def test_a_damaged_head_hides_no_other_and_a_damaged_store_is_said(store):
    store.append_with("bad", 1, b"x", kept("n", head=b'{"loop'))
    store.append_with("list", 1, b"x", kept("n", head=b"[]"))
    store.append_with("good", 1, b"x", kept("n"))
    assert of(scraped(Metrics().text(store)), "runs", loop="n", phase="planning", reason="") == 1

    class Damaged(MemoryStore):
        def holds(self):
            raise Corrupt("it is damaged")

    found = scraped(Metrics().text(Damaged()))
    assert of(found, "store_up") == 0
    assert of(found, "spent_today_usd") is None


def test_names_and_units_are_what_prometheus_expects(store):
    text = Metrics().text(store).decode()
    helped = dict(re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE))
    typed = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert helped.keys() == typed.keys()
    assert len(typed) == len(COUNTED) + len(PRESENT) + 2
    for name, kind in typed.items():
        assert re.fullmatch(r"loopwright_[a-z_]+", name)
        assert name.endswith("_total") == (kind == "counter")
        assert (kind == "histogram") == (
            name.removeprefix("loopwright_") in {"gate_seconds", "attempt_seconds"}
        )
        assert not re.search(r"_(ms|millis\w*|minutes|percent|count|sum|bucket|created)\b", name)
        assert helped[name].endswith(".")


def test_without_the_package_it_is_said_which(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(NotStartable, match=r"pip install 'loopwright\[serve\]'"):
        Metrics()
