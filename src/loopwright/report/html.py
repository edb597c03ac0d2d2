"""The report as one HTML file: no script, nothing loaded, light and dark, printable.

Rule: every foreign text is escaped and its control characters shown. The page forbids everything but its
own style sheet by a policy that names that sheet's hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from loopwright.core.head import document
from loopwright.figures import MARKS, brief, count, moment, paid, safe, score, seconds
from loopwright.report.spent import NAMES, USED, cells, who
from loopwright.report.svg import cost_chart, score_chart
from loopwright.report.telling import decision
from loopwright.report.values import Cell, Changes, Report, Row
from loopwright.report.why import why

STYLE: Final = """
:root{--bg:#faf9f7;--card:#fff;--ink:#1c2230;--soft:#626a78;--line:#e2e2de;--good:#17703f;--bad:#a8241d;--warn:#8a5300;--code:#f1f1ee}
@media(prefers-color-scheme:dark){:root{--bg:#14171d;--card:#1c2028;--ink:#e7e9ee;--soft:#a0a8b6;--line:#343a46;--good:#6fcf97;--bad:#ff8a80;--warn:#f0b060;--code:#11141a}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1100px;margin:0 auto;padding:16px}section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px;margin:14px 0;overflow-x:auto}
h1{font-size:20px;margin:8px 0}h2{font-size:13px;text-transform:uppercase;letter-spacing:.04em;color:var(--soft);margin:0 0 8px}
.word{padding:2px 10px;border-radius:99px;border:1px solid currentColor;font-size:14px}.pass,.good{color:var(--good)}.fail,.bad{color:var(--bad)}.error,.warn{color:var(--warn)}.skipped,.soft{color:var(--soft)}
dl{display:flex;flex-wrap:wrap;gap:6px 28px;margin:0}dt{color:var(--soft);font-size:13px}dd{margin:0;font-weight:600}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:5px 10px;border-bottom:1px solid var(--line);white-space:nowrap;vertical-align:top}th{color:var(--soft);font-size:13px}.num{text-align:right}.wrap{white-space:normal;min-width:16em}.shown td{background:var(--code)}
pre{background:var(--code);padding:10px;border-radius:6px;overflow:auto;max-height:30em;margin:8px 0;font:13px/1.45 ui-monospace,monospace}.add{color:var(--good)}.del{color:var(--bad)}.hunk{color:var(--soft)}
summary{cursor:pointer}code{font:13px ui-monospace,monospace}ul{margin:0;padding-left:20px}
svg text{fill:var(--soft)}.grid{stroke:var(--line)}.mark{stroke:var(--good)}.bound{stroke:var(--bad)}.score{stroke:var(--ink)}.dot{fill:var(--ink)}.best{stroke:var(--ink)}.alert{fill:var(--warn);opacity:.22}.gate{stroke-width:1.6}
.g0{stroke:#3b74d6;color:#3b74d6}.g1{stroke:#9560cf;color:#9560cf}.g2{stroke:#cc7a14;color:#cc7a14}.g3{stroke:#2a9d8f;color:#2a9d8f}.g4{stroke:#c9457e;color:#c9457e}.g5{stroke:#7d8a2e;color:#7d8a2e}.g6{stroke:#5b8bb0;color:#5b8bb0}.g7{stroke:#a0634a;color:#a0634a}
@media print{details{break-inside:avoid}pre{max-height:none}}
"""
POLICY: Final = (
    "default-src 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    + "'; base-uri 'none'; form-action 'none'"
)
TEXT: Final = 4000  # characters of a goal or a summary


def html(report: Report, *, next_step: str = "") -> str:
    """The page; `next_step` is the command to type next."""
    state = report.state
    parts = [
        _head(report, next_step),
        _score(report),
        _gates(report),
        _matrix(report),
        _people(report),
        _cost(report),
        _changes(report),
        _timeline(report),
    ]
    title = f"{_e(state.run)}: {document(state)['reason'] or state.phase}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main></body></html>\n"
    )


def _e(text: object) -> str:
    return escape(safe(str(text)))


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{title}</h2>{''.join(parts)}</section>"


def _head(report: Report, next_step: str) -> str:
    state = report.state
    doc = document(state)
    tone = {"complete": "good", "failed": "bad", "stopped": "bad"}.get(state.phase, "warn")
    found = why(report)
    known = doc["plan"] or doc["cost_usd"] is not None
    cost = paid(doc["cost_usd"], doc["tokens"], plan=doc["plan"]) if known else "unknown"
    best = f"{score(doc['best_score'])} (#{doc['best_iteration']})" if state.best else "-"
    figures = {
        "iterations": str(state.iteration),
        "score": score(doc["score"]),
        "best": best,
        "cost": cost,
        "agents and gates": seconds(state.totals.seconds),
        "began": moment(state.started_at),
        "started by": _e(brief(state.origin)),
    }
    told = "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in figures.items())
    todo = f"<p>Next: <code>{_e(next_step)}</code></p>" if next_step else ""
    return (
        f'<h1>{_e(state.run)} <span class="word {tone}">{doc["reason"] or state.phase}</span></h1>'
        f"<pre>{_e(str(doc['goal'])[:TEXT])}</pre>"
        f"<section><dl>{told}</dl></section>"
        + _section("Why", f"<pre>{_e(chr(10).join(found.lines))}</pre>", todo)
    )


def _score(report: Report) -> str:
    chart = score_chart(report)
    if not chart:
        return ""
    keys = "".join(
        f' <span class="g{i % 8}">━ {_e(brief(name, 60))}</span>'
        for i, name in enumerate(report.series.gates)
    )
    return _section("Score over iterations", chart, f'<p class="soft"><b>━ score</b>{keys}</p>')


def _gates(report: Report) -> str:
    row = report.shown
    if row is None or not row.cells:
        return ""
    lines = [f"<p>{_outcome(row)}{_e(row.summary)}</p>", *(_gate(cell, row) for cell in row.cells)]
    return _section(f"Gates of iteration {row.number}", *lines)


def _outcome(row: Row) -> str:
    return f'<span class="soft">{row.outcome}, score {score(row.score)}</span> '


def _gate(cell: Cell, row: Row) -> str:
    holds = ' <span class="bad">holds the work back</span>' if cell.gate in row.blockers else ""
    raw = "" if cell.raw is None else f", measured {cell.raw:g} {_e(cell.unit)}"
    first = f'<span class="{cell.status}">{MARKS[cell.status]} {_e(cell.gate)}</span> {score(cell.value)}{raw}{holds}'
    items = "\n".join(cell.failing)
    more = f"\n… and {cell.items - len(cell.failing)} more" if cell.items > len(cell.failing) else ""
    text = cell.reason.strip() + (f"\n\n{items}{more}" if items else "")
    if not text:
        return f"<p>{first}</p>"
    opened = " open" if cell.gate in row.blockers else ""
    return f"<details{opened}><summary>{first}: {_e(brief(cell.reason))}</summary><pre>{_e(text)}</pre></details>"


def _matrix(report: Report) -> str:
    names = list(dict.fromkeys(cell.gate for row in report.rows for cell in row.cells))[:12]
    if not report.rows:
        return ""
    heads = "".join(f"<th>{_e(brief(name, 40))}</th>" for name in names)
    lines, number = [], report.rows[0].number
    for row in report.rows:
        if row.number > number + 1:
            left = count(row.number - number - 1, "iteration")
            lines.append(f'<tr><td colspan="{len(names) + 7}" class="soft">… {left} left out</td></tr>')
        number = row.number
        shown = report.shown is not None and row.number == report.shown.number
        lines.append(_row(row, names, shown=shown, plan=report.state.totals.plan))
    table = (
        f'<table><thead><tr><th>#</th><th>outcome</th>{heads}<th class="num">score</th><th class="num">diff</th>'
        f'<th class="num">cost</th><th class="num">time</th><th>what it said and what failed</th></tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )
    return _section("Gates per iteration", table)


def _row(row: Row, names: list[str], *, shown: bool, plan: bool) -> str:
    cells = {cell.gate: cell for cell in row.cells}
    marks = "".join(
        "<td></td>"
        if (cell := cells.get(name)) is None
        else f'<td class="{cell.status}">{MARKS[cell.status]} {score(cell.value)}</td>'
        for name in names
    )
    diff = "" if row.changes is None else f"+{row.changes.added} −{row.changes.removed}"
    known = row.attempts if plan else row.cost_usd is not None
    cost = paid(row.cost_usd, row.tokens, plan=plan) if known else ""
    said = "<br>".join(_e(brief(text)) for text in (row.summary, row.problem, *row.notes[:5]) if text)
    return (
        f"<tr{' class=shown' if shown else ''}><td>{row.number}</td><td>{row.outcome}</td>{marks}"
        f'<td class="num">{score(row.score)}</td><td class="num">{diff}</td><td class="num">{cost}</td>'
        f'<td class="num">{seconds(row.seconds)}</td><td class="wrap">{said}</td></tr>'
    )


def _people(report: Report) -> str:
    alerts = [
        f'<li class="warn">#{a.iteration} {_e(a.kind)} ({a.action}): {_e(brief(a.message))}</li>'
        for a in report.alerts
    ]
    requests = [
        f"<li>#{r.asked.iteration} {_e(brief(r.asked.question, 500))}: "
        f"<b>{_e(decision(r.decided) if r.decided else 'no answer')}</b></li>"
        for r in report.requests
    ]
    return "".join(
        _section(title, f"<ul>{''.join(items)}</ul>", _left(left))
        for title, items, left in (
            ("Alerts", alerts, report.alerts_left_out),
            ("Approvals", requests, report.requests_left_out),
        )
        if items
    )


def _left(n: int) -> str:
    return f'<p class="soft">{n:,} more left out</p>' if n else ""


def _cost(report: Report) -> str:
    chart, table = cost_chart(report), _used(report)
    return _section("Cost", chart, table) if chart or table else ""


def _used(report: Report) -> str:
    """What each attempt used, and each gate that asks a model, where they told."""
    told = [(row.number, each) for row in report.rows for each in row.spent]
    if not told:
        return ""
    heads = "".join(f'<th class="num">{name}</th>' for name in (*NAMES.values(), "tokens", "cost"))
    lines = (
        f"<tr><td>{number}</td><td>{_e(who(each))}</td><td>{_e(brief(each.usage.model or '', 60))}</td>"
        + "".join(f'<td class="num">{text}</td>' for text in cells(each.usage))
        + f"<td>{_e(brief(each.session or '', 60))}</td></tr>"
        for number, each in told[-USED:]
    )
    return (
        f"<table><thead><tr><th>#</th><th>who</th><th>model</th>{heads}<th>session</th></tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>{_left(len(told) - len(told[-USED:]))}"
    )


def _changes(report: Report) -> str:
    parts: list[str] = []
    if report.changes is not None:
        parts.append(_patch("The whole run", report.changes))
    parts += [_patch(f"Iteration {row.number}", row.changes) for row in reversed(report.rows) if row.changes]
    return _section("Changes", *parts) if parts else ""


def _patch(title: str, changes: Changes) -> str:
    paths = "".join(
        f"<tr><td>{status}</td><td>{_e(path)}</td><td class='num'>+{added} −{removed}</td></tr>"
        for status, path, added, removed in changes.paths
    )
    more = changes.files - len(changes.paths)
    cut = '<p class="soft">The patch was cut; <code>loopwright diff</code> has the whole of it.</p>'
    return (
        f"<details><summary>{title}: {count(changes.files, 'file')}, +{changes.added} −{changes.removed}</summary>"
        f"<table>{paths}</table>{_left(more)}<pre>{''.join(_coloured(changes.patch.splitlines()))}</pre>"
        f"{cut if changes.cut else ''}</details>"
    )


def _coloured(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        kind = {"+": "add", "-": "del", "@": "hunk"}.get(line[:1])
        yield f'<span class="{kind}">{_e(line)}</span>\n' if kind else f"{_e(line)}\n"


def _timeline(report: Report) -> str:
    rows = "".join(
        f'<tr><td>{moment(m.at)}</td><td>#{m.iteration}</td><td class="wrap">{_e(m.text)}</td></tr>'
        for m in report.moments
    )
    return _section(
        "Timeline",
        f"<details><summary>{count(len(report.moments), 'line')}</summary><table>{rows}</table>"
        f"{_left(report.moments_left_out)}</details>",
    )
