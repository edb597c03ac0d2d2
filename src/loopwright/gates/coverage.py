"""The gate on code coverage: the exact percentage against a mark, or against what it was before.

Rule: the number the report rounds for display is never compared. Nothing measured, or nothing to compare with, is no
evidence.
"""

from __future__ import annotations

from fractions import Fraction

from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import BadEvidence, ConfigError
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
    `no_drop` compares with the best earlier score of the same coverage in `seen.scores`; from iteration 1 on there must
    be one. ConfigError without `min` and `no_drop`.
    """
    if min is None and not no_drop:
        raise ConfigError("coverage: min (percent) or no_drop = true is missing")
    if min is not None and not 0 < min <= 100:
        raise ConfigError(f"coverage: min is {min} percent; it is above 0 and at most 100")
    origin = source("coverage", run=run, report=report, after=after)
    about = f"coverage of {report or run}"
    mark = None if min is None else Fraction(str(min))  # 66.67 as it was written, not as the nearest float

    async def check(seen: Seen, place: Place) -> Measure:
        def judge(ran: Ran) -> Score:
            name, path = ran.report
            found = reader.read(whole(path, name, MAX_BYTES), name, format)
            return _score(ran, found, mark, _before(seen, about) if no_drop else None, about)

        return await judged(origin, seen, place, judge)

    return Gate(rule=Rule(name="coverage"), check=check, probe=probe(origin), python=run is not None)


def _before(seen: Seen, about: str) -> float | None:
    """The best percentage measured before; `None` in iteration 0, which is where it is measured first."""
    known = [
        s.score.raw
        for s in seen.scores
        if s.score.evidence.get("about") == about
        and s.score.raw is not None
        and s.score.status in {"pass", "fail"}
    ]
    if not known and seen.iteration > 0:
        raise BadEvidence("no_baseline", "no_drop has no earlier coverage to compare with")
    return max(known, default=None)


def _score(
    ran: Ran, found: reader.Coverage, mark: Fraction | None, before: float | None, about: str
) -> Score:
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
    if ran.code:
        reason = said(ran, f"exit {ran.code}; {reason}")
    failed = low or dropped or ran.code != 0
    return Score(
        min(value, 0.9999) if failed else value,
        reason,
        status="fail" if failed else "pass",
        raw=found.percent,
        unit="%",
        direction="max",
        graded=True,
        evidence={
            "about": about,
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
