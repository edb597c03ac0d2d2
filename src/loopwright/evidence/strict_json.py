"""JSON out of tools, read strictly: a value that could be read in two ways is not read.

Rule: a key that stands twice, two documents where one is due, a document that breaks off are `BadEvidence`,
never a choice of ours. Numbers are checked where they are used (`number`): NaN elsewhere harms nobody.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from math import isfinite
from typing import Any

from loopwright.errors import BadEvidence

_STARTS = re.compile(r"^[\[{]", re.MULTILINE)  # column 0: an indented one is part of something larger
_TORN = re.compile(r"[ \t]*([,:\]}])")  # what follows a value that is part of something larger
_TRIES = 1000
_BROKEN_OFF = ("Unterminated string", "Invalid \\escape", "Invalid \\uXXXX")


def only_value(data: bytes, name: str) -> tuple[Any, str]:
    """The one JSON value in `data`, and the text around it (warnings that tools mix into their output).

    Without text around it any value counts, else an object or array that begins a line. Raises BadEvidence:
    `no_output` (nothing at all), `malformed` (no complete value), `ambiguous` (several), `duplicate_key`.
    """
    text = _decoded(data, name).strip()
    if not text:
        raise BadEvidence("no_output", f"{name} is empty")
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    try:
        return _scanned(decoder, text, 0, name, complete=True)[0], ""
    except _NotHere as reason:
        first = reason
    return _among_chatter(decoder, text, name, first)


def of_line(line: str, where: str) -> Any:
    """The JSON value that one line is; BadEvidence `malformed` or `duplicate_key`, naming `where` it stands."""
    try:
        return json.loads(line, object_pairs_hook=_unique)
    except _Duplicate as error:
        raise BadEvidence(
            "duplicate_key", f"{where} has the key {error.args[0]!r} twice in one object"
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadEvidence("malformed", f"{where} is not complete JSON: {error}") from None


class _NotHere(Exception):
    """Why no JSON value was found, and where that was seen; `cut`: because the text ended."""

    def __init__(self, why: str, at: int, *, cut: bool) -> None:
        self.at, self.cut = at, cut
        super().__init__(why)


def _among_chatter(
    decoder: json.JSONDecoder, text: str, name: str, first: _NotHere
) -> tuple[dict[str, Any] | list[Any], str]:
    found: list[Any] = []
    chatter: list[str] = []
    end = kept = 0
    for tries, start in enumerate(m.start() for m in _STARTS.finditer(text)):
        if start < end:
            continue  # inside the value found before, or of what turned out to be none
        if tries >= _TRIES:
            raise BadEvidence("malformed", f"{name} is not JSON: too many lines only look like it")
        try:
            value, after = _scanned(decoder, text, start, name, complete=False)
        except _NotHere as reason:
            if reason.cut:  # a report that breaks off: what it holds further in is not the report
                raise BadEvidence("malformed", f"{name} is not complete JSON: {reason}") from None
            end = reason.at
            continue
        if torn := _TORN.match(text, after):
            raise BadEvidence(
                "malformed", f"{name} is not JSON: {torn[1]!r} follows a value, its beginning is lost"
            )
        chatter.append(text[kept:start])
        found.append(value)
        end = kept = after
    if not found:
        raise BadEvidence("malformed", f"{name} is not JSON: {first}")
    if len(found) > 1:
        raise BadEvidence("ambiguous", f"{name} holds {len(found)} JSON values where one is due")
    return found[0], "".join([*chatter, text[kept:]]).strip()


def _scanned(
    decoder: json.JSONDecoder, text: str, start: int, name: str, *, complete: bool
) -> tuple[Any, int]:
    """The value that begins at `start` and where it ends; `complete`: at the end of the text."""
    try:
        value, end = decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text) or error.msg.startswith(_BROKEN_OFF)
        raise _NotHere(str(error), error.pos, cut=cut) from None
    except RecursionError:
        raise BadEvidence("malformed", f"{name} is nested too deeply") from None
    except _Duplicate as error:
        raise BadEvidence(
            "duplicate_key", f"{name} has the key {error.args[0]!r} twice in one object"
        ) from None
    except ValueError as error:  # an integer of thousands of digits
        raise BadEvidence("malformed", f"{name} is not JSON: {error}") from None
    if complete and end != len(text):
        raise _NotHere(f"more text follows at character {end}", end, cut=False)
    return value, end


class _Duplicate(ValueError):
    """A key that stands twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _Duplicate(counts.most_common(1)[0][0])
    return made


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode(json.detect_encoding(data)).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise BadEvidence("malformed", f"{name} is not text: byte {error.start} cannot be read") from None


def number(value: object, what: str) -> float:
    """`value` as a float; BadEvidence `not_a_number` (bools and strings included) or `not_finite`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        shown = (
            json.dumps(value)[:80] if isinstance(value, str | bool | None) else f"a {type(value).__name__}"
        )
        raise BadEvidence("not_a_number", f"{what} is {shown}, not a number")
    try:
        found = float(value)
    except OverflowError:  # an integer beyond 1.8e308
        found = float("inf")
    if not isfinite(found):
        raise BadEvidence("not_finite", f"{what} is {found}, not a finite number")
    return found


def count(value: object, what: str) -> int:
    """`value` as a count; BadEvidence as `number`, or `malformed` for a fraction or one below zero."""
    found = number(value, what)
    if found < 0 or found != int(found):
        raise BadEvidence("malformed", f"{what} is {found}, not a count")
    return int(found)
