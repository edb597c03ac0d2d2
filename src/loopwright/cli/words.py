"""How figures are written on the command line.

Rule: unknown is a question mark or a dash, never a zero.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import unicodedata
from datetime import datetime
from pathlib import Path

from loopwright import units
from loopwright.core.head import exit_code, explanation, next_step, reason
from loopwright.core.state import LoopState
from loopwright.core.values import Score
from loopwright.stores.opened import owner_alive

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
MARKS = {"pass": "✓", "fail": "✗", "error": "!", "skipped": "-", None: "?"}


def seconds(value: float) -> str:
    """`3.2s`, `2m04s`, `1h02m`."""
    if value < 60:
        return f"{value:.1f}s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def duration(text: str) -> float:
    """The seconds that a text of the command line says, where a number is a text as well."""
    return units.seconds(float(text) if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) else text)


def money(value: float | None) -> str:
    """`$0.31`, or `$?` when it is not known."""
    return "$?" if value is None else f"${value:.2f}"


def score(value: float | None) -> str:
    """Two decimals, or a dash."""
    return "-" if value is None else f"{value:.2f}"


def gate(name: str, given: Score) -> str:
    """`pytest ✗ 0.87`."""
    mark = MARKS.get(given.status, "?")
    return (
        f"{name} {mark}"
        if given.value in {0.0, 1.0} and not given.graded
        else f"{name} {mark} {given.value:.2f}"
    )


def ago(now: datetime, then: datetime | None) -> str:
    """How long ago, for people."""
    return "-" if then is None else seconds(max(0.0, (now - then).total_seconds()))


def safe(text: str) -> str:
    """`text` without what could drive a terminal: control and bidirectional characters are shown, not obeyed."""
    parts = text.split("\n")
    return "\n".join(part if part.isprintable() else _shown(part) for part in parts)


def _shown(text: str) -> str:
    return "".join(
        c if c == "\t" or unicodedata.category(c) not in {"Cc", "Cf"} else f"\\u{ord(c):04x}" for c in text
    )


def colourless(text: str) -> str:
    """`text` without colours, titles and what else a terminal would do: what is left is read."""
    return ESCAPES.sub("", text)


def at_most(lines: list[str], n: int) -> list[str]:
    """The first `n` lines, and how many were left out."""
    return lines if len(lines) <= n + 1 else [*lines[:n], f"… and {len(lines) - n} more lines"]


def left(state: LoopState) -> bool:
    """Whether a run is under way on record while nobody drives it: its process is gone."""
    under_way = state.finished is None and exit_code(state) is None
    return under_way and state.claim is not None and owner_alive(state.claim.owner) is False


def three_lines(state: LoopState, project: Path, *, ours: bool = False) -> list[str]:
    """What happened, why, and what to type next here; `ours`: this process drove it and is done with it."""
    word = reason(state) or state.phase
    under_way = state.finished is None and exit_code(state) is None
    alone = under_way and (ours or left(state))
    why, step = explanation(state).partition("\n")[0], next_step(state)
    if alone:
        gone = "nobody drives it" if ours else "its process is gone"
        why, step = f"{why}, and {gone}", f"loopwright resume {state.run}"
    if state.finished is not None:
        mark = "✓" if state.finished.phase == "complete" else "✗"
    else:
        mark = "▶" if under_way and not alone else "⏸"
    totals = state.totals
    cost = money(totals.cost_usd) if totals.known_costs and not totals.unknown_costs else "cost unknown"
    best = "" if state.best is None else f" · best {state.best.score:.2f} (#{state.best.iteration})"
    count = f"{state.iteration} iteration{'' if state.iteration == 1 else 's'}"
    count = f"in iteration {state.iteration}" if under_way else f"after {count}"
    return [
        f"{mark} {state.run}: {word} {count}{best} · {cost} · {seconds(totals.seconds)}",
        f"  why:  {safe(why)}",
        f"  next: {typed(step, state.run, project)}",
    ]


def typed(command: str, run: str, project: Path) -> str:
    """A command about `run` as it is typed in this folder."""
    there = _from_here(project)
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
