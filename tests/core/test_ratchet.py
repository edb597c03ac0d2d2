"""Ratchets: fewer tests, or more skipped ones, than iteration 0 had are not passed."""

from __future__ import annotations

import pytest
from sim import FAIL, REQUIRED, Sim, answered, script

from loopwright.core import events as ev
from loopwright.core.judge import Rule
from loopwright.core.limits import Limits
from loopwright.core.policy import Asking, Policy
from loopwright.core.ratchet import counts, slipped
from loopwright.core.values import Score, Scored


def counted(ran: object, skipped: object = 0, status: str = "pass") -> Score:
    """The score of a gate that counted tests."""
    return Score(1.0, status=status, evidence={"counts": {"executed": ran, "skipped": skipped}})


def sim(*scores: Score, people=None, **more: object) -> Sim:
    limits = Limits(max_iterations=max(1, len(scores) - 1))
    run = Policy(gates=REQUIRED, threshold=1.0, baseline=True, limits=limits, **more)
    return Sim(run, gates=script(*scores), people=people).run()


@pytest.mark.parametrize(
    ("score", "found"),
    [
        (counted(3, 1), {"tests": (3, 1)}),
        (counted(3, 1, "fail"), {"tests": (3, 1)}),
        (counted(3, 1, "error"), {}),
        (counted("3"), {}),
        (counted(3, None), {}),
        (Score(1.0, status="pass"), {}),
        (Score(1.0, status="pass", evidence={"counts": 3}), {}),
    ],
)
def test_what_counts(score, found):
    assert counts([Scored(gate="tests", score=score)]) == found


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ((3, 0), (3, 0), []),
        ((3, 1), (9, 0), []),
        ((3, 0), (2, 0), ["tests: fewer tests ran than at iteration 0 (2, not 3): bring them back"]),
        ((3, 0), (3, 1), ["tests: more tests were skipped than at iteration 0 (1, not 0)"]),
    ],
)
def test_what_slipped(then, now, said):
    scores = [Scored(gate="tests", score=counted(*now))]
    assert slipped([Rule(name="tests")], {"tests": then}, scores) == said
    assert slipped([Rule(name="tests", required=False)], {"tests": then}, scores) == []
    assert slipped([Rule(name="tests")], {}, scores) == []
    assert slipped([Rule(name="tests")], {"tests": then}, []) == []


@pytest.mark.parametrize(("more", "said"), [(2, True), (0, False), ("2", False), (None, False)])
def test_more_suppressions_are_said(more, said):
    scores = [Scored(gate="tests", score=Score(1.0, status="pass", evidence={"suppressions": more}))]
    assert bool(slipped(REQUIRED, {}, scores)) is said


def test_fewer_tests_never_pass_and_bringing_them_back_does():
    run = sim(counted(3, status="fail"), counted(2), counted(3, 1), counted(4))
    assert (run.end[0], run.state.best.iteration) == ("quality_reached", 3)
    told = [c.verdict.blockers for c in run.commands if hasattr(c, "verdict")]
    assert told == [("tests",), ("ratchet",), ("ratchet",), ()]
    assert run.starts[1].feedback.reasons[0].startswith("ratchet: tests: fewer tests ran")


def test_without_iteration_0_or_its_counts_there_is_no_ratchet():
    assert sim(FAIL, counted(1)).end[0] == "quality_reached"
    assert sim(counted(3), counted(2), counted(1)).end[0] == "max_iterations"


def test_a_person_may_accept_fewer_tests():
    people = answered("approve", override="merged into one")
    assert (
        sim(counted(3), counted(2), approval=Asking(when="always"), people=people).end[0] == "quality_reached"
    )


def test_another_policy_is_not_measured_by_the_old_counts():
    run = sim(counted(3), counted(2))
    run.record(ev.LimitsChanged(limits={"max_iterations": 9}), ev.RunReopened())
    run.record(ev.PolicyChanged(spec={}, digest="e"))
    assert run.state.counted == {}
    assert run.run().end[0] == "quality_reached"


def failing(*names: str, counted: int | None = None, status: str = "fail") -> Score:
    """The score of a gate of which these tests fail."""
    counts = {"executed": 9, "skipped": 0, "failed": len(names) if counted is None else counted, "errors": 0}
    value = 0.0 if names else 1.0
    return Score(value, status=status, failing=names, graded=True, evidence={"counts": counts})


@pytest.mark.parametrize(
    ("then", "now", "end"),
    [
        (failing("a", "b"), failing("a"), "quality_reached"),
        (failing("a", "b"), failing("a", "c"), "max_iterations"),
        (failing("a"), failing("a", counted=3), "max_iterations"),
        (failing("a"), failing("a", status="error"), "max_iterations"),
        (failing("a"), failing(counted=1), "max_iterations"),
        (failing("a"), FAIL, "max_iterations"),
        (FAIL, failing("a"), "max_iterations"),
    ],
)
def test_known_failures_are_those_of_iteration_0(then, now, end):
    assert sim(then, now, known_failures=True).end[0] == end
    assert sim(then, now).end[0] == "max_iterations"


def test_without_iteration_0_no_failure_is_known():
    policy = Policy(gates=REQUIRED, known_failures=True, limits=Limits(max_iterations=1))
    assert Sim(policy, gates=script(failing("a"))).run().end[0] == "max_iterations"
