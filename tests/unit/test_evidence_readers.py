"""Coverage, linters' findings, scores, and the files and JSON they come from."""

import json
import os
import re
from fractions import Fraction
from pathlib import Path

import pytest

from loopwright.errors import BadEvidence
from loopwright.evidence import coverage, files, lint, score, strict_json, text


def refused(code, call, *arguments, **options):
    with pytest.raises(BadEvidence) as caught:
        call(*arguments, **options)
    assert caught.value.code == code, caught.value
    return str(caught.value)


def totals(**counts):
    return json.dumps({"totals": {"covered_lines": 1, "num_statements": 2} | counts}).encode()


class TestCoverage:
    def test_the_percentage_is_the_exact_fraction_of_lines_and_branches(self):
        found = coverage.read(totals(covered_branches=1, num_branches=4, percent_covered_display="99"), "r")
        assert found.exact == Fraction(200, 6)
        assert str(found) == "1 of 2 lines, 1 of 4 branches"

    def test_json_that_is_not_coverage_or_not_possible_is_refused(self):
        refused("malformed", coverage.read, b'{"total": {"lines": {}}}', "r")
        refused("malformed", coverage.read, b'{"totals": ', "r")
        refused("malformed", coverage.read, totals(num_statements=2.5), "r")
        refused("not_a_number", coverage.read, totals(covered_lines="1"), "r")
        refused("not_a_number", coverage.read, totals(covered_lines=True), "r")
        refused("not_finite", coverage.read, totals(percent_covered=float("nan")), "r")
        refused("inconsistent", coverage.read, totals(covered_lines=3), "r")
        refused("inconsistent", coverage.read, totals(covered_lines=-1), "r")
        refused("no_data", coverage.read, totals(covered_lines=0, num_statements=0), "r")
        refused("no_data", coverage.read, b" \n", "r")

    def test_cobertura_counts_come_from_the_header_else_from_the_lines_of_classes(self):
        counts = b'<coverage lines-valid="4" lines-covered="3" branches-valid="2" branches-covered="1" line-rate="0.75"/>'
        assert coverage.read(counts, "r").exact == Fraction(400, 6)
        lines = (
            b'<!DOCTYPE coverage SYSTEM "http://cobertura.sourceforge.net/xml/coverage-04.dtd"><coverage line-rate="0.5">'
            b'<classes><class><methods><method><lines><line hits="1"/></lines></method></methods><lines>'
            b'<line hits="1"/><line hits="0" branch="true" condition-coverage="50% (1/2)"/></lines></class></classes></coverage>'
        )
        assert str(coverage.read(lines, "r")) == "1 of 2 lines, 1 of 2 branches"

    def test_cobertura_that_cannot_be_believed_is_refused(self):
        head = '<coverage lines-valid="{}" lines-covered="{}" line-rate="{}"/>'
        for rate in ("NaN", "inf"):
            refused("not_finite", coverage.read, head.format(2, 1, rate).encode(), "r")
        refused("inconsistent", coverage.read, head.format(2, 1, "1.5").encode(), "r")
        refused("inconsistent", coverage.read, head.format(2, 3, "1").encode(), "r")
        refused("not_a_number", coverage.read, head.format("x", 1, "1").encode(), "r")
        refused("not_finite", coverage.read, head.format("nan", 1, "1").encode(), "r")
        refused("no_data", coverage.read, b'<coverage line-rate="1"><packages/></coverage>', "r")
        refused("malformed", coverage.read, b"<report/>", "r")
        refused("malformed", coverage.read, b'<coverage lines-valid="2"', "r")
        refused("entity", coverage.read, b'<!DOCTYPE coverage [<!ENTITY a "b">]><coverage/>', "r")

    def test_lcov_counts_each_line_once(self):
        record = "SF:a.c\nDA:1,0\nDA:2,5\nBRDA:2,0,0,-\nBRDA:2,0,1,3\nLF:9\nLH:9\nend_of_record\n"
        other = "TN:\nSF:a.c\nDA:1,1\nDA:2,0\nend_of_record\nSF:b.c\nLF:4\nLH:1\nend_of_record\n"
        assert str(coverage.read((record + other).encode(), "r")) == "3 of 6 lines, 1 of 2 branches"

    def test_lcov_that_breaks_off_or_is_none_is_refused(self):
        assert "breaks off" in refused("malformed", coverage.read, b"SF:a\nDA:1,1\n", "r")
        refused("malformed", coverage.read, b"SF:a\nnonsense\nend_of_record\n", "r")
        refused("malformed", coverage.read, b"hello", "r")
        refused("not_finite", coverage.read, b"SF:a\nDA:1,nan\nend_of_record\n", "r")
        refused("not_a_number", coverage.read, b"SF:a\nDA:1\nend_of_record\n", "r")


