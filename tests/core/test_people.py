"""Stop, pause, questions and answers: what people say is done once, and nothing waits for nobody."""

from __future__ import annotations

import pytest
from sim import FAIL, PASS, REQUIRED, Sim, answered, failed, script, worked

from loopwright.core import events as ev
from loopwright.core.decide import decide
from loopwright.core.limits import Limits
from loopwright.core.policy import Ask, Asking, Close, Expire, Policy, RunAgent, RunGates, Wait
from loopwright.errors import IllegalEvent

PAUSE, STOP = ev.PauseRequested(), ev.StopRequested()
PAUSE_NOW, STOP_NOW = ev.PauseRequested(now=True), ev.StopRequested(now=True)


def sim(gates=None, agent=None, people=None, signals=None, when="never", on_timeout="hold", **more) -> Sim:
    asking = Asking(when=when, on_timeout=on_timeout)
    limits = Limits(max_iterations=4)
    run = Policy(gates=REQUIRED, threshold=1.0, limits=limits, approval=asking, **more)
    return Sim(
        run,
        agent=agent or script(worked()),
        gates=gates or script(FAIL),
        people=people,
        signals=signals or {},
    ).run()


def midway(*facts: ev.Event, **more) -> Sim:
    """A run whose first attempt is open, then these facts."""
    run = Sim(Policy(gates=REQUIRED, threshold=1.0, **more), gates=script(PASS))
    run.record(ev.AttemptStarted(iteration=1, attempt=1, key="r/1", allowance_s=1.0), *facts)
    return run


# Commands of a run: 0 agent, 1 gates, 2 judge, 3 close, 4 the next agent


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_stop_lets_the_iteration_finish(at):
    run = sim(signals={at: [STOP]})
    assert (run.end[0], run.outcomes, len(run.starts)) == ("stopped_by_user", ["not_accepted"], 1)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_stop_now_cuts_the_iteration(at):
    run = sim(signals={at: [STOP_NOW]})
    assert (run.end[0], run.outcomes, len(run.starts)) == ("stopped_by_user", ["cut"], 1)


def test_a_stop_now_waits_for_the_host_to_end_the_agent():
    run = midway(STOP_NOW)
    assert decide(run.policy, run.state, run.now) == Wait(until=None, why="the agent is at work")
    run.record(ev.AttemptInterrupted(cause="stop"))
    assert run.run().end[0] == "stopped_by_user"


def test_stop_now_is_not_weakened_by_a_later_stop():
    assert midway(STOP_NOW, STOP).state.stop == "now"
    assert midway(STOP, STOP_NOW).state.stop == "now"


@pytest.mark.parametrize("stop", [STOP, STOP_NOW])
@pytest.mark.parametrize("pause", [PAUSE, PAUSE_NOW])
@pytest.mark.parametrize("at", range(5))
def test_a_paused_run_can_be_stopped(pause, stop, at):
    run = sim(signals={at: [pause], 20: [stop]})
    assert run.end[0] == "stopped_by_user"


def test_a_stop_before_the_first_attempt_starts_nothing():
    assert sim(signals={0: [STOP]}).starts == []
    run = sim(signals={1: [STOP]}, baseline=True)
    assert (run.end[0], run.starts) == ("stopped_by_user", [])


def test_a_pause_waits_until_the_iteration_is_over():
    run = sim(signals={1: [PAUSE]})
    assert (run.end, run.outcomes, run.commands[-1]) == (
        "paused",
        ["not_accepted"],
        Wait(until=None, why="paused"),
    )


def test_a_pause_now_stops_before_the_next_start_of_agent_or_gate():
    for at, outcomes in ((1, []), (2, ["not_accepted"]), (4, ["not_accepted"])):
        run = sim(signals={at: [PAUSE_NOW]})
        assert (run.end, run.outcomes, len(run.starts)) == ("paused", outcomes, 1)


