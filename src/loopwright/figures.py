"""How figures and foreign texts are written for people.

Rule: unknown is a question mark or a dash, never a zero; what could drive a terminal or a browser is
shown, not obeyed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # `list` writes figures and loads no core
    from loopwright.core.values import Status

MARKS: Final[dict[Status | None, str]] = {"pass": "✓", "fail": "✗", "error": "!", "skipped": "-", None: "?"}
BARS: Final = "▁▂▃▄▅▆▇█"
_DRIVING: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


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


def short(n: int) -> str:
    """`850`, `12.4k`, `1.2M`."""
    if n < 1000:
        return str(n)
    for unit, size in (("k", 1e3), ("M", 1e6)):
        if round(n / size, 1) < 1000:
            return f"{n / size:.1f}{unit}"
    return f"{n / 1e9:.1f}G"


def tokens(n: int | None) -> str:
    """`12.4k tokens`, or `? tokens` when they are not known."""
    return "? tokens" if n is None else f"{short(n)} token{'' if n == 1 else 's'}"


def paid(cost_usd: float | None, used: int | None, *, plan: bool = False) -> str:
    """The dollars; where a flat plan pays, the tokens, for then nobody pays these dollars."""
    return tokens(used) if plan else money(cost_usd)


def score(value: float | None) -> str:
    """Two decimals, or a dash; 1.00 is said of nothing less."""
    return "-" if value is None else f"{min(value, 0.99) if 0.99 < value < 1 else value:.2f}"


def moment(at: datetime | None) -> str:
    """`2026-03-01 12:00:05 UTC`, or a dash."""
    return "-" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def count(n: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def safe(text: str) -> str:
    """`text` without what could drive a terminal: control and bidirectional characters are shown, not obeyed."""
    parts = text.split("\n")
    return "\n".join(part if part.isprintable() else _shown(part) for part in parts)


def _shown(text: str) -> str:
    return "".join(c if c == "\t" or not _drives(c) else f"\\u{ord(c):04x}" for c in text)


def _drives(char: str) -> bool:
    return unicodedata.category(char) in _DRIVING or ord(char) & 0xFFFE == 0xFFFE  # the last are no XML


def colourless(text: str) -> str:
    """`text` without colours, titles and what else a terminal would do: what is left is read."""
    return _ESCAPES.sub("", text)


def brief(text: str, most: int = 200) -> str:
    """The first line that says something, cut to `most` characters, shown safely."""
    line = next((part.strip() for part in text.splitlines() if part.strip()), "")
    return safe(line if len(line) <= most else line[: most - 1] + "…")


def at_most(lines: list[str], n: int) -> list[str]:
    """The first `n` lines, and how many were left out."""
    return lines if len(lines) <= n + 1 else [*lines[:n], f"… and {len(lines) - n} more lines"]


def bars(values: Iterable[float | None]) -> str:
    """Numbers from 0 to 1 as a line of small bars; a gap for what is not known."""
    top = len(BARS) - 1
    return "".join(" " if v is None else BARS[round(min(1.0, max(0.0, v)) * top)] for v in values)
