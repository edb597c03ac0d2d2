"""Reports with every kind of fault, through their gates: what proves nothing never passes, and says why."""

import json

import pytest
from a_place import place, score

from loopwright.core.values import Score, Scored
from loopwright.errors import ConfigError
from loopwright.gates.eslint import eslint
from loopwright.gates.sarif import sarif
from loopwright.gates.suites import cargo, gotest, jest, tap, vitest
from loopwright.gates.types import types

WROTE = (Scored(gate="writer", score=Score(1.0, evidence={"began_ns": "0"})),)


def given(gate, text, tmp_path, code=0, **options):
    """The score of this text as what a command with this exit printed; of exit 0, as what another gate wrote."""
    where = place(tmp_path)
    (where.root / "out").write_bytes(text if isinstance(text, bytes) else text.encode())
    if code or gate is types:
        return score(gate(run=["sh", "-c", f"cat out; exit {code}"], **options), where)
    return score(gate(report="out", after=("writer",), **options), where, scores=WROTE)


def answer(found):
    return found.evidence.get("code", found.status)


TAP = {
    "1..2\nok 1 - a\nok 2 - b\n": "pass",
    "ok 1 - a\nok 2 - b\n1..2\n": "pass",
    "ok\nok\n1..2": "pass",
    "TAP version 14\r\n1..1\r\nok 1 - a\r\n": "pass",
    "1..2\nok 1 - a\nok 2 - b # SKIP no network\n": "pass",
    "1..2\nok 1 - a\nnot ok 2 - b # todo later\n": "pass",
    "1..1\nok 1 - a # TODO works by now\n": "pass",
    "# Hello\nsome noise\n1..1\nok 1 - a \\# TODO is no directive\n": "pass",
    "1..1\nok 1\n  ---\n  not ok 2 in a block\n  1..7\n  ...\n": "pass",
    "1..1\n    # Subtest: s\n    ok 1 - x\n    not ok 2 - y # TODO\n    1..2\nok 1 - s\n": "pass",
    "1..1\n    1..0 # SKIP nothing here\nok 1 - s # SKIP\n": "no_tests",
    "1..2\nok 1 - a\nnot ok 2 - b\n": "fail",
    "1..1\nnot ok 1 - a \\# TODO is no directive\n": "fail",
    "1..1\nnot ok 1 - b # SKIP but it failed\n": "fail",
    "1..5\nok 1\nnot ok 2 - b\n": "fail",
    "not ok 1 - b\nBail out! gone\n": "fail",
    "1..3\nok 1\nok 2\n": "incomplete",
    "1..1\nok 1\nok 2\n": "incomplete",
    "ok 1\nok 2\n": "incomplete",
    "1..0\nok 1\n": "incomplete",
    "1..3\nok 1\nok 1\nok 2\n": "inconsistent",
    "1..1\nok 1\n1..1\n": "inconsistent",
    "1..2\nok 2\nok 1\n": "pass",
    "1..2\nok 1\nok 3\n": "inconsistent",
    "1..1\nok 1 - a\nBail out!\n": "bail_out",
    "1..1\n    1..2\n    ok 1\nok 1 - s\n": "inconsistent",
    "1..1\n    1..1\n    not ok 1 - in\nok 1 - s\n": "inconsistent",
    "1..1\nok 1\n    1..1\n    not ok 1 - in\n": "incomplete",
    "1..1\nok 1\n  ---\n  message: broken off": "malformed",
    "1..0 # SKIP all\n": "no_tests",
    "1..1\nok 1 # SKIP\n": "no_tests",
    "": "no_output",
    "  \n": "no_output",
    "Hello, I ran all tests and they passed\n": "malformed",
    "1..2\nok 1 - a # time=5.1ms {\n    1..1\n    ok 1 - x {\n        1..1\n        ok 1\n    }\n}\nok 2\n": "pass",
    "ok 1 - parses {\nok 2 - parses {\n1..2\n": "pass",
    "1..1\nok 1 - a {\n": "incomplete",
    "1..1\nok 1 - a {\n    1..1\n    not ok 1 - x\n}\n": "inconsistent",
    "1..1\nok 1 - a {\n    1..2\n    ok 1 - x\n}\n": "inconsistent",
    "1..1\nok 1 - a {\n    1..1\n    ok 1 - x\n": "incomplete",
    "1..1\nnot ok 1 - a # time=5.1ms {\n    1..1\n    not ok 1 - x\n}\n": "fail",
}


