"""What changed between two snapshots, remembered: a pair of trees never changes.

Rule: a bounded cache. Git is asked once for a pair, within a budget of time where many are wanted, and what it says goes
through the redactor.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from loopwright.errors import WorkspaceError
from loopwright.hosts.ways import STATE
from loopwright.redact import Redactor
from loopwright.report.values import Changes, Row
from loopwright.workspace.opened import Workspace, open_workspace, shown

PAIRS: Final = 4096  # whose counts are kept
PATCHES: Final = 64  # whose patches are kept
RUNS: Final = 24
PATCH: Final = 120_000  # characters
PATHS: Final = 200


class Diffs:
    """What changed in the runs of one project. Many threads may ask."""

    def __init__(self, project: Path, redact: Redactor) -> None:
        self._project = project
        self._redact = redact
        self._lock = threading.Lock()
        self._workspaces: OrderedDict[str, Workspace | None] = OrderedDict()
        self._counts: OrderedDict[tuple[str, str, str], tuple[int, int] | None] = OrderedDict()
        self._patches: OrderedDict[tuple[str, str, str], Changes | None] = OrderedDict()

    def counts(self, run: str, rows: Iterable[Row], *, budget_s: float) -> Mapping[int, tuple[int, int]]:
        """Lines added and removed by each of these iterations, as far as the time reaches; the rest is known later."""
        found: dict[int, tuple[int, int]] = {}
        end = time.monotonic() + budget_s
        for row in rows:
            if not (row.number and row.before and row.after):
                continue
            key = (run, row.before, row.after)
            if row.before == row.after:
                found[row.number] = (0, 0)
                continue
            with self._lock:
                known = key in self._counts
            if not known and time.monotonic() < end:
                self.whole(*key)
            with self._lock:
                count = self._counts.get(key)
            if count is not None:
                found[row.number] = count
        return found

    def whole(self, run: str, old: str | None, new: str | None) -> Changes | None:
        """What changed from one tree to the other; `None` where nobody can say."""
        if old is None or new is None:
            return None
        key = (run, old, new)
        with self._lock:
            if key in self._patches:
                self._patches.move_to_end(key)
                return self._patches[key]
        made = self._made(run, old, new)
        with self._lock:
            self._patches[key] = made
            self._counts[key] = None if made is None else (made.added, made.removed)
            for cache, most in ((self._patches, PATCHES), (self._counts, PAIRS)):
                while len(cache) > most:
                    cache.popitem(last=False)
        return made

    def _made(self, run: str, old: str, new: str) -> Changes | None:
        try:
            workspace = self._workspace(run)
            found = None if workspace is None else workspace.diff(old, new)
        except (WorkspaceError, ValueError):  # a snapshot that git has cleaned up
            return None
        if found is None:
            return None
        text = found.text if len(found.text) <= PATCH else found.text[:PATCH].rpartition("\n")[0]
        made = Changes(
            files=len(found.files),
            added=found.added,
            removed=found.removed,
            paths=tuple((f.status, shown(f.path), f.added, f.removed) for f in found.files[:PATHS]),
            patch=self._redact.text(text),
            cut=len(text) < len(found.text),
        )
        return replace(made, paths=tuple((s, self._redact.text(p), a, r) for s, p, a, r in made.paths))

    def _workspace(self, run: str) -> Workspace | None:
        with self._lock:
            if run in self._workspaces:
                return self._workspaces[run]
        try:
            opened = open_workspace("in_place", self._project, self._project / STATE, run)
        except WorkspaceError:  # the facts are there all the same
            opened = None
        with self._lock:
            self._workspaces[run] = opened
            while len(self._workspaces) > RUNS:
                self._workspaces.popitem(last=False)
        return opened
