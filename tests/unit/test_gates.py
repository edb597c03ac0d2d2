"""Gates that run a tool: when its report is evidence, and what becomes of what goes wrong."""

import asyncio
import json
import os
import shlex
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from a_place import place, score, write

from loopwright.core.values import Score, Scored
from loopwright.errors import BadEvidence, ConfigError, NotStartable
from loopwright.gates._tool import resolve
from loopwright.gates.command import command
from loopwright.gates.coverage import coverage
from loopwright.gates.junit import junit
from loopwright.gates.lint import lint
from loopwright.gates.measure import measure
from loopwright.gates.score import score as score_gate
from loopwright.ports import Gate, Seen

GREEN = '<testsuite><testcase classname="t" name="a"/></testsuite>'
RED = '<testsuite><testcase classname="t" name="a"><failure message="no"/></testcase><testcase name="b"/></testsuite>'


def put(text, path="report.xml", then=""):
    return ["sh", "-c", f"printf %s {shlex.quote(text)} > {path}; {then}"]


def code(found):
    assert (found.status, found.value) == ("error", 0.0), found.reason
    assert found.cause
    return found.evidence.get("code")


class TestCommand:
    def test_the_exit_status_decides(self, tmp_path):
        where = place(tmp_path)
        assert score(command(run="true"), where).status == "pass"
        found = score(command(run=["sh", "-c", "echo said; echo so >&2; exit 3"]), where)
        assert (found.status, found.value, found.graded, found.failing) == ("fail", 0.0, False, ())
        assert found.reason == "exit 3\nsaid\nso"
        assert score(command(run=["sh", "-c", "exit 3"], ok=(0, 3)), where).status == "pass"
        assert score(command(run="true", ok=(1,)), where).status == "fail"

    def test_the_record_names_command_exit_and_log(self, tmp_path):
        evidence = score(command(run=["sh", "-c", "echo hello"]), place(tmp_path)).evidence
        assert evidence["command"][1:] == ["-c", "echo hello"]
        assert (evidence["exit"], evidence["signal"], evidence["ended"]) == (0, None, "exited")
        assert evidence["seconds"] >= 0
        assert Path(evidence["log"]).read_text() == "hello\n"
        json.dumps(evidence, allow_nan=False)

    def test_a_command_that_cannot_run_or_was_ended_has_not_judged(self, tmp_path):
        where = place(tmp_path)
        missing = score(command(run="no-such-program --x"), where)
        assert (missing.status, missing.cause) == ("error", "tool")
        assert "'no-such-program'" in missing.reason
        killed = score(command(run=["sh", "-c", "echo last words; kill -9 $$"]), where)
        assert (code(killed), killed.cause) == ("signal", "evidence")
        assert "last words" in killed.reason
        late = score(
            command(run=["sh", "-c", "echo begun; sleep 60"], ok=tuple(range(256))),
            replace(where, timeout_s=4.0),
        )
        assert (code(late), late.cause) == ("timeout", "evidence")
        assert late.reason == "ran longer than 4 s and was ended\nbegun"
        idle = score(command(run="sleep 60"), replace(where, idle_s=0.5))
        assert code(idle) == "idle"

    def test_its_reason_is_bounded_and_plain(self, tmp_path):
        run = [sys.executable, "-c", "print('\\x1b[31mred\\x1b[0m' * 100_000); raise SystemExit(1)"]
        found = score(command(run=run), place(tmp_path))
        assert len(found.reason) < 2000
        assert "\x1b" not in found.reason

    def test_bytecode_goes_elsewhere_and_away(self, tmp_path):
        where = place(tmp_path)
        write(where.root, lib="x = 1\n", main="import lib, sys; print(lib.__cached__)\n")
        found = score(command(run=[sys.executable, "main.py"]), where)
        assert str(where.artifacts) in Path(found.evidence["log"]).read_text()
        assert not (where.root / "__pycache__").exists()
        assert not (where.artifacts / "pycache").exists()

    def test_options_that_mean_nothing_are_refused(self):
        for options in ({"run": ""}, {"run": "a | b"}, {"run": "a", "ok": ()}, {"run": "a", "ok": (256,)}):
            with pytest.raises(ConfigError):
                command(**options)

    def test_its_name_is_the_program(self):
        assert command(run="/usr/bin/make test").name == "make"
        assert command(run="python3.12 -m unittest -q").name == "unittest"