@pytest.mark.parametrize("text", TAP)
def test_tap(text, tmp_path):
    assert answer(given(tap, text, tmp_path)) == TAP[text]


def test_tap_says_what_failed(tmp_path):
    text = "1..3\nok 1\nnot ok 2 - b\n  ---\n  duration_ms: 3.1\n  error: |-\n    not 1\n  ...\nnot ok 3\n# at x.js\n"
    found = given(tap, text, tmp_path, 1)
    assert found.failing == ("b", "test 3")
    assert found.reason.splitlines() == ["2 of 3 tests fail", "b: not 1", "test 3: at x.js"]
    timed = given(tap, "1..1\nnot ok 1 - a # time=5.1ms {\n    1..1\n    not ok 1 - x\n}\n", tmp_path, 1)
    assert (timed.failing, timed.reason.splitlines()[1]) == (("a",), "a: x")
    twice = given(tap, "1..2\nok 1 - a\nok 2 - a\n", tmp_path)
    assert twice.raw == 2


def test_a_point_of_many_levels_ends(tmp_path):
    text = "".join(" " * 4 * depth + "ok 1\n" for depth in range(2000)) + "1..1\n"
    assert given(tap, text, tmp_path).status in {"fail", "error"}


def event(action, package="p", test=None, **more):
    return (
        json.dumps({"Action": action, "Package": package, **({"Test": test} if test else {}), **more}) + "\n"
    )


RAN = event("run", test="T") + event("pass", test="T") + event("pass")
GO = {
    RAN: "pass",
    event("start") + RAN: "pass",
    RAN + event("skip", "q"): "pass",
    RAN + event("output", "q", Output="ok  q 0.1s [no tests to run]\n") + event("pass", "q"): "pass",
    event("output", Output="BenchmarkX-8 1 2 ns/op\n") + event("pass"): "no_tests",
    event("run", test="T") + event("fail", test="T") + event("fail"): "fail",
    RAN.replace('"pass", "Package": "p"}', '"fail", "Package": "p"}'): "fail",
    event("run", test="T") + event("output", test="T", Output="panic: x\n") + event("fail"): "fail",
    event("output", Output="FAIL\tp [setup failed]\n") + event("fail"): "fail",
    RAN + "FAIL\tq [build failed]\n": "fail",
    event("build-fail", ImportPath="q [q.test]") + event("fail", "q", FailedBuild="q [q.test]") + RAN: "fail",
    event("output", Output="WARNING: DATA RACE\nexit status 66\n")
    + RAN[: -len(event("pass"))]
    + event("fail"): "fail",
    event("run", test="T") + event("skip", test="T") + event("pass"): "no_tests",
    event("skip"): "no_tests",
    event("start") + event("run", test="T") + event("pass", test="T"): "incomplete",
    event("run", test="T"): "incomplete",
    event("run", test="T") + event("pass", test="T") + event("run", test="U") + event("pass"): "incomplete",
    RAN + event("pass", "q"): "inconsistent",
    event("fail") + RAN: "fail",
    RAN + event("pass"): "inconsistent",
    RAN + RAN: "pass",
    RAN + "FAIL\tp [build failed]\n": "inconsistent",
    RAN + "# q\nq/q.go:5:1: syntax error\n": "incomplete",
    RAN + "# q\nq/q.go:5:1: syntax error\nFAIL\tq [bui": "incomplete",
    "# q\ncgo: warning of something\n" + RAN: "pass",
    RAN + '{"Action":"run","Pack': "malformed",
    RAN + '{"Action":"pass","Action":"fail"}\n': "duplicate_key",
    RAN + "{" * 100_000 + "\n": "malformed",
    "=== RUN TestA\n--- PASS: TestA (0.00s)\nPASS\nok  p 0.1s\n": "malformed",
    "": "no_output",
}


