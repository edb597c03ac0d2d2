"""Every ending of DESIGN §5 as a person and a script see it: reason, phase, exit code, three lines, one document.

Rule: one row per ending. A row brings a run to its end by the program alone; the table says what must be seen.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import get_args

import pytest
from stage import FREE, WORK, Ran, Stage

from loopwright.core import events as ev

KEYS = [
    "schema",
    "run",
    "goal",
    "phase",
    "reason",
    "explanation",
    "next",
    "passed",
    "iterations",
    "score",
    "best_score",
    "best_iteration",
    "cost_usd",
    "tokens",
    "plan",
    "duration_s",
    "started_at",
    "alerts",
    "exit_code",
]
SCORED = """
[[gate]]
use = "score"
run = "cat score.json"
mark = 1.0
"""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What must be seen of an ending: exit code, what the second line says, the third, and the agent's starts."""

    phase: str
    code: int
    why: str
    next: str
    starts: int
    iterations: int | None = None  # where it is not the number of starts


def paid(**usage) -> dict:
    return {**WORK, "result": {"summary": "worked", **usage}}


def converging(stage: Stage) -> Ran:
    stage.write("score.json", '{"score": 0.5}')
    return stage("run", stage.file("limits.convergence = { window = 2, patience = 1 }" + SCORED), *AS)


def interrupted(stage: Stage) -> Ran:
    stage.script({"hold": True})
    verb = stage.loop()
    for _ in range(3):
        with stage.started(*verb) as process:
            stage.held(process)
            process.send_signal(signal.SIGKILL)
        verb = ["resume", "r"]
    return stage("resume", "r", "--json")


def rejected(stage: Stage) -> Ran:
    asked = stage.run("--approve", "passed", "--no-wait", gate="true", expect=6).doc
    assert asked["phase"] == "human_review"
    assert asked["reason"] == "approval_requested"
    assert asked["exit_code"] == 6
    (request,) = stage.of(ev.ApprovalRequested)
    said = ev.ApprovalDecided(id=request.id, answer="reject", by="ann", note="not like this")
    stage.signal(f"decision/{request.id}", said)
    return stage("resume", "r", "--json")


def stopped(stage: Stage) -> Ran:
    stage.script({**WORK, "hold": True})
    with stage.started(*stage.loop("--json")) as process:
        stage.held(process)
        stage("stop", "r", expect=0)
        stage.go()
        out, err = process.communicate(timeout=60)
        return Ran(process.returncode, out, err)


def broken(stage: Stage) -> Ran:
    stage.write("check", "#!/bin/sh\nexit 1\n").chmod(0o755)
    stage.script({**WORK, "delete": ["check"]}, WORK)
    return stage.run(gate="./check")


def violating(stage: Stage) -> Ran:
    watched = stage.folder.parent / "elsewhere"
    watched.mkdir()
    (watched / "kept.txt").write_text("mine")
    stage.script({"write": {str(watched / "kept.txt"): "yours"}, "say": "worked"})
    return stage.run("--set", 'workspace.watch=["../elsewhere"]')


def scripted(*calls: dict, args: tuple[str, ...] = (), gate: str = "false"):
    def play(stage: Stage) -> Ran:
        stage.script(*calls)
        return stage.run(*args, gate=gate)

    return play


