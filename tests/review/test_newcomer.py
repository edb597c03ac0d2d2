"""What a first user of approvals, stores and one-time files ran into."""

import sqlite3
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cli"))

from stage import Stage, until

from loopwright import write_once
from loopwright.codec import encode_signal
from loopwright.core import events as ev
from loopwright.stores.sqlite import SqliteStore


@pytest.fixture
def stage(tmp_path):
    return Stage.made(tmp_path)


def asked(stage, *args, gate="test -e work.txt"):
    stage.run("--approve", "passed", "--no-wait", *args, gate=gate, expect=6)


def test_the_work_a_person_is_asked_about_is_the_best_so_far(stage):
    asked(stage)
    head = stage("list", "--json", expect=0).doc[0]
    assert (head["score"], head["best_score"], head["best_iteration"]) == (1.0, 1.0, 1)
    assert "nothing to restore" in stage("restore", "r", expect=0).err
    assert (stage.folder / "work.txt").exists()


def test_an_answer_that_a_stop_made_void_is_not_called_taken(stage):
    asked(stage)
    store = SqliteStore(stage.folder / ".agent-state/loopwright.db")
    store.signal("r", "stop/1", encode_signal(ev.StopRequested(by="ann", key="stop/1")))
    store.close()
    late = stage("approve", "r", expect=3)
    assert "nothing follows from it" in late.err
    assert stage.of(ev.RunFinished)[-1].reason == "stopped_by_user"
    assert [n.problem for n in stage.of(ev.Noticed)]


def test_an_empty_request_or_reason_answers_nothing(stage):
    asked(stage)
    assert "--approval is empty" in stage("approve", "r", "--approval", "", expect=2).err
    assert "an override needs a reason" in stage("approve", "r", "--override", " ", expect=2).err
    assert not stage.of(ev.ApprovalDecided)


def test_the_next_command_names_the_store_that_was_named(stage):
    asked(stage, "--store", "files:runs of mine")
    told = stage("show", "r", "--store", "files:runs of mine", expect=0).out
    assert "approve r --store 'files:runs of mine'" in told
    stage("approve", "r", "--store", "files:runs of mine", expect=0)


def test_a_process_below_a_run_cannot_forget_where_it_is(stage):
    asked(stage)
    below = f"env -u LOOPWRIGHT_RUN {sys.executable} -m loopwright approve r"
    stage("run", "--goal", "g", "--agent", f"sh -c '{below}; echo said'", "--gate", "false", "--workspace", "none",
          "--as", "other", "--max-iterations", "1", "--no-baseline", expect=3)  # fmt: skip
    assert not stage.of(ev.ApprovalDecided)
    assert "refused inside run other" in stage("show", "other", "--log", "--iteration", "1", expect=0).out


def test_a_late_answer_brings_about_what_silence_means(stage):
    asked(stage, "--set", "approval.timeout=0.2s")
    (request,) = stage.of(ev.ApprovalRequested)
    until(lambda: datetime.now(UTC) > request.deadline)
    late = stage("approve", "r", expect=3)
    assert "nobody answered in time" in late.err
    head = stage("list", "--json", expect=0).doc[0]
    assert (head["reason"], head["next"]) == ("approval_expired", "loopwright ask-again r")


def test_a_pause_ends_the_wait_for_a_person(stage):
    with stage.started(*stage.loop("--approve", "passed", gate="test -e work.txt")) as process:
        until(lambda: stage.of(ev.ApprovalRequested))
        stage("pause", "r", expect=0)
        assert process.wait(30) == 6
    stage("approve", "r", expect=0)
    assert stage.of(ev.RunFinished)[-1].reason == "quality_reached"


def test_a_damaged_run_does_not_hide_what_waits(stage):
    asked(stage)
    stage("run", "--goal", "g", "--agent", "true", "--gate", "false", "--workspace", "none", "--as", "q",
          "--max-iterations", "1", "--no-baseline")  # fmt: skip
    db = sqlite3.connect(stage.folder / ".agent-state/loopwright.db", isolation_level=None)
    db.execute("UPDATE heads SET body = x'00', active = 1")
    db.execute(
        "UPDATE commits SET body = x'00' WHERE id / 4294967296 = (SELECT id FROM runs WHERE run = 'q')"
    )
    db.close()
    told = stage("approvals", "--json", expect=9)
    assert [row["run"] for row in told.doc] == ["r"]
    assert "run q" in told.err


def test_nothing_waits_where_nothing_ever_ran(stage):
    assert stage("approvals", "--json", expect=0).doc == []


def test_only_text_and_bytes_are_written(tmp_path):
    path = tmp_path / "port.txt"
    path.write_text("8080")
    with pytest.raises(TypeError, match="the content is int"):
        write_once(path, 8080)
    assert path.read_text() == "8080"


def test_the_work_a_person_is_asked_about_can_be_applied(stage):
    stage.git("init", "-q", "-b", "main")
    stage.git("commit", "-q", "--allow-empty", "-m", "x")
    asked(stage, "--workspace", "worktree")
    assert "work.txt" in stage("apply", "r", expect=0).out
    assert (stage.folder / "work.txt").exists()
