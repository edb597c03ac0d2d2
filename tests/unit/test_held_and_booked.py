"""What runs of one store tell each other: of a login that must wait or is lost, and of the money of a day."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from loopwright import Loop, Result, Usage, ledger, run
from loopwright.agents import claude as adapter
from loopwright.agents._cli import login_of
from loopwright.agents._said import event_of
from loopwright.agents.aider import aider
from loopwright.agents.codex import codex
from loopwright.core.limits import Limits
from loopwright.core.policy import Policy
from loopwright.core.state import LoopState
from loopwright.hosts.local import start
from loopwright.hosts.ways import Ways
from loopwright.logins import held
from loopwright.ports import Agent, Place
from loopwright.stores.sqlite import SqliteStore

USAGE = {"input_tokens": 10, "output_tokens": 1}
INIT = {"type": "system", "subtype": "init", "session_id": "s", "model": "m", "apiKeySource": "x"}
DONE = {
    "type": "result",
    "session_id": "s",
    "result": "done",
    "num_turns": 1,
    "total_cost_usd": 0.1,
    "usage": USAGE,
}
LIMIT = {"api_error_status": 429, "total_cost_usd": 0, "usage": {}, "is_error": True}
LOST = {**DONE, **LIMIT, "api_error_status": 401, "result": "invalid x-api-key"}


@pytest.fixture
def claude(tmp_path, monkeypatch):
    """Plays Claude Code: each call prints the next of these lists of events, the last for ever; counts them."""
    (tmp_path / "bin").mkdir()
    player = tmp_path / "bin" / "claude"
    player.write_text(
        f"#!{sys.executable} -IS\nimport json, sys\n"
        "if '--version' in sys.argv: print('2.1.332'); sys.exit()\n"
        f"plan = json.load(open({str(tmp_path / 'plan')!r}))\n"
        f"log = open({str(tmp_path / 'calls')!r}, 'a+'); log.seek(0); n = len(log.read()); log.write('x')\n"
        "open('work.txt', 'a').write('x')\n"
        "for event in plan[min(n, len(plan) - 1)]: print(json.dumps(event))\n"
    )
    player.chmod(0o755)
    monkeypatch.setenv("PATH", f"{player.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-this-login")
    monkeypatch.chdir(tmp_path)

    def plays(*calls):
        (tmp_path / "plan").write_text(json.dumps([[INIT, *call] for call in calls]))
        (tmp_path / "calls").write_text("")
        return lambda: len((tmp_path / "calls").read_text())

    return plays


@pytest.fixture
def store(tmp_path):
    return SqliteStore(tmp_path / "s.db")


def going(store, run_id="r", agent="claude", **options):
    options = {"max_iterations": 2, "max_wait": "30m", "baseline": False, **options}
    loop = Loop("g", agent=agent, gates=["false"], store=f"sqlite:///{store.path}", **options)
    return run(loop, run_id)


def login(store, tmp_path):
    """The login that this Claude uses, as its runs name it."""
    env = {"ANTHROPIC_API_KEY": "key-of-this-login"}
    place = Place(root=tmp_path, project=tmp_path, artifacts=tmp_path, env=env, timeout_s=1)
    return login_of("claude", place, *adapter.KEYS)


# ── logins ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_attempt_that_a_hold_forbids_costs_nothing(claude, store, tmp_path):
    calls = claude([DONE])
    store.hold(login(store, tmp_path), datetime.now(UTC) + timedelta(seconds=0.5), "limited")
    final = going(store, budget=1.0, max_iterations=1, backoff={"first": 0.01})
    assert (final.reason, calls(), final.cost_usd) == ("max_iterations", 1, 0.1)


@pytest.mark.parametrize(("left", "most"), [(5.0, 10.0), (600.0, 660.0), (1790.0, 1800.0)])
def test_those_that_wait_come_back_one_after_another_and_within_what_they_may_wait(
    store, tmp_path, left, most
):
    now = datetime.now(UTC)
    store.hold("me", now + timedelta(seconds=left), "limited")
    agent = Agent(name="a", call=None, login=lambda _: "me")
    run = SimpleNamespace(
        journal=SimpleNamespace(store=store, state=LoopState()),
        policy=Policy(limits=Limits(max_wait=1800)),
        taken=now,
        dice=lambda: 1.0,
    )
    assert held(run, agent, None).retry_after_s == pytest.approx(most, abs=1.0)


def test_who_cannot_wait_for_a_reset_tries_and_a_hold_that_is_not_so_is_lifted(claude, store, tmp_path):
    calls = claude([DONE])
    store.hold(login(store, tmp_path), datetime.now(UTC) + timedelta(days=400), "a year that nobody meant")
    assert going(store, max_iterations=1).reason == "max_iterations"
    assert (calls(), store.holds()) == (1, [])


def test_a_lost_login_of_a_clock_that_was_ahead_holds_nobody_for_ever(claude, store, tmp_path, monkeypatch):
    calls = claude([DONE])
    ahead = datetime.now(UTC) + timedelta(days=400)
    clock = type("Ahead", (datetime,), {"now": classmethod(lambda _cls, _tz: ahead)})
    with monkeypatch.context() as patched:
        patched.setattr("loopwright.stores.ledgers.datetime", clock)
        store.hold(login(store, tmp_path), None, "lost")
    assert going(store, max_iterations=1).reason == "max_iterations"
    assert calls() == 1


def test_an_attempt_that_began_before_its_login_was_lost_says_nothing_of_it(
    store, tmp_path, claude, monkeypatch
):
    calls = claude([DONE])
    name = login(store, tmp_path)
    real = adapter.Heard.said

    def lost_meanwhile(self):
        store.hold(name, None, "lost")
        return real(self)

    monkeypatch.setattr(adapter.Heard, "said", lost_meanwhile)
    final = going(store, max_iterations=3)
    assert (final.reason, calls(), final.cost_usd) == ("permanent_error", 1, 0.1)
    assert [hold.login for hold in store.holds()] == [name]


def test_a_wait_of_weeks_is_read_whole():
    heard = adapter.Heard()
    heard.hear(
        {"type": "system", "subtype": "api_retry", "error_status": 429, "retry_delay_ms": 1_234_567_000}
    )
    heard.hear({**DONE, **LIMIT, "result": "API Error: 429"})
    assert heard.said().error.endswith("retry-after: 1234567")


def test_each_result_of_one_attempt_counts_once():
    heard = adapter.Heard()
    heard.hear(INIT)
    for uuid, cost in (("a", 0.1), ("b", 0.05), ("b", 0.05)):
        since = {"m": {"inputTokens": 10, "outputTokens": 1, "costUSD": cost}}
        line = json.dumps(
            {**DONE, "uuid": uuid, "total_cost_usd": 0.15, "model_usage_since_last_result": since}
        )
        heard.hear(event_of(line.encode()))
    assert heard.said().usage.cost_usd == pytest.approx(0.15)
    assert heard.said().usage.tokens == 22


def test_a_message_counts_once_and_a_flood_of_them_holds_nobody_up():
    heard = adapter.Heard()
    message = {"type": "assistant", "message": {"id": "m", "usage": USAGE}}
    for at in range(20_000):
        heard.hear({**message, "message": {**message["message"], "id": f"m{at // 2}"}})
        used = heard.usage
    assert (used.turns, used.input_tokens, used.output_tokens) == (10_000, 100_000, 10_000)
    assert len(heard.messages) <= 1000


# ── the money of a day ──────────────────────────────────────────────────────────────────────────────────────────────


def costs(usd):
    return lambda attempt: Result(f"{attempt.iteration}", usage=Usage(cost_usd=usd, tokens=1))


def day_of(store):
    return ledger.spent(store, ledger.today(datetime.now(UTC)))


def test_a_budget_beyond_that_of_the_day_lets_a_run_begin(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert going(store, agent=costs(0.125), budget=10.0, budget_per_day=1.0).cost_usd == 0.25
    assert day_of(store) == (0.25, 0.0)


def test_who_ran_out_of_the_money_of_a_day_is_told_to_come_back_tomorrow(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    final = going(store, agent=costs(0.5), budget_per_day=0.75)
    assert (final.reason, final.next) == ("budget", "loopwright resume r tomorrow (UTC)")


def test_what_others_have_set_aside_is_waited_for_and_costs_nothing(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("loopwright.spending.OTHERS_S", 0.01)
    seen = []

    async def slow(attempt):
        seen.append(attempt.run)
        await asyncio.sleep(0.2)
        return costs(0.25)(attempt)

    async def both():
        loop = Loop(
            "g",
            agent=slow,
            gates=[lambda _: False],
            baseline=False,
            max_iterations=1,
            budget_per_day=1.0,
            backoff={"first": 0.01, "max": 0.01},
        )
        return await asyncio.gather(
            *(start(loop, name, Ways(project=tmp_path, store=store)) for name in "ab")
        )

    states = [held.state for held in asyncio.run(both())]
    assert [(s.finished.reason, s.totals.cost_usd) for s in states] == [("max_iterations", 0.25)] * 2
    assert states[0].totals.attempts + states[1].totals.attempts > 2
    assert len(seen) == 2
    assert day_of(store) == (0.5, 0.0)


KILLED = """
import os, signal
from loopwright import Loop, Result, Usage, ledger, run
real, n = ledger.{name}, []
def killed(*args, **more):
    {before}
    os.kill(os.getpid(), signal.SIGKILL)
