"""A run's journal, read once from the beginning, gathered into a `Report`.

Rule: pure but for `diff`, which may look at snapshots. Memory and result are bounded however long the
run is: the first and the last iterations are kept whole, those between them only as points of a series.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from dataclasses import replace as remade
from datetime import datetime
from typing import Final, Generic, TypeAlias, TypeVar

from loopwright.core import events as ev
from loopwright.core.replacing import replace
from loopwright.core.state import Iteration, LoopState
from loopwright.core.values import Scored
from loopwright.figures import brief
from loopwright.report.spent import MOST, spent
from loopwright.report.telling import told
from loopwright.report.values import Cell, Changes, Moment, Report, Request, Row, Series

FIRST: Final = 20  # iterations, and as many moments, alerts, requests, of the beginning
LAST: Final = 60  # and of the end
MOMENTS: Final = 100
POINTS: Final = 250  # of one line of a chart, at least; at most four times as many
LINES: Final = 8  # gates with a line of their own in a chart
TEXT: Final = 2000  # characters of one reason
ITEMS: Final = 20  # failing items, reasons or notes of one iteration
PATCH: Final = 40_000  # characters of one iteration's patch
PATCHES: Final = 300_000  # of all patches together
PATHS: Final = 50

Fact: TypeAlias = tuple[int, datetime, ev.Event, LoopState]
DiffOf: TypeAlias = Callable[[str, str], Changes | None]
T = TypeVar("T")


@dataclass(slots=True)
class _Ends(Generic[T]):
    """The first and the last of a long list, and how many between them were left out."""

    first: int
    head: list[T] = field(default_factory=list)
    tail: deque[T] = field(default_factory=deque)
    left_out: int = 0

    def add(self, item: T) -> T | None:
        """Takes one more in; the one that had to go for it."""
        if len(self.head) < self.first:
            self.head.append(item)
            return None
        self.tail.append(item)
        return None if self.tail.maxlen is None or len(self.tail) < self.tail.maxlen else self._drop()

    def _drop(self) -> T:
        self.left_out += 1
        return self.tail.popleft()

    @property
    def all(self) -> tuple[T, ...]:
        return (*self.head, *self.tail)


def _ends(first: int, last: int) -> _Ends[T]:
    return _Ends(first, tail=deque(maxlen=last + 1))


@dataclass(slots=True)
class _Line:
    """Points of a chart. Above a bound, neighbours share a bucket that keeps its lowest and its highest."""

    width: int = 1
    buckets: dict[int, tuple[tuple[int, float], ...]] = field(default_factory=dict)

    def add(self, number: int, value: float) -> None:
        self._put((number, value))
        if len(self.buckets) > 2 * POINTS:
            self.width *= 2
            points = self.points
            self.buckets = {}
            for point in points:
                self._put(point)

    def _put(self, point: tuple[int, float]) -> None:
        place = point[0] // self.width
        held = (*self.buckets.get(place, ()), point)
        if len(held) > 2:
            ends = {min(held, key=_value), max(held, key=_value)}
            held = tuple(sorted(ends))
        self.buckets[place] = held

    @property
    def points(self) -> tuple[tuple[int, float], ...]:
        return tuple(point for held in self.buckets.values() for point in held)


def _value(point: tuple[int, float]) -> float:
    return point[1]


@dataclass(slots=True)
class _Draft:
    """A report on its way."""

    rows: _Ends[Row] = field(default_factory=lambda: _ends(FIRST, LAST))
    moments: _Ends[Moment] = field(default_factory=lambda: _ends(MOMENTS // 2, MOMENTS))
    alerts: _Ends[ev.AlertRaised] = field(default_factory=lambda: _ends(FIRST, LAST))
    requests: _Ends[Request] = field(default_factory=lambda: _ends(FIRST, LAST))
    open: Row | None = None
    best: Row | None = None
    judged: Row | None = None
    accepted: Row | None = None
    tree: str | None = None
    score: _Line = field(default_factory=_Line)
    spent: _Line = field(default_factory=_Line)
    tokens: _Line = field(default_factory=_Line)
    gates: dict[str, _Line] = field(default_factory=dict)
    stop: ev.StopRequested | None = None
    pause: ev.PauseRequested | None = None


def gather(facts: Iterable[Fact], diff: DiffOf = lambda old, new: None) -> Report:  # noqa: ARG005 - its shape
    """The report of a run from its history; `diff` says what changed between two snapshots, if it can."""
    gathering = Gathering()
    gathering.take(facts)
    return gathering.report(diff)


class Gathering:
    """A report on its way: takes facts in as they come, and writes the report of those so far.

    Begun in the middle of a run it needs the `state` and the `tree` as they stood there; `last`: only so many rows
    are kept, the last ones.
    """

    def __init__(self, state: LoopState | None = None, tree: str | None = None, *, last: int = 0) -> None:
        self.state = state or LoopState()
        self._draft = _Draft(tree=tree)
        if last:
            self._draft.rows = _ends(0, last)

    @property
    def tree(self) -> str | None:
        """The snapshot that the last closed iteration ended with."""
        return self._draft.tree

    def take(self, facts: Iterable[Fact]) -> None:
        """Takes in what follows."""
        for _, at, event, after in facts:
            _take(self._draft, self.state, event, after, at)
            self.state = after

    def report(self, diff: DiffOf = lambda old, new: None) -> Report:  # noqa: ARG005 - its shape
        """The report of what was taken in; more can be taken in afterwards."""
        return _written(self._draft, self.state, diff)


def _take(draft: _Draft, before: LoopState, event: ev.Event, after: LoopState, at: datetime) -> None:
    news = told(before, event, after)
    if news is not None:
        draft.moments.add(Moment(at=at, iteration=after.iteration, kind=news[0], text=news[1]))
    row = draft.open
    if row is None and isinstance(event, ev.AttemptStarted | ev.GateScored):
        row = Row(number=after.current.number if after.current else 0, began=at)
    if row is not None and (used := spent(event, row.attempts)) is not None:
        row = replace(row, spent=(*row.spent, used)[-MOST:])
    match event:
        case ev.AttemptStarted() if row is not None:
            row = replace(row, attempts=row.attempts + 1)
        case ev.AttemptFailed(kind=kind, message=message) if row is not None:
            row = replace(row, problem=f"{kind}: {message[:TEXT]}")
        case ev.EvidenceChanged() if row is not None and news is not None:
            row = _noted(row, news[1])
        case ev.AlertRaised():
            draft.alerts.add(event)
            row = _noted(row, news[1]) if row is not None and news is not None else row
        case ev.ApprovalRequested():
            draft.requests.add(Request(asked=event, at=at))
        case ev.ApprovalDecided() | ev.Noticed():
            _followed(draft, event, at)
        case ev.StopRequested():
            draft.stop = event
        case ev.PauseRequested():
            draft.pause = event
        case ev.IterationClosed(outcome=outcome) if before.current is not None:
            draft.open = row
            _close(draft, before, after, outcome, at)
            row = None
        case _:
            pass
    draft.open = row


def _noted(row: Row, text: str) -> Row:
    return row if len(row.notes) >= ITEMS else replace(row, notes=(*row.notes, text))


def _followed(draft: _Draft, event: ev.ApprovalDecided | ev.Noticed, at: datetime) -> None:
    """What came of a request: where it was shown, what was decided."""
    for held in (draft.requests.tail, draft.requests.head):
        for i, request in enumerate(held):
            match event:
                case ev.ApprovalDecided(id=of) if of == request.asked.id:
                    held[i] = remade(request, decided=event, decided_at=at)
                case ev.Noticed(approval=of) if of == request.asked.id:
                    held[i] = remade(request, noticed=(*request.noticed, event)[-ITEMS:])
                case _:
                    pass


def _close(draft: _Draft, before: LoopState, after: LoopState, outcome: str, at: datetime) -> None:
    it = before.current
    assert it is not None
    row = _row(draft, before, it, at=at, outcome=outcome, after=after.snapshot)
    draft.rows.add(row)
    draft.tree = row.after
    if row.score is not None:
        draft.judged = row
        draft.score.add(row.number, row.score)
        for cell in row.cells:
            if cell.gate in draft.gates or len(draft.gates) < LINES:
                draft.gates.setdefault(cell.gate, _Line()).add(row.number, cell.value)
    if after.totals.known_costs:
        draft.spent.add(row.number, round(after.totals.cost_usd, 6))
    if after.totals.tokens:
        draft.tokens.add(row.number, after.totals.tokens)
    if outcome == "accepted":
        draft.accepted = row
    if after.best is None:
        draft.best = None
    elif after.best.iteration == row.number:
        draft.best = row


def _row(
    draft: _Draft,
    state: LoopState,
    it: Iteration,
    *,
    at: datetime | None,
    outcome: str = "open",
    after: str | None = None,
) -> Row:
    """The iteration as it stood just before it was closed, or as it stands."""
    verdict = it.verdict
    return replace(
        draft.open or Row(number=it.number),
        outcome=outcome,
        cells=tuple(map(cell_of, it.scores)),
        score=None if verdict is None else verdict.score,
        passed=verdict is not None and verdict.passed,
        blockers=() if verdict is None else verdict.blockers,
        reasons=() if verdict is None else tuple(r[:TEXT] for r in verdict.reasons[:ITEMS]),
        seconds=round(it.seconds, 3),
        cost_usd=it.cost_usd if it.started else None,
        tokens=it.tokens if it.started else None,
        summary=brief(it.summary),
        ended=at,
        before=(draft.tree or state.base) if it.number else state.base,
        after=after,
    )


def cell_of(scored: Scored) -> Cell:
    """One gate's score, bounded."""
    given = scored.score
    return Cell(
        gate=scored.gate,
        status=given.status,
        value=given.value,
        raw=given.raw,
        unit=given.unit,
        cause=given.cause,
        reason=given.reason[:TEXT],
        failing=given.failing[:ITEMS],
        items=len(given.failing),
        seconds=round(scored.seconds, 3),
    )


