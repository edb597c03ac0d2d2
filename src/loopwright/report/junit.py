"""The report as JUnit XML: what a CI server shows of a run.

Rule: one suite per run; its cases are the run's ending and the gates of the iteration that speaks for it
(accepted, else best, else last judged). A gate that holds the work back fails; one that decides nothing
(advisory, or a person accepted the work all the same) is skipped with its reason, so that CI is red only
when the run did not end well. Earlier
iterations are properties: as cases they would paint a repaired run red.
"""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree as ET

from loopwright.core.head import document
from loopwright.figures import brief, safe, score
from loopwright.report.values import Cell, Report, Row
from loopwright.report.why import why

ENDING: Final = "the run ends well"


def junit(report: Report) -> str:
    """The suite as text; a run that is not over has its ending as a skipped case."""
    state = report.state
    doc = document(state)
    row = report.shown
    name = f"loopwright.{safe(state.run)}"
    good = state.finished is not None and state.finished.phase == "complete"
    blockers = () if row is None or good else row.blockers
    cases = [_ending(report, name), *(_case(cell, blockers, name) for cell in (row.cells if row else ()))]
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": sum(case.find("error") is not None for case in cases),
        "skipped": sum(case.find("skipped") is not None for case in cases),
    }
    totals = {**{key: str(n) for key, n in counts.items()}, "time": f"{state.totals.seconds:.3f}"}
    suites = ET.Element("testsuites", {"name": "loopwright", **totals})
    suite = ET.SubElement(suites, "testsuite", {"name": safe(state.run), **totals})
    if state.started_at is not None:
        suite.set("timestamp", f"{state.started_at:%Y-%m-%dT%H:%M:%S}")
    properties = ET.SubElement(suite, "properties")
    facts = {
        "goal": brief(str(doc["goal"]), 1000),
        "reason": doc["reason"] or state.phase,
        "iterations": str(state.iteration),
        "iteration shown": "" if row is None else str(row.number),
        "score": score(doc["score"]),
        "best score": score(doc["best_score"]),
        "cost_usd": "unknown" if doc["cost_usd"] is None else f"{doc['cost_usd']:.6f}",
    }
    earlier = {f"iteration {r.number}": _property(r) for r in report.rows if r is not row}
    if report.rows_left_out:
        earlier["iterations left out"] = str(report.rows_left_out)
    for key, text in {**facts, **earlier}.items():
        ET.SubElement(properties, "property", {"name": key, "value": safe(text)})
    suite.extend(cases)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _property(row: Row) -> str:
    gates = ", ".join(f"{cell.gate} {cell.status} {cell.value:.2f}" for cell in row.cells)
    return brief(f"{row.outcome}, score {score(row.score)}{f': {gates}' if gates else ''}", 1000)


def _ending(report: Report, suite: str) -> ET.Element:
    state = report.state
    case = ET.Element("testcase", {"classname": suite, "name": ENDING, "time": "0.000"})
    found = why(report)
    text = "\n".join(found.lines)
    if state.finished is None:
        ET.SubElement(case, "skipped", {"message": brief(found.what, 500)})
    elif state.finished.phase != "complete":
        failure = ET.SubElement(
            case, "failure", {"type": state.finished.reason, "message": brief(found.what, 500)}
        )
        failure.text = safe(text)
    return case


def _case(cell: Cell, blockers: tuple[str, ...], suite: str) -> ET.Element:
    case = ET.Element(
        "testcase", {"classname": suite, "name": safe(cell.gate), "time": f"{cell.seconds:.3f}"}
    )
    if cell.status == "pass":
        return case
    message = brief(cell.reason, 500) or f"{cell.status}, {cell.value:.2f}"
    holds = cell.gate in blockers
    if not holds or cell.status == "skipped":
        advisory = "" if holds else "does not decide: "
        ET.SubElement(case, "skipped", {"message": f"{advisory}{message}"})
        return case
    kind = "error" if cell.status == "error" else "failure"
    found = ET.SubElement(case, kind, {"type": cell.cause or kind, "message": message})
    more = f"\n… and {cell.items - len(cell.failing)} more" if cell.items > len(cell.failing) else ""
    found.text = safe(cell.reason + ("\n\n" + "\n".join(cell.failing) + more if cell.failing else ""))
    return case
