"""What people see of money and of waits: tokens where a plan pays, each attempt's parts, today's sum, logins on hold.

Rule: runs are real, in this process; the verbs are called as a person types them.
"""

import io
import json
import signal
import sys
from contextlib import closing, redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from stage import Stage, until

sys.path.append(str(Path(__file__).parents[1] / "llm"))
from fakellm import Fake

from loopwright import Loop, Result, Usage, run
from loopwright.cli.app import run_app
from loopwright.cli.view import View
from loopwright.cli.words import goes_on
from loopwright.core import events as ev
from loopwright.core.values import Score
from loopwright.report.figures import short, tokens
from loopwright.stores.sqlite import SqliteStore

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


def work(usage, session=None, gates=None, **options):
    """A run of two iterations in this folder whose attempts use this."""

    def agent(attempt):
        return Result(f"work {attempt.iteration}", usage=usage, session=session)

    gates = gates or [lambda seen: seen.iteration >= 2]
    return run(Loop("g", agent=agent, gates=gates, store="sqlite:///runs.db", **options), "r")


STORE = ("--store", "sqlite:///runs.db")


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


def test_what_a_gate_spent_itself_stands_beside_it(typed, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "k-1")
    said = {"text": '{"score": 0.9, "reason": "fine"}', "usage": {"input": 1_000_000, "output": 0}}  # $0.25
    with Fake({"turns": [said]}) as fake:
        url = f"{fake.url}/v1"
        judge = {"use": "judge", "rubric": "?", "model": "openai:gpt-5-mini", "url": url, "key": "JUDGE_KEY"}
        gates = [{**judge, "name": "review", "alone": True}, "true"]
        run(
            Loop("g", agent=lambda _: Result("x", usage=Usage(cost_usd=0.5)), gates=gates, store=STORE[1]),
            "r",
        )
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
