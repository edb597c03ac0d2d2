"""The rows of the speed table: what was measured, its floor in the same run, and the target.

Rule: medians of interleaved rounds; a row's verdict is its worst figure against its target.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from xml.parsers import expat

import apsw

from loopwright import Loop, run

ROUNDS = 5
MEMORY = Path("/dev/shm")  # where CPU time is measured: waiting for a disk costs some as well
ENV = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]), "LANG": "C.UTF-8"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table; `off` are the figures as multiples of what is wanted (1 or less is met)."""

    measured: str
    floor: str
    target: str
    off: tuple[float, ...]

    @property
    def verdict(self) -> str:
        """Met, or how far off."""
        worst = max(self.off)
        return "met" if worst <= 1 else f"{worst:.1f}x off"


async def agent(attempt):
    """An instant agent."""
    return attempt.iteration


async def gate(number):  # noqa: ARG001 - the shape of a gate
    """An instant gate."""
    return True


def plain_agent(attempt):
    """An instant agent that runs in a thread, as every function without `async` does."""
    return attempt.iteration


def plain_gate(number):  # noqa: ARG001 - the shape of a gate
    """An instant gate, the same."""
    return True


def scratch(where: Path | None = None) -> Path:
    """A folder on the disk that holds this checkout: a temporary file system would have no floor."""
    return Path(tempfile.mkdtemp(prefix=".bench-", dir=where or Path(__file__).parents[1]))


