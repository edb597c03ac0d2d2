"""One running program and the shim above it, as the event loop's callbacks see them (see `supervise`).

Rule: every change happens in a callback, nothing here awaits; whatever happens leads to `finish`, and `finish` comes
only when the tree is dead.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING
from uuid import uuid4

from loopwright import capture
from loopwright.errors import NotStartable
from loopwright.redact import Stream
from loopwright.shim import shim

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from loopwright.supervise import Ended, Process

LINUX = sys.platform == "linux"
MARK = "LOOPWRIGHT_TREE"  # in the environment of every tree, with another value for each
PIPE_BYTES = 1 << 20  # the most an unprivileged user may ask for
READ_BYTES = 1 << 20
LEFTOVER_GRACE_S = 1.0  # the program itself is done; nobody waits long for what it left behind
FORCE_AFTER_S = 1.5  # beyond the grace; then the shim has failed and we kill by marker
GIVE_UP_S = 10.0  # after that a process is stuck in the kernel


@dataclass(slots=True, eq=False, kw_only=True)
class Tree:
    """One running program; changed by callbacks of its event loop only."""

    process: Process
    observe: Callable[[bytes], None] | None
    mark: Mapping[str, str]
    loop: asyncio.AbstractEventLoop
    members: Callable[[Mapping[str, str]], set[int]]  # the processes that hold a mark
    cpu_seconds: Callable[[int], float]  # of a process and all below it
    shim: subprocess.Popen[bytes]
    control: socket.socket
    streams: dict[int, capture.Ends]  # those not yet at end of file
    clean: dict[int, Stream]  # what takes the secrets out of each
    out: capture.Ends
    err: capture.Ends
    log: capture.Log
    lines: capture.Lines
    started_at: float
    life_at: float  # the last sign of life
    over_at: float = 0.0
    pid: int = 0
    status: int | None = None  # how the program itself ended
    ended: Ended = "exited"
    asked: bool = False  # to end
    gone: bool = False  # everything, says the shim
    over: bool = False
    killed: set[int] = field(default_factory=set)  # by us, in place of the shim
    leftovers: int = 0
    survivors: int = 0
    truncated: int = 0
    failure: Exception | None = None
    cpu: tuple[float, float] | None = None  # when we looked, what the tree had used
    fingerprint: object = None
    said: bytes = b""
    timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    waiter: asyncio.Future[None] | None = None

    def after(self, delay_s: float, name: str, call: Callable[[], None]) -> None:
        """Set the timer of that name, in place of an earlier one."""
        self.cancel(name)
        self.timers[name] = self.loop.call_later(max(0.0, delay_s), call)

    def cancel(self, *names: str) -> None:
        """Forget these timers."""
        for name in names:
            if name in self.timers:
                self.timers.pop(name).cancel()

    def end(self, grace_s: float, why: Ended = "exited") -> None:
        """TERM, grace, KILL for everything that is left; asked again, it can only come sooner."""
        if self.status is not None:
            grace_s = min(grace_s, LEFTOVER_GRACE_S)
        elif self.ended == "exited":
            self.ended = "lingered" if self.lines.done and self.process.linger_s is not None else why
        self.asked = True
        with contextlib.suppress(OSError):  # the shim has ended; `hear` sees that
            self.control.send(b"end %f\n" % grace_s)
            self.shim.send_signal(signal.SIGCONT)  # the agent may have stopped it
        force_at = self.loop.time() + grace_s + FORCE_AFTER_S
        if "force" not in self.timers or self.timers["force"].when() > force_at:
            self.after(grace_s + FORCE_AFTER_S, "force", self.force)

    def read(self, stream: int) -> bool:
        """Take one chunk of output; False when there is none now."""
        try:
            chunk = os.read(stream, READ_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self.loop.remove_reader(stream)
            self.keep(stream, self.clean[stream].close())
            del self.streams[stream]
            os.close(stream)
            if not self.streams and self.status is not None and not self.gone and not self.asked:
                self.end(LEFTOVER_GRACE_S)  # what is left has nothing more to say
            return False
        self.life_at = self.loop.time()
        if self.streams[stream] is self.out and not (self.asked and self.ended == "lingered"):
            try:  # what it says of being ended after its result is no other result
                self.lines.add(chunk)
            except Exception as error:  # noqa: BLE001 -- raised again by `supervise`
                self.fail(error)
            if self.lines.enough and not self.asked:
                self.end(self.process.grace_s, "cut")
            if self.lines.done and self.process.linger_s is not None and "linger" not in self.timers:
                self.after(
                    self.process.linger_s, "linger", lambda: self.end(self.process.grace_s, "lingered")
                )
        self.keep(stream, self.clean[stream].add(chunk))
        return True

    def keep(self, stream: int, clean: bytes) -> None:
        """Keep output that holds no secret any more, and show it."""
        if not clean:
            return
        self.streams[stream].add(clean)
        self.log.add(clean)
        if self.observe and self.streams[stream] is self.out:
            try:
                self.observe(clean)
            except Exception as error:  # noqa: BLE001 -- raised again by `supervise`
                self.fail(error)

    def fail(self, error: Exception) -> None:
        """End everything now; `supervise` raises the first error."""
        self.failure = self.failure or error
        self.end(0)

    def hear(self) -> None:
        """Take what the shim says."""
        try:
            words = self.control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            words = b""
        *lines, self.said = (self.said + words).split(b"\n")
        for line in lines:
            word, *numbers = line.split()
            self.learn(word, *map(int, numbers))
        if not words:
            self.loop.remove_reader(self.control)
            if not self.pid and not self.failure and not self.asked:
                self.failure = NotStartable(f"cannot start {self.process.argv[0]!r}: the shim above it died")
            if self.gone and LINUX:
                self.finish()
            else:
                self.force()

    def learn(self, word: bytes, first: int, second: int = 0) -> None:
        """Take one line of the shim's."""
        if word == b"failed":
            self.failure, self.gone = _refusal(self.process, OSError(first, os.strerror(first))), True
        elif word == b"started":
            self.pid = first
        elif word == b"exit":
            self.status = first
            self.cancel("idle", "linger")
            if self.asked:
                return  # the rest has its grace
            if self.streams:
                self.after(self.process.drain_s, "drain", lambda: self.end(LEFTOVER_GRACE_S))
            else:
                self.end(LEFTOVER_GRACE_S)
        elif word == b"gone":
            self.leftovers, self.survivors, self.gone = first, second, True

    def force(self) -> None:
        """Kill in place of the shim, by marker, until nothing is left."""
        self.shim.kill()
        with contextlib.suppress(OSError):
            if self.pid and self.status is None:
                os.killpg(self.pid, signal.SIGKILL)
        victims = self.members(self.mark) - {self.shim.pid}
        for victim in victims:
            with contextlib.suppress(OSError):
                os.kill(victim, signal.SIGKILL)
        self.killed |= victims - {self.pid}
        self.leftovers, self.survivors = max(self.leftovers, len(self.killed)), len(victims)
        self.timers.setdefault("give up", self.loop.call_later(GIVE_UP_S, self.finish))
        if victims:
            self.after(0.01, "force", self.force)
        else:
            self.finish()

    def finish(self) -> None:
        """Everything is dead: collect the shim and the last output, and wake `supervise`."""
        if self.over:
            return
        if self.shim.poll() is None:  # its socket closes a moment before it can be collected
            self.after(0.002, "finish", self.finish)
            return
        self.over_at = self.loop.time()
        for stream in list(self.streams):
            for _ in range(64):  # what survived may go on talking
                if not self.read(stream):
                    break
        self.over = True
        if self.waiter and not self.waiter.done():
            self.waiter.set_result(None)

    def look(self) -> None:
        """End the tree when nothing has shown a sign of life for too long."""
        now, limit = self.loop.time(), self.process.idle_s or 0.0
        step = max(0.05, min(5.0, limit / 4))
        if now - self.life_at >= step and self.alive_unheard(now):
            self.life_at = now
        stuck = self.process.stuck is not None and self.process.stuck()
        if stuck or now - self.life_at >= limit:
            self.end(self.process.grace_s, "idle")
        else:
            self.after(min(step, self.life_at + limit - now), "idle", self.look)

    def alive_unheard(self, now: float) -> bool:
        """Whether CPU was used (a share of the time, `idle_cpu`) or the workspace changed since the last look."""
        used = self.cpu_seconds(self.shim.pid)
        before, self.cpu = self.cpu, (now, used)
        if before and abs(used - before[1]) >= max(0.02, (now - before[0]) * self.process.idle_cpu):
            return True
        if not self.process.active:
            return False
        try:
            seen, self.fingerprint = self.fingerprint, self.process.active()
        except Exception as error:  # noqa: BLE001 -- raised again by `supervise`
            self.fail(error)
            return False
        return before is not None and seen != self.fingerprint

    def close(self) -> None:
        """Let go of everything that is open; when it is not over, that makes the shim kill all and leave."""
        for name in list(self.timers):
            self.cancel(name)
        for descriptor in (*self.streams, self.control.fileno()):
            if not self.loop.is_closed():
                self.loop.remove_reader(descriptor)
        for stream in self.streams:
            self.keep(stream, self.clean[stream].close())
            os.close(stream)
        self.control.close()
        if not self.over:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.shim.wait(FORCE_AFTER_S)
        self.lines.close()
        self.truncated = self.log.close()


