"""Run one program with everything it starts: limit it, keep what it says, leave nothing of it alive.

Rule: no process of a tree outlives its `supervise` call, its timeout, its cancellation or loopwright itself.
Nothing here reads what a program says; the caller gets bytes, numbers and how it ended.

Between us and the program stands `_shim.py`, which becomes the parent of everything the program leaves behind and
kills it when we die. If the shim itself is killed, the tree is found by a marker in its environment, which only a
process that cleared its environment and left its group escapes. Should loopwright die as well, `sweep` at take-over
is the last line. Linux asks the kernel (prctl, /proc); elsewhere (macOS) the shim ends the program's process group
and the rest is swept by marker through psutil, which cannot happen after a kill -9 of loopwright.

Everything runs in callbacks of the running event loop (any thread, no signal handlers, no child watcher); the
coroutine only waits, so that cancelling it at any point is safe. Start it in a thread that lives as long as the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from loopwright import process_tree
from loopwright.redact import PLAIN, Redactor, looks_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

LINUX = sys.platform == "linux"
GIVE_UP_S = 10.0  # after that a process is stuck in the kernel

Ended = Literal["exited", "timeout", "idle", "lingered", "cut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What to run and how long to let it.

    `env` is the complete environment. `log` gets stdout and stderr together, at most `log_bytes`. `stdin` is all it
    can read. Lengths of time are seconds. `idle_s`: so long without output, CPU use in the tree or a new value of
    `active` (a cheap fingerprint of the workspace) ends it. `finished` is asked about stdout lines that
    look like a complete JSON object; once it held, the program has `linger_s` left, and being ended then is no failure.
    `each` hears every such line once, whole; when it answers True the program is ended (`cut`). `stuck` is asked now and
    then where there is an `idle_s`: True ends it as `idle` before that.
    `interrupts`: it sums up on SIGINT, so it gets that before TERM. `idle_cpu`: the share of CPU time it uses even where it does nothing; more is life.
    `drain_s`: how long output of what the program left behind is still read after its exit. `head_bytes` and
    `tail_bytes` of stdout are kept in memory. `redact` takes the secrets out of all that is kept or observed.
    """

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    log: Path
    timeout_s: float
    stdin: bytes = b""
    idle_s: float | None = None
    idle_cpu: float = 0.01
    grace_s: float = 5.0
    linger_s: float | None = None
    finished: Callable[[bytes], bool] | None = None
    each: Callable[[bytes], bool] | None = None
    interrupts: bool = False
    active: Callable[[], object] | None = None
    stuck: Callable[[], bool] | None = None
    drain_s: float = 0.5
    log_bytes: int = 64 << 20
    head_bytes: int = 64 << 10
    tail_bytes: int = 256 << 10
    redact: Redactor = PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a program ended: `code`, or the `signal` that ended it, and why (`ended`).

    `stdout` and `stderr` are bytes without secrets, and so is `result`; where bytes are left out a line says "truncated N bytes". `truncated` bytes are
    missing from the log, `log_problem` says why it could not be written, if so. `seconds` is the monotonic length of
    it all, `quiet_s` how long before its end the last sign of life was. `result` is the last stdout line that looks
    like a JSON object with "type" and "result". `leftovers` outlived the program and were killed; `survivors` could
    not be (another user's, or stuck in the kernel).
    """

    code: int | None
    signal: int | None
    ended: Ended
    stdout: bytes
    stderr: bytes
    stdout_bytes: int
    stderr_bytes: int
    truncated: int
    seconds: float
    quiet_s: float
    leftovers: int
    survivors: int = 0
    result: bytes | None = None
    log_problem: str = ""


async def supervise(process: Process, *, observe: Callable[[bytes], None] | None = None) -> Exit:
    """How the program ended, once nothing of its tree is alive.

    `observe` sees each chunk of stdout. Raises NotStartable when there is no such program. When cancelled, ends the
    tree (TERM, grace, KILL; cancelled again: KILL) and raises CancelledError once everything is dead. What
    `observe`, `finished`, `each` or `active` raise ends the tree and is raised here.
    """
    tree = process_tree.start(process, observe, asyncio.get_running_loop(), _members, _cpu_seconds)
    cancelled: asyncio.CancelledError | None = None
    try:
        while not tree.over:
            tree.waiter = tree.loop.create_future()  # a new one each time: cancelling us cancels it
            try:
                await tree.waiter
            except asyncio.CancelledError as error:
                tree.end(0 if cancelled else process.grace_s)
                cancelled = error
    finally:
        tree.close()  # when thrown out of the loop above, closing the socket makes the shim kill everything
    if cancelled:
        raise cancelled
    if tree.failure:
        raise tree.failure
    return _exit(tree)


def _exit(tree: process_tree.Tree) -> Exit:
    """What `supervise` returns."""
    # Without a status the shim died first, and we killed the rest.
    status = signal.SIGKILL if tree.status is None else tree.status
    return Exit(
        code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        ended=tree.ended,
        stdout=tree.out.text()[0],
        stderr=tree.err.text()[0],
        stdout_bytes=tree.out.total,
        stderr_bytes=tree.err.total,
        truncated=tree.truncated,
        seconds=tree.over_at - tree.started_at,
        quiet_s=max(0.0, tree.over_at - tree.life_at),
        leftovers=tree.leftovers,
        survivors=tree.survivors,
        result=None if tree.lines.result is None else tree.process.redact.data(tree.lines.result),
        log_problem=tree.log.problem,
    )


def sweep(mark: Mapping[str, str], *, grace_s: float = 0) -> int:
    """How many processes were ended because their environment held every one of these pairs.

    For take-over, when what started them is dead. Spares this process and those above it. TERM first when `grace_s`
    is given; returns when none is left, or after ten seconds of KILL. A process that cleared its environment escapes.
    """
    if not mark:
        raise ValueError("an empty mark would mean every process")
    ended: set[int] = set()
    kill_at = time.monotonic() + grace_s
    number = signal.SIGTERM if grace_s else signal.SIGKILL
    told: set[int] = set()
    while victims := _members(mark):
        now = time.monotonic()
        if now >= kill_at:
            number, told = signal.SIGKILL, set()
        if now > kill_at + GIVE_UP_S:
            break
        for pid in victims - told:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
                if number == signal.SIGTERM:
                    os.kill(pid, signal.SIGCONT)  # a stopped process acts on TERM only when it goes on
        told |= victims
        ended |= victims
        time.sleep(0.005)
    return len(ended)


def at_work(root: Path) -> dict[str, list[int]]:
    """The processes that runs have started in `root` or below it, by run; only those whose environment we may read."""
    found: dict[str, list[int]] = {}
    spared = _lineage()
    for pid, environ in _environments():
        words = dict(
            pair.partition(b"=")[::2] for pair in environ.split(b"\0") if pair.startswith(b"LOOPWRIGHT_")
        )
        place = Path(os.fsdecode(words.get(b"LOOPWRIGHT_WORKDIR", b"")))
        if words.get(b"LOOPWRIGHT_RUN") and place.is_relative_to(root) and pid not in spared:
            found.setdefault(os.fsdecode(words[b"LOOPWRIGHT_RUN"]), []).append(pid)
    return found


def process_identity(pid: int | None = None) -> tuple[int, float]:
    """The pid and start time of a process (this one unless told), which no other process of this boot shares.

    The time is in clock ticks since the boot on Linux, else in seconds since 1970. Raises ProcessLookupError when
    there is no such process or only its remains (a zombie).
    """
    pid = os.getpid() if pid is None else pid
    if LINUX:
        fields = _stat(pid)
        if not fields or fields[0] in {b"Z", b"X"}:
            raise ProcessLookupError(f"no process {pid}")
        return pid, float(fields[19])
    import psutil  # type: ignore[import-untyped]

    try:
        return pid, float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(f"no process {pid}") from error


def owner_of_this_process() -> str:
    """`pid:start time` of this process, for a lease."""
    pid, started = process_identity()
    return f"{pid}:{started:.15g}"


def alive(owner: str) -> bool:
    """Whether the process of that `pid:start time` still runs; of this boot only, compare `boot_id` first."""
    pid, _, _ = owner.partition(":")
    try:
        return f"{pid}:{process_identity(int(pid))[1]:.15g}" == owner
    except ProcessLookupError:
        return False


def boot_id() -> str:
    """A text that differs after every boot of this machine."""
    if LINUX:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    import psutil

    return f"{psutil.boot_time():.0f}"


def child_environment(
    environ: Mapping[str, str], *, allow: Collection[str] = ()
) -> tuple[dict[str, str], tuple[str, ...]]:
    """What of `environ` an agent or gate may see, and the sorted names of what is withheld.

    Withheld are our own names (LOOPWRIGHT_…), names with KEY, TOKEN, SECRET, PASSWORD, PASSWD or CREDENTIAL as a
    part (not KEYBOARD or TOKENIZERS; a plain number called …_TOKENS is a limit), headers for OTLP and URLs with credentials in them.
    """
    withheld = sorted(
        name for name, value in environ.items() if name not in allow and _is_withheld(name, value)
    )
    return {name: value for name, value in environ.items() if name not in withheld}, tuple(withheld)


def _is_withheld(name: str, value: str) -> bool:
    return name.startswith("LOOPWRIGHT_") or looks_secret(name, value)


def tool_path(project: Path, path: str) -> str:
    """PATH with the project's own tools first: its `.venv/bin` and `node_modules/.bin`, where they exist."""
    own = [f"{project.absolute()}/{folder}" for folder in (".venv/bin", "node_modules/.bin")]
    return os.pathsep.join([*filter(os.path.isdir, own), *([path] if path else [])])


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on (proc(5) numbers it 3); none when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def _members(mark: Mapping[str, str]) -> set[int]:
    """The processes whose environment holds every pair of `mark`, but for us and those above us."""
    wanted = [os.fsencode(f"\0{name}={value}\0") for name, value in mark.items()]
    spared = _lineage()
    return {
        pid
        for pid, environ in _environments()
        if all(pair in b"\0" + environ + b"\0" for pair in wanted) and pid not in spared
    }


def _environments() -> Iterator[tuple[int, bytes]]:
    """Every process whose environment we may read; a zombie has none."""
    if not LINUX:
        import psutil

        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                pairs = process.environ().items()
                yield process.pid, os.fsencode("\0".join(f"{name}={value}" for name, value in pairs))
        return
    for name in os.listdir("/proc"):  # noqa: PTH208 -- twice as fast, and called in a loop
        if name.isdigit():
            with contextlib.suppress(OSError):
                yield int(name), Path(f"/proc/{name}/environ").read_bytes()


def _lineage() -> set[int]:
    """This process and those above it."""
    if not LINUX:
        import psutil

        return {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found, pid = set(), os.getpid()
    while pid and pid not in found:
        found.add(pid)
        pid = int((_stat(pid) or [b"", b"0"])[1])
    return found


def _cpu_seconds(root: int) -> float:
    """CPU time used by a process, all below it, and those of them that have ended; costs by the size of the tree."""
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        import psutil

        with contextlib.suppress(psutil.Error):
            first = psutil.Process(root)
            return sum(sum(process.cpu_times()[:4]) for process in (first, *first.children(recursive=True)))
        return 0.0
    ticks, todo = 0, [root]
    while todo:
        pid = todo.pop()
        fields = _stat(pid)
        ticks += sum(map(int, fields[11:15]))  # user and system time, own and of collected children
        with contextlib.suppress(OSError):
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                todo += map(int, children.read_bytes().split())
    return ticks / os.sysconf("SC_CLK_TCK")
