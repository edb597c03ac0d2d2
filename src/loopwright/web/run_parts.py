"""Parts of a run's page as values: the gate matrix, one iteration, a patch, a log's end, a timeline.

Rule: pure and bounded; text of agents, gates and files stays text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from loopwright.core.closing import best_now
from loopwright.core.state import LoopState
from loopwright.core.values import Status
from loopwright.figures import MARKS, brief, colourless, paid, score, seconds
from loopwright.report.values import Cell, Changes, Moment, Row
from loopwright.web.words import When, clock

GATES: Final = 10  # columns
REASON: Final = 2000
LINES: Final = 1500  # of one patch
FILES: Final = 50
WIDE: Final = 400  # characters of a line
SAID: Final[Mapping[Status | None, str]] = {
    "pass": "passed",
    "fail": "failed",
    "error": "error",
    "skipped": "skipped",
    None: "unknown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One gate in one iteration: a sign, a word for who cannot see it, a number."""

    gate: str
    status: str
    sign: str
    said: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One iteration in the matrix; `marks` are in the order of the columns, `None` where a gate was not asked."""

    number: int
    outcome: str
    marks: tuple[Mark | None, ...]
    score: str
    moved: str
    up: bool
    best: bool
    changed: str
    cost: str
    seconds: str
    selected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One gate's heading: its name, and what it weighs and wants where that is not the usual."""

    name: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Gates by iteration, newest first; `newer` and `older` are the iterations that other pages begin with."""

    columns: tuple[Column, ...]
    left_out: int
    lines: tuple[Line, ...]
    newer: int | None
    older: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One gate of the selected iteration with its reason."""

    mark: Mark
    blocks: bool
    measured: str
    text: str
    items: tuple[str, ...]
    more: int
    seconds: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One file of a patch: its lines, each with its kind."""

    path: str
    status: str
    added: int
    removed: int
    lines: tuple[tuple[Literal["add", "del", "hunk", "same"], str], ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """What changed between two snapshots, file by file."""

    files: int
    added: int
    removed: int
    parts: tuple[Part, ...]
    cut: bool


def rules(state: LoopState) -> dict[str, str]:
    """What gates weigh and want, by name, as far as the loop says so."""
    found: dict[str, str] = {}
    for gate in state.spec.get("gates") or ():
        if not isinstance(gate, Mapping):
            continue
        name = str(gate.get("name") or gate.get("use") or "")
        said = [
            f"×{gate['weight']:g}" if isinstance(gate.get("weight"), int | float) else "",
            f"≥ {gate['min']:g}" if isinstance(gate.get("min"), int | float) else "",
            "advisory" if gate.get("required") is False else "",
        ]
        found[name] = " ".join(part for part in said if part)
    return found


def matrix(
    rows: Sequence[Row],
    state: LoopState,
    *,
    selected: int | None,
    changed: Mapping[int, tuple[int, int]],
    newer: int | None,
    older: int | None,
    before: Row | None,
) -> Matrix:
    """The matrix of these rows, oldest first as given; `before` is the row before the first of them."""
    names = list(dict.fromkeys(cell.gate for row in reversed(rows) for cell in row.cells))
    ruled, shown = rules(state), names[:GATES]
    lines, last = [], before.score if before else None
    for row in rows:
        step = None if row.score is None or last is None else row.score - last
        lines.append(_line(row, state, shown, step, selected, changed.get(row.number)))
        last = row.score if row.score is not None else last
    return Matrix(
        columns=tuple(Column(name=brief(name, 40), rule=ruled.get(name, "")) for name in shown),
        left_out=len(names) - len(shown),
        lines=tuple(reversed(lines)),
        newer=newer,
        older=older,
    )


def outcome(row: Row, state: LoopState) -> str:
    """What came of an iteration, or what it waits for."""
    if row.outcome != "open":
        return row.outcome.replace("_", " ")
    if state.approval is not None:
        return "waits for you"
    return "being judged" if state.current is not None and state.current.done else "under way"


def _line(
    row: Row,
    state: LoopState,
    names: Iterable[str],
    step: float | None,
    selected: int | None,
    changed: tuple[int, int] | None,
) -> Line:
    plan, best = state.totals.plan, best_now(state)
    cells = {cell.gate: cell for cell in row.cells}
    moved = step is not None and abs(step) >= 0.005
    known = row.attempts and (plan or row.cost_usd is not None)
    unknown = "unknown" if row.attempts and row.outcome != "open" else ""
    return Line(
        number=row.number,
        outcome=outcome(row, state),
        marks=tuple(None if (cell := cells.get(name)) is None else mark(cell) for name in names),
        score=score(row.score),
        moved=f"{abs(step or 0.0):.2f}" if moved else "",
        up=moved and (step or 0.0) > 0,
        best=best is not None and row.number == best.iteration,
        changed="" if changed is None else f"+{changed[0]} −{changed[1]}",
        cost=paid(row.cost_usd, row.tokens, plan=plan) if known else unknown,
        seconds=seconds(row.seconds) if row.outcome != "open" or row.seconds else "",
        selected=row.number == selected,
    )


def mark(cell: Cell) -> Mark:
    """A gate's sign, word and number."""
    return Mark(
        gate=brief(cell.gate, 60),
        status=cell.status or "skipped",
        sign=MARKS[cell.status],
        said=SAID[cell.status],
        value=score(cell.value),
        reason=brief(cell.reason, 160),
    )


