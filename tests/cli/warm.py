"""The program, loaded once by each test worker and forked for every call: a process of its own without the start.

Rule: a call gets its own process, folder, environment, arguments and streams, and ends as Python ends. What Python
reads only while it starts (PYTHON…, the locale) cannot differ between calls: such a call is started anew (stage.py).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import IO, Any

LIMIT_S = 90.0


@dataclass(kw_only=True)
class Begun:
    """A call that may still run, used as a subprocess.Popen is."""

    args: list[str]
    pid: int
    told: int  # the pipe that says how it ended
    stdout: IO[str]
    stderr: IO[str]
    returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None as long as it runs."""
        return self._ended(0)

    def wait(self, timeout: float = LIMIT_S) -> int:
        """The same, once it ended."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _ended(self, seconds: float) -> int | None:
        if self.returncode is None and select.select([self.told], [], [], max(0, seconds))[0]:
            self.returncode = int(os.read(self.told, 16))
            os.close(self.told)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends it a signal if it runs; it may have ended, and not have been heard of yet."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it if it runs."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = LIMIT_S) -> tuple[str, str]:
        """What is left of both its streams, when nobody holds them any more and it ended."""
        heard: dict[int, bytearray] = {}
        end = time.monotonic() + timeout
        with selectors.DefaultSelector() as waiting:
            for stream in (self.stdout, self.stderr):
                if not stream.closed:
                    waiting.register(stream, selectors.EVENT_READ)
                heard[id(stream)] = bytearray()
            while waiting.get_map():
                ready = waiting.select(end - time.monotonic())
                if not ready:
                    raise subprocess.TimeoutExpired(self.args, timeout)
                for key, _ in ready:
                    if part := os.read(key.fd, 1 << 16):
                        heard[id(key.fileobj)] += part
                    else:
                        waiting.unregister(key.fileobj)
                        key.fileobj.close()
        self.wait(end - time.monotonic())
        out, err = (bytes(text).decode() for text in heard.values())
        return out, err


def begun(args: list[str], folder: Path, env: Mapping[str, str]) -> Begun:
    """The program with these arguments, running."""
    (told, say), (out, say_out), (err, say_err) = (os.pipe() for _ in range(3))
    asked = json.dumps({"args": args, "folder": str(folder), "env": dict(env)}).encode()
    socket.send_fds(_door(), [asked], [say, say_out, say_err])
    for end in (say, say_out, say_err):
        os.close(end)
    pid = int(os.read(told, 10))
    return Begun(args=args, pid=pid, told=told, stdout=os.fdopen(out), stderr=os.fdopen(err))


def called(args: list[str], folder: Path, env: Mapping[str, str]) -> tuple[int, str, str]:
    """The exit code and both streams of the program with these arguments."""
    process = begun(args, folder, env)
    try:
        out, err = process.communicate()
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.wait(), out, err


@cache
def _door() -> socket.socket:
    """Where the loaded program of this worker is asked; it ends when the worker does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    with theirs:
        subprocess.run(
            [sys.executable, __file__, str(theirs.fileno())],
            cwd="/",
            env={"LANG": "C.UTF-8", **env},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            check=True,
        )
    return ours


def _loaded() -> None:
    """Imports all that a verb may import."""
    import loopwright

    for found in walk_packages(loopwright.__path__, "loopwright."):
        if not found.name.startswith(("loopwright.demo", "loopwright.__main__")):
            import_module(found.name)
    for name in ("apsw", "psutil", "rich.console", "rich.live", "rich.text"):
        import_module(name)


def _serve(door: socket.socket) -> dict[str, Any]:
    """What a forked child is asked to do; the parent never returns."""
    at_work: dict[int, int] = {}  # pid, and the pipe that says how it ended
    rung, bell = socket.socketpair()
    bell.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(bell.fileno())
    while True:
        ready = select.select([door, rung], [], [])[0]
        if rung in ready:
            rung.recv(4096)
            _ended(at_work)
        if door in ready:
            asked, fds, _, _ = socket.recv_fds(door, 1 << 20, 3)
            if not asked:
                os._exit(0)
            told, out, err = fds
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.dup2(out, 1)
                os.dup2(err, 2)
                for fd in (*fds, *at_work.values()):
                    os.close(fd)
                for end in (door, rung, bell):
                    end.close()
                return json.loads(asked)
            os.write(told, b"%10d" % pid)
            os.close(out)
            os.close(err)
            at_work[pid] = told


def _ended(at_work: dict[int, int]) -> None:
    """Says of those that ended how they did."""
    for pid, told in list(at_work.items()):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            with suppress(BrokenPipeError):  # the test asks no more
                os.write(told, b"%d" % os.waitstatus_to_exitcode(status))
            os.close(told)
            del at_work[pid]


if __name__ == "__main__":
    if os.fork():  # tests count the children of their process: this is none of them
        os._exit(0)
    _loaded()
    gc.collect()
    gc.freeze()
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv[1:] = asked["args"]
    sys.path[0] = asked["folder"]
    try:
        import_module("loopwright.cli").main()
    except SystemExit as end:
        threading._shutdown()
        atexit._run_exitfuncs()
        print(end="", flush=True)
        os._exit(end.code if isinstance(end.code, int) else 0)
