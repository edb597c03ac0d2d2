"""One run per workspace, decided by the kernel; and the state folder."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys

import pytest

from loopwright.errors import Locked, WorkspaceError
from loopwright.state_folder import create_state
from loopwright.workspace.lock import lock

HOLD = """
import sys, time
from pathlib import Path
from loopwright.workspace.lock import lock
held = lock(Path(sys.argv[1]), Path(sys.argv[2]), "other-run", "owner")
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work", tmp_path / "work/.agent-state"


def file_of(state):
    return next((state / "locks").iterdir())


def holder(place, program=HOLD):
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, place)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_run_is_refused_and_told_who_holds_it(place, tmp_path):
    root, state = place
    with lock(root, state, "green-1", "me"):
        with pytest.raises(
            Locked, match=rf"{root} is in use by run green-1 \(process {os.getpid()} on .*since 20"
        ) as refused:
            lock(root, state, "green-2", "me")
        assert refused.value.exit_code == 8
        alias = tmp_path / "alias"
        alias.symlink_to(root)
        with pytest.raises(Locked):
            lock(alias, state, "green-2", "me")
        (tmp_path / "elsewhere").mkdir()
        lock(tmp_path / "elsewhere", state, "green-2", "me").release()
    held = lock(root, state, "green-2", "me")
    held.release()
    held.release()


def test_the_holder_is_described(place):
    with lock(*place, "green-1", "me"):
        said = json.loads(file_of(place[1]).read_text())
        assert said.keys() == {"run", "pid", "started", "host", "boot", "owner", "root", "since"}
        assert said["started"].isdigit()
        assert stat.S_IMODE(file_of(place[1]).stat().st_mode) == 0o600


def test_the_lock_dies_with_its_process(place):
    process = holder(place)
    try:
        with pytest.raises(Locked, match=rf"run other-run \(process {process.pid} "):
            lock(*place, "green-1", "me")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    lock(*place, "green-1", "me").release()


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe garbage", b"[1]", b'{"pid": 1}', b'{"run": "x", "pid": 1, "host": "h", "since": "s"}'],
)
def test_what_the_file_says_never_blocks(place, content):
    lock(*place, "green-1", "me").release()
    file_of(place[1]).write_bytes(content)
    with lock(*place, "green-2", "me"):
        file_of(place[1]).write_bytes(content)
        with pytest.raises(Locked, match="in use by"):
            lock(*place, "green-3", "me")


def test_children_do_not_keep_it_alive(place):
    """Neither a program started with all descriptors open, nor a bare fork as multiprocessing makes."""
    children = """
import os, subprocess, sys, time
from pathlib import Path
from loopwright.workspace.lock import lock
held = lock(Path(sys.argv[1]), Path(sys.argv[2]), "other-run", "owner")
started = subprocess.Popen(["sleep", "60"], close_fds=False, stdout=subprocess.DEVNULL)
ready, told = os.pipe()
forked = os.fork()
if forked == 0:
    os.write(told, b"x")
    time.sleep(60)
    os._exit(0)
os.read(ready, 1)
print("held", flush=True)
print(started.pid, forked, flush=True)
time.sleep(60)
"""
    process = holder(place, children)
    pids = [int(pid) for pid in process.stdout.readline().split()]
    try:
        with pytest.raises(Locked):
            lock(*place, "green-1", "me")
        process.kill()
        process.wait()
        assert len(pids) == 2
        for pid in pids:
            os.kill(pid, 0)
        lock(*place, "green-1", "me").release()
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_lock_file_that_was_replaced_is_not_enough(place):
    """The lock is taken on the file that others will find, not on one removed meanwhile."""
    root, state = place
    held = lock(root, state, "green-1", "me")
    file_of(state).unlink()
    held.release()
    with lock(root, state, "green-2", "me"), pytest.raises(Locked):
        lock(root, state, "green-3", "me")


def test_the_state_folder_is_private_and_ignored(tmp_path):
    state = tmp_path / "project/.agent-state"
    create_state(state)
    create_state(state)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert (state / ".gitignore").read_text() == "*\n"
    state.chmod(0o755)
    create_state(state)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_a_state_folder_that_cannot_be_trusted_is_refused(tmp_path):
    state = tmp_path / ".agent-state"
    state.mkdir()
    state.chmod(0o777)
    with pytest.raises(WorkspaceError, match="writable by everybody"):
        create_state(state)
    state.rmdir()
    (tmp_path / "real").mkdir()
    state.symlink_to(tmp_path / "real")
    with pytest.raises(WorkspaceError, match="is a symlink"):
        create_state(state)
    with pytest.raises(WorkspaceError, match="is a symlink"):
        lock(tmp_path, state, "r", "me")
    state.unlink()
    state.symlink_to(tmp_path / "dangling")
    with pytest.raises(WorkspaceError, match="is a symlink"):
        create_state(state)
    state.unlink()
    state.write_text("")
    with pytest.raises(WorkspaceError, match="is not a folder"):
        create_state(state)
