"""What a server writes while it works: one line each, readable by machines, with nothing in it that acts."""

import asyncio
import io
import json
import logging
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from loopwright import Loop, Score
from loopwright.core import events as ev
from loopwright.core.values import Result
from loopwright.hosts.local import start
from loopwright.hosts.ways import Ways
from loopwright.redact import redactor
from loopwright.serving.logs import following, log_to, logger, said_of
from loopwright.stores.memory import MemoryStore

CANARY = "canary-7f3a"


@pytest.fixture
def heard():
    """A stream, and what begins to write to it."""
    stream, ends = io.StringIO(), []

    def listen(form="json", **environ):
        ends.append(log_to(stream, form, redactor(environ)))
        return stream

    yield listen
    for end in ends:
        end()
    left = [type(each) for each in logging.getLogger("loopwright").handlers]
    assert [each for each in left if not each.__module__.startswith("_pytest")] == [logging.NullHandler]
    assert logging.getLogger("loopwright").propagate


def go(folder, *, content=False):
    def agent(attempt):
        if attempt.iteration == 2:
            raise RuntimeError(CANARY)
        return Result(CANARY, summary=CANARY)

    def gate(output, seen):
        return Score(1.0 if seen.iteration == 3 else 0.5, f"{CANARY}\nsecond line")

    loop = Loop(CANARY, name="nightly", agent=agent, gates=[gate], baseline=True)
    ways = Ways(project=folder, store=MemoryStore(), follow=(following(content=content),))
    return asyncio.run(start(loop, "r", ways)).state


def test_each_fact_is_one_line_of_json_with_its_own_time(heard, tmp_path):
    stream = heard()
    state = go(tmp_path)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines][:5] == [
        "RunStarted",
        "Claimed",
        "GateScored",
        "Judged",
        "IterationClosed",
    ]
    assert [line["iteration"] for line in lines if line["event"] == "GateScored"] == [0, 1, 3]
    assert {(line["run"], line["loop"]) for line in lines} == {("r", "nightly")}
    assert all(
        line["ts"].endswith("Z") and datetime.fromisoformat(line["ts"]).utcoffset() is not None
        for line in lines
    )
    begun = datetime.fromisoformat(lines[0]["ts"])
    assert (
        abs((begun - state.started_at).total_seconds()) < 0.002
    )  # when it happened, not when it was written
    (failed,) = (line for line in lines if line["event"] == "AttemptFailed")
    assert (failed["level"], failed["iteration"]) == ("warning", 2)
    assert failed["message"].endswith("s: unknown")
    assert lines[-1]["message"] == "run ended complete: quality_reached"
    assert CANARY not in stream.getvalue()


def test_what_was_said_is_there_when_it_is_asked_for_without_what_acts(heard, tmp_path):
    stream = heard()
    go(tmp_path, content=True)
    assert CANARY in stream.getvalue()
    said = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert f"gate gate: fail, 0.500: {CANARY}\\x0asecond line" in said


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_message_is_one_line_whatever_is_in_it(heard, form):
    stream = heard(form, MY_TOKEN="s3cr3t-value-1")
    nasty = "a\r\nb\x1b]0;title\x07\x9b2J\u2028\u202e\ud800 s3cr3t-value-1 % {} " + "x" * 9000
    logger().warning(nasty)
    try:
        raise ValueError("it held s3cr3t-value-1")
    except ValueError:
        logger().exception("it broke")
    first, second = stream.getvalue().splitlines()
    for line in (first, second):
        assert line.isprintable()
        assert "s3cr3t" not in line
        assert "[redacted:MY_TOKEN]" in line
    assert len(first) < 4500
    assert "ValueError" in second
    if form == "json":
        assert json.loads(first)["event"] == "log"
        assert json.loads(second)["level"] == "error"


def test_text_is_for_people(heard, tmp_path):
    stream = heard("text")
    go(tmp_path)
    last = stream.getvalue().splitlines()[-1]
    assert last.partition("Z ")[2] == "info    r run ended complete: quality_reached"


def test_a_library_says_nothing_by_itself():
    script = "from loopwright.serving.logs import logger; logger().error('loud')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


AT = datetime(2026, 3, 1, tzinfo=UTC)
FACTS = (
    (ev.Claimed(epoch=2, owner="o", host="h", boot="b"), "info", "taken up on h, time 2"),
    (ev.AttemptInterrupted(cause="crash"), "warning", "attempt interrupted: crash"),
    (ev.AttemptInterrupted(cause="handover"), "info", "attempt interrupted: handover"),
    (ev.WaitStarted(until=AT, seconds=90, why=CANARY), "info", "waits for 90 s"),
    (
        ev.AlertRaised(kind="STALL", iteration=1, action="stop", message=CANARY),
        "warning",
        "alert STALL, stop",
    ),
    (
        ev.AlertRaised(kind="X", iteration=1, action="stop", message="", critical=True),
        "error",
        "alert X, stop",
    ),
    (
        ev.ApprovalRequested(id="i", number=1, iteration=1, about="accept", digest="d", question=CANARY),
        "info",
        "a person is asked about accept, request 1",
    ),
    (
        ev.ApprovalDecided(id="i", answer="reject", by="ann", channel="slack", note=CANARY),
        "info",
        "request decided: reject by ann (slack)",
    ),
    (ev.ApprovalDecided(id="i", answer="expired"), "info", "request decided: expired"),
    (ev.Noticed(approval="i", channel="slack"), "info", "shown on slack"),
    (
        ev.Noticed(approval="i", channel="slack", problem=CANARY),
        "warning",
        "a request met a problem on slack",
    ),
    (ev.Delivered(to="branch", ref="x"), "info", "delivered as branch"),
    (ev.Delivered(to="branch", problem=CANARY), "warning", "could not be delivered as branch"),
    (ev.StopRequested(by="ann"), "info", "stop asked by ann"),
    (ev.Resumed(), "info", "resumed"),
    (ev.RunReopened(by="ann"), "info", "reopened by ann"),
    (
        ev.EvidenceChanged(paths=("a", "b"), action="restored"),
        "warning",
        "evidence changed (2 files): restored",
    ),
    (
        ev.RunFinished(phase="failed", reason="budget", explanation=CANARY),
        "warning",
        "run ended failed: budget",
    ),
)


@pytest.mark.parametrize(("fact", "level", "text"), FACTS, ids=lambda each: type(each).__name__)
def test_what_is_said_of_a_fact(fact, level, text):
    say = said_of(fact)
    assert (logging.getLevelName(say.level).lower(), say.text) == (level, text)


def test_what_is_no_news_is_not_said():
    assert said_of(ev.LimitsChanged(limits={"budget": 1.0})) is None
    assert said_of(ev.WorkspaceChanged(snapshot=None)) is None
