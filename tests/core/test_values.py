"""Numbers that are none get in nowhere: not into a value, a fact, a limit or a policy."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import UTC, datetime

import pytest

from loopwright.core import events as ev
from loopwright.core import monitors
from loopwright.core.judge import Rule
from loopwright.core.limits import Backoff, Convergence, Limits
from loopwright.core.policy import Asking, Policy
from loopwright.core.values import (
    LIMITS,
    Attempt,
    Failed,
    Feedback,
    Left,
    Score,
    Usage,
    Verdict,
    bounded,
    finite,
)

OK = Score(1.0, status="pass")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
VALUES = {  # what is built: the numbers it takes
    lambda **k: Score(**{"value": 0.5, **k}): ("value", "raw"),
    Usage: ("cost_usd", "tokens", "turns"),
    lambda **k: Failed(kind="unknown", message="m", **k): ("retry_after_s",),
    lambda **k: Verdict(**{"score": 0.5, "passed": False, **k}): (
        "score",
        "required_score",
        "objective",
        "min_gain",
    ),
    lambda **k: Rule(name="g", **k): ("weight", "min", "min_gain"),
    Policy: ("threshold",),
    Asking: ("timeout",),
    Limits: tuple(sorted(LIMITS)),
    Backoff: ("first", "factor", "max"),
    Convergence: ("window", "within", "patience"),
    monitors.Oscillation: ("window", "changes", "above"),
    monitors.Degradation: ("window", "drop"),
    monitors.Slowdown: ("window", "ratio"),
    monitors.HighErrorRate: ("window", "rate"),
    monitors.Stall: ("window",),
    monitors.Critical: ("alerts", "within"),
    lambda **k: ev.AttemptStarted(**{"iteration": 1, "attempt": 1, "key": "k", "allowance_s": 1.0, **k}): (
        "allowance_s",
        "reserve_usd",
    ),
    lambda **k: ev.AttemptSucceeded(result=None, **k): ("seconds",),
    lambda **k: ev.AttemptFailed(**{"kind": "unknown", "message": "m", "seconds": 1.0, **k}): (
        "seconds",
        "retry_after",
        "dice",
    ),
    lambda **k: ev.AttemptInterrupted(cause="crash", **k): ("seconds",),
    lambda **k: ev.WaitStarted(until=NOW, why="w", **k): ("seconds",),
    lambda **k: ev.DaySpent(**{"day": "2026-03-01", "cost_usd": 1.0, **k}): ("cost_usd",),
    lambda **k: ev.GateScored(**{"gate": "g", "score": OK, "seconds": 1.0, **k}): (
        "seconds",
        "beside_s",
    ),
    lambda **k: ev.LimitsChanged(limits={**k}): tuple(sorted(LIMITS)),
    lambda **k: ev.ApprovalDecided(id="q", answer="approve", edits=k): tuple(sorted(LIMITS)),
}
ROWS = [(build, name) for build, names in VALUES.items() for name in names]
MAY_BE_NEGATIVE = {"raw", "objective", "min"}


@pytest.mark.parametrize(("build", "name"), ROWS, ids=[name for _, name in ROWS])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 10**400, "1"])
def test_what_is_not_a_finite_number_is_refused_at_every_entrance(build, name, bad):
    with pytest.raises((ValueError, TypeError)):
        build(**{name: bad})


@pytest.mark.parametrize(
    ("build", "name"), [r for r in ROWS if r[1] not in MAY_BE_NEGATIVE], ids=lambda v: str(v)[:20]
)
def test_what_cannot_be_negative_is_refused(build, name):
    with pytest.raises(ValueError, match=r"outside|not above"):
        build(**{name: -1})


def test_every_number_of_a_fact_is_in_the_table():
    numbers = {
        (cls.__name__, f.name)
        for cls in ev.EVENTS
        for f in dataclasses.fields(cls)
        if str(f.type) in {"float", "float | None"}
    }
    assert {name for _, name in numbers} <= {name for _, name in ROWS}
    assert len(numbers) == 11


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_a_limit_of_zero_is_none(name):
    with pytest.raises(ValueError, match=name):
        Limits(**{name: 0})


@pytest.mark.parametrize("name", ["max_iterations", "attempts", "max_consecutive_errors", "max_tokens"])
def test_what_counts_is_whole(name):
    with pytest.raises(ValueError, match="whole"):
        Limits(**{name: 2.5})
    assert bounded(name, 3.0) == 3
    assert isinstance(bounded(name, 3.0), int)


def test_a_limit_that_is_none_of_ours_names_those_that_are():
    with pytest.raises(ValueError, match="max_iterations"):
        bounded("max_iteration", 3)


def test_every_number_of_limits_has_its_name():
    numbers = {f.name for f in dataclasses.fields(Limits)} - {"convergence", "backoff"}
    assert numbers == LIMITS


def test_true_is_not_a_number_and_a_range_is_told():
    with pytest.raises(ValueError, match="not a number"):
        finite("x", True)
    with pytest.raises(ValueError, match="outside 0 to ∞"):
        finite("x", -1, low=0)
    with pytest.raises(ValueError, match="outside -∞ to 3"):
        finite("x", 4, high=3)


def test_a_score_with_a_status_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="passed"):
        Score(1.0, status="passed")


def test_what_is_not_known_is_none():
    assert Failed(kind="unknown", message="m").retry_after_s is None
    assert Usage() == Usage(cost_usd=None, tokens=None, turns=None)


def test_a_score_on_record_has_a_status():
    with pytest.raises(ValueError, match="settle"):
        ev.GateScored(gate="g", score=Score(1.0), seconds=0.1)


def test_gates_of_a_policy_have_names_of_their_own():
    with pytest.raises(ValueError, match="one name"):
        Policy(gates=(Rule(name="g"), Rule(name="g")))


def test_convergence_looks_back_no_further_than_a_run_remembers():
    assert Convergence(window=32, patience=2).window == 32
    with pytest.raises(ValueError, match="64"):
        Convergence(window=33, patience=2)


def test_the_prompt_of_an_attempt_is_made_once_when_it_is_asked_for():
    made = []
    bare = Attempt(
        run="r",
        iteration=1,
        number=1,
        key="r/1",
        goal="the goal",
        feedback=Feedback(),
        left=Left(iterations=1, seconds=1, attempts=1),
        deadline_s=1,
    )
    assert bare.prompt == "the goal"
    asked = dataclasses.replace(bare, render=lambda attempt: made.append(attempt) or "text")
    assert made == []
    assert (asked.prompt, asked.prompt, made) == ("text", "text", [asked])
    assert pickle.loads(pickle.dumps(asked)).prompt == "text"
    assert "render" not in repr(asked)
