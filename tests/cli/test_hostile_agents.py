"""Agents that do worse than those of the case table: to their own record, their folder, the processes around them.

Rule: one text of Python per agent; the run ends as if nothing were trusted that an agent can reach.
"""

from __future__ import annotations

import signal
import time

import pytest
from misbehaving import Case, judged

from loopwright.core import events as ev
from loopwright.errors import StoreError
from loopwright.process_tree import LINUX

STORE = "import sqlite3\nstore = sqlite3.connect('.agent-state/loopwright.db', timeout=5)\n"
DONE = "\nprint('done')"


@pytest.fixture
def case(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return Case(folder)


def run(case, text, *gates, **said):
    return case.run("", *gates, options={"run": ["python3", "-I", "-S", "-c", text + DONE]}, **said)


def gone(pid: int) -> bool:
    """Whether a process is dead, or only its remains are left."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in {b"Z", b"X"}
    except OSError:
        return True


@pytest.mark.parametrize(
    ("text", "said"),
    {
        "everything is deleted": (
            STORE
            + "for name, in list(store.execute(\"select name from sqlite_master where type='table'\")):\n"
            "    store.execute(f'delete from {name}')\nstore.commit()",
            "lost commits|nothing more is kept",
        ),
        "its own attempt is deleted": (
            STORE + "store.execute('delete from commits where id = (select max(id) from commits)')\n"
            "store.commit()",
            "lost commits|nothing more is kept",
        ),
        "the run is no longer listed": (
            STORE + "store.execute('delete from runs')\nstore.commit()",
            "nothing more is kept|damaged",
        ),
        "another commit stands in its place": (
            STORE
            + "store.execute('update commits set (sum, body) = (select sum, body from commits where id = "
            "(select min(id) from commits)) where id = (select max(id) from commits)')\nstore.commit()",
            "nothing more is kept",
        ),
        "the state folder is removed": (
            "import shutil\nshutil.rmtree('.agent-state')",
            "removed or replaced",
        ),
        "the whole folder is removed": (
            "import os, shutil\nshutil.rmtree(os.getcwd())",
            "removed or replaced",
        ),
        "the folder is renamed": ("import os\nos.rename(os.getcwd(), '../other')", "removed or replaced"),
    }.values(),
)
def test_a_run_whose_record_the_agent_spoils_never_passes(case, text, said):
    with pytest.raises(StoreError, match=said):
        run(case, text)
    assert case.of(ev.AttemptSucceeded, ev.RunFinished) == []


def test_code_of_the_agent_that_a_gate_runs_cannot_spoil_the_record_and_pass(case):
    spoil = STORE + "store.execute('delete from commits')\nstore.commit()"
    (case.folder / "check.py").write_text(f"import os\nif os.path.exists('spoil'):\n    exec({spoil!r})\n")
    with pytest.raises(StoreError):
        run(case, "open('spoil', 'w').close()", "python3 check.py")
    assert case.of(ev.RunFinished) == []


def test_the_files_of_an_attempt_are_not_trusted(case):
    """Its log is a folder, its artifacts a file: the next attempt, and the gates, have theirs all the same."""
    text = (
        "import os, shutil\nplace = os.environ['LOOPWRIGHT_ARTIFACTS']\nshutil.rmtree(place)\n"
        "open(place, 'w').close()"
    )
    assert run(case, text, "false", max_iterations=2).reason == "max_iterations"
    assert case.kinds == []
    assert judged(case) == [0, 1, 2]


def test_a_name_that_holds_a_secret_is_not_told(case):
    case.environ["DEMO_API_KEY"] = "sk-test-abcdef0123456789"
    run(case, "import os\nopen(os.environ['DEMO_API_KEY'] + '.pem', 'w').close()", env=["DEMO_API_KEY"])
    (told,) = [line for line in case.told if line.startswith("in no snapshot")]
    assert told.endswith(": [redacted:DEMO_API_KEY].pem")


def test_what_stops_itself_is_ended_as_silent(case):
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"
    run(case, text, idle_timeout="300ms", attempts=1)
    assert case.kinds == ["no_output"]


def test_what_ends_the_process_above_it_ends_with_it(case):
    text = (
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nos.kill(os.getppid(), 9)\ntime.sleep(60)"
    )
    began = time.monotonic()
    run(case, text)
    assert case.kinds == ["unknown"]
    assert case.of(ev.AttemptFailed)[0].message.startswith("killed by SIGKILL")
    assert time.monotonic() - began < 20


@pytest.mark.skipif(not LINUX, reason="elsewhere only the process group and the marker are known")
def test_a_daemon_without_environment_session_or_output_is_found(case):
    text = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("pid", "w").write(str(os.getpid()))
        for stream in (0, 1, 2):
            os.close(stream)
        os.execve("/bin/sleep", ["sleep", "60"], {})
    os._exit(0)
os.wait()
while not os.path.exists("pid") or not open("pid").read():
    pass
"""
    assert run(case, text).passed
    assert gone(int((case.folder / "pid").read_text()))


@pytest.mark.skipif(not LINUX, reason="elsewhere only the process group and the marker are known")
def test_a_chain_that_never_stays_long_enough_to_be_ended_is_ended(case):
    """Each process forks, leaves its session and goes, and TERM means nothing to it."""
    text = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    time.sleep(60)
end = time.monotonic() + 30
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
    open("alive", "w").write(str(time.monotonic()))
"""
    run(case, text, "false", attempt_timeout="500ms")
    (worked,) = case.of(ev.AttemptSucceeded)
    assert (worked.timed_out, worked.degraded) == (True, None)
    last = (case.folder / "alive").read_text()
    time.sleep(0.1)
    assert (case.folder / "alive").read_text() == last


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_its_whole_group_gone_is_no_crash_of_ours(case, number):
    text = f"import os\nos.killpg(0, {int(number)})"
    run(case, text)
    assert case.kinds == ["unknown"]


GOOD = '{"type": "result", "is_error": false, "result": "all done", "cost_usd": 0.1}'


@pytest.mark.parametrize(
    "text",
    [
        f"import sys, time\nsys.stdout.write('{GOOD}')\nsys.stdout.flush()\ntime.sleep(60)",
        f"import sys, time\nsys.stdout.write('}}\\n' * 99 + '{GOOD}')\nsys.stdout.flush()\ntime.sleep(60)",
        f"import os, time\nprint('{GOOD}', flush=True)\nos.close(1)\nos.close(2)\ntime.sleep(60)",
        (
            "import signal, sys, time\n"
            """end = '{"type": "result", "is_error": true, "result": "HTTP 500"}'\n"""
            "signal.signal(signal.SIGTERM, lambda *_: (print(end, flush=True), sys.exit(1)))\n"
            f"print('{GOOD}', flush=True)\ntime.sleep(60)"
        ),
    ],
    ids=["no line end", "no line end, after many", "output closed", "it calls its end an error"],
)
def test_what_lingers_after_its_result_succeeded(case, text):
    run = {"run": ["python3", "-I", "-S", "-c", text], "linger": "100ms"}
    end = case.run("", options=run, attempt_timeout="20s")
    assert (end.passed, end.cost_usd, case.worked.summary) == (True, 0.1, "all done")
    assert (case.worked.timed_out, case.worked.degraded, case.worked.seconds < 10) == (False, None, True)


@pytest.mark.parametrize("codec", ["utf-16", "utf-32", "cp037"])
def test_a_result_in_another_encoding_is_prose(case, codec):
    text = f"""
import sys
sys.stdout.buffer.write('{{"type": "result", "is_error": true, "result": "HTTP 429"}}\\n'.encode({codec!r}))
sys.stdout.buffer.flush()"""
    assert run(case, text).passed
    assert case.worked.summary.endswith("done")
