"""How figures are written on the command line.

Rule: unknown is a question mark or a dash, never a zero.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Container
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from loopwright import units
from loopwright.figures import (
    MARKS,
    at_most,
    brief,
    colourless,
    money,
    paid,
    safe,
    score,
    seconds,
)

if TYPE_CHECKING:  # figures alone need no core
    from loopwright.cli.where import Where
    from loopwright.core.state import LoopState
    from loopwright.core.values import Score, Verdict
    from loopwright.ports import Hold

__all__ = [
    "MARKS",
    "at_most",
    "brief",
    "colourless",
    "money",
    "paid",
    "safe",
    "score",
    "seconds",
]  # written the same in reports


def put(text: bytes) -> None:
    """Writes a document on stdout; a reader that went away changes nothing."""
    import click

    try:
        click.echo(text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def duration(text: str) -> float:
    """The seconds that a text of the command line says, where a number is a text as well."""
    return units.seconds(float(text) if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) else text)


def gate(name: str, given: Score) -> str:
    """`pytest ✗ 0.87`."""
    mark = MARKS.get(given.status, "?")
    return (
        f"{name} {mark}"
        if given.value in {0.0, 1.0} and not given.graded
        else f"{name} {mark} {score(given.value)}"
    )


def held(verdict: Verdict, gates: Container[str]) -> list[str]:
    """Why work is not passed though no gate says so, a line each: evidence that was changed, tests that are gone."""
    # What blocks and why are in the same order, as far as the first goes.
    told = zip(verdict.blockers, verdict.reasons, strict=False)
    return [reason for name, reason in told if name not in gates]


def ago(now: datetime, then: datetime | None) -> str:
    """How long ago, for people."""
    return "-" if then is None else seconds(max(0.0, (now - then).total_seconds()))


def left(state: LoopState) -> bool:
    """Whether a run is under way on record while nobody drives it: its process is gone."""
    from loopwright.hosts import take

    return take.left(state)


def next_of(state: LoopState) -> str:
    """The command to type next: that of the state, or `resume` where nobody drives the run."""
    from loopwright.core.head import next_step

    return f"loopwright resume {state.run}" if left(state) else next_step(state)


def until(at: datetime) -> str:
    """`until 14:05:09 UTC`, with the day where it is another than today."""
    at = at.astimezone(UTC)
    day = "" if at.date() == datetime.now(UTC).date() else f"{at:%Y-%m-%d} "
    return f"until {day}{at:%H:%M:%S} UTC"


def goes_on(at: datetime | None) -> str:
    """What comes of a run that waits for a time: how long from now it goes on, and when."""
    left = 0.0 if at is None else (at - datetime.now(UTC)).total_seconds()
    return f"it goes on by itself in {seconds(left)}" if left > 0 else "it goes on by itself"


def on_hold(hold: Hold) -> str:
    """A login that must wait: until when, why, and what becomes of it."""
    if hold.until is None:
        rest = f"since {hold.since.astimezone(UTC):%Y-%m-%d %H:%M} UTC, till a run that is started anew gets through"
    else:
        rest = f"{until(hold.until)}, then it passes by itself"
    return safe(f"login {hold.login} is on hold {rest}: {brief(hold.why)}")


def three_lines(state: LoopState, where: Where, *, ours: bool = False) -> list[str]:
    """What happened, why, and what to type next here; `ours`: this process drove it and is done with it."""
    from loopwright.core.closing import best_now
    from loopwright.core.head import exit_code, explanation, next_step, reason

    word = reason(state) or state.phase
    under_way = state.finished is None and exit_code(state) is None
    alone = under_way and (ours or left(state))
    why, step = explanation(state).partition("\n")[0], next_step(state)
    if state.phase == "waiting":
        step = f"{goes_on(state.wait_until)}; loopwright stop {state.run} ends it"
    if alone:
        gone = "nobody drives it" if ours else "its process is gone"
        why, step = f"{why}, and {gone}", f"loopwright resume {state.run}"
    if state.finished is not None:
        mark = "✓" if state.finished.phase == "complete" else "✗"
    else:
        mark = "▶" if under_way and not alone else "⏸"
    totals = state.totals
    known_cost = totals.known_costs and not totals.unknown_costs
    used = None if totals.unknown_tokens or totals.cut else totals.tokens
    cost = paid(totals.cost_usd, used, plan=totals.plan) if known_cost or totals.plan else "cost unknown"
    known = best_now(state)
    best = "" if known is None else f" · best {score(known.score)} (#{known.iteration})"
    count = f"{state.iteration} iteration{'' if state.iteration == 1 else 's'}"
    count = f"in iteration {state.iteration}" if under_way else f"after {count}"
    return [
        f"{mark} {state.run}: {word} {count}{best} · {cost} · {seconds(totals.seconds)}",
        f"  why:  {safe(why)}",
        f"  next: {typed(step, state.run, where)}",
    ]


def typed(command: str, run: str, where: Where) -> str:
    """A command about `run` as it is typed in this folder."""
    there = _from_here(where.project)
    if command.startswith("git "):  # which takes its -C before the verb
        return f"git{there} {command.removeprefix('git ')}"
    if where.named and where.store is not None:
        there += f" --store {shlex.quote(where.store)}"
    return re.sub(rf" {re.escape(run)}(?!\S)", lambda found: found[0] + there, command, count=1)


def _from_here(project: Path) -> str:
    """The option by which a verb typed in this folder finds the runs of `project`."""
    here = Path.cwd()
    return (
        "" if here == project or project in here.parents else f" -C {shlex.quote(os.path.relpath(project))}"
    )


def plain(text: str) -> str:
    """`text` as this stdout can show it: marks it has no letters for are replaced."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