def detail(cell: Cell, blockers: tuple[str, ...]) -> Detail:
    """A gate with its reason."""
    return Detail(
        mark=mark(cell),
        blocks=cell.gate in blockers,
        measured="" if cell.raw is None else f"measured {cell.raw:g} {brief(cell.unit, 20)}".strip(),
        text=colourless(cell.reason).strip()[:REASON],
        items=tuple(brief(item, 300) for item in cell.failing),
        more=cell.items - len(cell.failing),
        seconds=seconds(cell.seconds),
    )


def details(row: Row) -> tuple[Detail, ...]:
    """The gates of an iteration with their reasons, those that hold it back first."""
    found = (detail(cell, row.blockers) for cell in row.cells)
    return tuple(sorted(found, key=lambda each: not each.blocks))


def patch(changes: Changes) -> Patch:
    """A patch by its files, bounded in lines."""
    texts = _by_file(changes.patch)
    parts, left = [], LINES
    for status, path, added, removed in changes.paths[:FILES]:
        lines = texts.get(path, [])
        kept = lines[: max(0, left)]
        left -= len(kept)
        parts.append(
            Part(
                path=path,
                status={"A": "new", "D": "deleted", "M": "changed", "T": "changed kind"}.get(status, status),
                added=added,
                removed=removed,
                lines=tuple((_kind(line), line[:WIDE]) for line in kept),
                left_out=len(lines) - len(kept),
            )
        )
    return Patch(
        files=changes.files,
        added=changes.added,
        removed=changes.removed,
        parts=tuple(parts),
        cut=changes.cut or changes.files > len(parts),
    )


def _by_file(text: str) -> dict[str, list[str]]:
    """The lines of a patch by the path they are of, without git's own heading."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    within = False
    for line in text.split("\n"):
        if line.startswith("diff --git "):
            # `a/P b/P`: both halves are the same path, for renames are not looked for.
            half = line.removeprefix("diff --git ")
            name = half[2 : (len(half) - 1) // 2]
            lines, within = found.setdefault(name.strip('"'), []), False
        elif within or line.startswith(("@@", "Binary ", "[cut after")):
            within = True
            lines.append(line)
    if lines and not lines[-1]:  # the text ends with a line end
        lines.pop()
    return found


def _kind(line: str) -> Literal["add", "del", "hunk", "same"]:
    kinds: dict[str, Literal["add", "del", "hunk"]] = {"+": "add", "-": "del", "@": "hunk"}
    return kinds.get(line[:1], "same")


def timeline(row: Row, moments: Iterable[Moment], now: datetime) -> tuple[tuple[When, str, str], ...]:
    """What happened in an iteration, in order: when, what kind of news, what."""
    found: list[tuple[datetime, str, str]] = [
        (m.at, m.kind, m.text) for m in moments if m.iteration == row.number
    ]
    if row.began is not None:
        what = "the agent begins" if row.attempts else "the gates begin"
        found.append((row.began, "work", what))
    if row.ended is not None and not any(kind == "close" for _, kind, _ in found):
        found.append((row.ended, "close", f"closed: {row.outcome.replace('_', ' ')}"))
    found.sort(key=lambda each: each[0])
    return tuple((clock(at, now), kind, text) for at, kind, text in found)


def as_rows(moments: Iterable[Moment], now: datetime) -> tuple[tuple[When, int, str, str], ...]:
    """The moments of the whole run, newest first."""
    return tuple((clock(m.at, now), m.iteration, m.kind, m.text) for m in reversed(tuple(moments)))


def said(value: Any, most: int = REASON) -> str:
    """What an agent said, as text without colours."""
    return colourless(str(value)).strip()[:most]
