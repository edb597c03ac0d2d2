"""Where to look first: the lines that failing tests run and passing tests do not.

Pure arithmetic over one run of the suite. A line is as suspicious as Ochiai's formula says: of the tests that run
it, how many fail, against how many fail at all (Abreu et al., "On the accuracy of spectrum-based fault
localization", 2007). Nothing is drawn by lot: equal suspicion is ordered by a checksum of seed and place.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loopwright.demo.mutate import Edit
    from loopwright.demo.warm import Report


@dataclass(frozen=True, slots=True)
class Suspect:
    """An edit worth trying, with the tests that can tell whether it helps."""

    path: str
    edit: Edit
    score: float
    failing: tuple[str, ...]
    passing: tuple[str, ...]


def ochiai(failing: int, passing: int, all_failing: int) -> float:
    """Return how suspicious a line is, 0 to 1, from the numbers of tests that run it."""
    return failing / sqrt(all_failing * (failing + passing)) if failing else 0.0


def suspects(report: Report, edits: Mapping[str, list[Edit]], seed: int) -> list[Suspect]:
    """Order the edits that at least one failing test would notice, the most suspicious first."""
    failing, passing = report.having("failed"), report.having("passed")
    found = []
    for path in sorted(edits):
        for edit in edits[path]:
            seen = _seen_by(report, path, edit)
            bad = tuple(test for test in failing if test in seen)
            good = tuple(test for test in passing if test in seen)
            if bad:
                found.append(Suspect(path, edit, ochiai(len(bad), len(good), len(failing)), bad, good))
    return sorted(found, key=lambda suspect: _order(suspect, seed))


def _order(suspect: Suspect, seed: int) -> tuple[float, int, int, int, int, bytes]:
    """Suspicion first; among equals the likeliest edit, then as the seed has it."""
    edit = suspect.edit
    tie = zlib.crc32(f"{seed}:{suspect.path}:{edit.line}".encode())
    within = zlib.crc32(f"{seed}:{edit.start}:{edit.new!r}".encode())
    return -round(suspect.score, 9), edit.rank, tie, within, edit.start, edit.new


def _seen_by(report: Report, path: str, edit: Edit) -> set[str]:
    """The tests that run the edited place."""
    for line in (edit.line, edit.statement):
        if seen := {test for test, run in report.tests.items() if line in run.lines.get(path, ())}:
            return seen
        # What ran at import made the module all its users saw: they can all tell.
        if line in report.at_import.get(path, ()):
            return {test for test, run in report.tests.items() if path in run.lines}
    return set()
