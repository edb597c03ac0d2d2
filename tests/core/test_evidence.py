"""What gates judge by: tampering never passes, gates that rewrite the work come to an end."""

from __future__ import annotations

import pytest
from sim import BROKEN, FAIL, PASS, REQUIRED, Sim, answered, failed, graded, script, worked

from loopwright.core import events as ev
from loopwright.core.decide import decide
from loopwright.core.judge import Rule
from loopwright.core.limits import Limits
from loopwright.core.policy import Asking, Policy, RunGates
from loopwright.core.values import Score

STOP = ev.StopRequested()


def touched(action: str, digest: str | None = "d2") -> ev.EvidenceChanged:
    return ev.EvidenceChanged(paths=("conftest.py",), action=action, digest=digest)


def sim(*signals, gates=None, people=None, on_timeout="hold", most=3) -> Sim:
    asking = Asking(on_timeout=on_timeout)
    run = Policy(gates=REQUIRED, threshold=1.0, limits=Limits(max_iterations=most), approval=asking)
    return Sim(run, gates=gates or script(PASS), people=people, signals=dict(enumerate(signals, 1))).run()


def test_a_blocked_change_never_passes_and_what_to_undo_is_the_feedback():
    run = sim([touched("blocked")])
    assert (run.end[0], set(run.outcomes)) == ("max_iterations", {"not_accepted"})
    assert "undo conftest.py" in run.starts[1].feedback.reasons[0]


def test_tampered_work_is_never_the_best_nor_a_mark_for_later_work():
    measured = Score(0.9, status="fail", raw=90.0, direction="max", graded=True)
    run = sim([touched("blocked")], gates=script(measured))
    assert (run.state.best, run.state.peak, run.state.measured) == (None, None, {})


def test_an_undone_change_passes_again():
    run = sim([touched("blocked")], [], [], [], [], [touched("restored", "d1")])
    assert (run.end[0], run.state.best.iteration, run.state.evidence) == ("quality_reached", 2, "d1")


@pytest.mark.parametrize("at", [1, 2, 3])
def test_restored_evidence_is_judged_again(at):
    signals = [[], [], []]
    signals[at - 1] = [touched("restored")]
    run = sim(*signals)
    assert run.end[0] == "quality_reached"
    assert sum(isinstance(c, RunGates) for c in run.commands) == (1 if at == 1 else 2)


def test_evidence_may_be_put_back_while_the_attempt_is_open():
    run = Sim(Policy(gates=REQUIRED))
    run.record(ev.AttemptStarted(iteration=1, attempt=1, key="k", allowance_s=1.0), touched("restored", None))
    assert (run.state.phase, run.state.evidence) == ("executing", None)


def test_an_approved_change_is_the_new_baseline():
    run = sim([touched("asked")], people=answered("approve"))
    assert (run.end[0], run.state.evidence, run.state.tampered) == ("quality_reached", "d2", None)
    assert run.state.subject == "evidence"


def test_a_change_that_is_to_be_revised_never_passes():
    run = sim([touched("asked")], people=answered("revise", note="put it back"))
    assert (run.end[0], run.state.requests) == ("max_iterations", 1)
    assert run.starts[1].feedback.notes == ("put it back",)


def test_a_change_put_back_with_the_answer_is_judged_again():
    run = sim([touched("asked")], [], [touched("restored", "d1")], people=answered("revise"))
    assert run.end[0] == "quality_reached"


@pytest.mark.parametrize(
    ("people", "on_timeout", "end"),
    [
        (answered("reject"), "hold", ("rejected", "stopped")),
        (None, "hold", "paused"),
        (None, "reject", ("rejected", "stopped")),
        (None, "continue", ("max_iterations", "failed")),
    ],
)
def test_a_change_nobody_accepts(people, on_timeout, end):
    assert sim([touched("asked")], people=people, on_timeout=on_timeout).end == end


@pytest.mark.parametrize("action", ["restored", "accepted"])
def test_a_change_undone_or_accepted_while_a_person_is_asked_needs_no_answer(action):
    run = Sim(Policy(gates=REQUIRED, threshold=1.0), gates=script(PASS))
    run.perform(decide(run.policy, run.state, run.now))
    run.record(touched("asked"))
    run.perform(decide(run.policy, run.state, run.now))
    assert (run.state.phase, run.state.approval.about) == ("human_review", "evidence")
    run.record(touched(action))
    assert (run.state.approval, run.run().end[0]) == (None, "quality_reached")


def test_no_attempt_makes_a_change_nobody_accepted_the_true_evidence():
    run = sim([touched("asked")], people=None, on_timeout="continue", most=1)
    run.record(ev.LimitsChanged(limits={"max_iterations": 9}), ev.RunReopened())
    start = ev.AttemptStarted(iteration=2, attempt=1, key="k", allowance_s=1.0, evidence="d2")
    run.record(start, ev.AttemptSucceeded(result=1, seconds=1.0, evidence="d2"))
    assert run.state.evidence is None
    run.record(touched("restored", None))
    assert run.state.evidence is None


def test_a_stop_asks_nobody_about_evidence():
    run = sim([touched("asked"), STOP])
    assert (run.end[0], run.state.requests) == ("stopped_by_user", 0)


# Gates that write


