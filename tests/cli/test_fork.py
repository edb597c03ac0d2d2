"""`fork`: a run that begins where another stood, whole by itself."""

from __future__ import annotations

import pytest
from stage import WORK

from loopwright import codec
from loopwright.core import events as ev
from loopwright.journal import history
from loopwright.stores.sqlite import SqliteStore

DONE = "sh -c 'test -e done'"


def checkpoint(stage, run, number):
    """The fold at the first close of that iteration, as plain data, without what tells runs apart."""
    store = SqliteStore(stage.folder / ".agent-state/loopwright.db")
    try:
        for _, _, event, state in history(store, run):
            if isinstance(event, ev.IterationClosed) and state.iteration == number:
                found = codec.plain(state)
                return {k: v for k, v in found.items() if k not in {"run", "labels", "origin"}}
    finally:
        store.close()


@pytest.fixture
def parent(stage):
    """Run `r`: three iterations in a repository, none good."""
    stage.git("init", "-q")
    stage.run("--max-iterations", "3", "--no-baseline", expect=3)
    return stage


def test_it_stands_where_its_parent_stood(parent):
    assert parent("fork", "r", "--from", "2", "--as", "f", expect=0).out == "f\n"
    assert (parent.folder / "work.txt").read_text() == "1\n2\n"
    assert checkpoint(parent, "f", 2) == checkpoint(parent, "r", 2)
    state = parent.state("f")
    assert (state["run"], state["iteration"], state["finished"], state["paused"]) == ("f", 2, None, True)
    assert (state["origin"], state["labels"]) == ("fork of r at 2", {"fork_of": "r@2"})
    assert [fact.key for fact in parent.of(ev.AttemptStarted, "f")] == ["r/1", "r/2"], "they happened so"


def test_it_is_driven_on_with_keys_of_its_own(parent):
    parent("fork", "r", "--from", "2", "--as", "f", expect=0)
    parent("resume", "f", expect=3)
    assert [fact.key for fact in parent.of(ev.AttemptStarted, "f")] == ["r/1", "r/2", "f/3"]
    assert parent.state("f")["iteration"] == 3, "the limit stands"
    assert parent.state("r")["iteration"] == 3
    assert (parent.folder / "work.txt").read_text() == "1\n2\n4\n"


def test_the_parent_may_be_forgotten(parent):
    parent("fork", "r", "--from", "2", "--as", "f", expect=0)
    for ref in parent.git("for-each-ref", "--format=%(refname)", "refs/loopwright/r").split():
        parent.git("update-ref", "-d", ref)
    parent.git("gc", "-q", "--prune=now")
    assert "+2" in parent("diff", "f", "--iteration", "2", expect=0).out
    assert "#2" in parent("show", "f", expect=0).out
    assert "Paused by" in parent("why", "f", expect=0).out
    assert parent("report", "f", "--format", "json", expect=0).doc["iterations"][1]["changes"]["added"] == 1
    parent("restore", "f", "--iteration", "1", expect=0)
    assert (parent.folder / "work.txt").read_text() == "1\n"


def test_a_complete_run_goes_on_in_its_fork(stage):
    stage.git("init", "-q")
    stage.script({"write": {"done": "x\n"}}, WORK)
    stage.run("--no-baseline", gate=DONE, expect=0)
    stage("fork", "r", "--from", "1", "--as", "f", expect=0)
    assert [fact.outcome for fact in stage.of(ev.IterationClosed, "f")] == ["not_accepted"]
    assert [fact.outcome for fact in stage.of(ev.IterationClosed)] == ["accepted"]
    stage("resume", "f", "--note", "more", expect=0)
    assert stage.state("f")["iteration"] == 2


@pytest.mark.parametrize("how", ["stopped", "errors"])
def test_what_ended_the_parent_does_not_end_the_fork(stage, how):
    stage.git("init", "-q")
    stage.script({**WORK, "hold": True} if how == "stopped" else {"exit": 3, "err": "x"}, WORK)
    errors = ("--set", "limits.max_consecutive_errors=1")
    with stage.started(*stage.loop("--no-baseline", "--max-iterations", "2", *errors)) as run:
        if how == "stopped":
            stage.held(run)
            stage("stop", "r", expect=0)
            stage.go()
        run.wait(timeout=60)
    assert stage.of(ev.RunFinished)[-1].reason == (
        "stopped_by_user" if how == "stopped" else "consecutive_errors"
    )
    stage("fork", "r", "--from", "1", "--as", "f", expect=0)
    stage("resume", "f", expect=3)
    assert stage.of(ev.RunFinished, "f")[-1].reason == "max_iterations"
    assert [fact.key for fact in stage.of(ev.AttemptStarted, "f")] == ["r/1", "f/2"]