def start(
    process: Process,
    observe: Callable[[bytes], None] | None,
    loop: asyncio.AbstractEventLoop,
    members: Callable[[Mapping[str, str]], set[int]],
    cpu_seconds: Callable[[int], float],
) -> Tree:
    """Start the shim, which starts the program; raises NotStartable."""
    if not process.argv or not process.argv[0]:
        raise NotStartable("cannot start a command that names no program")
    mark = {MARK: uuid4().hex}
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        log = capture.open_log(process.log, process.log_bytes)
        ours.callback(os.close, log.descriptor)
        pipes = [os.pipe(), os.pipe()]
        for reading, writing in pipes:
            ours.callback(os.close, reading)
            theirs.callback(os.close, writing)
            os.set_blocking(reading, False)
            if LINUX:
                with contextlib.suppress(OSError):  # this user's pipes are at their limit: slower, not wrong
                    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        control, distant = socket.socketpair()
        ours.callback(control.close)
        theirs.callback(distant.close)
        control.setblocking(False)
        stdin = theirs.enter_context(_stdin(process.stdin))
        streams = (stdin, pipes[0][1], pipes[1][1])
        shim = _launch(process, mark, streams, distant)
        ours.pop_all()
    now = loop.time()
    out = capture.Ends(process.head_bytes, process.tail_bytes)
    err = capture.Ends(0, process.tail_bytes)
    tree = Tree(
        process=process,
        observe=observe,
        mark=mark,
        loop=loop,
        members=members,
        cpu_seconds=cpu_seconds,
        shim=shim,
        control=control,
        streams={pipes[0][0]: out, pipes[1][0]: err},
        clean={reading: process.redact.stream() for reading, _ in pipes},
        out=out,
        err=err,
        log=log,
        lines=capture.Lines(process.finished, process.each),
        started_at=now,
        life_at=now,
    )
    for stream in tree.streams:
        loop.add_reader(stream, tree.read, stream)
    loop.add_reader(control, tree.hear)
    tree.after(process.timeout_s, "timeout", lambda: tree.end(process.grace_s, "timeout"))
    if process.idle_s is not None:
        tree.look()
    return tree


