"""`decide`: what to do next. The same policy, state and time give the same command, for ever.

Rule: nothing else in loopwright decides anything. Hosts perform commands and record the facts that
come of them; `why`, `backtest` and recovery ask this function again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from loopwright.core import events as ev
from loopwright.core.closing import closing
from loopwright.core.ending import CRASHES, WAITING_KINDS, bound, bounded, final, request, wait_too_long
from loopwright.core.judge import judge
from loopwright.core.limits import Limits, in_force, left, nudge, reserve_usd, used_up
from loopwright.core.monitors import CALM, alerts
from loopwright.core.policy import Ask, Close, Command, Expire, Judge, Policy, RunAgent, RunGates, Wait
from loopwright.core.state import Iteration, LoopState
from loopwright.core.values import Attempt, Feedback, Outcome, Verdict
from loopwright.errors import IllegalEvent

ONCE_MORE: Final = frozenset({"no_op", "no_output", "timeout", "context_overflow"})


def decide(policy: Policy, state: LoopState, now: datetime) -> Command:
    """The next thing to do for a run that is not finished; `IllegalEvent` for one that is."""
    if state.finished is not None:
        raise IllegalEvent(f"the run is over: {state.finished.reason}")
    limits = in_force(policy.limits, state)
    if state.approval is not None and not state.stop:
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
    if failed is not None and failed.kind in {"permanent", "policy_violation"}:
        return Close(outcome="errored" if failed.kind == "permanent" else "cut")
    if state.stop:
        return Close(outcome="cut")
    if state.answer is not None:  # a question about being blocked was not answered with a go-ahead
        return _unanswered(policy, state, state.answer)
    if failed is not None and failed.kind == "blocked":
        return Ask(request=request(policy, state, "blocked", failed.message, now))
    if failed is not None and _exhausted(limits, it):
        errored = closing(state, it, "errored", None)
        return Close(outcome="errored", alerts=alerts(policy.monitors, state, errored))
    if used_up(limits, state) or wait_too_long(limits, state, failed):
        return Close(outcome="cut")
    if state.paused:
        return Wait(until=None, why="paused")
    if it.wait_until is not None and now < it.wait_until:
        return Wait(until=it.wait_until, why=it.wait_why)
    if failed is not None and failed.kind in WAITING_KINDS and it.wait_until is None:
        seconds = wait_seconds(limits, it, failed)
        why = "rate limited" if failed.kind == "rate_limited" else "trying again after an error"
        return Wait(until=now + timedelta(seconds=seconds), why=why, seconds=seconds)
    return _run_agent(policy, limits, state)


def _exhausted(limits: Limits, it: Iteration) -> bool:
    """Whether the failures so far leave this iteration no further attempt."""
    kind = it.failed.kind if it.failed else ""
    if kind == "rate_limited":
        return False
    return kind == "unknown" or it.used >= limits.attempts or (kind in ONCE_MORE and it.kinds.count(kind) > 1)


def wait_seconds(limits: Limits, it: Iteration, failed: ev.AttemptFailed) -> float:
    """How long to wait after this failure: exponential with jitter, never less than it asked for."""
    again = sum(kind in WAITING_KINDS for kind in it.kinds)
    rule = limits.backoff
    grown = min(rule.max, rule.first * rule.factor ** min(again - 1, 60))
    jittered = grown * (0.5 + failed.dice / 2)
    if failed.retry_after is None:
        return jittered
    return failed.retry_after + min(jittered, rule.first)


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
        ),
        start=best.snapshot if policy.start_from == "best" and best and it is None else state.snapshot,
    )


def feedback(state: LoopState) -> Feedback:
    """What the next attempt should know of the iterations before it."""
    it = state.current
    failed = it.failed if it and it.failed else state.failure
    reasons = (f"the last attempt failed ({failed.kind}): {failed.message}",) if failed else ()
    number = it.number - 1 if it else state.iteration
    nudges = tuple(
        a.message for a in state.alerts if a.iteration == number and a.iteration and a.action == "nudge"
    )
    return Feedback(
        reasons=(*reasons, *(state.last.reasons if state.last else ())),
        notes=state.notes,
        nudges=nudges,
        history=state.recent[-10:],
        interrupted=it.interrupted if it else False,
    )


def _validating(policy: Policy, limits: Limits, state: LoopState, it: Iteration, now: datetime) -> Command:
    """The work is done: gates, verdict, people, close."""
    if state.paused:
        return Wait(until=None, why="paused")
    if it.verdict is None:
        have = {s.gate for s in it.scores}
        missing = tuple(rule.name for rule in policy.gates if rule.name not in have)
        if missing:
            return RunGates(iteration=it.number, missing=missing)
        verdict = judge(policy.gates, policy.threshold, it.scores, state.ran)
        if it.number == 0:
            return Judge(verdict=verdict, alerts=())
        closed = closing(state, it, "not_accepted", verdict)
        turn = nudge(limits, state, closed)
        raised = alerts(policy.monitors, state, closed)
        return Judge(verdict=verdict, alerts=(*raised, *((turn,) if turn else ())))
    if it.number == 0:
        done = it.verdict.passed and policy.if_passing == "finish"
        return Close(outcome="accepted" if done else "not_accepted")
    if state.answer is not None:
        return _answered(policy, state, it.verdict, state.answer)
    if policy.until == "limits":
        return Close(outcome="accepted" if it.verdict.passed else "not_accepted")
    wanted = policy.approval.when
    if (wanted == "passed" and it.verdict.passed) or wanted == "always":
        return Ask(request=request(policy, state, "accept", _question(it, it.verdict), now))
    if not it.verdict.passed and (asking := _asking_alert(policy, state, it)):
        return Ask(request=request(policy, state, "alert", asking, now))
    return Close(outcome="accepted" if it.verdict.passed else "not_accepted")


def _asking_alert(policy: Policy, state: LoopState, it: Iteration) -> str | None:
    """The first alert of this iteration that a person is to be asked about."""
    for alert in state.alerts:
        fresh = alert.iteration == it.number and alert.iteration > state.calm_from
        asked = alert.action == "ask" or (policy.approval.when == "alert" and alert.kind not in CALM)
        if fresh and asked:
            return f"{alert.kind}: {alert.message}. Go on?"
    return None


def _question(it: Iteration, verdict: Verdict) -> str:
    state = "passed every required gate" if verdict.passed else f"not passed: {', '.join(verdict.blockers)}"
    return f"accept iteration {it.number} (score {verdict.score:.2f}, {state})?"


def _answered(policy: Policy, state: LoopState, verdict: Verdict, answer: ev.ApprovalDecided) -> Command:
    """A person spoke on the iteration under way."""
    match answer.answer:
        case "approve":
            return Close(outcome="accepted" if verdict.passed or answer.override else "not_accepted")
        case "revise":
            return Close(outcome="revised")
        case "reject":
            return Close(outcome="not_accepted")
        case "expired":
            return _unanswered(policy, state, answer)


def _unanswered(policy: Policy, state: LoopState, answer: ev.ApprovalDecided) -> Command:
    """Nobody gave a go-ahead in time, or someone refused it."""
    it = state.current
    outcome: Outcome = "not_accepted" if it and it.verdict else "cut"
    if answer.answer == "expired" and policy.approval.on_timeout == "hold":
        return Wait(until=None, why="approval_expired")
    return Close(outcome=outcome)


def _between(policy: Policy, limits: Limits, state: LoopState, now: datetime) -> Command:
    """No iteration is open: end the run for the first reason that holds, rest, or begin the next one."""
    ending = final(policy, state)
    if ending is not None:
        return ending
    if (limit := bound(limits, state)) is not None:
        return bounded(policy, state, *limit, now)
    if state.paused:
        return Wait(until=None, why="paused")
    if policy.baseline and policy.gates and state.zero is None and state.iteration == 0:
        return RunGates(iteration=0, missing=tuple(rule.name for rule in policy.gates))
    return _run_agent(policy, limits, state)
