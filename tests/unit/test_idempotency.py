"""Once means once: files are whole at every moment, commands run until they have succeeded and not again."""

import asyncio
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loopwright import run_once, write_once
from loopwright.errors import Corrupt, Locked, LoopwrightError, NotStartable, UsageError, WorkspaceError

SH = ["sh", "-c"]


def temps(folder):
    return [path.name for path in folder.rglob("*") if path.name.endswith(".tmp")]


def test_a_file_is_written_when_it_differs_and_only_then(tmp_path):
    path = tmp_path / "a.txt"
    first = write_once(path, "grün\n")
    assert (first.wrote, first.skipped, first.path) == (True, False, path)
    assert first.sha256 == hashlib.sha256("grün\n".encode()).hexdigest()
    seen = path.stat()
    again = write_once(str(path), "grün\n".encode())
    assert (again.wrote, again.skipped, again.sha256) == (False, True, first.sha256)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (seen.st_ino, seen.st_mtime_ns)
    assert write_once(path, "grüm\n").wrote, "as long, and not the same"
    assert write_once(path, b"").wrote
    assert path.read_bytes() == b""
    assert write_once(path, b"").skipped
    assert temps(tmp_path) == []


def test_the_mode_is_kept_and_a_new_file_has_the_usual_one(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    write_once(script, "new")
    assert script.stat().st_mode & 0o7777 == 0o750
    (tmp_path / "plain").touch()
    write_once(tmp_path / "fresh", "x")
    assert (tmp_path / "fresh").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    target, link, dangling = tmp_path / "there/real", tmp_path / "link", tmp_path / "dangling"
    target.write_text("old")
    link.symlink_to("there/real")
    dangling.symlink_to("there/none-yet")
    assert write_once(link, "new").path == target.resolve()
    assert write_once(dangling, "born").wrote
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert target.read_text() == "new"
    assert (tmp_path / "there/none-yet").read_text() == "born"
    assert write_once(link, "new").skipped


def test_what_cannot_be_written_is_named(tmp_path):
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    said = {
        "missing/a.txt": (FileNotFoundError, "there is no folder"),
        ".": (IsADirectoryError, "it is a folder"),
        "pipe": (OSError, "no regular file"),
        "circle": (OSError, "circle"),
        "file/a.txt": (NotADirectoryError, "cannot write"),
        "n" * 300: (OSError, "too long"),
    }
    for name, (kind, words) in said.items():
        with pytest.raises(kind, match=words) as raised:
            write_once(tmp_path / name, "x")
        assert raised.value.filename == str(tmp_path / name)
    assert temps(tmp_path) == []


@pytest.mark.parametrize("call", ["write", "fsync", "fchmod", "replace", "close"])
def test_a_full_disk_or_any_other_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o640)
    real = getattr(os, call)
    calls = []

    def fails(*args, **more):
        calls.append(args)
        if call == "write" and len(calls) == 1:
            return real(args[0], bytes(args[1])[:3])  # a short write, and then no room
        if call == "close":
            real(*args)
            if len(calls) == 1:  # of the file that is compared
                return None
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(OSError, match="cannot write: No space left") as raised:
        write_once(path, "brand new")
    monkeypatch.undo()
    assert raised.value.errno == errno.ENOSPC
    assert path.read_text() == "old"
    assert temps(tmp_path) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from loopwright import run_once, write_once

CALLS = ("open", "write", "fsync", "fchmod", "replace", "close", "stat", "fstat", "read", "unlink")
real = {name: getattr(os, name) for name in CALLS}
kill, count = os.kill, 0