ledger.{name} = killed
run(Loop("g", agent="booked_agent:work", gates=["false"], store="sqlite:///s.db", baseline=False,
         max_iterations=2, budget_per_day=1.0, reserve=0.25), "r")
"""
AGENT = """
from loopwright import Result, Usage
def work(attempt):
    return Result(f"{attempt.iteration}", usage=Usage(cost_usd=0.125, tokens=1))
"""


@pytest.mark.parametrize(
    ("name", "before", "spent"),
    [
        ("reserve", "real(*args, **more)", 0.25),  # nothing had begun: two attempts
        ("settle", "pass", 0.5),  # what it cost is not known: what was set aside, and two attempts more
        ("settle", "real(*args, **more)", 0.375),  # what it cost is known
    ],
)
def test_no_money_of_a_day_is_lost_or_held_for_ever_by_a_kill(
    name, before, spent, tmp_path, monkeypatch, store
):
    (tmp_path / "booked_agent.py").write_text(AGENT)
    script = KILLED.format(name=name, before=before)
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    killed = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "booked_agent", raising=False)
    going(store, agent="booked_agent:work", budget_per_day=1.0, reserve=0.25)
    assert day_of(store) == (spent, 0.0)


def test_a_run_that_cannot_know_its_tokens_is_not_told_to_estimate_dollars(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    final = going(store, agent=lambda _: "x", max_tokens=100)
    assert final.reason == "cost_unknown"
    assert final.next == "a new run without limits.max_tokens, or with an agent that tells its tokens"
    again = going(store, "q", agent=lambda _: "x", max_tokens=100, budget=1.0)
    assert "limits.reserve" in again.next


@pytest.mark.parametrize("printed", ["9" * 5000 + ".1", "v3", "", "20261130.1 build 7"])
def test_a_version_that_is_written_in_another_way_is_no_reason_not_to_start(claude, store, tmp_path, printed):
    calls = claude([DONE])
    player = tmp_path / "bin" / "claude"
    player.write_text(player.read_text().replace("'2.1.332'", repr(printed)))
    assert going(store, max_iterations=1).reason == "max_iterations"
    assert calls() == 1


def test_two_clis_behind_one_launcher_have_two_logins(tmp_path):
    place = Place(root=tmp_path, project=tmp_path, artifacts=tmp_path, env={"HOME": "/h"}, timeout_s=1)
    names = {made(run=f"npx {made.__name__}").login(place) for made in (adapter.claude, codex, aider)}
    assert len(names) == 3
    at_home = adapter.claude(run="/opt/bin/claude").login(place)
    assert at_home == adapter.claude().login(place) != adapter.claude(run="claude-at-work").login(place)
