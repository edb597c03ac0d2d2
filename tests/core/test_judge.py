"""From scores to a verdict: only required gates decide, and nothing but a pass is a pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim import BROKEN, FAIL, NO_PROOF, PASS, SKIP, Sim, graded

from loopwright.core.closing import better, closing
from loopwright.core.events import EvidenceChanged
from loopwright.core.judge import Rule, judge, settle
from loopwright.core.limits import Limits
from loopwright.core.policy import Policy
from loopwright.core.state import Iteration, LoopState
from loopwright.core.values import Best, Closed, Score, Scored, Verdict

FAST = settings(derandomize=True, deadline=None, database=None, max_examples=150)
NOT_A_PASS = [FAIL, BROKEN, NO_PROOF, SKIP, None, Score(1.0, status="fail"), Score(1.0)]
TESTS, LINT = Rule(name="tests"), Rule(name="lint", required=False, weight=1.0)


def verdict(scores: dict, *rules: Rule, threshold: float = 0.85, ran=frozenset(), refusals=()) -> Verdict:
    have = [Scored(gate=g, score=s) for g, s in scores.items() if s is not None]
    return judge(rules or (TESTS, LINT), threshold, have, frozenset(ran), refusals)


@FAST
@given(
    n=st.integers(1, 5),
    advisory=st.lists(st.sampled_from([PASS, FAIL, BROKEN, None]), max_size=3),
    data=st.data(),
    threshold=st.floats(0, 1),
)
def test_replacing_any_required_pass_by_anything_else_never_passes(n, advisory, data, threshold):
    rules = [Rule(name=f"r{i}", weight=data.draw(st.floats(0, 1e6))) for i in range(n)]
    rules += [Rule(name=f"a{i}", required=False, weight=1e6) for i in range(len(advisory))]
    scores = {f"r{i}": PASS for i in range(n)} | {f"a{i}": s for i, s in enumerate(advisory)}
    assert verdict(scores, *rules, threshold=threshold).passed
    victim = f"r{data.draw(st.integers(0, n - 1))}"
    scores[victim] = data.draw(st.sampled_from(NOT_A_PASS))
    worse = verdict(scores, *rules, threshold=threshold)
    assert not worse.passed
    assert worse.blockers == (victim,)
    assert worse.reasons[0].startswith(victim)


def test_a_score_over_the_threshold_does_not_override_a_failing_required_gate():
    rules = (Rule(name="tests", weight=1), Rule(name="judge", weight=99))
    red = verdict({"tests": Score(0.99, status="fail"), "judge": PASS}, *rules, threshold=0.1)
    assert (red.passed, red.score > 0.99) == (False, True)


@pytest.mark.parametrize("score", [FAIL, BROKEN, NO_PROOF, SKIP, None])
def test_an_advisory_gate_never_blocks(score):
    assert verdict({"tests": PASS, "lint": score}, ran={"lint"}).passed


@pytest.mark.parametrize(("score", "shown"), [(PASS, 1.0), (FAIL, 2 / 3), (BROKEN, 2 / 3), (SKIP, 2 / 3)])
def test_an_advisory_gate_moves_the_shown_score(score, shown):
    assert verdict({"tests": PASS, "lint": score}, ran={"lint"}).score == pytest.approx(shown)


def test_an_advisory_gate_that_never_ran_does_not_count():
    assert verdict({"tests": PASS, "lint": SKIP}).score == 1.0


def test_an_error_is_worth_nothing_whatever_value_it_carries():
    assert verdict({"tests": Score(0.9, status="error")}).score == 0.0


def test_the_threshold_binds_the_weighted_required_score():
    rules = (Rule(name="a", weight=3), Rule(name="b", weight=1))
    scores = {"a": Score(0.8, status="pass"), "b": PASS}
    assert verdict(scores, *rules, threshold=0.85).passed
    low = verdict(scores, *rules, threshold=0.86)
    assert (low.blockers, low.passed) == (("threshold",), False)
    assert low.reasons == ("threshold: the required gates score 0.85, 0.86 is wanted",)


def test_rounding_does_not_miss_the_threshold():
    rules = [Rule(name=f"r{i}") for i in range(3)]
    scores = {r.name: Score(0.7, status="pass") for r in rules}
    assert verdict(scores, *rules, threshold=0.7).passed  # they weigh 0.6999999999999998


def test_without_required_gates_the_threshold_does_not_apply():
    only = verdict({"lint": FAIL}, LINT)
    assert (only.passed, only.required_score, only.score) == (True, None, 0.0)
    assert verdict({}, LINT).score == 1.0


def test_the_reasons_put_blockers_first_and_say_what_kind_they_are():
    scores = {"lint": FAIL, "tests": NO_PROOF, "types": SKIP, "other": PASS, "e2e": Score(0.0, status="fail")}
    rules = (LINT, TESTS, Rule(name="types"), Rule(name="other"), Rule(name="e2e"))
    assert verdict(scores, *rules).reasons == (
        "tests (error): no report",
        "types (skipped): did not run",
        "e2e: failed",
        "lint (advisory): it is red",
    )


def test_a_refusal_blocks_whatever_the_scores():
    red = verdict({"tests": PASS}, refusals=[("evidence", "undo conftest.py")])
    assert (red.passed, red.blockers, red.reasons) == (False, ("evidence",), ("evidence: undo conftest.py",))
    assert red.fingerprint


def test_only_a_required_gate_whose_tool_broke_is_broken():
    rules = (TESTS, LINT, Rule(name="types"))
    assert verdict({"tests": BROKEN, "lint": BROKEN, "types": NO_PROOF}, *rules).broken == ("tests",)


def test_a_number_or_a_set_of_failing_items_is_graded():
    assert verdict({"tests": graded(0.5, "a", "b")}).failing == ("tests:a", "tests:b")
    assert verdict({"tests": Score(0.0, status="fail", failing=("a",))}).graded
    assert not verdict({"tests": FAIL}).graded


def test_the_fingerprint_is_of_what_fails_not_of_its_order_or_wording():
    one = verdict({"tests": Score(0.1, "2 failed in 0.3 s", status="fail", failing=("a", "b"))})
    two = verdict({"tests": Score(0.1, "2 failed in 0.4 s", status="fail", failing=("b", "a"))})
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint != verdict({"tests": graded(0.1, "a")}).fingerprint
    assert verdict({"tests": Score(0, "x", status="fail")}) != verdict(
        {"tests": Score(0, "y", status="fail")}
    )
    assert verdict({"tests": PASS}).fingerprint == ""


@pytest.mark.parametrize(
    ("rule", "value", "status"),
    [
        (Rule(name="g"), 0.85, "pass"),
        (Rule(name="g"), 0.84, "fail"),
        (Rule(name="g", min=0.5), 0.5, "pass"),
        (Rule(name="g", min=0.0), 0.0, "pass"),
    ],
)
def test_a_score_without_a_status_passes_at_the_mark(rule, value, status):
    settled = settle(rule, 0.85, Score(value))
    assert (settled.status, settled.graded) == (status, True)
    assert status == "pass" or settled.reason == "0.84 is below 0.85"


def test_a_score_with_a_status_keeps_it():
    assert settle(Rule(name="g"), 0.85, FAIL) is FAIL
    assert settle(Rule(name="g"), 0.85, Score(0.1, "why")).reason == "why"


@pytest.mark.parametrize(
    ("measured", "aim"),
    [((3.0, "min"), -3.0), ((3.0, "max"), 3.0), ((3.0, None), 3.0), ((None, "min"), None)],
)
def test_the_aim_is_the_measure_of_the_first_gate_that_is_the_objective(measured, aim):
    raw, direction = measured
    rules = (
        TESTS,
        Rule(name="size", objective=True, min_gain=0.5),
        Rule(name="time", objective=True, min_gain=9),
    )
    size = Score(1.0, status="pass", raw=raw, direction=direction)
    found = verdict({"tests": PASS, "size": size, "time": Score(1.0, status="pass", raw=7.0)}, *rules)
    assert (found.objective, found.min_gain) == (aim, 0.5)


def test_only_a_required_pass_is_unsure():
    weak = Score(1.0, status="pass", unsure=True)
    assert verdict({"tests": weak, "lint": weak}).unsure == ("tests",)
    assert verdict({"tests": Score(0.0, status="fail", unsure=True)}).unsure == ()


@pytest.mark.parametrize(("gate", "refused"), [("tests", ("tests",)), ("lint", ())])
def test_a_run_to_its_limits_takes_no_unsure_pass_of_a_required_gate(gate, refused):
    scores = {"tests": PASS, "lint": PASS, gate: Score(1.0, status="pass", unsure=True)}
    limits = Limits(max_iterations=1, convergence=None)
    run = Sim(Policy(gates=(TESTS, LINT), until="limits", limits=limits), gates=scores).run()
    assert run.state.last.blockers == refused


# The best: passed, then score or objective, then the earliest


def best_after(*verdicts: Verdict) -> int:
    state = LoopState()
    for n, one in enumerate(verdicts):
        state = LoopState(best=better(state, Iteration(number=n), one))
    return state.best.iteration


def of(score: float, *, passed=False, objective=None, min_gain=0.0) -> Verdict:
    return Verdict(score=score, passed=passed, objective=objective, min_gain=min_gain)


@pytest.mark.parametrize(
    ("verdicts", "best"),
    [
        ([of(0.2), of(0.4), of(0.3)], 1),
        ([of(0.4), of(0.4)], 0),
        ([of(0.9), of(0.1, passed=True), of(0.95)], 1),
        ([of(0.9, objective=-120.0), of(0.1, objective=-90.0), of(0.9, objective=-95.0)], 1),
        ([of(0.5), of(0.5, objective=-120.0)], 1),  # a measure beats none, whatever its scale
        ([of(0.5, objective=-120.0), of(0.9)], 0),
        ([of(0.5, objective=1.0), of(0.5, objective=1.5, min_gain=1.0)], 0),
        ([of(0.5, objective=1.0), of(0.5, objective=2.0, min_gain=1.0)], 1),
        ([of(0.5, objective=1.0), of(0.9, objective=1.0)], 0),
    ],
)
def test_the_best_iteration(verdicts, best):
    assert best_after(*verdicts) == best


@pytest.mark.parametrize(
    ("first", "second", "best"),
    [
        (of(0.4), of(0.4), 2),
        (of(0.4), of(0.3), 1),
        (of(0.4, passed=True), of(0.4), 1),
        (of(0.4, objective=1.0), of(0.3, objective=1.0, min_gain=1.0), 2),
        (of(0.4, objective=1.0), of(0.4, objective=0.5), 1),
    ],
)
def test_what_a_person_sent_back_is_not_kept_before_what_is_as_good(first, second, best):
    one = better(LoopState(), Iteration(number=1), first)
    for outcome, found in (("revised", best), ("not_accepted", 1)):
        closed = Closed(number=1, outcome=outcome, score=first.score, passed=first.passed, peak=first.score)
        state = LoopState(best=one, recent=(closed,), fresh_from=1)
        assert better(state, Iteration(number=2), second).iteration == found


def test_an_objective_counts_in_its_direction():
    rule = Rule(name="size", objective=True, min_gain=5)
    small = verdict({"size": Score(1.0, status="pass", raw=90, direction="min")}, rule)
    assert (small.objective, small.min_gain) == (-90, 5)
    assert verdict({"size": Score(1.0, status="pass", raw=90)}, rule).objective == 90
    assert verdict({"size": NO_PROOF}, rule).objective is None
    assert verdict({"tests": PASS}).objective is None


def test_what_lost_tests_is_not_the_best_unless_a_person_took_it_so():
    state = LoopState(best=better(LoopState(), Iteration(number=1), of(0.4)), peak=0.4)
    less = Verdict(score=1.0, passed=False, blockers=("ratchet",))
    assert better(state, Iteration(number=2), less) == state.best
    assert closing(state, Iteration(number=2), "not_accepted", less).peak == 0.4
    assert better(state, Iteration(number=2), less, accepted=True).iteration == 2
    changed = replace(state, tampered=EvidenceChanged(paths=("a",), action="blocked", digest="d"))
    assert better(changed, Iteration(number=2), less, accepted=True) == state.best


def test_best_keeps_what_it_is():
    assert better(LoopState(snapshot="t"), Iteration(number=3, output={"a": 1}), of(0.5)) == Best(
        iteration=3, score=0.5, passed=False, snapshot="t", output={"a": 1}
    )


def test_failing_items_may_be_any_series_of_texts_that_knows_no_truth():
    class Series(tuple):
        __slots__ = ()

        def __eq__(self, other):
            raise ValueError("ambiguous")

        __ne__ = __bool__ = __eq__

        def __hash__(self):
            return 0

    assert list(Score(0.5, failing=Series(("a", "b"))).failing) == ["a", "b"]
    with pytest.raises(ValueError, match="are texts"):
        Score(0.5, failing=Series(("a", 2)))
