"""Ending what a dead loopwright left, telling owners apart, and what a child process may see."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loopwright.supervise import (
    alive,
    boot_id,
    child_environment,
    owner_of_this_process,
    process_identity,
    sweep,
    tool_path,
)

AGENTS = Path(__file__).parents[1] / "agents"
LATE = 8.0  # what must happen within moments may take this long on a busy machine


def until(condition):
    deadline = time.monotonic() + LATE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


@contextlib.contextmanager
def marked(*argv, **mark):
    with subprocess.Popen(
        argv, env=os.environ | mark, start_new_session=True, stdout=subprocess.PIPE
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def test_sweep_ends_what_holds_every_pair(tmp_path):
    run_mark = f"run-{os.getpid()}-{time.monotonic_ns()}"
    with (
        marked("sleep", "300", R=run_mark, A="1") as first,
        marked("sleep", "300", R=run_mark, A="12") as second,
    ):
        assert sweep({"R": run_mark, "A": "2"}) == 0
        assert sweep({"R": run_mark, "A": "1"}) == 1
        assert first.wait(LATE) == -signal.SIGKILL
        assert second.poll() is None
        assert sweep({"R": run_mark}, grace_s=LATE) == 1
        assert second.wait(LATE) == -signal.SIGTERM
    with marked(sys.executable, "-I", "-S", str(AGENTS / "deaf.py"), R=run_mark) as deaf:
        assert deaf.stdout.readline() == b"working\n"
        assert sweep({"R": run_mark}, grace_s=0.05) == 1
        assert deaf.wait(LATE) == -signal.SIGKILL
    with pytest.raises(ValueError, match="every process"):
        sweep({})


def test_sweep_spares_us_and_those_above_us():
    run_mark = f"run-{os.getpid()}-{time.monotonic_ns()}"
    ours = "import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    inner = f"from loopwright.supervise import sweep; print(sweep({{'R': {run_mark!r}}}))"
    with marked(sys.executable, "-c", ours.format(inner=inner), R=run_mark) as outer:
        assert outer.communicate(timeout=60)[0] == b"0\n"
        assert outer.returncode == 0


def test_an_owner_is_alive_until_its_process_ends():
    assert alive(owner_of_this_process())
    pid, started = process_identity()
    assert (pid, owner_of_this_process()) == (os.getpid(), f"{pid}:{started:.0f}")
    assert not alive(f"{pid}:{started + 1:.0f}")  # the number was given to another process
    with marked("sleep", "300") as child:
        number, since = process_identity(child.pid)
        owner = f"{number}:{since:.0f}"
        assert alive(owner)
        child.kill()
        assert until(lambda: not alive(owner))  # a zombie: nobody has collected it
        assert child.wait() == -signal.SIGKILL
        assert not alive(owner)
    assert len(boot_id()) > 8


def test_secrets_and_our_own_names_are_withheld():
    secret = dict.fromkeys(
        [
            "OPENAI_API_KEY",
            "ANTHROPIC_APIKEY",
            "api_key",
            "SSH_KEY_FILE",
            "GITHUB_TOKEN",
            "AUTHTOKEN",
            "PGPASSWORD",
            "DB_PASSWD",
            "AWS_SECRET_ID",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "KEYS",
            "API_KEY_2",
            "LOOPWRIGHT_RUN",
        ],
        "x",
    ) | {
        "DATABASE": "postgres://me:pw@host/db",
        "REDIS": "redis://:pw@host",
        "REMOTE": "https://ghp_abc@github.com/x",
        "DSN": "postgres://host/db?user=me&password=pw",
    }
    plain = {
        "PATH": "/bin", "KEYBOARD": "us", "KEYMAP": "x", "TOKENIZERS_PARALLELISM": "1", "MAX_OUTPUT_TOKENS": "4096",
        "REPO": "ssh://git@host/x", "SITE": "http://host:80/a?b=c", "MAIL": "me@host", "LANG": "C",
    }  # fmt: skip
    env, withheld = child_environment(secret | plain)
    assert env == plain
    assert withheld == tuple(sorted(secret))
    env, withheld = child_environment(secret | plain, allow=("DATABASE", "GITHUB_TOKEN"))
    assert set(env) == set(plain) | {"DATABASE", "GITHUB_TOKEN"}
    assert withheld == tuple(sorted(set(secret) - {"DATABASE", "GITHUB_TOKEN"}))


def test_the_tools_of_the_project_come_first(tmp_path):
    assert tool_path(tmp_path, "/usr/bin:/bin") == "/usr/bin:/bin"
    (tmp_path / "node_modules" / ".bin").mkdir(parents=True)
    assert tool_path(tmp_path, "/usr/bin:/bin") == f"{tmp_path}/node_modules/.bin:/usr/bin:/bin"
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    assert tool_path(tmp_path, "") == f"{tmp_path}/.venv/bin:{tmp_path}/node_modules/.bin"
