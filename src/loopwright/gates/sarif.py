"""The gate on SARIF, the report of many static analysers.

Rule: the results decide. A run that says it failed, or that has no list of results, is no clean scan; with more
results than allowed it fails all the same.
"""

from __future__ import annotations

from typing import Final

from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import BadEvidence, ConfigError
from loopwright.evidence import sarif as reader
from loopwright.evidence.files import whole
from loopwright.gates._tool import Ran, judged, name_of, probe, source
from loopwright.gates.lint import check_counts, score_of_findings
from loopwright.ports import Gate, Measure, Place, Seen

_MOST: Final = 64_000_000  # bytes of a report, read at once


def sarif(
    *,
    report: str | None = None,
    run: str | list[str] | None = None,
    max: int = 0,  # noqa: A002 - the word of the loop file
    level: reader.Level = "warning",
    after: tuple[str, ...] = (),
) -> Gate:
    """A gate that passes when at most `max` results at or above `level` are in `report`, or on the stdout of `run`.

    Suppressed results and those that a baseline calls absent do not count; the suppressed ones are shown. Value 1,
    else 1 ÷ (1 + results above `max`); raw: results. `run` may exit 0 or 1.
    """
    check_counts("sarif", most=max, min_files=0)
    if level == "none":
        raise ConfigError('sarif: level is "none"; the lowest that counts is "note"')
    origin = source("sarif", run=run, report=report, after=after)

    async def check(seen: Seen, place: Place) -> Measure:
        def judge(ran: Ran) -> Score:
            if ran.code >= 2:
                raise BadEvidence("exit", "the tool could not do its work")
            name, path = ran.report
            data = whole(path, name, _MOST, ran.redact)
            found, problem = reader.read(data, name, level=level, root=place.root)
            if problem is not None and found.count <= max:
                raise problem
            if ran.code and not (found.count or found.suppressed or found.warnings):
                raise BadEvidence("inconsistent", f"{name} lists no result")
            return score_of_findings(found, most=max, min_files=0)

        return await judged(origin, seen, place, judge)

    return Gate(
        rule=Rule(name=name_of("sarif", run)), check=check, probe=probe(origin), python=run is not None
    )
