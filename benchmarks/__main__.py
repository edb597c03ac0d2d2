"""`python -m benchmarks [ROW…]`: prints each row beside its floor and DESIGN's target.

Run it on a machine that does nothing else: the floor is the disk, and it is measured in the same minute.
"""

from __future__ import annotations

import sys
import time

from benchmarks import rows


def page() -> rows.Row:
    """Loaded when it is wanted: the peaks of the other rows are of this process."""
    from benchmarks.page import page as measured

    return measured()


ROWS = {**rows.ROWS, "page": page}


def main() -> None:
    """Measures the rows named (all of them without names) and prints a table."""
    wanted = sys.argv[1:] or list(ROWS)
    if unknown := [name for name in wanted if name not in ROWS]:
        sys.exit(f"there is no row {', '.join(unknown)}; the rows are {', '.join(ROWS)}")
    print(f"{'row':<8} {'measured':<58} {'floor':<28} {'target':<24} verdict")
    for name in wanted:
        began = time.perf_counter()
        row = ROWS[name]()
        took = time.perf_counter() - began
        print(f"{name:<8} {row.measured:<58} {row.floor:<28} {row.target:<24} {row.verdict}  [{took:.0f} s]", flush=True)  # fmt: skip


main()
