"""How long the page takes: a run of 1,000 iterations (and of 10,000), a list of 1,000 runs, and what a first load weighs.

Rule: a page is everything from its request to its HTML, unpacked, without the network; the floor is its template alone.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from pathlib import Path

from benchmarks.rows import ENV, ROUNDS, Row, agent, gate, looped, scratch
from loopwright import Loop, run
from loopwright.serving.book import Book
from loopwright.serving.live import Live
from loopwright.stores.opened import open_store
from loopwright.web.drawing import HERE, draw
from loopwright.web.pages import FILES, _files
from loopwright.web.showing import Showing
from loopwright.web.words import ago

USUAL = {"here": "runs", "files": _files(), "who": "me", "decides": True, "waiting": 0, "events": "/events", "said": None}  # fmt: skip


def opened(folder: Path) -> Live:
    """A server before this folder, without loops."""
    (folder / "loop.toml").write_text('goal = "g"\nagent = "sh -c true"\ngates = ["true"]\n')
    book = Book((folder / "loop.toml",), project=folder, environ=ENV)
    book.refresh()
    store = open_store(None, folder)
    return Live(
        project=folder, environ=dict(os.environ), book=book, store=store, server=book.server, tell=print
    )


def timed(act) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def page() -> Row:
    """A run of 1,000 iterations and a list of 1,000 runs."""
    folder = scratch()
    try:
        looped(1000, folder)
        looped(10_000, folder)
        for i in range(1000):
            run(Loop("bench", agent=agent, gates=[gate]), f"r-{i}", folder=folder)
        live = opened(folder)
        with live.stores() as store:
            small, large = sorted(
                (name for name, _ in store.heads(limit=2000) if name.startswith("bench-")), key=lambda n: int(n.split("-")[1])
            )  # fmt: skip
        drawn = {**USUAL, "drawn": ago(time_now(), time_now())}

        def of_run(showing: Showing, name: str) -> str:
            return draw("run.html", {**drawn, **showing.run(name, {})})

        def of_list(showing: Showing) -> str:
            showing.anew()
            return draw("runs.html", {**drawn, **showing.runs({"all": "1"})})

        draw("run.html", {**drawn, **Showing(live).run("r-0", {})})  # templates are read once
        cold = [timed(lambda: of_run(Showing(live), small)) for _ in range(3)]
        showing = Showing(live)
        far = timed(lambda: of_run(showing, large))
        of_run(showing, small)
        warm = [timed(lambda: of_run(showing, small)) for _ in range(ROUNDS * 3)]
        deep = [timed(lambda: of_run(showing, large)) for _ in range(ROUNDS)]
        lists = [timed(lambda: of_list(showing)) for _ in range(ROUNDS * 2)]
        found = {**drawn, **showing.run(small, {})}
        floor = [timed(lambda: draw("run.html", found)) for _ in range(ROUNDS)]
        weight = len(of_run(showing, small).encode()) + sum((HERE / "static" / n).stat().st_size for n, _ in FILES.values())  # fmt: skip
        live.store.close()
    finally:
        shutil.rmtree(folder)
    first, again, listed = (statistics.median(times) * 1e3 for times in (cold, warm, lists))
    return Row(
        measured=f"run {again:.0f} ms (first {first:.0f}), list {listed:.0f} ms, {weight / 1e3:.0f} kB; 10,000: {statistics.median(deep) * 1e3:.0f} ms (first {far:.1f} s)",
        floor=f"{statistics.median(floor) * 1e3:.1f} ms its template alone",
        target="100 ms, 100 ms, 100 kB",
        off=(again / 100, listed / 100, weight / 100_000),
    )


def time_now():
    """Now, with its zone."""
    from datetime import UTC, datetime

    return datetime.now(UTC)
