"""What people see of money and of waits: tokens where a plan pays, each attempt's parts, today's sum, logins on hold.

Rule: runs are real, in this process; the verbs are called as a person types them.
"""

import asyncio
import io
import json
from contextlib import closing, redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loopwright import Loop, Result, Usage, run
from loopwright.cli.app import run_app
from loopwright.cli.view import View
from loopwright.core.judge import Rule
from loopwright.core.values import Failed, Worked
from loopwright.figures import short, tokens
from loopwright.ports import Agent, Gate
from loopwright.stores.sqlite import SqliteStore

STORE = ("--store", "sqlite:///runs.db")
PARTS = {
    "input_tokens": 12_000,
    "cache_write_tokens": 3_400,
    "cache_read_tokens": 88_000,
    "output_tokens": 900,
}


@pytest.fixture
def typed(tmp_path, monkeypatch):
    """What a verb prints on both streams, typed in the folder of the runs."""
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_STEP_SUMMARY", "LOOPWRIGHT_RUN", "LOOPWRIGHT_STORE"):
        monkeypatch.delenv(name, raising=False)

    def call(*words):
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in "12")
        with redirect_stdout(out), redirect_stderr(err):
            code = run_app(list(words))
        told, said = (stream.buffer.getvalue().decode() for stream in (out, err))
        assert code == 0, said
        return told

    return call


def work(usage, session=None):
    """A run of two iterations in this folder whose attempts use this."""

    def agent(attempt):
        return Result(f"work {attempt.iteration}", usage=usage, session=session)

    made = Loop("g", agent=agent, gates=[lambda output: output == "work 2"], store=STORE[1])
    final = run(made, "r")
    assert (final.passed, final.iterations) == (True, 2)
    return final


def test_where_a_plan_pays_people_see_tokens_and_programs_both(typed, tmp_path):
    final = work(Usage(cost_usd=0.31, plan=True, model="opus-9", **PARTS), session="s-77")
    assert final.cost_usd == 0.62
    shown = {
        "list": typed("list", "--all", *STORE),
        "show": typed("show", "r", *STORE),
        "md": typed("report", "r", *STORE),
        "html": typed("report", "r", "--format", "html", *STORE),
    }
    for what, text in shown.items():
        assert "$0.31" not in text and "$0.62" not in text, what
        assert "208.6k tokens" in text, what
        assert "104.3k tokens" in text or what == "list", what
    assert "today" not in shown["list"]
    why = typed("why", "r", *STORE)
    assert "208.6k, a plan pays" in why and "$" not in why
    doc = json.loads(typed("show", "r", "--json", *STORE))
    assert (doc["cost_usd"], doc["tokens"], doc["plan"]) == (0.62, 208_600, True)
    assert json.loads(typed("list", "--all", "--json", *STORE))[0]["plan"] is True


@pytest.mark.parametrize("approval", ["never", "passed"])
def test_the_live_view_and_a_question_show_tokens_too(typed, capsys, approval):
    used = [Usage(cost_usd=0.25, tokens=1500, plan=True), Usage(cost_usd=0.5, tokens=900, plan=True)]
    ends = [Failed(kind="transient", message="503", usage=used[0]), Worked(result=Result("x", usage=used[1]))]

    async def call(attempt, place):
        return ends.pop(0)

    agent = Agent(name="coder", call=call, in_folder=False)
    quick = {"first": 0.001, "max": 0.001}
    loop = Loop("g", agent=agent, gates=["true"], store=STORE[1], approval=approval, backoff=quick)
    run(loop, "r", observe=View().see)
    shown = typed("show", "r", *STORE)
    assert "· 2.4k tokens ·" in shown and "$" not in shown
    if approval == "passed":
        assert "  cost:    2.4k tokens · " in shown
    else:
        assert "#1    true ✓   score 1.00   2.4k tokens   " in capsys.readouterr().err


def test_each_attempt_tells_its_parts_its_model_and_its_session(typed):
    work(Usage(cost_usd=0.25, model="gpt-x|y", turns=3, **PARTS), session="s-77")
    line = "attempt 1: 104.3k tokens (12.0k input, 3.4k cache write, 88.0k cache read, 900 output) · $0.25 · "
    assert typed("show", "r", *STORE).count(f"{line}gpt-x|y · session s-77") == 2
    one = json.loads(typed("show", "r", "--iteration", "2", "--json", *STORE))
    assert one["tokens"] == 104_300
    told = {"attempt": 1, "session": "s-77", "cost_usd": 0.25, "plan": False, "tokens": 104_300, **PARTS}
    assert one["spent"] == [{**told, "turns": 3, "model": "gpt-x|y"}]
    row = "12,000 | 3,400 | 88,000 | 900 | 104,300 | $0.25 | `s-77` |"
    assert f"| 2 | `attempt 1` | `gpt-x\\|y` | {row}" in typed("report", "r", *STORE)
    html = typed("report", "r", "--format", "html", *STORE)
    assert '<td class="num">88,000</td>' in html and "<td>s-77</td>" in html
    assert "today (UTC): $0.50 spent by the runs here\n" in typed("list", "--all", *STORE)


