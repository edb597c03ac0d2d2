"""Runs without a world (tests/core/sim.py), as histories that a report is made of."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "core"))
