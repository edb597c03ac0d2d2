"""`backtest`: decide asked again on old facts, honest about what is not on record."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim import FAIL, PASS, REQUIRED, Sim, answered, failed, graded, script, worked
from test_why import CASES
from told import history

from loopwright.core import events as ev
from loopwright.core.judge import Rule, settle
from loopwright.core.limits import Convergence, Limits
from loopwright.core.monitors import Monitors, Stall
from loopwright.core.policy import Asking, Policy
from loopwright.core.values import Score
from loopwright.report.backtest import BEYOND, backtest, record, unfit


def policy(**more) -> Policy:
    return Policy(**{"gates": REQUIRED, "threshold": 1.0, "limits": Limits(max_iterations=6), **more})


def under(new: Policy, sim: Sim):
    would = backtest(new, record(history(sim))).would
    return would.reason, would.iterations


@pytest.mark.parametrize("name", CASES)
def test_the_same_policy_gives_the_same_end_also_where_it_is_not_over(name):
    sim = CASES[name]()
    tested = backtest(sim.policy, record(history(sim)))
    assert tested.same, tested.would
    assert tested.really == tested.would


def test_a_lower_limit_ends_it_earlier_with_what_it_had_then():
    sim = Sim(
        policy(), agent=script(worked(cost=0.5)), gates=script(graded(0.2), graded(0.6), graded(0.4))
    ).run()
    would = backtest(policy(limits=Limits(max_iterations=2)), record(history(sim))).would
    assert (would.reason, would.iterations, would.best_score, would.cost_usd) == (
        "max_iterations",
        2,
        0.6,
        1.0,
    )
    assert under(policy(limits=Limits(budget=1.2)), sim) == ("budget", 2)


def test_a_higher_limit_is_beyond_the_record():
    tested = backtest(policy(limits=Limits(max_iterations=9)), record(history(Sim(policy()).run())))
    assert (tested.would.reason, tested.would.iterations) == (BEYOND, 6)
    assert tested.would.explanation == "it would have gone on with iteration 7"
    assert not tested.same


def test_other_monitors_and_convergence():
    sim = Sim(
        policy(
            limits=Limits(max_iterations=9, convergence=None), monitors=Monitors(stall=Stall(action="off"))
        )
    )
    sim.agent, sim.gates = script(worked("same")), script(graded(0.5, "a"))
    sim.run()
    assert under(sim.policy, sim) == ("max_iterations", 9)
    assert under(
        replace(sim.policy, limits=Limits(max_iterations=9, convergence=Convergence(patience=1))), sim
    ) == (
        "converged",
        3,
    )
    assert under(replace(sim.policy, monitors=Monitors()), sim) == ("health", 3)


def test_a_number_is_judged_by_the_new_mark_and_a_status_is_not():
    rule = Rule(name="tests")
    numbers = script(*(settle(rule, 0.9, Score(value)) for value in (0.5, 0.7, 0.95)))
    sim = Sim(policy(threshold=0.9), gates=numbers).run()
    assert sim.end[0] == "quality_reached" and sim.state.iteration == 3
    assert under(policy(threshold=0.6), sim) == ("quality_reached", 2)
    assert under(policy(threshold=0.99), sim) == (BEYOND, 3)
    red = Sim(policy(threshold=0.9), gates=script(FAIL, PASS)).run()
    assert under(policy(threshold=0.1), red) == ("quality_reached", 2)


def test_weights_and_required_count_anew():
    sim = Sim(policy(gates=(Rule(name="a"), Rule(name="b"))), gates={"a": PASS, "b": FAIL}).run()
    assert under(policy(gates=(Rule(name="a"), Rule(name="b", required=False))), sim) == (
        "quality_reached",
        1,
    )
    assert under(policy(gates=(Rule(name="a"),)), sim) == ("quality_reached", 1)


def test_a_gate_that_never_judged_says_nothing():
    facts = record(history(Sim(policy()).run()))
    assert unfit(policy(gates=(Rule(name="other"),)), facts) == "other never judged it"
    assert unfit(policy(), facts) == ""


def test_attempts_that_never_were_are_beyond_the_record():
    sim = Sim(policy(limits=Limits(attempts=1, max_iterations=2)), agent=script(failed("transient"))).run()
    assert under(policy(limits=Limits(attempts=3, max_iterations=2)), sim) == (BEYOND, 1)
    more = Sim(policy(limits=Limits(attempts=3, max_iterations=2)), agent=script(failed("transient"))).run()
    assert under(policy(limits=Limits(attempts=1, max_iterations=2)), more) == (BEYOND, 1)


def test_an_attempt_that_would_have_been_cut_is_beyond_the_record():
    sim = Sim(policy(), agent=script(worked(seconds=100))).run()
    tested = backtest(policy(limits=Limits(attempt_timeout=60)), record(history(sim)))
    assert tested.would.reason == BEYOND and "would have been cut after 60 s" in tested.would.explanation


def test_a_person_who_was_not_asked_gave_no_answer():
    sim = Sim(policy(), gates=script(PASS)).run()
    assert under(policy(approval=Asking(when="passed")), sim) == ("approval_requested", 1) or under(
        policy(approval=Asking(when="passed")), sim
    ) == (BEYOND, 1)
    asked = Sim(policy(approval=Asking(when="passed")), gates=script(PASS), people=answered("reject")).run()
    assert under(asked.policy, asked) == ("rejected", 1)
    assert under(policy(), asked) == ("quality_reached", 1)


def test_who_stopped_it_and_had_it_go_on_is_not_counted():
    sim = Sim(policy(), signals={3: [ev.StopRequested(by="ann")]}).run()
    assert under(policy(), sim) == ("stopped_by_user", 1)
    sim.record(ev.RunReopened(by="ann"))
    sim.run()
    assert under(policy(), sim) == ("max_iterations", 6)


def test_a_loop_that_was_changed_is_known_up_to_there():
    sim = Sim(policy(limits=Limits(max_iterations=2))).run()
    sim.record(ev.RunReopened(), ev.PolicyChanged(spec={"goal": "other"}, digest="other"))
    sim.policy = policy(limits=Limits(max_iterations=4))
    sim.run()
    assert under(policy(), sim) == (BEYOND, 2)


@pytest.mark.parametrize("action", ["restored", "blocked"])
def test_what_became_of_evidence_during_an_attempt_is_part_of_it(action):
    def tampers(_attempt):
        sim.record(ev.EvidenceChanged(paths=("conftest.py",), action=action, digest="d2"))
        return worked()

    sim = Sim(policy(limits=Limits(max_iterations=3)), agent=tampers, gates=script(FAIL, FAIL, PASS))
    tested = backtest(sim.run().policy, record(history(sim)))
    assert tested.same, tested.would
    assert tested.really == tested.would
