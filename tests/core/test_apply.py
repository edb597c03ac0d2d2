"""Facts and states: what may follow what, and that nothing else gets in."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sim import BEGIN, FAIL, PASS, REQUIRED, Sim, answered, failed, graded, script, worked

from loopwright.core import events as ev
from loopwright.core import replacing
from loopwright.core.apply import apply, fold
from loopwright.core.decide import decide
from loopwright.core.limits import Limits
from loopwright.core.policy import Asking, Policy, RunGates
from loopwright.core.state import Iteration, LoopState, Totals
from loopwright.core.values import Verdict
from loopwright.errors import IllegalEvent

NEXT = ev.AttemptStarted(iteration=1, attempt=1, key="r/1", allowance_s=1.0)
SCORE = ev.GateScored(gate="tests", score=PASS, seconds=0.1)
GREEN = ev.Judged(verdict=Verdict(score=1.0, passed=True))
RED = ev.Judged(verdict=Verdict(score=0.0, passed=False, blockers=("tests",)))
ASKED = ev.ApprovalRequested(id="q1", number=1, iteration=1, about="accept", digest="d")
END = ev.RunFinished(phase="failed", reason="max_iterations", explanation="enough")


def close(outcome: str) -> ev.IterationClosed:
    return ev.IterationClosed(outcome=outcome)


def yes(**more) -> ev.ApprovalDecided:
    return ev.ApprovalDecided(**{"id": "q1", "answer": "approve", **more})


STATES = {
    "new": [],
    "planning": [NEXT, worked(), SCORE, RED, close("not_accepted")],
    "open": [NEXT],
    "failed": [NEXT, failed("transient")],
    "done": [NEXT, worked()],
    "judged": [NEXT, worked(), SCORE, RED],
    "passed": [NEXT, worked(), SCORE, GREEN],
    "asked": [NEXT, worked(), SCORE, GREEN, ASKED],
    "approved": [NEXT, worked(), SCORE, RED, ASKED, yes()],
    "accepted": [NEXT, worked(), SCORE, GREEN, close("accepted")],
    "ended": [END],
    "paused": [ev.PauseRequested()],
    "stopping": [ev.StopRequested()],
}
EVERY = set(STATES)
WORKING = {"done", "judged", "passed"}  # not once a person has decided about the scores
BETWEEN = {"new", "planning", "accepted", "paused", "stopping"}
SECOND = ev.AttemptStarted(iteration=2, attempt=1, key="r/2", allowance_s=1.0)
LEGAL = [  # a fact, and the states it may follow
    (ev.RunStarted(run="r", spec={}, digest="d"), set()),
    (ev.Claimed(epoch=1, owner="o", host="h", boot="b"), EVERY),
    (ev.Claimed(epoch=2, owner="o", host="h", boot="b"), set()),
    (NEXT, {"new"}),
    (SECOND, {"planning", "accepted"}),
    (ev.AttemptStarted(iteration=1, attempt=2, key="r/1", allowance_s=1.0), {"failed"}),
    (worked(), {"open"}),
    (failed("unknown"), {"open"}),
    (ev.AttemptInterrupted(cause="crash"), {"open"}),
    (ev.WaitStarted(until=BEGIN, seconds=1.0, why="w"), {*BETWEEN, "failed"}),
    (ev.DaySpent(day="2026-03-01", cost_usd=1.0), EVERY - {"ended"}),
    (ev.WorkspaceChanged(snapshot="t"), EVERY - {"open", "ended"}),
    (ev.EvidenceChanged(paths=("a",), action="restored"), EVERY - {"ended"}),
    (SCORE, {*WORKING, "new", "paused", "stopping"}),
    (ev.GateScored(gate="tests", score=PASS, seconds=0.1, snapshot="other"), set()),
    (RED, {"done"}),
    (
        ev.AlertRaised(kind="STALL", iteration=1, action="note", message="m"),
        EVERY - {"new", "ended", "paused", "stopping"},
    ),
    (ASKED, EVERY - {"open", "asked", "approved", "ended", "stopping"}),
    (ev.ApprovalRequested(id="q2", number=2, iteration=1, about="accept", digest="d"), {"approved"}),
    (yes(), {"asked", "approved"}),
    (ev.Noticed(approval="q1", channel="inbox"), EVERY),
    (close("accepted"), {"passed"}),
    (close("not_accepted"), {"judged", "passed", "asked", "approved"}),
    (close("revised"), set()),
    (close("errored"), {"failed"}),
    (close("cut"), {"failed", "done", "judged", "passed", "asked", "approved"}),
    (ev.Delivered(to="branch"), {*BETWEEN, "ended"}),
    (ev.StopRequested(), EVERY - {"ended"}),
    (ev.PauseRequested(), EVERY - {"ended"}),
    (ev.Resumed(), EVERY - {"ended"}),
    (ev.NoteAdded(text="t"), EVERY),
    (ev.LimitsChanged(limits={"budget": 1.0}), EVERY),
    (ev.PolicyChanged(spec={}, digest="e"), EVERY - {"ended"}),
    (ev.RunReopened(), {"ended"}),
    (END, BETWEEN),
    (ev.RunFinished(phase="stopped", reason="max_iterations", explanation="e"), set()),
    (ev.RunFinished(phase="complete", reason="quality_reached", explanation="e"), {"accepted"}),
]


def state_of(name: str) -> LoopState:
    return fold(Sim(Policy()).state, [(BEGIN, e) for e in STATES[name]])


@pytest.mark.parametrize(("event", "after"), LEGAL, ids=[type(e).__name__ for e, _ in LEGAL])
def test_a_fact_follows_only_where_it_can_and_else_changes_nothing(event, after):
    for name in STATES:
        state = state_of(name)
        before = repr(state)
        legal = name in after
        if not legal:
            with pytest.raises(IllegalEvent):
                apply(state, event, BEGIN)
                pytest.fail(f"{event} was accepted in {name}")
        else:
            apply(state, event, BEGIN)
        assert repr(state) == before


def test_every_fact_is_in_the_table():
    assert {type(e) for e, _ in LEGAL} == set(ev.EVENTS)


def test_nothing_comes_before_the_start():
    for event, _ in LEGAL:
        if not isinstance(event, ev.RunStarted):
            with pytest.raises(IllegalEvent, match="before RunStarted"):
                apply(LoopState(), event, BEGIN)


@pytest.mark.parametrize(
    ("facts", "event"),
    [
        ([NEXT, worked(), SCORE, RED, ASKED, yes(override="why")], close("accepted")),
        ([NEXT, worked(), SCORE, GREEN, ASKED, yes(answer="revise")], close("revised")),
        ([NEXT, ev.AttemptInterrupted(cause="crash")], close("cut")),
    ],
)
def test_closings_that_an_answer_or_a_cut_allows(facts, event):
    closed = apply(fold(Sim(Policy()).state, [(BEGIN, f) for f in facts]), event, BEGIN)
    assert closed.recent[-1].outcome == event.outcome


def test_a_complete_run_is_never_reopened():
    run = Sim(Policy(gates=REQUIRED), gates=script(PASS)).run()
    with pytest.raises(IllegalEvent, match="only a failed or stopped run"):
        run.record(ev.RunReopened())


@pytest.mark.parametrize("at", [datetime(2026, 1, 1), datetime(2026, 1, 1).astimezone().replace(tzinfo=None)])
def test_naive_times_are_refused_everywhere(at):
    run = Sim(Policy())
    with pytest.raises(IllegalEvent, match="time zone"):
        apply(run.state, ev.Resumed(), at)
    with pytest.raises(IllegalEvent, match="time zone"):
        decide(Policy(), run.state, at)
    with pytest.raises(ValueError, match="time zone"):
        ev.WaitStarted(until=at, seconds=1.0, why="w")
    with pytest.raises(ValueError, match="time zone"):
        ev.ApprovalRequested(id="q", number=1, iteration=1, about="accept", digest="d", deadline=at)


def test_time_never_goes_back_even_when_the_clock_is_set_back():
    run = Sim(Policy(gates=REQUIRED))
    earlier = BEGIN - timedelta(days=1)
    state = apply(run.state, ev.Resumed(), earlier)
    assert state.updated_at == BEGIN
    later = BEGIN.astimezone(timezone(timedelta(hours=5))) + timedelta(seconds=1)
    assert apply(state, ev.Resumed(), later).updated_at == later


def test_a_wait_decided_with_a_clock_set_back_ends_after_the_last_fact():
    run = Sim(Policy(gates=REQUIRED), agent=script(failed("transient")))
    run.perform(decide(run.policy, run.state, run.now))
    wait = decide(run.policy, run.state, BEGIN - timedelta(days=1))
    assert (wait.until - run.state.updated_at).total_seconds() == wait.seconds == 5


def test_decide_does_not_answer_for_a_run_that_is_over():
    with pytest.raises(IllegalEvent, match="over"):
        decide(Policy(), state_of("ended"), BEGIN)
    with pytest.raises(IllegalEvent, match="before RunStarted"):
        decide(Policy(), LoopState(), BEGIN)


def test_gates_are_scored_again_only_where_they_are_missing():
    run = Sim(Policy(gates=REQUIRED))
    run.perform(decide(run.policy, run.state, run.now))
    run.score("tests")
    run.score("tests")
    assert len(run.state.current.scores) == 1
    assert not isinstance(decide(run.policy, run.state, run.now), RunGates)


def test_a_score_after_the_verdict_is_judged_again():
    run = Sim(Policy(gates=REQUIRED))
    for _ in range(3):
        run.perform(decide(run.policy, run.state, run.now))
    run.score("tests")
    assert run.state.current.verdict is None


def test_claims_count_up():
    run = Sim(Policy())
    run.record(*(ev.Claimed(epoch=n, owner="o", host="h", boot="b") for n in (1, 2, 3)))
    assert run.state.claim.epoch == 3


def test_a_reopened_run_keeps_what_was_refused_and_asked_out_of_the_next_decision():
    asking = Asking(when="always")
    run = Sim(Policy(gates=REQUIRED, approval=asking), people=answered("reject")).run()
    assert run.end[0] == "rejected"
    run.record(ev.RunReopened())
    run.people = answered("approve", override="fine now")
    assert (run.run().end[0], len(run.starts)) == ("quality_reached", 2)


# The fold


def test_the_fold_of_every_prefix_is_the_state_at_that_moment():
    turns = script(worked("a"), failed("transient"), worked("b"), failed("unknown"), worked("c"))
    run = Sim(
        Policy(
            gates=REQUIRED, threshold=1.0, approval=Asking(when="passed"), limits=Limits(max_iterations=9)
        ),
        agent=turns,
        gates=script(graded(0.2, "a"), graded(0.6), FAIL, PASS),
        people=answered("approve"),
    ).run()
    assert run.end[0] == "quality_reached"
    for n in range(len(run.facts)):
        assert fold(LoopState(), run.facts[: n + 1]) == run.states[n]


def test_replace_copies_like_the_standard_one():
    for value in (LoopState(run="r"), Totals(tokens=3), Iteration(number=2)):
        for name in (f.name for f in dataclasses.fields(value)):
            assert replacing.replace(value, **{name: "x"}) == dataclasses.replace(value, **{name: "x"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        replacing.replace(LoopState(), run="r").run = "s"


def repr_length(iterations: int) -> int:
    limits = Limits(max_iterations=iterations, convergence=None, max_duration=1e9, max_consecutive_errors=1e9)
    turns = script(worked("abcd"), failed("unknown"), worked("efgh"), worked("ijkl"))
    left = [graded(0.25, "a", "b"), graded(0.50, "a"), FAIL]
    run = Sim(
        Policy(gates=REQUIRED, threshold=1.0, limits=limits),
        agent=lambda a: turns(a) if a.iteration < 4 else worked(f"{a.iteration % 7:04}"),
        gates=lambda _: left[len(run.facts) % 3],
        signals={n: [ev.NoteAdded(text="note", key=f"note/{n % 1000:04}")] for n in range(4000)},
    )
    run.run(10 * iterations)
    assert run.state.closed == iterations
    return len(repr(run.state))


def test_the_state_is_no_larger_after_1000_iterations_than_after_100():
    short, long = repr_length(100), repr_length(1000)
    assert abs(long - short) <= 0.01 * short


def test_the_failing_items_kept_of_an_iteration_are_bounded_and_the_same_choice():
    many = [
        graded(0.5, *(f"case {n}" for n in range(2000))),
        graded(0.5, *(f"case {n}" for n in range(1999))),
    ]
    run = Sim(Policy(gates=REQUIRED, limits=Limits(max_iterations=2)), gates=script(*many)).run()
    first, second = (set(c.failing) for c in run.state.recent)
    assert len(first) == len(second) == 500
    assert len(first ^ second) <= 2


def test_aware_times_may_be_of_any_zone():
    assert apply(Sim(Policy()).state, ev.Resumed(), datetime(2026, 5, 1, tzinfo=UTC)).updated_at.month == 5
