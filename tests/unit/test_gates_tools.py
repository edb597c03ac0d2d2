"""The gates of real tools, on small projects: pytest, ruff, coverage."""

import os
import sys
from dataclasses import replace

import pytest
from a_place import BIN, place, score, write

from loopwright.errors import ConfigError, NotStartable
from loopwright.gates.coverage import coverage
from loopwright.gates.pytest import pytest as pytest_gate
from loopwright.gates.ruff import ruff

TESTS = """
import pytest

class TestX:
    @pytest.mark.parametrize("a", [1, 2])
    def test_y(self, a):
        assert a == 1

def test_raises():
    import lib
    lib.divide()

@pytest.mark.skip
def test_skipped():
    pass
"""
LIB = "def divide():\n    return 1 / 0\n"
GREEN = "def test_a():\n    pass\n"


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    """Places whose python finds the bytecode of its library: a gate's is new each time, which takes a second to fill."""
    folder = tmp_path_factory.mktemp("ready")
    (folder / "python").write_text(
        f'#!/bin/sh\nPYTHONPYCACHEPREFIX={folder}/made exec {sys.executable} "$@"\n'
    )
    (folder / "python").chmod(0o755)

    def made(tmp_path):
        where = place(tmp_path)
        return replace(where, env={**where.env, "PATH": f"{folder}:{where.env['PATH']}"})

    return made


