"""One verdict out of what a judge said: a model's answer or a command's output, prose around it allowed.

Rule: exactly one JSON object with the right types in the declared range, or `BadEvidence`. No number is taken from
prose, no string is a number, no scale is guessed, nothing has a default; what could be read in two ways is not read.

Only objects at the top count: a verdict inside another object may be an example of one. What begins like an object
and is none (a trailing comma, single quotes, broken off) is passed over as prose only where it cannot have been one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from loopwright.errors import BadEvidence
from loopwright.evidence import strict_json
from loopwright.evidence.text import plain

MAX_CHARS: Final = 256_000
_DEEPEST: Final = 32  # braces in braces, or brackets in brackets
_BLOCKS: Final = 200  # things in braces that are no verdict
_STEPS: Final = 500_000  # braces and strings looked at in all
_TOKEN: Final = re.compile(r'[][{}]|"(?:[^"\\]|\\.)*+("?)', re.DOTALL)
_OBJECT: Final = re.compile(r"""\{\s*(?:"[^"\n]{0,200}"|'[^'\n]{0,200}'|[\w$]{1,200})\s*:""")
_KEYS: Final = ("score", "pass", "criteria")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What one judge says: `score` from 0 to 1, `raw` as given on its scale, and why.

    `passes` and `confidence` (0 to 1) are `None` where it said nothing of them; `criteria` are those asked for, 0 to 1.
    """

    score: float
    raw: float
    reason: str = ""
    passes: bool | None = None
    confidence: float | None = None
    criteria: Mapping[str, float] = field(default_factory=dict)


def read(
    said: bytes | str,
    name: str,
    *,
    scale: tuple[float, float] = (0.0, 1.0),
    criteria: Mapping[str, float] | None = None,
) -> Opinion:
    """The one verdict in `said`, with `score` on `scale` (worst, best).

    With `criteria` (weight by name) each has its number in an object `criteria`, and the score is their mean by weight,
    not the judge's. Raises BadEvidence: `no_output`, `no_verdict` (no object with a score), `ambiguous` (two that
    differ), `malformed`, `too_large`, `duplicate_key`, `no_score`, `not_a_number`, `not_finite`, `out_of_range`.
    """
    text = _decoded(said, name)
    wanted = criteria or {}
    keys = _KEYS if wanted else _KEYS[:2]
    found = [_opinion(value, name, scale, wanted) for value in _objects(text, name, keys)]
    if not found:
        raise BadEvidence("no_verdict", f"{name} holds no verdict: a JSON object with a score")
    if any(other != found[0] for other in found[1:]):
        raise BadEvidence("ambiguous", f"{name} holds {len(found)} verdicts that differ")
    return found[0]


def _decoded(said: bytes | str, name: str) -> str:
    if isinstance(said, bytes):
        try:
            said = said.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise BadEvidence(
                "malformed", f"{name} is not UTF-8: byte {error.start} cannot be read"
            ) from None
    if not said.strip():
        raise BadEvidence("no_output", f"{name} is empty")
    if len(said) > MAX_CHARS:
        raise BadEvidence("too_large", f"{name} has {len(said):,} characters; {MAX_CHARS:,} are read")
    return said


def _objects(text: str, name: str, keys: Collection[str]) -> list[dict[str, Any]]:
    """The objects at the top of `text` that have one of these keys."""
    mentions = re.compile(rf"""(?:{"|".join(keys)})\\?["'“”„‘’]?\s*:""", re.IGNORECASE)
    found: list[dict[str, Any]] = []
    at = blocks = steps = 0
    while (at := text.find("{", at)) >= 0:
        if (blocks := blocks + 1) > _BLOCKS:
            raise BadEvidence("malformed", f"{name} holds more than {_BLOCKS} things in braces")
        end, taken = _end(text, at, name)
        if (steps := steps + taken) > _STEPS:
            raise BadEvidence("malformed", f"{name} is a maze of braces and quotes")
        if end is None:
            rest = text[at + 1 :].partition("{")[0]
            if _OBJECT.match(text, at) or mentions.search(rest):  # it may be part of a verdict, so it is none
                raise BadEvidence("malformed", f"{name} breaks off inside an object")
            at += 1
            continue
        block = text[at:end]
        try:
            value = strict_json.of_line(block, f"an object in {name}")
        except BadEvidence:
            if mentions.search(block):
                raise
        else:
            if twins := sorted(key for key in keys_of(value) - set(keys) if key.strip().casefold() in keys):
                raise BadEvidence(
                    "malformed", f"an object in {name} has {_shown(twins[0])}, which is no key of a verdict"
                )
            if not keys_of(value).isdisjoint(keys):
                found.append(value)
                if "}" in text[end:].partition("{")[0]:
                    raise BadEvidence("malformed", f"{name} closes more objects than it opens")
        at = end
    return found


