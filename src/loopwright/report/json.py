"""The report as one JSON document: schema `loopwright/report/v1`.

Rule: the same facts as the other formats, under the names of the run document; unknown is null.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from loopwright import codec
from loopwright.core.head import document
from loopwright.report.values import Report
from loopwright.report.why import why

SCHEMA: Final = "loopwright/report/v1"


def value(report: Report, *, next_step: str = "") -> dict[str, Any]:
    """The report as plain data; `next_step` is the command to type next."""
    state = report.state
    doc = document(state)
    found = why(report)
    return {
        "schema": SCHEMA,
        "run": {**doc, "next": next_step or doc["next"]},
        "why": {
            "what": found.what,
            "figures": found.figures,
            "blocked": found.blocked,
            "change": found.change,
        },
        "origin": state.origin,
        "labels": dict(state.labels),
        "workspace": state.workspace,
        "loop": dict(state.spec),
        "shown_iteration": None if report.shown is None else report.shown.number,
        "iterations": [asdict(row) for row in report.rows],
        "iterations_left_out": report.rows_left_out,
        "series": asdict(report.series),
        "alerts": [asdict(alert) for alert in report.alerts],
        "alerts_left_out": report.alerts_left_out,
        "approvals": [asdict(request) for request in report.requests],
        "approvals_left_out": report.requests_left_out,
        "timeline": [asdict(item) for item in report.moments],
        "timeline_left_out": report.moments_left_out,
        "changes": None if report.changes is None else asdict(report.changes),
    }


def json(report: Report, *, next_step: str = "") -> str:
    """The document as text, with a newline at its end."""
    return codec.dumps(value(report, next_step=next_step), indent=2).decode() + "\n"
