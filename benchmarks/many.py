"""1,000 runs of 10 iterations in one process, on the group commit of the local host.

Prints iterations per second, how many commits of 100 rows the disk takes per second, and the peak of memory in MB.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import time
from pathlib import Path

import apsw

from loopwright import Loop
from loopwright.assembled import assemble
from loopwright.hosts.local import start
from loopwright.hosts.ways import Ways
from loopwright.stores.sqlite import SqliteStore
from loopwright.together import Together

RUNS, ITERATIONS = 1000, 10


async def agent(attempt):
    """Works for 50 ms."""
    await asyncio.sleep(0.05)
    return attempt.iteration


async def gate(number):  # noqa: ARG001 - the shape of a gate
    """An instant gate."""
    return True


async def ran(folder: Path) -> float:
    """Iterations per second."""
    store = SqliteStore(folder / "runs.db")
    ways = Ways(project=folder, store=store, together=Together(store))
    loop = Loop("b", agent=agent, gates=[gate], until="limits", max_iterations=ITERATIONS, convergence=False, monitors={"slowdown": "off"})  # fmt: skip
    assembled = assemble(loop, project=folder, path="")
    began = time.perf_counter()
    held = await asyncio.gather(*(start(assembled, f"r{i}", ways) for i in range(RUNS)))
    seconds = time.perf_counter() - began
    assert all(h.state.iteration == ITERATIONS for h in held)
    store.close()
    return RUNS * ITERATIONS / seconds


def groups(folder: Path) -> float:
    """Commits of 100 rows of 700 bytes per second."""
    db = apsw.Connection(str(folder / "floor.db"))
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "full")
    db.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, b BLOB)")
    began = time.perf_counter()
    for _ in range(100):
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO t VALUES (NULL, ?)", [(b"x" * 700,)] * 100)
        db.execute("COMMIT")
    return 100 / (time.perf_counter() - began)


if __name__ == "__main__":
    gc.set_threshold(50_000, 20, 20)  # a process that hosts many runs has much that lives long
    place = Path(sys.argv[1])
    rate = asyncio.run(ran(place))
    print(rate, groups(place), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
