"""Bounds: met by every iteration, survived by every resume, raised only by people."""

from __future__ import annotations

import pytest
from sim import FAIL, PASS, REQUIRED, Sim, crashed, failed, graded, script, worked

from loopwright.core import events as ev
from loopwright.core.limits import Convergence, Limits, exceeded, in_force
from loopwright.core.policy import Asking, Policy, RunAgent


def sim(agent=None, gates=None, signals=None, **limits) -> Sim:
    run = Policy(gates=REQUIRED, threshold=1.0, limits=Limits(**{"max_iterations": 30, **limits}))
    more = {"agent": agent, "gates": gates, "signals": signals}
    return Sim(run, **{k: v for k, v in more.items() if v is not None}).run()


@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_exactly_n_starts_at_max_iterations_n(n):
    assert len(sim(max_iterations=n, max_duration=1e6).starts) == n


@pytest.mark.parametrize(
    ("limits", "reason", "starts"),
    [
        ({"max_iterations": 4}, "max_iterations", 4),
        ({"max_duration": 3.0}, "max_duration", 3),
        ({"budget": 1.0}, "budget", 4),
        ({"max_tokens": 35}, "max_tokens", 4),
        ({"max_consecutive_errors": 2}, "consecutive_errors", 2),
    ],
)
def test_an_errored_iteration_meets_every_limit(limits, reason, starts):
    run = sim(agent=script(failed("unknown", cost=0.25)), **{"max_consecutive_errors": 20, **limits})
    assert (run.end[0], len(run.starts), set(run.outcomes)) == (reason, starts, {"errored"})


def test_a_success_ends_a_row_of_errors():
    turns = script(*[failed("unknown"), failed("unknown"), worked()] * 9)
    assert sim(agent=turns, max_iterations=20).end[0] == "max_iterations"


def test_a_cut_iteration_neither_counts_as_an_error_nor_ends_a_row_of_them():
    asking = Asking(on_timeout="continue")
    run = Policy(gates=REQUIRED, limits=Limits(max_iterations=9), approval=asking)
    errors = [failed("unknown")] * 2
    row = Sim(run, agent=script(*errors, failed("blocked"), failed("unknown"))).run()
    assert (row.end[0], row.outcomes) == ("consecutive_errors", ["errored", "errored", "cut", "errored"])


# Money


def test_a_budget_does_not_stop_the_first_attempt_and_all_of_it_is_its_cap():
    run = sim(agent=script(worked(cost=0.3)), gates=script(PASS), budget=2.0)
    assert (run.end[0], run.starts[0].reserve_usd, run.starts[0].left.budget_usd) == (
        "quality_reached",
        2.0,
        2.0,
    )


def test_the_dearest_attempt_so_far_is_set_aside_for_the_next():
    run = sim(agent=script(worked(cost=0.1), worked(cost=0.6), worked(cost=0.1)), budget=1.35)
    assert [a.reserve_usd for a in run.starts] == [1.35, 0.1, 0.6]
    assert "$0.80 of $1.35" in run.state.finished.explanation


def test_an_attempt_known_to_cost_nothing_sets_nothing_aside():
    assert [a.reserve_usd for a in sim(agent=script(worked(cost=0.0)), budget=1.0).starts[:2]] == [1.0, 0.0]


def test_the_estimate_is_set_aside_when_there_is_one():
    run = sim(agent=script(worked(cost=0.01)), budget=1.0, reserve=0.4)
    assert {a.reserve_usd for a in run.starts} == {0.4}


def test_an_estimate_without_a_budget_is_still_told_to_the_agent():
    assert sim(gates=script(PASS), reserve=0.4).starts[0].reserve_usd == 0.4


def test_an_unknown_cost_books_the_estimate():
    run = sim(agent=script(worked(cost=None)), budget=1.0, reserve=0.4)
    assert (run.end[0], len(run.starts)) == ("budget", 2)


def test_an_unknown_cost_without_an_estimate_stops_a_run_with_a_budget_only():
    assert sim(agent=script(worked(cost=None)), budget=5.0).end[0] == "cost_unknown"
    assert sim(agent=script(worked(cost=None)), gates=script(FAIL, PASS)).end[0] == "quality_reached"


def test_a_budget_known_to_be_spent_is_said_before_an_unknown_cost():
    run = sim(agent=script(worked(cost=None)), signals={4: [ev.LimitsChanged(limits={"budget": 0.5})]})
    assert run.end[0] == "cost_unknown"
    run = sim(agent=script(failed("transient", cost=None), worked(cost=5.0)), budget=1.0, reserve=0.1)
    assert run.end[0] == "budget"


def test_a_crash_books_the_reserve_and_is_no_measure_for_later_attempts():
    run = sim(agent=script(crashed(), worked(cost=0.1)), gates=script(FAIL, PASS), budget=2.0, reserve=0.5)
    assert (run.state.totals.cost_usd, run.state.totals.dearest_usd) == (0.5 + 0.1 + 0.1, 0.1)
    assert sim(agent=script(crashed(), worked()), budget=2.0).end[0] == "budget"  # all that was left


