"""What is said of a run while it goes on and when it is over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim import BEGIN, FAIL, PASS, REQUIRED, Sim, answered, crashed, failed, graded, script, worked

from loopwright.core import events as ev
from loopwright.core.decide import decide
from loopwright.core.head import (
    ENDINGS,
    document,
    exit_code,
    explanation,
    head,
    health,
    next_step,
    passed,
    reason,
)
from loopwright.core.limits import Limits
from loopwright.core.policy import Asking, Policy
from loopwright.core.state import LoopState


def sim(*, gates=FAIL, agent=None, steps=None, signals=None, people=None, most=2, **more) -> Sim:
    run = Policy(gates=REQUIRED, threshold=1.0, limits=Limits(max_iterations=most), **more)
    made = Sim(
        run,
        gates=script(gates),
        agent=agent or script(worked(cost=0.5)),
        people=people,
        signals=signals or {},
    )
    if steps is None:
        return made.run()
    for _ in range(steps):
        made.perform(decide(run, made.state, made.now))
    return made


ASKING = Asking(when="passed")
MOMENTS = {  # phase, reason, exit code, next step, explanation
    "begun": (lambda: sim(steps=0), "planning", None, None, "show", "about to begin an iteration"),
    "judged": (lambda: sim(steps=3), "validating", None, None, "show", "iteration 1 is under way"),
    "waiting": (
        lambda: sim(agent=script(failed("transient")), steps=2),
        "waiting",
        None,
        None,
        "show",
        "trying again after an error, until 12:00:06 UTC",
    ),
    "asked": (
        lambda: sim(gates=PASS, steps=4, approval=ASKING),
        "human_review",
        "approval_requested",
        6,
        "approve",
        "accept iteration 1 (score 1.00, passed every required gate)?",
    ),
    "asked, not passed": (
        lambda: sim(steps=4, approval=Asking(when="always")),
        "human_review",
        "approval_requested",
        6,
        "revise",
        "accept iteration 1 (score 0.00, not passed: tests)?",
    ),
    "on hold": (
        lambda: sim(gates=PASS, approval=ASKING),
        "paused",
        "approval_expired",
        6,
        "ask-again",
        "nobody decided in time; the work is kept",
    ),
    "paused": (
        lambda: sim(signals={1: [ev.PauseRequested()]}),
        "paused",
        "paused",
        6,
        "resume",
        "paused by a person",
    ),
    "ended": (
        sim,
        "failed",
        "max_iterations",
        3,
        "resume",
        "2 iterations done, 2 allowed",
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_is_said_at_every_moment(moment):
    made, phase, why, code, verb, said = MOMENTS[moment]
    state = made().state
    assert (state.phase, reason(state), exit_code(state), explanation(state)) == (phase, why, code, said)
    assert next_step(state).startswith(f"loopwright {verb} r")
    found = document(state)
    assert (found["phase"], found["reason"], found["exit_code"]) == (phase, why, code)


def test_an_open_attempt_is_executing():
    made = sim(steps=0)
    made.record(ev.AttemptStarted(iteration=1, attempt=1, key="r/1", allowance_s=1.0))
    assert made.state.phase == "executing"


def test_the_next_wake_is_the_end_of_the_wait():
    made = sim(agent=script(failed("transient")), steps=2)
    assert head(made.state)["wake"] == made.state.wait_until
    assert head(sim(steps=0).state)["wake"] is None


def test_the_document_of_a_run():
    found = head(sim(gates=graded(0.5, "a")).state)
    assert (found["goal"], found["iterations"], found["score"], found["best_iteration"]) == ("g", 2, 0.5, 1)
    assert (found["cost_usd"], found["tokens"], found["duration_s"]) == (1.0, 20, 2.2)
    assert (found["started_at"], found["approval"], found["alerts"]) == (BEGIN, None, [])


def test_what_is_unknown_is_none_and_never_zero():
    found = document(sim(steps=0).state)
    assert (found["cost_usd"], found["tokens"], found["score"], found["best_score"]) == (None,) * 4
    unknown = document(sim(agent=script(ev.AttemptSucceeded(result=1, seconds=1.0))).state)
    assert (unknown["cost_usd"], unknown["tokens"]) == (None, None)
    cut = document(sim(agent=script(crashed(), worked()), gates=PASS).state)
    assert (cut["cost_usd"], cut["tokens"]) == (None, None)


def test_nothing_is_said_of_a_run_that_does_not_exist():
    found = head(LoopState())
    assert (found["started_at"], found["updated_at"], found["goal"]) == (None, None, "")


@pytest.mark.parametrize(
    ("made", "well"),
    [
        (lambda: sim(gates=PASS), True),
        (sim, False),
        (lambda: sim(approval=Asking(when="always"), people=answered("approve", override="o")), False),
        (lambda: sim(gates=PASS, until="limits"), True),
    ],
)
def test_passed_is_said_of_work_that_passed_every_required_gate(made, well):
    assert passed(made().state) is well


def test_every_ending_names_a_next_step_that_can_be_typed():
    assert all(e.next.format(run="r", best=1) and 0 <= e.exit_code <= 7 for e in ENDINGS.values())


@pytest.mark.parametrize(
    ("mode", "gates", "deliver", "step"),
    [
        ("worktree", PASS, "none", "loopwright apply r"),
        ("folder", PASS, "none", "loopwright apply r"),
        ("in_place", PASS, "none", "loopwright show r"),
        ("worktree", FAIL, "none", "loopwright resume r --add-iterations 10"),
        ("worktree", PASS, "branch", "git merge pull/1"),
    ],
)
def test_good_work_that_is_elsewhere_is_fetched_next(mode, gates, deliver, step):
    state = replace(sim(gates=gates, deliver=deliver).state, spec={"workspace": {"mode": mode}})
    assert next_step(state) == step


def test_health_in_one_line():
    assert health(sim(steps=0).state)["summary"] == "healthy: iteration 0, no score yet, 0 alerts"
    ill = health(sim(agent=script(worked("a")), most=9).state)
    assert ill["summary"].startswith(
        "unhealthy: iteration 3, score 0.00, best 0.00 at iteration 1, 1 alerts; STALL"
    )
    assert (ill["healthy"], ill["alerts"][0]["action"]) == (False, "stop")