class TestResolve:
    def test_the_tools_of_the_project_come_first(self, tmp_path):
        where = place(tmp_path)
        tool = where.project / ".venv" / "bin" / "sh"
        tool.parent.mkdir(parents=True)
        tool.write_text("#!/bin/sh\nexit 7\n")
        tool.chmod(0o755)
        assert resolve("sh", where) == str(tool)
        assert score(command(run="sh", ok=(7,)), where).status == "pass"
        assert command(run="sh -c 'a b'").probe(where) == f"{tool} -c 'a b'"

    def test_a_path_starts_at_the_root_and_must_be_executable(self, tmp_path):
        where = place(tmp_path)
        (where.root / "check").write_text("#!/bin/sh\n")
        with pytest.raises(NotStartable, match=r"chmod \+x \./check"):
            command(run="./check").probe(where)
        (where.root / "check").chmod(0o755)
        assert command(run="./check").probe(where) == str(where.root / "check")
        with pytest.raises(NotStartable, match=r"\./missing"):
            command(run="./missing").probe(where)
        with pytest.raises(NotStartable, match="nothing-of-that-name"):
            command(run="nothing-of-that-name").probe(where)

    def test_a_relative_folder_on_the_path_is_below_the_root(self, tmp_path):
        where = place(tmp_path, env={"PATH": "bin"})
        (where.root / "bin").mkdir()
        (where.root / "bin" / "mine").write_text("#!/bin/sh\n")
        (where.root / "bin" / "mine").chmod(0o755)
        assert resolve("mine", where) == str(where.root / "bin" / "mine")


class TestReports:
    def test_a_report_counts_when_this_run_wrote_it(self, tmp_path):
        where = place(tmp_path)
        gate = junit(run=put(GREEN), report="report.xml")
        for _ in range(2):  # the same bytes again are a new report
            found = score(gate, where)
            assert (found.status, found.value, found.raw, found.unit) == ("pass", 1.0, 1.0, "tests passed")
        assert found.evidence["reports"] == [
            {"path": "report.xml", "bytes": len(GREEN), "sha256": found.evidence["reports"][0]["sha256"]}
        ]
        assert len(found.evidence["reports"][0]["sha256"]) == 64

    def test_a_report_from_before_is_stale(self, tmp_path):
        where = place(tmp_path)
        (where.root / "report.xml").write_text(GREEN)
        found = score(junit(run="true", report="report.xml"), where)
        assert code(found) == "stale_report"
        assert "report.xml" in found.reason
        assert (where.root / "report.xml").read_text() == GREEN

    def test_one_stale_report_spoils_all(self, tmp_path):
        where = place(tmp_path)
        (where.root / "old.xml").write_text(GREEN)
        assert code(score(junit(run=put(GREEN, "new.xml"), report="*.xml"), where)) == "stale_report"

    def test_no_report_is_an_error_even_after_exit_0(self, tmp_path):
        found = score(junit(run=["sh", "-c", "echo all is well"], report="out/*.xml"), place(tmp_path))
        assert code(found) == "missing_report"
        assert "out/*.xml" in found.reason
        assert "all is well" in found.reason

    def test_every_pattern_must_match(self, tmp_path):
        gate = junit(run=put(GREEN, "a.xml"), report=["a.xml", "b.xml"])
        assert code(score(gate, place(tmp_path))) == "missing_report"
        gate = junit(run=put(GREEN, "a.xml", then="cp a.xml b.xml"), report=["a.xml", "*.xml"])
        (tmp_path / "other").mkdir()
        found = score(gate, place(tmp_path / "other"))
        assert found.evidence["report_count"] == 2

    def test_what_is_no_file_is_no_report(self, tmp_path):
        where = place(tmp_path)
        for make in ("mkdir report.xml", "mkfifo report.xml", "ln -s /dev/zero report.xml"):
            found = score(junit(run=["sh", "-c", f"rm -rf report.xml; {make}"], report="report.xml"), where)
            assert code(found) == "unreadable_report", make
        found = score(
            junit(run=["sh", "-c", "rm -rf report.xml; ln -s nowhere report.xml"], report="report.xml"), where
        )
        assert code(found) == "missing_report"

    def test_a_report_beyond_the_cap_is_refused(self, tmp_path):
        where = place(tmp_path)
        assert code(score(junit(run=put(GREEN), report="report.xml", max_bytes=20), where)) == "too_large"
        assert code(score(junit(run=["printf", "%s", GREEN], max_bytes=20), where)) == "too_large"

    def test_without_a_report_stdout_is_read_whole(self, tmp_path):
        many = "print('<testsuite>' + ''.join(f'<testcase name=\"{i}\"/>' for i in range(60000)) + '</testsuite>')"
        found = score(junit(run=[sys.executable, "-c", many]), place(tmp_path))
        assert (found.status, found.raw) == ("pass", 60000.0)
        assert code(score(junit(run="true"), place(tmp_path))) == "unreadable_report"

    def test_a_stdout_left_from_before_does_not_count(self, tmp_path):
        where = place(tmp_path)
        where.artifacts.mkdir()
        (where.artifacts / "stdout").write_text(GREEN)
        assert code(score(junit(run="true"), where)) == "unreadable_report"

    def test_wrong_arguments_are_the_tools_fault(self, tmp_path):
        run = ["sh", "-c", "echo 'error: unrecognized arguments: --x' >&2; exit 2"]
        found = score(junit(run=run, report="r.xml"), place(tmp_path))
        assert (code(found), found.cause) == ("missing_report", "tool")

    def test_a_report_without_anybody_who_writes_it_is_refused(self):
        for make in (junit, lint):
            with pytest.raises(ConfigError, match="after"):
                make(report="r.xml")
            with pytest.raises(ConfigError, match="run"):
                make()
        assert junit(report="r.xml", after=("tests",)).probe(None) == ""


