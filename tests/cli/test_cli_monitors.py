"""Every monitor in a real run: its alert in `show --health --json`, what its action does, and that it survives kill -9.

Rule: one row per monitor, with a window as small as it may be; all others are off.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass

import pytest
from stage import Stage

from loopwright.core import events as ev

KINDS = ("oscillation", "degradation", "slowdown", "high_error_rate", "stall")
QUIET = {"say": "nothing to do"}
ODD = {"stderr": "something odd", "exit": 1}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Numbers of the monitor, the agent's calls, and the iteration of the first alert; the next is three later."""

    numbers: str
    calls: tuple[dict, ...]
    at: int
    says: str


def scores(*values: float) -> tuple[dict, ...]:
    return tuple({"write": {"score.json": json.dumps({"score": v})}, "say": "worked"} for v in values)


ROWS = {
    "oscillation": Row(
        numbers="window = 4, changes = 2",
        calls=scores(0.9, 0.5, 0.8, 0.4, 0.8, 0.4, 0.8),
        at=4,
        says="changed direction 2 times in 4 iterations without a new best",
    ),
    "degradation": Row(
        numbers="window = 3, drop = 0.1",
        calls=scores(0.9, 0.8, 0.7, 0.6, 0.5, 0.4),
        at=3,
        says="only fell over 3 iterations, 0.90 to 0.70",
    ),
    "slowdown": Row(
        numbers="window = 2, ratio = 1.5",
        calls=(QUIET, {**QUIET, "sleep": 1.5}, QUIET, QUIET, {**QUIET, "sleep": 1.5}),
        at=2,
        says="take longer each time",
    ),
    "high_error_rate": Row(
        numbers="window = 2", calls=(ODD,) * 5, at=2, says="2 of the last 2 iterations errored"
    ),
    "stall": Row(numbers="window = 2", calls=(QUIET,) * 5, at=2, says="the same things keep it from passing"),
}


def loop(stage: Stage, kind: str, action: str, row: Row, more: str = "") -> str:
    stage.write("score.json", '{"score": 0.9}')
    others = "\n".join(f'monitors.{k} = "off"' for k in KINDS if k != kind)
    return stage.file(f"""
{others}
monitors.{kind} = {{ action = "{action}", {row.numbers} }}
{more}
[limits]
max_iterations = {row.at + 3}
max_consecutive_errors = 20
convergence = false
[[gate]]
use = "score"
run = "cat score.json"
mark = 1.0
""")


def health(stage: Stage) -> dict:
    found = stage("show", "r", "--health", "--json", expect=0).doc
    assert list(found) == ["healthy", "summary", "alerts"]
    return found


@pytest.mark.parametrize("kind", ROWS)
def test_alert_is_seen_and_remembered_after_kill_9(stage, kind):
    row = ROWS[kind]
    stage.script(*row.calls[: row.at], {"hold": True}, *row.calls[row.at :])
    with stage.started("run", loop(stage, kind, "note", row), "--as", "r") as process:
        stage.held(process)
        process.send_signal(signal.SIGKILL)
    first = health(stage)
    (alert,) = first["alerts"]
    assert first["healthy"] is (kind == "slowdown")  # a note that never counts
    assert alert == {
        "kind": kind.upper(),
        "iteration": row.at,
        "action": "note",
        "message": alert["message"],
        "critical": False,
    }
    assert row.says in alert["message"]
    if not first["healthy"]:
        assert row.says in first["summary"]
    ended = stage("resume", "r", "--json", expect=3).doc
    assert ended["reason"] == "max_iterations"
    assert ended["alerts"] == [{"kind": kind.upper(), "iteration": n} for n in (row.at, row.at + 3)]
    assert [a["iteration"] for a in health(stage)["alerts"]] == [row.at, row.at + 3]


@pytest.mark.parametrize("kind", ROWS)
def test_action_stop_ends_the_run(stage, kind):
    row = ROWS[kind]
    stage.script(*row.calls)
    ran = stage("run", loop(stage, kind, "stop", row), "--as", "r", "--json", expect=4)
    assert (ran.doc["reason"], ran.doc["phase"], ran.doc["iterations"]) == ("health", "stopped", row.at)
    assert ran.doc["explanation"].startswith(f"{kind.upper()}: ")
    assert [a["kind"] for a in health(stage)["alerts"]] == [kind.upper()]


def test_action_nudge_is_in_the_next_prompt(stage):
    row = ROWS["stall"]
    stage.script(*row.calls)
    stage("run", loop(stage, "stall", "nudge", row), "--as", "r", expect=3)
    assert row.says in stage("show", "r", "--prompt", "--iteration", str(row.at + 1), expect=0).out
    assert row.says not in stage("show", "r", "--prompt", "--iteration", str(row.at), expect=0).out


def test_action_ask_waits_for_a_person_who_may_let_it_go_on(stage):
    row = ROWS["stall"]
    stage.script(*row.calls)
    asked = stage("run", loop(stage, "stall", "ask", row), "--as", "r", "--no-wait", "--json", expect=6).doc
    assert (asked["phase"], asked["iterations"]) == ("human_review", row.at)
    (request,) = stage.of(ev.ApprovalRequested)
    assert request.about == "alert"
    stage.signal(f"decision/{request.id}", ev.ApprovalDecided(id=request.id, answer="approve", by="ann"))
    again = stage("resume", "r", "--no-wait", "--json", expect=6).doc  # three later it asks again
    assert again["iterations"] == row.at + 3


def test_action_off_says_nothing(stage):
    row = ROWS["stall"]
    stage.script(*row.calls)
    ran = stage("run", loop(stage, "stall", "off", row), "--as", "r", "--json", expect=3)
    assert ran.doc["alerts"] == []
    found = health(stage)
    assert (found["healthy"], found["alerts"]) == (True, [])


def test_many_alerts_are_critical_and_stop_the_run(stage):
    row = ROWS["high_error_rate"]
    stage.script(*row.calls)
    critical = "monitors.critical = { alerts = 2, within = 10 }"
    ran = stage("run", loop(stage, "high_error_rate", "note", row, critical), "--as", "r", "--json", expect=4)
    assert ran.doc["iterations"] == row.at + 3
    assert [a["critical"] for a in health(stage)["alerts"]] == [False, True]
