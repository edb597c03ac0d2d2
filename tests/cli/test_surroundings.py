"""What a run does to its surroundings, and what it tells: the workspace, git, the environment, streams, reading verbs.

Rule: the user's own things are as they were, whatever the agent did; stdout is data and stderr is for people.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest
from stage import FREE, WORK, Stage, files

from loopwright import codec
from loopwright.core import events as ev
from loopwright.core.head import readable
from loopwright.journal import history
from loopwright.stores.sqlite import SqliteStore

EVENT_KEYS = {"n", "type", "at"}
GATE_KEYS = ["iteration", "gate", "status", "value", "raw", "unit", "reason", "cause", "evidence", "spent"]


def repository(stage: Stage) -> None:
    """Committed, staged, edited, stashed and untracked files of the user's."""
    stage.git("init", "-q", "-b", "main")
    for name in ("committed", "staged", "edited"):
        stage.write(name, f"{name}\n")
    stage.git("add", ".")
    stage.git("commit", "-qm", "first")
    stage.write("committed", "stashed\n")
    stage.git("stash", "-q")
    stage.write("staged", "staged, changed\n")
    stage.git("add", "staged")
    stage.write("edited", "edited, not staged\n")
    stage.write("untracked", "mine\n")


def theirs(stage: Stage) -> tuple[str, bytes, str, str]:
    return (
        stage.git("rev-parse", "HEAD", "main"),
        (stage.folder / ".git/index").read_bytes(),
        stage.git("stash", "list"),
        stage.git("config", "--list", "--local"),
    )


def test_branch_index_stash_and_files_are_untouched(stage):
    repository(stage)
    before = theirs(stage)
    stage.run("--max-iterations", "2", expect=3)
    stage("restore", "r", "--iteration", "1", expect=0)
    assert (stage.folder / "work.txt").read_text() == "1\n"
    stage("restore", "r", "--iteration", "0", expect=0)
    assert not (stage.folder / "work.txt").exists()
    assert theirs(stage) == before
    assert (stage.folder / "edited").read_text() == "edited, not staged\n"
    assert (stage.folder / "untracked").read_text() == "mine\n"
    assert stage.git("status", "--porcelain").splitlines() == [" M edited", "M  staged", "?? untracked"]


def test_diff_of_a_run_and_of_an_iteration(stage):
    stage.run("--max-iterations", "2", expect=3)
    whole = stage("diff", "r", "--json", expect=0).doc
    assert (whole["files"], whole["lines"]) == (["work.txt"], 2)
    second = stage("diff", "r", "--iteration", "2", expect=0).out.splitlines()
    assert "+2" in second
    assert "+1" not in second
    assert stage("show", "r", "--diff", expect=0).out == stage("diff", "r", expect=0).out


def test_restore_refuses_foreign_edits_and_force_keeps_them(stage):
    stage.run("--max-iterations", "1", expect=3)
    stage.write("work.txt", "my own words\n")
    refused = stage("restore", "r", "--iteration", "0", expect=2).err
    assert "--force" in refused
    assert (stage.folder / "work.txt").read_text() == "my own words\n"
    stage("restore", "r", "--iteration", "0", "--force", expect=0)
    assert not (stage.folder / "work.txt").exists()
    tree = re.search(r"kept as snapshot ([0-9a-f]{40})", refused)[1]
    (kept,) = {head.parent for head in (stage.folder / ".agent-state/git").rglob("HEAD")}
    assert stage.git("--git-dir", str(kept), "cat-file", "-p", f"{tree}:work.txt") == "my own words\n"
    assert tree in stage.git("--git-dir", str(kept), "for-each-ref", "--format=%(tree)")


def test_protected_files_are_put_back_and_the_run_says_so(stage):
    stage.write("tests/t.txt", "the truth\n")
    stage.script({"write": {"tests/t.txt": "a lie\n", "work.txt": "x"}, "delete": [], "say": "worked"})
    ran = stage.run("--max-iterations", "1", "--set", 'protected=["tests/**"]', expect=3)
    assert (stage.folder / "tests/t.txt").read_text() == "the truth\n"
    assert "the agent changed protected files; put back: tests/t.txt" in ran.err
    (changed,) = stage.of(ev.EvidenceChanged)
    assert (changed.paths, changed.action) == (("tests/t.txt",), "restored")
    assert "restored: tests/t.txt" in stage("show", "r", expect=0).out


def test_output_redirected_into_the_workspace_is_in_no_snapshot(stage):
    line = stage.command(*stage.loop("--max-iterations", "2", "--json"))
    with (stage.folder / "out.json").open("w") as out, (stage.folder / "err.txt").open("w") as err:
        subprocess.run(line, cwd=stage.folder, env=stage.env, stdout=out, stderr=err, check=False, timeout=60)
    assert json.loads((stage.folder / "out.json").read_text())["reason"] == "max_iterations"
    assert stage("diff", "r", "--json", expect=0).doc["files"] == ["work.txt"]
    (claimed,) = stage.of(ev.Claimed)
    assert sorted(Path(p).name for p in claimed.outputs) == ["err.txt", "out.json"]