@pytest.mark.parametrize("text", GO, ids=range(len(GO)))
def test_gotest(text, tmp_path):
    assert answer(given(gotest, text, tmp_path)) == GO[text]


def test_gotest_names_packages_and_tests(tmp_path):
    text = (
        event("build-output", ImportPath="m/q [m/q.test]", Output="q/q.go:3:1: syntax error\n")
        + event("build-fail", ImportPath="m/q [m/q.test]")
        + event("start", "m/q")
        + event("output", "m/q", Output="FAIL\tm/q [build failed]\n")
        + event("fail", "m/q", FailedBuild="m/q [m/q.test]")
        + event("run", "m/p", "T/a")
        + event("output", "m/p", "T/a", Output="=== RUN   T/a\n")
        + event("output", "m/p", "T/a", Output="    p_test.go:3: \x1b[31mwant 2\x1b[0m\n")
        + event("fail", "m/p", "T/a")
        + event("fail", "m/p")
    )
    found = given(gotest, text, tmp_path, 1)
    assert found.failing == ("m/p::T/a", "m/q")
    assert found.reason.splitlines()[1:] == [
        "m/p::T/a: p_test.go:3: want 2",
        "m/q: q/q.go:3:1: syntax error",
    ]


def test_go_says_on_stderr_why_it_could_not_build(tmp_path):
    (tmp_path / "out").write_text(RAN + "FAIL\tm/q [build failed]\n")
    (tmp_path / "err").write_text("# m/q [m/q.test]\nq/q.go:3:1: syntax error\n")
    run = ["sh", "-c", f"cat {tmp_path}/err >&2; cat {tmp_path}/out; exit 2"]
    found = score(gotest(run=run), place(tmp_path))
    assert found.failing == ("m/q",)
    assert found.reason.splitlines()[1] == "m/q: q/q.go:3:1: syntax error"


def js(*suites, **more):
    tests = [each for suite in suites for each in suite["assertionResults"]]
    return json.dumps({"numTotalTests": len(tests), "success": True, "testResults": suites} | more)


def suite(*statuses, name="/w/a.js", **more):
    results = [{"fullName": f"t{i}", "status": status} for i, status in enumerate(statuses)]
    return {"name": name, "status": "passed", "assertionResults": results} | more


JEST = {
    js(suite("passed", "passed", "pending", "todo")): "pass",
    js(suite("passed"), suite(name="/w/b.js", status="skipped")): "pass",
    "warning: something\n" + js(suite("passed")): "pass",
    js(suite("passed", "failed"), success=False): "fail",
    js(suite("passed", "failed")): "fail",
    js(suite("passed", "unheard-of")): "fail",
    js(suite("passed"), suite(name="/w/b.js", status="failed")): "fail",
    js(suite("passed", status="failed")): "fail",
    js(suite("passed", testExecError={"message": "boom"})): "fail",
    js(suite("pending", "todo", "skipped")): "no_tests",
    js(): "no_tests",
    js(success=False): "no_tests",
    js(numTotalTests=4): "inconsistent",
    js(suite("passed"), success=False): "inconsistent",
    js(suite("passed"), success=None): "inconsistent",
    js(suite("passed"), numFailedTests=1): "inconsistent",
    js(suite("passed"), numRuntimeErrorTestSuites=1): "inconsistent",
    js(suite("passed"), numFailedTestSuites=2): "inconsistent",
    js(suite("passed"), wasInterrupted=True): "incomplete",
    js(suite("passed") | {"assertionResults": []}, numTotalTests=3): "inconsistent",
    '{"success": true}': "malformed",
    '{"testResults": {}}': "malformed",
    '{"success": true, "testResults": [{"name": "a"}]}': "malformed",
    '{"success": true, "testResults": [{"assertionResults": [3]}]}': "malformed",
    js(suite("passed"))[:-5]: "malformed",
    "[" * 100_000: "malformed",
    '{"success": false, "success": true, "testResults": []}': "duplicate_key",
    js(suite("passed")) + "\n" + js(suite("failed")): "ambiguous",
    "": "no_output",
}