def test_a_pause_between_iterations_is_at_once():
    run = Sim(Policy(gates=REQUIRED))
    run.record(PAUSE)
    assert run.state.paused


def test_a_pause_asked_for_twice_stays_one():
    assert midway(PAUSE_NOW, PAUSE).state.paused


def test_a_cut_attempt_is_tried_again_after_the_pause():
    run = midway(PAUSE_NOW, ev.AttemptInterrupted(cause="pause"))
    assert run.run().end == "paused"
    run.record(ev.Resumed(by="ann"))
    assert (run.run().end[0], [a.number for a in run.starts]) == ("quality_reached", [2])


def test_accepted_work_is_complete_although_a_pause_was_asked_for():
    assert sim(gates=script(PASS), signals={1: [PAUSE]}).end[0] == "quality_reached"
    run = sim(gates=script(PASS), signals={3: [PAUSE_NOW]}, when="passed", people=answered("approve"))
    assert run.end[0] == "quality_reached"


def test_a_signal_applied_twice_counts_once():
    run = Sim(Policy(gates=REQUIRED))
    note = ev.NoteAdded(text="use tabs", key="note/1")
    run.record(note, note)
    run.record(ev.PauseRequested(key="pause/1"), ev.Resumed(), ev.PauseRequested(key="pause/1"))
    assert (run.state.notes, run.state.paused) == (("use tabs",), False)


def test_the_last_256_signals_are_remembered():
    run = Sim(Policy(gates=REQUIRED))
    run.record(*(ev.NoteAdded(text=f"{n}", key=f"note/{n}") for n in range(300)))
    assert (len(run.state.signals), run.state.signals[-1]) == (256, "note/299")
    assert run.state.notes == tuple(f"{n}" for n in range(280, 300))


# Acceptance


@pytest.mark.parametrize(
    ("when", "gates", "answer", "end", "asked"),
    [
        ("never", PASS, answered("reject"), "quality_reached", 0),
        ("passed", PASS, answered("approve"), "quality_reached", 1),
        ("passed", FAIL, answered("approve"), "max_iterations", 0),
        ("always", FAIL, answered("approve"), "max_iterations", 4),
        ("always", FAIL, answered("approve", override="good enough"), "quality_reached", 1),
        ("always", FAIL, answered("approve", override=""), "max_iterations", 4),
        ("always", FAIL, answered("revise", note="n"), "max_iterations", 4),
        ("always", FAIL, answered("reject"), "rejected", 1),
        ("alert", PASS, answered("reject"), "quality_reached", 0),
    ],
)
def test_who_is_asked_to_accept_and_what_the_answer_does(when, gates, answer, end, asked):
    run = sim(gates=script(gates), people=answer, when=when)
    assert (run.end[0], run.state.requests) == (end, asked)


def test_a_revision_closes_as_such_restarts_convergence_and_its_note_is_feedback():
    run = sim(gates=script(PASS), people=answered("revise", note="shorter"), when="passed")
    assert set(run.outcomes) == {"revised"}
    assert (run.starts[1].feedback.notes, run.state.fresh_from) == (("shorter",), 4)


@pytest.mark.parametrize(
    ("on_timeout", "end"),
    [("hold", "paused"), ("reject", ("rejected", "stopped")), ("continue", ("max_iterations", "failed"))],
)
def test_when_nobody_answers_in_time(on_timeout, end):
    run = sim(gates=script(PASS), when="passed", on_timeout=on_timeout)
    assert run.end == end
    assert "accepted" not in run.outcomes
    assert any(isinstance(c, Expire) for c in run.commands)


def test_a_run_on_hold_says_so_and_is_asked_again_by_a_resume():
    run = sim(gates=script(PASS), when="passed")
    assert run.commands[-1] == Wait(until=None, why="approval_expired")
    run.people = answered("approve")
    run.record(ev.Resumed(by="ann"))
    assert (run.run().end[0], run.state.requests) == ("quality_reached", 2)


