"""What moves the evidence: a person's word and a person's hand, never a crash, never the agent."""

from __future__ import annotations

from loopwright.core import events as ev

PASSES = {"write": {"check.sh": "exit 0\n"}, "say": "worked"}
IDLE = {"say": "nothing to do"}


def actions(stage):
    return [(fact.action, fact.paths) for fact in stage.of(ev.EvidenceChanged)]


def test_after_a_crash_a_person_is_asked_and_an_approval_moves_the_baseline(stage):
    stage.write("check.sh", "exit 1\n")
    stage.script({**PASSES, "hold": True}, IDLE)
    with stage.started(*stage.loop("--no-baseline", gate="sh check.sh")) as process:
        stage.held(process)
        process.kill()
        process.wait()
    stage("resume", "r", "--no-wait", expect=6)
    assert actions(stage) == [("asked", ("check.sh",))]
    stage("approve", "r", expect=0)
    stage("resume", "r", expect=0)
    assert len(stage.calls) == 2


def test_after_a_crash_files_go_back_where_a_person_says_so(stage):
    stage.write("check.sh", "exit 1\n")
    stage.script({**PASSES, "hold": True}, IDLE)
    with stage.started(*stage.loop("--no-baseline", "--max-iterations", "1", gate="sh check.sh")) as process:
        stage.held(process)
        process.kill()
        process.wait()
    stage("resume", "r", "--no-wait", expect=6)
    stage("revise", "r", "--note", "leave it", expect=0)
    stage("resume", "r", expect=3)
    assert stage.folder.joinpath("check.sh").read_text() == "exit 1\n"
    assert actions(stage)[-1] == ("restored", ("check.sh",))


def test_what_the_user_edits_while_no_attempt_runs_is_the_new_truth(stage):
    stage.write("check.sh", "exit 1\n")
    stage.script(IDLE)
    stage.run("--no-baseline", "--max-iterations", "1", gate="sh check.sh", expect=3)
    stage.write("check.sh", "exit 0\n")
    stage.write("conftest.py", "")
    stage("resume", "r", "--add-iterations", "1", expect=0)
    assert actions(stage) == []


def test_a_loop_file_of_any_name_is_evidence_also_after_a_resume(stage):
    text = f"goal = 'g'\nagent = '{stage.agent}'\ngates = ['true']\n"
    stage.write("strict.toml", text)
    stage.script({"append": {"strict.toml": "threshold = 0.0\n"}, "say": "worked"}, IDLE)
    options = ("--as", "r", "--no-baseline", "--max-iterations", "1")
    stage("run", "strict.toml", *options, expect=3)
    assert actions(stage) == [("blocked", ("strict.toml",))]
    stage("resume", "r", "--add-iterations", "1", expect=3)
    assert "undo strict.toml" in stage("show", "r", "--prompt", "--iteration", "2", expect=0).out
