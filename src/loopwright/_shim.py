"""Stand between loopwright and one program, so that nothing of that program's tree outlives either.

    python -I -S -X utf8 _shim.py PARENT_PID CONTROL_FD LC_CTYPE PROGRAM [ARGUMENT…]

Rule: this process ends only when every process below it is dead (or will not be killed, and it says so).

It is the *subreaper* of the tree: orphans, daemons and children in sessions of their own become its children,
so it can name and reap them all. It speaks lines over the control socket. It says `failed ERRNO` or `started PID`,
then `exit WAIT_STATUS` of the program, then `gone KILLED SURVIVORS`. It is told `end GRACE_SECONDS`: TERM, grace,
KILL; a second `end` can only shorten the grace. End of file on the socket, or the death signal of the parent
(PR_SET_PDEATHSIG), means loopwright is dead: KILL at once. PDEATHSIG fires when the *thread* that started us ends,
so every signal is only a reason to look whether the parent process is still the same.

Without prctl and /proc (macOS) only end of file tells of the parent's death and only the program's process group is
ended here; `supervise` then sweeps the rest by its marker.

Start-up time is paid by every agent and gate: modules written in C only (`signal`, `ctypes` and `os` would double it).
"""

import _signal as signal  # type: ignore[import-not-found]
import posix
import select
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GIVE_UP_S = 10.0  # after the first KILL; what still lives then is stuck in the kernel
ROUND_S = 0.01  # between two looks for survivors of KILL


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process, where the system knows prctl."""
    try:
        import _ctypes

        address = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        _ctypes.call_function(address, (option, value, 0, 0, 0))
    except (
        ImportError,
        AttributeError,
        OSError,
    ):  # not this Python's private way: the public one, 4 ms slower
        import ctypes

        function = getattr(ctypes.CDLL(None), "prctl", None)
        if function is not None:
            function(option, value, 0, 0, 0)


def say(control: int, text: str) -> None:
    """Send one line to loopwright, if it is still there."""
    try:
        posix.write(control, text.encode() + b"\n")
    except OSError:  # it died; the end of file on the same socket is acted upon
        return


def execute(command: list[str], environ: dict[bytes, bytes]) -> None:
    """Become the program, looked up on PATH as a shell would; raises OSError."""
    words = [word.encode("utf-8", "surrogateescape") for word in command]
    if b"/" in words[0]:
        posix.execve(words[0], words, environ)
    refused: OSError = FileNotFoundError(2, "not on PATH")
    for folder in environ.get(b"PATH", b"/usr/bin:/bin").split(b":"):
        try:
            posix.execve((folder or b".") + b"/" + words[0], words, environ)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:  # perhaps a folder further on has one that may be run
            refused = error
    raise refused


def start(command: list[str], environ: dict[bytes, bytes]) -> tuple[int, int]:
    """The pid of the started program and 0, or 0 and the errno that says why it could not be started."""
    us = posix.getpid()
    answer, ours = posix.pipe()  # close-on-exec, as every descriptor here but 0, 1, 2
    pid = posix.fork()
    if pid == 0:
        try:
            posix.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if posix.getppid() == us:
                execute(command, environ)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the program did not start
            posix.write(ours, b"%d" % (getattr(error, "errno", None) or 22))
        finally:
            posix._exit(127)  # noqa: SLF001 -- its public name
    posix.close(ours)
    refused = posix.read(answer, 16)
    posix.close(answer)
    if refused:
        posix.waitpid(pid, 0)
        return 0, int(refused)
    return pid, 0


def tree(child: int) -> dict[int, tuple[int, bool]]:
    """Every process below this one: pid → (process group, still running)."""
    below: dict[bytes, list[tuple[str, bytes, bool]]] = {}
    try:
        names = posix.listdir("/proc")
    except OSError:
        return {child: (child, True)}  # no /proc: the program's own group is all we can name
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 -- pathlib costs more than all the rest
                state, parent, group = file.read().rpartition(b")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # it ended while we looked
        below.setdefault(parent, []).append((name, group, state != b"Z"))
    found: dict[int, tuple[int, bool]] = {}
    todo = [posix.getpid()]
    while todo:
        for pid, its_group, running in below.get(b"%d" % todo.pop(), ()):
            found[int(pid)] = (int(its_group), running)
            todo.append(int(pid))
    return found


def signal_tree(child: int, number: int) -> tuple[set[int], bool]:
    """Signal everything below us; the running pids signalled, and whether all of them refused."""
    members = tree(child)
    refused = set()
    for pid, (group, _) in members.items():
        for target in (
            (pid, -group) if number == signal.SIGKILL else (pid,)
        ):  # a group cannot fork away from KILL
            try:
                posix.kill(target, number)
                if number != signal.SIGKILL:
                    posix.kill(target, signal.SIGCONT)  # a stopped process acts on TERM only when it goes on
            except ProcessLookupError:
                pass
            except PermissionError:
                refused.add(pid)
    running = {pid for pid, (_, alive) in members.items() if alive}
    return running, bool(running) and running <= refused


def reap(child: int) -> tuple[int | None, bool]:
    """Collect every ended child: the program's wait status if it was among them, and whether none is left."""
    status = None
    while True:
        try:
            pid, code = posix.waitpid(-1, posix.WNOHANG)
        except ChildProcessError:
            return status, True
        if pid == 0:
            return status, False
        if pid == child:
            status = code


