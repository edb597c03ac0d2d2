"""One request to a person as data: what is asked, and what became of it.

Rule: what stands is told, also when its run has not taken it in yet.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from loopwright.core.head import next_step
from loopwright.core.state import LoopState
from loopwright.hosts import people
from loopwright.ports import Store


def row(store: Store, state: LoopState, asked: people.Asked, now: datetime) -> dict[str, Any]:
    """One request as the inbox has it."""
    request, run = asked.request, state.run
    is_open = state.approval is not None and state.approval.id == request.id
    there = people.standing(store, run, request.id) if is_open else None
    decision, at = there or (asked.decision, asked.decided_at)
    waits = is_open and decision is None
    on_hold = state.expired and state.answer is not None and state.answer.id == request.id
    deadline = request.deadline
    return {
        "run": run,
        "approval": request.id,
        "iteration": request.iteration,
        "about": request.about,
        "question": request.question,
        "asked_at": asked.at.astimezone(UTC),
        "deadline": deadline.astimezone(UTC) if deadline else None,
        "left_s": round(max(0.0, (deadline - now).total_seconds()), 1) if waits and deadline else None,
        "answer": decision.answer if decision else None,
        "by": decision.by if decision else None,
        "channel": decision.channel if decision else None,
        "decided_at": at.astimezone(UTC) if at else None,
        "note": decision.note if decision else None,
        "override": decision.override if decision else None,
        "next": next_step(state) if waits else f"loopwright ask-again {run}" if on_hold else None,
    }
