"""How figures are written on the command line.

Rule: unknown is a question mark or a dash, never a zero.
"""

from __future__ import annotations

import sys
import unicodedata
from datetime import datetime

from loopwright.core.head import explanation, next_step, reason
from loopwright.core.state import LoopState
from loopwright.core.values import Score

BARS = "▁▂▃▄▅▆▇█"
MARKS = {"pass": "✓", "fail": "✗", "error": "!", "skipped": "-", None: "?"}


def seconds(value: float) -> str:
    """`3.2s`, `2m04s`, `1h02m`."""
    if value < 60:
        return f"{value:.1f}s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def money(value: float | None) -> str:
    """`$0.31`, or `$?` when it is not known."""
    return "$?" if value is None else f"${value:.2f}"


def score(value: float | None) -> str:
    """Two decimals, or a dash."""
    return "-" if value is None else f"{value:.2f}"


def spark(scores: list[float]) -> str:
    """The scores as a row of bars."""
    return "".join(BARS[min(7, int(s * 7.999))] for s in scores)


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
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cf"} else f"\\u{ord(c):04x}" for c in text
    )


def three_lines(state: LoopState) -> list[str]:
    """What happened, why, and what to type next."""
    word = reason(state) or state.phase
    mark = "✓" if state.finished and state.finished.phase == "complete" else "✗" if state.finished else "⏸"
    totals = state.totals
    cost = money(totals.cost_usd) if totals.known_costs and not totals.unknown_costs else "cost unknown"
    best = "" if state.best is None else f" · best {state.best.score:.2f} (#{state.best.iteration})"
    count = f"{state.iteration} iteration{'' if state.iteration == 1 else 's'}"
    return [
        f"{mark} {state.run}: {word} after {count}{best} · {cost} · {seconds(totals.seconds)}",
        f"  why:  {safe(explanation(state).splitlines()[0] if explanation(state) else '')}",
        f"  next: {next_step(state)}",
    ]


def plain(text: str) -> str:
    """`text` as this stdout can show it: marks it has no letters for are replaced."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
