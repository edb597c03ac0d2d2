"""One number out of a tool's output: from JSON by a dotted path, or from text by a regular expression.

Rule: the number that was asked for, or an error. Nothing is searched for, scaled, converted from a string or
rounded; a second candidate is an error, not a choice.
"""

from __future__ import annotations

import re

from loopwright.errors import BadEvidence
from loopwright.evidence import strict_json
from loopwright.evidence.text import decode, one_line

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


def from_json(data: bytes, name: str, path: str) -> float:
    """The number at `path` (`metrics.accuracy`, `runs.0.score`) of the one JSON value in `data`.

    Raises BadEvidence: `no_score` (nothing there, or null), `not_a_number` (a string or bool too), `not_finite`,
    and those of `strict_json`.
    """
    here, _ = strict_json.only_value(data, name)
    for i, step in enumerate(keys := path.split(".")):
        if isinstance(here, dict) and step in here:
            here = here[step]
        elif isinstance(here, list) and step.isascii() and step.isdigit() and int(step[:9]) < len(here):
            here = here[int(step)]
        else:
            has = f"; it has {', '.join(list(here)[:8]) or 'no keys'}" if isinstance(here, dict) else ""
            at = ".".join(keys[:i]) or "the top"
            raise BadEvidence("no_score", f"{name} has no {path!r}: nothing is called {step!r} at {at}{has}")
    if here is None:
        raise BadEvidence("no_score", f"{path} in {name} is null")
    return strict_json.number(here, f"{path} in {name}")


def from_text(data: bytes, name: str, pattern: re.Pattern[str]) -> float:
    """The number in the one group of `pattern`, which matches once (`^` and `$` are those of a line).

    Raises BadEvidence: `no_output`, `no_score` (no match), `ambiguous` (several), `not_a_number`, `not_finite`.
    """
    text = decode(data)
    if not text.strip():
        raise BadEvidence("no_output", f"{name} is empty")
    found = [match[1] for match, _ in zip(pattern.finditer(text), range(100), strict=False)]
    if not found:
        raise BadEvidence("no_score", f"nothing in {name} matches {pattern.pattern!r}")
    if len(found) > 1:
        shown = ", ".join(repr(one_line(f or "", 20)) for f in found[:4])
        raise BadEvidence("ambiguous", f"{pattern.pattern!r} matches {len(found)} times in {name}: {shown}")
    number = (found[0] or "").strip()
    if _NOT_FINITE.fullmatch(number):
        raise BadEvidence("not_finite", f"{name} says {number}, not a finite number")
    if not _NUMBER.fullmatch(number):
        raise BadEvidence("not_a_number", f"{name} says {one_line(number, 60)!r}, not a number")
    return strict_json.number(float(number), name)