class TestAfter:
    def seen(self, where, gate, name="tests"):
        return (Scored(gate=name, score=score(gate, where)),)

    def test_the_report_of_an_earlier_gate_counts_when_it_was_written_since_that_began(self, tmp_path):
        where = place(tmp_path)
        reader = junit(report="report.xml", after=("tests",))
        done = self.seen(where, command(run=put(RED, then="exit 1"), ok=(0, 1)))
        found = score(reader, where, scores=done)
        assert (found.status, found.failing) == ("fail", ("t::a",))
        assert found.evidence["after"] == ["tests"]

    def test_one_from_before_does_not(self, tmp_path):
        where = place(tmp_path)
        (where.root / "report.xml").write_text(GREEN)
        os.utime(where.root / "report.xml", (2**31, 2**31))  # an agent can set this time, not the other one
        reader = junit(report="report.xml", after=("tests",))
        threading.Event().wait(0.05)
        done = self.seen(where, command(run="true"))
        assert code(score(reader, where, scores=done)) == "stale_report"

    def test_nor_one_of_a_gate_that_did_not_run(self, tmp_path):
        where = place(tmp_path)
        (where.root / "report.xml").write_text(GREEN)
        reader = junit(report="report.xml", after=("tests",))
        assert code(score(reader, where)) == "stale_report"
        other = self.seen(where, command(run=put(GREEN)), name="other")
        assert code(score(reader, where, scores=other)) == "stale_report"


