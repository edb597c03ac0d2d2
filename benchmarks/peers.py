"""The same work on other durable engines: N iterations of an agent and a gate, each step on record before the next.

`python -m benchmarks.peers` runs ours and theirs in turn, each in a process of its own, and prints the medians.
`python benchmarks/peers.py NAME N FOLDER` is one such process; it prints the milliseconds of an iteration.

Rule: everybody writes through to the disk at every step (SQLite; LangGraph `durability="sync"`, DBOS on a file set to
WAL), and everybody's figures are taken in the same minutes on the same disk.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

N, ROUNDS = 300, 5
TEXT = "x" * 1024  # what the agent returns
HERE = Path(__file__).parents[1]
OURS, THEIRS = HERE / ".venv/bin/python", HERE / ".venv/peers/bin/python"


def loopwright(n: int, folder: Path) -> float:
    """Seconds of n iterations here."""
    from loopwright import Loop, run

    async def agent(attempt):  # noqa: ARG001 - the shape of an agent
        return TEXT

    async def gate(text):
        return bool(text)

    loop = Loop("g", agent=agent, gates=[gate], until="limits", max_iterations=n, convergence=False, monitors={"slowdown": "off"})  # fmt: skip
    began = time.perf_counter()
    assert run(loop, "r", folder=folder).iterations == n
    return time.perf_counter() - began


def langgraph(n: int, folder: Path) -> float:
    """Seconds of n iterations of a two-node graph with the SQLite checkpointer, synchronous."""
    from typing import TypedDict

    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        i: int
        out: str
        score: float

    def agent(state):
        return {"i": state["i"] + 1, "out": TEXT}

    def gate(state):
        return {"score": float(bool(state["out"]))}

    graph = StateGraph(State)
    graph.add_node("agent", agent)
    graph.add_node("gate", gate)
    graph.add_edge(START, "agent")
    graph.add_edge("agent", "gate")
    graph.add_conditional_edges("gate", lambda state: END if state["i"] >= n else "agent")
    with SqliteSaver.from_conn_string(str(folder / "graph.db")) as saver:
        app = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "r"}, "recursion_limit": 10 * n}
        began = time.perf_counter()
        done = app.invoke({"i": 0, "out": "", "score": 0.0}, config, durability="sync")
        assert done["i"] == n
        return time.perf_counter() - began


def dbos(n: int, folder: Path) -> float:
    """Seconds of n iterations of a workflow with two steps."""
    import logging
    import sqlite3

    from dbos import DBOS

    path = folder / "dbos.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=WAL")  # as shipped it writes a rollback journal, eight waits an iteration
    db.close()
    logging.disable(logging.WARNING)
    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{path}", "run_admin_server": False})

    @DBOS.step()
    def agent(i):  # noqa: ARG001 - the shape of an agent
        return TEXT

    @DBOS.step()
    def gate(text):
        return float(bool(text))

    @DBOS.workflow()
    def looped():
        for i in range(n):
            gate(agent(i))
        return n

    DBOS.launch()
    began = time.perf_counter()
    assert looped() == n
    seconds = time.perf_counter() - began
    DBOS.destroy()
    return seconds


ENGINES = {"loopwright": loopwright, "langgraph": langgraph, "dbos": dbos}


def main() -> None:
    """Measures everybody in turn and prints a table."""
    times: dict[str, list[float]] = {name: [] for name in ENGINES}
    for _ in range(ROUNDS):
        for name, found in times.items():
            folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=HERE))
            try:
                python = OURS if name == "loopwright" else THEIRS
                told = subprocess.run(
                    [python, __file__, name, str(N), str(folder)],
                    cwd=folder,
                    check=True,
                    capture_output=True,
                    text=True,
                )
            finally:
                shutil.rmtree(folder)
            found.append(float(told.stdout.split()[-1]))
    ours = statistics.median(times["loopwright"])
    print(f"{'engine':<12} {'ms/iteration':>12} {'least':>7} {'most':>7} {'beside ours':>12}")
    for name, found in times.items():
        middle = statistics.median(found)
        print(f"{name:<12} {middle:>12.2f} {min(found):>7.2f} {max(found):>7.2f} {middle / ours:>11.1f}x")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        rounds = int(sys.argv[2])
        print(ENGINES[sys.argv[1]](rounds, Path(sys.argv[3])) / rounds * 1e3)
    else:
        main()
