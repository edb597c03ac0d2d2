"""The report in every format: complete, bounded, and deaf to what is written in a run."""

from __future__ import annotations

import json as plain
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from sim import FAIL, PASS, Sim, answered, failed, graded, script, worked
from told import history

from loopwright.core import events as ev
from loopwright.core.apply import apply
from loopwright.core.judge import Rule
from loopwright.core.limits import Limits
from loopwright.core.monitors import Degradation, Monitors
from loopwright.core.policy import Asking, Policy
from loopwright.core.state import LoopState
from loopwright.core.values import Score, Usage, Verdict
from loopwright.evidence.junit import read as read_junit
from loopwright.figures import safe, score
from loopwright.report.gather import FIRST, LAST, gather
from loopwright.report.html import STYLE, html
from loopwright.report.json import json
from loopwright.report.junit import ENDING, junit
from loopwright.report.markdown import code, markdown
from loopwright.report.svg import score_chart
from loopwright.report.values import Changes

GATES = (Rule(name="tests"), Rule(name="style", required=False))
HOSTILE = (
    "` `` </pre></details><script>alert(1)</script><img src=x onerror=alert(2)> @team [x](javascript:alert(3)) "
    "| `a` ``` ``\n```\n# big\n\x1b[2J\x07\u202egnp.exe ]]> &amp; \ufffe \x00"
)
FORMATS = (markdown, html, json, junit)


@pytest.mark.parametrize(
    ("value", "shown"), [(518 / 519, "0.99"), (0.9999, "0.99"), (1.0, "1.00"), (0.985, "0.98"), (None, "-")]
)
def test_a_score_below_one_is_never_written_as_one(value, shown):
    assert score(value) == shown


def repaired():
    """Not good, errored, worse, good: four iterations with costs and trees."""
    policy = Policy(gates=GATES, threshold=1.0, limits=Limits(max_iterations=4, convergence=None))
    tests = script(graded(0.5, "a", "b"), graded(0.2, "a", "b", "c"), graded(1.0))
    outcomes = script(worked("t1", cost=0.1), failed("unknown"), worked("t2", cost=0.2), worked("t3"))
    return Sim(policy, agent=outcomes, gates=lambda gate: tests(gate) if gate == "tests" else FAIL).run(200)


def hostile():
    """A run whose every foreign text is an attack."""
    policy = Policy(goal=HOSTILE, gates=(Rule(name=HOSTILE),), limits=Limits(max_iterations=2))
    score = Score(0.5, HOSTILE, status="fail", graded=True, failing=(HOSTILE,), unit=HOSTILE, raw=1.0)
    work = replace(worked("t", cost=0.1), summary=HOSTILE, degraded=HOSTILE)
    sim = Sim(policy, agent=script(work, failed("unknown")), gates=script(score))
    sim.signals = {1: [ev.NoteAdded(text=HOSTILE, by=HOSTILE)]}
    facts = history(sim.run(200))
    _, at, first, _ = facts[0]
    spec = {**first.spec, "goal": HOSTILE}
    return refolded([(at, replace(first, spec=spec, origin=HOSTILE)), *((a, e) for _, a, e, _ in facts[1:])])


def refolded(facts):
    state, found = LoopState(), []
    for at, event in facts:
        state = apply(state, event, at)
        found.append((1, at, event, state))
    return found


def bad_diff(old, new):
    return Changes(files=1, added=1, removed=1, paths=(("M", HOSTILE, 1, 1),), patch=f"+{HOSTILE}")