def test_a_crash_without_a_reserve_is_an_unknown_cost():
    run = sim(agent=script(crashed(), worked()), gates=script(PASS))
    assert (run.state.totals.unknown_costs, run.state.totals.cut) == (1, 1)


def test_an_attempt_cut_off_books_as_many_tokens_as_the_hungriest_one():
    run = sim(agent=script(worked(), crashed(), worked()), max_tokens=35)
    assert (run.end[0], run.state.totals.tokens) == ("max_tokens", 30)
    assert [a.left.tokens for a in run.starts] == [35, 25, 15, 5]


def test_tokens_not_told_stop_a_run_that_bounds_them():
    silent = ev.AttemptSucceeded(result=1, seconds=1.0)
    run = sim(agent=script(silent), max_tokens=100)
    assert (run.end[0], len(run.starts)) == ("cost_unknown", 1)
    assert "tokens" in run.state.finished.explanation
    assert sim(agent=script(silent), gates=script(FAIL, PASS)).end[0] == "quality_reached"


# Time and waiting


def test_gates_count_towards_the_duration_and_waits_do_not():
    run = sim(agent=script(failed("transient", retry_after=500), worked()), max_duration=4.3)
    assert run.end[0] == "max_duration"
    assert run.state.totals.seconds == pytest.approx(1 + 3 * 1.1)


def test_an_attempt_may_take_what_is_left_of_the_duration():
    run = sim(agent=script(worked(seconds=600)), max_duration=1800)
    assert [round(a.deadline_s) for a in run.starts] == [900, 900, 600]


def test_waits_together_never_pass_max_wait():
    run = sim(agent=script(failed("rate_limited")), max_wait=100)
    assert run.end[0] == "max_wait"
    assert run.waits == [5, 10, 20, 40, 25]
    assert run.state.totals.waited_s == 100


def test_a_wait_that_was_begun_is_waited_out_and_followed_by_an_attempt():
    run = sim(agent=script(failed("rate_limited", retry_after=60), worked()), gates=script(PASS), max_wait=70)
    assert (run.end[0], run.waits) == ("quality_reached", [65])


def test_a_wait_longer_than_is_left_ends_the_run_without_waiting():
    run = sim(agent=script(failed("rate_limited", retry_after=101)), max_wait=100)
    assert (run.end[0], run.waits, run.outcomes) == ("max_wait", [], ["cut"])
    assert "101 s" in run.state.finished.explanation


def test_a_bound_on_waits_lowered_below_what_was_waited_ends_the_run():
    lowered = [ev.LimitsChanged(limits={"max_wait": 1})]
    run = sim(agent=script(failed("rate_limited"), worked()), signals={5: lowered})
    assert run.end[0] == "max_wait"


# Limits changed by people


def test_a_changed_limit_binds_from_the_next_decision_on():
    changed = [ev.LimitsChanged(limits={"max_iterations": 3.0}, key="limits/1")]
    run = sim(signals={2: changed})
    assert len(run.starts) == 3
    assert in_force(run.policy.limits, run.state).max_iterations == 3
    assert isinstance(in_force(run.policy.limits, run.state).max_iterations, int)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_iteration", 3),
        ("threshold", 0.5),
        ("convergence", 3),
        ("max_iterations", 2.5),
        ("max_iterations", 0),
        ("budget", -1),
        ("budget", float("nan")),
        ("max_wait", float("inf")),
        ("max_duration", 1e300),
        ("max_tokens", True),
        ("budget", "5"),
    ],
)
def test_limits_that_are_none_are_refused_as_a_fact_and_in_an_answer(name, value):
    with pytest.raises(ValueError, match=name):
        ev.LimitsChanged(limits={name: value})
    with pytest.raises(ValueError, match=name):
        ev.ApprovalDecided(id="a", answer="approve", edits={name: value})


def test_what_is_left_counts_down():
    run = sim(agent=script(failed("transient"), worked()), max_iterations=3)
    assert [(a.iteration, a.left.iterations, a.left.attempts) for a in run.starts] == [
        (1, 2, 3),
        (1, 2, 2),
        (2, 1, 3),
        (3, 0, 3),
    ]


# Reopening


def reopened(run: Sim, *before: ev.Event) -> Sim:
    run.record(*before, ev.RunReopened(by="ann"))
    return run


def test_iterations_and_money_do_not_start_anew_when_a_run_is_reopened():
    run = reopened(sim(max_iterations=2))
    assert exceeded(run.policy.limits, run.state)[0] == "max_iterations"
    run = reopened(sim(max_iterations=2), ev.LimitsChanged(limits={"max_iterations": 5}))
    assert len(run.run().starts) == 5


@pytest.mark.parametrize(
    ("agent", "gates"),
    [(script(failed("unknown")), None), (script(crashed()), None), (None, script(graded(0.5)))],
)
def test_streaks_start_anew_when_a_run_is_reopened(agent, gates):
    run = reopened(sim(agent=agent, gates=gates))
    first = run.facts[-2][1].reason
    before = len(run.starts)
    assert exceeded(run.policy.limits, run.state) is None
    assert run.run().end[0] == first
    assert len(run.starts) == 2 * before


