"""Every ending of DESIGN §5, and which of two that hold is the one said."""

from __future__ import annotations

from typing import get_args

import pytest
from sim import BROKEN, FAIL, NO_PROOF, PASS, REQUIRED, Sim, answered, crashed, failed, graded, script, worked

from loopwright.core import events as ev
from loopwright.core.apply import PHASES
from loopwright.core.decide import decide
from loopwright.core.head import ENDINGS
from loopwright.core.limits import Convergence, Limits
from loopwright.core.monitors import Degradation, Monitors, Stall
from loopwright.core.policy import Asking, Deliver, Finish, Policy
from loopwright.errors import IllegalEvent

STALLING = Monitors(stall=Stall(action="stop"))


def policy(**more) -> Policy:
    return Policy(**{"gates": REQUIRED, "threshold": 1.0, "limits": Limits(max_iterations=6), **more})


def limited(**limits) -> Policy:
    return policy(limits=Limits(**{"max_iterations": 6, **limits}))


ROWS = {
    "quality_reached": lambda: Sim(policy(), gates=script(FAIL, PASS)),
    "already_satisfied": lambda: Sim(policy(baseline=True, if_passing="finish"), gates=script(PASS)),
    "limits_reached": lambda: Sim(
        policy(until="limits", baseline=True, limits=Limits(max_iterations=3)), gates=script(FAIL, PASS)
    ),
    "max_iterations": lambda: Sim(policy()),
    "max_duration": lambda: Sim(limited(max_duration=3), agent=script(worked(seconds=2))),
    "max_wait": lambda: Sim(limited(max_wait=100), agent=script(failed("rate_limited", retry_after=60))),
    "budget": lambda: Sim(limited(budget=1), agent=script(worked(cost=0.4))),
    "cost_unknown": lambda: Sim(limited(budget=1), agent=script(worked(cost=None))),
    "max_tokens": lambda: Sim(limited(max_tokens=25)),
    "converged": lambda: Sim(limited(max_iterations=20), gates=script(graded(0.5, "a"))),
    "consecutive_errors": lambda: Sim(policy(), agent=script(failed("unknown"))),
    "permanent_error": lambda: Sim(policy(), agent=script(failed("permanent"))),
    "gate_error": lambda: Sim(policy(), gates=script(BROKEN)),
    "interrupted_too_often": lambda: Sim(policy(), agent=script(crashed())),
    "health": lambda: Sim(policy(monitors=STALLING), agent=script(worked("same"))),
    "rejected": lambda: Sim(
        policy(approval=Asking(when="passed")), gates=script(PASS), people=answered("reject", note="no")
    ),
    "stopped_by_user": lambda: Sim(policy(), signals={3: [ev.StopRequested()]}),
    "policy_violation": lambda: Sim(policy(), agent=script(failed("policy_violation"))),
}


@pytest.mark.parametrize("reason", get_args(ev.StopReason))
def test_every_ending_is_reached(reason):
    sim = ROWS[reason]().run(200)
    assert sim.end == (reason, PHASES[reason])
    assert sim.state.finished.explanation


def test_every_ending_has_a_row_in_each_table():
    assert set(ROWS) == set(PHASES) == set(ENDINGS) == set(get_args(ev.StopReason))


@pytest.mark.parametrize("reason", get_args(ev.StopReason))
def test_no_agent_starts_after_the_decision_to_stop(reason):
    sim = ROWS[reason]().run(200)
    assert [c for c in sim.commands if isinstance(c, Finish)] == sim.commands[-1:]
    number = sim.state.iteration + 1
    with pytest.raises(IllegalEvent, match="after the run finished"):
        sim.record(ev.AttemptStarted(iteration=number, attempt=1, key="k", allowance_s=1.0))
    with pytest.raises(IllegalEvent, match="over"):
        decide(sim.policy, sim.state, sim.now)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"signals": {3: [ev.StopRequested(now=True)]}, "gates": script(PASS)}, "stopped_by_user"),
        ({"signals": {3: [ev.StopRequested()]}, "gates": script(PASS)}, "quality_reached"),
        ({"signals": {1: [ev.StopRequested()]}, "agent": script(failed("permanent"))}, "permanent_error"),
        (
            {"signals": {1: [ev.StopRequested(now=True)]}, "agent": script(failed("permanent"))},
            "stopped_by_user",
        ),
        (
            {"signals": {1: [ev.StopRequested()]}, "agent": script(failed("policy_violation"))},
            "policy_violation",
        ),
        ({"signals": {3: [ev.StopRequested()]}, "gates": script(BROKEN)}, "stopped_by_user"),
    ],
)
def test_a_stop_by_a_person_has_its_place_in_the_order(more, reason):
    assert Sim(policy(), **more).run().end[0] == reason


def test_health_is_said_before_a_limit():
    sim = Sim(policy(monitors=STALLING, limits=Limits(max_iterations=3)), agent=script(worked("same"))).run()
    assert sim.end[0] == "health"


def test_budget_is_said_before_tokens_time_and_iterations():
    limits = {"budget": 1.0, "max_tokens": 10, "max_duration": 1.0, "max_iterations": 1}
    said = []
    for name in tuple(limits):
        said.append(Sim(policy(limits=Limits(**limits)), agent=script(worked(cost=2.0))).run().end[0])
        limits[name] = 1000
    assert said == ["budget", "max_tokens", "max_duration", "max_iterations"]


def test_iterations_are_said_before_errors_in_a_row_and_converged():
    assert Sim(limited(max_iterations=3), agent=script(failed("unknown"))).run().end[0] == "max_iterations"
    run = limited(max_iterations=3, convergence=Convergence(patience=1))
    assert Sim(run, gates=script(graded(0.5))).run().end[0] == "max_iterations"