class TestJunit:
    def test_what_fails_is_named_with_its_message(self, tmp_path):
        found = score(junit(run=put(RED, then="exit 1"), report="report.xml"), place(tmp_path))
        assert (found.status, found.value, found.raw) == ("fail", 0.5, 1.0)
        assert (found.graded, found.failing, found.direction) == (True, ("t::a",), "max")
        assert found.reason == "1 of 2 tests fail\nt::a: no"
        assert found.evidence["counts"]["executed"] == 2

    def test_another_exit_than_0_never_passes(self, tmp_path):
        found = score(
            junit(run=put(GREEN, then="echo suite lost; exit 1"), report="report.xml"), place(tmp_path)
        )
        assert (found.status, found.value, found.failing) == ("fail", 0.5, ("exit 1",))
        assert "suite lost" in found.reason

    def test_an_exit_of_0_does_not_hide_a_failure(self, tmp_path):
        assert score(junit(run=put(RED), report="report.xml"), place(tmp_path)).status == "fail"

    def test_too_few_tests_fail(self, tmp_path):
        found = score(junit(run=put(GREEN), report="report.xml", min_tests=4), place(tmp_path))
        assert (found.status, found.value) == ("fail", 0.25)
        assert "1 ran and 4 are wanted" in found.reason

    def test_no_tests_pass_only_where_the_loop_says_so(self, tmp_path):
        where = place(tmp_path)
        assert code(score(junit(run=put("<testsuite/>"), report="report.xml"), where)) == "no_tests"
        assert (
            score(junit(run=put("<testsuite/>"), report="report.xml", allow_empty=True), where).status
            == "pass"
        )
        for min_tests in (0, -1):
            with pytest.raises(ConfigError, match="allow_empty"):
                junit(run="true", min_tests=min_tests)

    def test_flaky_tests_fail_where_the_loop_says_so(self, tmp_path):
        text = '<testsuite><testcase name="a"><flakyFailure/></testcase><testcase name="b"/></testsuite>'
        where = place(tmp_path)
        assert score(junit(run=put(text), report="report.xml"), where).status == "pass"
        found = score(junit(run=put(text), report="report.xml", flaky="fail"), where)
        assert (found.status, found.value, found.failing) == ("fail", 0.5, ("a",))

    def test_many_failures_fit_a_reason(self, tmp_path):
        cases = "".join(
            f'<testcase name="t{i:04}"><failure message="{"m" * 900}"/></testcase>' for i in range(500)
        )
        (tmp_path / "r").write_text(f"<testsuite>{cases}</testsuite>")
        found = score(junit(run=["cat", str(tmp_path / "r")]), place(tmp_path))
        assert len(found.reason) <= 3800
        assert found.reason.startswith("500 of 500 tests fail\nt0000: mmm")
        assert found.reason.splitlines()[-1].startswith("and 4")
        assert len(found.failing) == 200


class TestLint:
    def entries(self, number):
        return json.dumps(
            [
                {"code": "F401", "filename": "a.py", "message": "m", "location": {"row": i}}
                for i in range(number)
            ]
        )

    def test_the_findings_decide_and_the_exit_says_only_that_it_worked(self, tmp_path):
        where = place(tmp_path)
        for number, ended, most, status, value in (
            (0, 0, 0, "pass", 1.0),
            (3, 1, 0, "fail", 0.25),
            (3, 0, 0, "fail", 0.25),
            (3, 1, 3, "pass", 1.0),
            (3, 1, 2, "fail", 0.5),
        ):
            run = ["sh", "-c", f"echo {shlex.quote(self.entries(number))}; exit {ended}"]
            found = score(lint(run=run, max=most), where)
            assert (found.status, found.value, found.raw) == (status, value, float(number))
            assert (found.unit, found.direction, found.graded) == ("findings", "min", True)

    def test_an_exit_that_contradicts_the_report_is_an_error(self, tmp_path):
        where = place(tmp_path)
        assert code(score(lint(run=["sh", "-c", "echo []; exit 1"]), where)) == "inconsistent"
        found = score(lint(run=["sh", "-c", "echo []; exit 2"]), where)
        assert (code(found), found.cause) == ("exit", "evidence")
        found = score(lint(run=["sh", "-c", "echo []; echo 'unknown option x' >&2; exit 2"]), where)
        assert (code(found), found.cause) == ("exit", "tool")
        assert "unknown option x" in found.reason

    def test_warnings_that_made_eslint_fail_count(self, tmp_path):
        text = json.dumps(
            [{"filePath": "a.js", "messages": [{"ruleId": "w", "severity": 1, "message": "m"}]}]
        )
        for ended, status in ((0, "pass"), (1, "fail")):
            run = ["sh", "-c", f"echo {shlex.quote(text)}; exit {ended}"]
            assert score(lint(run=run), place(tmp_path)).status == status

    def test_files_are_counted_where_the_report_says(self, tmp_path):
        where = place(tmp_path)
        text = json.dumps([{"filePath": "a.js", "messages": []}])
        assert score(lint(run=["echo", text], min_files=1), where).status == "pass"
        assert code(score(lint(run=["echo", text], min_files=2), where)) == "no_files"
        assert code(score(lint(run=["echo", self.entries(0)], min_files=1), where)) == "no_files"

    def test_reports_cannot_be_added_up(self, tmp_path):
        gate = lint(run=["sh", "-c", "echo [] > a.json; echo [] > b.json"], report="*.json")
        assert code(score(gate, place(tmp_path))) == "ambiguous"

    def test_counts_below_zero_are_refused(self):
        for options in ({"max": -1}, {"min_files": -1}):
            with pytest.raises(ConfigError):
                lint(run="x", **options)


