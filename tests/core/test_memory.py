"""What the fold remembers for gates and for the next attempt."""

from datetime import UTC, datetime

from loopwright.core import events as ev
from loopwright.core.apply import fold
from loopwright.core.decide import feedback
from loopwright.core.state import EDITS, LoopState
from loopwright.core.values import Score, Verdict

AT = datetime(2026, 11, 29, tzinfo=UTC)


def play(*events):
    started = ev.RunStarted(run="r", spec={}, digest="d")
    return fold(LoopState(), tuple((AT, e) for e in (started, *events)))


def iteration(number, raw, direction="max", *between):
    score = Score(0.5, status="fail", raw=raw, direction=direction)
    return (
        ev.AttemptStarted(iteration=number, attempt=1, key=f"r/{number}", allowance_s=1),
        *between,
        ev.AttemptSucceeded(result=None, seconds=0),
        ev.GateScored(gate="cov", score=score, seconds=0),
        ev.Judged(verdict=Verdict(score=0.5, passed=False, blockers=("cov",))),
        ev.IterationClosed(outcome="not_accepted"),
    )


def test_the_best_measure_of_a_gate_is_remembered_in_its_own_direction():
    assert play(*iteration(1, 80.0), *iteration(2, 70.0)).measured == {"cov": 80.0}
    assert play(*iteration(1, 80.0), *iteration(2, 90.0)).measured == {"cov": 90.0}
    assert play(*iteration(1, 80.0, "min"), *iteration(2, 70.0, "min")).measured == {"cov": 70.0}


def test_a_measure_without_a_direction_is_not_compared():
    assert play(*iteration(1, 80.0, None)).measured == {}


def test_the_next_attempt_is_told_once_what_was_put_back():
    undone = ev.EvidenceChanged(paths=("tests/t.py",), action="restored")
    state = play(*iteration(1, 1.0, "max", undone))
    assert feedback(state).nudges == ("protected files were changed and put back, leave them: tests/t.py",)
    assert feedback(play(*iteration(1, 1.0, "max", undone), *iteration(2, 1.0))).nudges == ()


def test_other_limits_under_the_same_definition_void_nothing():
    state = play(*iteration(1, 80.0), ev.PolicyChanged(spec={"max_iterations": 9}, digest="d"))
    assert state.best is not None
    assert state.spec == {"max_iterations": 9}
    assert play(*iteration(1, 80.0), ev.PolicyChanged(spec={}, digest="other")).best is None


def changed(tree, cause):
    return ev.WorkspaceChanged(snapshot=tree, cause=cause)


def test_the_users_edits_are_remembered_from_tree_to_tree_and_no_one_elses():
    done = play(changed("a", "baseline"), changed("b", "user"), changed("b", "user"), changed("c", "gate"))
    assert (done.base, done.edits, done.work) == ("a", (("a", "b"),), "b")
    restored = play(changed("a", "baseline"), changed("b", "restored"), changed(None, "user"))
    assert restored.edits == ()


def test_of_the_users_edits_the_last_64_are_remembered():
    done = play(changed("0", "baseline"), *(changed(str(n), "user") for n in range(1, 100)))
    assert (len(done.edits), done.edits[0], done.edits[-1]) == (EDITS, ("35", "36"), ("98", "99"))


def test_the_work_is_what_attempts_and_people_made_whatever_gates_leave():
    def attempt(number, before, after):
        start = ev.AttemptStarted(iteration=1, attempt=number, key="r/1", allowance_s=1.0, snapshot=before)
        return start, ev.AttemptFailed(kind="unknown", message="m", seconds=1.0, snapshot=after)

    begun = changed("a", "baseline")
    assert play(begun, *attempt(1, "a", "b")).work == "b"
    assert play(begun, *attempt(1, "a", "b"), changed("b+", "gate"), *attempt(2, "b+", "b+")).work == "b"
    assert play(begun, *attempt(1, "a", "b"), changed("c", "user"), *attempt(2, "c", "c")).work == "c"
    assert play(begun, *attempt(1, None, None)).work == "a"
