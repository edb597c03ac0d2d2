"""Looking at the runs of a server: reads its store, its snapshots and its logs for the page.

Rule: it reads and never writes. What an agent could have put in the place of a log (a link, a pipe) is not followed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from loopwright.codec import decode_signal
from loopwright.core import events as ev
from loopwright.core.showing import Shown
from loopwright.core.state import LoopState
from loopwright.errors import ConfigError, StoreError
from loopwright.hosts import people, take
from loopwright.hosts.ways import STATE
from loopwright.journal import Journal
from loopwright.ports import Store
from loopwright.redact import redactor
from loopwright.report.values import Changes, Moment, Report, Row
from loopwright.serving.live import Live
from loopwright.web.changes import Diffs
from loopwright.web.followed import Followed, Shelf
from loopwright.web.printed import Log, printed
from loopwright.web.run_page import Beside
from loopwright.web.run_parts import Matrix, matrix

MATRIX: Final = 15  # iterations of one page
TAIL: Final = 12_000  # bytes of a log
CLAIMS: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A run as it was looked at: its report, as of commit `n`, and what is beside it."""

    n: int
    report: Report
    beside: Beside
    shown: Shown | None
    standing: tuple[ev.ApprovalDecided, datetime | None] | None

    @property
    def state(self) -> LoopState:
        """The run's state."""
        return self.report.state


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The iteration that is looked at: its row and moments, its matrix page, its diff and its log."""

    row: Row | None
    moments: tuple[Moment, ...]
    matrix: Matrix | None
    against: str
    diffed: int | None  # the iteration whose diff is shown: the selected one, or the last that has one
    changes: Changes | None
    log: Log | None


class Looking:
    """What the page of one server looks with. Many threads may ask."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.shelf = Shelf()
        self._redact = redactor(live.environ)
        self.diffs = Diffs(live.project, self._redact)
        self._claims: OrderedDict[str, tuple[str, LoopState]] = OrderedDict()

    def run(self, run: str) -> Seen:
        """A run as it stands now; `UsageError` where there is none."""
        with self.live.stores() as store:
            place = self.shelf.get(run)
            with place.lock:
                self._caught_up(place, store)
                n, report = place.n, place.report
            state = report.state
            pending = _pending(store, run)
            asked = state.approval
            standing = None if asked is None else people.standing(store, run, asked.id)
        here = run in self.live.working
        alone = not here and take.left(state)
        beside = Beside(
            here=here,
            queued=not here and state.claim is None and state.finished is None,
            sign=self._sign(state),
            pending=pending,
            problem=self.live.problems.get(run, ""),
        )
        return Seen(
            n=n,
            report=replace(report, alone=alone),
            beside=beside,
            shown=_view(state),
            standing=standing,
        )

    def _caught_up(self, place: Followed, store: Store) -> None:
        try:
            place.catch_up(store)
        except StoreError:
            self.shelf.forget(place.run)
            raise

    def select(
        self, seen: Seen, number: int | None, top: int | None, against: str, *, budget_s: float
    ) -> Selected:
        """The iteration `number` (by default the last one) in a matrix that begins with `top`.

        `budget_s` is how long it may count lines of diffs.
        """
        state, run = seen.state, seen.state.run
        last = max((row.number for row in seen.report.rows), default=-1)
        chosen = last if number is None else min(max(number, 0), max(last, 0))
        high = min(max(chosen if top is None else top, MATRIX - 1), last)
        if top is None and chosen > last - MATRIX:
            high = last
        low = max(0, high - MATRIX + 1)
        with self.live.stores() as store:
            place = self.shelf.get(run)
            with place.lock:
                self._caught_up(place, store)
                rows, _ = place.rows(store, low - 1, high)
                near, moments = place.rows(store, chosen - 1, chosen)
        by_number = {row.number: _done(row, state) for row in (*rows, *near)}
        row = by_number.get(chosen)
        page = [by_number[r.number] for r in rows if r.number >= low]
        counts = self.diffs.counts(run, reversed(page), budget_s=budget_s)
        shown = matrix(
            page,
            state,
            selected=chosen,
            changed=counts,
            newer=None if high >= last else min(last, high + MATRIX),
            older=None if low <= 0 else low - 1,
            before=by_number.get(low - 1),
        )
        diffed, changes = self._diff(state, row, by_number.get(chosen - 1), against)
        return Selected(
            row=row,
            moments=moments,
            matrix=shown if page else None,
            against=against,
            diffed=diffed,
            changes=changes,
            log=printed(self.live.project, run, chosen, most=TAIL, redact=self._redact),
        )

    def _diff(
        self, state: LoopState, row: Row | None, before: Row | None, against: str
    ) -> tuple[int | None, Changes | None]:
        if (row is None or row.after is None) and before is not None:
            row = before
        if row is None or row.after is None:
            return None, None
        best = state.best.snapshot if state.best is not None else None
        old = {"best": best, "start": state.base}.get(against, row.before)
        return row.number, self.diffs.whole(state.run, old, row.after)

    def _sign(self, state: LoopState) -> datetime | None:
        """When the agent at work printed something last."""
        it = state.current
        if it is None or it.open is None:
            return None
        folder = self.live.project / STATE / "artifacts" / state.run / f"{it.number:04d}"
        try:
            at = (folder / f"attempt-{it.open.attempt}" / "agent.log").lstat().st_mtime
        except OSError:
            return None
        return datetime.fromtimestamp(at, UTC)

    def stands(self, heads: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Of runs that are under way and not in hand here, whose process is `gone` and who is `queued`."""
        found: dict[str, str] = {}
        with self.live.stores() as store:
            for head in heads:
                run, news = str(head["run"]), str(head.get("updated_at"))
                if head.get("exit_code") is not None or run in self.live.working:
                    continue
                known = self._claims.get(run)
                if known is None or known[0] != news:
                    try:
                        known = self._claims[run] = (news, Journal(store, run).state)
                    except StoreError:
                        continue
                    while len(self._claims) > CLAIMS:
                        self._claims.popitem(last=False)
                if known[1].claim is None and known[1].finished is None:
                    found[run] = "queued"
                elif take.left(known[1]):
                    found[run] = "gone"
        return found

    def changed(self, shown: Shown | None) -> Changes | None:
        """What a request is about: what changed since the run began."""
        return None if shown is None else self.diffs.whole(shown.run, shown.before, shown.after)


def _view(state: LoopState) -> Shown | None:
    """What the open request shows; nothing where this version cannot read what the loop was."""
    try:
        return people.view(state)
    except ConfigError:
        return None


def _done(row: Row, state: LoopState) -> Row:
    """An iteration whose work is done though it is not closed has its snapshot already."""
    it = state.current
    done = row.after is None and it is not None and it.number == row.number and it.done
    return replace(row, after=state.snapshot) if done else row


def _pending(store: Store, run: str) -> tuple[ev.Event, ...]:
    """What people left for the run that nobody has taken in yet; news of notices is none."""
    found: list[ev.Event] = []
    for key, record in store.signals(run):
        if key.startswith("noticed/") or len(found) == 20:
            continue
        try:
            found.append(decode_signal(run, key, record))
        except StoreError:
            continue
    return tuple(found)