def test_edits_that_are_not_the_runs_are_refused_unless_forced(parent):
    (parent.folder / "mine.txt").write_text("mine\n")
    told = parent("fork", "r", "--from", "1", "--as", "f", expect=2)
    assert "use --force" in told.err
    assert (parent.folder / "mine.txt").exists() and parent.facts("f") == []
    assert parent.git("for-each-ref", "refs/loopwright/f") == ""
    parent("fork", "r", "--from", "1", "--as", "f", "--force", expect=0)
    assert not (parent.folder / "mine.txt").exists()


def test_what_is_refused_makes_nothing(parent):
    before = parent.git("for-each-ref")
    for args, told in (
        (("--from", "9"), "has no checkpoint 9"),
        (("--from", "1", "--as", "r"), "there is a run r already"),
        (("--from", "1", "--as", "a..b"), "cannot name a run"),
    ):
        assert told in parent("fork", "r", *args, expect=2).err
    assert "is refused inside run" in parent("fork", "r", "--from", "1", expect=2, LOOPWRIGHT_RUN="r").err
    assert parent.git("for-each-ref") == before
    assert [row["run"] for row in parent("list", "--all", "--json").doc] == ["r"]


def test_protected_files_stay_protected_in_the_fork(stage):
    stage.git("init", "-q")
    stage.write("tests/t.py", "true\n")
    file = stage.file('gates = ["false"]\nprotected = ["tests/**"]\n[limits]\nmax_iterations = 2')
    stage("run", file, "--no-baseline", "--as", "r", expect=3)
    stage("fork", "r", "--from", "1", "--as", "f", expect=0)
    stage.script({"write": {"tests/t.py": "cheat\n"}})
    stage("resume", "f", expect=3)
    assert (stage.folder / "tests/t.py").read_text() == "true\n"
    assert {fact.action for fact in stage.of(ev.EvidenceChanged, "f")} == {"restored"}


def test_a_run_without_a_workspace(stage):
    stage.run("--workspace", "none", "--max-iterations", "2", expect=3)
    stage("fork", "r", "--from", "1", "--as", "f", expect=0)
    stage("resume", "f", expect=3)
    assert stage.state("f")["iteration"] == 2


@pytest.mark.parametrize("mode", ["worktree", "folder"])
def test_a_fork_of_a_run_that_works_apart_leaves_the_checkout_alone(stage, mode):
    stage.write("a.txt", "first\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        stage.git(*words)
    stage.run("--workspace", mode, "--max-iterations", "2", "--no-baseline", expect=3)
    stage.write("a.txt", "of the user\n")
    stage.git("commit", "-qam", "moved on")
    stage.write("a.txt", "edited\n")
    assert stage("fork", "r", "--from", "1", "--as", "f", expect=0).out == "f\n"
    assert "run f has no folder now" in stage("restore", "f", "--iteration", "1", expect=2).err
    assert "made of the run's snapshot" in stage("resume", "f", expect=3).err
    assert (stage.folder / "a.txt").read_text() == "edited\n"
    assert not (stage.folder / "work.txt").exists()
    folder = stage.folder / ".agent-state/workspaces/f/work"
    assert (folder / "work.txt").read_text() == "1\n3\n"
    assert (folder / "a.txt").read_text() == "first\n", "made of what its parent's was made of"
    assert (stage.folder / ".agent-state/workspaces/r/work/work.txt").read_text() == "1\n2\n"


def test_the_session_of_the_parent_stays_the_parents(stage):
    stage.script({**WORK, "result": {"summary": "worked", "session_id": "s1"}})
    stage.run("--max-iterations", "2", "--no-baseline", expect=3)
    assert stage.state("r")["session"]["id"] == "s1"
    stage("fork", "r", "--from", "1", "--as", "f", expect=0)
    assert stage.state("f")["session"] is None, "it knows what came later"
