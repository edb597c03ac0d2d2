"""What `/` shows: runs, those that need somebody first, and the operator's morning.

Rule: made of heads, which are read whole, and bounded: so many rows a page. Pure but for `read`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from loopwright.codec import dumps, loads
from loopwright.core.head import head as head_of
from loopwright.errors import StoreError
from loopwright.figures import brief, score
from loopwright.journal import Journal
from loopwright.ports import Store
from loopwright.units import seconds
from loopwright.web.words import When, Word, ago, cost, moment, until, word

ROWS: Final = 100
MOST: Final = 100_000
NEEDED: Final = frozenset({"run", "phase", "reason", "next", "updated_at", "approval", "wake"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run of the list."""

    run: str
    loop: str
    goal: str
    word: Word
    iterations: str
    score: str
    best: str
    trend: str  # the points of a small chart
    trend_said: str
    cost: str
    news: When | None
    next: str
    goes_on: When | None
    alerts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListView:
    """The list: its rows of this page, and how many there are of each kind."""

    rows: tuple[Row, ...]
    total: int
    page: int
    pages: int
    every: bool
    since: str
    finished: int
    passed: int
    failed: int
    waits: int
    under_way: int
    damaged: tuple[str, ...]
    problem: str = ""


def read(store: Store, *, every: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """The heads of runs, newest first, and what cannot be read: one damaged run does not hide the others."""
    heads, damaged = [], []
    for run, body in store.heads(active=None if every else True, limit=MOST):
        try:
            try:
                kept = loads(body)
            except ValueError:
                kept = None
            if not (isinstance(kept, dict) and kept.keys() >= NEEDED):
                kept = loads(dumps(head_of(Journal(store, run).state)))
            heads.append(kept)
        except StoreError as error:
            damaged.append(str(error))
    return heads, damaged


def listed(
    heads: Iterable[Mapping[str, Any]],
    *,
    now: datetime,
    every: bool = False,
    since: str = "",
    page: int = 1,
    damaged: Sequence[str] = (),
    stands: Callable[[Sequence[Mapping[str, Any]]], Mapping[str, str]] = lambda _: {},
) -> ListView:
    """The view of these heads. `stands` says of those that are shown whose process is `gone` and who is `queued`."""
    found, problem = list(heads), ""
    if since:
        try:
            after = now - timedelta(seconds=min(seconds(since), 3.15e9))
            found = [h for h in found if (at := moment(h.get("updated_at"))) is None or at >= after]
        except (ValueError, OverflowError):
            problem = f"since is {brief(since, 20)!r}; write a length such as 12h, 30m or 2d"
            since = ""
    plain = [(word(h, now), h) for h in found]
    plain.sort(key=lambda each: each[0].order)  # stable: newest first within
    pages = max(1, -(-len(plain) // ROWS))
    page = min(max(1, page), pages)
    shown = [h for _, h in plain[(page - 1) * ROWS : page * ROWS]]
    how = stands(shown)
    rows = [_row(h, now, how.get(str(h["run"]), "")) for h in shown]
    rows.sort(key=lambda row: row.word.order)
    kinds = Counter(w.order for w, _ in plain)
    return ListView(
        rows=tuple(rows),
        total=len(plain),
        page=page,
        pages=pages,
        every=every or bool(since),
        since=since,
        finished=sum(1 for h in found if h.get("phase") in {"complete", "failed", "stopped"}),
        passed=kinds[4],
        failed=kinds[1],
        waits=kinds[0],
        under_way=kinds[2] + kinds[3],
        damaged=tuple(damaged),
        problem=problem,
    )


def _row(h: Mapping[str, Any], now: datetime, how: str) -> Row:
    said = word(h, now, alone=how == "gone", queued=how == "queued")
    run, most = str(h["run"]), h.get("max_iterations")
    points = [v for v in h.get("trend") or () if v is not None]
    best = h.get("best_score")
    waits = h.get("phase") == "waiting"
    return Row(
        run=run,
        loop=brief(str(h.get("loop") or ""), 60),
        goal=brief(str(h.get("goal") or ""), 140),
        word=said,
        iterations=f"{h.get('iterations', 0)}" + (f" / {most:g}" if isinstance(most, int | float) else ""),
        score=score(h.get("score")),
        best="" if best is None else f"best {score(best)} at #{h.get('best_iteration')}",
        trend=sparkline(points),
        trend_said=f"the last {len(points)} scores, from {score(points[0])} to {score(points[-1])}"
        if len(points) > 1
        else "",
        cost=cost(h),
        news=ago(moment(h.get("updated_at")), now),
        next=f"loopwright resume {run}" if how == "gone" else str(h["next"]),
        goes_on=until(moment(h.get("wake")), now) if waits else None,
        alerts=len(h.get("alerts") or ()),
    )


def sparkline(points: Sequence[float], *, wide: int = 80, high: int = 20) -> str:
    """The points of a polyline in a box of this size, the axis from 0 to 1; nothing for fewer than two."""
    if len(points) < 2:
        return ""
    step = (wide - 4) / (len(points) - 1)
    return " ".join(f"{2 + i * step:.1f},{high - 2 - v * (high - 4):.1f}" for i, v in enumerate(points))
