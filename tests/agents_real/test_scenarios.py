"""Each adapter with its real CLI, through what happens to people: wrong first tries, limits, faults, crashes, money.

Rule: a scenario is written once, in wishes (dialects.py); a row says what its CLI can do. Every run is a `loopwright
run` process of its own, and nothing of the CLI is alive when it has ended. Those in which CLIs wait the longest come
first: the others pass meanwhile.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
import tomllib
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from bench import AGENTS, LONG_S, RIGHT, WRONG, Bench, adapter, missing
from fakellm import Fake
from rows import ROWS
from stage import until

from loopwright.core import events as ev

pytestmark = pytest.mark.timeout(1.5 * LONG_S)
HALF = "def add(a, b):\n    return a * b\n"


def rows(*needs):
    """The rows that can do all of this."""
    return pytest.mark.parametrize(
        "row", [row for row in ROWS if row.can >= set(needs)], ids=lambda row: row.name
    )


@pytest.fixture
def bench(row, tmp_path):
    why = missing(row) or adapter(row)
    if why:
        pytest.skip(why)
    with Fake({}, dump=tmp_path / "bodies") as fake:
        bench = Bench.made(row, tmp_path, fake)
        yield bench
        left = bench.ended(2)
        for line in left:
            os.kill(int(line.split()[0]), signal.SIGKILL)
    assert left == []


def kinds(bench):
    """How the attempts that failed did."""
    return [fact.kind for fact in bench.stage.of(ev.AttemptFailed)]


def told(bench, ran):
    """What to show when it went otherwise."""
    log = bench.stage("show", "r", "--log").out[-3000:] if bench.stage.facts() else ""
    requests = [(e["t"], e.get("answer"), e.get("kind"), e.get("last", "")[-80:]) for e in bench.fake.entries]
    return f"exit {ran.code}\n{ran.err}\n{ran.out}\n{kinds(bench)}\n{requests}\n{bench.fake.failures}\n{log}"


@rows()
def test_a_refused_connection_is_a_passing_fault_and_bounded(bench):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        bench.stage.env = bench.environment(f"http://127.0.0.1:{unused.getsockname()[1]}")
        bench.loop()
        ran, seconds = bench.run()
    assert ran.code == 3, told(bench, ran)
    assert ran.doc["reason"] == "consecutive_errors"
    assert kinds(bench) == ["transient"], told(bench, ran)
    assert seconds < 120


@rows()
def test_a_usage_limit_is_waited_for_until_its_reset(bench):
    reset = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(hours=2)
    bench.script({"error": bench.row.limit(reset)}, when_exhausted="repeat_last")
    bench.loop(limits={"idle_timeout": 8, "backoff.first": 300, "backoff.max": 300})  # some wait in silence
    with bench.stage.started("run", "loop.toml", "--as", "r", "--json") as process:
        until(lambda: bench.stage.of(ev.WaitStarted) or process.poll() is not None, LONG_S / 2)
        assert process.poll() is None, process.communicate()
        (head,) = bench.stage("list", "--json").doc
        assert head["phase"] == "waiting"
        assert bench.stage("stop", "r", "--now").code == 0
        assert process.wait() == 5
    assert kinds(bench) == ["rate_limited"]
    (wait,) = bench.stage.of(ev.WaitStarted)
    if "resets" in bench.row.can:
        assert timedelta(0) <= wait.until - reset <= timedelta(minutes=10), wait
    if "waits" not in bench.row.can:
        assert len(bench.asked()) <= 2


@rows()
def test_it_repairs_in_two_iterations(bench):
    first, second = bench.mends(WRONG, HALF), bench.mends(HALF, RIGHT)
    second[0]["expect"] = {"body_contains": "assert 6 == 5"}
    bench.script(*first, *second, strict=True)
    bench.loop(gates="pytest")
    ran, _ = bench.run()
    assert ran.code == 0, told(bench, ran)
    assert not bench.fake.failures
    assert (ran.doc["iterations"], ran.doc["reason"]) == (2, "quality_reached")
    assert bench.stage.git("status", "--porcelain").split("\n")[0] == " M calc.py"
    tokens = 120 * len((*first, *second))
    assert ran.doc["tokens"] == (tokens if bench.row.tokens else None), told(bench, ran)
    assert ran.doc["cost_usd"] == pytest.approx(bench.row.usd(tokens // 120), rel=0.02)
    assert all(fact.session for fact in bench.stage.of(ev.AttemptSucceeded)) or "session" not in bench.row.can


@rows()
def test_a_goal_of_a_megabyte_reaches_the_model_whole(bench):
    turns = bench.mends()
    turns[0]["expect"] = {"body_contains": "this is its end"}
    bench.script(*turns, when_exhausted="repeat_last")  # what it is too long for asks for a summary
    bench.loop(goal=f"mend calc.py\n{'of many words ' * 74_000}\nthis is its end")
    ran, _ = bench.run()
    assert ran.code == 0, told(bench, ran)[:4000]
    assert not bench.fake.failures
    assert bench.asked()[0]["bytes"] > 1_000_000


@rows()
def test_a_wrong_key_ends_the_run_at_once(bench):
    error = {"status": 401, "message": "invalid x-api-key"}
    bench.script({"error": error}, when_exhausted="repeat_last")
    bench.loop()
    ran, seconds = bench.run()
    assert ran.code == 7, told(bench, ran)
    assert (ran.doc["reason"], ran.doc["iterations"]) == ("permanent_error", 1)
    assert kinds(bench) == ["permanent"]
    assert len(bench.asked()) <= 6
    assert seconds < 60


@rows()
def test_too_many_requests_are_waited_for(bench):
    error = {"status": 429, "message": "This would exceed the rate limit", "headers": {"retry-after": "2"}}
    bench.script({"error": error, "times": bench.row.tries}, *bench.mends())
    bench.loop()
    ran, _ = bench.run()
    assert ran.code == 0, told(bench, ran)
    times = [entry["t"] for entry in bench.asked()[: bench.row.tries + 1]]
    assert all(later - earlier >= 1.9 for earlier, later in pairwise(times)), told(bench, ran)
    assert ran.doc["iterations"] == 1
    if "waits" not in bench.row.can:  # its CLI leaves the waiting to loopwright
        assert kinds(bench) == ["rate_limited"]


@rows()
def test_faults_of_the_server_pass(bench):
    error = {"status": 500, "message": "Internal server error"}
    bench.script({"error": error, "times": bench.row.tries}, *bench.mends())
    bench.loop(limits={"attempts": 2})
    ran, _ = bench.run()
    assert ran.code == 0, told(bench, ran)
    assert kinds(bench) == ([] if "waits" in bench.row.can else ["transient"])
    assert ran.doc["iterations"] == 1


@rows()
def test_a_server_that_hangs_is_left(bench):
    bench.script({"hang": True})
    bench.loop(limits={"attempt_timeout": 20, "idle_timeout": 6})
    ran, seconds = bench.run()
    assert ran.code == 3, told(bench, ran)
    assert kinds(bench) == ["no_output"], told(bench, ran)
    assert seconds < 60


@rows("deny")
def test_what_is_denied_and_repeats_asks_a_person_and_says_how_to_allow_it(bench):
    denied = bench.row.denied
    once = bench.shells(denied.command, denied.command)
    bench.script(*once, *once, *once, *once, when_exhausted="repeat_last")
    bench.loop(trust="edit")
    ran, _ = bench.run("--no-wait", "--set", "limits.max_consecutive_errors=3")
    assert ran.code == 6, told(bench, ran)
    assert not (bench.stage.folder / denied.makes).exists()
    assert kinds(bench)[-1] == "blocked"
    (line,) = set(re.findall(r"allow = \[.*?\](?= lets)", ran.err)) or {""}
    assert tomllib.loads(line)["allow"] == [denied.word], ran.err


@rows("deny")
def test_what_is_allowed_is_done(bench):
    denied = bench.row.denied
    bench.script(*bench.shells(denied.command), when_exhausted="repeat_last")
    bench.loop(trust="edit", allow=[denied.word])
    ran, _ = bench.run("--max-iterations", "1", "--no-wait")
    assert (bench.stage.folder / denied.makes).exists(), told(bench, ran)


@rows("shell")
def test_it_may_run_what_the_gates_run(bench):
    gate = "python -S -c 'import check'"
    bench.script(*bench.shells(gate), when_exhausted="repeat_last")
    bench.loop(gates=gate, trust="edit")
    ran, _ = bench.run("--max-iterations", "1", "--no-wait")
    answer = bench.asked()[1]["last"]  # the first request holds the feedback, which says the same
    assert "it is -1" in answer, told(bench, ran)


@rows("looks")
def test_it_may_look_with_git_and_not_write_with_it(bench):
    bench.script(
        *bench.shells("git log --oneline", "git diff --output=../escaped HEAD"), when_exhausted="repeat_last"
    )
    bench.loop(trust="edit")
    ran, _ = bench.run("--max-iterations", "1", "--no-wait")
    assert "it is wrong" in bench.asked()[1]["last"], told(bench, ran)
    assert not (bench.stage.folder.parent / "escaped").exists()


@rows()
def test_kill_9_leaves_nothing_and_resume_ends_the_run(bench):
    sleeps = 'python3 -c \'import time; open("begun", "w"); time.sleep(600)\''
    runs = "shell" in bench.row.can  # what runs no commands is killed while its model thinks
    bench.script(*(bench.shells(sleeps) if runs else [{"hang": True}]))
    bench.loop(trust="full")
    begun = bench.stage.folder / "begun"
    with bench.stage.started("run", "loop.toml", "--as", "r", "--json") as process:
        until(lambda: (begun.exists() if runs else bench.asked()) or process.poll() is not None, LONG_S / 2)
        assert process.poll() is None, process.communicate()
        assert any("time.sleep(600)" in line or not runs for line in bench.alive())
        process.kill()
        killed = time.monotonic()
        left = bench.ended(2)
        assert left == [], left
        assert time.monotonic() - killed < 2
    bench.script(*bench.mends())
    ran = bench.stage("resume", "r", "--json")
    assert ran.code == 0, told(bench, ran)
    assert len(bench.stage.of(ev.AttemptInterrupted)) == 1


@rows()
def test_a_session_goes_on_and_nothing_is_counted_twice(bench):
    first, second = bench.mends(WRONG, HALF), bench.mends(HALF, RIGHT)
    bench.script(*first, *second, strict=True)
    bench.loop(session="continue")
    ran, _ = bench.run()
    assert ran.code == 0, told(bench, ran)
    last, next_ = bench.asked()[len(first) - 1 : len(first) + 1]
    assert next_["messages"] > last["messages"]  # its model is told all that was said before
    one, two = bench.stage.of(ev.AttemptSucceeded)
    assert one.session == two.session or "session" not in bench.row.can
    tokens = [120 * len(first), 120 * len(second)] if bench.row.tokens else [None, None]
    assert [one.usage.tokens, two.usage.tokens] == tokens, told(bench, ran)
    costs = [bench.row.usd(len(first)), bench.row.usd(len(second))]
    assert [one.usage.cost_usd, two.usage.cost_usd] == [pytest.approx(cost, rel=0.02) for cost in costs]
    assert ran.doc["cost_usd"] == pytest.approx(sum(costs), rel=0.02)


@rows("cut")
def test_an_attempt_that_takes_more_tokens_than_are_left_is_ended_at_work(bench):
    turns = bench.mends(WRONG, HALF)
    turns[0]["usage"] = {"input": 5000, "output": 20}
    bench.script(turns[0], {"hang": True})
    bench.loop(limits={"max_tokens": 4000})
    ran, seconds = bench.run()
    assert ran.code == 3, told(bench, ran)
    assert ran.doc["reason"] == "max_tokens", told(bench, ran)
    assert ran.doc["iterations"] == 1
    assert 5000 <= ran.doc["tokens"] <= 5020, told(bench, ran)
    assert seconds < 60


@rows()
def test_a_budget_ends_the_run(bench):
    turns = bench.mends(WRONG, HALF)
    dear = {"usage": {"input": 100_000, "output": 20}}
    if "cut" in bench.row.can:  # it tells what it used while it works: it is not left to go on
        turns = [*turns[:-1], {**turns[0], **dear}, {"hang": True}]
    else:
        turns[-1] = {**turns[-1], **dear}
    bench.script(*turns, when_exhausted="repeat_last")
    bench.loop(limits={"budget": 0.05})
    ran, seconds = bench.run()
    assert ran.code == 3, told(bench, ran)
    assert ran.doc["reason"] == "budget", told(bench, ran)
    assert (ran.doc["iterations"], kinds(bench)) == (1, []), told(bench, ran)  # what it did was judged
    assert (bench.stage.folder / "calc.py").read_text() == HALF
    assert ran.doc["cost_usd"] == pytest.approx(bench.row.usd(1, 100_000), rel=0.1), told(bench, ran)
    assert seconds < 60


def test_doctor_finds_them_all(tmp_path):
    with Fake({}) as fake:
        bench = Bench.made(ROWS[0], tmp_path, fake)
        listed = bench.stage("doctor").out
    found = set(re.findall(rf"(\w+) \d+(?:\.\d+)+ \({re.escape(str(AGENTS))}", listed))
    assert found == {row.program for row in ROWS if not missing(row)}, listed
