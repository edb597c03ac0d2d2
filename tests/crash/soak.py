"""`make soak`: the crash and power-loss suites at full size, with their totals per store.

Rule: every operation, every way, twice in a row, and every disk that may be left; it ends with 1 if anything was lost.
"""

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlite_tap import sqlite_calls
from whole import STORES, every_crash, every_power_loss

from loopwright.stores.files import FilesStore
from loopwright.stores.sqlite import SqliteStore
from loopwright.testing import check_store, os_calls

MAKE = {"files": FilesStore, "sqlite": lambda folder: SqliteStore(folder / "runs.db")}
TAPS = {"files": os_calls, "sqlite": sqlite_calls}
HOWS = ("before", "after", "torn", "short", "eio", "enospc")
Trial = tuple[Mapping[str, int], Sequence[str]]
PORTION = float(os.environ.get("LOOPWRIGHT_SOAK", "1"))  # of the full size


def thin(number: int) -> int:
    """Every how many operations something is tried."""
    return max(1, round(number / PORTION))


def contract(kind: str, place: Path) -> Trial:
    """Every operation of a small play, twice in a row, and some fifty disks after each."""
    checked = check_store(MAKE[kind], place, tap=TAPS[kind], every=thin(1), chances=round(50 * PORTION))
    return checked.tried, checked.losses


def killed(kind: str, place: Path) -> Trial:
    return every_crash(STORES[kind], place, TAPS[kind], hows=HOWS, every=thin(2), twice=thin(40))


def power_lost(kind: str, place: Path) -> Trial:
    chances = round(20 * PORTION)
    return every_power_loss(STORES[kind], place, TAPS[kind], chances=chances, every=1, resumed=thin(200))


def main(kinds: list[str]) -> int:
    fast, lost = Path("/dev/shm"), 0
    for kind in kinds:
        for trial in (contract, killed, power_lost):
            began = time.monotonic()
            with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None, prefix="soak-") as name:
                tried, losses = trial(kind, Path(name))
            counts = ", ".join(f"{what} {n}" for what, n in tried.items())
            print(
                f"{kind}, {trial.__name__}: {counts}; losses {len(losses)}; {time.monotonic() - began:.0f} s",
                flush=True,
            )
            for loss in losses[:20]:
                print(f"  {loss}", flush=True)
            lost += len(losses)
    print(f"losses in all: {lost}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(STORES)))