def keys_of(value: Any) -> frozenset[str]:
    """The keys of a JSON object; none for another value."""
    return frozenset(value) if isinstance(value, dict) else frozenset()


def _end(text: str, start: int, name: str) -> tuple[int | None, int]:
    """Where what begins at `start` with a brace is closed, braces in strings not counted, and the steps this took."""
    depth = lists = steps = 0
    for token in _TOKEN.finditer(text, start):
        steps += 1
        depth, lists = depth + (token[0] == "{"), lists + (token[0] == "[") - (token[0] == "]")
        if max(depth, lists) > _DEEPEST:
            raise BadEvidence("malformed", f"{name} is nested too deeply")
        if token[0] in "{[]":
            continue
        if token[0] == "}":
            depth -= 1
            if depth == 0:
                return token.end(), steps
        elif not token[1]:  # a string without an end
            break
    return None, steps


def _opinion(
    value: dict[str, Any], name: str, scale: tuple[float, float], wanted: Mapping[str, float]
) -> Opinion:
    passes = value.get("pass")
    if "pass" in value and not isinstance(passes, bool):
        raise BadEvidence("malformed", f"pass in {name} is {_shown(passes)}, neither true nor false")
    reason = value.get("reason", "")
    if not isinstance(reason, str):
        raise BadEvidence("malformed", f"reason in {name} is {_shown(reason)}, not a text")
    confidence = None
    if "confidence" in value:
        confidence = _within(value["confidence"], f"confidence in {name}", (0.0, 1.0))
    raws = _criteria(value.get("criteria"), name, scale, wanted) if wanted else {}
    if "score" in value:  # of criteria it is checked like any number, and not used
        raw = _within(value["score"], f"score in {name}", scale)
    elif not wanted:
        raise BadEvidence("no_score", f"the verdict in {name} has no score")
    if wanted:
        raw = sum(raws[key] * weight for key, weight in wanted.items()) / sum(wanted.values())
    return Opinion(
        score=_share(raw, scale),
        raw=raw,
        reason=plain(reason).strip(),
        passes=passes,
        confidence=confidence,
        criteria={key: _share(number, scale) for key, number in raws.items()},
    )


def _criteria(
    given: object, name: str, scale: tuple[float, float], wanted: Mapping[str, float]
) -> dict[str, float]:
    if not isinstance(given, dict):
        raise BadEvidence("no_score", f"the verdict in {name} has no object criteria")
    if missing := [key for key in wanted if key not in given]:
        raise BadEvidence("no_score", f"the verdict in {name} lacks the criteria {', '.join(missing)}")
    return {key: _within(given[key], f"{key} in {name}", scale) for key in wanted}


def _within(value: object, what: str, scale: tuple[float, float]) -> float:
    found = strict_json.number(value, what)
    low, high = sorted(scale)
    if not low <= found <= high:
        raise BadEvidence("out_of_range", f"{what} is {str(value)[:40]}, not from {low:g} to {high:g}")
    return found


def _share(raw: float, scale: tuple[float, float]) -> float:
    worst, best = scale
    return min(1.0, max(0.0, (raw - worst) / (best - worst)))


def _shown(value: object) -> str:
    return json.dumps(value)[:80]