def test_a_wait_asked_for_before_the_end_is_not_asked_for_after_a_reopening():
    run = reopened(sim(agent=script(failed("rate_limited", retry_after=101), worked()), max_wait=100))
    assert exceeded(run.policy.limits, run.state) is None
    assert run.run().end[0] == "max_iterations"


# Convergence: {window 3, within 0.01, patience 2} unless said otherwise


def converging(*scores, rule=None, baseline=False, signals=None, most=40) -> Sim:
    limits = Limits(max_iterations=most, convergence=rule or Convergence())
    run = Policy(gates=REQUIRED, threshold=1.0, limits=limits, baseline=baseline)
    return Sim(run, gates=script(*scores), signals=signals or {}).run()


def nudges(run: Sim) -> list[int]:
    return [n for kind, n in run.alerts if kind == "NO_PROGRESS"]


@pytest.mark.parametrize(("patience", "at", "end"), [(1, [], 3), (2, [3], 6), (3, [3, 6], 9)])
def test_no_progress_is_a_nudge_and_the_last_time_the_end(patience, at, end):
    run = converging(graded(0.5), rule=Convergence(patience=patience))
    assert (run.end[0], nudges(run), len(run.starts)) == ("converged", at, end)


def test_the_window_may_be_as_long_as_the_memory():
    run = converging(graded(0.5), rule=Convergence(window=32, patience=2), most=99)
    assert (run.end[0], nudges(run), len(run.starts)) == ("converged", [32], 64)


def test_a_run_longer_than_the_memory_still_converges():
    rising = [graded(0.01 * n) for n in range(1, 90)]
    run = converging(*rising, rule=Convergence(window=64, patience=1), most=400)
    assert (run.end[0], len(run.starts)) == ("converged", 88 + 64)  # what came before is forgotten


def test_what_a_run_no_longer_remembers_is_no_progress():
    rising = [graded(0.01 * n) for n in range(90)]
    run = converging(*rising, rule=Convergence(window=64, patience=1), most=400, baseline=True)
    assert (run.end[0], len(run.starts)) == ("converged", 88 + 64)


def test_iteration_0_is_what_the_first_window_is_measured_against():
    assert nudges(converging(graded(0.5), baseline=True)) == [3]
    assert nudges(converging(graded(0.4), graded(0.5), baseline=True)) == [4]
    assert nudges(converging(graded(0.5, "a"), graded(0.5), baseline=True)) == [4]


def test_small_steps_that_add_up_in_the_window_are_progress():
    assert converging(*[graded(round(0.3 + 0.004 * n, 3)) for n in range(50)]).end[0] == "max_iterations"
    assert converging(*[graded(round(0.3 + 0.003 * n, 3)) for n in range(50)]).end[0] == "converged"


def test_only_a_better_best_is_progress():
    assert converging(*[graded(v) for v in (0.5, 0.2, 0.3, 0.4, 0.45, 0.2, 0.3)]).end[0] == "converged"


def test_a_failing_set_that_lost_a_member_is_progress():
    names = [graded(0.5, *"abcdefghijklmnopqrstuvwxyz"[n // 3 :]) for n in range(60)]
    assert converging(*names).end[0] == "max_iterations"


def test_progress_between_two_nudges_starts_the_count_anew():
    run = converging(*[graded(0.5)] * 4, graded(0.7), rule=Convergence(patience=2))
    assert (nudges(run), run.end[0], len(run.starts)) == ([3, 8], "converged", 11)


def test_a_nudge_reaches_the_next_attempt_even_past_an_errored_iteration():
    turns = script(worked(), worked(), worked(), failed("unknown"), worked())
    limits = Limits(max_iterations=6)
    run = Sim(Policy(gates=REQUIRED, limits=limits), agent=turns, gates=script(graded(0.5, "a"))).run()
    assert [len(a.feedback.nudges) for a in run.starts] == [0, 0, 0, 1, 1, 0]
    assert "1 item still failing" in run.starts[3].feedback.nudges[0]


def test_pass_fail_gates_alone_never_converge():
    assert converging(FAIL).end[0] == "max_iterations"


def test_an_ungraded_iteration_is_not_looked_at():
    run = converging(graded(0.5), graded(0.5), FAIL, FAIL, graded(0.5), FAIL)
    assert (nudges(run), run.end[0]) == ([5], "max_iterations")
    assert nudges(converging(graded(0.5), FAIL, graded(0.5), FAIL, graded(0.5), FAIL)) == [5]


def test_alerts_of_no_progress_keep_the_rule_of_three_iterations():
    run = converging(graded(0.5), rule=Convergence(window=1, patience=5))
    assert (nudges(run), run.end[0], len(run.starts)) == ([1, 4], "converged", 5)


def test_convergence_can_be_off():
    run = Policy(gates=REQUIRED, limits=Limits(max_iterations=12, convergence=None))
    assert Sim(run, gates=script(graded(0.5))).run().end[0] == "max_iterations"


def test_the_limit_is_checked_before_every_start():
    run = sim(max_iterations=2)
    assert isinstance(run.commands[-5], RunAgent)
    assert sum(isinstance(c, RunAgent) for c in run.commands) == 2
