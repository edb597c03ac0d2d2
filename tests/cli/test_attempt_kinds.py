"""Every kind of attempt outcome in DESIGN §5's table, brought about by a real command: starts, waits, exit code.

Rule: one row per kind. Each runs one iteration (at most), so the starts are the attempts of that iteration.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from itertools import pairwise
from typing import get_args

import pytest
from stage import WORK, Ran, Stage

from loopwright.core import events as ev
from loopwright.core.values import FailureKind

DONE = {"write": {"done": "yes"}, "say": "worked"}
QUICK = ("--set", "limits.backoff.first=40ms", "--set", "limits.backoff.max=400ms")


@dataclass(frozen=True, kw_only=True)
class Row:
    """What the agent does, and what must come of it. `waits` are the least and the most seconds of each."""

    calls: tuple[dict, ...]
    kinds: tuple[str, ...]
    starts: int
    waits: tuple[tuple[float, float], ...] = ()
    reason: str = "max_iterations"
    code: int = 3
    args: tuple[str, ...] = ()
    message: str = ""
    worked: dict = field(default_factory=dict)  # fields of AttemptSucceeded


def said(stderr: str) -> dict:
    return {"stderr": stderr, "exit": 1}


LIMITED = said("HTTP 429 Too Many Requests\nRetry-After: 0.05")
ROWS = {
    "transient, then well": Row(
        calls=(said("HTTP 503 Service Unavailable"), DONE),
        kinds=("transient",),
        starts=2,
        waits=((0.02, 0.04),),
        reason="quality_reached",
        code=0,
    ),
    "transient, all attempts": Row(
        calls=(said("connection reset by peer"),),
        kinds=("transient",) * 3,
        starts=3,
        waits=((0.02, 0.04), (0.04, 0.08)),
        message="connection reset by peer",
    ),
    "transient, Retry-After": Row(
        calls=(said("HTTP 503 Service Unavailable\nRetry-After: 0.3"), DONE),
        kinds=("transient",),
        starts=2,
        waits=((0.3, 0.4),),
        reason="quality_reached",
        code=0,
    ),
    "rate_limited, more often than there are attempts": Row(
        calls=(*(LIMITED,) * 5, DONE),
        kinds=("rate_limited",) * 5,
        starts=6,
        waits=((0.05, 0.1), (0.05, 0.1), (0.08, 0.2), (0.1, 0.4), (0.1, 0.45)),
        reason="quality_reached",
        code=0,
    ),
    "context_overflow": Row(
        calls=(said("prompt is too long: 210000 tokens"),),
        kinds=("context_overflow",) * 2,
        starts=2,
        message="prompt is too long",
    ),
    "no_op": Row(calls=({},), kinds=("no_op",) * 2, starts=2, message="changed nothing and said nothing"),
    "no_op, no turns": Row(
        calls=({"result": {"summary": "hello", "num_turns": 0}},),
        kinds=("no_op",) * 2,
        starts=2,
        message="no turn",
    ),
    "no turns, nothing recorded": Row(
        calls=({**WORK, "result": {"summary": "hello", "num_turns": 0}},),
        kinds=("no_op",) * 2,
        starts=2,
        args=("--workspace", "none"),
        message="no turn",
    ),
    "no turns, and yet there is work": Row(
        calls=({**DONE, "result": {"summary": "hello", "num_turns": 0}},),
        kinds=(),
        starts=1,
        reason="quality_reached",
        code=0,
        worked={"degraded": None, "summary": "hello"},
    ),
    "no_output, idle": Row(
        calls=({"sleep": 60},),
        kinds=("no_output",) * 2,
        starts=2,
        args=("--set", "limits.idle_timeout=300ms"),
        message="idle 0.3 s and changed nothing",
    ),
    "timeout, unchanged": Row(
        calls=({"say": "thinking", "sleep": 60},),
        kinds=("no_output",) * 2,
        starts=2,
        args=("--set", "limits.attempt_timeout=400ms"),
        message="ran out of time",
    ),
    "timeout, changed": Row(
        calls=({**DONE, "sleep": 60},),
        kinds=(),
        starts=1,
        args=("--set", "limits.attempt_timeout=2s"),
        reason="quality_reached",
        code=0,
        worked={"timed_out": True, "degraded": None},
    ),
    "timeout, nothing recorded": Row(
        calls=({**DONE, "sleep": 60},),
        kinds=("timeout",) * 2,
        starts=2,
        args=("--set", "limits.attempt_timeout=500ms", "--workspace", "none"),
        message="ran out of time",
    ),
    "unknown": Row(
        calls=(said("something odd"),), kinds=("unknown",), starts=1, message="exit 1: something odd"
    ),
    "blocked, needs a person": Row(
        calls=({"result": {"summary": "", "needs_human": "log in to the registry"}},),
        kinds=("blocked",),
        starts=1,
        reason="approval_requested",
        code=6,
        message="log in to the registry",
    ),
    "blocked, permission": Row(
        calls=(said("permission denied: shell"),),
        kinds=("blocked",),
        starts=1,
        reason="approval_requested",
        code=6,
        message="permission denied",
    ),
    "permanent, authentication": Row(
        calls=(said("invalid api key"),),
        kinds=("permanent",),
        starts=1,
        reason="permanent_error",
        code=7,
        message="invalid api key",
    ),
    "permanent, missing program": Row(
        calls=({"stderr": "sh: 1: frobnicate: not found", "exit": 127},),
        kinds=("permanent",),
        starts=1,
        reason="permanent_error",
        code=7,
        message="command not found",
    ),
    "policy_violation": Row(
        calls=({"write": {"../watched/new.txt": "x", "done": "yes"}, "say": "worked"},),
        kinds=("policy_violation",),
        starts=1,
        reason="policy_violation",
        code=3,
        args=("--set", 'workspace.watch=["../watched"]'),
        message="watched",
    ),
    "degraded": Row(
        calls=({**DONE, "result": {"summary": "all done", "cost_usd": 0.1}, "exit": 3},),
        kinds=(),
        starts=1,
        reason="quality_reached",
        code=0,
        worked={"degraded": "exit 3", "summary": "all done", "timed_out": False},
    ),
}


def test_every_kind_has_a_row():
    met = {kind for row in ROWS.values() for kind in row.kinds}
    assert met == set(get_args(FailureKind))


@pytest.mark.parametrize("name", ROWS)
def test_kind(stage: Stage, name):
    row = ROWS[name]
    (stage.folder.parent / "watched").mkdir()
    stage.script(*row.calls)
    ran = stage.run(
        "--max-iterations", "1", "--no-baseline", "--no-wait", *QUICK, *row.args, gate="test -e done"
    )
    assert (ran.code, ran.doc["reason"]) == (row.code, row.reason), ran.err
    failures = stage.of(ev.AttemptFailed)
    assert tuple(f.kind for f in failures) == row.kinds
    assert all(row.message in f.message for f in failures)
    assert [(s.iteration, s.attempt, s.key) for s in stage.of(ev.AttemptStarted)] == [
        (1, n + 1, "r/1") for n in range(row.starts)
    ]
    assert stage.calls == [f"r/1 {n + 1}" for n in range(row.starts)]
    waited(stage, row)
    for worked in stage.of(ev.AttemptSucceeded):
        assert {name: getattr(worked, name) for name in row.worked} == row.worked
    closed = [f.outcome for f in stage.of(ev.IterationClosed)]
    assert closed == expected_close(row)
    if closed == ["errored"]:  # no gates, no score
        assert stage.of(ev.GateScored) == []
        assert ran.doc["score"] is None
    assert stage.processes() == []


def expected_close(row: Row) -> list[str]:
    ends = {"quality_reached": ["accepted"], "approval_requested": [], "policy_violation": ["cut"]}
    return ends.get(row.reason, ["errored"])


def waited(stage: Stage, row: Row) -> None:
    """The waits on record are as long as asked for, and the next attempt began no earlier."""
    waits = stage.of(ev.WaitStarted)
    assert len(waits) == len(row.waits)
    for wait, (least, most) in zip(waits, row.waits, strict=True):
        assert least <= wait.seconds <= most
        assert wait.why
    for (_, fact), (at, following) in pairwise(stage.timed()):
        if isinstance(fact, ev.WaitStarted):
            assert isinstance(following, ev.AttemptStarted)
            assert at >= fact.until


def test_a_failure_is_the_next_feedback(stage):
    stage.script(said("something odd"), DONE)
    stage.run(gate="test -e done", expect=0)
    assert "something odd" in stage("show", "r", "--prompt", "--iteration", "2", expect=0).out


def test_an_interrupted_attempt_is_made_again(stage):
    stage.script({"append": {"half.txt": "half"}, "hold": True}, DONE)
    with stage.started(*stage.loop(gate="test -e done")) as process:
        stage.held(process)
        process.send_signal(signal.SIGKILL)
    ran = stage("resume", "r", "--json", expect=0)
    assert (ran.doc["reason"], ran.doc["iterations"]) == ("quality_reached", 1)
    assert stage.calls == ["r/1 1", "r/1 2"]
    (cut,) = stage.of(ev.AttemptInterrupted)
    assert cut.cause == "crash"
    assert cut.snapshot
    assert (stage.folder / "half.txt").read_text() == "half"  # in_place goes on from what is there
    assert "cut off" in stage("show", "r", "--prompt", "--iteration", "1", expect=0).out


def blocked(stage: Stage) -> str:
    stage.script({"result": {"needs_human": "log in"}}, DONE)
    asked: Ran = stage.run("--no-wait", gate="test -e done", expect=6)
    assert asked.doc["explanation"] == "log in"
    assert asked.lines[2] == "  next: loopwright approve r"
    (request,) = stage.of(ev.ApprovalRequested)
    assert request.about == "blocked"
    return request.id


def test_a_blocked_run_waits_and_goes_on_once_a_person_says_so(stage):
    request = blocked(stage)
    assert stage("resume", "r", "--no-wait", expect=6).out == ""
    assert len(stage.calls) == 1
    stage.signal(f"decision/{request}", ev.ApprovalDecided(id=request, answer="approve", by="ann"))
    assert stage("resume", "r", "--json", expect=0).doc["reason"] == "quality_reached"
    assert stage.calls == ["r/1 1", "r/1 2"]
