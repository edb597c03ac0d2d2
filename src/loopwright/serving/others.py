"""The runs of a store beside the one in question: what was done in the project folder, and what started none.

Rule: read from heads and first commits alone; what was left out on purpose is said under `trigger:<loop>`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from loopwright.codec import loads
from loopwright.core.events import RunStarted
from loopwright.journal import commits
from loopwright.ports import Store

NEWEST: Final = 200  # runs that something was written about last; an agent may be long silent in another
MOST: Final = 100_000  # active runs looked at
KNOWN: Final = 10_000  # runs remembered
LEFT_OUT: Final = 200  # records of what started no run, kept for people to see


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace:
    """Of the runs that work in the project folder: whether one is under way, and when the last one wrote anything down."""

    busy: bool
    news: str


def in_place(store: Store, project: Path, known: dict[str, bool]) -> InPlace:
    """What runs did in the project folder lately. `known` remembers of each run whether it works there."""
    busy, news = False, ""
    newest, active = store.heads(limit=NEWEST), store.heads(active=True, limit=MOST)
    for run, body in {**dict(active), **dict(newest)}.items():
        if run not in known:
            if len(known) > KNOWN:
                known.clear()
            known[run] = _works_in(first(store, run), project)
        if known[run]:
            head = _head(body)
            busy = busy or ("exit_code" in head and head["exit_code"] is None)
            news = max(news, str(head.get("updated_at") or ""))
    return InPlace(busy=busy, news=news)


def leave_out(store: Store, loop: str, key: str, run: str, why: str) -> None:
    """Says, durably and once, that something started no run; the oldest of what was said of its kind is put away."""
    pseudo, kind = f"trigger:{loop}", key.partition("/")[0]
    at = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"status": "skipped", "why": why, "run": run, "at": at}
    store.signal(pseudo, key, json.dumps(record).encode())
    kept = [each for each, _ in store.signals(pseudo) if each.startswith(f"{kind}/")]
    if len(kept) > LEFT_OUT:
        store.settle(pseudo, kept[: len(kept) - LEFT_OUT // 2])


def taken_back(store: Store, loop: str, key: str) -> None:
    """What was left out under this key has started its run after all."""
    pseudo = f"trigger:{loop}"
    if any(each == key for each, _ in store.signals(pseudo)):
        store.settle(pseudo, [key])


def exists(store: Store, run: str) -> bool:
    """Whether the run is on record."""
    return any(True for _ in store.read(run))


def first(store: Store, run: str) -> RunStarted | None:
    """How a run was started; `None` of one that is not on record."""
    return next(_begun(store, run), None)


def _begun(store: Store, run: str) -> Iterator[RunStarted]:
    for commit in commits(store, run):
        yield from (event for _, event in commit.facts if isinstance(event, RunStarted))
        return


def _works_in(begun: RunStarted | None, project: Path) -> bool:
    if begun is None or begun.workspace != str(project):
        return False
    return (begun.spec.get("workspace") or {}).get("mode") == "in_place"


def _head(body: bytes) -> dict[str, Any]:
    try:
        found = loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
