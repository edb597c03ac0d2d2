"""The run document: what `run --json`, `list` and the page say of a run (DESIGN §11).

Rule: made from the state alone, so every reader says the same. Unknown is `None`, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final

from loopwright.core.closing import best_now
from loopwright.core.events import StopReason
from loopwright.core.limits import of_day
from loopwright.core.monitors import healthy
from loopwright.core.state import LoopState

SCHEMA: Final = "loopwright/run/v1"
WAITING_CODE: Final = 6
TREND: Final = 16  # scores in a head


@dataclass(frozen=True, slots=True)
class Ending:
    """What the shell is told of an ending, and what to do next (`{run}` is the run's id)."""

    exit_code: int
    next: str


ENDINGS: Final[dict[StopReason, Ending]] = {
    "quality_reached": Ending(0, "loopwright diff {run}"),
    "already_satisfied": Ending(0, "loopwright show {run} --gates"),
    "limits_reached": Ending(0, "loopwright restore {run} --iteration best"),
    "max_iterations": Ending(3, "loopwright resume {run} --add-iterations 10"),
    "max_duration": Ending(3, "loopwright resume {run} --add-duration 30m"),
    "max_wait": Ending(3, "loopwright resume {run} once the limit is lifted"),
    "budget": Ending(3, "loopwright resume {run} --add-budget 5"),
    "cost_unknown": Ending(3, "a new run with --set limits.reserve=USD, what an attempt may cost"),
    "max_tokens": Ending(3, "a new run with a higher --set limits.max_tokens=N"),
    "converged": Ending(3, 'loopwright resume {run} --note "try another way"'),
    "consecutive_errors": Ending(3, "loopwright show {run} --log"),
    "policy_violation": Ending(3, "loopwright show {run} --events"),
    "health": Ending(4, "loopwright show {run} --health"),
    "rejected": Ending(5, "loopwright restore {run} --iteration 0"),
    "stopped_by_user": Ending(5, "loopwright resume {run}"),
    "permanent_error": Ending(7, "mend what it says, then loopwright resume {run}"),
    "gate_error": Ending(7, "mend the gate's tool, then loopwright resume {run}"),
    "interrupted_too_often": Ending(7, "loopwright show {run} --log"),
}


def exit_code(state: LoopState) -> int | None:
    """The exit code of DESIGN §11; `None` while the run is under way."""
    if state.finished is not None:
        return ENDINGS[state.finished.reason].exit_code
    return WAITING_CODE if state.approval is not None or state.paused or state.expired else None


def next_step(state: LoopState) -> str:
    """The command to type next."""
    if state.finished is not None:
        best = state.best.iteration if state.best else 0
        step = ENDINGS[state.finished.reason].next.format(run=state.run, best=best)
        if state.finished.reason == "budget" and of_day(state):
            step = f"loopwright resume {state.run} tomorrow (UTC)"
        elif state.finished.reason == "cost_unknown" and not _money_bound(state):
            step = "a new run without limits.max_tokens, or with an agent that tells its tokens"
        if state.finished.phase == "complete":
            step = _way_out(state) or step
        needs_files = step.startswith(("loopwright diff", "loopwright restore"))
        return f"loopwright show {state.run}" if needs_files and state.base is None else step
    if state.approval is not None:
        verdict = state.current.verdict if state.current and state.approval.about == "accept" else None
        if verdict is not None and not verdict.passed:  # to accept it all the same needs a reason
            return f'loopwright revise {state.run} --note "what to change"'
        return f"loopwright approve {state.run}"
    if state.expired:
        return f"loopwright ask-again {state.run}"
    if state.paused:
        return f"loopwright resume {state.run}"
    return f"loopwright show {state.run}"


def _money_bound(state: LoopState) -> bool:
    """Whether it is money that is bounded, not tokens alone."""
    limits = {**(state.spec.get("limits") or {}), **state.limits}
    return any(limits.get(name) is not None for name in ("budget", "budget_per_day"))


def _way_out(state: LoopState) -> str | None:
    """The next step with good work that is not in the user's folder: on a branch, or in a folder apart."""
    if state.delivered is not None and state.delivered.ref:
        return f"git merge {state.delivered.ref}"
    apart = (state.spec.get("workspace") or {}).get("mode") in {"worktree", "folder"}
    return f"loopwright apply {state.run}" if apart and state.best and state.best.iteration else None


def explanation(state: LoopState) -> str:
    """Why the run is where it is, in a sentence."""
    if state.finished is not None:
        return state.finished.explanation
    it = state.current
    if state.approval is not None:
        return state.approval.question
    if state.expired:
        return "nobody decided in time; the work is kept"
    if state.paused:
        return "paused by a person"
    if state.wait_until is not None:
        until, now = state.wait_until.astimezone(UTC), (state.updated_at or state.wait_until).astimezone(UTC)
        day = "" if until.date() == now.date() else f"{until:%Y-%m-%d} "
        return f"{state.wait_why}, until {day}{until:%H:%M:%S} UTC"
    return f"iteration {it.number} is under way" if it else "about to begin an iteration"


def passed(state: LoopState) -> bool:
    """Whether the run ended with work that passed every required gate."""
    end = state.finished
    if end is None or end.phase != "complete":
        return False
    if end.reason == "limits_reached":
        return state.best is not None and state.best.passed
    return state.last is not None and state.last.passed


def reason(state: LoopState) -> str | None:
    """The closed word for the ending, or for the wait."""
    if state.finished is not None:
        return state.finished.reason
    if state.approval is not None:
        return "approval_requested"
    if state.expired:
        return "approval_expired"
    return "paused" if state.paused else None


def document(state: LoopState) -> dict[str, Any]:
    """The run document of DESIGN §11."""
    totals, it = state.totals, state.current
    best = best_now(state)
    verdict = it.verdict if it is not None and it.verdict is not None else state.last
    attempts = totals.known_costs + totals.unknown_costs + totals.cut
    return {
        "schema": SCHEMA,
        "run": state.run,
        "goal": state.spec.get("goal", ""),
        "phase": state.phase,
        "reason": reason(state),
        "explanation": explanation(state),
        "next": next_step(state),
        "passed": passed(state),
        "iterations": state.iteration,
        "score": verdict.score if verdict else None,
        "best_score": best.score if best else None,
        "best_iteration": best.iteration if best else None,
        "cost_usd": None if totals.unknown_costs or not attempts else round(totals.cost_usd, 6),
        "tokens": None if totals.unknown_tokens or totals.cut or not attempts else totals.tokens,
        "plan": totals.plan,
        "duration_s": round(totals.seconds, 3),
        "started_at": state.started_at.astimezone(UTC) if state.started_at else None,
        "alerts": [{"kind": a.kind, "iteration": a.iteration} for a in state.alerts],
        "exit_code": exit_code(state),
    }


def head(state: LoopState) -> dict[str, Any]:
    """The run document, with what those who watch want beside it: last news, open approval, next wake, last scores."""
    most = state.limits.get("max_iterations") or (state.spec.get("limits") or {}).get("max_iterations")
    return {
        **document(state),
        "loop": state.spec.get("name"),
        "updated_at": state.updated_at.astimezone(UTC) if state.updated_at else None,
        "approval": state.approval.id if state.approval else None,
        "wake": state.approval.deadline if state.approval else None if state.paused else state.wait_until,
        "max_iterations": most,
        "trend": [c.score for c in state.recent[-TREND:]],
    }


def readable(state: LoopState) -> dict[str, Any]:
    """The state as people read it in a checkpoint, by the names the mission gives its fields."""
    best, answer = state.best, state.answer
    limits = {**(state.spec.get("limits") or {}), **state.limits}
    return {
        "schema": "loopwright/state/v1",
        "loop_id": state.run,
        "task": state.spec.get("goal", ""),
        "phase": state.phase,
        "iteration": state.iteration,
        "max_iterations": limits.get("max_iterations"),
        "score": state.last.score if state.last else None,
        "best_score": best.score if best else None,
        "best_result": None
        if best is None
        else {"iteration": best.iteration, "output": best.output, "snapshot": best.snapshot},
        "errors": [
            {"iteration": c.number, "outcome": c.outcome} for c in state.recent if c.outcome == "errored"
        ],
        "step_log": [
            {
                "iteration": c.number,
                "outcome": c.outcome,
                "score": c.score,
                "passed": c.passed,
                "seconds": c.seconds,
                "cost_usd": c.cost_usd,
                "snapshot": c.snapshot,
                "summary": c.summary,
            }
            for c in state.recent
        ],
        "started_at": state.started_at.astimezone(UTC) if state.started_at else None,
        "last_updated": state.updated_at.astimezone(UTC) if state.updated_at else None,
        "human_approved": None if answer is None else answer.answer == "approve",
        "metadata": {
            "labels": dict(state.labels),
            "workspace": state.workspace,
            "origin": state.origin,
            "reason": reason(state),
            "cost_usd": document(state)["cost_usd"],
            "alerts": [{"kind": a.kind, "iteration": a.iteration} for a in state.alerts],
        },
    }


def health(state: LoopState) -> dict[str, Any]:
    """Whether the loop is well, in the mission's one line, and its alerts."""
    well = healthy(state)
    last = state.alerts[-1] if state.alerts else None
    score = "no score yet" if state.last is None else f"score {state.last.score:.2f}"
    best = "" if state.best is None else f", best {state.best.score:.2f} at iteration {state.best.iteration}"
    ill = "" if well or last is None else f"; {last.kind}: {last.message}"
    word = "healthy" if well else "unhealthy"
    return {
        "healthy": well,
        "summary": f"{word}: iteration {state.iteration}, {score}{best}, {len(state.alerts)} alerts{ill}",
        "alerts": [
            {
                "kind": a.kind,
                "iteration": a.iteration,
                "action": a.action,
                "message": a.message,
                "critical": a.critical,
            }
            for a in state.alerts
        ],
    }