class TestCoverage:
    def text(self, covered, of=100):
        return json.dumps({"totals": {"covered_lines": covered, "num_statements": of}})

    def test_the_exact_percentage_is_compared(self, tmp_path):
        where = place(tmp_path)
        for covered, of, least, status in (
            (7, 10, 70, "pass"),
            (699_999, 1_000_000, 70, "fail"),
            (2, 3, 66.66, "pass"),
            (6667, 10_000, 66.67, "pass"),
            (6666, 10_000, 66.67, "fail"),
            (0, 10, 1, "fail"),
        ):
            found = score(coverage(run=["echo", self.text(covered, of)], min=least), where)
            assert found.status == status, found.reason
            assert found.raw == 100 * covered / of
            assert (found.value == 1.0) == (status == "pass")
            assert (found.unit, found.direction, found.graded) == ("%", "max", True)
        assert (
            "69.9999 %" in score(coverage(run=["echo", self.text(699_999, 1_000_000)], min=70), where).reason
        )

    def test_a_run_that_fails_never_passes(self, tmp_path):
        run = ["sh", "-c", f"echo {shlex.quote(self.text(90))}; exit 1"]
        found = score(coverage(run=run, min=50), place(tmp_path))
        assert (found.status, found.raw) == ("fail", 90.0)
        assert found.value < 1

    def test_no_drop_compares_with_the_best_before(self, tmp_path):
        where = place(tmp_path)
        (tmp_path / "now").write_text(self.text(80))
        gate = coverage(run=["cat", str(tmp_path / "now")], no_drop=True)
        first = score(gate, where, iteration=0)
        assert first.status == "pass"
        assert score(gate, where, mark=first.raw).status == "pass"
        (tmp_path / "now").write_text(self.text(79))
        found = score(gate, where, mark=first.raw)
        assert (found.status, found.reason) == ("fail", "79.00 % (79 of 100 lines); it was 80.0000 %")
        found = score(gate, where)
        assert (found.status, found.raw) == ("fail", 79.0)
        assert "nothing to compare with yet" in found.reason

    def test_options_that_judge_nothing_are_refused(self):
        for options in ({}, {"min": 0}, {"min": 101}):
            with pytest.raises(ConfigError):
                coverage(run="x", **options)


