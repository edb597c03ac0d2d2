"""`report` and the summary of a GitHub step, on runs that really happened."""

from __future__ import annotations

import json
import os
from xml.etree import ElementTree as ET

import pytest
from stage import FREE

GATE = "sh -c 'test -e done || { echo not yet; exit 1; }'"


@pytest.fixture
def ran(stage):
    """Two iterations, the second of which is good."""
    say = {"result": {"summary": "<b>did it</b>", "cost_usd": 0.25, "tokens": 7}}
    stage.script({"write": {"work.txt": "1\n"}, **say}, {"write": {"done": "2\n"}, **say})
    stage.run(gate=GATE, expect=0)
    return stage


def test_on_stdout_one_format_and_markdown_unless_told(ran):
    text = ran("report", "r", expect=0).out
    assert "quality_reached" in text and "Next: `loopwright diff r`" in text
    assert "- A `done` +1 −0" in text and "- A `work.txt` +1 −0" in text
    assert "$0.50" in text
    doc = json.loads(ran("report", "latest", "--format", "json", expect=0).out, parse_constant=pytest.fail)
    assert (doc["schema"], doc["run"]["run"], doc["run"]["next"]) == (
        "loopwright/report/v1",
        "r",
        "loopwright diff r",
    )
    assert [row["changes"] and row["changes"]["added"] for row in doc["iterations"]] == [None, 1, 1]
    assert [row["tokens"] for row in doc["iterations"]] == [None, 7, 7]


def test_one_iteration_as_json_beside_files_of_every_format(ran):
    doc = ran("show", "r", "--iteration", "1", "--json", expect=0).doc
    assert (doc["schema"], doc["iteration"], doc["outcome"]) == ("loopwright/iteration/v1", 1, "not_accepted")
    (gate,) = doc["gates"]
    assert (gate["iteration"], gate["status"]) == (1, "fail")
    assert "iteration 7" in ran("show", "r", "--iteration", "7", "--json", expect=2).err
    _files(ran)


def _files(ran):
    """Written where it says and nowhere else."""
    before = set(ran.folder.iterdir())
    out = ran("report", "r", "-o", "out/deep", expect=0).out.split()
    assert out == ["out/deep/report.md", "out/deep/report.html", "out/deep/report.json", "out/deep/junit.xml"]
    place = ran.folder / "out/deep"
    assert sorted(os.listdir(place)) == ["junit.xml", "report.html", "report.json", "report.md"]
    assert set(ran.folder.iterdir()) - before == {ran.folder / "out"}
    page = (place / "report.html").read_text()
    assert "&lt;b&gt;did it&lt;/b&gt;" in page and "<svg" in page
    assert ET.parse(place / "junit.xml").getroot().get("failures") == "0"
    assert ran("report", "r", "-o", "out", "--format", "junit,md", expect=0).out.split() == [
        "out/junit.xml",
        "out/report.md",
    ]


def test_what_cannot_be_written_is_a_usage_error(ran):
    for args, told in (
        (("--format", "pdf"), "the formats are md, html, json, junit"),
        (("--format", "md,html"), "say where with -o DIR"),
        (("-o", "work.txt"), "-o work.txt: "),
    ):
        assert told in ran("report", "r", *args, expect=2).err


def test_a_report_of_a_run_without_snapshots(stage):
    stage.script(FREE)
    stage.run("--workspace", "none", "--max-iterations", "1", expect=3)
    doc = stage("report", "r", "--format", "json", expect=0).doc
    assert doc["changes"] is None and doc["iterations"][-1]["changes"] is None


def test_github_shows_the_report_of_a_step(stage):
    summary = stage.folder.parent / "summary.md"
    summary.write_text("before")
    on = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    stage(*stage.loop("--max-iterations", "1"), expect=3, **on)
    first = summary.read_text()
    assert first.startswith("before\n## ✗ `r`: max_iterations")
    stage("resume", "r", "--add-iterations", "1", expect=3, **on)
    assert summary.read_text().startswith(first) and summary.read_text().count("## ✗ `r`") == 2
    stage("resume", "r", "--add-iterations", "1", expect=3, GITHUB_STEP_SUMMARY=str(summary))
    assert summary.read_text().count("## ✗ `r`") == 2, "only in a workflow"


def test_a_summary_that_cannot_be_written_changes_no_exit_code(stage):
    full = stage.folder.parent / "summary.md"
    full.write_text("x" * (1024 * 1024 - 100))
    for target in (full, stage.folder.parent / "missing/summary.md"):
        on = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(target)}
        ran = stage(*stage.loop(gate="true"), expect=0, **on)
        assert "loopwright: no summary for GitHub: " in ran.err
    assert full.stat().st_size <= 1024 * 1024


def test_why_names_what_holds_it_back_and_what_it_takes(stage):
    stage.run("--max-iterations", "1", gate=GATE, expect=3)
    text = stage("why", "r", expect=0).out
    assert text.splitlines()[2] == "  next: loopwright resume r --add-iterations 10"
    assert "iterations  1 of 1   <- decided" in text
    assert "held back by:\n  sh: exit 1" in text
    assert "it goes on with more iterations" in text
