"""What a request shows: one value, the same for every channel, and the digest is of exactly that."""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from datetime import timedelta

import pytest
from sim import FAIL, PASS, REQUIRED, Sim, failed, graded, script, worked

from loopwright.core import events as ev
from loopwright.core.decide import decide
from loopwright.core.judge import Rule
from loopwright.core.limits import Limits
from loopwright.core.monitors import HighErrorRate, Monitors
from loopwright.core.policy import Ask, Asking, Policy
from loopwright.core.showing import allow_line, digest, shown


def asked(policy: Policy, **more) -> Sim:
    """A run up to its first open request."""
    run = Sim(policy, **more)
    while run.state.approval is None:
        assert run.perform(decide(policy, run.state, run.now))
    return run


def accept(when="passed", **more) -> Policy:
    return Policy(goal="g", gates=REQUIRED, threshold=1.0, approval=Asking(when=when, timeout=60), **more)


def at_the_end() -> Sim:
    policy = accept(until="limits", limits=Limits(max_iterations=2))
    run = Sim(policy, agent=script(worked("t1"), worked("t2")), gates=script(PASS, FAIL))
    run.record(ev.WorkspaceChanged(snapshot="t0", cause="baseline"))
    while run.state.approval is None:
        run.perform(decide(policy, run.state, run.now))
    return run


def tampered() -> Sim:
    run = Sim(accept(), gates=script(PASS))
    run.perform(decide(run.policy, run.state, run.now))
    run.record(ev.EvidenceChanged(paths=("conftest.py",), action="asked", digest="d"))
    run.perform(decide(run.policy, run.state, run.now))
    return run


def alarmed() -> Sim:
    monitors = Monitors(high_error_rate=HighErrorRate(action="ask", window=1))
    return asked(Policy(gates=REQUIRED, monitors=monitors), agent=script(failed("unknown")))


SUBJECTS = {
    "accept, passed": (lambda: asked(accept(), gates=script(PASS)), "every required gate passed", "complete"),
    "accept, not passed": (lambda: asked(accept("always")), "every iteration is shown", "override tests"),
    "accept, at the end": (at_the_end, "at its end", "the best iteration"),
    "alert": (alarmed, "a monitor raised an alert", "alerts count anew"),
    "blocked": (
        lambda: asked(accept(), agent=script(failed("blocked"))),
        "cannot go on alone",
        "tries again",
    ),
    "evidence": (tampered, "files that the gates judge by", "judge again"),
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_it_says_why_now_and_what_each_answer_does(subject):
    made, why, approve = SUBJECTS[subject]
    run = made()
    view = shown(run.policy, run.state)
    assert why in view.why
    assert [e.answer for e in view.effects] == ["approve", "revise", "reject"]
    assert approve in view.effects[0].does
    assert view.question == run.state.approval.question
    assert view.about == subject.partition(",")[0]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_digest_is_of_exactly_what_is_shown(subject):
    run = SUBJECTS[subject][0]()
    view = shown(run.policy, run.state)
    assert digest(view) == run.state.approval.digest
    for field in fields(view):
        other = replace(view, **{field.name: ("other",) if field.name != "deadline" else None})
        assert digest(other) != digest(view), field.name


def test_another_answer_of_a_gate_is_another_request():
    ids = {asked(accept("always"), gates=script(graded(v))).state.approval.id for v in (0.1, 0.2)}
    assert len(ids) == 2


def test_the_figures():
    scores = [graded(v) for v in (0.2, 0.4, 1.0)]
    run = Sim(accept(), agent=script(worked("t1", cost=0.5)), gates=script(*scores))
    run.record(ev.WorkspaceChanged(snapshot="t0", cause="baseline"))
    while run.state.approval is None:
        run.perform(decide(run.policy, run.state, run.now))
    view = shown(run.policy, run.state)
    assert (view.trend, view.score, view.iteration) == ((0.2, 0.4, 1.0), 1.0, 3)
    assert (view.cost_usd, view.projected_usd) == (1.5, 2.0)
    assert (view.before, view.after) == ("t0", "t1")
    assert [s.gate for s in view.gates] == ["tests"]
    assert view.deadline - run.now <= timedelta(seconds=60)


def test_unknown_cost_is_not_zero_and_nothing_asked_shows_nothing():
    run = asked(accept(), agent=script(worked(cost=None)), gates=script(PASS))
    view = shown(run.policy, run.state)
    assert (view.cost_usd, view.projected_usd) == (None, None)
    assert shown(run.policy, Sim(run.policy).state) is None


def test_at_the_end_the_best_is_shown_and_not_the_last():
    run = at_the_end()
    view = shown(run.policy, run.state)
    assert (view.after, view.score, view.gates) == ("t1", 1.0, ())


@pytest.mark.parametrize(
    ("on_timeout", "says"), [("hold", "rests"), ("reject", "stops"), ("continue", "not accepted")]
)
def test_it_says_what_silence_does(on_timeout, says):
    policy = Policy(gates=REQUIRED, approval=Asking(when="passed", on_timeout=on_timeout))
    assert says in shown(policy, asked(policy, gates=script(PASS)).state).silence


def test_a_revision_at_the_last_iteration_says_that_it_ends_the_run():
    policy = accept(limits=Limits(max_iterations=1))
    assert (
        "ends at its limit of 1 iteration"
        in shown(policy, asked(policy, gates=script(PASS)).state).effects[1].does
    )
    policy = accept(limits=Limits(max_iterations=2))
    run = Sim(policy, gates=script(FAIL, PASS))
    while run.state.approval is None:
        run.perform(decide(policy, run.state, run.now))
    assert "limit of 2 iterations" in shown(policy, run.state).effects[1].does


def test_alerts_that_count_are_shown():
    run = alarmed()
    view = shown(run.policy, run.state)
    assert view.alerts[0].startswith("HIGH_ERROR_RATE (#1): ")


def test_the_core_asks_with_that_digest():
    policy = Policy(gates=(Rule(name="tests"),), approval=Asking(when="passed"))
    run = Sim(policy, gates=script(PASS))
    for _ in range(3):
        run.perform(decide(policy, run.state, run.now))
    command = decide(policy, run.state, run.now)
    assert isinstance(command, Ask)
    run.perform(command)
    assert digest(shown(policy, run.state)) == command.request.digest


def test_the_line_that_allows_can_be_pasted_into_a_loop_file():
    what = ("Bash(python -c 'print(\"é\")')", "Bash(a\nb\\c)")
    assert tomllib.loads(allow_line(what)) == {"allow": list(what)}