def _launch(
    process: Process, mark: Mapping[str, str], streams: tuple[IO[bytes], int, int], control: socket.socket
) -> subprocess.Popen[bytes]:
    """The shim, with the program as its arguments; raises NotStartable."""
    us = [str(os.getpid()), str(control.fileno()), process.env.get("LC_CTYPE", "")]
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", shim(), *us, *process.argv],
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            cwd=process.cwd,
            env={**process.env, **mark},
            pass_fds=(control.fileno(),),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise _refusal(process, error) from error


def _stdin(content: bytes) -> IO[bytes]:
    """A file with that content and no name, so that nobody has to feed a program that does not read."""
    if not content:
        return Path(os.devnull).open("rb")
    file = os.fdopen(os.memfd_create("stdin"), "w+b") if LINUX else tempfile.TemporaryFile()  # noqa: SIM115 -- the caller closes it
    file.write(content)
    file.seek(0)
    return file


def _refusal(process: Process, error: OSError | ValueError) -> NotStartable:
    """Why the program could not be started, and what to do about it."""
    program = process.argv[0]
    path = Path(process.cwd, program)
    why = str(error)
    number = error.errno if isinstance(error, OSError) else 0
    if number == errno.E2BIG:
        why = "its arguments and environment are too long; pass long text by stdin or in a file"
    elif not process.cwd.is_dir():
        why = f"there is no folder {process.cwd}"
    elif number == errno.ENOENT and "/" not in program:
        why = f"no program of that name on PATH ({process.env.get('PATH', '')}); is it installed?"
    elif number == errno.ENOENT and path.exists():
        why = "the interpreter named in its first line (#!) does not exist"
    elif number in {errno.ENOENT, errno.ENOTDIR}:
        why = f"there is no file {path}"
    elif number == errno.EACCES:
        why = f"it is not executable; try: chmod +x {program}"
    elif number == errno.ENOEXEC:
        why = "it is not a program for this machine; a script needs a first line such as #!/bin/sh"
    return NotStartable(f"cannot start {program!r}: {why}")
