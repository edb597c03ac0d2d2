"""A request as a terminal shows it, and the answer that is typed there.

Rule: a terminal is one channel among others: what is typed goes through the same door as every answer,
and whoever is first, here or elsewhere, has decided.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import assert_never

from loopwright.cli import words
from loopwright.cli.view import View
from loopwright.cli.where import Where, who
from loopwright.core import events as ev
from loopwright.core.showing import Shown
from loopwright.core.state import LoopState
from loopwright.hosts import people
from loopwright.ports import Diff
from loopwright.running import Run

TOO_LATE = 3
WAYS = "approve [NOTE] · revise NOTE · reject [NOTE] · override REASON · diff"
TYPED: Mapping[str, str] = {
    "approve": "loopwright approve {run}",
    "revise": 'loopwright revise {run} --note "…"',
    "reject": "loopwright reject {run}",
}


def left(deadline: datetime | None, now: datetime) -> str:
    """How long a request is still open."""
    if deadline is None:
        return "no limit"
    seconds = (deadline - now).total_seconds()
    return "over" if seconds <= 0 else f"{words.seconds(seconds)} left"


def lines(shown: Shown, request: str, where: Where, diff: Diff | None) -> list[str]:
    """A request for people: what is asked, on what grounds, what each answer does, and until when."""
    now = datetime.now(UTC)
    row = [words.gate(scored.gate, scored.score) for scored in shown.gates]
    trend = " ".join(words.score(score) for score in shown.trend)
    cost = words.paid(shown.cost_usd, shown.tokens, plan=shown.plan)
    if shown.projected_usd and not shown.plan:
        cost += f", about {words.money(shown.projected_usd)} with one more iteration"
    told = [
        f"⏸ {shown.run} asks a person (request {request}): {shown.question}",
        f"  goal:    {shown.goal.strip().partition(chr(10))[0]}",
        f"  why now: {shown.why}",
        f"  gates:   {'   '.join(row) or 'none'}",
    ]
    for scored in shown.gates:
        if scored.score.status != "pass" and scored.score.reason:
            told += [
                f"           {scored.gate}: {line}"
                for line in words.at_most(scored.score.reason.splitlines(), 5)
            ]
    told.append(f"  scores:  {trend or '-'}")
    told.append(f"  cost:    {cost} · {words.seconds(shown.seconds)} of work")
    told += [f"  alert:   {alert}" for alert in shown.alerts]
    if shown.summary.strip():
        told.append(f"  it says: {shown.summary.strip().partition(chr(10))[0]}")
    if diff is not None:
        see = words.typed(f"loopwright diff {shown.run}", shown.run, where)
        told.append(f"  changed: {len(diff.paths)} files, {diff.lines} lines ({see})")
    for effect in shown.effects:
        command = words.typed(TYPED[effect.answer].format(run=shown.run), shown.run, where)
        if effect.answer == "approve" and shown.blockers:
            command += ' --override "…"'
        told += [f"  {effect.answer + ':':<8} {effect.does}", f"           {command}"]
    until = f", until {shown.deadline.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if shown.deadline else ""
    told.append(f"  silence: {left(shown.deadline, now)}{until}; then {shown.silence}")
    return [words.safe(line) for line in told]


def asked_lines(state: LoopState, where: Where) -> list[str]:
    """The open request of a run for people; nothing when nothing is asked."""
    from loopwright.cli.files import changes

    shown = people.view(state)
    if shown is None or state.approval is None:
        return []
    return lines(shown, state.approval.id, where, changes(where, state.run, shown.before, shown.after))


def told(outcome: people.Outcome, run: str, where: Where) -> tuple[str, int]:
    """What a person is told of their answer, and the exit code."""
    match outcome:
        case people.Recorded(decision=decision, again=False):
            return f"{decision.answer} by {decision.by} is on record for {run}", 0
        case people.Recorded(decision=decision, at=at):
            return f"{_was(decision, at)}: the same answer", 0
        case people.Conflict(decision=decision, at=at):
            return f"{_was(decision, at)}: yours does not count", TOO_LATE
        case people.Late(why=why, expired=expired):
            again = words.typed(f"loopwright ask-again {run}", run, where)
            asks = f"; {again} lets it ask anew" if expired and "over" not in why else ""
            return f"too late: {why}{asks}", TOO_LATE
        case people.Stale(live=live):
            see = words.typed(f"loopwright show {run}", run, where)
            return f"that request is no longer open; {live.id} is ({live.question}); {see} shows it", TOO_LATE
        case people.Nothing(why=why):
            return why, TOO_LATE
        case people.Refused(why=why):
            return why, 2
        case _:
            assert_never(outcome)


def _was(decision: ev.ApprovalDecided, at: datetime | None) -> str:
    """Who decided what, and when."""
    when = "" if at is None else f" at {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    said = f" ({decision.note})" if decision.note else ""
    over = f", overriding: {decision.override}" if decision.override else ""
    return f"already decided: {decision.answer} by {decision.by} ({decision.channel}){when}{said}{over}"


def heard(line: str) -> people.Said | str:
    """The answer in a typed line, or what is wrong with it."""
    word, _, rest = line.strip().partition(" ")
    rest, by = rest.strip(), who()
    match word.lower():
        case "approve":
            return people.Said(answer="approve", by=by, channel="terminal", note=rest)
        case "override" if rest:
            return people.Said(answer="approve", by=by, channel="terminal", override=rest)
        case "revise" if rest:
            return people.Said(answer="revise", by=by, channel="terminal", note=rest)
        case "reject":
            return people.Said(answer="reject", by=by, channel="terminal", note=rest)
        case "revise" | "override":
            return f"{word.lower()} needs words behind it"
        case _:
            return f"answer with one of: {WAYS}"


@dataclass(slots=True, kw_only=True)
class Terminal:
    """The person at this terminal: told what is asked, and heard if they can type."""

    view: View
    where: Where
    types: bool
    _shown: str = ""
    _run: Run | None = None
    _reads: bool = False
    _typed: bytes = field(default=b"")

    def attend(self, run: Run) -> None:
        """Called while a person is waited for: shows a request once, and listens to what is typed."""
        state = run.journal.state
        asked, shown = state.approval, people.view(state) if state.approval else None
        if asked is None or shown is None:
            return
        if asked.id != self._shown:
            self._shown, self._run, self._typed = asked.id, run, b""
            self.view.rest()
            diff = run.workspace.diff(shown.before, shown.after) if shown.before and shown.after else None
            for line in lines(shown, asked.id, self.where, diff):
                self.view.line(line)
            if self.types:
                self.view.line(f"  answer here ({WAYS}) or in another terminal; Ctrl-C leaves it open")
            else:
                self.view.line("  waiting for an answer from another terminal; Ctrl-C leaves it open")
        if self.types and not self._reads and _in_front():
            with suppress(termios.error):  # what was typed before a request was seen is no answer to it
                termios.tcflush(0, termios.TCIFLUSH)
            asyncio.get_running_loop().add_reader(0, self._read, run)
            self._reads = True
            self._prompt()

    def see(self, _: ev.Event) -> None:
        """Takes a fact in: once nothing is asked any more, what is typed is nobody's answer."""
        if self._run is not None and self._run.journal.state.approval is None:
            if self._reads:
                print(file=sys.stderr, flush=True)
            self._rest()
            self._run = None

    def _rest(self) -> None:
        if self._reads:
            asyncio.get_running_loop().remove_reader(0)
            self._reads = False

    def _read(self, run: Run) -> None:
        """What was typed; where another job has the terminal, it is left to it."""
        if not _in_front():
            self._rest()
            return
        try:
            chunk = os.read(0, 4096)
        except OSError:  # the terminal is gone
            chunk = b""
        if not chunk:
            self.types = False
            self._rest()
            self.view.line("  nothing more is read here: answer from another terminal")
            return
        *whole, self._typed = (self._typed + chunk).split(b"\n")
        for line in whole:
            if self._reads and line.strip():
                self._answer(run, line.decode("utf-8", "replace"))

    def _answer(self, run: Run, line: str) -> None:
        if line.strip() == "diff":
            shown = people.view(run.journal.state)
            diff = run.workspace.diff(shown.before, shown.after) if shown else None
            self.view.line("there is no diff: nothing is snapshotted" if diff is None else diff.text)
            self._prompt()
            return
        said = heard(line)
        if isinstance(said, str):
            self.view.line(f"  {said}")
            self._prompt()
            return
        outcome = people.answer(
            run.journal.store,
            run.journal.run,
            said,
            now=run.clock.now(),
            approval=self._shown,
            redact=run.journal.redact,
        )
        text, code = told(outcome, run.journal.run, self.where)
        if code:
            self.view.line(f"  {text}")
            self._prompt()

    def _prompt(self) -> None:
        print("> ", end="", file=sys.stderr, flush=True)


def _in_front() -> bool:
    """Whether this process may read its terminal: a job behind another one is stopped by the kernel if it does."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # not the terminal that jobs are controlled by: whoever has it open may read it
        return True
