"""What real tools printed (versions in the names, times and folders taken out), through their gates."""

import shlex

import pytest
from a_place import CASES, place, score

from loopwright.gates.eslint import eslint
from loopwright.gates.suites import cargo, gotest, jest, tap, vitest
from loopwright.gates.types import types

RECORDED = CASES / "recorded"
TABLE = {
    # file: gate, options, exit, status or code, raw, failing
    "mypy_2.4.txt": (types, {}, 1, "fail", 2, ("a.py: import-not-found", "a.py: return-value")),
    "mypy_2.4.jsonl": (types, {}, 1, "fail", 2, ("a.py: import-not-found", "a.py: return-value")),
    "mypy_2.4_syntax.txt": (types, {"max": 9}, 2, "fail", 1, ("bad.py: syntax",)),
    "mypy_2.4_clean.txt": (types, {}, 0, "pass", 0, ()),
    "pyright_1.1.json": (
        types,
        {"tool": "pyright"},
        1,
        "fail",
        2,
        ("/w/a.py: reportMissingImports", "/w/a.py: reportReturnType"),
    ),
    "pyright_1.1_no_files.json": (types, {"tool": "pyright"}, 0, "no_files", None, ()),
    "tsc_7.txt": (types, {"tool": "tsc"}, 1, "fail", 1, ("a.ts: TS2322",)),
    "tsc_7_pretty.txt": (types, {"tool": "tsc"}, 1, "fail", 1, ("a.ts: TS2322",)),
    "tsc_7_syntax.txt": (
        types,
        {"tool": "tsc", "max": 9},
        2,
        "fail",
        3,
        ("syn.ts: TS1134", "syn.ts: TS1134 (2)", "syn.ts: TS1109"),
    ),
    "tsc_7_only_references.txt": (types, {"tool": "tsc"}, 0, "no_files", None, ()),
    "tsc_7_no_inputs.txt": (types, {"tool": "tsc"}, 2, "config", None, ()),
    "eslint_10.json": (
        eslint,
        {},
        1,
        "fail",
        3,
        ("/w/c.js: parse-error", "/w/a.js: no-undef", "/w/eslint.config.js: no-undef"),
    ),
    "jest_30.json": (jest, {}, 1, "fail", 3, ("/w/a.test.js::s bad", "/w/b.test.js")),
    "jest_30_after_all.json": (jest, {}, 1, "fail", 1, ("/w/a.test.js",)),
    "vitest_4.json": (vitest, {}, 1, "fail", 1, ("/w/a.test.js::s bad", "/w/b.test.js")),
    "vitest_4_unhandled.json": (vitest, {}, 1, "fail", 1, ("exit 1",)),
    "node_20.tap": (tap, {}, 1, "fail", 1, ("top",)),
    "cargo_1.95.txt": (cargo, {}, 101, "fail", 4, ("tests::fails",)),
    "cargo_1.95_quiet.txt": (cargo, {}, 101, "fail", 4, ("tests::fails",)),
    "cargo_1.95_clean.txt": (cargo, {}, 0, "pass", 5, ()),
    "cargo_1.95_exit_0.txt": (cargo, {}, 0, "incomplete", None, ()),
    "cargo_1.95_abort.txt": (cargo, {}, 101, "fail", 3, ("--test api",)),
    "cargo_1.95_compile_error.txt": (cargo, {}, 101, "fail", 0, ("demo",)),
    "go_1.19.jsonl": (gotest, {}, 2, "fail", 1, ("ex/p2", "ex/p4::TestP", "ex::TestF", "ex::TestF/a")),
    "go_1.19_main_exits_0.jsonl": (gotest, {}, 0, "inconsistent", None, ()),
    "go_1.19_cached.jsonl": (gotest, {}, 0, "pass", 1, ()),
    "go_1.19_nothing_to_run.jsonl": (gotest, {}, 0, "no_tests", None, ()),
}


@pytest.mark.parametrize("file", TABLE)
def test_what_a_tool_printed(file, tmp_path):
    gate, options, code, answer, raw, failing = TABLE[file]
    run = ["sh", "-c", f"cat {shlex.quote(str(RECORDED / file))}; exit {code}"]
    found = score(gate(run=run, **options), place(tmp_path))
    assert found.evidence.get("code", found.status) == answer, found.reason
    assert found.raw == raw
    assert found.failing == failing
    assert "\x1b" not in found.reason


def test_every_recording_is_judged():
    assert {path.name for path in RECORDED.iterdir()} == set(TABLE)


def reason(file, tmp_path):
    gate, options, code, *_ = TABLE[file]
    run = ["sh", "-c", f"cat {shlex.quote(str(RECORDED / file))}; exit {code}"]
    return score(gate(run=run, **options), place(tmp_path)).reason.splitlines()


@pytest.mark.parametrize(
    ("file", "lines"),
    {
        "cargo_1.95.txt": [
            "1 of 5 tests fail, 1 skipped",
            "tests::fails: assertion `left == right` failed: sum left: 4 right: 5 (src/lib.rs:10:45)",
        ],
        "cargo_1.95_compile_error.txt": [
            "1 file of tests could not be loaded; 0 ran and 1 are wanted",
            "demo: error[E0308]: mismatched types --> tests/api.rs:1:31",
        ],
        "cargo_1.95_abort.txt": [
            "1 file of tests could not be loaded, 1 skipped",
            "--test api: its process ended before its tests did (signal: 6, SIGABRT: process abort signal)",
        ],
        "go_1.19.jsonl": None,
        "jest_30.json": [
            "1 of 4 tests fail and 1 file of tests could not be loaded, 2 skipped",
            "/w/a.test.js::s bad: Error: expect(received).toBe(expected) // Object.is equality Expected: 2 Received: 1",
        ],
        "node_20.tap": ["1 of 2 tests fail, 2 skipped", "top: sub bad; 1 subtest failed"],
        "mypy_2.4_syntax.txt": [
            "1 finding, 9 allowed; not all was checked: errors prevented further checking",
            "bad.py:2 syntax Unexpected EOF while parsing",
        ],
        "tsc_7.txt": ["1 finding", "a.ts:1:7 TS2322 Type 'string' is not assignable to type 'number'."],
    }.items(),
)
def test_the_reason_says_what_is_wrong(file, lines, tmp_path):
    found = reason(file, tmp_path)
    if lines is None:
        assert found[0] == "3 of 4 tests fail and 1 file of tests could not be loaded, 1 skipped"
        assert found[1] == "ex/p2: it could not be built"
        assert found[4] == "ex::TestF/a: f_test.go:3: want 2"
    else:
        assert found[: len(lines)] == lines
