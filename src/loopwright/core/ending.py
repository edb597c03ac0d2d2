"""How a run ends: the first reason that holds, in DESIGN's order.

Rule: every ending has a reason from the closed list and an explanation with its figures.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final

from loopwright.core import events as ev
from loopwright.core.limits import Limits, between_iterations, used_up
from loopwright.core.policy import Ask, Command, Deliver, Finish, Policy, Wait
from loopwright.core.state import LoopState
from loopwright.core.values import About

CRASHES: Final = 3  # crashes in a row that end a run
LIMITS_REACHED: Final = frozenset(
    {"max_iterations", "max_duration", "max_wait", "budget", "max_tokens", "converged"}
)
WAITING_KINDS: Final = frozenset({"transient", "rate_limited"})


def bound(limits: Limits, state: LoopState) -> tuple[ev.StopReason, str] | None:
    failed = state.failure
    if failed is not None and wait_too_long(limits, state, failed):
        return (
            "max_wait",
            f"the agent asked to wait {failed.retry_after:.0f} s and {limits.max_wait:.0f} s are allowed in all",
        )
    return used_up(limits, state) or between_iterations(limits, state)


def final(policy: Policy, state: LoopState) -> Command | None:
    """The endings that no limit brings, in DESIGN's order."""
    last = state.recent[-1] if state.recent else None
    failure = state.failure.message if state.failure else ""
    if state.stop == "now":
        return _finish("stopped", "stopped_by_user", "a person stopped it at once")
    if state.fatal == "policy_violation":
        return _finish("stopped", "policy_violation", failure)
    if state.fatal == "permanent":
        return _finish("failed", "permanent_error", failure)
    if state.interruptions >= CRASHES:
        why = f"the agent was cut off by a crash {state.interruptions} times in a row"
        return _finish("failed", "interrupted_too_often", why)
    if last is not None and last.outcome == "accepted" and policy.until == "passed":
        return _accepted(policy, state)
    if state.zero is not None and state.zero.outcome == "accepted" and last is None:
        return _finish("complete", "already_satisfied", "every required gate passed before any work")
    if state.answer is not None and last is not None and _refused(policy, state.answer):
        said = f": {state.answer.note}" if state.answer.note else ""
        by = state.answer.by or "nobody in time"
        return _finish("stopped", "rejected", f"rejected by {by}{said}")
    if state.stop:
        return _finish("stopped", "stopped_by_user", "a person asked it to stop")
    broken = state.broken if last is None else state.broke_twice
    if broken:
        why = state.last.reasons[0] if state.last and state.last.reasons else ", ".join(broken)
        return _finish("failed", "gate_error", f"a required gate could not run: {why}")
    return _unhealthy(state)


def _refused(policy: Policy, answer: ev.ApprovalDecided) -> bool:
    return answer.answer == "reject" or (
        answer.answer == "expired" and policy.approval.on_timeout == "reject"
    )


def _accepted(policy: Policy, state: LoopState) -> Command:
    if policy.deliver != "none" and state.delivered is None:
        return Deliver(to=policy.deliver, snapshot=state.snapshot)
    score = state.last.score if state.last else 0.0
    if state.last is not None and state.last.passed:
        return _finish("complete", "quality_reached", f"every required gate passed (score {score:.2f})")
    open_gates = ", ".join(state.last.blockers) if state.last else ""
    return _finish("complete", "quality_reached", f"a person accepted it although not passed: {open_gates}")


def _unhealthy(state: LoopState) -> Command | None:
    for alert in reversed(state.alerts):
        if alert.iteration > state.calm_from and (alert.critical or alert.action == "stop"):
            many = "too many alerts, the last one " if alert.critical else ""
            return _finish("stopped", "health", f"{many}{alert.kind}: {alert.message}")
    return None


def bounded(policy: Policy, state: LoopState, reason: ev.StopReason, why: str, now: datetime) -> Command:
    """A limit binds: with `until = "limits"` and a best worth keeping that is success, else the end."""
    best, zero = state.best, state.zero
    if policy.until == "passed" or reason not in LIMITS_REACHED or best is None or not best.passed:
        return _finish("failed", reason, why)
    if zero is not None and best.iteration == 0:
        return _finish("failed", reason, f"{why}; nothing beat the state before any work")
    if policy.approval.when in {"passed", "always"} and state.answer is None:
        question = f"accept the best, iteration {best.iteration} (score {best.score:.2f})?"
        return Ask(request=request(policy, state, "accept", question, now))
    if state.answer is not None and state.answer.answer != "approve":
        return _end_unapproved(policy, state.answer, reason, why)
    if policy.deliver != "none" and state.delivered is None:
        return Deliver(to=policy.deliver, snapshot=best.snapshot)
    return _finish(
        "complete",
        "limits_reached",
        f"{why}; the best is iteration {best.iteration} (score {best.score:.2f})",
    )


def _end_unapproved(policy: Policy, answer: ev.ApprovalDecided, reason: ev.StopReason, why: str) -> Command:
    if answer.answer == "expired" and policy.approval.on_timeout == "hold":
        return Wait(until=None, why="approval_expired")
    return _finish("failed", reason, f"{why}; the best was not approved")


def request(
    policy: Policy, state: LoopState, about: About, question: str, now: datetime
) -> ev.ApprovalRequested:
    it = state.current
    number = state.requests + 1
    iteration = it.number if it else state.iteration
    shown = f"{state.run}\n{iteration}\n{about}\n{number}\n{question}\n{state.snapshot}\n{it.scores if it else ''}"
    digest = hashlib.sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()
    return ev.ApprovalRequested(
        id=hashlib.sha256(f"{state.run}/{iteration}/{about}/{number}/{digest}".encode()).hexdigest()[:16],
        number=number,
        iteration=iteration,
        about=about,
        digest=digest,
        question=question,
        deadline=now + timedelta(seconds=policy.approval.timeout),
    )


def _finish(phase: ev.EndPhase, reason: ev.StopReason, explanation: str) -> Finish:
    return Finish(finished=ev.RunFinished(phase=phase, reason=reason, explanation=explanation))


def wait_too_long(limits: Limits, state: LoopState, failed: ev.AttemptFailed | None) -> bool:
    """Whether the wait asked for is longer than all waits together may be."""
    asked = failed.retry_after if failed is not None and failed.kind in WAITING_KINDS else None
    return asked is not None and state.totals.waited_s + asked > limits.max_wait