class TestPytest:
    def test_what_fails_is_named_as_pytest_names_it(self, tmp_path, ready):
        where = ready(tmp_path)
        write(where.root, tests__test_a=TESTS, lib=LIB)
        found = score(pytest_gate(args=["tests"]), where)
        assert (found.status, found.value, found.raw) == ("fail", 1 / 3, 1.0)
        assert found.failing == ("tests/test_a.py::TestX::test_y[2]", "tests/test_a.py::test_raises")
        summary, first, second = found.reason.splitlines()
        assert summary == "2 of 3 tests fail, 1 skipped"
        assert first == "tests/test_a.py::TestX::test_y[2]: assert 2 == 1 (tests/test_a.py:7)"
        assert second == "tests/test_a.py::test_raises: ZeroDivisionError: division by zero (lib.py:2)"
        assert found.evidence["exit"] == 1
        assert sorted(p.name for p in where.root.rglob("*")) == ["lib.py", "test_a.py", "tests"]

    def test_the_same_failure_reads_the_same_elsewhere(self, tmp_path, ready):
        text = "def test_a(tmp_path):\n    raise ValueError(f'{object()} in {tmp_path} for {__file__}')\n"
        reasons = set()
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir()
            where = ready(tmp_path / folder)
            write(where.root, test_a=text)
            reasons.add(score(pytest_gate(), where).reason)
        assert len(reasons) == 1

    def test_green_is_green(self, tmp_path):
        where = place(tmp_path)
        write(where.root, test_a=GREEN)
        found = score(pytest_gate(), where)
        assert (found.status, found.value, found.reason) == ("pass", 1.0, "1 passed")
        assert found.evidence["reports"][0]["path"] == "junit.xml"

    def test_no_tests_are_no_evidence(self, tmp_path, ready):
        where = ready(tmp_path)
        found = score(pytest_gate(), where)
        assert (found.status, found.cause, found.evidence["code"]) == ("error", "evidence", "no_tests")
        assert found.evidence["exit"] == 5
        assert score(pytest_gate(allow_empty=True), where).status == "pass"
        write(where.root, test_a="import pytest\npytestmark = pytest.mark.skip\n" + GREEN)
        found = score(pytest_gate(), where)
        assert (found.evidence["exit"], found.evidence["code"]) == (0, "no_tests")

    def test_a_file_that_cannot_be_loaded_is_named_with_its_error(self, tmp_path, ready):
        where = ready(tmp_path)
        write(where.root, tests__test_a=GREEN, tests__test_b="import no_such_module\n")
        found = score(pytest_gate(), where)
        assert (found.status, found.failing) == ("fail", ("tests/test_b.py",))
        assert "1 file of tests could not be loaded" in found.reason
        assert "ModuleNotFoundError: No module named 'no_such_module'" in found.reason

    def test_a_conftest_that_breaks_is_the_works_fault(self, tmp_path, ready):
        where = ready(tmp_path)
        write(where.root, test_a=GREEN, conftest="import no_such_module\n")
        found = score(pytest_gate(), where)
        assert (found.status, found.cause, found.evidence["exit"]) == ("error", "evidence", 4)
        assert "no_such_module" in found.reason

    def test_arguments_pytest_does_not_know_are_the_loops_fault(self, tmp_path, ready):
        where = ready(tmp_path)
        write(where.root, test_a=GREEN)
        found = score(pytest_gate(args="--no-such-option"), where)
        assert (found.status, found.cause) == ("error", "tool")
        assert "--no-such-option" in found.reason

    def test_a_green_report_with_another_exit_does_not_pass(self, tmp_path):
        where = place(tmp_path)
        write(
            where.root,
            test_a=GREEN,
            conftest="def pytest_sessionfinish(session):\n    session.exitstatus = 1\n",
        )
        found = score(pytest_gate(), where)
        assert (found.status, found.failing) == ("fail", ("exit 1",))
        (where.root / "conftest.py").write_text(
            "def pytest_sessionfinish(session):\n    session.exitstatus = 3\n"
        )
        found = score(pytest_gate(), where)
        assert (found.status, found.cause, found.evidence["code"]) == ("error", "evidence", "exit")

    def test_a_failure_with_exit_0_does_not_pass(self, tmp_path, ready):
        where = ready(tmp_path)
        write(
            where.root,
            test_a="def test_a():\n    assert 0\n",
            conftest="def pytest_sessionfinish(session):\n    session.exitstatus = 0\n",
        )
        assert score(pytest_gate(), where).status == "fail"

    def test_a_report_planted_in_the_artifacts_does_not_count(self, tmp_path, ready):
        where = ready(tmp_path)
        write(where.root, test_a="import os\n\ndef test_a():\n    os._exit(0)\n")
        where.artifacts.mkdir()
        (where.artifacts / "junit.xml").write_text("<testsuite><testcase name='a'/></testsuite>")
        found = score(pytest_gate(), where)
        assert (found.status, found.evidence["code"], found.evidence["exit"]) == (
            "error",
            "missing_report",
            0,
        )

    def test_the_report_option_of_the_project_does_not_matter(self, tmp_path, ready):
        where = ready(tmp_path)
        write(where.root, test_a=GREEN)
        (where.root / "pytest.ini").write_text(
            "[pytest]\naddopts = --junitxml=mine.xml\njunit_family = xunit2\n"
        )
        assert score(pytest_gate(), where).status == "pass"
        with pytest.raises(ConfigError, match="junitxml"):
            pytest_gate(args="-q --junitxml=mine.xml")

    def test_the_projects_python_comes_first(self, tmp_path):
        where = place(tmp_path)
        assert pytest_gate(args="-q tests").probe(where) == f"{BIN / 'python'} -m pytest -q tests"
        own = where.project / ".venv" / "bin" / "python"
        own.parent.mkdir(parents=True)
        own.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        own.chmod(0o755)
        assert pytest_gate().probe(where) == f"{own} -m pytest"
        assert pytest_gate(python=sys.executable).probe(where) == f"{sys.executable} -m pytest"

    def test_a_python_without_pytest_is_said_before_the_run_and_in_it(self, tmp_path):
        where = place(tmp_path)
        bare = where.root / "bare"
        bare.write_text(f'#!/bin/sh\nexec {sys._base_executable} -I -S "$@"\n')
        bare.chmod(0o755)
        with pytest.raises(NotStartable, match="has no pytest"):
            pytest_gate(python="./bare").probe(where)
        found = score(pytest_gate(python="./bare"), where)
        assert (found.status, found.cause) == ("error", "tool")
        assert "-m pip install pytest" in found.reason
        with pytest.raises(NotStartable, match="no-such-python"):
            pytest_gate(python="no-such-python").probe(where)

    def test_what_the_project_says_of_the_cache_does_not_matter(self, tmp_path, ready):
        where = ready(tmp_path)
        write(where.root, test_a=GREEN + "def test_b():\n    assert 0\n")
        for options in ("--lf --ff", "--lf --ff", "-p no:cacheprovider"):
            (where.root / "pytest.ini").write_text(f"[pytest]\naddopts = {options}\n")
            assert score(pytest_gate(), where).evidence["counts"]["executed"] == 2
        assert sorted(p.name for p in where.root.iterdir()) == ["pytest.ini", "test_a.py"]

    def test_counts_that_prove_nothing_are_refused(self):
        with pytest.raises(ConfigError, match="allow_empty"):
            pytest_gate(min_tests=0)