def writers(*gates: str) -> Sim:
    """Each of these gates changes the tree whenever it runs."""
    run = Sim(Policy(gates=tuple(Rule(name=g) for g in gates), threshold=1.0), gates=script(PASS))
    score = run.score
    trees = iter(range(1000))

    def write(gate: str) -> None:
        run.record(ev.WorkspaceChanged(snapshot=f"tree {next(trees)}", cause="gate"))
        score(gate)

    run.score = write
    return run


def test_a_gate_that_writes_voids_the_scores_before_it():
    run = writers("fmt")
    assert run.run().end[0] == "quality_reached"
    run = Sim(Policy(gates=(Rule(name="tests"), Rule(name="fmt")), threshold=1.0), gates=script(PASS))
    run.perform(decide(run.policy, run.state, run.now))
    run.score("tests")
    run.record(ev.WorkspaceChanged(snapshot="formatted", cause="gate"))
    run.score("fmt")
    assert decide(run.policy, run.state, run.now) == RunGates(iteration=1, missing=("tests",))


def test_gates_that_rewrite_each_others_work_for_ever_do_not_pass_and_do_not_loop():
    run = writers("fmt", "other").run(200)
    assert run.end[0] != "quality_reached"
    assert "the gates changed the work they judge" in run.state.last.reasons[0]


def test_a_change_by_gates_between_iterations_is_none_of_the_next_ones():
    run = sim(gates=script(FAIL), most=1)
    run.record(ev.LimitsChanged(limits={"max_iterations": 9}), ev.RunReopened())
    run.record(*(ev.WorkspaceChanged(snapshot=f"t{n}", cause="gate") for n in range(9)))
    run.gates = script(PASS)
    assert run.run().end[0] == "quality_reached"


def test_a_change_by_gates_before_the_work_is_done_is_not_held_against_it():
    run = Sim(
        Policy(gates=REQUIRED, threshold=1.0), agent=script(failed("no_op"), worked()), gates=script(PASS)
    )
    run.perform(decide(run.policy, run.state, run.now))
    run.record(*(ev.WorkspaceChanged(snapshot=f"t{n}", cause="gate") for n in range(9)))
    assert (run.run().end[0], run.outcomes) == ("quality_reached", ["accepted"])


# Iteration 0 and another policy


def zero(gates, **more) -> Sim:
    run = Policy(gates=REQUIRED, threshold=1.0, baseline=True, limits=Limits(max_iterations=2), **more)
    return Sim(run, gates=gates).run()


def test_iteration_0_is_feedback_best_and_base_and_no_attempt():
    run = Sim(Policy(gates=REQUIRED, threshold=1.0, baseline=True), gates=script(graded(0.5, "a"), PASS))
    run.record(ev.WorkspaceChanged(snapshot="s0", cause="baseline"))
    run.run()
    assert run.starts[0].feedback.reasons == ("tests: at 0.5",)
    assert (run.starts[0].best.iteration, run.state.base, run.state.zero.score) == (0, "s0", 0.5)
    assert (run.state.closed, [c.number for c in run.state.recent]) == (1, [1])


def test_iteration_0_is_judged_again_when_its_tools_were_mended():
    run = zero(script(BROKEN, FAIL, PASS))
    assert run.end[0] == "gate_error"
    run.record(ev.RunReopened())
    assert (run.run().end[0], len(run.starts)) == ("quality_reached", 1)
    assert run.state.baseline.reasons == ("tests: it is red",)


def test_iteration_0_cut_off_is_run_again():
    run = Sim(zero(script(PASS)).policy, gates=script(FAIL), signals={1: [ev.StopRequested(now=True)]}).run()
    assert (run.end[0], run.state.zero) == ("stopped_by_user", None)
    run.record(ev.RunReopened())
    run.run()
    assert run.state.zero.score == 0.0


def test_another_policy_is_judged_by_its_own_gates():
    run = zero(script(graded(0.4), graded(0.9), graded(0.9)))
    run.record(ev.LimitsChanged(limits={"max_iterations": 5}), ev.RunReopened())
    run.record(ev.PolicyChanged(spec={"goal": "other"}, digest="e"))
    assert (run.state.best, run.state.peak, run.state.digest) == (None, None, "e")
    assert run.state.fresh_from == 2


def test_another_policy_before_the_first_attempt_runs_iteration_0_again():
    run = Sim(zero(script(PASS)).policy, gates=script(FAIL))
    for _ in range(3):
        run.perform(decide(run.policy, run.state, run.now))
    run.record(ev.PolicyChanged(spec={}, digest="e"))
    assert decide(run.policy, run.state, run.now) == RunGates(iteration=0, missing=("tests",))


def test_an_approval_given_for_another_policy_is_none():
    limits = Limits(max_iterations=1)
    run = Policy(gates=REQUIRED, until="limits", limits=limits, approval=Asking(when="passed"))
    sim = Sim(run, gates=script(PASS))
    for _ in range(5):
        sim.perform(decide(run, sim.state, sim.now))
    yes = answered("approve", edits={"max_iterations": 2})(sim.state.approval)
    sim.record(yes, ev.PolicyChanged(spec={}, digest="e"))
    assert (sim.state.answer, sim.run().state.requests, len(sim.starts)) == (None, 2, 2)
