"""The gate on code coverage: the exact percentage against a mark, or against what it was before.

Rule: the number the report rounds for display is never compared. Nothing measured, or nothing to compare with, is no
evidence.
"""

from __future__ import annotations

from fractions import Fraction

from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import ConfigError
from loopwright.evidence import coverage as reader
from loopwright.evidence.files import whole
from loopwright.gates._tool import MAX_BYTES, Ran, judged, probe, said, source
from loopwright.ports import Gate, Measure, Place, Seen


def coverage(
    *,
    report: str | None = None,
    run: str | list[str] | None = None,
    format: reader.Format = "auto",  # noqa: A002 - the word of the loop file
    min: float | None = None,  # noqa: A002
    no_drop: bool = False,
    after: tuple[str, ...] = (),
) -> Gate:
    """A gate that passes when at least `min` percent is covered and, with `no_drop`, not less than before.

    Read is `report`, as the command `run` (or a gate named in `after`) wrote it, else the stdout of `run`: coverage.py's
    JSON, Cobertura XML or LCOV. Value: percent ÷ mark; raw: percent of lines and measured branches together.
    `no_drop` compares with the best that earlier iterations measured; iteration 0 measures first. Where there is none,
    the first measure after work began does not pass. ConfigError without `min` and `no_drop`.
    """
    if min is None and not no_drop:
        raise ConfigError("coverage: min (percent) or no_drop = true is missing")
    if min is not None and not 0 < min <= 100:
        raise ConfigError(f"coverage: min is {min} percent; it is above 0 and at most 100")
    origin = source("coverage", run=run, report=report, after=after)
    mark = None if min is None else Fraction(str(min))  # 66.67 as it was written, not as the nearest float

    async def check(seen: Seen, place: Place) -> Measure:
        def judge(ran: Ran) -> Score:
            name, path = ran.report
            found = reader.read(whole(path, name, MAX_BYTES), name, format)
            if not no_drop:
                return _score(ran, found, mark, None)
            return _score(ran, found, mark, seen.mark, first=seen.mark is None and seen.iteration > 0)

        return await judged(origin, seen, place, judge)

    return Gate(rule=Rule(name="coverage"), check=check, probe=probe(origin), python=run is not None)


def _score(
    ran: Ran, found: reader.Coverage, mark: Fraction | None, before: float | None, *, first: bool = False
) -> Score:
    """`before` must not be dropped below; measured for the `first` time after work began, nothing is proved yet."""
    low = mark is not None and found.exact < mark
    # As floats: the earlier one was rounded once, and the same coverage must not count as a drop.
    dropped = before is not None and found.percent < before
    wanted = max(float(mark or 0), before or 0.0)
    value = min(1.0, found.percent / wanted) if wanted else 1.0
    reason = f"{_percent(found, wanted)} ({found})"
    if low and mark is not None:
        reason += f" < {float(mark):g} %"
    if dropped and before is not None:
        reason += f"; it was {before:.4f} %"
    if first:
        reason += "; measured for the first time, so there is nothing to compare with yet"
    if ran.code:
        reason = said(ran, f"exit {ran.code}; {reason}")
    failed = low or dropped or first or ran.code != 0
    return Score(
        min(value, 0.9999) if failed else value,
        reason,
        status="fail" if failed else "pass",
        raw=found.percent,
        unit="%",
        direction="max",
        graded=True,
        evidence={
            "counts": {
                "lines": found.lines,
                "covered_lines": found.covered_lines,
                "branches": found.branches,
                "covered_branches": found.covered_branches,
            },
        },
    )


def _percent(found: reader.Coverage, wanted: float) -> str:
    """With two digits, or as many as it takes to be seen below the mark."""
    for digits in (2, 4, 8):
        shown = f"{found.percent:.{digits}f}"
        if (float(shown) < wanted) == (found.percent < wanted):
            break
    return f"{shown} %"
