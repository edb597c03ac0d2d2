"""Child processes: what they are given, what is kept of them, and what cannot be started."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright.errors import NotStartable
from loopwright.supervise import Process, supervise

AGENTS = Path(__file__).parents[1] / "agents"
LATE = 8.0  # what must happen within moments may take this long on a busy machine
PATH = os.environ["PATH"]


def run(tmp_path, *argv, observe=None, **options):
    given = {"cwd": tmp_path, "env": {"PATH": PATH}, "log": tmp_path / "log", "timeout_s": 30, "grace_s": 0.3}
    return asyncio.run(supervise(Process(argv=argv, **given | options), observe=observe))


def test_exit_code_output_and_log(tmp_path):
    seen = []
    end = run(tmp_path, "sh", "-c", "echo out; echo err >&2; exit 3", observe=seen.append)
    assert (end.code, end.signal, end.ended) == (3, None, "exited")
    assert (end.stdout, end.stderr, end.stdout_bytes, end.stderr_bytes) == (b"out\n", b"err\n", 4, 4)
    assert sorted((tmp_path / "log").read_bytes().splitlines()) == [b"err", b"out"]
    assert (end.truncated, end.leftovers, end.survivors, end.result) == (0, 0, 0, None)
    assert b"".join(seen) == b"out\n"
    assert 0 <= end.quiet_s <= end.seconds < LATE


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE])
def test_a_signal_is_told_from_an_exit_code(tmp_path, number):
    end = run(tmp_path, "sh", "-c", f"kill -{number.value} $$")
    assert (end.code, end.signal, end.ended) == (None, number, "exited")


def test_it_gets_its_environment_and_nothing_of_ours(tmp_path):
    stray, other = socket.socketpair()
    with stray, other:
        os.set_inheritable(stray.fileno(), True)
        was = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        try:
            end = run(
                tmp_path, sys.executable, "-I", "-S", str(AGENTS / "about.py"), env={"A": "1", "B": "ü\n="}
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
            signal.signal(signal.SIGINT, was)
    about = json.loads(end.stdout)
    environ = about.pop("environ")
    assert [pair for pair in environ if not pair.startswith("LOOPWRIGHT_TREE=")] == ["A=1", "B=ü\n="]
    assert about == {
        "descriptors": [0, 1, 2],
        "own_session": True,
        "terminal": False,
        "ignored": [],
        "blocked": 0,
        "cwd": str(tmp_path),
    }


def test_stdin_is_what_it_was_given_then_end_of_file(tmp_path):
    assert run(tmp_path, "wc", "-c").stdout.strip() == b"0"
    assert run(tmp_path, "wc", "-c", stdin=b"x" * 3_000_000).stdout.strip() == b"3000000"
    assert run(tmp_path, "true", stdin=b"x" * 3_000_000).code == 0


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (None, 0, "no file"),
        ("#!/bin/sh\n", 0o644, "chmod"),
        ("echo\n", 0o755, "#!/bin/sh"),
        ("#!/no/such/interpreter\n", 0o755, "interpreter"),
    ],
)
def test_a_file_that_is_no_program_is_not_startable(tmp_path, text, mode, why):
    if text is not None:
        (tmp_path / "tool").write_text(text)
        (tmp_path / "tool").chmod(mode)
    with pytest.raises(NotStartable, match=why) as caught:
        run(tmp_path, "./tool")
    assert "./tool" in str(caught.value)


def test_a_program_that_is_nowhere_is_not_startable(tmp_path):
    with pytest.raises(NotStartable, match=f"no program of that name on PATH .*{tmp_path}"):
        run(tmp_path, "no-such-program", env={"PATH": f"/usr/bin:{tmp_path}"})
    for argv in ((), ("",), ("true", "\0")):
        with pytest.raises(NotStartable, match="cannot start"):
            run(tmp_path, *argv)
    with pytest.raises(NotStartable, match="no folder"):
        run(tmp_path, "true", cwd=tmp_path / "gone")
    with pytest.raises(NotStartable, match="stdin or in a file"):
        run(tmp_path, "true", "x" * 3_000_000)


def test_a_program_is_found_on_its_own_path_past_one_that_may_not_run(tmp_path):
    for folder, mode in (("first", 0o644), ("second", 0o755)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").write_text("#!/bin/sh\necho found\n")
        (tmp_path / folder / "tool").chmod(mode)
    path = f"{tmp_path}/none:{tmp_path}/first"
    assert run(tmp_path, "tool", env={"PATH": f"{path}:{tmp_path}/second"}).stdout == b"found\n"
    with pytest.raises(NotStartable, match="not executable"):
        run(tmp_path, "tool", env={"PATH": path})


def test_bytes_stay_raw_and_the_last_result_is_found_behind_a_long_line(tmp_path):
    said = (
        b"caf\xe9 \xf0\x28 \x00 end\n"
        b'{"type":"x","text":"' + b"z" * 300_000 + b'"}\n{"type":"result","result":"ok"}'
    )
    end = run(tmp_path, "cat", stdin=said)
    assert end.stdout == said
    assert (tmp_path / "log").read_bytes() == said
    assert end.result == b'{"type":"result","result":"ok"}'


def test_output_beyond_every_bound_is_read_to_the_end_in_little_memory(tmp_path):
    script = f"""
import asyncio, os
from pathlib import Path
from loopwright.supervise import Process, supervise
end = asyncio.run(supervise(Process(argv={(sys.executable, "-I", str(AGENTS / "bulk.py"), "100")!r}, cwd=Path("."),
    env=dict(os.environ), log=Path("log"), timeout_s=60)))
print(end.code, end.stdout_bytes, end.stderr_bytes, end.stdout.endswith(b"DONE\\n"), end.truncated)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(peak.split()[1])  # ru_maxrss would be the parent's where a child is made by vfork
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    what, resident_kb = done.stdout.splitlines()
    out, err = 100 << 20, 100 * ((1 << 20) // 50)
    log = (tmp_path / "log").read_bytes()
    truncated = int(what.split()[-1])
    assert what == f"0 {out + 5} {err} True {truncated}"
    marker = b"\n[loopwright: truncated %d bytes]\n" % truncated
    assert len(log) <= 64 << 20
    assert len(log) - len(marker) + truncated == out + 5 + err
    assert log.count(marker) == 1
    assert b"DONE\n" in log[-300_000:]
    assert int(resident_kb) < 60_000