def test_an_acceptance_is_said_before_a_limit():
    assert Sim(limited(max_iterations=1), gates=script(PASS)).run().end[0] == "quality_reached"


def test_a_tool_fault_in_iteration_0_ends_before_any_attempt():
    sim = Sim(policy(baseline=True), gates=script(BROKEN)).run()
    assert (sim.end[0], sim.starts) == ("gate_error", [])


def test_a_gate_that_breaks_once_is_tried_again():
    assert Sim(policy(), gates=script(BROKEN, FAIL, BROKEN, PASS)).run().end[0] == "quality_reached"


def test_a_gate_error_of_evidence_never_ends_the_run():
    assert Sim(policy(), gates=script(NO_PROOF)).run().end[0] == "max_iterations"


def test_green_before_any_work_goes_on_unless_told_to_finish():
    sim = Sim(policy(baseline=True), gates=script(PASS)).run()
    assert (sim.end[0], len(sim.starts)) == ("quality_reached", 1)


def test_with_until_limits_it_works_on_and_keeps_the_best():
    gates = script(graded(0.2), graded(0.9, mark=0.9), graded(1.0), graded(0.4))
    sim = Sim(policy(until="limits", baseline=True, limits=Limits(max_iterations=4)), gates=gates).run()
    assert (sim.end[0], sim.state.best.iteration, len(sim.starts)) == ("limits_reached", 2, 4)
    assert sim.state.phase == "complete"


@pytest.mark.parametrize("first", [FAIL, PASS])
def test_with_until_limits_a_best_that_does_not_pass_or_beat_iteration_0_fails(first):
    run = policy(until="limits", baseline=True, limits=Limits(max_iterations=2))
    sim = Sim(run, gates=script(first, FAIL)).run()
    assert sim.end == ("max_iterations", "failed")


def test_with_until_limits_errors_are_no_success():
    run = policy(until="limits", limits=Limits(max_iterations=9))
    sim = Sim(run, agent=script(worked(), failed("unknown")), gates=script(PASS)).run()
    assert sim.end == ("consecutive_errors", "failed")


def test_with_until_limits_a_person_is_asked_once_at_the_end():
    run = policy(
        until="limits", limits=Limits(max_iterations=3), approval=Asking(when="passed"), deliver="pr"
    )
    sim = Sim(run, gates=script(PASS), people=answered("approve")).run()
    assert (sim.end[0], sim.state.requests) == ("limits_reached", 1)
    assert [c.snapshot for c in sim.commands if isinstance(c, Deliver)] == [sim.state.best.snapshot]


@pytest.mark.parametrize(
    ("answer", "end"),
    [("revise", ("max_iterations", "failed")), ("reject", ("rejected", "stopped"))],
)
def test_the_best_that_a_person_does_not_accept_is_no_success(answer, end):
    run = policy(until="limits", limits=Limits(max_iterations=2), approval=Asking(when="passed"))
    assert Sim(run, gates=script(PASS), people=answered(answer)).run().end == end


@pytest.mark.parametrize(
    ("on_timeout", "end"),
    [("hold", "paused"), ("reject", ("rejected", "stopped")), ("continue", ("max_iterations", "failed"))],
)
def test_the_best_that_nobody_accepts_in_time(on_timeout, end):
    asking = Asking(when="passed", on_timeout=on_timeout)
    run = policy(until="limits", limits=Limits(max_iterations=2), approval=asking)
    assert Sim(run, gates=script(PASS)).run().end == end


def test_a_limit_raised_with_a_revision_of_the_best_lets_the_run_go_on():
    run = policy(until="limits", limits=Limits(max_iterations=2), approval=Asking(when="passed"))
    answers = script(*(answered(a, edits={"max_iterations": 4}) for a in ("revise", "approve")))
    sim = Sim(run, gates=script(PASS), people=lambda request: answers(request)(request)).run()
    assert (sim.end[0], len(sim.starts), sim.state.requests) == ("limits_reached", 4, 2)


def test_a_limit_raised_with_the_approval_of_the_best_still_completes():
    run = policy(until="limits", limits=Limits(max_iterations=2), approval=Asking(when="passed"))
    sim = Sim(run, gates=script(PASS), people=answered("approve", edits={"max_iterations": 4})).run()
    assert (sim.end[0], len(sim.starts)) == ("limits_reached", 2)


def test_accepted_work_is_delivered_once_before_the_end():
    sim = Sim(policy(deliver="branch"), agent=script(worked("t1")), gates=script(PASS)).run()
    assert [c for c in sim.commands if isinstance(c, Deliver)] == [Deliver(to="branch", snapshot="t1")]
    assert sim.end[0] == "quality_reached"


def test_an_override_is_named_in_the_explanation():
    run = policy(approval=Asking(when="always"))
    sim = Sim(run, people=answered("approve", override="ship it")).run()
    assert sim.end[0] == "quality_reached"
    assert "although not passed: tests" in sim.state.finished.explanation


def test_the_first_red_gate_of_a_tool_names_the_tool():
    assert "not found" in Sim(policy(), gates=script(BROKEN)).run().state.finished.explanation


def test_an_action_of_stop_ends_the_run_at_the_first_alert():
    monitors = Monitors(degradation=Degradation(action="stop"))
    scores = [graded(v) for v in (0.9, 0.8, 0.7, 0.6, 0.5)]
    run = policy(monitors=monitors, limits=Limits(convergence=None))
    sim = Sim(run, gates=script(*scores)).run()
    assert (sim.end[0], len(sim.starts)) == ("health", 4)