def looped(n: int, folder: Path, *, threads: bool = False) -> tuple[float, float]:
    """Seconds and CPU seconds of one durable run of n instant iterations."""
    loop = Loop(
        "bench",
        agent=plain_agent if threads else agent,
        gates=[plain_gate if threads else gate],
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


def one(*, threads: bool = False) -> Row:
    """One loop, agent and gate instant, SQLite, durable."""
    folder, n = scratch(), 1000
    try:
        looped(50, folder, threads=threads)  # imports and first-use costs are not per iteration
        pairs = [(looped(n, folder, threads=threads), floored(n, folder)) for _ in range(ROUNDS)]
        size = (folder / ".agent-state/loopwright.db").stat().st_size / (ROUNDS * n) / 1e3
    finally:
        shutil.rmtree(folder)
    mine = statistics.median(m[0] for m, _ in pairs) / n * 1e3
    floor = statistics.median(f for _, f in pairs) / n * 1e3
    cpu, least = spent(n, threads=threads)
    return Row(
        measured=f"{mine:.2f} ms/it = {mine / floor:.2f}x, {cpu:.2f} ms CPU, {size:.1f} KB",
        floor=f"{floor:.2f} ms, {least:.2f} ms CPU",
        target="1.5x, 0.15 ms CPU, 3 KB",
        off=(mine / floor / 1.5, cpu / 0.15, size / 3),
    )


def threads() -> Row:
    """The same with functions that are not async: each call is handed to a thread and back."""
    return one(threads=True)


def spent(n: int, *, threads: bool) -> tuple[float, float]:
    """CPU milliseconds per iteration of the loop and of the floor, without a disk to wait for."""
    folder = scratch(MEMORY if MEMORY.is_dir() else None)
    try:
        looped(50, folder, threads=threads)
        mine = statistics.median(looped(n, folder, threads=threads)[1] for _ in range(ROUNDS))
        cpu = time.process_time()
        for _ in range(ROUNDS):
            floored(n, folder)
        floor = (time.process_time() - cpu) / ROUNDS
    finally:
        shutil.rmtree(folder)
    return mine / n * 1e3, floor / n * 1e3


def growth() -> Row:
    """Cost per iteration at N = 10,000 against N = 100."""
    folder = scratch()
    try:
        looped(50, folder)
        small = statistics.median(looped(100, folder)[0] / 100 for _ in range(3 * ROUNDS))
        large = looped(10_000, folder)[0] / 10_000
    finally:
        shutil.rmtree(folder)
    return Row(
        measured=f"{large * 1e3:.2f} ms at 10,000 = {large / small:.2f}x",
        floor=f"{small * 1e3:.2f} ms at 100",
        target="1.1x",
        off=(large / small / 1.1,),
    )


def many() -> Row:
    """1,000 runs of 10 iterations whose agent sleeps 50 ms, in one process; a process of its own, for its memory."""
    folder = scratch()
    try:
        program = str(Path(__file__).with_name("many.py"))
        told = subprocess.run(
            [sys.executable, program, str(folder)], env=ENV, check=True, capture_output=True, text=True
        )
    finally:
        shutil.rmtree(folder)
    rate, floor, memory = map(float, told.stdout.split())
    return Row(
        measured=f"{rate:,.0f} iterations/s, {memory:.0f} MB",
        floor=f"{floor:,.0f} groups of commits/s",
        target="5,000/s, 150 MB",
        off=(5000 / rate, memory / 150),
    )


def files() -> Row:
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
    mine = statistics.median(times) * 1e3
    return Row(
        measured=f"{mine:.0f} ms/it",
        floor=f"{statistics.median(floor) * 1e3:.1f} ms two spawns",
        target="60 ms",
        off=(mine / 60,),
    )


def output() -> Row:
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
    return Row(
        measured=f"{a:.2f} s = {a / b:.1f}x, {memory:.0f} MB peak of this process",
        floor=f"{b:.2f} s cat | cat",
        target="3x, 60 MB",
        off=(a / b / 3, memory / 60),
    )


def started(*argv: str, cwd: Path | None = None) -> float:
    """Median seconds of a program from start to end."""
    times = []
    for _ in range(9):
        began = time.perf_counter()
        subprocess.run(argv, cwd=cwd, env=ENV, check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def start() -> Row:
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
    return Row(
        measured=f"--version {version / bare:.1f}x, list {listed / bare:.1f}x",
        floor=f"{bare * 1e3:.0f} ms python -I",
        target="6x, 10x",
        off=(version / bare / 6, listed / bare / 10),
    )


def resume() -> Row:
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
    mine = statistics.median(times)
    return Row(
        measured=f"{mine:.3f} s",
        floor=f"{started(sys.executable, '-I', '-c', 'pass'):.3f} s python -I",
        target="0.25 s",
        off=(mine / 0.25,),
    )


def junit() -> Row:
    """A JUnit report of 100,000 tests, read by a process of its own."""
    folder = scratch()
    try:
        report = folder / "report.xml"
        with report.open("w") as file:
            file.write('<testsuites><testsuite name="s" tests="100000">')
            for i in range(100_000):
                file.write(f'<testcase classname="tests.test_{i % 300}" name="test_{i}" time="0.01"/>')
            file.write("</testsuite></testsuites>")
        program = (
            "import sys, time, resource\nfrom loopwright.evidence.junit import read\nfrom pathlib import Path\n"
            "began = time.perf_counter()\nread([(sys.argv[1], iter(lambda f=open(sys.argv[1], 'rb'): f.read(65536), b''))])\n"
            "print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
        )
        told = subprocess.run(
            [sys.executable, "-c", program, str(report)], env=ENV, check=True, capture_output=True, text=True
        )
        began = time.perf_counter()
        parser = expat.ParserCreate()
        parser.Parse(report.read_bytes(), True)
        floor = time.perf_counter() - began
    finally:
        shutil.rmtree(folder)
    seconds, memory = map(float, told.stdout.split())
    return Row(
        measured=f"{seconds:.2f} s, {memory:.0f} MB",
        floor=f"{floor:.2f} s expat alone",
        target="3 s, 60 MB",
        off=(seconds / 3, memory / 60),
    )


ROWS = {
    "one": one,
    "threads": threads,
    "growth": growth,
    "many": many,
    "resume": resume,
    "files": files,
    "output": output,
    "start": start,
    "junit": junit,
}
