"""`decide`: what to do next. The same policy, state and time give the same command, for ever.

Rules. Nothing else in loopwright decides anything. Hosts perform commands and record the facts that
come of them; `why`, `backtest` and recovery ask this function again. It has an answer for every run
that is not over; only a person or a host that must first record how an attempt ended is waited for
without end.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from loopwright.core import events as ev
from loopwright.core.closing import RATCHET, closing
from loopwright.core.ending import CRASHES, bounded, final, refuses, request, unhealthy
from loopwright.core.judge import judge
from loopwright.core.limits import (
    WAITING_KINDS,
    Limits,
    exceeded,
    in_force,
    left,
    nudge,
    reserve_usd,
    used_up,
    wait_seconds,
)
from loopwright.core.monitors import CALM, alerts
from loopwright.core.policy import Ask, Close, Command, Expire, Judge, Policy, RunAgent, RunGates, Wait
from loopwright.core.ratchet import forgiven, slipped
from loopwright.core.showing import allow_line, listed
from loopwright.core.state import Iteration, LoopState
from loopwright.core.values import Attempt, Feedback, Verdict
from loopwright.core.working import FATAL, REWRITES
from loopwright.errors import IllegalEvent

UNDO: Final = "files that decide what the gates see are not yours to change (in shared files: scripts, and the tables of test and lint tools)"
UNSURE: Final = "it passes, but is not sure enough to be believed alone"
ONCE_MORE: Final = frozenset({"no_op", "no_output", "timeout", "context_overflow"})


def decide(policy: Policy, state: LoopState, now: datetime) -> Command:
    """The next thing to do for a run that is not finished; `IllegalEvent` for one that is."""
    if state.finished is not None:
        raise IllegalEvent(f"the run is over: {state.finished.reason}")
    if now.tzinfo is not UTC and now.utcoffset() is None:
        raise IllegalEvent(f"decided at {now.isoformat()}, which has no time zone")
    if state.updated_at is None:
        raise IllegalEvent("decided before RunStarted")
    if now < state.updated_at:  # as in `apply`: time never goes back  # noqa: PLR1730 - nor is max() as quick
        now = state.updated_at
    limits = in_force(policy.limits, state)
    if state.approval is not None:
        return _expecting(state.approval, now)
    it = state.current
    if it is None:
        return _between(policy, limits, state, now)
    if it.open is not None:
        return Wait(until=None, why="the agent is at work")
    if state.stop == "now" or state.interruptions >= CRASHES:
        return Close(outcome="cut")
    if not it.done:
        return _attempting(policy, limits, state, it, now)
    return _validating(policy, limits, state, it, now)


def _expecting(asked: ev.ApprovalRequested, now: datetime) -> Command:
    if asked.deadline is not None and now >= asked.deadline:
        return Expire(id=asked.id)
    return Wait(until=asked.deadline, why=f"a person: {asked.question}")


def _attempting(policy: Policy, limits: Limits, state: LoopState, it: Iteration, now: datetime) -> Command:
    """No result yet: close, ask, wait, or start an attempt."""
    failed = it.failed
    if failed is not None and failed.kind in FATAL:
        return Close(outcome="errored" if failed.kind == "permanent" else "cut")
    if state.stop:
        return Close(outcome="cut")
    if state.answer is not None:  # the question about being blocked got no go-ahead
        return _held(policy, state) or Close(outcome="cut")
    if failed is not None and failed.kind == "blocked":
        return Ask(request=request(policy, state, "blocked", failed.message, now))
    if failed is not None and _exhausted(limits, it, failed):
        errored = closing(state, it, "errored", None)
        return Close(outcome="errored", alerts=alerts(policy.monitors, state, errored))
    if used_up(limits, state) is not None:
        return Close(outcome="cut")
    if state.paused:
        return Wait(until=None, why="paused")
    return _waiting(limits, state, failed, now) or _run_agent(policy, limits, state)


def _exhausted(limits: Limits, it: Iteration, failed: ev.AttemptFailed) -> bool:
    """Whether the failures so far leave this iteration no further attempt."""
    kind = failed.kind
    if kind == "unknown" or it.used >= limits.attempts:  # rate limits are not among the used ones
        return True
    return kind in ONCE_MORE and it.kinds.count(kind) > 1


def _waiting(limits: Limits, state: LoopState, failed: ev.AttemptFailed | None, now: datetime) -> Wait | None:
    """The wait that this failure asks for, new or under way; `None` when there is none or it is over."""
    if state.wait_until is not None:
        return Wait(until=state.wait_until, why=state.wait_why) if now < state.wait_until else None
    if failed is None or failed.kind not in WAITING_KINDS:
        return None
    seconds = wait_seconds(limits, state, failed)
    why = "rate limited" if failed.kind == "rate_limited" else "trying again after an error"
    return Wait(until=now + timedelta(seconds=seconds), why=why, seconds=seconds)


def _run_agent(policy: Policy, limits: Limits, state: LoopState) -> RunAgent:
    it = state.current
    number = it.number if it else state.iteration + 1
    remaining = left(limits, state)
    best = state.best
    return RunAgent(
        attempt=Attempt(
            run=state.run,
            iteration=number,
            number=(it.started if it else 0) + 1,
            key=f"{state.run}/{number}",
            goal=policy.goal,
            feedback=feedback(state),
            left=remaining,
            deadline_s=min(limits.attempt_timeout, remaining.seconds),
            previous=state.output,
            best=best,
            reserve_usd=reserve_usd(limits, state.totals),
            session=None if _overflowed(state) else state.session,
        ),
        start=_start(policy, state) or state.snapshot,
    )


def _overflowed(state: LoopState) -> bool:
    """Whether the last attempt failed because its session was full: the next begins a new one."""
    failed = state.current.failed if state.current else state.failure
    return failed is not None and failed.kind == "context_overflow"


def _start(policy: Policy, state: LoopState) -> str | None:
    """What the next attempt begins from, where that is not what is there: an iteration has one start."""
    if state.current is not None:
        return state.current.start
    return state.best.snapshot if policy.start_from == "best" and state.best else None


def feedback(state: LoopState) -> Feedback:
    """What the next attempt should know of the iterations before it."""
    it = state.current
    failed = it.failed if it and it.failed else state.failure
    reasons = state.last.reasons if state.last else ()
    if failed:
        reasons = (f"the last attempt failed ({failed.kind}): {failed.message}", *reasons)
    nudges = []
    if state.restored:
        undone = ", ".join(state.restored[:20])
        nudges.append(f"protected files were changed and put back, leave them: {undone}")
    if state.alerts:
        judged = next((c.number for c in reversed(state.recent) if c.score is not None), 0)
        nudges += [a.message for a in state.alerts if a.action == "nudge" and a.iteration >= judged]
    return Feedback(
        reasons=reasons,
        notes=state.notes,
        nudges=tuple(nudges),
        history=state.recent[-10:],
        interrupted=it.interrupted if it else False,
    )


def _validating(policy: Policy, limits: Limits, state: LoopState, it: Iteration, now: datetime) -> Command:
    """The work is done: evidence, gates, verdict, people, close."""
    if it.verdict is None:
        if question := _tampering(policy, state, now):
            return question
        have = [s.gate for s in it.scores]
        missing = [rule.name for rule in policy.gates if rule.name not in have]
        if not missing:
            return _judging(policy, limits, state, it)
        if state.paused and not state.stop:
            return Wait(until=None, why="paused")
        return RunGates(iteration=it.number, missing=tuple(missing))
    verdict = it.verdict
    if it.number == 0:
        done = verdict.passed and not verdict.unsure and policy.if_passing == "finish"
        return Close(outcome="accepted" if done else "not_accepted")
    if state.answer is not None:
        return _answered(policy, state, verdict, state.answer)
    when = policy.approval.when
    ends = verdict.passed and policy.until == "passed"
    unsure = verdict.passed and bool(verdict.unsure)  # whatever `when` says: nothing else vouches for it
    asked = policy.until == "passed" and (when == "always" or (when == "passed" and verdict.passed) or unsure)
    if not state.stop:
        if asked:
            return Ask(request=request(policy, state, "accept", _question(it, verdict), now))
        if not ends and (question := _alarm(policy, state, now)):
            return question
    return Close(outcome="accepted" if verdict.passed and not asked else "not_accepted")


def _tampering(policy: Policy, state: LoopState, now: datetime) -> Command | None:
    """A change of what the gates judge by that a person must look at first."""
    touched = state.tampered
    if touched is None or touched.action != "asked" or state.stop:
        return None
    if state.answer is None:
        question = f"{', '.join(touched.paths)} decide what the gates see and were changed: accept that?"
        return Ask(request=request(policy, state, "evidence", question, now))
    if refuses(policy, state.answer):
        return Close(outcome="cut")
    return _held(policy, state)


def _judging(policy: Policy, limits: Limits, state: LoopState, it: Iteration) -> Judge:
    """The verdict on the scores, with the alerts it brings."""
    refusals = []
    if state.tampered is not None:
        refusals.append(("evidence", f"undo {', '.join(state.tampered.paths[:20])}: {UNDO}"))
    if it.number and (less := slipped(policy.gates, state.counted, it.scores)):
        refusals.append((RATCHET, "; ".join(less)))
    if it.rewrites > REWRITES:
        refusals.append(("workspace", f"the gates changed the work they judge {it.rewrites} times"))
    weak = [s.gate for s in it.scores if s.score.unsure]
    if weak and policy.until == "limits":  # nobody is asked before the end, and then about the best alone
        required = {rule.name for rule in policy.gates if rule.required}
        refusals += [(name, UNSURE) for name in weak if name in required]
    scores = it.scores
    if policy.known_failures and state.zero is not None:
        scores = forgiven(it.scores, state.zero.failing)
    verdict = judge(policy.gates, policy.threshold, scores, state.ran, refusals)
    if it.number == 0:
        return Judge(verdict=verdict, alerts=())
    closed = closing(state, it, "not_accepted", verdict)
    turn = nudge(limits, state, closed)
    raised = alerts(policy.monitors, state, closed)
    return Judge(verdict=verdict, alerts=raised if turn is None else (*raised, turn))


def _alarm(policy: Policy, state: LoopState, now: datetime) -> Ask | None:
    """Asks about the first alert of the present iteration that a person is to be asked about."""
    always = policy.approval.when == "alert"
    for alert in state.alerts:
        fresh = alert.iteration == state.iteration and alert.iteration > state.calm_from
        if fresh and (alert.action == "ask" or (always and alert.kind not in CALM)):
            question = f"{alert.kind}: {alert.message}. Go on?"
            return Ask(request=request(policy, state, "alert", question, now))
    return None


def _question(it: Iteration, verdict: Verdict) -> str:
    if not it.scores:
        return f"accept iteration {it.number} (no gate looked at it)?"
    state = "passed every required gate" if verdict.passed else f"not passed: {', '.join(verdict.blockers)}"
    if verdict.unsure:
        state += f"; {', '.join(verdict.unsure)} not sure"
    return f"accept iteration {it.number} (score {verdict.score:.2f}, {state})?"


def _answered(policy: Policy, state: LoopState, verdict: Verdict, answer: ev.ApprovalDecided) -> Command:
    """A person spoke on the iteration under way, or nobody did in time."""
    if answer.answer == "approve" and (verdict.passed or answer.override):
        return Close(outcome="accepted")
    if answer.answer == "revise":
        return Close(outcome="revised")
    return _held(policy, state) or Close(outcome="not_accepted")


def _held(policy: Policy, state: LoopState) -> Wait | None:
    """The wait of a run that nobody answered in time, where the policy holds it for them."""
    if state.expired and policy.approval.on_timeout == "hold" and not state.stop:
        return Wait(until=None, why="approval_expired")
    return None


def _between(policy: Policy, limits: Limits, state: LoopState, now: datetime) -> Command:
    """No iteration is open: end the run for the first reason that holds, rest, or begin the next one."""
    if (ending := final(policy, state)) is not None:
        return ending
    if (hold := _held(policy, state)) is not None:
        return hold
    errored = bool(state.recent) and state.recent[-1].outcome == "errored"
    if errored and state.answer is None and (question := _alarm(policy, state, now)):
        return question  # of a judged iteration it was asked before the close
    if (ending := unhealthy(state)) is not None:
        return ending
    limit = exceeded(limits, state)
    if limit is None and state.answer is not None and state.answer.answer == "approve":
        limit = "limits_reached", "a person accepted the best so far"  # and raised the limit with it
    if limit is not None:
        return bounded(policy, state, limit, now)
    if state.paused:
        return Wait(until=None, why="paused")
    if policy.baseline and policy.gates and state.zero is None and state.iteration == 0:
        return RunGates(iteration=0, missing=tuple(rule.name for rule in policy.gates))
    if state.denied_again and state.answer is None:
        return _not_allowed(policy, state, now)
    failed = state.failure if state.failure is not None and state.failure.retry_after else None
    return _waiting(limits, state, failed, now) or _run_agent(policy, limits, state)


def _not_allowed(policy: Policy, state: LoopState, now: datetime) -> Ask:
    """Asks about what the agent was refused in two iterations running: a third would go the same way."""
    names = state.denied_again
    line = f"{allow_line(names)} in the agent's table lets it, with run --accept-changes"
    what = f"not allowed, twice in a row: {listed(names)}. Go on without? ({line})"
    return Ask(request=request(policy, state, "blocked", what, now))
