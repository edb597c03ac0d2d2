"""What a run's own record tells of its policy."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from loopwright.core.limits import Backoff, Convergence, Limits
from loopwright.core.policy import Asking, Policy
from loopwright.core.recorded import limits_of, policy_of
from loopwright.core.state import LoopState


@pytest.mark.parametrize(
    "limits",
    [
        Limits(),
        Limits(max_iterations=3, budget=2.5, convergence=None),
        Limits(convergence=Convergence(window=5), backoff=Backoff(first=1.0)),
    ],
)
def test_limits_are_read_back_as_they_were_recorded(limits):
    body = asdict(limits)
    spec = {"limits": {**body, "convergence": body["convergence"] or False, "budget_per_day": None}}
    assert limits_of(LoopState(spec=spec)) == limits


def test_what_people_changed_wins_and_what_is_not_said_is_the_default():
    state = LoopState(spec={"limits": {"max_iterations": 3}}, limits={"max_iterations": 9.0})
    assert limits_of(state) == Limits(max_iterations=9)
    assert limits_of(LoopState(spec={"limits": None})) == Limits()


def test_the_policy_has_what_decides_an_ending():
    spec = {"until": "limits", "approval": {"when": "always", "timeout": 60.0, "channels": ["inbox"]}}
    assert policy_of(LoopState(spec=spec)) == Policy(
        until="limits", approval=Asking(when="always", timeout=60.0)
    )
    assert policy_of(LoopState()) == Policy()
