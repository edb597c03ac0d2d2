"""The iterations of a run as its facts tell them: rows, scores, snapshots, as data.

Rule: it reads a journal once, changes nothing, and every reader (the command line, the page, the API) says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from loopwright.core import events as ev
from loopwright.core.closing import best_now
from loopwright.core.state import Iteration
from loopwright.core.values import Score, together
from loopwright.errors import UsageError
from loopwright.journal import Journal, history
from loopwright.ports import Store
from loopwright.report.spent import MOST, Spent, as_data, plain, spent


@dataclass(slots=True)
class Row:
    """One iteration as its facts tell it."""

    number: int
    scores: list[tuple[str, Score]] = field(default_factory=list)
    attempts: int = 0
    outcome: str = "open"
    score: float | None = None
    seconds: float = 0.0
    cost: float | None = None
    tokens: int | None = None
    spent: list[Spent] = field(default_factory=list)
    summary: str = ""
    snapshot: str | None = None
    problem: str = ""
    notes: list[str] = field(default_factory=list)


def rows(store: Store, run: str) -> Iterator[Row]:
    """The iterations of a run, the open one last."""
    row: Row | None = None
    it: Iteration | None = None
    for _, _, event, state in history(store, run):
        before, it = it, state.current
        used = spent(event, row.attempts if row is not None else 0)
        match event:
            case ev.AttemptStarted(iteration=number):
                row = row if row is not None and row.number == number else Row(number)
                row.attempts += 1
            case ev.GateScored(gate=gate, score=score):
                row = row or Row(0)
                row.scores = [pair for pair in row.scores if pair[0] != gate] + [(gate, score)]
            case ev.AttemptFailed(kind=kind, message=message) if row is not None:
                row.problem = f"{kind}: {message}"
            case ev.EvidenceChanged(paths=paths, action=action) if row is not None:
                row.notes.append(f"{action}: {', '.join(paths[:5])}")
            case ev.AlertRaised(kind=kind, message=message) if row is not None:
                row.notes.append(f"{kind}: {message}")
            case ev.IterationClosed(outcome=outcome) if row is not None:
                last = state.recent[-1] if row.number else state.zero
                row.outcome = outcome
                row.snapshot = state.snapshot
                if last is not None:
                    row.score, row.seconds, row.cost, row.summary = (
                        last.score,
                        last.seconds,
                        last.cost_usd,
                        last.summary,
                    )
                row.tokens = before.tokens if before is not None and row.attempts else None
                yield row
                row = None
            case _:
                pass
        if row is not None and used is not None:
            row.spent = [*row.spent, used][-MOST:]
    if row is not None:
        yield row


def snapshot_of(store: Store, run: str, iteration: str | int | None) -> tuple[str | None, str | None]:
    """The trees before and after an iteration (a number or `best`); of all the run when `None`."""
    state = Journal(store, run).state
    if iteration is None:
        return state.base, state.snapshot
    if iteration == "best":
        best = best_now(state)
        if best is None:
            raise UsageError(f"run {run} has no best iteration yet")
        iteration = best.iteration
    try:
        wanted = int(iteration)
    except ValueError:
        raise UsageError(f"--iteration {iteration}: a number or 'best'") from None
    if wanted == 0:
        return state.base, state.base
    before = state.base
    for row in rows(store, run):
        if row.number == wanted:
            return before, row.snapshot or state.snapshot
        before = row.snapshot if row.number else before
    raise UsageError(f"run {run} has no iteration {wanted}")


def one(store: Store, run: str, iteration: int) -> dict[str, Any]:
    """One iteration as data."""
    row = next((row for row in rows(store, run) if row.number == iteration), None)
    if row is None:
        raise UsageError(f"run {run} has no iteration {iteration}")
    return {
        "schema": "loopwright/iteration/v1",
        "run": run,
        "iteration": row.number,
        "outcome": row.outcome,
        "score": row.score,
        "attempts": row.attempts,
        "seconds": row.seconds,
        "cost_usd": row.cost,
        "tokens": row.tokens,
        "spent": [plain(each) for each in row.spent if each.gate is None],
        "summary": row.summary,
        "problem": row.problem or None,
        "notes": row.notes,
        "snapshot": row.snapshot,
        "gates": table(store, run, iteration),
    }


def table(store: Store, run: str, iteration: int | None) -> list[dict[str, Any]]:
    """Every score, of one iteration or of all."""
    return [
        told
        for row in rows(store, run)
        if iteration is None or row.number == iteration
        for told in of_row(row)
    ]


def of_row(row: Row) -> list[dict[str, Any]]:
    """The scores of an iteration as data."""
    return [{**scored(row.number, gate, score), "spent": _by_gate(row, gate)} for gate, score in row.scores]


def _by_gate(row: Row, gate: str) -> dict[str, Any] | None:
    """What the gate itself spent in an iteration, however often it judged; `None` where it asks no model."""
    told = [each.usage for each in row.spent if each.gate == gate]
    return as_data(together(told)) if told else None


def scored(iteration: int, gate: str, score: Score) -> dict[str, Any]:
    """One score as data."""
    return {
        "iteration": iteration,
        "gate": gate,
        "status": score.status,
        "value": score.value,
        "raw": score.raw,
        "unit": score.unit,
        "reason": score.reason,
        "cause": score.cause,
        "evidence": score.evidence,
    }