class TestRuff:
    def test_findings_and_files_that_cannot_be_parsed(self, tmp_path):
        where = place(tmp_path)
        write(where.root, a="import os\n", b="x = (\n", c="y = 1\n")
        found = score(ruff(args=["--isolated"]), where)
        assert (found.status, found.value, found.raw) == ("fail", 1 / 3, 2.0)
        assert found.failing == ("b.py: invalid-syntax", "a.py: F401")
        assert found.reason.splitlines()[0] == "2 findings; 1 could not be parsed and were not checked"
        assert found.reason.splitlines()[2].startswith("a.py:1:8 F401 `os` imported but unused")
        assert score(ruff(args=["--isolated"], max=2), where).status == "pass"
        assert not (where.root / ".ruff_cache").exists()

    def test_clean_is_clean(self, tmp_path):
        where = place(tmp_path)
        write(where.root, a="x = 1\n")
        found = score(ruff(args="--isolated .", min_files=1), where)
        assert (found.status, found.value, found.reason) == ("pass", 1.0, "0 findings")
        found = score(ruff(args="--isolated .", min_files=2), where)
        assert (found.status, found.evidence["code"]) == ("error", "no_files")

    def test_nothing_to_check_is_said_and_can_be_refused(self, tmp_path):
        where = place(tmp_path)
        found = score(ruff(args="--isolated"), where)
        assert (found.status, found.reason) == ("pass", "0 findings; warning: no file was checked")
        found = score(ruff(args="--isolated", min_files=1), where)
        assert (found.status, found.evidence["code"]) == ("error", "no_files")

    def test_a_folder_that_is_not_there_does_not_pass(self, tmp_path):
        assert score(ruff(args="--isolated no_such_folder"), place(tmp_path)).status == "fail"

    def test_faults_are_the_loops_or_the_works(self, tmp_path):
        where = place(tmp_path)
        found = score(ruff(args="--no-such-option"), where)
        assert (found.status, found.cause) == ("error", "tool")
        (where.root / "ruff.toml").write_text("no-such-key = 1\n")
        found = score(ruff(), where)
        assert (found.status, found.cause) == ("error", "evidence")
        assert "no-such-key" in found.reason

    def test_how_it_is_started_can_be_said(self, tmp_path):
        where = place(tmp_path)
        write(where.root, a="x = 1\n")
        assert (
            score(ruff(run=[sys.executable, "-m", "ruff", "check"], args="--isolated"), where).status
            == "pass"
        )
        assert ruff(args=".").probe(where) == f"{BIN / 'ruff'} check ."
        with pytest.raises(NotStartable, match="'ruff'"):
            ruff().probe(place(tmp_path, env={"PATH": os.defpath}))
        with pytest.raises(ConfigError, match="output"):
            ruff(args="--output-format=text")


class TestCoverage:
    @pytest.mark.parametrize("kind", ["json", "xml", "lcov"])
    def test_every_format_of_coverage_gives_the_same_number(self, tmp_path, kind):
        where = place(tmp_path)
        write(
            where.root,
            main="import lib\nlib.f(1)\n",
            lib="def f(x):\n    if x:\n        return 1\n    return 2\n",
        )
        run = f"coverage run --branch --include=lib.py main.py && coverage {kind} -q -o cov.{kind}"
        found = score(coverage(run=["sh", "-c", run], report=f"cov.{kind}", min=66.67), where)
        assert found.status == "fail"
        assert found.reason == "66.6667 % (3 of 4 lines, 1 of 2 branches) < 66.67 %"
