"""JUnit reports: what counts, and what proves nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from loopwright.errors import BadEvidence
from loopwright.evidence import junit, tally
from loopwright.evidence.files import chunks

CASES = Path(__file__).parents[1] / "cases" / "junit"


def read(*texts, **options):
    named = [(f"r{i}.xml", [t if isinstance(t, bytes) else t.encode()]) for i, t in enumerate(texts)]
    return junit.read(named, **options)


def case(name):
    return junit.read([(name, chunks(CASES / name, name, 10**9))])


def suite(body, head=""):
    return f'<testsuite name="s"{head}>{body}</testsuite>'


def refused(code, *texts, **options):
    with pytest.raises(BadEvidence) as caught:
        read(*texts, **options)
    assert caught.value.code == code, caught.value
    return str(caught.value)


def test_tests_are_counted_and_headers_are_not():
    found = case("teardown_error_count_mismatch.xml")
    assert (found.total, found.passed, found.errors) == (2, 1, 1)
    assert "says 4 tests and holds 2" in found.warnings[0]
    assert case("nested_suites.xml").total == 3
    assert (case("missing_attrs_odd_time.xml").passed, case("missing_attrs_odd_time.xml").total) == (3, 3)


def test_one_test_with_two_results_has_the_worst_and_both_messages():
    found = case("call_failure_plus_teardown_error.xml")
    assert (found.total, found.failed, found.errors) == (1, 1, 0)
    assert found.failing[0].message == "assert 0; failed on teardown"
    assert [f.message for f in case("failure_and_error_one_case.xml").failing] == ["a; b"]
    found = read(suite('<testcase name="a"/><testcase name="a"><skipped/></testcase><testcase name="b"/>'))
    assert (found.passed, found.skipped) == (1, 1)


def test_the_same_name_in_another_file_is_another_test():
    body = '<testcase classname="c" name="a" file="x.py"/><testcase classname="c" name="a" file="y.py"/>'
    assert read(suite(body)).passed == 2


def test_a_collection_error_is_no_test():
    found = case("collection_error.xml")
    assert (found.total, found.executed, found.collection) == (0, 0, 1)
    assert found.failing[0].kind == "collection"


def test_a_suite_that_could_not_be_loaded_fails():
    found = read(suite('<testcase name="a"/><error message="cannot load">why</error>'))
    assert (found.passed, found.collection, found.failing[0].id) == (1, 1, "s")
    assert found.failing[0].text == "why"


def test_attributes_that_say_a_test_did_not_run_or_failed_are_believed():
    body = '<testcase name="a" status="notrun"/><testcase name="b" result="suppressed"/><testcase name="c" status="fail"/>'
    found = read(suite(body + '<testcase name="d" status="run" result="completed"/>'))
    assert (found.passed, found.skipped, found.failed) == (1, 2, 1)


def test_a_test_that_passed_when_run_again_is_flaky():
    found = read(suite('<testcase classname="c" name="a"><flakyFailure message="x"/></testcase>'))
    assert (found.passed, found.flaky) == (1, ("c::a",))
    found = read(suite('<testcase name="a"><failure/><rerunFailure/></testcase>'))
    assert (found.failed, found.flaky) == (1, ())


def test_only_children_of_a_test_speak_of_it():
    inside = (
        "<properties><failure/></properties><system-out>text <![CDATA[<failure/> <testcase/>]]></system-out>"
    )
    assert read(suite(f'<testcase name="a">{inside}</testcase>')).passed == 1
    refused("malformed", suite('<testcase name="a"><testcase name="b"/></testcase>'))


def test_several_reports_are_one_whole():
    found = read(suite('<testcase name="a"/>'), suite('<testcase name="b"><failure/></testcase>'))
    assert (found.total, found.failed, found.files) == (2, 1, 2)
    assert "r1.xml is empty" in refused("unreadable_report", suite('<testcase name="a"/>'), "")


def test_nothing_that_ran_is_no_evidence():
    assert "holds no tests" in refused("no_tests", "<testsuites/>")
    assert "all skipped" in refused("no_tests", suite('<testcase name="a"><skipped/></testcase>'))
    assert read("<testsuites/>", allow_empty=True).total == 0


def test_headers_that_claim_what_is_not_there_are_held_against_the_report():
    one = '<testcase name="a"/>'
    refused("inconsistent", suite(one, ' failures="1"'))
    refused("inconsistent", suite(one, ' errors="1,000"'))
    refused("inconsistent", suite("", ' tests="3"'), allow_empty=True)
    assert read(suite(one, ' failures="0" errors="" tests="1"')).passed == 1


def test_a_report_that_is_not_whole_is_none():
    assert "byte" in refused("malformed", '<testsuite><testcase name="a"/>')
    refused("malformed", "<html/>")
    refused("malformed", "not xml")
    refused("malformed", suite('<testcase name="a"/>') + "<more/>")
    refused("malformed", '<?xml version="1.0" encoding="no-such"?><testsuite/>')
    refused("malformed", '<?xml version="1.0" encoding="shift_jis"?><testsuite/>')


def test_control_characters_cost_the_pass_but_not_the_failures():
    found = case("raw_esc_in_message.xml")
    assert [(f.id, f.message, f.text) for f in found.failing] == [("t::bad", "red", "red")]
    assert "byte 42" in refused(
        "malformed", '<testsuite><testcase name="a"><system-out>\x1b[0m</system-out></testcase></testsuite>'
    )


def test_encodings_are_those_the_report_declares():
    latin = '<?xml version="1.0" encoding="ISO-8859-1"?><testsuite><testcase name="café"><failure/></testcase></testsuite>'
    assert read(latin.encode("latin-1")).failing[0].id == "café"
    assert read(latin.replace("ISO-8859-1", "windows-1252").encode("cp1252")).failing[0].id == "café"
    assert case("utf16_bom.xml").passed == 1
    assert case("latin1_declared.xml").passed == 1


def test_a_document_type_is_refused_before_anything_is_expanded():
    for name in ("entity_bomb.xml", "external_entity.xml"):
        with pytest.raises(BadEvidence, match="document type") as caught:
            case(name)
        assert caught.value.code == "entity"


def test_what_is_kept_of_a_failure_is_bounded_and_plain():
    text = "first\n" + "x" * 100_000 + "\nlast"
    body = f'<testcase classname="c" name="{"n" * 5000}"><failure message="{"m" * 5000}#x1B[31m">{text}</failure></testcase>'
    found = read(suite(body + '<testcase name="short"><failure message="#x1B[31mred#x1B[0m"/></testcase>'))
    long, short = found.failing
    assert len(long.id) < 300
    assert len(long.message) <= tally.MESSAGE
    assert len(long.text) <= junit.HEAD + junit.TAIL + 3
    assert long.text.startswith("first\n")
    assert long.text.endswith("\nlast")
    assert short.message == "red"


def test_the_failing_tests_kept_do_not_depend_on_their_order():
    tests = [f'<testcase name="t{i:04}"><failure message="m{i}"/></testcase>' for i in range(1500)]
    forward, backward = read(suite("".join(tests))), read(suite("".join(reversed(tests))))
    assert forward == backward
    assert forward.failed == 1500
    assert [f.id for f in forward.failing] == [f"t{i:04}" for i in range(200)]


def test_a_tag_without_end_does_not_fill_the_memory():
    def endless():
        yield b'<testsuite><testcase name="'
        for _ in range(200):
            yield b"x" * (1 << 20)

    with pytest.raises(BadEvidence) as caught:
        junit.read([("r", endless())])
    assert caught.value.code == "too_large"


BIG = """
import time
from loopwright.evidence import junit
def report():
    yield b'<testsuite name="s">'
    for i in range(100_000):
        bad = b'><failure message="m">text</failure></testcase>' if i % 10 == 0 else b'/>'
        yield b'<testcase classname="tests.test_module_%d.TestSomething" name="test_number_%d[param]" time="0.001"' % (i % 300, i) + bad
    yield b'</testsuite>'
began = time.process_time()
found = junit.read([("r", report())])
assert (found.total, found.failed) == (100_000, 10_000)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(time.process_time() - began, int(peak.split()[1]) // 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_a_hundred_thousand_tests_take_little_time_and_memory():
    run = subprocess.run([sys.executable, "-c", BIG], check=True, capture_output=True, text=True)
    seconds, megabytes = map(float, run.stdout.split())
    assert seconds < 3
    assert megabytes < 60
