"""`python -m benchmarks [ROW…]`: prints each row with its floor and DESIGN's target."""

from __future__ import annotations

import sys
import time

from benchmarks import rows


def main() -> None:
    """Measures the rows named (all of them without names) and prints a table."""
    wanted = sys.argv[1:] or list(rows.ROWS)
    print(f"{'row':<10} {'measured':<44} {'floor':<30} target")
    for name in wanted:
        began = time.perf_counter()
        measured, floor, target = rows.ROWS[name]()
        print(
            f"{name:<10} {measured:<44} {floor:<30} {target}   [{time.perf_counter() - began:.0f} s]",
            flush=True,
        )


main()