class TestLint:
    def test_ruffs_syntax_errors_count_in_every_version(self):
        for code in (None, "syntax-error", "invalid-syntax", "E902"):
            entry = {"code": code, "filename": "/w/a.py", "message": "m", "location": {"row": 1, "column": 2}}
            found = lint.read(json.dumps([entry]).encode(), "r", root=Path("/w"))
            assert (found.count, found.syntax) == (1, 1)
            assert str(found.items[0]) == f"a.py:1:2 {code or 'syntax-error'} m"

    def test_ids_name_findings_without_lines(self):
        entries = [
            {"code": c, "filename": "a.py", "message": "m", "location": {"row": row, "column": 1}}
            for c, row in (("F401", 9), ("E501", 3), ("F401", 1))
        ]
        assert lint.read(json.dumps(entries).encode(), "r").ids == (
            "a.py: F401",
            "a.py: E501",
            "a.py: F401 (2)",
        )

    def test_eslint_counts_errors_and_fatal_messages_and_lists_warnings(self):
        messages = [
            {"ruleId": "a", "severity": 2, "message": "m"},
            {"ruleId": "b", "severity": 1, "message": "m"},
            {"ruleId": None, "severity": 1, "fatal": True, "message": "m"},
        ]
        clean = {"filePath": "b.js", "messages": []}
        data = json.dumps([{"filePath": "a.js", "messages": messages, "errorCount": 2}, clean]).encode()
        found = lint.read(data, "r")
        assert (found.count, found.warnings, found.syntax, found.files) == (2, 1, 1, 2)
        assert lint.read(data, "r", warnings=True).count == 3

    def test_eslint_that_counts_errors_it_does_not_list_is_refused(self):
        data = b'[{"filePath": "a.js", "messages": [], "errorCount": 2}]'
        refused("inconsistent", lint.read, data, "r")

    def test_any_list_of_findings_is_read(self):
        data = b'[{"path": "a.rb", "line": 3, "rule": "R", "message": "m"}, {"file": "b", "location": {"row": 2}, "msg": "n"}]'
        assert [str(item) for item in lint.read(data, "r").items] == ["a.rb:3 R m", "b:2 (no rule) n"]

    def test_lines_of_text_are_findings_when_asked_for(self):
        data = b"checking...\na.c:3:4: E12: bad\nb.py:7: W1 worse\n"
        found = lint.read(data, "r", "text")
        assert [str(item) for item in found.items] == ["a.c:3:4 E12 bad", "b.py:7 W1 worse"]
        refused("malformed", lint.read, data, "r")

    def test_what_is_not_a_list_of_findings_is_refused(self):
        for form in ("auto", "text"):
            refused("no_output", lint.read, b" \n", "r", form)
        for data in (b'{"Issues": []}', b"[1]", b'"x"', b'[{"unknown": 1}]', b'{"a": 1}\n{"a": 2}'):
            with pytest.raises(BadEvidence):
                lint.read(data, "r")
        refused("malformed", lint.read, b'[{"code": "F1"}]', "r", "ruff")
        refused("malformed", lint.read, b'[{"filePath": "a"}]', "r", "eslint")

    def test_many_findings_are_counted_and_the_first_kept(self):
        entries = [
            {"code": "X", "filename": f"{i:04}.py", "message": "m", "location": {}} for i in range(900)
        ]
        found = lint.read(json.dumps(entries).encode(), "r")
        assert (found.count, len(found.items), len(found.ids)) == (900, 200, 200)


