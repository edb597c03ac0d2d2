"""What holds for every run, whatever agent, gates and people do."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from sim import BROKEN, FAIL, NO_PROOF, PASS, SKIP, Sim, crashed, failed, graded, script, worked

from loopwright.core import events as ev
from loopwright.core.apply import fold
from loopwright.core.judge import Rule
from loopwright.core.limits import Backoff, Convergence, Limits
from loopwright.core.monitors import Critical, Degradation, HighErrorRate, Monitors, Oscillation, Stall
from loopwright.core.policy import Asking, Finish, Policy, RunAgent
from loopwright.core.state import LoopState

FAST = settings(derandomize=True, deadline=None, database=None, max_examples=150)
MAX_WAIT, LEAST_WAIT = 200.0, 2.5  # the shortest back-off is half of `first`
RULES = (Rule(name="tests"), Rule(name="types", weight=1), Rule(name="lint", required=False))
KINDS = (
    "transient",
    "rate_limited",
    "context_overflow",
    "no_op",
    "no_output",
    "timeout",
    "unknown",
    "blocked",
)
ACTIONS = st.sampled_from(["note", "nudge", "ask", "stop", "off"])
TREES = st.sampled_from([None, "a", "b", "c"])

attempts = st.one_of(
    st.builds(worked, TREES, seconds=st.floats(0, 90), cost=st.sampled_from([0.0, 0.2, None])),
    st.builds(worked, TREES),
    st.builds(failed, st.sampled_from(KINDS), retry_after=st.sampled_from([None, None, 1.0, 70.0])),
    st.builds(failed, st.sampled_from(["permanent", "policy_violation"])),
    st.builds(crashed),
)
scores = st.one_of(
    st.sampled_from([PASS, PASS, FAIL, BROKEN, NO_PROOF, SKIP]),
    st.builds(graded, st.sampled_from([0.2, 0.5, 0.55, 0.9, 1.0]), st.sampled_from("abc")),
)
answers = st.fixed_dictionaries(
    {"answer": st.sampled_from(["approve", "approve", "revise", "reject", "expired"])},
    optional={
        "override": st.just("ship it"),
        "note": st.just("a note"),
        "edits": st.just({"max_iterations": 9}),
    },
)
signals = st.sampled_from(
    [
        ev.StopRequested(),
        ev.StopRequested(now=True),
        ev.PauseRequested(),
        ev.PauseRequested(now=True),
        ev.Resumed(),
        ev.NoteAdded(text="a note"),
        ev.LimitsChanged(limits={"max_iterations": 3}),
        ev.LimitsChanged(limits={"budget": 0.9, "reserve": 0.1}),
        ev.WorkspaceChanged(snapshot="user", cause="user"),
        ev.WorkspaceChanged(snapshot="gate", cause="gate"),
        ev.EvidenceChanged(paths=("conftest.py",), action="blocked"),
        ev.EvidenceChanged(paths=("conftest.py",), action="asked", digest="d"),
        ev.EvidenceChanged(paths=("conftest.py",), action="restored"),
        ev.PolicyChanged(spec={}, digest="e"),
    ]
)


@st.composite
def policies(draw) -> Policy:
    rare = st.integers(0, 3).map(lambda n: n == 0)
    limits = Limits(
        max_iterations=draw(st.integers(1, 8)),
        max_wait=MAX_WAIT,
        attempts=draw(st.integers(1, 3)),
        budget=draw(st.sampled_from([None, None, 1.0])),
        reserve=draw(st.sampled_from([None, 0.3])),
        max_tokens=draw(st.sampled_from([None, None, 60])),
        convergence=draw(st.sampled_from([None, Convergence(), Convergence(patience=1)])),
        backoff=Backoff(max=40),
    )
    return Policy(
        gates=RULES,
        threshold=draw(st.sampled_from([0.0, 0.85, 1.0])),
        limits=limits,
        monitors=Monitors(
            oscillation=Oscillation(action=draw(ACTIONS)),
            degradation=Degradation(action=draw(ACTIONS), window=2),
            high_error_rate=HighErrorRate(action=draw(ACTIONS), window=2),
            stall=Stall(action=draw(ACTIONS), window=2),
            critical=Critical(alerts=draw(st.sampled_from([2, 5]))),
        ),
        approval=Asking(
            when=draw(st.sampled_from(["never", "passed", "always", "alert"])),
            on_timeout=draw(st.sampled_from(["hold", "reject", "continue"])),
        ),
        until=draw(st.sampled_from(["passed", "passed", "limits"])),
        start_from=draw(st.sampled_from(["last", "best"])),
        if_passing=draw(st.sampled_from(["run", "finish"])),
        baseline=draw(rare),
        deliver=draw(st.sampled_from(["none", "branch"])),
    )


@st.composite
def runs(draw) -> Sim:
    said = draw(st.lists(answers, max_size=6))
    replies = iter(said)

    def people(request: ev.ApprovalRequested) -> ev.ApprovalDecided:
        return ev.ApprovalDecided(id=request.id, **next(replies, {"answer": "reject"}))

    asked = draw(st.dictionaries(st.integers(0, 40), st.lists(signals, max_size=2), max_size=5))
    sim = Sim(
        draw(policies()),
        agent=script(*draw(st.lists(attempts, min_size=1, max_size=12))),
        gates=script(*draw(st.lists(scores, min_size=1, max_size=20))),
        people=people,
        signals=asked,
    )
    return sim.run(bound(sim.policy.limits, len(asked)))


def bound(limits: Limits, signals: int) -> int:
    """Commands that a run needs at most: its starts, what follows each of them, its waits, its questions."""
    iterations = max(limits.max_iterations, 9)  # an answer may raise them to 9
    waits = int(MAX_WAIT / LEAST_WAIT)
    starts = iterations * (3 * limits.attempts + 3) + 3 * waits
    return 2 * starts + 3 * waits + 12 * iterations + 8 * 10 + 60 * (signals + 1)


@FAST
@given(runs())
def test_every_run_ends_or_rests_where_only_a_person_can_help(sim):
    state = sim.state  # that it got here within `bound` commands, none refused, is the first half
    if state.finished is None:
        assert state.phase == "paused"
        assert state.paused or state.expired


@FAST
@given(runs())
def test_replaying_any_prefix_gives_the_state_of_that_moment(sim):
    for n in range(0, len(sim.facts), 7):
        assert fold(LoopState(), sim.facts[: n + 1]) == sim.states[n]
    assert fold(LoopState(), sim.facts) == sim.state


@FAST
@given(runs())
def test_nothing_is_accepted_that_a_required_gate_did_not_pass_and_nobody_overrode(sim):
    for before, (_, fact) in zip(sim.states, sim.facts[1:], strict=False):
        if isinstance(fact, ev.IterationClosed) and fact.outcome == "accepted":
            it = before.current
            status = {s.gate: s.score.status for s in it.scores}
            green = all(status.get(rule.name) == "pass" for rule in RULES if rule.required)
            overridden = before.answer is not None and before.answer.override
            assert overridden or (green and before.tampered is None and it.verdict.passed)


@FAST
@given(runs())
def test_nothing_is_accepted_once_its_scores_were_voided(sim):
    """Whatever else is judged, an acceptance stands on a verdict and a person's word given after the last change."""
    voided = (ev.WorkspaceChanged, ev.EvidenceChanged, ev.PolicyChanged, ev.AttemptStarted)
    judged, said = False, None
    for before, (_, fact) in zip(sim.states, sim.facts[1:], strict=False):
        if isinstance(fact, voided):
            same = isinstance(fact, ev.WorkspaceChanged) and fact.snapshot == before.snapshot is not None
            same = same or (isinstance(fact, ev.PolicyChanged) and fact.digest == before.digest)
            judged, said = (judged, said) if same else (False, None)
        elif isinstance(fact, ev.Judged):
            judged = True
        elif isinstance(fact, ev.ApprovalDecided):
            said = fact.answer
        elif isinstance(fact, ev.IterationClosed) and fact.outcome == "accepted":
            assert judged
            asked = sim.policy.until == "passed" and sim.policy.approval.when in {"passed", "always"}
            assert not asked or before.iteration == 0 or said == "approve"