class TestScore:
    def test_the_raw_number_is_compared_and_the_value_says_how_far(self, tmp_path):
        where = place(tmp_path)
        for raw, options, status, value in (
            (45, {"mark": 90}, "fail", 0.5),
            (90, {"mark": 90}, "pass", 1.0),
            (99, {"mark": 90}, "pass", 1.0),
            (-5, {"mark": 90}, "fail", 0.0),
            (200, {"mark": 100, "direction": "min"}, "fail", 0.5),
            (100, {"mark": 100, "direction": "min"}, "pass", 1.0),
            (0, {"mark": 100, "direction": "min"}, "pass", 1.0),
            (-1, {"mark": 0, "range": (-2, 1)}, "fail", 0.5),
            (300, {"mark": 100, "range": (500, 50)}, "fail", 0.5),
            (60, {"mark": 100, "range": (500, 50)}, "pass", 1.0),
        ):
            found = score(score_gate(run=["echo", json.dumps({"score": raw})], **options), where)
            assert (found.status, found.value, found.raw, found.graded) == (status, value, float(raw), True)

    def test_just_below_is_not_there(self, tmp_path):
        for raw, options in ((0.8999999999999999, {"mark": 0.9}), (0, {"mark": 1e-20, "range": (-1, 1)})):
            found = score(score_gate(run=["echo", json.dumps({"score": raw})], **options), place(tmp_path))
            assert found.status == "fail"
            assert found.value < 1

    def test_a_pattern_reads_text_and_a_report_a_file(self, tmp_path):
        where = place(tmp_path)
        gate = score_gate(run=["printf", "x\\nacc: 0.5 (best)\\n"], regex=r"^acc: (\S+)", mark=0.5)
        assert score(gate, where).status == "pass"
        gate = score_gate(run=put('{"a": [0.5]}', "m.json"), report="m.json", path="a.0", mark=0.5)
        assert score(gate, where).status == "pass"

    def test_the_number_of_a_run_that_failed_counts_for_nothing(self, tmp_path):
        run = ["sh", "-c", """echo '{"score": 1}'; exit 3"""]
        found = score(score_gate(run=run, mark=0.5), place(tmp_path))
        assert (code(found), found.cause) == ("exit", "evidence")

    @pytest.mark.parametrize(
        "options",
        [
            {"mark": 0},
            {"mark": float("nan")},
            {"mark": 1, "path": "a", "regex": "(b)"},
            {"mark": 1, "regex": "b"},
            {"mark": 1, "regex": "(b"},
            {"mark": 1, "path": "a..b"},
            {"mark": 1, "range": (0, 0)},
            {"mark": 2, "range": (0, 1)},
            {"mark": 0, "range": (0, 1)},
            {"mark": 1, "range": (0, float("inf"))},
            {"mark": 1, "range": (0, 1), "direction": "min"},
        ],
    )
    def test_options_that_contradict_each_other_are_refused(self, options):
        with pytest.raises(ConfigError):
            score_gate(run="x", **options)


class TestMeasure:
    def gate(self, result):
        async def check(seen, where):
            if isinstance(result, BaseException):
                raise result
            return result

        return Gate(rule=command(run="x").rule, check=check)

    def test_whatever_a_gate_does_becomes_a_score(self, tmp_path):
        where = place(tmp_path)
        for result, status, cause, word in (
            (True, "pass", None, None),
            (False, "fail", None, None),
            (0.5, None, None, None),
            (1, None, None, None),
            (NotStartable("no x"), "error", "tool", None),
            (BadEvidence("stale_report", "old"), "error", "evidence", "stale_report"),
            (RuntimeError("bug"), "error", "tool", None),
        ):
            found = score(self.gate(result), where)
            assert (found.status, found.cause, found.evidence.get("code")) == (status, cause, word)
            assert "broke" not in found.reason or isinstance(result, RuntimeError)
        assert "RuntimeError: bug" in found.reason

    def test_what_is_no_score_is_an_error_and_never_a_number(self, tmp_path):
        for result, word in (
            (float("nan"), "not_finite"),
            (float("inf"), "not_finite"),
            (1.5, "out_of_range"),
            (-0.1, "out_of_range"),
            (95, "out_of_range"),
            (10**400, "out_of_range"),
            (None, "no_score"),
            ("0.9", "no_score"),
        ):
            found = score(self.gate(result), place(tmp_path))
            assert code(found) == word
            assert found.cause == "evidence"

    def test_an_error_without_a_cause_gets_one(self, tmp_path):
        assert score(self.gate(Score(0.0, status="error")), place(tmp_path)).cause == "evidence"

    def test_cancelling_reaches_the_tool(self, tmp_path):
        where = place(tmp_path)

        async def main():
            task = asyncio.create_task(
                measure(command(run=put("x", "started", then="sleep 60")), Seen(iteration=1), where)
            )
            while not (where.root / "started").exists():  # noqa: ASYNC110 - only the file tells
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait({task})
            return task.cancelled()

        assert asyncio.run(main())
