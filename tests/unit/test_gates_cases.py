"""Every case of INDEX.tsv, through the gate a user would have: what it says there is what comes out."""

import json
import re
import shlex
import sys

import pytest
from a_place import CASES, place, score

from loopwright.gates.coverage import coverage
from loopwright.gates.judge import judge
from loopwright.gates.junit import junit
from loopwright.gates.lint import lint
from loopwright.gates.pytest import pytest as pytest_gate
from loopwright.gates.sarif import sarif
from loopwright.gates.score import score as score_gate
from loopwright.gates.suites import gotest, jest, tap
from loopwright.gates.types import types

AREAS = ("junit", "coverage", "lint", "types", "sarif", "tap", "gotest", "jest", "score")
GATES = {"lint": lint, "types": types, "sarif": sarif, "tap": tap, "gotest": gotest, "jest": jest}
ROWS = [
    row
    for row in (line.split("\t") for line in (CASES / "INDEX.tsv").read_text().splitlines()[1:])
    if not row[0].startswith("approvals/")
]
# What the answers say in words, where a word is checked.
CODES = {
    "junit/zero_tests.xml": "no_tests",
    "junit/root_only.xml": "no_tests",
    "junit/all_skipped.xml": "no_tests",
    "junit/one_of_many_empty/b_zero_bytes.xml": "unreadable_report",
    "junit/header_failure_without_case.xml": "inconsistent",
    "junit/truncated.xml": "malformed",
    "junit/utf8_declared_latin1_bytes.xml": "malformed",
    "junit/entity_bomb.xml": "entity",
    "junit/external_entity.xml": "entity",
    "junit/stale_report_scenario.sh": "stale_report",
    "junit/os_exit_zero/test_early_exit.py.txt": "missing_report",
    "coverage/no_lines.xml": "no_data",
    "coverage/nan_rate.xml": "not_finite",
    "coverage/zero_found.info": "no_data",
    "coverage/empty.info": "no_data",
    "lint/empty_stdout_exit0.txt": "no_output",
    "tap/plan_short.tap": "incomplete",
    "tap/bail_out.tap": "bail_out",
    "tap/plan_zero_with_assert.tap": "incomplete",
    "tap/no_plan.tap": "incomplete",
    "jest/zero_tests.json": "no_tests",
    "types/mypy_missing_file.txt": "inconsistent",
    "sarif/execution_failed.sarif": "failed",
    "sarif/results_absent.sarif": "no_results",
    "sarif/no_runs.sarif": "no_runs",
}
FAILING = {
    "junit/call_failure_plus_teardown_error.xml": ("t::test_fail",),
    "junit/teardown_error_count_mismatch.xml": ("t::test_two",),
    "junit/failure_and_error_one_case.xml": ("t::x",),
    "junit/header_hides_failure.xml": ("t::bad",),
    "junit/raw_esc_in_message.xml": ("t::bad",),
    "junit/failure_without_text.xml": ("t::x",),
    "junit/nested_suites.xml": ("c::d",),
    "junit/collection_error.xml": ("test_c",),
    "junit/make_huge.py": ("t::b",),
    "lint/ruff_old_syntax_error.json": ("/w/foo.py: syntax-error",),
    "lint/eslint_trailing_warning.txt": ("/w/a.js: quotes",),
    "lint/eslint_fatal.json": ("/w/b.js: parse-error",),
    "gotest/build_failed.jsonl": ("ex/p2",),
    "jest/suite_failed_to_run.json": ("/w/b.test.js",),
    "types/mypy_syntax_text_in_json_mode.txt": ("invalid.py: syntax",),
    "sarif/suppressed_only.sarif": ("(no file): R2",),
}


def expected(answer):
    """The statuses that an answer allows: its first word, or the one it names in brackets."""
    words = re.search(r"(NOT PASS|PASS|FAIL|ERROR)( \((ERROR))?", answer)
    if words is None:
        return None
    if words[3] or words[1] == "ERROR":
        return {"error"}
    return {"PASS": {"pass"}, "FAIL": {"fail"}}.get(words[1], {"fail", "error"})


def judged(name, where):
    """The score of one case."""
    case = CASES / name
    copy = f"cp {shlex.quote(str(case))} report.xml"
    if name == "junit/make_huge.py":
        return score(junit(run=[sys.executable, str(case), "report.xml", "20"], report="report.xml"), where)
    if name == "junit/stale_report_scenario.sh":
        run = ["sh", str(case), "."]  # what it leaves says of itself that it is two hours old
        return score(junit(run=run, report="report.xml"), where)
    if name.startswith("junit/os_exit_zero"):
        (where.root / "test_early_exit.py").write_bytes(case.read_bytes())
        return score(pytest_gate(), where)
    if name.startswith("junit/one_of_many_empty"):
        run = f"cp -r {shlex.quote(str(case.parent))} reports"
        return score(junit(run=run, report="reports/*.xml"), where)
    if name.startswith("junit/"):
        return score(junit(run=copy, report="report.xml"), where)
    if name.startswith("coverage/"):
        return score(coverage(run=copy, report="report.xml", min=70), where)
    return score(GATES[name.split("/")[0]](run=["cat", str(case)]), where)


