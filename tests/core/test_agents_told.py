"""What real agents and judging models tell: sessions, refusals, doubts, and money of gates and days."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import timedelta

import pytest
from sim import BEGIN, FAIL, PASS, REQUIRED, Sim, answered, failed, script, worked

from loopwright.core import events as ev
from loopwright.core.apply import apply
from loopwright.core.decide import decide
from loopwright.core.head import document, explanation
from loopwright.core.judge import Rule
from loopwright.core.limits import Limits, reserve_usd
from loopwright.core.policy import Asking, Expire, Policy, RunAgent, Wait
from loopwright.core.state import LoopState, Totals
from loopwright.core.values import Score, Session, Usage, together

UNSURE = Score(0.9, "looks right", status="pass", unsure=True)


def used(session=None, cost=0.5, tokens=10, denied=(), **parts):
    usage = Usage(cost_usd=cost, tokens=tokens, **parts)
    return ev.AttemptSucceeded(result="x", seconds=1.0, usage=usage, session=session, denied=denied)


def sim(gates=None, agent=None, people=None, signals=None, when="never", limits=None, **more) -> Sim:
    policy = Policy(
        gates=REQUIRED,
        threshold=0.8,
        limits=limits or Limits(max_iterations=4),
        approval=Asking(when=when),
        **more,
    )
    return Sim(
        policy,
        agent=agent or script(worked()),
        gates=gates or script(FAIL),
        people=people,
        signals=signals or {},
    ).run()


def asked_of(run: Sim) -> list[ev.ApprovalRequested]:
    return [e for _, e in run.facts if isinstance(e, ev.ApprovalRequested)]


def sessions(run: Sim) -> list[Session | None]:
    return [start.session for start in run.starts]


# ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_next_attempt_is_told_the_session_and_what_was_used_in_it():
    first = used("s1", input_tokens=3)
    run = sim(agent=script(first, used("s1", cost=0.25, tokens=5), used("s2", cost=None)))
    before = [
        None if s is None else (s.id, s.usage.cost_usd, s.usage.tokens, s.iteration) for s in sessions(run)
    ]
    assert before == [None, ("s1", 0.5, 10, 1), ("s1", 0.75, 15, 2), ("s2", None, 10, 3)]
    assert sessions(run)[2].usage.input_tokens == 3


def test_a_session_outlives_a_failure_that_does_not_name_one_and_ends_where_it_is_said_to_be_gone():
    run = sim(agent=script(used("s1"), failed("unknown"), replace(failed("unknown"), session=""), worked()))
    assert [s and s.id for s in sessions(run)] == [None, "s1", "s1", None]


def test_a_full_session_is_not_gone_on_with():
    run = sim(agent=script(used("s1"), replace(failed("context_overflow"), session="s1"), used("s3")))
    assert [s and s.id for s in sessions(run)] == [None, "s1", None, "s3", "s3"]


# ── what an agent was not allowed to do ─────────────────────────────────────────────────────────────────────────────


def test_what_was_not_allowed_twice_is_asked_about_once_the_gates_have_judged():
    run = sim(
        agent=script(used(denied=("Bash(make)", "Web")), used(denied=("Bash(make)",))),
        people=answered("reject"),
    )
    (asked,) = asked_of(run)
    assert (asked.about, asked.iteration) == ("blocked", 2)
    assert 'allow = ["Bash(make)"]' in asked.question
    assert run.end[0] == "rejected"
    assert run.outcomes == ["not_accepted", "not_accepted"]


def test_once_or_something_else_each_time_is_not_asked_about():
    run = sim(agent=script(used(denied=("a",)), used(denied=("b",)), used(), used(denied=("b",))))
    assert asked_of(run) == []


@pytest.mark.parametrize("answer", ["approve", "revise"])
def test_who_goes_on_without_it_is_asked_again_only_when_it_is_refused_twice_more(answer):
    note = {"note": "without make"} if answer == "revise" else {}
    run = sim(
        agent=script(used(denied=("a",))), people=answered(answer, **note), limits=Limits(max_iterations=5)
    )
    assert [asked.iteration for asked in asked_of(run)] == [2, 4]
    assert run.end[0] == "max_iterations"


def test_another_loop_takes_back_the_question_and_the_agent_is_tried_with_what_it_may_now():
    for run in (sim(agent=script(used(denied=("a",)))), sim(agent=script(failed("blocked")))):
        state, asked = LoopState(), False
        for at, fact in run.facts:
            if not asked:
                state, asked = apply(state, fact, at), isinstance(fact, ev.ApprovalRequested)
        assert isinstance(decide(run.policy, state, run.now), Wait | Expire)
        state = apply(state, ev.PolicyChanged(spec={}, digest="other"), run.now)
        assert state.approval is None
        assert isinstance(decide(run.policy, state, run.now), RunAgent)


def test_a_command_of_many_lines_is_shown_on_one_with_a_line_that_a_loop_file_can_hold():
    what = 'Bash(npm "x"\n\t\\ \x7f)'
    (asked,) = asked_of(sim(agent=script(used(denied=(what,)))))
    assert "\n" not in asked.question
    assert 'Bash(npm "x" \\' in asked.question
    line = asked.question.partition("(allow")[2].partition(" in the agent's table")[0]
    assert tomllib.loads(f"allow{line}") == {"allow": [what]}


def test_work_that_passes_is_not_held_back_by_what_was_refused_on_the_way():
    run = sim(agent=script(used(denied=("a",))), gates=script(FAIL, PASS))
    assert (asked_of(run), run.end[0]) == ([], "quality_reached")


# ── an opinion too weak to be believed alone ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("when", ["never", "passed", "always", "alert"])
def test_a_pass_that_is_not_sure_is_for_a_person_whatever_is_said_of_approvals(when):
    run = sim(gates=script(UNSURE), people=answered("approve"), when=when)
    (asked,) = asked_of(run)
    assert (asked.about, run.end[0]) == ("accept", "quality_reached")
    assert "tests not sure" in asked.question


def test_a_sure_pass_and_an_unsure_fail_ask_nobody():
    assert asked_of(sim(gates=script(replace(UNSURE, unsure=False)))) == []
    assert asked_of(sim(gates=script(replace(UNSURE, status="fail")))) == []


def test_an_advisory_doubt_asks_nobody():
    rules = (Rule(name="tests"), Rule(name="judge", required=False))
    run = Sim(
        Policy(gates=rules, threshold=0.8), gates=lambda name: UNSURE if name == "judge" else PASS
    ).run()
    assert asked_of(run) == []


def test_with_until_limits_a_doubtful_pass_is_none():
    run = sim(gates=script(UNSURE), until="limits")
    assert run.end[0] == "max_iterations"
    assert "not sure enough" in " ".join(run.state.last.reasons)


def test_a_doubt_about_iteration_0_does_not_finish_the_run():
    run = sim(gates=script(UNSURE, PASS), baseline=True, if_passing="finish")
    assert run.end[0] == "quality_reached"


# ── money ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_gate_spends_is_the_runs_money():
    run = Sim(Policy(gates=REQUIRED), gates=script(PASS))
    run.record(ev.AttemptStarted(iteration=1, attempt=1, key="r/1", allowance_s=1.0), worked(cost=1.0))
    for cost in (0.25, 0.5):
        usage = Usage(cost_usd=cost, tokens=7)
        run.record(ev.GateScored(gate="tests", score=PASS, seconds=0.1, usage=usage))
    state = run.state
    assert (state.totals.cost_usd, state.totals.tokens, state.gate_costs) == (1.75, 24, {"tests": 0.75})
    assert (state.current.cost_usd, state.current.tokens) == (1.75, 24)
    run.record(ev.GateScored(gate="tests", score=PASS, seconds=0.1, usage=Usage()))
    assert (run.state.totals.unknown_costs, run.state.totals.unknown_tokens) == (1, 1)
    assert (run.state.current.cost_usd, run.state.current.tokens) == (None, None)


def test_a_plan_that_paid_for_one_attempt_is_remembered():
    run = Sim(Policy(gates=REQUIRED), gates=script(PASS))
    run.record(ev.AttemptStarted(iteration=1, attempt=1, key="r/1", allowance_s=1.0))
    assert not document(run.state)["plan"]
    run.record(replace(failed("transient"), usage=Usage(tokens=5, plan=True)))
    assert document(run.state)["plan"]
    run.record(ev.AttemptStarted(iteration=1, attempt=2, key="r/1", allowance_s=1.0), worked(cost=1.0))
    assert document(run.state)["plan"]


def test_a_wait_into_another_day_names_the_day():
    run = Sim(Policy(gates=REQUIRED), gates=script(PASS))
    run.record(ev.AttemptStarted(iteration=1, attempt=1, key="r/1", allowance_s=1.0), failed("rate_limited"))
    now = run.state.updated_at
    run.record(ev.WaitStarted(until=now + timedelta(seconds=60), seconds=60.0, why="rate limited"))
    assert "until 12:" in explanation(run.state)
    run.record(ev.WaitStarted(until=now + timedelta(days=2), seconds=172800.0, why="rate limited"))
    assert "until 2026-03-03 12:" in explanation(run.state)


def test_together_is_unknown_where_one_is():
    assert together([Usage(cost_usd=1.0, tokens=2), Usage(cost_usd=2.0, tokens=3, model="m")]) == Usage(
        cost_usd=3.0, tokens=5, model="m"
    )
    assert together([Usage(cost_usd=1.0), Usage(tokens=3)]) == Usage()
    assert together([]) == Usage(cost_usd=0.0, tokens=0, turns=0, input_tokens=0, cache_write_tokens=0,
                                 cache_read_tokens=0, output_tokens=0)  # fmt: skip


DAY = Limits(budget_per_day=2.0, reserve=0.5)


@pytest.mark.parametrize(
    ("spent", "day", "ends"),
    [(1.0, "2026-03-01", False), (1.5, "2026-03-01", False), (1.6, "2026-03-01", True), (2.0, "2026-03-01", True),
     (9.0, "2026-02-28", False)],
)  # fmt: skip
def test_a_day_that_has_no_money_left_ends_the_run(spent, day, ends):
    run = Sim(Policy(gates=REQUIRED, limits=DAY))
    run.record(ev.DaySpent(day=day, cost_usd=spent))
    command = decide(run.policy, run.state, run.now)
    assert isinstance(command, RunAgent) is not ends
    if ends:
        assert command.finished.reason == "budget"
        assert "on 2026-03-01 (UTC) by all runs here" in command.finished.explanation


def test_the_next_day_has_its_own_money():
    run = Sim(Policy(gates=REQUIRED, limits=DAY))
    run.record(ev.DaySpent(day="2026-03-01", cost_usd=5.0))
    run.now = BEGIN + timedelta(days=1)
    run.record(ev.NoteAdded(text="good morning"))
    assert isinstance(decide(run.policy, run.state, run.now), RunAgent)


def test_an_unknown_cost_breaks_the_budget_of_a_day_too():
    run = sim(agent=script(worked(cost=None)), limits=Limits(budget_per_day=2.0))
    assert run.end[0] == "cost_unknown"


def test_what_is_set_aside_of_a_day_is_the_estimate_else_the_dearest_else_what_its_ledger_says():
    known = Totals(known_costs=1, dearest_usd=0.25)
    nothing = Totals(known_costs=1)
    assert reserve_usd(DAY, Totals()) == 0.5
    assert reserve_usd(Limits(budget_per_day=2.0), known) == 0.25
    assert reserve_usd(Limits(budget_per_day=2.0), Totals()) is None
    assert reserve_usd(Limits(budget_per_day=2.0, budget=9.0), Totals()) is None
    assert reserve_usd(Limits(budget_per_day=2.0), nothing) is None
    assert reserve_usd(Limits(budget=9.0), nothing) == 9.0


def test_no_attempt_is_measured_by_one_that_failed_before_it_cost_anything():
    refused = replace(failed("rate_limited"), usage=Usage(cost_usd=0.0, tokens=0))
    run = sim(
        agent=script(refused, used(cost=0.25), refused, used(cost=0.0)),
        limits=Limits(max_iterations=3, budget=2.0),
    )
    assert [start.reserve_usd for start in run.starts] == [2.0, 2.0, 0.25, 0.25, 0.25]
    free = sim(agent=script(used(cost=0.0)), limits=Limits(max_iterations=2, budget=2.0))
    assert [start.reserve_usd for start in free.starts] == [2.0, 0.0]
