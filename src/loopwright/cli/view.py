"""What a person sees while a run goes on: a line per iteration, and on a terminal what happens just now.

Rule: everything goes to stderr; plain lines where it is no terminal. What an agent prints is shown,
never obeyed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from loopwright.cli import words
from loopwright.core import events as ev
from loopwright.core.values import Score, Usage, together
from loopwright.figures import brief

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

FREED = "if it is the work: may_change"
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def fancy() -> bool:
    """Whether stderr is a terminal that may be drawn on."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("CI") or os.environ.get("TERM") == "dumb"
    return sys.stderr.isatty() and not plain


class View:
    """The view of one run; `see`, `begin` and `hear` are what a host calls."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self.seen = False
        self._console: Console | None = None
        self._live: Live | None = None
        self._doing = ""
        self._since = 0.0
        self._heard: tuple[float, str] | None = None
        self._scores: list[tuple[str, Score]] = []
        self._number = 0
        self._seconds = 0.0
        self._used: list[Usage] = []
        self._rests: tuple[datetime, str] | None = None
        self._last: float | None = None
        self._problem = ""
        self._verdict: ev.Judged | None = None

    @contextmanager
    def live(self) -> Iterator[None]:
        """Draws what happens just now at the foot of a terminal, for as long as it is open."""
        if self._quiet or not fancy():
            yield
            return
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, highlight=False)
        self._live = Live(
            get_renderable=self._now, console=self._console, transient=True, refresh_per_second=8
        )
        with self._live:
            try:
                yield
            finally:
                self._doing = ""
        self._console = self._live = None

    def rest(self) -> None:
        """Draws nothing until something starts again: a person types here."""
        self._doing = ""
        if self._live is not None:
            self._live.stop()

    def line(self, text: str) -> None:
        """One line above what happens now."""
        if self._quiet:
            return
        try:
            if self._console is not None:
                self._console.print(words.safe(text), markup=False, soft_wrap=True)
            else:
                print(words.safe(text), file=sys.stderr, flush=True)
        except OSError:  # nobody looks on any more: no reason to end a run
            self._quiet = True

    def begin(self, doing: str) -> None:
        """Something starts that takes time."""
        if self._live is not None and not self._live.is_started:
            self._live.start()
        self._doing, self._since, self._heard, self._rests = doing, time.monotonic(), None, None

    def hear(self, chunk: bytes) -> None:
        """The agent printed something: a sign of life."""
        lines = words.colourless(chunk[-400:].decode("utf-8", "replace")).strip().splitlines()
        self._heard = (time.monotonic(), brief(lines[-1], 120) if lines else "")

    def _now(self) -> Text:
        from rich.text import Text

        if not self._doing and self._rests is None:
            return Text("")
        now = time.monotonic()
        spin = SPINNER[int(now * 8) % len(SPINNER)]
        if self._rests is not None:
            left = max(0.0, (self._rests[0] - datetime.now(UTC)).total_seconds())
            return Text(f"  {spin} waits {words.seconds(left)} more: {self._rests[1]}", style="dim")
        minutes, rest = divmod(int(now - self._since), 60)
        heard = ""
        if self._heard is not None:
            heard = f' · last output {int(now - self._heard[0])} s ago · "{self._heard[1]}"'
        text = Text(f"  {spin} {self._doing} {minutes}:{rest:02d}{heard}", style="dim", no_wrap=True)
        text.truncate((self._console.width if self._console else 80) - 1, overflow="ellipsis")
        return text

    def at(self, iteration: int) -> None:
        """Where the run stands that is seen from here on."""
        self._number = iteration

    def see(self, event: ev.Event) -> None:
        """Takes one fact in; prints what a person wants to know of it."""
        self.seen = True
        match event:
            case ev.RunStarted():
                self._number, self._last = 0, None
            case ev.AttemptStarted(iteration=number):
                self._number, self._rests = number, None
            case ev.AttemptSucceeded(seconds=seconds, usage=usage):
                self._seconds += seconds
                self._used.append(usage)
            case ev.AttemptFailed(kind=kind, message=message, seconds=seconds, usage=usage):
                self._seconds += seconds
                self._used.append(usage)
                self._problem = f"{kind}: {message.strip().splitlines()[0] if message.strip() else ''}"
            case ev.AttemptInterrupted(cause=cause):
                self.line(f"  #{self._number:<3} cut off ({cause})")
            case ev.GateScored(gate=gate, score=score, seconds=seconds, beside_s=beside, usage=usage):
                self._scores.append((gate, score))
                self._used += [] if usage is None else [usage]
                self._seconds += seconds - beside
            case ev.Judged():
                self._verdict = event
            case ev.WaitStarted(until=until, why=why):
                self._rests = until, why
                known = self._problem.partition(": ")[2].removeprefix(f"{why}: ")
                after = f" ({known})" if known else ""
                self.line(f"  #{self._number:<3} waiting: {why}, {words.until(until)}{after}")
            case ev.EvidenceChanged(paths=paths, action="restored"):
                self.line(f"  !    the agent changed protected files; put back: {', '.join(paths[:5])}")
            case ev.EvidenceChanged(paths=paths, action="blocked"):
                names = ", ".join(paths[:5])
                self.line(f"  !    nothing passes until this is undone: {names} (evidence; {FREED})")
            case ev.AlertRaised(kind=kind, message=message, action=action):
                self.line(f"  !    {kind} ({action}): {message}")
            case ev.ApprovalDecided(answer="expired"):
                self.line("  !    nobody answered in time")
            case ev.ApprovalDecided(answer=answer, by=by, channel=channel, note=note):
                said = f": {note}" if note else ""
                self.line(f"  ✓    {answer} by {by} ({channel}){said}")
            case ev.IterationClosed(outcome=outcome):
                self._closed(outcome)
            case _:
                pass

    def _closed(self, outcome: str) -> None:
        """One line per iteration: scores per gate, score with its trend, cost, time."""
        score = self._verdict.verdict.score if self._verdict else None
        trend = ""
        if score is not None and self._last is not None and abs(score - self._last) >= 0.005:
            trend = f" {'▲' if score > self._last else '▼'} {abs(score - self._last):.2f}"
        gates = "   ".join(words.gate(name, given) for name, given in self._scores)
        what = gates or (f"{outcome}: {self._problem}" if self._problem else outcome)
        for name, given in self._scores:
            if given.status == "error":
                self.line(f"  !    {name}: {given.reason.partition(chr(10))[0]}")
        used = together(self._used)
        known = self._used and (used.plan or used.cost_usd is not None)
        cost = f"   {words.paid(used.cost_usd, used.tokens, plan=used.plan)}" if known else ""
        number = f"#{self._number}" if self._number else "start"
        self.line(
            f"  {number:<5} {what}   score {words.score(score)}{trend}{cost}   {words.seconds(self._seconds)}"
        )
        if self._verdict is not None and self._number == 0 and self._verdict.verdict.passed:
            self.line("        every gate passes already")
        elif self._verdict is not None:
            for reason in words.held(self._verdict.verdict, {name for name, _ in self._scores}):
                self.line(f"        held back by {brief(reason)}")
        self._last = score if score is not None else self._last
        self._scores, self._used, self._seconds, self._problem, self._verdict = [], [], 0.0, "", None