def test_a_run_on_hold_can_be_stopped():
    run = sim(gates=script(PASS), when="passed", signals={20: [STOP]})
    assert (run.end[0], run.outcomes) == ("stopped_by_user", ["not_accepted"])


def test_a_request_names_its_subject_and_waits_until_its_deadline():
    run = Sim(Policy(gates=REQUIRED, approval=Asking(when="passed", timeout=60)), gates=script(PASS))
    for _ in range(4):
        run.perform(decide(run.policy, run.state, run.now))
    asked = run.state.approval
    assert (asked.number, asked.iteration, asked.about, (asked.deadline - run.now).seconds) == (
        1,
        1,
        "accept",
        60,
    )
    assert run.state.phase == "human_review"
    assert decide(run.policy, run.state, run.now) == Wait(
        until=asked.deadline, why=f"a person: {asked.question}"
    )
    assert decide(run.policy, run.state, asked.deadline) == Expire(id=asked.id)


def test_requests_about_different_things_have_different_ids():
    run = sim(gates=script(FAIL), people=answered("approve"), when="always")
    asked = [c.request for c in run.commands if isinstance(c, Ask)]
    assert len({a.id for a in asked}) == len({a.digest for a in asked}) == 4


@pytest.mark.parametrize(("stop", "outcome"), [(STOP, "not_accepted"), (STOP_NOW, "cut")])
def test_a_stop_while_a_person_is_asked_ends_the_run_without_their_answer(stop, outcome):
    run = sim(gates=script(PASS), when="passed", signals={4: [stop]})
    assert (run.end[0], run.outcomes, run.state.approval) == ("stopped_by_user", [outcome], None)
    assert not any(isinstance(c, Wait | Expire) for c in run.commands)


def test_an_approval_given_before_a_stop_still_completes():
    run = sim(gates=script(PASS), when="passed", people=answered("approve"), signals={5: [STOP]})
    assert run.end[0] == "quality_reached"


def test_limits_raised_with_an_answer_hold():
    run = sim(when="always", people=answered("revise", edits={"max_iterations": 6}))
    assert len(run.starts) == 6


def test_an_answer_applied_twice_counts_once_and_one_to_another_request_is_illegal():
    run = Sim(Policy(gates=REQUIRED, approval=Asking(when="passed")), gates=script(PASS))
    for _ in range(4):
        run.perform(decide(run.policy, run.state, run.now))
    with pytest.raises(IllegalEvent, match="not the open request"):
        run.record(ev.ApprovalDecided(id="other", answer="approve"))
    yes = answered("approve")(run.state.approval)
    run.record(yes)
    after = run.state
    run.record(yes)
    assert run.state.answer == after.answer
    assert decide(run.policy, run.state, run.now) == Close(outcome="accepted")


# The tree a person was asked about


def asked_about(snapshot: str | None) -> Sim:
    run = Sim(
        Policy(gates=REQUIRED, threshold=1.0, approval=Asking(when="passed")),
        agent=script(worked(snapshot)),
        gates=script(PASS),
    )
    for _ in range(4):
        run.perform(decide(run.policy, run.state, run.now))
    return run


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ("t1", {"snapshot": "t2"}),
        ("t1", {"snapshot": "t1", "evidence": "other"}),
        (None, {"snapshot": None}),
        ("t1", None),
    ],
)
def test_a_tree_that_moved_voids_scores_and_the_request(before, change):
    run = asked_about(before)
    if change is None:
        run.record(ev.PolicyChanged(spec={}, digest="e"))
    else:
        run.record(ev.WorkspaceChanged(**change))
    assert (run.state.approval, run.state.current.verdict) == (None, None)
    assert isinstance(decide(run.policy, run.state, run.now), RunGates)


def test_a_tree_that_did_not_move_voids_nothing():
    run = asked_about("t1")
    run.record(ev.WorkspaceChanged(snapshot="t1"))
    assert run.state.approval is not None