AS = ("--as", "r", "--json")
DONE = {**WORK, "write": {"done": "yes"}}
ROWS = {
    "quality_reached": (
        scripted(WORK, DONE, gate="test -e done"),
        Seen(phase="complete", code=0, why="every required gate passed", next="loopwright diff r", starts=2),
    ),
    "already_satisfied": (
        scripted(WORK, args=("--set", "if_passing=finish"), gate="true"),
        Seen(
            phase="complete",
            code=0,
            why="passed before any work",
            next="loopwright show r --gates",
            starts=0,
        ),
    ),
    "limits_reached": (
        scripted(DONE, WORK, args=("--set", "until=limits", "--max-iterations", "2"), gate="test -e done"),
        Seen(
            phase="complete",
            code=0,
            why="the best is iteration 1",
            next="loopwright restore r --iteration best",
            starts=2,
        ),
    ),
    "max_iterations": (
        scripted(WORK, args=("--max-iterations", "3")),
        Seen(
            phase="failed",
            code=3,
            why="3 iterations done, 3 allowed",
            next="loopwright resume r --add-iterations 10",
            starts=3,
        ),
    ),
    "max_duration": (
        scripted({**WORK, "sleep": 60}, args=("--max-duration", "700ms")),
        Seen(
            phase="failed",
            code=3,
            why="s allowed",
            next="loopwright resume r --add-duration 30m",
            starts=1,
        ),
    ),
    "max_wait": (
        scripted(
            {"stderr": "HTTP 429 Too Many Requests\nRetry-After: 30", "exit": 1},
            args=("--set", "limits.max_wait=20s"),
        ),
        Seen(
            phase="failed",
            code=3,
            why="asked to wait 30 s more",
            next="loopwright resume r once the limit is lifted",
            starts=1,
        ),
    ),
    "budget": (
        scripted(paid(cost_usd=0.4), args=("--budget", "1")),
        Seen(
            phase="failed",
            code=3,
            why="$0.80 of $1.00 spent",
            next="loopwright resume r --add-budget 5",
            starts=2,
        ),
    ),
    "cost_unknown": (
        scripted(WORK, args=("--budget", "1")),
        Seen(phase="failed", code=3, why="did not report a cost", next="limits.reserve", starts=1),
    ),
    "max_tokens": (
        scripted(paid(tokens=10), args=("--set", "limits.max_tokens=25")),
        Seen(phase="failed", code=3, why="30 of 25 tokens used", next="limits.max_tokens", starts=3),
    ),
    "converged": (
        converging,
        Seen(
            phase="failed",
            code=3,
            why="no progress over 1 × 2 iterations",
            next='loopwright resume r --note "try another way"',
            starts=2,
        ),
    ),
    "consecutive_errors": (
        scripted({"stderr": "something odd", "exit": 1}),
        Seen(phase="failed", code=3, why="something odd", next="loopwright show r --log", starts=3),
    ),
    "permanent_error": (
        scripted({"stderr": "HTTP 401 Unauthorized", "exit": 1}),
        Seen(phase="failed", code=7, why="authentication", next="loopwright resume r", starts=1),
    ),
    "gate_error": (
        broken,
        Seen(
            phase="failed",
            code=7,
            why="a required gate could not run: check",
            next="loopwright resume r",
            starts=2,
        ),
    ),
    "interrupted_too_often": (
        interrupted,
        Seen(
            phase="failed",
            code=7,
            why="cut off by a crash 3 times in a row",
            next="loopwright show r --log",
            starts=3,
            iterations=1,
        ),
    ),
    "health": (
        scripted({"say": "nothing to do"}),
        Seen(phase="stopped", code=4, why="STALL: ", next="loopwright show r --health", starts=3),
    ),
    "rejected": (
        rejected,
        Seen(
            phase="stopped",
            code=5,
            why="rejected by ann: not like this",
            next="loopwright restore r --iteration 0",
            starts=1,
        ),
    ),
    "stopped_by_user": (
        stopped,
        Seen(phase="stopped", code=5, why="a person asked", next="loopwright resume r", starts=1),
    ),
    "policy_violation": (
        violating,
        Seen(phase="stopped", code=3, why="elsewhere", next="loopwright show r --events", starts=1),
    ),
}


def test_every_ending_has_a_row():
    assert set(ROWS) == set(get_args(ev.StopReason))


@pytest.mark.parametrize("reason", ROWS)
def test_ending(stage, reason):
    play, seen = ROWS[reason]
    ran = play(stage)
    assert ran.code == seen.code, ran.err
    check_document(ran.doc, reason, seen)
    check_lines(ran, reason, seen)
    assert len(stage.calls) == seen.starts
    assert len(stage.of(ev.AttemptStarted)) == seen.starts
    assert stage.processes() == []
    assert len([f for f in stage.facts() if isinstance(f, ev.RunFinished)]) == 1


def check_document(doc: dict, reason: str, seen: Seen) -> None:
    assert list(doc) == KEYS
    iterations = seen.starts if seen.iterations is None else seen.iterations
    assert {k: doc[k] for k in ("schema", "run", "goal", "phase", "reason", "exit_code", "iterations")} == {
        "schema": "loopwright/run/v1",
        "run": "r",
        "goal": "g",
        "phase": seen.phase,
        "reason": reason,
        "exit_code": seen.code,
        "iterations": iterations,
    }
    assert doc["passed"] is (seen.phase == "complete")
    assert seen.why in doc["explanation"]
    assert seen.next in doc["next"]
    assert isinstance(doc["duration_s"], float)
    assert all(set(alert) == {"kind", "iteration"} for alert in doc["alerts"])
    assert doc["started_at"].endswith("Z")
    assert datetime.fromisoformat(doc["started_at"]).utcoffset() == timedelta(0)


def check_lines(ran: Ran, reason: str, seen: Seen) -> None:
    what, why, following = ran.lines
    mark = "✓" if seen.phase == "complete" else "✗"
    assert re.match(rf"{mark} r: {reason} after \d+ iterations?\b", what), what
    assert re.match(r"  why:  \S", why)
    assert seen.why in why
    assert re.match(r"  next: \S", following)
    assert seen.next in following
    assert ran.out.count('"schema"') == 1


def test_gate_tool_broken_at_iteration_0_ends_the_run_before_any_attempt(stage):
    stage.write("check", "echo 'check: error: unrecognized arguments: --strict' >&2; exit 2\n")
    scored = '[[gate]]\nuse = "score"\nrun = "sh check --strict"\nmark = 1.0'
    ran = stage("run", stage.file(scored), *AS, expect=7)
    assert (ran.doc["reason"], ran.doc["iterations"]) == ("gate_error", 0)
    assert stage.calls == []


def test_exit_zero_and_unknown_figures(stage):
    stage.script(FREE | WORK)
    ran = stage.run("--max-iterations", "1", "--exit-zero", expect=0)
    assert (ran.doc["reason"], ran.doc["exit_code"]) == ("max_iterations", 0)
    assert (ran.doc["cost_usd"], ran.doc["tokens"]) == (0.0, 0)
    stage.script(WORK)
    unknown = stage(*stage.loop("--max-iterations", "1", "--as", "u", "--json"), expect=3)
    assert (unknown.doc["cost_usd"], unknown.doc["tokens"]) == (None, None)
