"""Runs as the API reads them: by their exact ids, from what is on record.

Rule: a path names a run by its id and nothing else; what is not the id of a run that is there is not found, whatever it
looks like.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from loopwright import codec
from loopwright.core.head import head
from loopwright.core.state import LoopState
from loopwright.errors import StoreError, UsageError
from loopwright.hosts.take import check_id, left
from loopwright.journal import Journal
from loopwright.ports import Store
from loopwright.web.problems import Trouble

MANY: Final = 100_000  # runs that are looked through


def known(store: Store, run: str) -> LoopState:
    """The state of a run that is there; `Trouble` 404 for anything else."""
    try:
        journal = Journal(store, check_id(run))
    except UsageError:
        raise _no_run() from None
    if not journal.exists:
        raise _no_run()
    return journal.state


def _no_run() -> Trouble:
    return Trouble(404, "there is no run of that id here")


def head_of(state: LoopState) -> dict[str, Any]:
    """The run document with what those who watch want beside it; plain data."""
    told: dict[str, Any] = codec.plain(head(state))
    return {**told, "next": f"loopwright resume {state.run}"} if left(state) else told


def heads(
    store: Store, *, active: bool | None, since_s: float | None, loop: str | None, damaged: list[str]
) -> list[dict[str, Any]]:
    """The heads of all runs that are asked for, those with the latest news first; what cannot be read goes to `damaged`."""
    after = None if since_s is None else datetime.now(UTC) - timedelta(seconds=min(since_s, 1e9))
    found: list[dict[str, Any]] = []
    for run, body in store.heads(active=active, limit=MANY):
        try:
            row = _kept(body) or head_of(Journal(store, run).state)
            if after is not None and datetime.fromisoformat(row["updated_at"]) < after:
                continue
            if loop is not None and (row["loop"] if "loop" in row else loop_of(store, run)) != loop:
                continue
            found.append(row)
        except StoreError as error:
            damaged.append(str(error))
    return sorted(found, key=place, reverse=True)


def _kept(body: bytes) -> dict[str, Any] | None:
    """A head as it was kept; `None` for one that must be made anew from the journal, which alone is the truth."""
    try:
        kept = json.loads(body)
    except ValueError:
        return None
    whole = isinstance(kept, dict) and {"run", "updated_at", "approval", "wake", "next"} <= kept.keys()
    return kept if whole and kept["updated_at"] else None


def loop_of(store: Store, run: str) -> str | None:
    """The name of the loop a run was started of."""
    first = next(codec.commits(run, iter(store.read(run))), None)
    event = first.facts[0][1] if first is not None and first.facts else None
    name = getattr(event, "spec", {}).get("name")
    return name if isinstance(name, str) else None


def place(row: dict[str, Any]) -> tuple[str, str]:
    """Where a head stands among others: by its last news."""
    return str(row["updated_at"]), str(row["run"])


def cursor(row: dict[str, Any]) -> str:
    """What names the place behind a head."""
    return base64.urlsafe_b64encode(json.dumps(place(row)).encode()).decode().rstrip("=")


def placed(text: str) -> tuple[str, str]:
    """The place that a cursor names; `Trouble` 422 for one that is none of ours."""
    try:
        found = json.loads(base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
        at, run = found
        if not (isinstance(at, str) and isinstance(run, str)):
            raise TypeError
    except (ValueError, TypeError, binascii.Error):
        raise Trouble(
            422, "this cursor is none that was given out: leave it out for the first page"
        ) from None
    return at, run


def facts(store: Store, run: str, after: int, limit: int) -> Iterator[list[dict[str, Any]]]:
    """The facts of each commit above number `after`, until there are `limit` of them."""
    many = 0
    lines = iter(store.read(run, max(0, after - 1)))
    link = ""
    if after > 0:  # the commit before the first one names it
        before = next(lines, None)
        if before is None:
            return
        link = codec.link_of(before[1])
    for commit in codec.commits(run, lines, after, link):
        told = [
            {**codec.plain(event), "n": commit.n, "type": type(event).__name__, "at": at}
            for at, event in commit.facts
        ]
        yield told
        many += len(told)
        if many >= limit:
            return