@pytest.mark.parametrize("text", JEST, ids=range(len(JEST)))
def test_jest_and_vitest(text, tmp_path):
    assert {answer(given(gate, text, tmp_path)) for gate in (jest, vitest)} == {JEST[text]}


def test_tests_of_one_name_are_two_and_paths_are_relative(tmp_path):
    name = str(tmp_path / "work" / "a.js")
    same = [
        {
            "title": "t",
            "ancestorTitles": ["s"],
            "status": s,
            "failureMessages": ["\x1b[31mno\x1b[0m\n    at x"],
        }
        for s in ("passed", "failed")
    ]
    found = given(jest, js(suite() | {"name": name, "assertionResults": same}), tmp_path, 1)
    assert (found.raw, found.failing, found.evidence["counts"]["tests"]) == (1, ("a.js::s t",), 2)
    assert found.reason.splitlines()[1] == "a.js::s t: no"


def test_an_exit_that_the_report_does_not_explain_fails(tmp_path):
    for gate, text in ((jest, js(suite("passed"))), (gotest, RAN), (tap, "1..1\nok 1\n"), (cargo, BINARY)):
        found = given(gate, text, tmp_path, 1)
        assert (found.status, found.failing) == ("fail", ("exit 1",))


def binary(n=1, passed=1, failed=0, ignored=0, word=None, tests=""):
    word = word or ("FAILED" if failed else "ok")
    return (
        f"\nrunning {n} test{'' if n == 1 else 's'}\n{tests}\ntest result: {word}. {passed} passed; {failed} failed;"
        f" {ignored} ignored; 0 measured; 0 filtered out; finished in 0.00s\n\n"
    )


BINARY = binary()
CARGO = {
    BINARY: "pass",
    BINARY + binary(0, 0) + binary(2, 1, 0, 1): "pass",
    binary(2, 1, 1, tests="test a ... FAILED\ntest b ... ok\n"): "fail",
    binary(2, 1, 1): "fail",
    BINARY + "error: could not compile `x` (lib) due to 2 previous errors\n": "fail",
    binary(tests="test a ... FAILED\n"): "fail",
    binary(0, 0): "no_tests",
    binary(1, 0, 0, 1): "no_tests",
    BINARY + "\nrunning 3 tests\ntest a ... ok\n": "incomplete",
    "running 1 test\n" + BINARY: "incomplete",
    binary(5, 1): "inconsistent",
    binary(1, 1, word="FAILED"): "inconsistent",
    BINARY.replace("running 1 test", ""): "inconsistent",
    "    Finished test\n": "malformed",
    "": "no_output",
}


@pytest.mark.parametrize("text", CARGO, ids=range(len(CARGO)))
def test_cargo(text, tmp_path):
    assert answer(given(cargo, text, tmp_path)) == CARGO[text]


def test_what_does_not_compile_is_read_from_stderr(tmp_path):
    said = "error[E0308]: mismatched types\n --> src/lib.rs:3:5\nerror: could not compile `x` (lib) due to 1 previous error\n"
    (tmp_path / "err").write_text(said)
    found = score(cargo(run=["sh", "-c", f"cat {tmp_path}/err >&2; exit 101"]), place(tmp_path))
    assert (found.status, found.failing) == ("fail", ("x",))
    assert "x: error[E0308]: mismatched types --> src/lib.rs:3:5" in found.reason