def test_an_approval_does_not_outlive_the_tree_it_was_given_for():
    run = asked_about("t1")
    run.record(answered("approve")(run.state.approval), ev.WorkspaceChanged(snapshot="t2"))
    run.people = answered("reject")
    assert run.run().end[0] == "rejected"


def test_a_change_while_blocked_leaves_the_question():
    run = Sim(Policy(gates=REQUIRED), agent=script(failed("blocked")))
    for _ in range(2):
        run.perform(decide(run.policy, run.state, run.now))
    run.record(ev.WorkspaceChanged(snapshot="t2"))
    assert run.state.approval.about == "blocked"
    run.record(answered("approve")(run.state.approval))
    assert isinstance(decide(run.policy, run.state, run.now), RunAgent)


# An acceptance stands on what a person was shown


VOIDING = {
    "another tree": ev.WorkspaceChanged(snapshot="t2"),
    "other evidence": ev.WorkspaceChanged(snapshot="t1", evidence="e2"),
    "a protected file": ev.EvidenceChanged(paths=("conftest.py",), action="asked", digest="d"),
    "another policy": ev.PolicyChanged(spec={}, digest="e"),
}


@pytest.mark.parametrize("change", VOIDING.values(), ids=VOIDING)
@pytest.mark.parametrize("said", ["approve", None])
def test_voided_scores_cannot_be_accepted(change, said):
    run = asked_about("t1")
    request = run.state.approval
    if said:
        run.record(ev.ApprovalDecided(id=request.id, answer=said, override="ship it"))
    run.record(change)
    with pytest.raises(IllegalEvent, match="without a verdict"):
        run.record(ev.IterationClosed(outcome="accepted"))
    if not said:
        with pytest.raises(IllegalEvent, match="not the open request"):
            run.record(ev.ApprovalDecided(id=request.id, answer="approve"))


def test_scores_stand_once_a_person_decided_about_them():
    run = asked_about("t1")
    run.record(answered("approve")(run.state.approval))
    with pytest.raises(IllegalEvent, match="after a person decided"):
        run.record(ev.GateScored(gate="tests", score=PASS, seconds=0.0, snapshot="t1"))


@pytest.mark.parametrize("said", ["revise", "reject", "expired"])
def test_only_an_approval_accepts(said):
    run = asked_about("t1")
    run.record(answered(said)(run.state.approval))
    with pytest.raises(IllegalEvent, match=f"the answer was {said}"):
        run.record(ev.IterationClosed(outcome="accepted"))


def test_another_change_than_the_one_shown_is_asked_about_anew():
    run = Sim(Policy(gates=REQUIRED, threshold=1.0), gates=script(PASS))
    run.perform(decide(run.policy, run.state, run.now))
    run.record(VOIDING["a protected file"])
    run.perform(decide(run.policy, run.state, run.now))
    first = run.state.approval
    run.record(ev.EvidenceChanged(paths=("conftest.py", "tox.ini"), action="asked", digest="d2"))
    assert run.state.approval is None
    run.perform(decide(run.policy, run.state, run.now))
    assert (run.state.approval.about, run.state.approval.id == first.id) == ("evidence", False)
    run.record(answered("approve")(run.state.approval))
    assert run.state.evidence == "d2"


def test_asking_again_counts_once():
    run = sim(gates=script(PASS), when="passed")
    again = ev.Resumed(by="ann", key="ask/1")
    run.record(again, ev.PauseRequested(now=True), again)
    assert run.state.paused


def test_a_loop_without_gates_is_accepted_by_a_person():
    asking = Asking(when="always")
    run = Sim(Policy(approval=asking), people=answered("approve")).run()
    assert (run.end[0], run.state.requests) == ("quality_reached", 1)
    assert "no gate looked at it" in next(c.request.question for c in run.commands if isinstance(c, Ask))
