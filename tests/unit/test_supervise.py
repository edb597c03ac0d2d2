"""Child processes: when they end, and that nothing of them stays alive."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from loopwright.supervise import Process, process_identity, supervise, sweep

AGENTS = Path(__file__).parents[1] / "agents"
LATE = 8.0  # what must happen within moments may take this long on a busy machine
PATH = os.environ["PATH"]


def process(tmp_path, *argv, **options):
    given = {"cwd": tmp_path, "env": {"PATH": PATH}, "log": tmp_path / "log", "timeout_s": 30, "grace_s": 0.3}
    return Process(argv=argv, **given | options)


def agent(tmp_path, name, *arguments, **options):
    return process(tmp_path, sys.executable, "-I", "-S", str(AGENTS / name), *map(str, arguments), **options)


def run(tmp_path, *argv, observe=None, **options):
    return asyncio.run(supervise(process(tmp_path, *argv, **options), observe=observe))


def until(condition, within_s=LATE):
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


async def until_soon(condition):
    deadline = time.monotonic() + LATE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def identity(pid):
    try:
        return process_identity(pid)
    except ProcessLookupError:
        return None


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def relatives(file):
    """The family's members by name, as identities that no later process can share."""
    return {name: identity(int(pid)) for name, pid in map(str.split, file.read_text().splitlines())}


def survivors(members):
    return [name for name, who in members.items() if who and identity(who[0]) == who]


class Family:
    """What `family.py` recorded, taken by `observe` at the moment it says that all are there."""

    def __init__(self, tmp_path):
        self.file = tmp_path / "family"
        self.members = {}

    def see(self, chunk):
        if b"ready" in chunk:
            self.members = relatives(self.file)


# ── when it ends ────────────────────────────────────────────────────────────────────────────────────────


def test_waits_for_the_exit_not_for_a_grandchild_that_holds_the_output(tmp_path):
    end = run(
        tmp_path, "sh", "-c", "echo before; (sleep 0.2; echo after; exec sleep 300) & echo $!", drain_s=1.0
    )
    assert (end.code, end.ended, end.leftovers) == (0, "exited", 1)
    pid, *words = sorted(end.stdout.split())
    assert words == [b"after", b"before"]  # still read for drain_s
    assert identity(int(pid)) is None
    assert 1.0 <= end.seconds < 1.0 + LATE


def test_what_is_left_without_output_is_ended_at_once(tmp_path):
    end = run(tmp_path, "sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!", drain_s=60)
    assert (end.code, end.leftovers) == (0, 1)
    assert identity(int(end.stdout)) is None
    assert end.seconds < LATE


def test_timeout_is_term_then_kill(tmp_path):
    end = asyncio.run(supervise(agent(tmp_path, "deaf.py", timeout_s=0.5, grace_s=0.4)))
    assert (end.code, end.signal, end.ended, end.stdout) == (None, signal.SIGKILL, "timeout", b"working\n")
    assert 0.9 <= end.seconds < 0.9 + LATE
    end = run(
        tmp_path,
        "sh",
        "-c",
        "trap 'echo bye; exit 7' TERM; while :; do sleep 0.02; done",
        timeout_s=0.5,
        grace_s=20,
    )
    assert (end.code, end.ended, end.stdout) == (7, "timeout", b"bye\n")
    assert end.seconds < 0.5 + LATE


def test_a_stopped_process_gets_its_chance_to_end_well(tmp_path):
    end = run(tmp_path, "sh", "-c", "trap 'echo bye; exit 7' TERM; kill -STOP $$", timeout_s=0.5, grace_s=20)
    assert (end.code, end.ended, end.stdout) == (7, "timeout", b"bye\n")


def test_a_silent_program_is_idle(tmp_path):
    end = run(tmp_path, "sleep", "300", idle_s=0.6)
    assert (end.signal, end.ended) == (signal.SIGTERM, "idle")
    assert 0.6 <= end.quiet_s <= end.seconds < 0.6 + LATE


def test_the_cpu_it_uses_doing_nothing_is_no_life(tmp_path):
    end = run(tmp_path, "sh", "-c", "while :; do :; done", idle_s=0.6, idle_cpu=2.0, timeout_s=20)
    assert end.ended == "idle"