CLEAN = "Success: no issues found in 3 source files\n"
ERROR = 'a.py:1: error: Incompatible "x"  [arg-type]\n'
MYPY = {
    (CLEAN, 0): "pass",
    ("a.py:1: note: See docs\n" + CLEAN, 0): "pass",
    (ERROR + "Found 1 error in 1 file (checked 3 source files)\n", 1): "fail",
    (ERROR, 1): "fail",
    ("C:\\a.py:1:2: error: x\nFound 1 error in 1 file (checked 1 source file)\n", 1): "fail",
    ("a.py: error: Source file found twice\nFound 1 error in 1 file (errors prevented further checking)\n", 2): "fail",
    ('{"file": "a.py", "line": 1, "column": 0, "message": "m", "hint": null, "code": "misc", "severity": "error"}\n', 1): "fail",
    ('{"file": "a.py", "line": 1, "column": 0, "message": "m", "code": null, "severity": "note"}\n', 0): "pass",
    ("Success: no issues found in 0 source files\n", 0): "no_files",
    ("Found 1 error in 1 file (errors prevented further checking)\n", 2): "inconsistent",
    ("Found 2 errors in 1 file (checked 1 source file)\n", 1): "inconsistent",
    (CLEAN, 1): "inconsistent",
    (CLEAN, 2): "inconsistent",
    (CLEAN, 3): "exit",
    ("usage: mypy\n", 0): "incomplete",
    ("a.py:1: note: See docs\n", 0): "incomplete",
    ('{"file": "a.py", "line": 1, "col', 0): "malformed",
    ('{"file": "a.py", "file": "b.py", "severity": "note"}', 0): "duplicate_key",
    ("", 0): "no_output",
    ("\n", 0): "no_output",
}  # fmt: skip


@pytest.mark.parametrize(("text", "code"), MYPY)
def test_mypy(text, code, tmp_path):
    assert answer(given(types, text, tmp_path, code)) == MYPY[text, code]


def pyright(*items, files=1, **more):
    counts = {
        "filesAnalyzed": files,
        "errorCount": sum(i["severity"] == "error" for i in items),
        "warningCount": 0,
    }
    return json.dumps({"generalDiagnostics": items, "summary": counts | more})


ITEM = {"file": "/w/a.py", "severity": "error", "message": "m", "rule": "r"}
PYRIGHT = {
    (pyright(), 0): "pass",
    (pyright(ITEM | {"severity": "warning"}, warningCount=1), 0): "pass",
    (pyright(ITEM), 1): "fail",
    (pyright(ITEM), 0): "fail",
    (pyright({k: v for k, v in ITEM.items() if k != "rule"}), 1): "fail",
    (pyright(ITEM | {"severity": "warning"}, warningCount=1), 1): "fail",
    (pyright(files=0), 0): "no_files",
    (pyright(errorCount=2), 1): "inconsistent",
    (pyright(), 1): "inconsistent",
    (pyright(), 2): "exit",
    (pyright(errorCount=None), 0): "not_a_number",
    (pyright(errorCount=float("nan")), 0): "not_finite",
    ('{"summary": {}}', 0): "malformed",
    ("[]", 0): "malformed",
    ("0 errors, 0 warnings\n", 0): "malformed",
    ("", 0): "no_output",
}  # fmt: skip


@pytest.mark.parametrize(("text", "code"), PYRIGHT, ids=range(len(PYRIGHT)))
def test_pyright(text, code, tmp_path):
    assert answer(given(types, text, tmp_path, code, tool="pyright")) == PYRIGHT[text, code]


TSC = {
    ("", 0): "pass",
    ("Files: 12\n", 0): "pass",
    ("yarn run v1.22\n$ tsc\nDone in 1s.\n", 0): "pass",
    ("a.ts(1,2): error TS2322: no\n", 1): "fail",
    ("a.ts(1,2): error TS2322: no\n", 2): "fail",
    ("error TS2688: Cannot find type definition file for 'node'.\n", 1): "fail",
    ("a.ts(1,2): error TS2322: no\ntsconfig.json(3,5): error TS5023: Unknown compiler option\n", 1): "fail",
    ("error TS18003: No inputs were found in config file\n", 2): "config",
    ("tsconfig.json(3,5): error TS5023: Unknown compiler option\n", 1): "config",
    ("Files: 0\n", 0): "no_files",
    ("", 1): "no_output",
    ("something\n", 2): "inconsistent",
    ("a.ts(1,2): error TS2322: no\n", 3): "exit",
}  # fmt: skip