def listen(poll: select.poll, control: int, wake: int, parent: int, pause_s: float | None) -> float | None:
    """Wait for news at most `pause_s`; the grace in seconds if the tree is to be ended, 0 if loopwright is dead."""
    ready = dict(poll.poll(None if pause_s is None else max(0, int(pause_s * 1000)) + 1))
    if wake in ready:
        posix.read(wake, 4096)
    graces = []
    if control in ready:
        try:
            orders = posix.read(control, 4096)
        except OSError:
            orders = b""
        graces = [float(order.split()[1]) for order in orders.splitlines()]
        if not orders:
            poll.unregister(control)
            graces = [0.0]
    if posix.getppid() != parent:
        graces.append(0.0)
    return min(graces, default=None)


def watch(child: int, parent: int, control: int, wake: int) -> None:
    """Stay until nothing is left below us, or what is left cannot be killed."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    exited = False
    outlived: set[int] = set()  # signalled after the program itself had exited
    kill_at = last_kill_at = None
    while True:
        status, none_left = reap(child)
        if status is not None:
            exited = True
            say(control, f"exit {status}")
        if none_left:
            say(control, f"gone {len(outlived)} 0")
            return
        now = time.monotonic()
        if kill_at is not None and now >= kill_at:
            last_kill_at = last_kill_at or now + GIVE_UP_S
            signalled, refused = signal_tree(child, signal.SIGKILL)
            outlived |= signalled if exited else set()
            if refused or now > last_kill_at:
                say(control, f"gone {len(outlived)} {len(signalled)}")
                return
            kill_at = now + ROUND_S
        pause_s = None if kill_at is None else kill_at - time.monotonic()
        grace_s = listen(poll, control, wake, parent, pause_s)
        if grace_s is None:
            continue
        if grace_s and kill_at is None:
            signalled, _ = signal_tree(child, signal.SIGTERM)
            outlived |= signalled if exited else set()
        now = time.monotonic()
        kill_at = now + grace_s if kill_at is None else min(kill_at, now + grace_s)


def main(argv: list[str]) -> None:
    """Start the program and stay until its tree is dead."""
    parent, control, ctype = int(argv[1]), int(argv[2]), argv[3].encode()
    posix.set_inheritable(control, False)  # the program must not hold it
    wake, ring = posix.pipe()
    posix.set_blocking(ring, False)
    # A caught signal goes back to its default in the program; an ignored one would stay ignored there.
    for name in "CHLD TERM INT HUP QUIT PIPE ALRM USR1 USR2 TSTP TTIN TTOU XFSZ".split():  # noqa: SIM905 -- legible
        signal.signal(getattr(signal, "SIG" + name), lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if posix.getppid() != parent:
        return  # loopwright died before the death signal was set
    environ = dict(posix.environ)
    environ.pop(b"LC_CTYPE", None)  # Python sets it in the C locale; the program gets what it was given
    if ctype:
        environ[b"LC_CTYPE"] = ctype
    child, refused = start(argv[4:], environ)
    if not child:
        say(control, f"failed {refused}")
        return
    null = posix.open("/dev/null", posix.O_RDWR)
    for descriptor in (0, 1, 2):
        posix.dup2(null, descriptor)  # end of file on the output must mean the program's tree let go of it
    say(control, f"started {child}")
    watch(child, parent, control, wake)


if __name__ == "__main__":
    main(sys.argv)
    posix._exit(0)  # noqa: SLF001 -- its public name; skips a millisecond of clean-up
