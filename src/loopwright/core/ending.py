"""How a run ends: the first reason that holds, in DESIGN's order.

Rule: every ending has a reason from the closed list and an explanation with its figures.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final

from loopwright.core import events as ev
from loopwright.core.limits import Ending
from loopwright.core.policy import Ask, Command, Deliver, Finish, Policy
from loopwright.core.showing import digest, showing
from loopwright.core.state import LoopState
from loopwright.core.values import About

CRASHES: Final = 3  # crashes in a row that end a run
LIMITS_REACHED: Final = frozenset(
    {"max_iterations", "max_duration", "max_wait", "budget", "max_tokens", "converged", "limits_reached"}
)


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
    answer = state.refused or state.answer
    if answer is not None and refuses(policy, answer):
        said = f": {answer.note}" if answer.note else ""
        by = "nobody answering in time" if answer.answer == "expired" else answer.by or "a person"
        return _finish("stopped", "rejected", f"rejected by {by}{said}")
    if state.stop:
        return _finish("stopped", "stopped_by_user", "a person asked it to stop")
    broken = state.broken if last is None else state.broke_twice
    if broken:
        reasons = state.last.reasons if state.last else ()
        why = next((said for said in reasons if said.startswith(broken)), ", ".join(broken))
        return _finish("failed", "gate_error", f"a required gate could not run: {why}")
    return None


def refuses(policy: Policy, answer: ev.ApprovalDecided) -> bool:
    """Whether this answer ends the run: a no, or silence where the policy says silence is a no."""
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


def unhealthy(state: LoopState) -> Command | None:
    """The ending an alert brings: a critical one, or one whose action is to stop."""
    for alert in reversed(state.alerts):
        if alert.iteration > state.calm_from and (alert.critical or alert.action == "stop"):
            many = "too many alerts, the last one " if alert.critical else ""
            return _finish("stopped", "health", f"{many}{alert.kind}: {alert.message}")
    return None


def bounded(policy: Policy, state: LoopState, ending: Ending, now: datetime) -> Command:
    """A limit binds: with `until = "limits"` and a best worth keeping that is success, else the end."""
    reason, why = ending
    best = state.best
    answer = state.answer if state.subject == "accept" else None
    if policy.until == "passed" or reason not in LIMITS_REACHED or best is None or not best.passed:
        return _finish("failed", reason, why)
    if best.iteration == 0:
        return _finish("failed", reason, f"{why}; nothing beat the state before any work")
    kept = f"the best is iteration {best.iteration} (score {best.score:.2f})"
    if policy.approval.when in {"passed", "always"} and (answer is None or answer.answer != "approve"):
        if answer is not None:
            return _finish("failed", reason, f"{why}; {kept}, which was not approved")
        return Ask(request=request(policy, state, "accept", f"the run is over, {kept}: accept it?", now))
    if policy.deliver != "none" and state.delivered is None:
        return Deliver(to=policy.deliver, snapshot=best.snapshot)
    return _finish("complete", "limits_reached", f"{why}; {kept}")


def request(
    policy: Policy, state: LoopState, about: About, question: str, now: datetime
) -> ev.ApprovalRequested:
    """The request to record: its id names the run, iteration, subject, number and a digest of what is shown."""
    iteration = state.current.number if state.current else state.iteration
    number = state.requests + 1
    deadline = now + timedelta(seconds=policy.approval.timeout)
    view = showing(policy, state, about=about, number=number, question=question, deadline=deadline)
    seen = digest(view)
    return ev.ApprovalRequested(
        id=hashlib.sha256(f"{state.run}/{iteration}/{about}/{number}/{seen}".encode()).hexdigest()[:16],
        number=number,
        iteration=iteration,
        about=about,
        digest=seen,
        question=question,
        deadline=deadline,
    )


def _finish(phase: ev.EndPhase, reason: ev.StopReason, explanation: str) -> Finish:
    return Finish(finished=ev.RunFinished(phase=phase, reason=reason, explanation=explanation))
