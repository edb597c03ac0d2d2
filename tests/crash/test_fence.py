"""A holder that was paused while another took the run over writes nothing more, and stops; on every store with a disk."""

import os
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loopwright.core import events as ev
from loopwright.journal import Journal, history
from loopwright.stores.opened import open_store

SCRIPTED = Path(__file__).parents[1] / "agents" / "scripted.py"
STORES = {"files": "files:kept", "sqlite": "sqlite:///kept/runs.db"}


def until(holds, seconds=30.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def begun(url, folder):
    plan = folder.parent / "plan.json"
    plan.write_text('[{"hold": true, "append": {"work.txt": "x"}, "say": "worked"}]')
    agent = f"{sys.executable} -I -S {SCRIPTED} {plan}"
    command = [sys.executable, "-m", "loopwright", "run", "--goal", "g", "--agent", agent, "--gate", "false"]
    process = subprocess.Popen(
        [*command, "--as", "r", "--store", url, "--no-baseline", "--workspace", "none"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(Path(f"{plan}.held").exists)
    return process, plan


def taken_over(store) -> int:
    """Another host's claim, on record; the number of commits then."""
    journal = Journal(store, "r")
    epoch = journal.state.claim.epoch + 1
    claim = ev.Claimed(epoch=epoch, owner="1:1@elsewhere@boot", host=socket.gethostname(), boot="boot")
    journal.claim(claim, datetime.now(UTC))
    journal.flush()
    return journal.n


@pytest.mark.parametrize("kind", STORES)
def test_a_paused_holder_is_fenced_off(kind, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    process, plan = begun(STORES[kind], folder)
    store = open_store(STORES[kind], folder)
    try:
        os.kill(process.pid, signal.SIGSTOP)
        before = taken_over(store)
        Path(f"{plan}.go").touch()  # its agent ends meanwhile
        os.kill(process.pid, signal.SIGCONT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 8, err
        assert "taken over" in err
        journal = Journal(store, "r")
        assert journal.n == before
        assert journal.state.claim.owner == "1:1@elsewhere@boot"
        assert not [e for _, _, e, _ in history(store, "r") if isinstance(e, ev.AttemptSucceeded)]
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        store.close()
