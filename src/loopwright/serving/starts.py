"""Starting a run for a server: its first commit, and nothing more. Who has a place free works on it.

Rule: the id is made of what it is started for (a slot, a delivery, a key), and the first commit is created if absent:
however many servers start it, however often, one run begins.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from loopwright.assembled import Assembled
from loopwright.clock import Clock
from loopwright.core.events import RunStarted
from loopwright.errors import Locked
from loopwright.hosts import environment
from loopwright.hosts.take import check_id
from loopwright.hosts.ways import Ways
from loopwright.journal import Journal
from loopwright.ports import Store


def begin(
    store: Store,
    assembled: Assembled,
    run: str,
    *,
    project: Path,
    environ: Mapping[str, str],
    origin: str,
    labels: Mapping[str, str] | None = None,
) -> bool:
    """Whether the run was begun just now; false where one of this id is on record already.

    It is durable when this returns, and any server of this store takes it up.
    """
    ways = Ways(project=project, store=store, environ=environ, origin=origin)
    whole = environment.without_secrets(assembled, ways)
    journal = Journal(store, check_id(run))
    if journal.exists:
        return False
    journal.redact = environment.redacting(whole, ways)
    begun = RunStarted(
        run=run,
        spec=whole.loop.spec(),
        digest=whole.loop.digest(),
        workspace=None if whole.mode == "none" else str(project),
        labels={**whole.loop.labels, **(labels or {})},
        origin=origin,
    )
    journal.record(Clock().now(), begun)
    try:
        journal.flush()
    except Locked:  # another server wrote it in this moment
        return False
    return True


def id_of_slot(loop: str, slot: datetime) -> str:
    """The id of the run that a schedule starts at `slot`: the loop and the minute, in UTC."""
    return f"{_short(loop, 45)}-{slot.astimezone(UTC):%Y%m%dT%H%MZ}"


def id_of_key(loop: str, *parts: str) -> str:
    """The id of the run that is started for these words: the same words, the same run."""
    text = "\0".join((loop, *parts))
    return f"{_short(loop, 47)}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _short(loop: str, most: int) -> str:
    """The loop's name, as the beginning of an id."""
    return re.sub(r"\.\.+", ".", loop)[:most].rstrip("._-") or "loop"
