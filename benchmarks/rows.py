"""The rows of the speed table. Each returns what was measured, its floor, and the target, as text."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import apsw

from loopwright import Loop, run

ROUNDS = 5
ENV = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]), "LANG": "C.UTF-8"}


def agent(attempt):
    """An instant agent."""
    return attempt.iteration


def gate(number):  # noqa: ARG001 - the shape of a gate
    """An instant gate."""
    return True


def scratch() -> Path:
    """A folder on the disk that holds this checkout: a temporary file system would have no floor."""
    return Path(tempfile.mkdtemp(prefix=".bench-", dir=Path(__file__).parents[1]))


def looped(n: int, folder: Path) -> tuple[float, float]:
    """Seconds and CPU seconds of one durable run of n instant iterations."""
    loop = Loop(
        "bench",
        agent=agent,
        gates=[gate],
        until="limits",
        max_iterations=n,
        max_duration="10h",
        convergence=False,
        monitors={"slowdown": "off"},
    )
    wall, cpu = time.perf_counter(), time.process_time()
    final = run(loop, f"bench-{n}-{time.time_ns()}", folder=folder)
    assert final.iterations == n, final
    return time.perf_counter() - wall, time.process_time() - cpu


def floored(n: int, folder: Path) -> float:
    """Seconds of n times two raw commits of 700 bytes, WAL and synchronous FULL."""
    db = apsw.Connection(str(folder / f"floor-{time.time_ns()}.db"))
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "full")
    db.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, b BLOB)")
    began = time.perf_counter()
    for i in range(2 * n):
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO t VALUES (?, ?)", (i, b"x" * 700))
        db.execute("COMMIT")
    return time.perf_counter() - began


def one() -> tuple[str, str, str]:
    """One loop, agent and gate instant, SQLite, durable."""
    folder, n = scratch(), 1000
    try:
        looped(50, folder)  # imports and first-use costs are not per iteration
        pairs = [(looped(n, folder), floored(n, folder)) for _ in range(ROUNDS)]
        size = (folder / ".agent-state/loopwright.db").stat().st_size / (ROUNDS * n)
    finally:
        shutil.rmtree(folder)
    mine = statistics.median(m[0] for m, _ in pairs) / n * 1e3
    cpu = statistics.median(m[1] for m, _ in pairs) / n * 1e3
    floor = statistics.median(f for _, f in pairs) / n * 1e3
    return (
        f"{mine:.2f} ms/it = {mine / floor:.2f}x, {cpu:.2f} ms CPU, {size / 1e3:.1f} KB",
        f"{floor:.2f} ms",
        "1.5x, 0.15 ms, 3 KB",
    )


def growth() -> tuple[str, str, str]:
    """Cost per iteration at N = 10,000 against N = 100."""
    folder = scratch()
    try:
        looped(50, folder)
        small = statistics.median(looped(100, folder)[0] / 100 for _ in range(3 * ROUNDS))
        large = looped(10_000, folder)[0] / 10_000
    finally:
        shutil.rmtree(folder)
    return f"{large * 1e3:.2f} ms at 10,000 = {large / small:.2f}x", f"{small * 1e3:.2f} ms at 100", "1.1x"


def files() -> tuple[str, str, str]:
    """A command agent that writes one file, command gate `true`, a repository of 2,000 files, snapshots on."""
    folder, n = scratch(), 20
    try:
        for i in range(2000):
            (folder / f"d{i % 40}").mkdir(exist_ok=True)
            (folder / f"d{i % 40}" / f"f{i}.txt").write_text(f"{i}\n")
        who = ("-c", "user.name=b", "-c", "user.email=b@example.invalid")
        for verb in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "x")):
            subprocess.run(["git", *verb], cwd=folder, check=True, capture_output=True)
        times = []
        for i in range(3):
            began = time.perf_counter()
            loop = Loop(
                "bench",
                agent="sh -c 'echo $LOOPWRIGHT_KEY > out.txt'",
                gates=["true"],
                until="limits",
                max_iterations=n,
            )
            assert run(loop, f"files-{i}", folder=folder).iterations == n
            times.append((time.perf_counter() - began) / n)
        floor = []
        for _ in range(n):
            began = time.perf_counter()
            subprocess.run(["sh", "-c", "true"], check=True)
            subprocess.run(["true"], check=True)
            floor.append(time.perf_counter() - began)
    finally:
        shutil.rmtree(folder)
    return (
        f"{statistics.median(times) * 1e3:.0f} ms/it",
        f"{statistics.median(floor) * 1e3:.1f} ms two spawns",
        "60 ms",
    )


def output() -> tuple[str, str, str]:
    """200 MB of agent output."""
    folder = scratch()
    source = folder / "big"
    try:
        with source.open("wb") as file:
            for _ in range(200):
                file.write(
                    b"a line of output that an agent might print, some eighty characters long........\n"
                    * 13107
                )
        mine, floor = [], []
        for i in range(3):
            began = time.perf_counter()
            loop = Loop(
                "bench",
                agent=f"cat {source}",
                gates=["true"],
                max_iterations=1,
                workspace="none",
                baseline=False,
            )
            assert run(loop, f"out-{i}", folder=folder).reason == "quality_reached"
            mine.append(time.perf_counter() - began)
            began = time.perf_counter()
            with subprocess.Popen(["cat", str(source)], stdout=subprocess.PIPE) as cat:
                subprocess.run(["cat"], stdin=cat.stdout, stdout=subprocess.DEVNULL, check=True)
            floor.append(time.perf_counter() - began)
        memory = (
            int(
                next(
                    s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith("VmHWM:")
                ).split()[1]
            )
            / 1024
        )
    finally:
        shutil.rmtree(folder)
    a, b = statistics.median(mine), statistics.median(floor)
    return (
        f"{a:.2f} s = {a / b:.1f}x, {memory:.0f} MB peak of this process",
        f"{b:.2f} s cat | cat",
        "3x, 60 MB",
    )


def started(*argv: str, cwd: Path | None = None) -> float:
    """Median seconds of a program from start to end."""
    times = []
    for _ in range(9):
        began = time.perf_counter()
        subprocess.run(argv, cwd=cwd, env=ENV, check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def start() -> tuple[str, str, str]:
    """`--version`, and `list` with 1,000 runs in the store."""
    folder = scratch()
    try:
        for i in range(1000):
            run(Loop("bench", agent=agent, gates=[gate]), f"r-{i}", folder=folder)
        bare = started(sys.executable, "-I", "-c", "pass")
        version = started("loopwright", "--version")
        listed = started("loopwright", "list", "--all", "--json", cwd=folder)
    finally:
        shutil.rmtree(folder)
    return (
        f"--version {version / bare:.1f}x, list {listed / bare:.1f}x",
        f"{bare * 1e3:.0f} ms python -I",
        "6x, 10x",
    )


def resume() -> tuple[str, str, str]:
    """From kill -9 in iteration 1,000: process start to the next agent start."""
    folder = scratch()
    times = []
    try:
        program = folder / "loop.py"
        program.write_text(
            "import os, time\n"
            "from loopwright import Loop, run\n"
            "def work(attempt):\n"
            "    open('started', 'a').write(f'{time.time()}\\n')\n"
            "    if attempt.iteration == 1000: os.kill(os.getpid(), 9)\n"
            "    return 1\n"
            "def gate(n): return True\n"
            "run(Loop('b', agent=work, gates=[gate], until='limits', max_iterations=2000, convergence=False), 'x')\n"
        )
        subprocess.run([sys.executable, str(program)], cwd=folder, env=ENV, check=False, capture_output=True)
        for _ in range(2):  # the third crash in a row ends the run
            began = time.time()
            subprocess.run(
                [sys.executable, str(program)], cwd=folder, env=ENV, check=False, capture_output=True
            )
            times.append(float((folder / "started").read_text().split()[-1]) - began)
    finally:
        shutil.rmtree(folder)
    return (
        f"{statistics.median(times):.3f} s",
        f"{started(sys.executable, '-I', '-c', 'pass'):.3f} s python -I",
        "0.25 s",
    )


ROWS = {"one": one, "growth": growth, "resume": resume, "files": files, "output": output, "start": start}