@pytest.mark.parametrize(("text", "code"), TSC)
def test_tsc(text, code, tmp_path):
    assert answer(given(types, text, tmp_path, code, tool="tsc")) == TSC[text, code]


def test_what_was_not_all_checked_does_not_pass_whatever_is_allowed(tmp_path):
    blocked = "a.py:1: error: Invalid syntax  [syntax]\nFound 1 error in 1 file (errors prevented further checking)\n"
    assert given(types, blocked, tmp_path, 2, max=10).status == "fail"
    assert given(types, ERROR, tmp_path, 1, max=10).status == "fail"  # its last line is missing
    assert (
        given(types, ERROR + "Found 1 error in 1 file (checked 1 source file)\n", tmp_path, 1, max=1).status
        == "pass"
    )
    found = given(types, "Found 3 errors in 1 file (checked 1 source file)\n" + ERROR, tmp_path, 1, max=1)
    assert (found.status, found.raw) == ("fail", 3)


def run_(results=(), **more):
    return {"tool": {"driver": {"name": "demo"}}, "results": results} | more


def of(*runs):
    return json.dumps({"version": "2.1.0", "runs": runs})


def found_(**more):
    return {"ruleId": "R1", "level": "error", "message": {"text": "x"}} | more


RULES = {
    "tool": {"driver": {"name": "d", "rules": [{"id": "R1", "defaultConfiguration": {"level": "note"}}]}}
}
FAILED = {"invocations": [{"executionSuccessful": False}]}
QUIET = {
    "invocations": [
        {
            "executionSuccessful": True,
            "ruleConfigurationOverrides": [{"descriptor": {"id": "R1"}, "configuration": {"level": "note"}}],
        }
    ]
}
SARIF = {
    of(run_()): "pass",
    "\ufeff" + of(run_()): "pass",
    of(run_([], invocations=[{"executionSuccessful": True}])): "pass",
    of(run_([found_(level="note")])): "pass",
    of(run_([found_(level="none")])): "pass",
    of(run_([found_(kind="pass"), found_(kind="notApplicable")])): "pass",
    of(run_([found_(baselineState="absent")])): "pass",
    of(run_([found_(suppressions=[{"kind": "external"}])])): "pass",
    of(run_([found_(level=None)]) | RULES): "pass",
    of(run_([found_(level=None, ruleId="R1/sub", ruleIndex=0)]) | RULES): "pass",
    of(run_([found_(level=None)], **QUIET)): "pass",
    of(run_([found_()])): "fail",
    of(run_([{"message": {"text": "x"}}])): "fail",
    of(run_([found_(level=None)])): "fail",
    of(run_([found_(level="catastrophe")])): "fail",
    of(run_([found_(baselineState="unchanged")])): "fail",
    of(run_([found_(suppressions=None)])): "fail",
    of(run_([found_(suppressions=[{"kind": "external", "status": "underReview"}])])): "fail",
    of(
        run_([found_(suppressions=[{"kind": "inSource"}, {"kind": "external", "status": "rejected"}])])
    ): "fail",
    of(run_(), run_([found_()])): "fail",
    of(run_([found_()], **FAILED)): "fail",
    of(run_(**FAILED)): "failed",
    of(run_([found_(level="note")], **FAILED)): "failed",
    of(run_(), run_(None)): "no_results",
    of({"tool": {"driver": {"name": "d"}}}): "no_results",
    of(): "no_runs",
    '{"version": "2.1.0", "runs": null}': "no_runs",
    '{"version": "2.1.0"}': "malformed",
    of(run_({})): "malformed",
    of(run_([3])): "malformed",
    of(3): "malformed",
    "[]": "malformed",
    of(run_())[:-4]: "malformed",
    '{"runs": [], "runs": [{"results": []}]}': "duplicate_key",
    "": "no_output",
}


@pytest.mark.parametrize("text", SARIF, ids=range(len(SARIF)))
def test_sarif(text, tmp_path):
    assert answer(given(sarif, text, tmp_path)) == SARIF[text]