def arm(at, mode):
    global count
    count = 0
    def wrap(name):
        def call(*args, **more):
            global count
            count += mode == "kill" or name == "write"  # killed after a call is killed before the next one
            if count == at:
                if mode == "torn":
                    real[name](args[0], bytes(args[1])[: len(args[1]) // 2])
                kill(os.getpid(), signal.SIGKILL)
            return real[name](*args, **more)
        return call
    for name in CALLS:
        setattr(os, name, wrap(name))

def forked(at, mode, body):
    pid = os.fork()
    if pid == 0:
        arm(at, mode)
        try:
            body()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""

WRITES = (
    KILLED
    + """
points = 0
for before in (None, b"old " * 5000):
    for mode in ("kill", "torn"):
        at = 0
        while True:
            at += 1
            path = Path("file")
            path.unlink(missing_ok=True)
            if before is not None:
                path.write_bytes(before)
            code = forked(at, mode, lambda: write_once("file", b"new " * 5000))
            assert code in (0, -9), code
            now = path.read_bytes() if path.exists() else None
            assert now in (before, b"new " * 5000), "torn"
            assert code != 0 or now == b"new " * 5000
            write_once("file", b"new " * 5000)
            assert path.read_bytes() == b"new " * 5000
            if code == 0:
                break
            points += 1
print(points)
"""
)

RUNS = (
    KILLED
    + """
import loopwright.idempotency as once
argv = ["sh", "-c", "echo x >> effect; echo said; echo also >&2"]
keep, points, crashed_after_effect = once._keep, 0, 0
for mode in ("kill", "torn"):
    at = 0
    while True:
        at += 1
        Path("effect").unlink(missing_ok=True)
        for old in Path(".agent-state/once").glob("*"):
            old.unlink()
        def body():
            def kept(*args):
                arm(at, mode)  # the moments between the effect and its record
                keep(*args)
            once._keep = kept
            run_once(argv, key="k")
        code = forked(-1, mode, body)
        assert code in (0, -9), code
        ran = run_once(argv, key="k")
        assert (ran.stdout, ran.stderr, ran.returncode) == (b"said\\n", b"also\\n", 0)
        assert len(Path("effect").read_text()) // 2 == 2 - ran.skipped
        assert run_once(argv, key="k").skipped
        names = sorted(p.suffix for p in Path(".agent-state/once").iterdir() if not p.name.startswith("."))
        if not ran.skipped:
            assert names == [".json", ".lock", ".stderr", ".stdout"], names
        crashed_after_effect += code == -9 and not ran.skipped
        if code == 0:
            assert ran.skipped
            break
        points += 1
assert crashed_after_effect
print(points)
"""
)


def scripted(tmp_path, text):
    env = {key: value for key, value in os.environ.items() if key in {"PATH", "PYTHONPATH", "LANG"}}
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_killed_at_every_call_the_file_is_the_old_or_the_new_one(tmp_path):
    (points,) = scripted(tmp_path, WRITES)
    assert int(points) > 20


def test_killed_between_effect_and_record_it_runs_again_and_the_record_is_never_half(tmp_path):
    (points,) = scripted(tmp_path, RUNS)
    assert int(points) > 20


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def effects(folder):
    log = folder / "effect"
    return log.read_text().split() if log.exists() else []


def test_a_command_that_succeeded_is_not_run_again_and_says_the_same(here):
    argv = [*SH, "echo ran >> effect; head -c 700000 /dev/zero; printf '\\377err' >&2"]
    first = run_once(argv, key="big")
    again = run_once(argv, key="big")
    assert (first.skipped, again.skipped) == (False, True)
    for ran in (first, again):
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"\0" * 700000, b"\377err")
    assert again.text == "\0" * 700000
    assert effects(here) == ["ran"]
    assert run_once(argv, key="other").skipped is False
    assert (here / ".agent-state").stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o077 for p in (here / ".agent-state/once").rglob("*")} == {0}


def test_whatever_is_declared_makes_it_another_command(here):
    (here / "in").mkdir()
    (here / "in/a").write_text("1")
    (here / "b").write_text("1")
    (here / "sub").mkdir()

    def call(text="echo ran >> $OUT", **more):
        given = {"inputs": ["in", here / "b"], "env": {"OUT": str(here / "effect"), "MODE": "x"}, **more}
        return run_once([*SH, text], key="k", **given).skipped

    assert [call(), call()] == [False, True]
    (here / "in/a").write_text("2")
    assert [call(), call()] == [False, True]
    (here / "in/new").symlink_to("a")
    assert [call(), call()] == [False, True]
    (here / "b").write_text("22")
    assert [call(), call()] == [False, True]
    assert [call(env={"OUT": str(here / "effect"), "MODE": "y"}), call()] == [False, False]
    assert [call("echo ran >> $OUT;"), call()] == [False, False]
    assert [call(cwd="sub", inputs=()), call(inputs=()), call()] == [False, False, False]
    os.utime(here / "b", (1, 1))
    assert call(), "what a file holds counts, not when"
    assert len(effects(here)) == 11


def test_a_failure_is_returned_and_never_remembered(here):
    argv = [*SH, "echo ran >> effect; echo no >&2; test -e go"]
    codes = [run_once(argv, key="k") for _ in range(2)]
    assert [(ran.returncode, ran.skipped, ran.stderr) for ran in codes] == [(1, False, b"no\n")] * 2
    (here / "go").touch()
    assert [run_once(argv, key="k").skipped for _ in range(2)] == [False, True]
    (here / "go").unlink()
    other = [*argv[:2], argv[2] + " "]
    assert run_once(other, key="k").returncode == 1
    assert run_once(argv, key="k").skipped, "a failure of another command does not undo a success"
    assert run_once([*SH, "kill -TERM $$"], key="t").returncode == -signal.SIGTERM
    with pytest.raises(NotStartable, match="no-such-program"):
        run_once(["no-such-program"], key="n")


def test_what_takes_too_long_is_ended_with_all_it_started(here):
    argv = [*SH, "echo begun; sleep 60 & echo $! > child; wait"]
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired) as raised:
        run_once(argv, key="k", timeout_s=0.4)
    assert raised.value.stdout == b"begun\n"
    assert time.monotonic() - began < 8
    assert not Path(f"/proc/{(here / 'child').read_text().strip()}").exists()


