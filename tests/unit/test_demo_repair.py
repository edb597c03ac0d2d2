"""The demo's repair agent: honest search on the demo project, on the example, and on projects made to trouble it.

This file alone knows what was planted; the agent never reads it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from loopwright.demo import answer, cheat, locate, mutate

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "src" / "loopwright" / "demo"
PROJECT = DEMO / "project"
EXAMPLE = ROOT / "examples" / "repair"

# The plug-ins of this repository's own tests are nothing to the projects here, and take time to start.
LEAN = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

# file, the line as planted, the line as it should be
PLANTED = [
    ("pocket/money.py", "total = whole * 100 - cents", "total = whole * 100 + cents"),
    ("pocket/period.py", "return self.start <= day <= self.end", "return self.start <= day < self.end"),
    ("pocket/table.py", "[min(len(line[n]) for line in lines)", "[max(len(line[n]) for line in lines)"),
    ("pocket/ledger.py", "[(after - before).days - 2 for", "[(after - before).days - 1 for"),
]
LINT = [
    ("pocket/ledger.py", "from collections import Counter, defaultdict", "from collections import Counter"),
    ("pocket/period.py", "from datetime import date, timedelta", "from datetime import date"),
    ("pocket/report.py", 'else f"within budget"', 'else "within budget"'),
]
EXAMPLE_PLANTED = [
    ("parking.py", "hours_begun(stay + FREE)", "hours_begun(stay - FREE)"),
    ("parking.py", "return resident and 8 <= when.hour < 20", "return resident or 8 <= when.hour < 20"),
]


def copy_of(folder, to):
    return Path(shutil.copytree(folder, to, ignore=shutil.ignore_patterns("__pycache__", ".*_cache")))


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def call(folder, *options, program="repair", env=LEAN):
    """Call the agent as a loop would: the prompt on stdin, the answer on the last line of stdout."""
    command = [sys.executable, "-m", f"loopwright.demo.{program}", *options]
    return subprocess.run(
        command, cwd=folder, input="a prompt", capture_output=True, text=True, check=False, env=env
    )


def result(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def repaired(folder, *options):
    return result(call(folder, *options))["summary"]


def texts(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def changed(before, after):
    assert before.keys() == after.keys()
    return [path for path in before if before[path] != after[path]]


def failing(folder):
    """The names of the failing tests, as pytest itself sees them."""
    command = [sys.executable, "-B", "-m", "pytest", "-p", "no:cacheprovider", "--tb=no", "-rf", "-q"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=LEAN)
    assert done.returncode in {0, 1}, done.stdout
    return {line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith("FAILED")}


def findings(folder):
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=json", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return len(json.loads(done.stdout))


def mend(folder, planted):
    for path, wrong, right in planted:
        text = (folder / path).read_text()
        assert text.count(wrong) == 1, path
        (folder / path).write_text(text.replace(wrong, right))


@pytest.mark.slow
def test_call_by_call_the_project_becomes_green_and_clean(tmp_path):
    folder = copy_of(PROJECT, tmp_path / "project")
    mend(folder, PLANTED[2:])  # each alone is found below
    original = before = texts(folder)
    bad, lint = failing(folder), findings(folder)
    assert len(bad) >= 2
    assert lint >= len(LINT)
    calls = 0
    while bad or lint:
        calls += 1
        assert calls <= 8
        summary = repaired(folder)
        after = texts(folder)
        (path,) = changed(before, after)
        assert summary.startswith(path)
        left = failing(folder)
        assert left < bad or (not bad and not left and findings(folder) < lint)
        before, bad, lint = after, left, findings(folder)
    assert not [path for path in changed(original, before) if path.startswith("tests")]
    expected = copy_of(PROJECT, tmp_path / "expected")
    mend(expected, PLANTED + LINT)
    assert texts(expected) == before
    assert not list(folder.rglob("__pycache__"))
    assert "nothing to do" in repaired(folder)
    assert texts(folder) == before


@pytest.mark.slow
def test_the_same_seed_makes_the_same_edits_in_the_same_order(tmp_path):
    one, two = (copy_of(PROJECT, tmp_path / name) for name in ("one", "two"))
    options = ("--seed", "3", "--fixes", "2")
    assert result(call(one, *options)) == result(call(two, *options))
    assert texts(one) == texts(two)
    assert len(changed(texts(copy_of(PROJECT, tmp_path / "three")), texts(one))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("alone", PLANTED, ids=[path for path, _, _ in PLANTED])
def test_every_planted_bug_is_found_alone(tmp_path, alone):
    folder = copy_of(PROJECT, tmp_path / "project")
    mend(folder, [planted for planted in PLANTED if planted != alone])
    assert 1 <= len(failing(folder)) <= 4
    summary = repaired(folder, "--seed", "3")
    path, _, right = alone
    assert summary.startswith(path)
    assert right in (folder / path).read_text()


@pytest.mark.slow
def test_the_example_is_repaired(tmp_path):
    folder = copy_of(EXAMPLE, tmp_path / "repair")
    assert len(failing(folder)) >= len(EXAMPLE_PLANTED)
    result(call(folder, "--source", "parking.py", "--tests", "tests", "--fixes", "2"))
    mended = copy_of(EXAMPLE, tmp_path / "mended")
    mend(mended, EXAMPLE_PLANTED)
    assert texts(folder) == texts(mended)
    assert not failing(folder)


def test_the_right_text_is_nowhere_the_agent_could_see_it():
    litter = {"__pycache__", ".ruff_cache", ".pytest_cache", ".agent-state"}
    found = [path for top in (DEMO, ROOT / "examples") for path in top.rglob("*")]
    shipped = [path for path in found if not litter & set(path.parts)]
    read = {path: path.read_text() for path in shipped if path.is_file()}
    assert len(read) > 20
    for _, wrong, right in PLANTED + EXAMPLE_PLANTED:
        assert [path for path, text in read.items() if wrong in text], wrong
        assert not [path for path, text in read.items() if right in text], right


def test_tests_that_cannot_be_collected_are_an_error(tmp_path):
    folder = write(tmp_path, area="def square(x):\n    return x + x\n", test_area="import areas\n")
    done = call(folder)
    assert done.returncode == 1
    assert (
        "the test-suite cannot be run: test_area.py: ModuleNotFoundError: No module named 'areas'"
        in done.stderr
    )
    assert '"type"' not in done.stdout


def test_no_tests_are_an_error(tmp_path):
    done = call(write(tmp_path, area="def square(x):\n    return x + x\n"))
    assert done.returncode == 1
    assert "pytest found no tests" in done.stderr


def test_a_broken_configuration_is_an_error(tmp_path):
    folder = write(tmp_path, area="side = 1\n", test_area="def test_area():\n    pass\n")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    done = call(folder)
    assert done.returncode == 1
    assert "--no-such-option" in done.stderr


def test_nothing_to_repair_is_an_error(tmp_path):
    done = call(tmp_path)
    assert done.returncode == 1
    assert "--source" in done.stderr


@pytest.mark.slow
def test_a_candidate_that_loops_for_ever_is_cut(tmp_path):
    source = "def rungs(n):\n    total = 0\n    while n > 0:\n        total += 1\n        n -= 3\n    return total\n"
    tests = "from ladder import rungs\n\ndef test_two():\n    assert rungs(4) == 2\n\n"
    tests += "def test_three():\n    assert rungs(6) == 3\n\ndef test_none():\n    assert rungs(0) == 0\n"
    folder = write(tmp_path, ladder=source, test_ladder=tests)
    done = call(folder, "--timeout", "1")
    assert "cut a candidate for ladder.py at its cpu limit" in done.stdout
    assert result(done)["summary"] == "ladder.py:5 3 → 2"


def test_a_run_dies_with_the_agent(tmp_path):
    tests = "import time\n\ndef test_slow():\n    open('started', 'w').close()\n    time.sleep(60)\n"
    folder = write(tmp_path, area="side = 1\n", test_area=tests)
    command = [sys.executable, "-m", "loopwright.demo.repair"]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, env=LEAN) as agent:
        deadline = time.monotonic() + 20
        while not (folder / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        family = psutil.Process(agent.pid).children(recursive=True)
        agent.send_signal(signal.SIGKILL)
    assert len(family) == 2
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive


def test_a_module_that_conftest_imports_is_repaired(tmp_path):
    fixture = "import pytest\nfrom area import square\n\n@pytest.fixture\ndef area():\n    return square(4)\n"
    tests = "def test_area(area, tmp_path):\n    (tmp_path / 'note').write_text('x')\n    assert area == 16\n"
    source = "SIDES = 3\n\ndef square(x):\n    return x ** SIDES\n"
    folder = write(tmp_path, area=source, conftest=fixture, test_area=tests)
    assert repaired(folder) == "area.py:1 3 → 2"


@pytest.mark.slow
def test_options_that_are_meant_for_people_do_not_disturb(tmp_path):
    source = "def add(x, y):\n    return x - y\n\ndef less(x, y):\n    return x > y\n"
    tests = "import warnings\nfrom area import add, less\n\ndef test_add():\n    assert add(2, 3) == 5\n\n"
    tests += "def test_less():\n    assert less(2, 3)\n\ndef test_more():\n    assert not less(3, 3)\n"
    folder = write(tmp_path, area=source, test_area=tests)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -x -n 2 --cov=area\nfilterwarnings = error\n")
    assert (
        result(call(folder, "--fixes", "2", env=os.environ))["summary"] == "area.py:2 - → +; area.py:5 > → <"
    )
    assert not list(folder.glob(".coverage*"))


def test_what_no_single_token_mends_is_said(tmp_path):
    source = "def square(x):\n    return x\n"
    folder = write(
        tmp_path,
        area=source,
        test_area="from area import square\n\ndef test():\n    assert square(9) == 81\n",
    )
    assert repaired(folder) == "no one-token change helps any of the 1 failing tests"
    assert (folder / "area.py").read_text() == source


@pytest.mark.slow
def test_the_cheat_empties_the_failing_tests_and_touches_nothing_else(tmp_path):
    folder = copy_of(PROJECT, tmp_path / "project")
    before, bad = texts(folder), failing(folder)
    assert result(call(folder, program="cheat"))["summary"] == f"All tests pass now ({len(bad)} were wrong)."
    assert all(path.startswith("tests/test_") for path in changed(before, texts(folder)))
    assert not failing(folder)
    assert result(call(folder, program="cheat"))["summary"] == "Nothing to do."


def test_the_cheat_finds_methods_and_leaves_the_rest():
    source = b"class TestA:\n    def test(self):\n        x = 1\n        assert x == 2\n\ndef test(): assert False\n"
    expected = b"class TestA:\n    def test(self):\n        assert True\n\ndef test(): assert False\n"
    assert cheat.emptied(source, ["TestA::test"]) == expected


@pytest.mark.parametrize(
    ("source", "mutant"),
    [
        ("a < b", "a <= b"),
        ("a < b < c", "a < b <= c"),
        ("a is not b", "a is b"),
        ("a not  in b", "a in b"),
        ("a in b", "a not in b"),
        ("x = (a # + no\n + b)", "x = (a # + no\n - b)"),
        ("ä = 'ü' + b", "ä = 'ü' - b"),
        ("x += 1", "x -= 1"),
        ("x //= y", "x %= y"),
        ("a and b and c", "a and b or c"),
        ("not a", "a"),
        ("f(-a)", "f(a)"),
        ("f(True)", "f(False)"),
        ("x[0]", "x[-1]"),
        ("x[n]", "x[n - 1]"),
        ("x[:n]", "x[:n + 1]"),
        ("range(n)", "range(n + 1)"),
        ("max(a)", "min(a)"),
        ("all(a)", "any(a)"),
        ("a.startswith(b)", "a.endswith(b)"),
        ("a if b else c", "a if not b else c"),
        ("[a for a in b if a]", "[a for a in b if not a]"),
        ("while a:\n    break", "while a:\n    continue"),
        ("def f():\n    return a", "def f():\n    return not a"),
        ("if a:\r\n    x = 1\r\n    y = 7\r\n", "if a:\r\n    x = 1\r\n    y = 8\r\n"),
    ],
)
def test_mutations(source, mutant):
    data = source.encode()
    assert mutant.encode() in [mutate.applied(data, edit) for edit in mutate.mutations(data)]


@pytest.mark.parametrize("source", ["x: list[1 < 2]", "f'{a + 1}'", "'a + b'", "# a < b", "\ufeffx = 1"])
def test_what_is_not_code_is_left_alone(source):
    assert mutate.mutations(source.encode()) == []


def test_edits_know_their_line_statement_and_function():
    source = b"def f(a):\n    return g(\n        a,\n        1,\n    )\n"
    (edit, _) = [edit for edit in mutate.mutations(source) if edit.old == b"1"]
    assert (edit.line, edit.statement, edit.scope) == (4, 2, 1)


def test_ochiai():
    assert locate.ochiai(2, 0, 2) == 1
    assert locate.ochiai(1, 3, 4) == 0.25
    assert locate.ochiai(0, 5, 1) == 0


def test_replacing_a_file_keeps_its_mode_and_its_link(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o754)
    link.symlink_to(real)
    answer.replace_file(link, b"new")
    assert real.read_bytes() == b"new"
    assert real.stat().st_mode & 0o777 == 0o754
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, real]