def test_what_told_nothing_has_no_line(typed):
    work(Usage())
    assert "attempt" not in typed("show", "r", *STORE)
    assert "### Cost" not in typed("report", "r", *STORE)
    assert "today" not in typed("list", "--all", *STORE)
    assert json.loads(typed("show", "r", "--iteration", "1", "--json", *STORE))["spent"] == []
    assert json.loads(typed("show", "r", "--json", *STORE))["plan"] is False


def test_what_a_gate_spent_itself_stands_beside_it(typed):
    async def review(seen, place):
        place.spend(Usage(cost_usd=0.125, tokens=400_000, model="m-1"))
        place.spend(Usage(cost_usd=0.125, tokens=600_000, model="m-1"))
        return 0.9

    gates = [Gate(rule=Rule(name="review"), check=review), "true"]
    run(Loop("g", agent=lambda _: Result("x", usage=Usage(cost_usd=0.5)), gates=gates, store=STORE[1]), "r")
    lines = typed("show", "r", "--gates", *STORE).splitlines()
    assert [line[5:].split()[0] for line in lines if "($0.25, 1.0M tokens)" in line] == ["review"]
    by_review, by_true = json.loads(typed("show", "r", "--gates", "--json", *STORE))[-2:]
    assert (by_review["spent"]["cost_usd"], by_review["spent"]["tokens"]) == (0.25, 1_000_000)
    assert by_true["spent"] is None
    assert "$0.75, no budget, $0.25 of it by gates" in typed("why", "r", *STORE)
    assert "`gate review`" in typed("report", "r", *STORE)
    assert "today (UTC): $0.75 spent" in typed("list", "--all", *STORE)


def test_short_figures():
    assert [short(n) for n in (0, 999, 1000, 12_449, 999_949, 999_950, 3_000_000_000)] == [
        "0",
        "999",
        "1.0k",
        "12.4k",
        "999.9k",
        "1.0M",
        "3.0G",
    ]
    assert (tokens(None), tokens(1)) == ("? tokens", "1 token")


# Logins on hold


LOST = Failed(kind="permanent", message="authentication: not logged in", of_login=True)
LIMITED = Failed(kind="rate_limited", message="usage limit", retry_after_s=3600.0, of_login=True)
DONE = Worked(result=Result("done"))


@pytest.fixture
def begun(tmp_path, monkeypatch, typed):
    """Runs of one login in one store: what each attempt comes to, and which attempts were made."""
    made = []

    def start(name, *outcomes, **limits):
        left = list(outcomes)

        async def call(attempt, place):
            made.append(f"{name}/{attempt.iteration}")
            outcome = left.pop(0)
            return await asyncio.to_thread(outcome) if callable(outcome) else outcome

        agent = Agent(name="coder", call=call, in_folder=False, login=lambda _: "coder/1a2b")
        gates = [lambda output: output == "done"]
        loop = Loop("g", agent=agent, gates=gates, store=STORE[1], **limits)
        return run(loop, name)

    start.made = made
    return start


def test_a_lost_login_stops_those_under_way_and_whoever_starts_anew_lifts_it(begun, typed):
    def lose_it():
        assert begun("other", LOST).reason == "permanent_error"
        return Failed(kind="unknown", message="other trouble")

    first = begun("first", lose_it, DONE)
    assert first.reason == "permanent_error"
    assert "authentication: not logged in (so another run of this login found)" in first.explanation
    assert begun.made == ["first/1", "other/1"]  # its second attempt was not made
    said = typed("list", *STORE)
    assert said.startswith("login coder/1a2b is on hold since ") and said.count("\n") == 1
    assert "till a run that is started anew gets through: authentication: not logged in" in said
    assert begun("anew", DONE).passed
    assert begun.made[2:] == ["anew/1"]
    assert typed("list", *STORE) == ""


def test_a_limit_of_a_login_is_named_until_it_passes(begun, typed):
    assert begun("a", LIMITED, max_wait=60).reason == "max_wait"
    assert "login coder/1a2b is on hold until " in typed("list", *STORE)
    assert "then it passes by itself: usage limit" in typed("list", *STORE)
    with closing(SqliteStore(Path("runs.db"))) as store:
        store.hold("coder/1a2b", datetime.now(UTC) + timedelta(milliseconds=1), "usage limit")
    assert begun("c", DONE, max_wait=60).passed
    assert typed("list", *STORE) == ""
