"""`make soak`: the crash and power-loss suites at full size, with their totals per store.

Rule: every operation, every way, twice in a row, and every disk that may be left; it ends with 1 if anything was lost.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from sqlite_tap import sqlite_calls
from whole import STORES, every_crash, every_power_loss

from loopwright.stores.files import FilesStore
from loopwright.stores.memory import MemoryStore
from loopwright.stores.sqlite import SqliteStore
from loopwright.testing import check_store, os_calls

MAKE = {"files": FilesStore, "sqlite": lambda folder: SqliteStore(folder / "runs.db")}
TAPS = {"files": os_calls, "sqlite": sqlite_calls}
HOWS = ("before", "after", "torn", "short", "eio", "enospc")
PORTION = float(os.environ.get("LOOPWRIGHT_SOAK", "1"))  # of the full size


def thin(number: int) -> int:
    """Every how many operations something is tried."""
    return max(1, round(number / PORTION))


def report(what: str, tried: dict, losses: list[str], began: float) -> int:
    counts = ", ".join(f"{name} {n}" for name, n in tried.items())
    print(f"{what}: {counts}; losses {len(losses)}; {time.monotonic() - began:.0f} s", flush=True)
    for loss in losses[:20]:
        print(f"  {loss}", flush=True)
    return len(losses)


def main(kinds: list[str]) -> int:
    fast = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None, prefix="soak-") as name:
        place, lost = Path(name), 0
        began = time.monotonic()
        checked = check_store(lambda _: MemoryStore(), place, lasting=False)
        lost += report("memory, contract", checked.tried, list(checked.losses), began)
        for kind, url in [(kind, url) for kind, url in STORES.items() if kind in kinds]:
            began = time.monotonic()
            checked = check_store(
                MAKE[kind], place, tap=TAPS[kind], every=thin(1), chances=round(50 * PORTION)
            )
            lost += report(f"{kind}, contract", checked.tried, list(checked.losses), began)
            for number, (what, trial) in enumerate(
                (
                    (
                        "killed or refused",
                        lambda p, k=kind, u=url: every_crash(
                            u, p, TAPS[k], hows=HOWS, every=thin(2), twice=thin(40)
                        ),
                    ),
                    (
                        "power lost",
                        lambda p, k=kind, u=url: every_power_loss(
                            u, p, TAPS[k], chances=round(20 * PORTION), every=1, resumed=thin(200)
                        ),
                    ),
                )
            ):
                began = time.monotonic()
                scratch = place / f"{kind}-{number}"
                scratch.mkdir()
                tried, losses = trial(scratch)
                lost += report(f"{kind}, whole runs, {what}", tried, losses, began)
    print(f"losses in all: {lost}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(STORES)))