def environment(stage: Stage, *args: str, **env: str) -> tuple[dict[str, str], str]:
    stage.script({"env": "env.json", "say": "worked"})
    ran = stage(*stage.loop("--max-iterations", "1", *args), expect=3, **env)
    return json.loads((stage.folder / "env.json").read_text()), ran.err


def test_secrets_are_withheld_and_env_lets_through(stage):
    for name in (".venv/bin", "node_modules/.bin"):
        (stage.folder / name).mkdir(parents=True)
    secrets = {
        "API_KEY": "k",
        "DB_TOKEN": "t",
        "DATABASE_URL": "pg://u:p@h/d",
        "KEYBOARD": "de",
        "PLAIN": "p",
    }
    seen, said = environment(stage, "--env", "DB_TOKEN", **secrets)
    assert {name: seen.get(name) for name in secrets} == {
        "API_KEY": None,
        "DB_TOKEN": "t",
        "DATABASE_URL": None,
        "KEYBOARD": "de",
        "PLAIN": "p",
    }
    assert "withheld from agent and gates: API_KEY, DATABASE_URL" in said
    ours = {k: v for k, v in seen.items() if k.startswith("LOOPWRIGHT_")}
    assert ours["LOOPWRIGHT_RUN"] == "r"
    assert ours["LOOPWRIGHT_KEY"] == "r/1"
    assert (ours["LOOPWRIGHT_ITERATION"], ours["LOOPWRIGHT_ATTEMPT"]) == ("1", "1")
    assert ours["LOOPWRIGHT_WORKDIR"] == str(stage.folder)
    assert Path(ours["LOOPWRIGHT_PROMPT_FILE"]).is_relative_to(ours["LOOPWRIGHT_ARTIFACTS"])
    own = [str(stage.folder / name) for name in (".venv/bin", "node_modules/.bin")]
    assert seen["PATH"] == os.pathsep.join(
        [*own, stage.env["PATH"]]
    )  # the project's tools, then the user's PATH
    everything = (stage.folder / ".agent-state").rglob("*")
    assert not any(b"pg://u:p@h/d" in f.read_bytes() for f in everything if f.is_file())


def test_opening_lines_say_what_runs_and_what_binds(stage):
    err = stage.run("--max-iterations", "1", "--budget", "3", "--max-duration", "90s").err
    program = stage.agent.split()[0]
    assert f"  agent {Path(program).name}: {program} -I -S" in err
    assert "  gate false: /" in err
    (limits,) = [line for line in err.splitlines() if line.startswith("  limits: ")]
    for bound in (
        "$3.00",
        "1 iteration,",
        "1m30s of work",
        "8h of waiting",
        "3 attempts of 15m",
        "10m a gate",
    ):
        assert bound in limits


def test_left_out_files_are_said_once(stage):
    stage.write(".env", "SECRET=1\n")
    err = stage.run("--max-iterations", "2").err
    assert err.count(".env") == 1


# Streams


def test_off_a_terminal_there_is_no_colour_and_stdout_is_only_data(stage):
    ran = stage.run("--max-iterations", "1")
    assert json.loads(ran.out)["run"] == "r"
    assert "\x1b" not in ran.out + ran.err
    assert "#1" in ran.err
    plain = stage(*stage.loop("--as", "p", "--max-iterations", "1"))
    assert plain.out == ""
    assert "max_iterations" in plain.err


def test_on_a_terminal_stdout_is_data_too_and_no_color_is_heeded(stage):
    ours, theirs_ = pty.openpty()
    line = stage.command(*stage.loop("--max-iterations", "1", "--json"))
    env = {**stage.env, "NO_COLOR": "1", "TERM": "xterm"}
    with subprocess.Popen(
        line, cwd=stage.folder, env=env, stdin=theirs_, stdout=subprocess.PIPE, stderr=theirs_
    ) as process:
        os.close(theirs_)
        out = process.stdout.read()
        said = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:
                break
            if not chunk:
                break
            said += chunk
    os.close(ours)
    assert process.returncode == 3
    assert json.loads(out)["run"] == "r"
    assert b"\x1b[3" not in said
    assert b"max_iterations" in said


def test_what_an_agent_prints_cannot_drive_the_terminal(stage):
    stage.script({"stderr": "\x1b[2Jowned\x07", "exit": 1})
    ran = stage.run("--max-iterations", "1")
    for text in (
        ran.out,
        ran.err,
        stage("show", "r").out,
        stage("show", "r", "--log").out,
        stage("why", "r").out,
    ):
        assert "\x1b" not in text
        assert "\x07" not in text


def test_a_closed_pipe_is_no_error(stage):
    for line, code in ((stage.loop("--max-iterations", "1", "--json"), 3), (["show", "r", "--events"], 0)):
        with stage.started(*line) as process:
            process.stdout.close()
            assert process.wait(timeout=60) == code
            assert "Traceback" not in process.stderr.read()