class TestScore:
    def test_a_path_leads_to_exactly_one_number(self):
        data = b'{"a": {"b": [1, {"c": 2.5}]}, "loss": NaN}'
        assert score.from_json(data, "r", "a.b.1.c") == 2.5
        for path in ("a.b.2", "a.b.-1", "a.c", "a.b.1.c.d", "b"):
            refused("no_score", score.from_json, data, "r", path)
        refused("not_finite", score.from_json, data, "r", "loss")
        refused("not_a_number", score.from_json, data, "r", "a")
        refused("not_finite", score.from_json, b'{"score": 1' + b"0" * 400 + b"}", "r", "score")
        refused("malformed", score.from_json, b'{"score": 1' + b"0" * 5000 + b"}", "r", "score")

    def test_logs_around_one_json_object_are_fine_and_two_objects_are_not(self):
        assert score.from_json(b'loading [1/3]\n{"score": 0.5}\ndone\n', "r", "score") == 0.5
        refused("ambiguous", score.from_json, b'{"score": 0.5}\n{"score": 0.9}\n', "r", "score")
        refused("no_output", score.from_json, b"\n", "r", "score")

    def test_a_pattern_matches_once_and_holds_a_number(self):
        pattern = re.compile(r"^acc: (.*)$", re.MULTILINE)
        for given, number in ((b"acc: 0.9", 0.9), (b"x\nacc: -1e3\ny", -1000.0), (b"acc: .5", 0.5)):
            assert score.from_text(given, "r", pattern) == number
        refused("no_score", score.from_text, b"none", "r", pattern)
        refused("no_output", score.from_text, b"", "r", pattern)
        assert "'1', '2'" in refused("ambiguous", score.from_text, b"acc: 1\nacc: 2", "r", pattern)
        for given in (b"acc: nan", b"acc: -Infinity", b"acc: 1e999"):
            refused("not_finite", score.from_text, given, "r", pattern)
        for given in (b"acc: 1_000", b"acc: 0,9", b"acc: 90%", b"acc: "):
            refused("not_a_number", score.from_text, given, "r", pattern)
        refused("not_a_number", score.from_text, b"acc:", "r", re.compile(r"acc:(x)?"))


class TestJson:
    def test_a_value_that_breaks_off_is_none_whatever_it_holds(self):
        for data in (b'[\n[],\n{"a": 1}\n', b'[{"a": "x', b'{"a": [1, 2', b'noise\n[{"a": 1},\n'):
            refused("malformed", strict_json.only_value, data, "r")

    def test_a_key_that_stands_twice_anywhere_is_refused(self):
        assert "'b'" in refused(
            "duplicate_key", strict_json.only_value, b'{"a": {"b": 1, "c": 0, "b": 2}}', "r"
        )

    def test_hostile_documents_end_soon(self):
        refused("malformed", strict_json.only_value, b"[" * 200_000, "r")
        assert "too many" in refused("malformed", strict_json.only_value, b"[x\n" * 5000, "r")
        refused("malformed", strict_json.only_value, b"\xff\xff\xff", "r")

    def test_windows_redirections_are_read(self):
        assert strict_json.only_value("[1]".encode("utf-16"), "r") == ([1], "")
        assert strict_json.only_value(b"\xef\xbb\xbf[1]", "r") == ([1], "")

    def test_text_around_the_value_is_kept(self):
        assert strict_json.only_value(b"warn\n[]\nafter", "r") == ([], "warn\n\nafter")


class TestFiles:
    def test_only_a_regular_file_of_bounded_size_is_read(self, tmp_path):
        (tmp_path / "a").write_bytes(b"x" * 3)
        assert files.whole(tmp_path / "a", "a", 3) == b"xxx"
        refused("too_large", files.whole, tmp_path / "a", "a", 2)
        refused("missing_report", files.whole, tmp_path / "b", "b", 2)
        refused("unreadable_report", files.whole, tmp_path, "folder", 2)
        os.mkfifo(tmp_path / "pipe")
        refused("unreadable_report", files.whole, tmp_path / "pipe", "pipe", 2)
        (tmp_path / "zero").symlink_to("/dev/zero")
        refused("unreadable_report", files.whole, tmp_path / "zero", "zero", 2)


class TestText:
    def test_the_same_failure_reads_the_same(self, tmp_path):
        one = f"{tmp_path}/a.py:3: <X object at 0x7f00aa> in /tmp/pytest-of-me/pytest-7/x, /tmp/tmpab12cd34 failed in 1.23s"
        two = f"{tmp_path}/a.py:3: <X object at 0x7e11bb> in /tmp/pytest-of-me/pytest-8/x, /tmp/tmpzz12cd34 failed in 0.5s"
        assert text.steady(one, tmp_path) == text.steady(two, tmp_path)
        assert text.steady(one, tmp_path).startswith("a.py:3: <X")
        assert text.steady("assert 0xdeadbeef == 1.5 s", Path("/")) == "assert 0xdeadbeef == 1.5 s"

    def test_a_long_text_keeps_head_and_tail(self):
        assert text.clip("a" * 50 + "b" * 50, 20) == "a" * 13 + " … " + "b" * 4
        assert text.one_line(" a\n b ", 10) == "a b"
