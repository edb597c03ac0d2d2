"""`run --dry-run`: iteration 0 of the run, and nothing of it kept."""

import json
import signal
import sys
from pathlib import Path

import pytest
from stage import files, until

from loopwright.cli.app import run_app

GATE = "sh -c 'test -f done.txt || { echo no done.txt; exit 1; }'"


@pytest.fixture
def dry(stage, capsys, monkeypatch):
    """Calls `run --dry-run` in this process: the exit code, stdout and stderr."""
    monkeypatch.delenv("LOOPWRIGHT_RUN", raising=False)

    def call(*args, gate=GATE, goal=("--goal", "g")):
        gates = ["--gate", gate] if gate else []
        agent = ["--agent", stage.agent] if goal else []
        code = run_app(["run", *goal, *agent, *gates, "--dry-run", "-C", str(stage.folder), *args])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_it_says_how_the_work_stands_and_what_would_bind_the_run(stage, dry):
    code, out, _ = dry("--max-iterations", "7", "--approve", "passed", "--set", "limits.gate_timeout='2m'")
    assert code == 0
    assert "scripted.py" in out and "no done.txt" in out and "does not pass today" in out
    assert "7 iterations" in out and "2m a gate" in out and "stall stop" in out
    assert "approval: passed, hold when nobody answers" in out
    assert "would start the agent: iteration 1 of at most 7" in out
    assert stage.calls == []


def test_nothing_is_left_in_the_project_or_its_repository(stage, dry):
    stage.git("init", "-q")
    stage.write("a.txt", "1\n")
    stage.git("add", ".")
    stage.git("commit", "-qm", "x")
    stage.write("a.txt", "2\n")
    before = files(stage.folder)
    assert dry("--set", "protected=['a.txt']")[0] == 0
    assert files(stage.folder) == before


def test_a_gate_that_changes_what_it_judges_is_seen_as_in_a_run(stage, dry):
    stage.git("init", "-q")
    stage.write("a.txt", "1\n")
    code, out, _ = dry(gate="sh -c 'echo 2 > a.txt'")
    assert code == 7
    assert "it changed a.txt of the work it judged" in out and "the run would end here: gate_error" in out


def test_the_document(stage, dry, capsys):
    stage.write("done.txt", "")
    code, out, _ = dry("--json", "--budget", "5", "--as", "x", "--no-baseline")
    said = json.loads(out)
    assert code == 0
    assert (said["schema"], said["passed"], said["verdict"]["score"]) == ("loopwright/dry-run/v1", True, 1.0)
    assert said["limits"]["budget"] == 5 and said["approval"]["when"] == "never"
    assert said["agent"]["who"].startswith("agent python") and "scripted.py" in said["agent"]["command"]
    (gate,) = said["gates"]
    assert (gate["iteration"], gate["gate"], gate["status"]) == (0, "sh", "pass")
    assert set(gate) == {
        *("iteration", "gate", "status", "value", "raw", "unit", "reason", "cause", "evidence")
    }
    assert "--no-baseline" in said["notes"][0] and "passes already" in said["next"]


def test_a_loop_file_works_with_options_and_another_gate(stage, dry):
    stage.file("gates = ['true']\nif_passing = 'finish'\n[workspace]\nmode = 'folder'")
    code, out, _ = dry(gate=None, goal=())
    assert code == 0
    assert "already_satisfied" in out and "a folder of its own (folder)" in out
    code, out, _ = dry(gate="false", goal=())
    assert (code, "does not pass today (score 0.50): false" in out) == (0, True)


def test_what_cannot_start_is_refused_as_a_run_refuses_it(stage, dry):
    assert dry(gate="no-such-program-here")[0] == 2
    stage.write("gate.sh", "exit 0\n")
    code, _, err = dry(gate="./gate.sh")
    assert code == 2 and "not executable" in err
    assert files(stage.folder) == ["gate.sh"]


def test_a_run_at_work_is_not_disturbed(stage, dry):
    stage.script({"hold": True})
    with stage.started(*stage.loop()) as process:
        stage.held(process)
        code, _, err = dry()
        assert code == 8 and "in use by run r" in err
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
    lock = next((stage.folder / ".agent-state/locks").iterdir())
    before, facts = lock.read_bytes(), stage.facts()
    assert b'"run": "r"' in before
    seen = files(stage.folder)
    assert dry()[0] == 0
    assert (lock.read_bytes(), stage.facts(), files(stage.folder)) == (before, facts, seen)


def test_importing_the_project_leaves_no_bytecode_in_it(stage, dry, monkeypatch):
    monkeypatch.setattr("sys.path", list(sys.path))
    stage.write("own_checks.py", "def fine(result):\n    return 0.5\n")
    code, out, _ = dry(gate="own_checks:fine")
    assert code == 0 and "fine" in out and "0.50" in out
    assert files(stage.folder) == ["own_checks.py"]


def test_a_secret_in_the_goal_is_not_shown(stage, dry, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "s3cr3t-v4lue-0123456789")
    code, out, _ = dry(
        "--json", gate="sh -c 'true s3cr3t-v4lue-0123456789'", goal=("--goal", "use s3cr3t-v4lue-0123456789")
    )
    assert code == 0 and "s3cr3t-v4lue" not in out
    assert json.loads(out)["withheld"] == ["MY_API_KEY"]


def test_an_id_that_a_run_could_not_have_is_refused(stage, dry):
    assert dry("--as", "latest")[0] == 2


def test_without_a_workspace_there_is_nothing_to_judge(stage, dry):
    code, out, _ = dry("--workspace", "none")
    assert code == 0 and "not judged" in out and "the gates judge what the agent returns" in out


def test_ctrl_c_ends_it_and_the_gate(stage):
    gate = "sh -c 'echo $$ > ../pid; exec sleep 60'"
    args = ["run", "--dry-run", "--goal", "g", "--agent", "true", "--gate", gate]
    with stage.started(*args) as process:
        pid = stage.folder.parent / "pid"
        until(lambda: pid.exists() and pid.read_text().strip())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "nothing is known" in err
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
    assert files(stage.folder) == []
