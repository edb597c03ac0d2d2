"""The gate on one number that a command prints or writes: a benchmark, a metric, an evaluation.

Rule: the raw number is compared with the mark; the value 0 to 1 only says how far it has come. A number outside the
declared range is an error, never clipped: it is a sign that something else was measured.
"""

from __future__ import annotations

import re
from math import isfinite, nextafter
from typing import Literal

from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import BadEvidence, ConfigError
from loopwright.evidence import score as reader
from loopwright.evidence.files import whole
from loopwright.gates._tool import MAX_BYTES, Ran, judged, name_of, probe, source
from loopwright.ports import Gate, Measure, Place, Seen

Way = Literal["max", "min"]


def score(
    *,
    run: str | list[str] | None = None,
    report: str | None = None,
    path: str | None = None,
    regex: str | None = None,
    mark: float,
    range: tuple[float, float] | None = None,  # noqa: A002 - the word of the loop file
    direction: Way | None = None,
    after: tuple[str, ...] = (),
) -> Gate:
    """A gate that passes when the number is at or beyond `mark` (`direction` max: at least, min: at most).

    The number stands at `path` ("score" by default, `metrics.0.f1`) in the JSON of `report` or of the stdout of `run`,
    or in the one group of `regex`. Value: raw ÷ mark (max), mark ÷ raw (min), clipped; with `range = [worst, best]`
    linear from worst to the mark, and numbers outside it are errors. A mark ≤ 0 needs a range. A `run` that does not
    exit 0 is an error. ConfigError for options that contradict each other.
    """
    pattern = _pattern(path, regex)
    way = _way(direction, range)
    _check_mark(mark, range, way)
    origin = source("score", run=run, report=report, after=after)
    where = path or "score"

    def judge(ran: Ran) -> Score:
        if ran.code:
            raise BadEvidence("exit", "the command failed, so its number counts for nothing")
        name, file = ran.report
        data = whole(file, name, MAX_BYTES)
        raw = (
            reader.from_json(data, name, where) if pattern is None else reader.from_text(data, name, pattern)
        )
        return _score(raw, mark, range, way)

    async def check(seen: Seen, place: Place) -> Measure:
        return await judged(origin, seen, place, judge)

    return Gate(
        rule=Rule(name=name_of("score", run)), check=check, probe=probe(origin), python=run is not None
    )


def _pattern(path: str | None, regex: str | None) -> re.Pattern[str] | None:
    if path is not None and regex is not None:
        raise ConfigError("score: path reads JSON and regex reads text; give one of them")
    if path is not None and not all(path.split(".")):
        raise ConfigError(f"score: path is {path!r}; it names keys, such as metrics.accuracy")
    if regex is None:
        return None
    try:
        pattern = re.compile(regex, re.MULTILINE)
    except re.error as error:
        raise ConfigError(f"score: regex {regex!r} is not a regular expression: {error}") from None
    if pattern.groups != 1:
        raise ConfigError(
            f"score: regex {regex!r} has {pattern.groups} groups; the number stands in exactly one (…)"
        )
    return pattern


def _way(direction: Way | None, span: tuple[float, float] | None) -> Way:
    if span is None:
        return direction or "max"
    worst, best = span
    if not (isfinite(worst) and isfinite(best)) or worst == best:
        raise ConfigError(f"score: range is [{worst}, {best}]; it is [worst, best], two different numbers")
    way: Way = "max" if best > worst else "min"
    if direction not in {None, way}:
        raise ConfigError(
            f"score: range [{worst:g}, {best:g}] gets better to the {way}, direction says {direction}"
        )
    return way


def _check_mark(mark: float, span: tuple[float, float] | None, way: Way) -> None:
    if not isfinite(mark):
        raise ConfigError(f"score: mark is {mark}")
    if span is None:
        if mark <= 0:
            raise ConfigError(f"score: mark is {mark:g}; at or below 0 it needs range = [worst, best]")
        return
    worst, best = span
    if not min(span) <= mark <= max(span) or mark == worst:
        raise ConfigError(
            f"score: mark is {mark:g}; it lies between {worst:g} (not included) and {best:g}, the range ({way})"
        )


def _score(raw: float, mark: float, span: tuple[float, float] | None, way: Way) -> Score:
    if span is not None and not min(span) <= raw <= max(span):
        raise BadEvidence("out_of_range", f"{raw!r} is outside the range {min(span):g} to {max(span):g}")
    reached = raw >= mark if way == "max" else raw <= mark
    if reached:
        value = 1.0
    else:
        if span is not None:
            value = (raw - span[0]) / (mark - span[0])
        else:
            value = raw / mark if way == "max" else mark / raw
        value = max(0.0, min(value, nextafter(1.0, 0.0)))  # however near, it has not reached it
    than = ("≥", "<") if way == "max" else ("≤", ">")
    return Score(
        value,
        f"{raw!r} {than[0] if reached else than[1]} {mark!r}",
        status="pass" if reached else "fail",
        raw=raw,
        direction=way,
        graded=True,
    )