def test_signs_of_life_keep_it_from_being_idle(tmp_path):
    file = tmp_path / "file"
    file.touch()
    signs = {
        "output": ("while :; do echo; sleep 0.05; done", None),
        "cpu": ("(while :; do :; done) & wait", None),
        "workspace": ("while :; do echo >>file; sleep 0.05; done", lambda: file.stat().st_size),
    }

    async def main():
        return await asyncio.gather(
            *(
                supervise(
                    process(
                        tmp_path,
                        "sh",
                        "-c",
                        command,
                        log=tmp_path / sign,
                        idle_s=1.2,
                        timeout_s=2.6,
                        active=active,
                    )
                )
                for sign, (command, active) in signs.items()
            )
        )

    assert [end.ended for end in asyncio.run(main())] == ["timeout"] * 3


def test_a_program_that_lingers_after_its_result_is_ended_with_success(tmp_path):
    result = '{"type":"result","result":"done"}'
    end = run(
        tmp_path,
        "sh",
        "-c",
        f"echo '{result}'; exec sleep 300",
        linger_s=0.2,
        finished=lambda line: b"done" in line,
    )
    assert (end.ended, end.result) == ("lingered", result.encode())
    assert 0.2 <= end.seconds < 0.2 + LATE
    end = run(
        tmp_path,
        "sh",
        "-c",
        f"echo '{result}'; exec sleep 300",
        linger_s=60,
        timeout_s=0.4,
        finished=lambda _: True,
    )
    assert end.ended == "lingered"
    end = run(tmp_path, "sh", "-c", f"echo '{result}'; exit 1", linger_s=5, finished=lambda _: True)
    assert (end.ended, end.code) == ("exited", 1)


def test_a_program_that_is_stuck_is_ended_though_it_shows_life(tmp_path):
    life = iter(range(1000)).__next__
    argv = ("sh", "-c", "exec sleep 300")
    end = run(tmp_path, *argv, idle_s=0.4, active=life, stuck=lambda: True, timeout_s=20)
    assert end.ended == "idle"
    end = run(tmp_path, *argv, idle_s=0.4, active=life, stuck=lambda: False, timeout_s=1)
    assert end.ended == "timeout"


def test_an_error_of_an_observer_ends_the_tree_and_is_raised(tmp_path):
    def observe(chunk):
        raise ZeroDivisionError(chunk)

    with pytest.raises(ZeroDivisionError) as caught:
        run(tmp_path, "sh", "-c", "echo $$; exec sleep 300", observe=observe)
    assert identity(int(caught.value.args[0])) is None


# ── nothing stays alive ─────────────────────────────────────────────────────────────────────────────────


def test_after_a_normal_exit_nothing_is_left(tmp_path):
    family = Family(tmp_path)
    end = asyncio.run(
        supervise(agent(tmp_path, "family.py", family.file, "leave", drain_s=0.1), observe=family.see)
    )
    assert (end.code, end.leftovers, len(family.members)) == (0, 6, 6)
    assert survivors(family.members) == []


def test_after_a_timeout_nothing_is_left(tmp_path):
    family = Family(tmp_path)
    end = asyncio.run(
        supervise(agent(tmp_path, "family.py", family.file, "stay", timeout_s=1.5), observe=family.see)
    )
    assert (end.signal, end.ended) == (signal.SIGTERM, "timeout")
    assert len(family.members) == 6
    assert survivors(family.members) == []
    assert end.leftovers == 2  # the two that ignore TERM; the others went with the head


@pytest.mark.parametrize("times", [1, 2])
def test_cancelling_ends_everything_first(tmp_path, times):
    family = Family(tmp_path)
    grace_s = 0.3 if times == 1 else 300  # cancelled again, nobody waits for the grace

    async def main():
        task = asyncio.create_task(
            supervise(agent(tmp_path, "family.py", family.file, "stay", grace_s=grace_s), observe=family.see)
        )
        await until_soon(lambda: family.members)
        asked = time.monotonic()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert survivors(family.members) == []
        assert time.monotonic() - asked < LATE

    asyncio.run(main())
    assert len(family.members) == 6


