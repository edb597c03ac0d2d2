"""Reports that are cut off, that contradict themselves, or that are made to take for ever: never a pass, and soon."""

import contextlib
import json
import os
import time

import pytest
from a_place import CASES, place, score

from loopwright.errors import BadEvidence
from loopwright.evidence import checklist, coverage, gotest, jest, junit, libtest, lint, sarif, tap, types
from loopwright.gates._fresh import names, older, regular
from loopwright.gates.junit import junit as junit_gate

PASSED = [{"fullName": "a", "status": "passed"}, {"fullName": "b", "status": "passed"}]
GREEN = {
    "junit": b'<testsuite name="s" tests="2"><testcase name="a"/><testcase name="b"><skipped/></testcase></testsuite>',
    "tap": b"ok 1 - a\nok 2 - b\n1..2",
    "gotest": b'{"Action":"run","Package":"p","Test":"T"}\n{"Action":"pass","Package":"p","Test":"T"}\n'
    b'{"Action":"output","Package":"p","Output":"ok"}\n{"Action":"pass","Package":"p"}',
    "jest": json.dumps({"testResults": [{"name": "a.js", "assertionResults": PASSED}], "success": True}).encode(),
    "coverage": json.dumps({"totals": {"covered_lines": 9, "num_statements": 10}}).encode(),
    "cobertura": b'<coverage lines-valid="4" lines-covered="3" line-rate="0.75"><packages/></coverage>',
    "lcov": b"TN:\nSF:a.c\nDA:1,1\nDA:2,0\nLF:2\nLH:1\nend_of_record",
    "lint": b'[{"filePath": "a.js", "messages": [], "errorCount": 0}]',
    "sarif": b'{"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "t"}}, "results": []}]}',
    "mypy": (CASES / "recorded" / "mypy_2.4_clean.txt").read_bytes().rstrip(),
    "pyright": b'{"generalDiagnostics": [], "summary": {"filesAnalyzed": 3, "errorCount": 0, "warningCount": 0}}',
}  # fmt: skip


def bad(kind, data):
    """How much speaks against the report; BadEvidence where it proves nothing."""
    suites = {"junit": junit, "tap": tap, "gotest": gotest, "cargo": libtest}
    if kind in suites:
        return suites[kind].read([("r", iter([data]))]).bad
    if kind == "jest":
        return jest.read([("r", data)]).bad
    if kind in {"coverage", "cobertura", "lcov"}:
        return 100 - coverage.read(data, "r").exact
    if kind == "lint":
        return lint.read(data, "r").count
    if kind == "sarif":
        found, problem = sarif.read(data, "r")
        if problem is not None:
            raise problem
        return found.count
    found = types.read(data, "r", kind)
    return found.count or bool(found.unchecked)


@pytest.mark.parametrize("kind", GREEN)
def test_what_is_cut_off_anywhere_never_passes(kind):
    data = GREEN[kind]
    assert bad(kind, data) < 60
    for end in range(len(data)):
        with pytest.raises(BadEvidence):
            assert bad(kind, data[:end]) == 0, data[:end]


CONTRADICTIONS = {
    ("coverage", b'{"totals": {"covered_lines": 9, "num_statements": 10, "percent_covered": 50.0}}'): "inconsistent",
    ("cobertura", b'<coverage lines-valid="4" lines-covered="3" line-rate="0.5"/>'): "inconsistent",
    ("cobertura", b'<coverage lines-valid="3" lines-covered="2" line-rate="0.66"/>'): "",
    ("lcov", b"SF:a\nDA:1,1\nSF:b\nDA:1,1\nend_of_record\n"): "malformed",
    ("lcov", b"SF:a\nDA:1,1\nend_of_record\nDA:2,1\nend_of_record\n"): "malformed",
    ("jest", json.dumps({"testResults": [{"assertionResults": PASSED}], "success": True, "numPassedTests": 3}).encode()): "inconsistent",
    ("jest", json.dumps({"testResults": [{"assertionResults": PASSED}], "success": True, "numFailedTests": "1"}).encode()): "inconsistent",
    ("jest", json.dumps({"testResults": [{"assertionResults": PASSED}], "success": True, "wasInterrupted": "yes"}).encode()): "incomplete",
    ("cargo", b"running 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\nerror: test failed, to rerun pass `--test b`\n"): "inconsistent",
    ("cargo", b"running 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\nrunning 9999999999 tests\n"): "incomplete",
    ("lint", b'[], "errorCount": 1}]'): "malformed",
    ("sarif", b'{"runs": [{"results": [], "invocations": [{"executionSuccessful": "false"}]}]}'): "failed",
    ("sarif", b'{"runs": [{"results": [], "invocations": [3]}]}'): "malformed",
    ("mypy", "Success: no issues found in 3 source files".encode("utf-16")): "malformed",
    ("tsc", "a.ts(1,2): error TS2322: no".encode("utf-16")): "malformed",
    ("pyright", b'{"generalDiagnostics": [], "summary": {"filesAnalyzed": 1.5, "errorCount": 0, "warningCount": 0}}'): "malformed",
    ("pyright", b'{"generalDiagnostics": [], "summary": {"filesAnalyzed": 1, "errorCount": -1, "warningCount": 0}}'): "malformed",
}  # fmt: skip


