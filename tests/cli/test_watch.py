"""`watch`: a run followed from a second terminal; it ends by itself, exits 0 and changes nothing."""

from __future__ import annotations

import re
import signal
import subprocess

import pytest
from stage import WORK, until

from loopwright.cli.watch import _sign

TALKS = "sh -c 'echo worked on it; : > ../held; until [ -e ../go ]; do sleep 0.02; done; echo x >> work.txt'"


@pytest.fixture
def talking(stage):
    """The arguments of a run whose agent says something and holds."""
    return ["run", "--goal", "g", "--agent", TALKS, "--gate", "false", "--as", "r", "--max-iterations", "1"]


def reading(process):
    """The lines of a process as they come."""
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        yield lines


def test_it_follows_a_run_until_it_is_over(stage, talking):
    with stage.started(*talking) as run:
        until((stage.folder.parent / "held").exists)
        with stage.started("watch", "r") as watch:
            for lines in reading(watch):
                if "last output" in lines[-1]:
                    break
            assert 'worked on it"' in lines[-1] and "agent at work for" in lines[-1]
            (stage.folder.parent / "go").touch()
            out, err = watch.communicate(timeout=60)
            assert (watch.returncode, err) == (0, "")
        assert run.wait(timeout=60) == 3
    text = "\n".join([*lines, *out.splitlines()])
    order = [
        "the run began",
        "#0   false ✗",
        "#0   not_accepted",
        "the agent begins",
        "#1   false ✗",
        "#1   not_accepted",
        "ended: max_iterations",
    ]
    assert sorted(order, key=text.index) == order
    assert out.splitlines()[-1] == "  next: loopwright resume r --add-iterations 10"


def test_ctrl_c_ends_the_watching_and_not_the_run(stage, talking):
    with stage.started(*talking) as run:
        until((stage.folder.parent / "held").exists)
        facts = len(stage.facts())
        with stage.started("watch", "r") as watch:
            for lines in reading(watch):
                if "last output" in lines[-1]:
                    break
            watch.send_signal(signal.SIGINT)
            out, _ = watch.communicate(timeout=60)
            assert watch.returncode == 0 and "the run goes on" in out
        assert run.poll() is None and len(stage.facts()) == facts
        (stage.folder.parent / "go").touch()
        assert run.wait(timeout=60) == 3


def test_it_says_when_nobody_drives_the_run(stage):
    stage.script({**WORK, "hold": True})
    with stage.started(*stage.loop()) as run:
        stage.held(run)
        run.send_signal(signal.SIGKILL)
        run.wait()
    ran = stage("watch", "r", expect=0)
    assert "nobody drives this run" in ran.out
    assert ran.out.splitlines()[-1] == "  next: loopwright resume r"


def test_a_run_that_rests_is_told_at_once(stage):
    stage.run("--max-iterations", "1", expect=3)
    over = stage("watch", "r", expect=0).out
    assert "ended: max_iterations" in over
    stage(
        "run",
        "--goal",
        "g",
        "--agent",
        stage.agent,
        "--gate",
        "true",
        "--no-wait",
        "--approve",
        "passed",
        "--as",
        "q",
        expect=6,
    )
    asking = stage("watch", "q", expect=0).out
    assert "a person is asked: accept iteration 1" in asking


def test_nobody_reads_on(stage):
    stage.run("--max-iterations", "1", expect=3)
    pipe = subprocess.Popen(
        stage.command("watch", "r"),
        cwd=stage.folder,
        env=stage.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    pipe.stdout.close()
    assert pipe.wait(timeout=60) == 0
    assert b"Traceback" not in pipe.stderr.read()
    pipe.stderr.close()


def test_an_event_of_a_cli_is_a_sign_of_life_and_nothing_to_read(tmp_path):
    log = tmp_path / "agent.log"
    log.write_text('working on it\n{"type": "assistant", "message": {}}\n')
    assert re.fullmatch(r", last output \S+ ago", _sign(log))
    log.write_text("working on it\n")
    assert _sign(log).endswith(' ago: "working on it"')