@pytest.mark.parametrize("name", [row[0] for row in ROWS if row[0].split("/")[0] in {*AREAS} - {"score"}])
def test_a_case_is_judged_as_its_row_says(name, tmp_path):
    answer = next(row[2] for row in ROWS if row[0] == name)
    allowed = expected(answer)
    if name.endswith("a_ok.xml"):
        allowed = {"error"}  # part of a whole that its neighbour spoils
    if name == "lint/ruff_no_files.json":
        allowed = {"pass"}  # what its row says for min_files = 0
    assert allowed, answer
    found = judged(name, place(tmp_path))
    assert found.status in allowed, found.reason
    assert found.evidence.get("code") == (CODES.get(name) if found.status == "error" else None) or (
        name.endswith("a_ok.xml") and found.evidence["code"] == "unreadable_report"
    )
    assert (found.status == "error") == (found.cause is not None)
    assert found.failing == FAILING.get(name, ())
    assert found.graded == (found.status != "error")
    assert "\x1b" not in found.reason


def test_every_row_has_a_file_and_every_file_a_row():
    rows = {row[0] for row in ROWS}
    files = {
        str(p.relative_to(CASES)) for folder in AREAS for p in (CASES / folder).rglob("*") if p.is_file()
    }
    assert rows & files == files
    assert {r for r in rows if r.split("/")[0] in AREAS} == files


OPINIONS = [json.loads(line) for line in (CASES / "score" / "judge_outputs.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("case", OPINIONS, ids=[case["expected"][:24] for case in OPINIONS])
def test_a_verdict_is_read_as_its_row_says(case, tmp_path):
    gate = judge(rubric="Is it good?", agent=["printf", "%s", case["text"]], min=0.7)
    found = score(gate, place(tmp_path), workdir=None, output="the work")
    number = re.search(r"score (?:parses as )?([\d.]+)", case["expected"])
    if case["expected"].startswith("ERROR"):
        assert (found.status, found.value, found.graded, found.cause) == ("error", 0.0, False, "evidence")
    else:
        assert (found.status, found.value) == (
            "pass" if float(number[1]) >= 0.7 else "fail",
            float(number[1]),
        )


SCORES = [line.split("\t") for line in (CASES / "score" / "score_values.tsv").read_text().splitlines()[1:]]


@pytest.mark.parametrize(("output", "mark", "answer"), SCORES)
def test_a_score_is_read_as_its_row_says(output, mark, answer, tmp_path):
    found = score(score_gate(run=["printf", "%s\n", output], mark=float(mark), range=(0, 1)), place(tmp_path))
    assert found.status == {"PASS": "pass", "FAIL": "fail", "ERROR": "error"}[answer.split()[0]], found.reason
    words = {
        "not finite": "not_finite",
        "missing": "no_score",
        "duplicate": "duplicate_key",
        "range": "out_of_range",
    }
    code = next((code for word, code in words.items() if word in answer), "not_a_number")
    assert found.evidence.get("code") == (code if found.status == "error" else None)


def test_another_file_is_never_read_through_a_report(tmp_path):
    (tmp_path / "secret").write_text("hunter2")
    text = (
        (CASES / "junit" / "external_entity.xml")
        .read_text()
        .replace("/etc/hostname", str(tmp_path / "secret"))
    )
    (tmp_path / "report.xml").write_text(text)
    found = score(junit(run=["cat", str(tmp_path / "report.xml")]), place(tmp_path))
    assert found.evidence["code"] == "entity"
    assert "hunter2" not in found.reason


def test_no_files_are_not_the_same_as_no_findings(tmp_path):
    case = CASES / "lint" / "ruff_no_files.json"
    run = ["sh", "-c", f"cat {shlex.quote(str(case))}; echo 'warning: No Python files found under x' >&2"]
    found = score(lint(run=run), place(tmp_path))
    assert found.status == "pass"
    assert "no file was checked" in found.reason
    found = score(lint(run=run, min_files=1), place(tmp_path))
    assert (found.status, found.evidence["code"]) == ("error", "no_files")


def test_empty_output_is_clean_only_where_the_loop_says_so(tmp_path):
    case = str(CASES / "lint" / "empty_stdout_exit0.txt")
    assert score(lint(run=["cat", case], empty_means_clean=True), place(tmp_path)).status == "pass"


def test_the_exact_percentage_shows_why_it_is_not_enough(tmp_path):
    found = judged("coverage/rounds_up_to_threshold.json", place(tmp_path))
    assert found.reason == "69.66 % (1265 of 1816 lines) < 70 %"
    assert found.raw == 100 * 1265 / 1816
