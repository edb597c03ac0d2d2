"""How figures and foreign texts are written in reports: as everywhere (`loopwright.figures`)."""

from __future__ import annotations

from loopwright.figures import (
    BARS,
    MARKS,
    at_most,
    bars,
    brief,
    colourless,
    count,
    moment,
    money,
    paid,
    safe,
    score,
    seconds,
    short,
    tokens,
)

__all__ = [
    "BARS",
    "MARKS",
    "at_most",
    "bars",
    "brief",
    "colourless",
    "count",
    "moment",
    "money",
    "paid",
    "safe",
    "score",
    "seconds",
    "short",
    "tokens",
]