def _written(draft: _Draft, state: LoopState, diff: DiffOf) -> Report:
    rows = {row.number: row for row in draft.rows.all}
    if state.current is not None:
        rows[state.current.number] = _row(draft, state, state.current, at=None)
    left_out = draft.rows.left_out
    if draft.best is not None and draft.best.number not in rows:
        rows[draft.best.number] = draft.best
        left_out -= 1
    done = state.finished is not None and state.finished.phase == "complete"
    shown = (draft.accepted if done else None) or draft.best or draft.judged
    opened = rows.get(state.current.number) if state.current is not None else None
    judged = opened is not None and opened.score is not None
    now_at = ((opened.number, opened.score),) if opened and opened.score is not None else ()
    at_work = {c.gate: ((opened.number, c.value),) for c in opened.cells} if opened and judged else {}
    budget = PATCHES
    for number in sorted(rows, reverse=True):  # the newest patches are the most wanted
        row = rows[number]
        if row.number and row.before and row.after and row.before != row.after:
            changes = _bounded(diff(row.before, row.after), min(PATCH, budget))
            budget -= len(changes.patch) if changes else 0
            rows[number] = replace(row, changes=changes)
    base, now = state.base, state.snapshot
    return Report(
        state=state,
        rows=tuple(rows[number] for number in sorted(rows)),
        rows_left_out=left_out,
        shown=None if shown is None else rows.get(shown.number, shown),
        series=Series(
            score=(*draft.score.points, *now_at),
            gates={name: (*line.points, *at_work.get(name, ())) for name, line in draft.gates.items()},
            spent=draft.spent.points,
            tokens=draft.tokens.points,
        ),
        alerts=draft.alerts.all,
        alerts_left_out=draft.alerts.left_out,
        requests=draft.requests.all,
        requests_left_out=draft.requests.left_out,
        moments=draft.moments.all,
        moments_left_out=draft.moments.left_out,
        changes=_bounded(diff(base, now), 2 * PATCH) if base and now and base != now else None,
        stop=draft.stop,
        pause=draft.pause,
    )


def _bounded(changes: Changes | None, most: int) -> Changes | None:
    """At most so many characters of the patch, whole lines of it, and the first files."""
    if changes is None:
        return None
    patch, cut = changes.patch, changes.cut
    if len(patch) > most:
        patch, cut = patch[:most].rpartition("\n")[0], True
    return remade(changes, patch=patch, cut=cut, paths=changes.paths[:PATHS])