def test_cancelling_at_any_moment_leaves_nothing(tmp_path):
    mark = {"FAMILY": str(tmp_path)}

    async def main():
        for turn in range(20):
            task = asyncio.create_task(
                supervise(process(tmp_path, "sleep", "300", env={"PATH": PATH} | mark))
            )
            await asyncio.sleep(
                0 if turn < 3 else turn / 500
            )  # before, during and after the start of the shim
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sweep(mark) == 0

    before = len(list(Path("/proc/self/fd").iterdir()))
    asyncio.run(main())
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_the_end_of_the_loop_ends_it_too(tmp_path):
    family, tasks = Family(tmp_path), []

    async def main():
        running = supervise(agent(tmp_path, "family.py", family.file, "stay"), observe=family.see)
        tasks.append(asyncio.create_task(running))
        await until_soon(lambda: family.members)

    asyncio.run(main())  # cancels what still runs
    assert len(family.members) == 6
    assert survivors(family.members) == []


@pytest.mark.parametrize("forked", [False, True])
def test_kill_9_of_loopwright_ends_everything(tmp_path, forked):
    """`forked`: a child of loopwright lives on and holds the socket, so that only the death signal tells."""
    script = f"""
import asyncio, os, signal
from pathlib import Path
from loopwright.supervise import Process, supervise
def ready(_):
    child = os.fork() if {forked} else os.getpid()
    if child == 0:
        signal.pause()
    print(child, flush=True)
asyncio.run(supervise(Process(argv={(sys.executable, str(AGENTS / "family.py"), str(tmp_path / "family"), "stay")!r},
    cwd=Path("."), env=dict(os.environ), log=Path("log"), timeout_s=60), observe=ready))
"""
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE) as loopwright:
        child = int(loopwright.stdout.readline())
        members = relatives(tmp_path / "family")
        loopwright.kill()
        loopwright.wait()
        assert until(lambda: not survivors(members))
        if forked:
            os.kill(child, signal.SIGKILL)
    assert len(members) == 6


@pytest.mark.parametrize("how", ["killed", "stopped", "stopped again and again"])
def test_a_shim_that_was_killed_or_stopped_saves_nobody(tmp_path, how):
    family = Family(tmp_path)
    number = signal.SIGKILL if how == "killed" else signal.SIGSTOP

    async def main():
        task = asyncio.create_task(
            supervise(agent(tmp_path, "family.py", family.file, "stay", timeout_s=2.0), observe=family.see)
        )
        await until_soon(lambda: family.members)
        shim = identity(parent(parent(family.members["child"][0])))
        os.kill(shim[0], number)
        while how == "stopped again and again" and not task.done() and identity(shim[0]) == shim:
            os.kill(shim[0], number)
            await asyncio.sleep(0)
        return await task

    end = asyncio.run(main())
    assert survivors(family.members) == []
    # Stopped without end, the shim may have been killed before it could count those that died of TERM.
    assert end.leftovers >= (1 if how == "stopped again and again" else 2)
    assert (end.ended, end.signal) == {
        "killed": ("exited", signal.SIGKILL),
        "stopped": ("timeout", signal.SIGTERM),
        "stopped again and again": ("timeout", end.signal),
    }[how]
    assert end.seconds < 2.3 + LATE


def test_what_escapes_when_the_shim_is_killed_cannot_hold_us(tmp_path):
    said = []

    def kill_shim(chunk):
        said.extend(map(int, chunk.split()))
        os.kill(said[0], signal.SIGKILL)

    end = asyncio.run(supervise(agent(tmp_path, "escapes.py"), observe=kill_shim))
    os.kill(said[1], signal.SIGKILL)  # the one way out that is documented
    assert end.signal == signal.SIGKILL
    assert end.seconds < LATE


def test_thrown_out_of_its_loop_it_takes_everything_along(tmp_path):
    family = Family(tmp_path)

    async def main():
        supervision = supervise(agent(tmp_path, "family.py", family.file, "stay"), observe=family.see)
        supervision.send(None)
        await until_soon(lambda: family.members)
        supervision.close()

    before = len(list(Path("/proc/self/fd").iterdir()))
    asyncio.run(main())
    assert survivors(family.members) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_many_at_once_on_a_loop_of_another_thread(tmp_path):
    ends = []

    async def main():
        many = [
            supervise(process(tmp_path, "sh", "-c", f"exit {n}", log=tmp_path / str(n))) for n in range(30)
        ]
        ends.extend(await asyncio.gather(*many))

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    thread.join()
    assert [end.code for end in ends] == list(range(30))
