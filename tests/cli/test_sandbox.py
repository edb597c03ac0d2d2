"""What agent and gates are started through: a command of the user's, or bubblewrap where it can run.

`fake` stands for bubblewrap: it writes down what it is asked for and runs the rest, without any walls. What the real
one keeps out is tried by `make test-tools`.
"""

import os
import shutil

import pytest
from stage import PYTHON, Stage

from loopwright.core import events as ev

FAKE = """#!/bin/sh
printf '%s ' "$@" >> "$0.calls"; echo >> "$0.calls"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def stage(tmp_path):
    stage = Stage.made(tmp_path, {"write": {"done.txt": "yes\n"}, "say": "done", "env": "env.json"})
    stage.git("init", "-q")
    return stage


def program(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def put_before(stage, folder):
    stage.env["PATH"] = f"{folder}{os.pathsep}{stage.env['PATH']}"


def calls(bwrap):
    return [line.split() for line in bwrap.with_name("bwrap.calls").read_text().splitlines()]


def bound(call):
    """What is writable."""
    return [call[i + 1] for i, word in enumerate(call) if word == "--bind"]


def test_agent_and_gates_and_setup_are_started_through_bwrap(stage, tmp_path):
    bwrap = program(tmp_path / "bin", "bwrap", FAKE)
    put_before(stage, bwrap.parent)
    program(
        stage.folder / ".venv/bin", "bwrap", "#!/bin/sh\necho planted > planted.txt\n"
    )  # an agent could have left it
    ran = stage.run("--set", "sandbox=bwrap", gate="test -s done.txt", expect=0)
    assert f"sandbox: {bwrap}" in ran.err
    assert stage.of(ev.RunStarted)[0].spec["sandbox"] == "bwrap"
    assert not (stage.folder / "planted.txt").exists()
    trial, baseline, agent, gate = calls(bwrap)
    assert trial[-1] == "true"
    assert agent[agent.index("--") + 3] == PYTHON.split()[0]
    assert gate[-3:] == [shutil.which("test"), "-s", "done.txt"]
    state = stage.folder / ".agent-state"
    own = [str(stage.folder), str(state / "once")]
    assert bound(agent) == [*own, str(state / "artifacts/r/0001/attempt-1")]
    assert bound(gate) == [*own, str(state / "artifacts/r/0001/gate-test")]
    assert bound(baseline) == [*own, str(state / "artifacts/r/0000/gate-test")]
    for call in (agent, gate):  # later mounts hide earlier ones
        whole = " ".join(call)
        assert whole.index("--ro-bind / /") < whole.index("--tmpfs /tmp") < whole.index(f"--bind {own[0]} ")
        assert whole.index(f"--bind {own[0]} ") < whole.rindex(f"--ro-bind {own[0]}/.git ")
        assert (
            whole.index(f"--bind {own[0]} ")
            < whole.index(f"--tmpfs {state}")
            < whole.index(f"--bind {state}/art")
        )
        assert {"--die-with-parent", "--unshare-pid"} <= set(call)


def test_a_folder_apart_is_what_can_be_written(stage, tmp_path):
    bwrap = program(tmp_path / "bin", "bwrap", FAKE)
    put_before(stage, bwrap.parent)
    home = tmp_path / "home"
    for name in (".ssh", ".claude", ".cache"):
        (home / name).mkdir(parents=True)
    (home / ".netrc").touch()
    stage.env["HOME"] = str(home)
    stage.file(
        "gates = ['test -s done.txt']\nsandbox = 'bwrap'\n"
        "[workspace]\nmode = 'folder'\nsetup = ['touch ready.txt']"
    )
    stage("run", "--as", "r", expect=0)
    top = stage.folder / ".agent-state/workspaces/r/work"
    _, setup, _, agent, gate = calls(bwrap)
    assert setup[-2:] == ["touch", "ready.txt"]
    assert bound(setup) == [str(top)]
    assert bound(agent) == [
        str(top),
        f"{stage.folder}/.agent-state/artifacts/r/0001/attempt-1",
        f"{home}/.claude",
    ]
    assert str(home / ".claude") not in bound(gate)
    assert {str(home / ".ssh"), str(home / ".cache")} <= {
        agent[i + 1] for i, word in enumerate(agent) if word == "--tmpfs"
    }
    assert f"--ro-bind /dev/null {home}/.netrc" in " ".join(agent)


def test_a_command_of_the_users(stage, tmp_path):
    walls = program(
        tmp_path / "bin", "walls", '#!/bin/sh\necho "$@" >> "$0.calls"\nexport WALLS=$1\nshift\nexec "$@"\n'
    )
    put_before(stage, walls.parent)
    stage.script({"say": "nothing yet"}, {"write": {"done.txt": "yes\n"}, "env": "env.json", "say": "done"})
    stage.run(
        "--set", 'sandbox=["walls", "high"]', "--max-iterations", "1", gate="test -s done.txt", expect=3
    )
    ran = stage("resume", "r", "--add-iterations", "1", expect=0)
    assert f"sandbox: {walls} high" in ran.err
    assert '"WALLS": "high"' in (stage.folder / "env.json").read_text()
    assert (
        len((walls.parent / "walls.calls").read_text().splitlines()) == 5
    )  # three of gates, two of the agent


def test_what_is_not_there_is_said_and_nothing_is_made(stage, tmp_path):
    only = tmp_path / "only"
    only.mkdir()
    for name in ("git", "true", "env", "sh"):
        (only / name).symlink_to(shutil.which(name))
    stage.env["PATH"] = str(only)
    ran = stage.run("--set", "sandbox=bwrap", gate="true", expect=2)
    assert "sandbox: bwrap is not on PATH: install bubblewrap" in ran.err
    ran = stage.run("--set", 'sandbox=["nowhere", "--x"]', gate="true", expect=2)
    assert "sandbox: there is no program 'nowhere' on PATH" in ran.err
    program(
        tmp_path / "bin", "bwrap", "#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n"
    )
    put_before(stage, tmp_path / "bin")
    ran = stage.run("--set", "sandbox=bwrap", gate="true", expect=2)
    assert "cannot make a sandbox on this machine (setting up uid map: Permission denied)" in ran.err
    assert not (stage.folder / ".agent-state").exists()


def test_functions_cannot_be_walled_in(stage):
    stage.write("mine.py", "def work(attempt):\n    return 1\n\ndef judge(result):\n    return True\n")
    words = ("run", "--goal", "g", "--agent", "mine:work", "--gate", "mine:judge", "--as", "r")
    ran = stage(*words, "--set", 'sandbox=["env"]', expect=2)
    assert "sandbox: agent work is a function, which runs inside loopwright" in ran.err
    assert "sandbox: gate judge is a function" in ran.err
