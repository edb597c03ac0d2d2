"""Runs that are started by files that change: once for what they hold, however often and wherever it is seen.

Rule: what was seen last is on record under `trigger:<loop>`, each record made of the one before it, so a restart starts
nothing for what is known and two servers start one run. What a run left in the project folder starts none.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from loopwright.errors import UsageError
from loopwright.ports import Store
from loopwright.serving import starts
from loopwright.serving.book import Served
from loopwright.serving.live import Live
from loopwright.serving.others import InPlace, in_place
from loopwright.serving.turns import in_the_way, under_way
from loopwright.triggers import watch
from loopwright.unattended import Trigger

QUIET_S: Final = 1.0  # how long nothing must change before it is looked at
LONGEST_S: Final = 60.0  # what never comes to rest is looked at so often
TICK_MS: Final = 200
TOLD: Final = 1000

Watched = tuple[tuple[Served, Trigger], ...]


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What a server remembers of the files; all of it can be made again."""

    prints: dict[watch.Globs, dict[str, tuple[watch.Print, str]]] = field(default_factory=dict)
    works: dict[str, bool] = field(default_factory=dict)  # whether a run works in the project folder
    others: InPlace | None = None
    asked: float = 0.0  # when they were looked at
    first: float | None = None  # when something changed that was not looked at yet
    last: float = 0.0
    told: set[str] = field(default_factory=set)

    def touch(self, now: float) -> None:
        """Something may have changed."""
        self.first, self.last = self.first or now, now


def problems(served: Served) -> list[str]:
    """Why the watch triggers of a loop must not be served."""
    return [why for trigger in served.triggers if trigger.watch for why in watch.problems(trigger.watch)]


async def watching(live: Live, *, quiet_s: float = QUIET_S, tick_ms: int = TICK_MS) -> None:
    """Starts runs when the files of a loop's watch trigger have changed and come to rest, until it is cancelled."""
    seen = _Seen()
    while True:
        if watched := _watched(live.book.loops.values()):
            await _round(live, seen, watched, quiet_s, tick_ms)
        await asyncio.sleep(tick_ms / 1000)


def _watched(loops: Iterable[Served]) -> Watched:
    return tuple((served, each) for served in loops for each in served.triggers if each.watch)


async def _round(live: Live, seen: _Seen, watched: Watched, quiet_s: float, tick_ms: int) -> None:
    """Watches until there are other folders, or other loops, to watch."""
    globs = tuple(dict.fromkeys(glob for _, trigger in watched for glob in trigger.watch))
    folders = await asyncio.to_thread(_folders, live, seen, watched)
    seen.touch(time.monotonic())
    async with aclosing(
        watch.changes(live.project, folders, globs, tick_ms=tick_ms, tell=lambda why: _tell(live, seen, why))
    ) as changes:
        async for changed in changes:
            now = time.monotonic()
            if changed:
                seen.touch(now)
            if changed == "folders" or _watched(live.book.loops.values()) != watched:
                return
            if now - seen.asked >= quiet_s:
                seen.asked = now
                if (others := await asyncio.to_thread(_others, live, seen)) != seen.others:
                    seen.others = others
                    seen.touch(now)
            if seen.first is None or (now - seen.last < quiet_s and now - seen.first < LONGEST_S):
                continue
            seen.first = None
            await asyncio.to_thread(_check, live, seen, watched)


def _others(live: Live, seen: _Seen) -> InPlace:
    with live.stores() as store:
        return in_place(store, live.project, seen.works)


def _folders(live: Live, seen: _Seen, watched: Watched) -> frozenset[str]:
    return frozenset().union(
        *(found.folders for _, trigger in watched if (found := _look(live, seen, trigger)))
    )


def _look(live: Live, seen: _Seen, trigger: Trigger) -> watch.Found | None:
    """The files of a trigger; `None`, and why is told, where there are too many."""
    try:
        return watch.look(live.project, trigger.watch)
    except UsageError as error:
        _tell(live, seen, str(error))
        return None


def _tell(live: Live, seen: _Seen, why: str) -> None:
    """Says it once."""
    if why not in seen.told and len(seen.told) < TOLD:
        seen.told.add(why)
        live.tell(why)


def _check(live: Live, seen: _Seen, watched: Watched) -> None:
    """Starts what is to be started by what the files hold now."""
    with live.stores() as store:
        others = in_place(store, live.project, seen.works)
        if others.busy:  # what it leaves is looked at when it is over
            return
        for served, trigger in watched:
            found = _look(live, seen, trigger)
            if found is None:
                continue
            known = seen.prints.setdefault(trigger.watch, {})
            digest, told = watch.digest(live.project, found, known)
            for why in told:
                _tell(live, seen, f"watch: {why}")
            _compare(live, store, served, trigger, digest, others.news)


def _compare(live: Live, store: Store, served: Served, trigger: Trigger, digest: str, news: str) -> None:
    pseudo, kind = f"trigger:{served.name}", f"watch/{_short('|'.join(trigger.watch))[:8]}/"
    records = [(key, body) for key, body in store.signals(pseudo) if key.startswith(kind)]
    last = _read(records[-1][1]) if records else {}
    by_run = news > str(last.get("news", ""))
    if last.get("digest") == digest and not by_run:
        return
    link = _short(str(last.get("link", "")), digest, news if by_run else "")
    record = {
        "digest": digest,
        "news": news,
        "link": link,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if not last:
        record |= {"status": "seen", "why": "these files were not watched before"}
    elif by_run:
        record |= {"status": "seen", "why": "a run in the project folder left them so"}
    else:
        record |= _started(live, store, served, trigger, link)
    store.signal(pseudo, kind + link, json.dumps(record).encode())
    store.settle(pseudo, [key for key, _ in records])


def _started(live: Live, store: Store, served: Served, trigger: Trigger, link: str) -> dict[str, str]:
    run = starts.id_of_key(served.name, "watch", link)
    if trigger.overlap == "skip":
        others = [each for each in under_way(store, served.name) if each.run != run]
        if why := in_the_way(others, "skip"):
            return {"status": "skipped", "run": run, "why": why}
    starts.begin(store, served.assembled, run, project=live.project, environ=live.environ, origin="watch")
    live.nudge()
    return {"status": "started", "run": run, "why": "the files changed"}


def _short(*parts: str) -> str:
    return sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _read(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
