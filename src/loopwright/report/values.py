"""The report of a run as a value: what every format is written from.

Rule: frozen and bounded. What was left out is counted, never silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from loopwright.core import events as ev
from loopwright.core.state import LoopState
from loopwright.core.values import Cause, Status
from loopwright.report.spent import Spent

Kind = Literal["run", "work", "close", "alert", "people"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What changed between two snapshots: counts, the first files, and a bounded patch."""

    files: int
    added: int
    removed: int
    paths: tuple[tuple[str, str, int, int], ...] = ()  # status, path, lines added, lines removed
    patch: str = ""
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one gate said in one iteration. `failing` has the first items, `items` counts all of them."""

    gate: str
    status: Status | None
    value: float
    raw: float | None = None
    unit: str = ""
    cause: Cause | None = None
    reason: str = ""
    failing: tuple[str, ...] = ()
    items: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)  # without slots: it is copied often
class Row:
    """One iteration. `before` and `after` are its snapshots; `outcome` is `open` while it is under way.

    `spent` are its attempts and gates with what they used, as far as they told; the last ones, where they are many.
    """

    number: int
    outcome: str = "open"
    cells: tuple[Cell, ...] = ()
    score: float | None = None
    passed: bool = False
    blockers: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    problem: str = ""
    attempts: int = 0
    tokens: int | None = None
    seconds: float = 0.0
    cost_usd: float | None = None
    spent: tuple[Spent, ...] = ()
    summary: str = ""
    began: datetime | None = None
    ended: datetime | None = None
    notes: tuple[str, ...] = ()
    before: str | None = None
    after: str | None = None
    changes: Changes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One line of the timeline."""

    at: datetime
    iteration: int
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person was asked and what came of it; without a `decided`, nobody has answered.

    `noticed` are the channels it was shown on, or could not be.
    """

    asked: ev.ApprovalRequested
    at: datetime
    decided: ev.ApprovalDecided | None = None
    decided_at: datetime | None = None
    noticed: tuple[ev.Noticed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Numbers over iterations for charts, thinned out where they are many: no peak and no dip is lost."""

    score: tuple[tuple[int, float], ...] = ()
    gates: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    spent: tuple[tuple[int, float], ...] = ()
    tokens: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A run, gathered from its journal.

    `rows` has the first and the last iterations and the best one; each `…_left_out` counts what is not
    here. `shown` is the row that speaks for the run: the accepted one, else the best, else the last judged.
    `alone`: it is under way on record and its process is known to be gone.
    """

    state: LoopState
    rows: tuple[Row, ...] = ()
    rows_left_out: int = 0
    shown: Row | None = None
    series: Series = Series()
    alerts: tuple[ev.AlertRaised, ...] = ()
    alerts_left_out: int = 0
    requests: tuple[Request, ...] = ()
    requests_left_out: int = 0
    moments: tuple[Moment, ...] = ()
    moments_left_out: int = 0
    changes: Changes | None = None
    stop: ev.StopRequested | None = None
    pause: ev.PauseRequested | None = None
    alone: bool = False
