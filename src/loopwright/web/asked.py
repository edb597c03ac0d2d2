"""A request as a page shows it, open or decided, and the inbox.

Rule: from the one value that every channel draws (`core.showing.Shown`) and what is on record. Showing decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loopwright.core import events as ev
from loopwright.core.showing import Shown
from loopwright.core.state import LoopState
from loopwright.figures import brief, count, money, paid, safe, score, seconds
from loopwright.hosts.people import Asked
from loopwright.report.gather import cell_of
from loopwright.report.telling import decision
from loopwright.report.values import Changes
from loopwright.web.list_page import sparkline
from loopwright.web.run_parts import Detail, detail
from loopwright.web.words import When, ago, clock, until

SHORT: Final = 160
BUTTONS: Final = {"approve": "Approve", "revise": "Send back", "reject": "Reject & stop"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedView:
    """A request that is open: what is asked, why now, on what grounds, and what each answer does.

    `answered` is what stands already, waiting to be taken in. `blocked`: what an approval must override.
    """

    run: str
    id: str
    number: int
    iteration: int
    about: str
    question: str
    why: str
    effects: dict[str, str]
    silence: str
    deadline: When | None
    blocked: tuple[str, ...]
    gates: tuple[Detail, ...]
    score: str
    trend: str
    trend_said: str
    cost: str
    projected: str
    seconds: str
    alerts: tuple[str, ...]
    summary: str
    changed: str
    answered: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One request of the inbox; `waits` while it can be answered, `expired` while it can be asked again."""

    run: str
    id: str
    loop: str
    iteration: int
    about: str
    question: str
    asked: When | None
    deadline: When | None
    waits: bool
    expired: bool
    outcome: str
    decided: When | None


def asked_view(
    shown: Shown,
    request: ev.ApprovalRequested,
    standing: tuple[ev.ApprovalDecided, datetime | None] | None,
    changes: Changes | None,
    now: datetime,
) -> AskedView:
    """The view of an open request."""
    points = [value for value in shown.trend if value is not None]
    projected = shown.projected_usd is not None and not shown.plan
    return AskedView(
        run=shown.run,
        id=request.id,
        number=request.number,
        iteration=shown.iteration,
        about=shown.about,
        question=safe(shown.question),
        why=shown.why,
        effects={effect.answer: effect.does for effect in shown.effects},
        silence=shown.silence,
        deadline=until(shown.deadline, now),
        blocked=shown.blockers,
        gates=tuple(detail(cell_of(scored), shown.blockers) for scored in shown.gates),
        score=score(shown.score),
        trend=sparkline(points, wide=120, high=28),
        trend_said=" ".join(score(v) for v in shown.trend),
        cost="unknown"
        if shown.cost_usd is None and not shown.plan
        else paid(shown.cost_usd, shown.tokens, plan=shown.plan),
        projected=f"≈ {money(shown.projected_usd)} with one more iteration" if projected else "",
        seconds=seconds(shown.seconds),
        alerts=shown.alerts,
        summary=shown.summary.strip()[:2000],
        changed=""
        if changes is None
        else f"{count(changes.files, 'file')}, +{changes.added} −{changes.removed}",
        answered="" if standing is None else decision(standing[0]),
    )


def items(found: Iterable[tuple[LoopState, Asked]], now: datetime) -> tuple[Item, ...]:
    """The requests of the inbox as they were found."""
    return tuple(_item(state, asked, now) for state, asked in found)


def _item(state: LoopState, asked: Asked, now: datetime) -> Item:
    request = asked.request
    opened = state.approval is not None and state.approval.id == request.id
    expired = state.expired and state.answer is not None and state.answer.id == request.id
    given = asked.decision
    waits = opened and given is None
    outcome = "" if waits else "withdrawn" if given is None else decision(given)
    return Item(
        run=state.run,
        id=request.id,
        loop=brief(str(state.spec.get("name") or ""), 60),
        iteration=request.iteration,
        about=request.about,
        question=brief(request.question, SHORT),
        asked=ago(asked.at, now),
        deadline=until(request.deadline, now) if waits else None,
        waits=waits,
        expired=expired,
        outcome="withdrawn: the work changed" if asked.void else outcome,
        decided=None if asked.decided_at is None else clock(asked.decided_at, now),
    )
