"""What bubblewrap keeps in and out, as it is installed here."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.stage import Stage

sys.path.append(str(Path(__file__).parents[1] / "serving"))

from test_payload import AGENT, EVIL, found, served


@pytest.fixture
def stage(tmp_path):
    stage = Stage.made(tmp_path, {"write": {"done.txt": "yes\n"}, "say": "done"})
    stage.git("init", "-q")
    return stage


TRIES = """
echo mine > work.txt; echo no > {outside}; cat {secret} > seen.txt; ls .agent-state > state.txt
echo no > .git/planted; mv .git gone; kill -9 {pid}; echo "$LOOPWRIGHT_ARTIFACTS" > where.txt
touch "$LOOPWRIGHT_ARTIFACTS/note" /tmp/private && echo ok > done.txt; exit 0
"""


def test_what_walls_keep_in(stage, tmp_path):
    home, outside = tmp_path / "home", tmp_path / "outside.txt"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id").write_text("secret")
    outside.write_text("as it was\n")
    stage.env["HOME"] = str(home)
    stage.write("try.sh", TRIES.format(outside=outside, secret=home / ".ssh/id", pid=os.getpid()))
    with subprocess.Popen(["sleep", "300"]) as other:
        stage.write("kill.sh", f"kill -9 {other.pid}")
        words = (
            "run",
            "--goal",
            "g",
            "--agent",
            "sh try.sh",
            "--gate",
            "test -s done.txt",
            "--gate",
            "sh -c 'sh kill.sh; true'",
        )
        stage(*words, "--as", "r", "--set", "sandbox=bwrap", expect=0)
        assert other.poll() is None
        other.kill()
    read = {name: (stage.folder / f"{name}.txt").read_text() for name in ("work", "seen", "state", "where")}
    assert outside.read_text() == "as it was\n"
    assert read["work"] == "mine\n"
    assert read["seen"] == ""
    assert read["state"].split() == ["artifacts", "once"]
    assert (stage.folder / ".git/HEAD").exists()
    assert not (stage.folder / ".git/planted").exists()
    assert Path(read["where"].strip(), "note").exists()


def words_of(process):
    try:
        return (process / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
    except OSError:
        return b""


@pytest.mark.parametrize("patient", [True, False])
def test_a_walled_program_gets_its_grace_and_leaves_nothing(stage, patient):
    ending = "trap 'echo bye > bye.txt; exit 0' TERM" if patient else "trap '' TERM"
    stage.write(
        "slow.sh", f"{ending}\nsleep 397 & setsid sleep 398 &\ntouch up.txt\nwhile :; do sleep 0.05; done\n"
    )
    words = ("run", "--goal", "g", "--agent", "sh slow.sh", "--gate", "false", "--as", "r", "--no-baseline")
    began = time.monotonic()
    limits = ("--max-iterations", "1", "--set", "limits.attempt_timeout=1s", "--set", "limits.grace=1s")
    stage(*words, *limits, "--set", "sandbox=bwrap", expect=3)
    assert time.monotonic() - began < 20
    assert (stage.folder / "bye.txt").exists() is patient
    assert not {b"sleep 397", b"sleep 398"} & set(map(words_of, Path("/proc").glob("[0-9]*")))


CLEAN = """
agent = "sh -c 'echo yes > done.txt; echo done'"
sandbox = "bwrap"
[[gate]]
use = "command"
run = ["sh", "-c", "test -s done.txt -a ! -e .git && touch mine"]
clean = true
"""


def test_a_clean_gate_has_its_checkout_within_the_walls(stage):
    stage.write("loop.toml", f"goal = 'g'{CLEAN}")
    stage("run", "--as", "r", expect=0)
    assert not (stage.folder / "mine").exists()


def test_what_started_a_run_is_read_through_the_walls_and_not_written(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    agent = AGENT.replace(
        "env > env.txt", "if echo x >> $LOOPWRIGHT_PAYLOAD_FILE; then echo > changed.txt; fi; env > env.txt"
    )
    served(project, '[workspace]\nmode = "folder"\n', agent=agent + 'sandbox = "bwrap"\n')
    assert json.loads(found(project, "seen.json")) == EVIL
    assert not list(project.rglob("changed.txt"))
    assert Path(found(project, "where.txt").strip()).is_file()
