"""One gate, one score: what the old tests say, and when it says nothing against the work."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import NotStartable
from loopwright.old_tests import with_old
from loopwright.ports import Gate
from loopwright.workspace.earlier import Old

OLD = Old(entries={b"tests/a.py": b"100644 1"}, counts=lambda _: True)


def counted(status, *failing, executed=2, value=1.0):
    bad = len(failing)
    counts = {"executed": executed, "skipped": 0, "failed": bad, "errors": 0}
    evidence = {"command": ["pytest"], "counts": counts}
    return Score(value, status, status=status, graded=True, failing=failing, evidence=evidence)


PLAIN = Score(1.0, status="pass", evidence={"command": ["python3", "-m", "unittest"]})
BROKEN = Score(0.0, "exit 4", status="error", cause="tool", evidence={"command": ["pytest"]})
BASELINE = SimpleNamespace(failing=())


def both(now, old, *, zero=BASELINE, then=("g",), lost=False):
    """The score of a gate that says `now`, and `old` in the checkout."""
    if lost:

        def checkout(*_):
            raise NotStartable("no snapshots")
    else:
        checkout = lambda *_: None  # noqa: E731 - beside the other
    state = SimpleNamespace(base="b", snapshot="s", edits=(), zero=zero, counted=dict.fromkeys(then, (2, 0)))
    run = SimpleNamespace(
        journal=SimpleNamespace(state=state),
        policy=SimpleNamespace(threshold=0.85, known_failures=False),
        workspace=SimpleNamespace(old_tests=lambda *_: OLD, checkout=checkout),
    )

    async def check(_seen, _place):
        raise AssertionError

    async def measured(_folder):
        return old

    return asyncio.run(with_old(run, Gate(rule=Rule(name="g"), check=check), now, measured))


@pytest.mark.parametrize(
    ("old", "more"),
    [
        (counted("pass"), {}),
        (counted("fail", executed=1, value=0.5), {}),  # too few, none of them fails
        (counted("fail", executed=1, value=0.5), {"zero": None, "then": ()}),
        (BROKEN, {"then": ()}),  # no tests for this gate at the start either
    ],
)
def test_what_says_nothing_against_the_work(old, more):
    score = both(counted("pass"), old, **more)
    assert (score.status, score.value, score.reason) == ("pass", 1.0, "pass")
    assert score.evidence["old_tests"]["status"] == "pass"


@pytest.mark.parametrize("more", [{}, {"zero": None, "then": ()}])
def test_old_tests_that_cannot_be_judged_are_an_error_and_no_broken_gate(more):
    score = both(counted("pass"), BROKEN, **more)
    assert (score.status, score.cause, score.value) == ("error", "evidence", 0.0)
    assert score.reason == "the tests as they were at the start could not be judged: exit 4"
    assert both(counted("pass"), PLAIN, lost=True).reason.endswith("could not be judged: no snapshots")


def test_the_worse_of_two_counts():
    score = both(counted("fail", "new", value=0.4), counted("fail", "old", value=0.7))
    assert (score.status, score.value, score.failing) == ("fail", 0.4, ("new", "as at the start: old"))
    assert score.reason == "fail\nthe tests as they were at the start must still pass: fail"
    plain = both(PLAIN, Score(0.0, "exit 1", status="fail", evidence={"command": ["x"]}))
    assert (plain.status, plain.value, plain.failing) == ("fail", 0.0, ())


@pytest.mark.parametrize(
    "now",
    [
        BROKEN,
        Score(0.5, status="fail", evidence={"command": ["ruff", "check", "tests"]}),
        Score(1.0, status="pass", evidence={"counts": {"executed": 1, "skipped": 0}}),
        Score(1.0, status="pass", graded=True, evidence={"command": ["coverage", "run"]}),
    ],
)
def test_a_gate_that_ran_no_tests_is_left_alone(now):
    assert both(now, counted("fail", "old")) is now