class Page(HTMLParser):
    """What a browser would make of it: tags, attributes, text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.data, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in {"meta", "br", "line", "circle", "rect", "polyline"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.data.append(data)


def test_the_matrix_has_every_iteration_with_its_gates_score_cost_and_changes():
    changed = Changes(files=2, added=3, removed=1, paths=(("M", "a.py", 3, 1),), patch="+x")
    report = gather(history(repaired()), lambda old, new: changed)
    assert [row.number for row in report.rows] == [1, 2, 3, 4]
    assert [row.outcome for row in report.rows] == ["not_accepted", "errored", "not_accepted", "accepted"]
    assert [[cell.status for cell in row.cells] for row in report.rows] == [
        ["fail", "fail"],
        [],
        ["fail", "fail"],
        ["pass", "fail"],
    ]
    assert [row.cost_usd for row in report.rows] == [0.1, 0.0, 0.2, 0.0]
    assert report.rows[1].problem == "unknown: it was unknown"
    assert [(row.before, row.after, row.changes is not None) for row in report.rows[2:]] == [
        ("t1", "t2", True),
        ("t2", "t3", True),
    ]
    assert report.shown.number == 4
    assert [n for n, _ in report.series.score] == [1, 3, 4]
    assert set(report.series.gates) == {"tests", "style"}


def test_the_baseline_is_row_0_and_an_open_iteration_the_last():
    sim = Sim(Policy(gates=GATES, baseline=True), gates=script(FAIL))
    for _ in range(3):
        sim.perform(sim_next(sim))
    sim.record(ev.AttemptStarted(iteration=1, attempt=1, key="k", allowance_s=9.0))
    report = gather(history(sim))
    assert [(row.number, row.outcome) for row in report.rows] == [(0, "not_accepted"), (1, "open")]
    assert (report.rows[0].attempts, report.rows[1].attempts) == (0, 1)


def sim_next(sim):
    from loopwright.core.decide import decide

    return decide(sim.policy, sim.state, sim.now)


def test_people_and_alerts_stand_in_every_format():
    monitors = Monitors(degradation=Degradation(window=2, action="note"))
    policy = Policy(gates=GATES, threshold=1.0, monitors=monitors, approval=Asking(when="passed"))
    scores = script(graded(0.5), graded(0.2), graded(1.0))
    sim = Sim(policy, people=answered("approve", note="well done", channel="slack"))
    sim.gates = lambda gate: scores(gate) if gate == "tests" else PASS
    report = gather(history(sim.run(200)))
    for write in (markdown, html, json):
        text = write(report)
        assert "DEGRADATION" in text and "well done" in text and "slack" in text, write.__name__
    (asked,) = plain.loads(json(report))["approvals"]
    assert (asked["decided"]["by"], asked["asked"]["about"]) == ("ann", "accept")


def test_the_timeline_tells_what_happened_in_order():
    moments = [(m.iteration, m.kind, m.text.split()[0]) for m in gather(history(repaired())).moments]
    assert moments == [
        (0, "run", "the"),
        (1, "close", "not_accepted"),
        (2, "work", "the"),
        (2, "close", "errored"),
        (3, "close", "not_accepted"),
        (4, "close", "accepted"),
        (4, "run", "ended:"),
    ]


@pytest.mark.parametrize("write", FORMATS)
def test_control_and_bidi_characters_are_shown(write):
    text = write(gather(hostile(), bad_diff))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", text)
    assert "\\u001b" in text
    if write is not json:  # data is data: it is not for eyes
        assert not re.search("[\u202a-\u202e\u2066-\u2069\ufffe]", text)
        assert "\\u202e" in text


def test_a_page_holds_no_tag_of_a_stranger():
    text = html(gather(hostile(), bad_diff))
    page = Page(text)
    assert not {"script", "img", "iframe", "object", "link", "a", "form"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "href"]
    assert page.open == []
    assert "<script>alert(1)</script>" in "".join(page.data), "shown, not swallowed"


def test_a_page_loads_nothing_and_its_policy_allows_only_its_style():
    import base64
    import hashlib

    text = html(gather(history(repaired()), bad_diff), next_step="loopwright diff r")
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in text
    assert f"<style>{STYLE}</style>" in text
    assert "style=" not in text, "the policy would not let it"
    assert "prefers-color-scheme:dark" in text and "loopwright diff r" in text


def test_the_chart_says_what_it_shows():
    chart = score_chart(gather(history(repaired())))
    root = ET.fromstring(chart)
    space = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    names = {root.find(f"{space}title").get("id"), root.find(f"{space}desc").get("id")}
    assert set(root.get("aria-labelledby").split()) == names
    assert "the best is 0.50 in iteration 4" in root.find(f"{space}desc").text
    kinds = [node.get("class") for node in root]
    assert {"score", "gate g0", "gate g1", "mark", "best"} <= set(kinds)
    assert kinds.count("dot") == 3


def test_markdown_says_what_holds_the_work_back():
    policy = Policy(gates=(Rule(name="tests"),), limits=Limits(max_iterations=1))
    text = markdown(gather(history(Sim(policy, agent=script(worked("t1")), gates=script(FAIL)).run(50))))
    assert "Held back by:\n\n- `tests: " in text


def test_markdown_keeps_strangers_in_code():
    text = markdown(gather(hostile(), bad_diff))
    left, fence = [], ""
    for line in text.splitlines():
        run = re.match("(`{3,})", line)
        if fence:
            fence = "" if line == fence else fence
        elif run and not line.rstrip("`").endswith(" "):
            fence = run[1]
        else:
            left.append(re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", line))
    assert fence == ""
    outside = "\n".join(left)
    assert "alert" not in outside and "@team" not in outside and "# big" not in outside
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [line for line in table.splitlines() if "left out" not in line]
        assert len({line.replace("\\|", "").count("|") for line in rows}) == 1, table


def test_a_code_span_cannot_be_closed_from_inside():
    assert code("a`b") == "``a`b``"
    assert code("`` ` ```") == "```` `` ` ``` ````"
    assert code("a|b") == "`a|b`"
    assert code("a|b\nc", cell=True) == "`a\\|b c`"
    assert code(" \n") == ""


def test_markdown_is_cut_where_it_may_not_be_longer_and_says_so():
    changes = Changes(files=1, added=1, removed=0, patch="+é\n" * 9000)
    report = replace(gather(history(repaired())), changes=changes)
    whole = markdown(report)
    short = markdown(report, most=20_000)
    assert len(whole.encode()) > 20_000 >= len(short.encode())
    assert "was cut here" in short
    assert short.count("```") % 2 == 0 and short.count("<details>") == short.count("</details>")


def test_json_has_its_schema_and_unknown_is_null():
    value = plain.loads(json(gather(history(repaired()))))
    assert value["schema"] == "loopwright/report/v1"
    assert value["run"]["schema"] == "loopwright/run/v1"
    assert value["shown_iteration"] == 4
    assert [row["number"] for row in value["iterations"]] == [1, 2, 3, 4]
    assert value["iterations"][1]["score"] is None
    assert value["why"]["what"].startswith("Iteration 4 passed")


def suite(report):
    root = ET.fromstring(junit(report))
    (only,) = root
    cases = {case.get("name"): [child.tag for child in case] for case in only.iter("testcase")}
    for node in (root, only):
        tags = [tag for found in cases.values() for tag in found]
        numbers = {name: int(node.get(name)) for name in ("tests", "failures", "errors", "skipped")}
        assert numbers == {
            "tests": len(cases),
            "failures": tags.count("failure"),
            "errors": tags.count("error"),
            "skipped": tags.count("skipped"),
        }
    return only, cases


def test_junit_of_a_run_that_ended_well_is_green():
    only, cases = suite(gather(history(repaired())))
    assert cases == {ENDING: [], "tests": [], "style": ["skipped"]}
    properties = {p.get("name"): p.get("value") for p in only.iter("property")}
    assert properties["iteration 3"] == "not_accepted, score 0.10: tests fail 0.20, style fail 0.00"
    assert properties["reason"] == "quality_reached"
    ours = read_junit([("junit.xml", [junit(gather(history(repaired()))).encode()])])  # a strict reader
    assert (ours.passed, ours.failed, ours.skipped) == (2, 0, 1)


def test_junit_of_a_run_that_did_not_is_red_and_says_which_gate():
    sim = Sim(Policy(gates=GATES, limits=Limits(max_iterations=2)), gates=script(FAIL))
    only, cases = suite(gather(history(sim.run(200))))
    assert cases == {ENDING: ["failure"], "tests": ["failure"], "style": ["skipped"]}
    assert only.find("testcase/failure").get("type") == "max_iterations"


def test_junit_of_accepted_work_that_did_not_pass_is_green():
    policy = Policy(gates=GATES, approval=Asking(when="always"))
    sim = Sim(policy, gates=script(FAIL), people=answered("approve", override="fine"))
    assert suite(gather(history(sim.run(200))))[1] == {ENDING: [], "tests": ["skipped"], "style": ["skipped"]}


def test_junit_without_any_judged_iteration_is_still_red():
    sim = Sim(Policy(gates=GATES), agent=script(failed("permanent"))).run(200)
    assert suite(gather(history(sim)))[1] == {ENDING: ["failure"]}


def test_a_run_of_many_iterations_gives_a_bounded_report():
    facts, state, at = [], LoopState(), repaired().now
    whole, low, high = 1500, 634, 1045

    def record(event):
        nonlocal state
        state = apply(state, event, at)
        facts.append((1, at, event, state))

    record(ev.RunStarted(run="r", spec={"goal": "g"}, digest="d"))
    for i in range(1, whole + 1):
        value = {low: 0.01, high: 0.99}.get(i, 0.5)
        record(ev.AttemptStarted(iteration=i, attempt=1, key="k", allowance_s=1.0))
        record(ev.AttemptSucceeded(result=1, seconds=1.0, usage=Usage(cost_usd=0.01), snapshot=f"{i:040x}"))
        reason = "why " * 1000
        score = Score(value, reason, status="fail", failing=tuple(map(str, range(500))))
        record(ev.GateScored(gate="g", score=score, seconds=0.1, snapshot=f"{i:040x}"))
        record(ev.Judged(verdict=Verdict(score=value, passed=False, blockers=("g",), reasons=(reason,) * 9)))
        record(ev.AlertRaised(kind="STALL", iteration=i, action="note", message="m"))
        record(ev.IterationClosed(outcome="not_accepted"))
    patch = "+line\n" * 50_000
    report = gather(facts, lambda old, new: Changes(files=1, added=1, removed=0, patch=patch))
    numbers = [row.number for row in report.rows]
    assert (numbers[0], high in numbers, numbers[-1]) == (1, True, whole)
    assert len(numbers) == FIRST + LAST + 1
    assert report.rows_left_out == whole - len(numbers)
    points = dict(report.series.score)
    assert len(points) <= 1000 and points[low] == 0.01 and points[high] == 0.99
    assert (len(report.alerts), report.alerts_left_out) == (FIRST + LAST, whole - FIRST - LAST)
    assert len(report.moments) + report.moments_left_out == 2 * whole + 1
    for write, most in zip(FORMATS, (120_000, 2_500_000, 2_500_000, 60_000), strict=True):
        text = write(report)
        assert len(text.encode()) < most, (write.__name__, len(text.encode()))
        assert "left out" in text or "left_out" in text, write.__name__


def test_what_drives_a_terminal_is_shown_and_the_rest_is_left():
    assert safe("a\tb\nc \x1b \u202e \u2028 \ufffe é 🙂") == "a\tb\nc \\u001b \\u202e \\u2028 \\ufffe é 🙂"