@pytest.mark.parametrize(("kind", "data"), CONTRADICTIONS, ids=range(len(CONTRADICTIONS)))
def test_what_contradicts_itself_never_passes(kind, data):
    code = ""
    try:
        bad(kind, data)
    except BadEvidence as error:
        code = error.code
    assert code == CONTRADICTIONS[kind, data]


DIGITS = b"9" * 5000
ODD = [
    ("mypy", b"a.py:" + DIGITS + b":" + DIGITS + b": error: x\nFound " + DIGITS + b" errors in 1 file (checked 1 source file)\n"),
    ("tsc", b"a.ts(" + DIGITS + b"," + DIGITS + b"): error TS2322: no\nFiles: " + DIGITS + b"\n"),
    ("pyright", b'{"generalDiagnostics": [{"severity": []}], "summary": {"filesAnalyzed": 1, "errorCount": 0, "warningCount": 0}}'),
    ("sarif", b'{"runs": [{"results": [{"kind": {}, "ruleId": [], "ruleIndex": {}, "level": []}]}]}'),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "data"), ODD, ids=range(len(ODD)))
def test_odd_values_of_a_finding_leave_it_a_finding(kind, data):
    assert bad(kind, data) >= 1
    assert lint.read(b"a.py:" + DIGITS + b": x\n", "r", "text").count == 1
    with pytest.raises(BadEvidence, match="zero bytes"):
        lint.read("a.py:1: x\n".encode("utf-16"), "r", "text")


N = 60_000
SLOW = {
    "rule": ("mypy", b"a.py:1: error: x" + b" " * N + b"y\nFound 1 error in 1 file (checked 1 source file)\n"),
    "died": ("cargo", b"  process didn't exit successfully: " + b" (" * N),
    "nested lines": ("cobertura", b"<coverage>" + b'<line hits="1">' * N),
    "nested arrays": ("lint", b"[\n" * 900 + b"1," * 10 * N + b"x"),
    "rules": ("sarif", json.dumps({"runs": [{"tool": {"driver": {"rules": [{"id": str(i)} for i in range(N // 8)]}}, "results": [{"ruleId": str(i)} for i in range(N // 8)]}]}).encode()),
    "blank lines": ("jest", json.dumps({"testResults": [{"status": "failed", "message": "\n" * N, "assertionResults": []}]}).encode()),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOW)
def test_no_report_takes_the_square_of_its_size(name):
    began = time.process_time()
    with contextlib.suppress(BadEvidence):
        assert bad(*SLOW[name]) > 0
    assert time.process_time() - began < 1.5


def test_nor_does_a_list():
    began = time.process_time()
    assert len(checklist.items(b"- [ ] a --> " + b"<!--" * N + b"\n- [ ] <!-- x --> b\n")) == 2
    assert time.process_time() - began < 1.5


TEXT = '<testsuite><testcase name="a"/></testsuite>'


@pytest.mark.parametrize(
    "command",
    ["mv old report.xml", "ln old report.xml", "ln -s old report.xml", "cp -p old report.xml"],
)
def test_what_was_written_before_the_run_is_stale_under_any_name(command, tmp_path):
    where = place(tmp_path)
    (where.root / "old").write_text(TEXT)
    os.utime(where.root / "old", (1_700_000_000.5, 1_700_000_000.5))
    found = score(junit_gate(run=["sh", "-c", command], report="report.xml"), where)
    assert found.evidence["code"] == "stale_report"


def test_the_same_content_written_again_is_of_this_run(tmp_path):
    where = place(tmp_path)
    (where.root / "report.xml").write_text(TEXT)
    command = ["sh", "-c", f"printf %s '{TEXT}' > report.xml"]
    assert score(junit_gate(run=command, report="report.xml"), where).status == "pass"


def test_times_are_compared_as_finely_as_the_file_system_keeps_them(tmp_path):
    assert older(99_999_999_999, 100_000_000_001)
    assert not older(100_000_000_001, 100_000_000_001)
    assert not older(100_000_000_000, 101_900_000_000)
    assert older(100_000_000_000, 102_100_000_000)
    (tmp_path / "folder").mkdir()
    assert names(tmp_path, "*") == []
    assert names(tmp_path, "folder") == ["folder"]
    assert regular(tmp_path / "folder") is None
    assert regular(tmp_path / "folder" / "none") is None
