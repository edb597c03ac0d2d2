"""What each page is drawn from: looked up in the store, made into views, given to a template.

Rule: it reads and never writes. What is remembered for streams is remembered for a moment, so that many who look cost
as one.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from loopwright.errors import UsageError
from loopwright.figures import brief
from loopwright.hosts import people
from loopwright.report.svg import cost_chart, score_chart
from loopwright.serving.live import Live
from loopwright.web import loops_page
from loopwright.web.asked import asked_view, items
from loopwright.web.drawing import draw_part
from loopwright.web.list_page import ListView, listed, read
from loopwright.web.looking import Looking, Seen
from loopwright.web.problems import Trouble
from loopwright.web.run_page import run_view
from loopwright.web.run_parts import as_rows, details, outcome, patch, timeline
from loopwright.web.stream import Look, Looked, Peek
from loopwright.web.words import MARKS, ago

INBOX: Final = 300  # runs whose requests are looked through for what was decided
FRESH_S: Final = 0.4
SOON_S: Final = 0.04  # that a page waits for numbers it can be without
LATER_S: Final = 1.0  # that the stream behind it takes for them
PARTS: Final = (
    "head",
    "ask",
    "chart",
    "matrix",
    "iteration",
    "diff",
    "health",
    "burn",
    "why",
    "controls",
    "timeline",
    "log",
    "audit",
)
AGAINST: Final = ("previous", "best", "start")
WIDE, NARROW = 640, 330  # of the charts


class Showing:
    """What the pages of one server are drawn from. Many threads may ask."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.looking = Looking(live)
        self._lock = threading.Lock()
        self._kept: dict[bool, tuple[float, str, list[dict[str, Any]], list[str]]] = {}

    def heads(self, *, every: bool) -> tuple[str, list[dict[str, Any]], list[str]]:
        """The heads, active ones or all, a word that is another when one of them is, and what cannot be read."""
        with self._lock:
            kept = self._kept.get(every)
            if kept is None or time.monotonic() - kept[0] > FRESH_S:
                with self.live.stores() as store:
                    found, damaged = read(store, every=every)
                sign = hashlib.blake2b(digest_size=12)
                for head in found:
                    sign.update(f"{head['run']} {head.get('updated_at')} {head.get('iterations')}\n".encode())
                working = ",".join(sorted(self.live.working))
                sign.update(working.encode())
                kept = self._kept[every] = (time.monotonic(), sign.hexdigest(), found, damaged)
            return kept[1:]

    def anew(self) -> None:
        """Forgets what is remembered: who loads a page gets what is on record now."""
        with self._lock:
            self._kept.clear()

    def waiting(self) -> int:
        """How many runs wait for a person."""
        return sum(
            1
            for h in self.heads(every=False)[1]
            if h.get("reason") in {"approval_requested", "approval_expired"}
        )

    def runs(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """The list."""
        since = asked.get("since", "")[:20]
        every = asked.get("all") == "1" or bool(since)
        _, found, damaged = self.heads(every=every)
        number = asked.get("page", "1")
        view: ListView = listed(
            found,
            now=datetime.now(UTC),
            every=every,
            since=since,
            page=int(number) if number.isascii() and number.isdecimal() and len(number) < 7 else 1,
            damaged=damaged,
            stands=self.looking.stands,
        )
        book = self.live.book
        return {
            "view": view,
            "kept": f"&since={view.since}" if view.since else "&all=1" if view.every else "",
            "loops": sorted(book.loops),
            "files_of": {n: loops_page.shown_file(s.file, book.project) for n, s in book.loops.items()},
        }

    def run(self, run: str, asked: Mapping[str, str], *, budget_s: float = SOON_S) -> dict[str, Any]:
        """One run; `budget_s` is how long it may count lines of diffs."""
        now = datetime.now(UTC)
        seen = self._seen(run)
        against = asked.get("against", "previous")
        if against not in AGAINST:
            against = "previous"
        chosen, top = _number(asked.get("i")), _number(asked.get("top"))
        sel = self.looking.select(seen, chosen, top, against, budget_s=budget_s)
        state, row = seen.state, sel.row
        request = state.approval
        asks = None
        if request is not None and seen.shown is not None:
            asks = asked_view(seen.shown, request, seen.standing, self.looking.changed(seen.shown), now)
        kept = f"&against={against}" if against != "previous" else ""
        return {
            "n": seen.n,
            "view": run_view(seen.report, seen.beside, now),
            "asked": asks,
            "sel": sel,
            "row": row,
            "outcome": outcome(row, state) if row else "",
            "kept": kept,
            "details": details(row) if row else (),
            "patch": patch(sel.changes) if sel.changes else None,
            "timeline": timeline(row, sel.moments, now) if row else (),
            "moments": as_rows(seen.report.moments[-60:], now),
            "moments_left_out": seen.report.moments_left_out + max(0, len(seen.report.moments) - 60),
            "log_at": ago(sel.log.at, now) if sel.log else None,
            "marks": MARKS,
            "gates": [brief(name, 60) for name in seen.report.series.gates],
            "has_gates": bool(state.spec.get("gates")),
            "score_svg": score_chart(
                seen.report, wide=WIDE, ahead=True, link=lambda n: f"/runs/{run}?i={n}{kept}#iteration"
            ),
            "cost_svg": cost_chart(seen.report, wide=NARROW, ahead=True),
        }

    def _seen(self, run: str) -> Seen:
        try:
            return self.looking.run(run)
        except UsageError as error:
            raise Trouble(404, str(error)) from None

    def inbox(self, *, every: bool) -> dict[str, Any]:
        """What waits for a person; `every`: what was asked of the runs with the latest news."""
        now = datetime.now(UTC)
        with self.live.stores() as store:
            found, damaged = people.inbox(store)
            if every:  # what is open however old it is, what was decided of the runs with the latest news
                told, more = people.inbox(store, every=True, limit=INBOX)
                damaged = sorted({*damaged, *more})
                found = told + [each for each in found if each[0].run not in {state.run for state, _ in told}]
        return {
            "items": items(found[:500], now),
            "every": every,
            "damaged": damaged,
            "more": every and len(self.heads(every=True)[1]) > INBOX,
            "bound": INBOX,
        }

    def approval(self, run: str, approval: str) -> dict[str, Any]:
        """One request, open or not."""
        now = datetime.now(UTC)
        seen = self._seen(run)
        with self.live.stores() as store:
            found = next((a for a in people.requests(store, run) if a.request.id == approval), None)
        if found is None:
            raise Trouble(404, f"run {run} never asked this")
        state = seen.state
        opened = state.approval is not None and state.approval.id == approval
        asks = None
        if opened and seen.shown is not None:
            asks = asked_view(seen.shown, found.request, seen.standing, self.looking.changed(seen.shown), now)
        return {
            "item": items([(state, found)], now)[0],
            "asked": asks,
            "patch": None
            if asks is None
            else patch(changes)
            if (changes := self.looking.changed(seen.shown))
            else None,
            "live_id": state.approval.id if state.approval is not None and not opened else "",
        }

    def loops(self) -> dict[str, Any]:
        """The loops."""
        now = datetime.now(UTC)
        heads = self.heads(every=True)[1]
        book = self.live.book
        with self.live.stores() as store:
            slots = {name: loops_page.left_out(store, name) for name in book.loops}
        return {
            "loops": loops_page.loops_view(book, heads, slots, now),
            "broken": loops_page.broken(book),
        }

    def parts(self, asked: Mapping[str, str], values: Mapping[str, Any]) -> tuple[Peek, Look]:
        """For a stream: what tells that there is news, and the parts of the page as they are then."""
        kind = asked.get("page")
        if kind == "run":
            return self._of_run(asked, values)
        every = asked.get("all") == "1" or "since" in asked or kind == "loops"
        makes: Mapping[str, tuple[str, str, Callable[[], dict[str, Any]]]] = {
            "runs": ("runs.html", "runs", lambda: self.runs(asked)),
            "approvals": ("approvals.html", "inbox", lambda: self.inbox(every=every)),
            "loops": ("loops.html", "loops", self.loops),
        }
        template, part, make = makes[str(kind)]

        def peek() -> str:
            book = self.live.book
            said = "" if kind != "loops" else repr(sorted(book.problems.items())) + repr(sorted(book.loops))
            return f"{self.heads(every=every)[0]} {said}"

        def look() -> Looked:
            sign = peek()
            drawn = {**values, **make(), "waiting": self.waiting()}
            return Looked(
                id=hashlib.sha256(sign.encode()).hexdigest()[:16],
                parts={part: draw_part(template, part, drawn)},
            )

        return peek, look

    def _of_run(self, asked: Mapping[str, str], values: Mapping[str, Any]) -> tuple[Peek, Look]:
        run = asked["run"]

        def peek() -> str:
            seen = self._seen(run)
            return f"{seen.n} {seen.beside.sign} {len(seen.beside.pending)} {seen.beside.here} {seen.report.alone}"

        def look() -> Looked:
            drawn = {**values, **self.run(run, asked, budget_s=LATER_S)}
            return Looked(
                id=str(drawn["n"]), parts={part: draw_part("run.html", part, drawn) for part in PARTS}
            )

        return peek, look


def _number(text: str | None) -> int | None:
    """The number of an iteration in an address, if it is one."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 9 else None
