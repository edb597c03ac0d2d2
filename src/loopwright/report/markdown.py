"""The report as Markdown: for a terminal, a pull request, a GitHub step summary.

Rule: foreign text stands in code spans and code blocks whose fences it cannot close, so nothing in it is
markup, a link, an image or a mention. Bounded by `most` bytes, and says so where it was cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from loopwright.core.head import document
from loopwright.figures import (
    MARKS,
    at_most,
    bars,
    brief,
    count,
    moment,
    paid,
    safe,
    score,
    seconds,
)
from loopwright.report.spent import NAMES, USED, cells, who
from loopwright.report.telling import decision
from loopwright.report.values import Changes, Report, Row
from loopwright.report.why import why

COLUMNS: Final = 8  # gates that have a column
PATCH: Final = 20_000  # characters of the whole patch shown
CUT: Final = "\n\n_The report was cut here to keep its size; `loopwright report` has the whole of it._\n"


def markdown(report: Report, *, next_step: str = "", most: int = 1_000_000) -> str:
    """The report; `next_step` is the command to type next, `most` the bytes it may have in UTF-8."""
    text = "\n".join(_parts(report, next_step)) + "\n"
    body = text.encode()
    if len(body) <= most:
        return text
    kept = body[: most - len(CUT.encode()) - 16].decode("utf-8", "ignore").rpartition("\n")[0]
    fence = _open_fence(kept)
    return f"{kept}\n{fence}{CUT}"


def code(text: str, *, cell: bool = False) -> str:
    """One line of foreign text as a code span, with `cell` fit for a table; empty text stays empty."""
    line = safe(text).replace("\n", " ").replace("\t", " ").strip()
    if not line:
        return ""
    ticks = "`" * (_longest(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    span = f"{ticks}{pad}{line}{pad}{ticks}"
    return span.replace("|", "\\|") if cell else span


def block(text: str, language: str = "text") -> str:
    """Foreign text as a code block."""
    fence = "`" * max(3, _longest(text) + 1)
    return f"{fence}{language}\n{safe(text).rstrip()}\n{fence}"


def _longest(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _open_fence(text: str) -> str:
    """The fence that closes a block which a cut left open, and the `details` around it."""
    fence = ""
    for line in text.splitlines():
        found = re.match("(`{3,})", line)
        if found and not fence:
            fence = found[1]
        elif fence and line == fence:
            fence = ""
    tail = "\n</details>" if text.count("<details>") > text.count("</details>") else ""
    return f"{fence}{tail}"


def _parts(report: Report, next_step: str) -> Iterator[str]:
    state = report.state
    doc = document(state)
    mark = {"complete": "✓", "failed": "✗", "stopped": "✗"}.get(state.phase, "▶")
    yield f"## {mark} {code(state.run)}: {doc['reason'] or state.phase}\n"
    yield block("\n".join(at_most(str(doc["goal"]).splitlines() or [""], 20))[:4000])
    yield ""
    told = why(report)
    for line in told.what.splitlines():
        yield f"{code(line)}  "
    if told.blocked:
        yield "\nHeld back by:\n"
        yield from (f"- {code(brief(reason))}" for reason in told.blocked)
    yield ""
    known = doc["plan"] or doc["cost_usd"] is not None
    cost = paid(doc["cost_usd"], doc["tokens"], plan=doc["plan"]) if known else "unknown"
    best = f"{score(doc['best_score'])} (#{doc['best_iteration']})" if state.best else "-"
    yield "| iterations | score | best | cost | agents and gates | began |"
    yield "|---|---|---|---|---|---|"
    yield (
        f"| {state.iteration} | {score(doc['score'])} | {best} | {cost} | {seconds(state.totals.seconds)} | "
        f"{moment(state.started_at)} |"
    )
    if next_step:
        yield f"\nNext: {code(next_step)}"
    yield from _gates(report)
    yield from _iterations(report)
    yield from _cost(report)
    yield from _people(report)
    yield from _changes(report.changes)
    yield from _timeline(report)


def _gates(report: Report) -> Iterator[str]:
    row = report.shown
    if row is None or not row.cells:
        return
    yield f"\n### Gates of iteration {row.number}\n"
    yield "| gate | | score | measured | says |"
    yield "|---|---|---|---|---|"
    for cell in row.cells:
        raw = "" if cell.raw is None else f"{cell.raw:g} {code(cell.unit, cell=True)}".strip()
        yield f"| {code(cell.gate, cell=True)} | {MARKS[cell.status]} | {score(cell.value)} | {raw} | {code(brief(cell.reason), cell=True)} |"
    for cell in row.cells:
        if cell.status != "pass" and "\n" in cell.reason.strip():
            yield f"\n<details><summary>{MARKS[cell.status]} the whole of it</summary>\n"
            yield block(f"{cell.gate}: {cell.reason}")
            yield "\n</details>"


def _iterations(report: Report) -> Iterator[str]:
    if not report.rows:
        return
    names = list(dict.fromkeys(cell.gate for row in report.rows for cell in row.cells))
    shown = names[:COLUMNS]
    yield f"\n### Iterations {bars(v for _, v in report.series.score[-60:])}\n"
    yield (
        "| # | outcome | "
        + "".join(f"{code(name, cell=True)} | " for name in shown)
        + "score | diff | cost | time |"
    )
    yield "|---" * (len(shown) + 6) + "|"
    number = report.rows[0].number
    for row in report.rows:
        if row.number > number + 1:
            yield f"| … | {count(row.number - number - 1, 'iteration')} left out |"
        number = row.number
        yield _line(row, shown, plan=report.state.totals.plan)
    if len(names) > COLUMNS:
        yield f"\n{count(len(names) - COLUMNS, 'more gate')} left out of this table."
    problems = [row for row in report.rows[-10:] if row.problem]
    if problems:
        yield "\n#### Failed attempts\n"
        yield from (f"- #{row.number}: {code(brief(row.problem))}" for row in problems)


def _line(row: Row, names: list[str], *, plan: bool) -> str:
    cells = {cell.gate: cell for cell in row.cells}
    marks = (
        "" if (cell := cells.get(name)) is None else f"{MARKS[cell.status]} {score(cell.value)}"
        for name in names
    )
    diff = "" if row.changes is None else f"+{row.changes.added} −{row.changes.removed}"
    known = row.attempts if plan else row.cost_usd is not None
    cost = paid(row.cost_usd, row.tokens, plan=plan) if known else ""
    return (
        f"| {row.number} | {row.outcome} | {''.join(f'{mark} | ' for mark in marks)}{score(row.score)} | {diff} | "
        f"{cost} | {seconds(row.seconds)} |"
    )


def _cost(report: Report) -> Iterator[str]:
    """What each attempt used, and each gate that asks a model, where they told."""
    told = [(row.number, each) for row in report.rows for each in row.spent]
    if not told:
        return
    yield "\n### Cost\n"
    yield f"| # | who | model | {' | '.join(NAMES.values())} | tokens | cost | session |"
    yield "|---" * (len(NAMES) + 6) + "|"
    for number, each in told[-USED:]:
        model, session = (code(brief(text or "", 60), cell=True) for text in (each.usage.model, each.session))
        figures = " | ".join(cells(each.usage))
        yield f"| {number} | {code(who(each), cell=True)} | {model} | {figures} | {session} |"
    if len(told) > USED:
        yield f"\n{count(len(told) - USED, 'earlier line')} left out of this table."


def _people(report: Report) -> Iterator[str]:
    if report.alerts:
        yield "\n### Alerts\n"
        for alert in report.alerts:
            yield f"- #{alert.iteration} {code(alert.kind)} ({alert.action}): {code(brief(alert.message))}"
        if report.alerts_left_out:
            yield f"- {count(report.alerts_left_out, 'more alert')} left out"
    if report.requests:
        yield "\n### Approvals\n"
        for request in report.requests:
            answer = decision(request.decided) if request.decided else "no answer"
            yield f"- #{request.asked.iteration} {code(brief(request.asked.question))}: {code(answer)}"
        if report.requests_left_out:
            yield f"- {count(report.requests_left_out, 'more approval')} left out"


def _changes(changes: Changes | None) -> Iterator[str]:
    if changes is None:
        return
    yield f"\n### Changes: {count(changes.files, 'file')}, +{changes.added} −{changes.removed}\n"
    for status, path, added, removed in changes.paths[:20]:
        yield f"- {status} {code(path)} +{added} −{removed}"
    if changes.files > 20:
        yield f"- {count(changes.files - 20, 'more file')}"
    if changes.patch:
        patch = changes.patch if len(changes.patch) <= PATCH else changes.patch[:PATCH].rpartition("\n")[0]
        yield "\n<details><summary>The patch</summary>\n"
        yield block(patch, "diff")
        if changes.cut or len(changes.patch) > PATCH:
            yield "\nThe patch was cut; `loopwright diff` has the whole of it."
        yield "\n</details>"


def _timeline(report: Report) -> Iterator[str]:
    yield "\n<details><summary>Timeline</summary>\n"
    for i, item in enumerate(report.moments):
        if report.moments_left_out and i == len(report.moments) - len(report.moments[50:]):
            yield f"- … {count(report.moments_left_out, 'entry').replace('entrys', 'entries')} left out"
        yield f"- {moment(item.at)} #{item.iteration} {code(item.text)}"
    yield "\n</details>"