def test_sarif_counts_by_level_and_shows_what_is_suppressed(tmp_path):
    place_ = {"physicalLocation": {"artifactLocation": {"uri": "src/a%20b.c"}, "region": {"startLine": 3}}}
    text = of(run_([found_(level="note", locations=[place_]), found_(suppressions=[{"kind": "inSource"}])]))
    assert given(sarif, text, tmp_path).reason == "0 findings, 1 suppressed, 1 warnings"
    found = given(sarif, text, tmp_path, level="note")
    assert (found.status, found.failing) == ("fail", ("src/a b.c: R1",))
    assert found.reason.splitlines()[1] == "src/a b.c:3 R1 x"
    assert given(sarif, text, tmp_path, level="note", max=1).status == "pass"
    assert given(sarif, text, tmp_path, 1).status == "pass"  # it exits 1 for what does not count here
    assert answer(given(sarif, of(run_()), tmp_path, 1)) == "inconsistent"
    assert answer(given(sarif, of(run_()), tmp_path, 2)) == "exit"
    assert answer(given(sarif, of(run_([found_()], **FAILED)), tmp_path, max=5)) == "failed"
    with pytest.raises(ConfigError, match="note"):
        sarif(run="x", level="none")


def test_eslint_without_files_says_so(tmp_path):
    found = given(eslint, "[]", tmp_path)
    assert (found.status, found.reason) == ("pass", "0 findings; warning: no file was checked")
    assert answer(given(eslint, "[]", tmp_path, min_files=1)) == "no_files"
    assert answer(given(eslint, "", tmp_path)) == "no_output"
    assert given(eslint, "", tmp_path, empty_means_clean=True).status == "pass"


@pytest.mark.parametrize("gate", [tap, gotest, cargo, jest, vitest])
def test_the_options_of_suites(gate, tmp_path):
    texts = {tap: "1..0\n", gotest: event("skip"), cargo: binary(0, 0), jest: js(), vitest: js()}
    assert given(gate, texts[gate], tmp_path, allow_empty=True).status == "pass"
    one = {
        tap: "1..1\nok 1\n",
        gotest: RAN,
        cargo: BINARY,
        jest: js(suite("passed")),
        vitest: js(suite("passed")),
    }
    found = given(gate, one[gate], tmp_path, min_tests=2)
    assert (found.status, found.value) == ("fail", 0.5)
    with pytest.raises(ConfigError, match="allow_empty"):
        gate(run="x", min_tests=0)
    with pytest.raises(ConfigError, match="after"):
        gate(report="x")
    where = place(tmp_path)
    found = score(gate(run=["cp", "out", "r"], report="r"), where)
    assert found.status == "pass"
    assert score(gate(run="true", report="r"), where).evidence["code"] == "stale_report"


def test_how_many_tests_there_are_is_bounded(tmp_path, monkeypatch):
    from loopwright.evidence import gotest as go_reader
    from loopwright.evidence import lint as lint_reader
    from loopwright.evidence import tally

    monkeypatch.setattr(tally, "MOST", 10)
    assert answer(given(tap, "ok\n" * 11 + "1..11\n", tmp_path)) == "too_large"
    assert given(tap, "ok\n" * 10 + "1..10\n", tmp_path).status == "pass"
    monkeypatch.setattr(go_reader, "_MOST", 10)
    text = "".join(event("run", test=f"T{i}") for i in range(12))
    assert answer(given(gotest, text, tmp_path)) == "too_large"
    monkeypatch.setattr(lint_reader, "_MOST", 10)
    assert answer(given(types, ERROR * 12, tmp_path)) == "too_large"


def test_a_line_without_an_end_is_not_held(tmp_path, monkeypatch):
    from loopwright.evidence import files

    monkeypatch.setattr(files, "LINE", 1 << 20)
    assert answer(given(tap, b"1..1\nok 1\n" + b"x" * (3 << 20), tmp_path)) == "too_large"
    assert given(tap, b"1..1\nok 1 \xff\n", tmp_path).status == "pass"
