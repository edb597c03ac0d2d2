"""Where tests are the task: what passes only because old tests were changed has not passed."""

from __future__ import annotations

import sys

import pytest
from gaming import DONE, TESTS, both, commit, git, play, put, remove

from loopwright.core import events as ev

GATE = {"use": "pytest", "python": "tools/python"}
OLD = "def test_f():  # wants done\n    pass\n\n\ndef test_g():\n    pass\n"
WEAK = OLD.replace("  # wants done", "")
MORE = "def test_h():\n    pass\n\n\ndef test_i():\n    pass\n"
AGAIN = "the tests as they were at the start must still pass: 1 of 2 tests fail\n"


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "work"
    root.mkdir()
    script = f'#!/bin/sh\nexec {sys.executable} -I -S {TESTS} "$@"\n'
    check = "test -f build/made && read x < work.txt && test $x = done\n"
    put({"work.txt": "todo\n", "tests/test_a.py": OLD, "tests/check.sh": check, "tools/python": script})(root)
    put({".gitignore": "build/\n", "build/made": ""})(root)
    (root / "tools/python").chmod(0o755)
    git(root, "init", "-q")
    commit(root)
    return root


def loop(root, *deeds, gate=GATE, **more):
    return play(root, [gate], *deeds, may_change=["tests/**"], **{"baseline": True, **more})


def scores(played):
    """Of the iterations, without the baseline."""
    return [fact.score for fact in played.of(ev.GateScored)][1:]


def test_a_changed_test_does_not_pass_in_the_place_of_the_old_one(root):
    played = loop(
        root,
        put({"tests/test_a.py": WEAK}),
        both(remove("tests/test_a.py"), put({"tests/test_b.py": MORE}), commit),
        put({"tests/test_a.py": OLD.replace("done", "more")}),
        both(put(DONE), put({"tests/test_a.py": WEAK})),
    )
    weak, gone, worse, done = scores(played)
    for score in (weak, gone):
        assert (score.status, score.value, len(score.failing)) == ("fail", 0.5, 1)
        assert score.reason.startswith(AGAIN + "test_a::0: no done")
        assert score.failing[0].startswith("as at the start: test_a")
        assert score.evidence["counts"]["failed"] == 0, "what the tests of now say is on record too"
    assert weak.evidence["old_tests"]["paths"] == ["tests/test_a.py"]
    assert gone.evidence["old_tests"]["paths"] == ["tests/test_a.py", "tests/test_b.py"]
    assert "no more" in worse.reason
    assert "must still pass: 1 of 2 tests fail\ntest_a::0: no done" in worse.reason
    assert len(worse.failing) == 2
    assert (done.status, played.final.exit_code) == ("pass", 0), "the work is done: the old text passes"


def test_tests_may_change_while_the_old_ones_pass(root):
    played = loop(
        root,
        put(DONE),
        put({"tests/test_b.py": MORE}),
        put({"tests/test_a.py": MORE}),
        both(put({"tests/unit/test_a.py": OLD}), remove("tests/test_a.py")),
        until="limits",
    )
    assert [score.status for score in scores(played)] == ["pass"] * 4
    told = [score.evidence.get("old_tests", {}).get("status") for score in scores(played)]
    assert told == [None, "pass", "pass", "pass"], "unchanged tests run once"
    assert played.final.exit_code == 0


def test_tests_from_nothing_have_no_old_ones(root):
    for name in ("test_a.py", "check.sh"):
        remove(f"tests/{name}")(root)
    commit(root)
    played = loop(root, put({"tests/test_a.py": WEAK}))
    assert (played.final.exit_code, "old_tests" in scores(played)[0].evidence) == (0, False)


def test_a_known_failure_may_be_changed_and_a_test_that_passed_may_not(root):
    put({"tests/test_b.py": "def test_b():  # wants todo\n"})(root)
    commit(root)
    weak = {"tests/test_a.py": WEAK, "tests/test_b.py": "def test_b():\n"}
    played = loop(root, put({**weak, "work.txt": "x"}), put({"work.txt": "todo"}), known_failures="allow")
    assert [score.status for score in scores(played)] == ["fail", "pass"]
    assert played.final.exit_code == 0


def test_a_command_that_calls_itself_a_test_runs_again_beside_what_git_ignores(root):
    fooled = put({"tests/check.sh": "exit 0\n"})
    played = loop(root, fooled, put(DONE), gate="sh tests/check.sh")
    cheat, honest = scores(played)
    assert (cheat.status, cheat.value, cheat.graded) == ("fail", 0.0, False)
    assert "as they were at the start must still pass: exit 1" in cheat.reason
    assert (honest.status, played.final.exit_code) == ("pass", 0)
    assert not list(root.parent.glob("**/old-tests/work")), "the checkout is no artifact"