def test_secrets_are_declared_to_be_seen_and_never_written(here, monkeypatch):
    monkeypatch.setenv("SERVICE_TOKEN", "tok-3f9a-cnry")
    argv = [*SH, "echo ${SERVICE_TOKEN-none} $MODE"]
    assert run_once(argv, key="a").text == "none\n"
    shown = [
        run_once([*argv, "tok-3f9a-cnry"], key="b", env={"SERVICE_TOKEN": "tok-3f9a-cnry", "MODE": "release"})
        for _ in "12"
    ]
    assert [(ran.skipped, ran.text) for ran in shown] == [
        (n == 1, "[redacted:SERVICE_TOKEN] release\n") for n in range(2)
    ]
    for path in (here / ".agent-state").rglob("*"):
        assert path.is_dir() or b"3f9a-cnry" not in path.read_bytes(), path


@pytest.mark.parametrize("how", ["cut", "flip", "empty", "stdout flipped", "stderr gone", "another key's"])
def test_a_damaged_record_is_an_error_that_names_the_file(here, how):
    argv = [*SH, "echo ran >> effect; echo said"]
    run_once(argv, key="k")
    (record,) = (here / ".agent-state/once").glob("*.json")
    file = record
    if how == "cut":
        record.write_bytes(record.read_bytes()[:-20])
    elif how == "flip":
        record.write_text(record.read_text().replace('"v": 1', '"v": 2'))
    elif how == "empty":
        record.write_bytes(b"")
    elif how == "another key's":
        body = json.loads(record.read_text())
        body["once"]["key"] = "l"
        record.write_text(json.dumps(body))
    else:
        (file,) = record.parent.glob(f"*.{how.split()[0]}")
        file.write_bytes(b"saif\n") if "flipped" in how else file.unlink()
    with pytest.raises(Corrupt, match=file.name) as raised:
        run_once(argv, key="k")
    assert "remove" in str(raised.value)
    assert effects(here) == ["ran"]
    record.unlink()
    assert not run_once(argv, key="k").skipped


TWO = """
import sys
from loopwright import run_once
ran = 0
sys.stdin.readline()
keys = [f"key-{n}" for n in range(40)] * 5
for key in keys[:: int(sys.argv[1])]:
    done = run_once(["sh", "-c", f"echo {key} >> effect"], key=key)
    assert done.returncode == 0
    ran += not done.skipped
print(ran, len(keys))
"""


def test_two_processes_with_two_hundred_calls_each_run_every_key_once(here):
    both = [
        subprocess.Popen(
            [sys.executable, "-c", TWO, step], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for step in ("1", "-1")
    ]
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=90)[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(int(ran) for ran, _ in said) == 40
    assert [calls for _, calls in said] == ["200", "200"]
    assert sorted(effects(here)) == sorted(f"key-{n}" for n in range(40))


def test_it_waits_for_another_process_and_not_for_ever(here, monkeypatch):
    monkeypatch.setattr("loopwright.idempotency.GRACE_S", 0.05)
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from loopwright import run_once\nrun_once(['sh', '-c', 'echo in > in; cat pipe'], key='k')",
        ],
    ) as other:
        os.mkfifo(here / "pipe")
        end = time.monotonic() + 30
        while not (here / "in").exists():
            assert time.monotonic() < end
            time.sleep(0.005)
        with pytest.raises(Locked, match="'k' is being run by another process"):
            run_once(["true"], key="k", timeout_s=0.1)
        (here / "pipe").write_text("go")
        assert other.wait(30) == 0
    assert not run_once(["true"], key="k", timeout_s=0.1).skipped


def test_it_works_inside_a_running_event_loop(here):
    async def main():
        return run_once([*SH, "echo hi"], key="k")

    assert asyncio.run(main()).text == "hi\n"


def test_what_cannot_be_asked(here):
    for argv, key in (([], "k"), (["true"], ""), ("true", "k")):
        with pytest.raises(UsageError, match="a key and a command"):
            run_once(argv, key=key)
    with pytest.raises(UsageError, match=r"the input gone cannot be read: No such file"):
        run_once(["true"], key="k", inputs=["gone"])
    (here / "elsewhere").mkdir()
    assert not run_once(["true"], key="k", folder="elsewhere").skipped
    assert (here / "elsewhere/.agent-state/once").is_dir()
    (here / ".agent-state").rename(here / "moved")
    (here / ".agent-state").symlink_to("moved")
    with pytest.raises(WorkspaceError, match="symlink"):
        run_once(["true"], key="k")


def test_output_beyond_every_measure_is_an_error_and_no_success(here, monkeypatch):
    monkeypatch.setattr("loopwright.idempotency.SAID_BYTES", 1000)
    for _ in range(2):
        with pytest.raises(LoopwrightError, match="let it write to a file"):
            run_once([*SH, "echo ran >> effect; head -c 1001 /dev/zero"], key="k")
    assert effects(here) == ["ran", "ran"]