# Reading verbs


def test_list_is_empty_before_the_first_run_and_creates_nothing(stage):
    assert stage("list", "--json", expect=0).doc == []
    assert files(stage.folder) == []


def test_shapes_of_reading_verbs(stage):
    stage.script(FREE | WORK)
    ran = stage.run("--max-iterations", "2", expect=3)
    assert stage("list", "--json", expect=0).doc == []
    assert stage("list", "--all", "--json", expect=0).doc == [ran.doc]
    assert stage("show", "r", "--json", expect=0).doc == ran.doc
    gates = stage("show", "r", "--gates", "--json", expect=0).doc
    assert [list(row) for row in gates] == [GATE_KEYS] * 3
    assert [(row["iteration"], row["gate"], row["status"]) for row in gates] == [
        (n, "false", "fail") for n in (0, 1, 2)
    ]
    facts = stage("show", "r", "--events", "--json", expect=0).doc
    assert all(fact.keys() >= EVENT_KEYS for fact in facts)
    assert [fact["type"] for fact in facts] == [type(f).__name__ for f in stage.facts()]
    assert [fact["n"] for fact in facts] == sorted(fact["n"] for fact in facts)
    started = next(fact for fact in facts if fact["type"] == "AttemptStarted")
    assert started.keys() >= {"iteration", "attempt", "key", "snapshot", "allowance_s", "reserve_usd"}
    assert stage("show", "r", "--health", "--json", expect=0).doc["healthy"] is True
    for words in ("show r", "show r --gates", "show r --events", "show r --health", "show r --log", "why r"):
        assert stage(*words.split(), expect=0).out


def test_checkpoints_equal_the_fold(stage):
    stage.run("--max-iterations", "3", expect=3)
    store = SqliteStore(stage.folder / ".agent-state/loopwright.db")
    folds = {
        state.iteration: codec.loads(codec.dumps(readable(state)))
        for _, _, event, state in history(store, "r")
        if isinstance(event, ev.IterationClosed)
    }
    store.close()
    assert sorted(folds) == [0, 1, 2, 3]
    for number, fold in folds.items():
        assert stage("show", "r", "--checkpoint", str(number), "--json", expect=0).doc == fold
        assert f"iteration {number} closed" in stage("show", "r", "--checkpoint", str(number), expect=0).out
    for number in ("4", "-1"):
        said = stage("show", "r", "--checkpoint", number, expect=2).err
        assert f"no checkpoint {number}: there are 0 to 3" in said


def test_verbs_find_the_runs_above_and_with_c(stage):
    stage.run("--max-iterations", "1")
    (stage.folder / "deep/er").mkdir(parents=True)
    assert stage("show", "latest", "--json", "-C", "deep/er", expect=0).doc["run"] == "r"
    (stage.folder / "deep/.git").mkdir()  # another repository: its root ends the search
    assert "no runs here" in stage("show", "latest", "-C", "deep/er", expect=2).err


def test_a_store_elsewhere(stage):
    stage.run("--max-iterations", "1", "--store", "sqlite:///../far.db", expect=3)
    assert (stage.folder.parent / "far.db").exists()
    far = ("--store", "sqlite:///../far.db")
    assert stage("show", "r", "--json", *far, expect=0).doc["run"] == "r"
    assert stage("list", "--all", "--json", expect=0, LOOPWRIGHT_STORE=far[1]).doc[0]["run"] == "r"
    gone = stage("list", "--store", "sqlite:///../gone.db", expect=2)
    assert "gone.db does not exist" in gone.err


@pytest.mark.parametrize("verb", ["show", "list"])
def test_reading_verbs_work_beside_a_running_run(stage, verb):
    stage.script({**WORK, "hold": True})
    with stage.started(*stage.loop()) as process:
        stage.held(process)
        doc = stage(verb, *(["r"] if verb == "show" else []), "--json", expect=0).doc
        head = doc if verb == "show" else doc[0]
        assert (head["phase"], head["reason"], head["exit_code"]) == ("executing", None, None)
        process.send_signal(signal.SIGKILL)


def test_an_agent_that_breaks_the_repository_ends_no_run(stage):
    stage.git("init", "-q", "-b", "main")
    stage.git("commit", "-q", "--allow-empty", "-m", "first")
    stage.run("--max-iterations", "1", "--no-baseline", expect=3)
    broken = (
        "run",
        "--goal",
        "g",
        "--agent",
        "sh -c 'echo x > new.txt; rm .git/HEAD'",
        "--gate",
        "test -s new.txt",
    )
    stage(*broken, "--as", "b", expect=0)
    for verb in (("diff", "b"), ("restore", "b", "--iteration", "1")):
        assert "its HEAD is gone or says nothing" in stage(*verb, expect=2).err
    stage.write(".git/HEAD", "ref: refs/heads/main\n")
    assert "+x" in stage("diff", "b", expect=0).out