@FAST
@given(runs())
def test_no_agent_starts_after_a_stop_or_beyond_a_limit(sim):
    stopped = False
    for before, (_, fact) in zip(sim.states, sim.facts[1:], strict=False):
        stopped = stopped or isinstance(fact, ev.StopRequested)
        if isinstance(fact, ev.AttemptStarted):
            assert not stopped
            assert not before.paused
            assert before.approval is None
            assert fact.iteration <= max(sim.policy.limits.max_iterations, 9)
    assert not any(isinstance(c, Finish) for c in sim.commands[:-1])


@FAST
@given(runs())
def test_waits_stay_within_their_bound_and_time_never_goes_back(sim):
    assert sum(sim.waits) <= MAX_WAIT + 1e-6
    assert all(a.updated_at <= b.updated_at for a, b in pairwise(sim.states))


@FAST
@given(runs())
def test_alerts_of_a_kind_are_three_iterations_apart(sim):
    for kind in {kind for kind, _ in sim.alerts}:
        at = [n for k, n in sim.alerts if k == kind]
        assert all(b - a >= 3 for a, b in pairwise(at))


@FAST
@given(runs())
def test_what_was_spent_is_the_sum_of_what_attempts_reported(sim):
    ends = [e for _, e in sim.facts if isinstance(e, ev.AttemptSucceeded | ev.AttemptFailed)]
    cuts = [e for _, e in sim.facts if isinstance(e, ev.AttemptInterrupted)]
    totals = sim.state.totals
    assert totals.attempts == len(ends) + len(cuts) == len(sim.starts)
    assert totals.unknown_costs >= sum(e.usage.cost_usd is None for e in ends)
    assert totals.cost_usd >= sum(e.usage.cost_usd or 0.0 for e in ends) - 1e-9
    assert totals.tokens == sum(e.usage.tokens for e in ends)


@FAST
@given(st.integers(1, 30), st.data())
def test_exactly_n_starts_at_max_iterations_n(n, data):
    red = data.draw(st.lists(st.sampled_from([FAIL, NO_PROOF, SKIP]), min_size=1, max_size=5))
    policy = Policy(gates=RULES[:1], limits=Limits(max_iterations=n), baseline=data.draw(st.booleans()))
    sim = Sim(policy, gates=script(*red)).run()
    assert (sim.end[0], sum(isinstance(c, RunAgent) for c in sim.commands)) == ("max_iterations", n)
