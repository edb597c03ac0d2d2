"""How attempts end, what follows, and what the next one is told."""

from __future__ import annotations

import pytest
from sim import FAIL, PASS, REQUIRED, Sim, answered, crashed, failed, graded, script, worked

from loopwright.core import events as ev
from loopwright.core.apply import apply
from loopwright.core.decide import decide
from loopwright.core.limits import Backoff, Limits
from loopwright.core.policy import Asking, Policy, RunAgent


def sim(*turns, gates=None, people=None, signals=None, limits=None, **more) -> Sim:
    bounds = Limits(**{"max_iterations": 4, **(limits or {})})
    run = Policy(gates=REQUIRED, threshold=1.0, limits=bounds, **more)
    return Sim(
        run, agent=script(*turns), gates=gates or script(PASS), people=people, signals=signals or {}
    ).run()


ERRORS = ("consecutive_errors", "failed")
KINDS = {  # kind: starts, waits, ending of an agent that fails so for ever
    "transient": (9, [5, 10] * 3, ERRORS),
    "context_overflow": (6, [], ERRORS),
    "no_op": (6, [], ERRORS),
    "no_output": (6, [], ERRORS),
    "timeout": (6, [], ERRORS),
    "unknown": (3, [], ERRORS),
    "blocked": (1, [], "human_review"),
    "permanent": (1, [], ("permanent_error", "failed")),
    "policy_violation": (1, [], ("policy_violation", "stopped")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_failure_has_its_starts_waits_and_ending(kind):
    run = sim(failed(kind))
    end = run.end if kind != "blocked" else decided_phase(run)
    assert (len(run.starts), run.waits, end) == KINDS[kind]


def decided_phase(run: Sim) -> str:
    """The phase while the question stood, before its time was over."""
    return next(s.phase for s in run.states if s.approval is not None)


def test_rate_limits_use_up_no_attempts():
    run = sim(*[failed("rate_limited", retry_after=100)] * 9, worked())
    assert (run.end[0], len(run.starts), run.outcomes) == ("quality_reached", 10, ["accepted"])
    assert run.waits[:4] == [105, 105, 105, 105]
    run = sim(*[failed("rate_limited")] * 4, failed("transient"), failed("transient"), worked())
    assert (run.end[0], run.outcomes) == ("quality_reached", ["accepted"])


def test_kinds_that_are_tried_once_more_are_counted_each_by_itself():
    turns = [failed("no_op"), failed("no_output"), worked()]
    assert len(sim(*turns).starts) == 3


def test_the_attempts_of_an_iteration_have_one_key_and_rising_numbers():
    run = sim(failed("transient"), failed("transient"), worked(), gates=script(FAIL, PASS))
    assert [(a.key, a.iteration, a.number) for a in run.starts] == [
        ("r/1", 1, 1),
        ("r/1", 1, 2),
        ("r/1", 1, 3),
        ("r/2", 2, 1),
    ]


@pytest.mark.parametrize(
    ("retry_after", "dice", "waits"),
    [
        (None, 1.0, [5, 10, 20, 40, 60, 60]),
        (None, 0.0, [2.5, 5, 10, 20, 30, 30]),
        (1, 1.0, [6, 10, 20, 40, 60, 60]),
        (30, 1.0, [35, 35, 35, 40, 60, 60]),
        (90, 0.0, [92.5, 95, 95, 95, 95, 95]),
    ],
)
def test_back_off_grows_with_jitter_and_is_never_earlier_than_asked(retry_after, dice, waits):
    turn = ev.AttemptFailed(kind="transient", message="m", seconds=1, retry_after=retry_after, dice=dice)
    limits = {"attempts": 7, "max_iterations": 1, "backoff": Backoff(max=60)}
    assert sim(turn, limits=limits).waits == waits


def test_a_long_row_of_failures_does_not_overflow():
    limits = {"attempts": 200, "max_iterations": 1, "backoff": Backoff(first=1, factor=1000, max=2)}
    assert set(sim(failed("transient"), limits=limits).waits) == {1, 2}


def test_a_wait_is_visible_with_its_reason_and_no_attempt_starts_before_it_is_over():
    run = sim(failed("transient"), worked())
    waiting = [s for s in run.states if s.phase == "waiting"]
    assert waiting[0].wait_why == "trying again after an error"
    start = [at for at, e in run.facts if isinstance(e, ev.AttemptStarted)][1]
    assert start >= waiting[0].wait_until


def test_a_wait_asked_for_at_the_end_of_an_iteration_is_kept_before_the_next():
    turns = [failed("transient", retry_after=60), worked()]
    run = sim(*turns, limits={"attempts": 1})
    assert (run.outcomes, run.waits) == (["errored", "accepted"], [65])
    assert [s.phase for s in run.states if s.current is None][:3] == ["planning", "planning", "waiting"]


def test_an_errored_iteration_has_no_scores_and_its_message_is_the_feedback():
    run = sim(failed("unknown"), worked(), gates=script(PASS))
    assert run.state.recent[0].score is None
    assert run.starts[1].feedback.reasons == ("the last attempt failed (unknown): it was unknown",)


def test_a_failure_within_the_iteration_is_feedback_too():
    run = sim(failed("no_op"), worked())
    assert "no_op" in run.starts[1].feedback.reasons[0]


# Cut off


def test_a_crash_is_followed_by_another_attempt_that_is_told():
    run = sim(crashed(7.0), worked())
    assert [a.feedback.interrupted for a in run.starts] == [False, True]
    assert (run.end[0], run.state.totals.seconds) == ("quality_reached", pytest.approx(8.1))


def test_three_crashes_in_a_row_end_the_run():
    run = sim(crashed())
    assert (run.end[0], len(run.starts), run.outcomes) == ("interrupted_too_often", 3, ["cut"])


@pytest.mark.parametrize("between", [failed("no_op"), failed("rate_limited")])
def test_an_outcome_between_crashes_ends_the_row(between):
    assert sim(crashed(), crashed(), between, crashed(), crashed(), worked()).end[0] == "quality_reached"


@pytest.mark.parametrize("cause", ["handover", "stop", "pause"])
def test_other_interruptions_do_not_count(cause):
    cut = ev.AttemptInterrupted(cause=cause, seconds=1.0)
    run = sim(crashed(), cut, cut, crashed(), cut, worked())
    assert (run.end[0], len(run.starts)) == ("quality_reached", 6)
    assert sim(crashed(), cut, crashed(), cut, crashed()).end[0] == "interrupted_too_often"


def test_a_crash_after_a_failure_does_not_wait_for_that_failure_again():
    assert sim(failed("transient"), crashed(), worked()).waits == [5]


def test_the_evidence_seen_at_the_start_is_kept():
    run = Sim(Policy())
    start = {"iteration": 1, "attempt": 1, "key": "k", "allowance_s": 1.0}
    run.record(ev.AttemptStarted(snapshot="s0", evidence="e0", **start))
    assert (run.state.snapshot, run.state.evidence) == ("s0", "e0")
    run.record(ev.AttemptSucceeded(result=1, seconds=1.0, snapshot="s1", evidence="e1"))
    assert (run.state.snapshot, run.state.evidence) == ("s1", "e1")


def test_interruptions_use_up_no_attempts():
    turns = [failed("transient"), crashed(), failed("transient"), crashed(), worked()]
    assert sim(*turns).end[0] == "quality_reached"


# What it is given


def test_the_next_attempt_gets_the_reasons_the_best_and_the_previous_output():
    run = sim(worked("t1"), worked("t2"), gates=script(graded(0.5, "a"), PASS))
    second = run.starts[1]
    assert second.feedback.reasons == ("tests: at 0.5",)
    assert (second.best.iteration, second.best.score, second.previous) == (1, 0.5, {"tree": "t1"})
    assert [c.number for c in second.feedback.history] == [1]


def test_the_history_is_the_last_ten():
    run = sim(worked(), gates=script(FAIL), limits={"max_iterations": 14})
    assert [c.number for c in run.starts[-1].feedback.history] == list(range(4, 14))


@pytest.mark.parametrize(
    ("start_from", "starts"), [("last", [None, "t1", "t2"]), ("best", [None, "t1", "t1"])]
)
def test_from_which_snapshot_an_iteration_starts(start_from, starts):
    run = sim(worked("t1"), worked("t2"), gates=script(graded(0.5), graded(0.2), PASS), start_from=start_from)
    assert [c.start for c in run.commands if isinstance(c, RunAgent)] == starts


def test_an_iteration_has_one_start():
    half = ev.AttemptFailed(kind="transient", message="m", seconds=1, snapshot="half")
    for start_from in ("last", "best"):
        turns = (worked("t1"), half, half, worked("t2"))
        run = sim(*turns, gates=script(graded(0.5), PASS), start_from=start_from)
        assert [c.start for c in run.commands if isinstance(c, RunAgent)] == [None, "t1", "t1", "t1"]


@pytest.mark.parametrize(("cause", "start"), [("user", "mine"), ("restored", "mine"), ("gate", "t1")])
def test_what_a_person_changes_between_attempts_is_the_start_of_the_next(cause, start):
    half = ev.AttemptFailed(kind="no_op", message="m", seconds=1, snapshot="half")
    run = sim(worked("t1"), half, worked("t2"), gates=script(graded(0.5), PASS))
    left = next(state for state in run.states if state.snapshot == "half")
    changed = apply(left, ev.WorkspaceChanged(snapshot="mine", cause=cause), run.now)
    assert decide(run.policy, changed, run.now).start == start


# Blocked


def test_an_approved_block_is_tried_again_with_its_attempts_anew():
    turns = [failed("no_op"), failed("blocked"), failed("no_op"), worked()]
    run = sim(*turns, people=answered("approve", note="allowed now"))
    assert (run.end[0], run.outcomes) == ("quality_reached", ["accepted"])
    assert run.starts[2].feedback.notes == ("allowed now",)


def test_never_asking_for_acceptance_still_asks_about_a_block():
    run = sim(failed("blocked"), worked(), people=answered("revise"), approval=Asking(when="never"))
    assert (run.end[0], run.state.subject) == ("quality_reached", "blocked")


@pytest.mark.parametrize(
    ("people", "on_timeout", "end"),
    [
        (answered("reject"), "hold", ("rejected", "stopped")),
        (None, "hold", "paused"),
        (None, "reject", ("rejected", "stopped")),
        (None, "continue", ("max_iterations", "failed")),
    ],
)
def test_a_block_that_gets_no_go_ahead(people, on_timeout, end):
    run = sim(failed("blocked"), people=people, approval=Asking(on_timeout=on_timeout))
    assert run.end == end


def test_a_stop_ends_a_block_and_a_back_off():
    assert sim(failed("blocked"), signals={2: [ev.StopRequested()]}).end[0] == "stopped_by_user"
    assert sim(failed("transient"), signals={2: [ev.StopRequested()]}).end[0] == "stopped_by_user"


# Notes


def test_a_note_is_shown_to_the_next_attempt_and_once():
    run = sim(worked(), gates=script(FAIL), signals={2: [ev.NoteAdded(text="use tabs", key="note/1")]})
    assert [a.feedback.notes for a in run.starts] == [(), ("use tabs",), (), ()]


@pytest.mark.parametrize("first", [crashed(), failed("no_op"), failed("unknown")])
def test_a_note_is_shown_again_when_the_attempt_that_saw_it_gave_no_result(first):
    run = sim(first, worked(), gates=script(FAIL), signals={0: [ev.NoteAdded(text="use tabs")]})
    assert [a.feedback.notes for a in run.starts][:3] == [("use tabs",), ("use tabs",), ()]


def test_a_note_that_arrives_during_an_attempt_waits_for_the_next_even_when_many_wait():
    run = sim(worked(), gates=script(FAIL), limits={"max_iterations": 1})
    run = Sim(run.policy, signals={0: [ev.NoteAdded(text=f"old {n}") for n in range(20)]})
    run.record(*run.signals[0], ev.AttemptStarted(iteration=1, attempt=1, key="r/1", allowance_s=1.0))
    run.record(ev.NoteAdded(text="new"), worked())
    assert run.state.notes == ("new",)


def test_an_iteration_knows_the_output_before_its_own():
    run = Sim(
        Policy(gates=REQUIRED, limits=Limits(max_iterations=2)), agent=script(worked("a"), worked("b"))
    ).run()
    open_ = [s.current for s in run.states if s.current is not None and s.current.done]
    assert [(it.number, it.previous, it.output) for it in (open_[0], open_[-1])] == [
        (1, None, {"tree": "a"}),
        (2, {"tree": "a"}, {"tree": "b"}),
    ]
