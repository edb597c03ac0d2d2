"""The loop files of a server: which are read, when again, and what a bad one does."""

from __future__ import annotations

import os
import subprocess

import pytest

from loopwright.serving.book import Book

FILE = 'name = "{name}"\ngoal = "g"\nagent = "true"\ngates = ["true"]\n'


@pytest.fixture
def project(tmp_path):
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    return tmp_path


def book(project, *named):
    return Book([project / each for each in named], project=project, environ=dict(os.environ))


def write(project, file, name="one", more=""):
    path = project / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(FILE.format(name=name) + more)
    return path


def test_a_folder_has_the_loops_that_say_a_goal(project):
    write(project, "loops/a.toml", "a")
    write(project, "loops/b.toml", "b")
    (project / "loops/other.toml").write_text("[tool]\nx = 1\n")
    found = book(project, "loops")
    assert found.refresh() == []
    assert (sorted(found.loops), dict(found.problems)) == (["a", "b"], {})
    write(project, "loops/c.toml", "c")
    found.refresh()
    assert sorted(found.loops) == ["a", "b", "c"]
    (project / "loops/a.toml").unlink()
    assert found.refresh() == ["loops/a.toml is gone: a is started no more"]
    assert sorted(found.loops) == ["b", "c"]


def test_what_a_loop_is_by_default_when_a_server_runs_it(project):
    write(project, "loop.toml")
    found = book(project)
    found.refresh()
    (served,) = found.loops.values()
    assert (served.assembled.mode, served.loop.if_passing) == ("worktree", "finish")
    write(project, "loop.toml", more='if_passing = "run"\n[workspace]\nmode = "in_place"\n')
    assert found.refresh() == ["loop.toml was read again: one"]
    (served,) = found.loops.values()
    assert (served.assembled.mode, served.loop.if_passing) == ("in_place", "run")


def test_outside_a_repository_a_folder_apart_is_a_copy(tmp_path):
    write(tmp_path, "loop.toml")
    found = book(tmp_path)
    found.refresh()
    assert [served.assembled.mode for served in found.loops.values()] == ["folder"]


def test_a_loop_without_a_name_is_called_after_its_file(project):
    path = write(project, "loops/deps weekly.toml")
    path.write_text(path.read_text().partition("\n")[2])
    found = book(project, "loops")
    found.refresh()
    assert list(found.loops) == ["deps-weekly"]


def test_a_bad_file_keeps_the_loop_and_says_why_until_it_is_mended(project):
    path = write(project, "loop.toml")
    found = book(project)
    found.refresh()
    path.write_text(path.read_text() + "[limits]\nmax_iterations = 0\n")
    (told,) = found.refresh()
    assert told.startswith("loop.toml cannot be used: loop.toml:6: limits.max_iterations")
    assert found.refresh() == []
    (served,) = found.loops.values()
    assert "max_iterations" in served.problem
    assert list(found.problems) == [path]
    write(project, "loop.toml", more="[limits]\nmax_iterations = 3\n")
    found.refresh()
    (served,) = found.loops.values()
    assert (served.problem, served.loop.max_iterations, dict(found.problems)) == ("", 3, {})


def test_two_loops_of_one_name_are_a_problem_until_one_is_renamed(project):
    write(project, "loops/a.toml", "same")
    second = write(project, "loops/b.toml", "same")
    found = book(project, "loops")
    found.refresh()
    assert list(found.loops) == ["same"]
    assert "two loops are called 'same'" in found.problems[second]
    write(project, "loops/b.toml", "other")
    found.refresh()
    assert (sorted(found.loops), dict(found.problems)) == (["other", "same"], {})


def test_one_server_has_one_store(project):
    write(project, "loops/a.toml", "a", '[store]\nurl = "files:one"\n')
    second = write(project, "loops/b.toml", "b", '[store]\nurl = "files:two"\n')
    found = book(project, "loops")
    found.refresh()
    assert found.store == "files:one"
    assert "one server has one" in found.problems[second]


def test_the_settings_of_the_server_are_said_in_any_of_them(project):
    write(project, "loops/a.toml", "a", "[server]\nport = 8000\n")
    write(project, "loops/b.toml", "b", '[server]\npeople = ["mira"]\n')
    found = book(project, "loops")
    found.refresh()
    assert (found.server.port, found.server.people, found.server.host) == (8000, ("mira",), "127.0.0.1")


def test_a_python_file_is_read_once_and_a_change_is_said(project):
    path = project / "nightly.py"
    path.write_text(
        'from loopwright import Loop\nloop = Loop("g", agent="true", gates=["true"], name="py")\n'
    )
    found = book(project, "nightly.py")
    found.refresh()
    assert list(found.loops) == ["py"]
    path.write_text(path.read_text() + "# more\n")
    assert found.refresh() == ["nightly.py has changed: a server that is started anew reads it"]
    assert list(found.loops) == ["py"]


def test_a_goal_in_a_file_of_its_own_is_read_again_too(project):
    (project / "GOAL.md").write_text("first")
    path = write(project, "loop.toml")
    path.write_text(path.read_text().replace('goal = "g"', 'goal = "@GOAL.md"'))
    found = book(project)
    found.refresh()
    assert [served.loop.goal for served in found.loops.values()] == ["first"]
    (project / "GOAL.md").write_text("second")
    found.refresh()
    assert [served.loop.goal for served in found.loops.values()] == ["second"]
