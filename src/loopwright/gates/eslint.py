"""The gate that runs eslint: `lint` with its format, its command and a report of its own.

Rule: eslint writes its report to a file, so that nothing it prints beside it matters.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.evidence.lint import Format
from loopwright.gates._tool import Ran, judged, probe
from loopwright.gates.known import source_of
from loopwright.gates.lint import check_counts, findings, score_of_findings
from loopwright.ports import Gate, Measure, Place, Seen


def eslint(
    *,
    args: str | Sequence[str] = (),
    run: str | list[str] | None = None,
    report: str | None = None,
    format: Format = "eslint",  # noqa: A002 - the word of the loop file
    max: int = 0,  # noqa: A002
    min_files: int = 0,
    empty_means_clean: bool = False,
    after: tuple[str, ...] = (),
) -> Gate:
    """A gate that passes when eslint has at most `max` errors: `eslint .`, or with `args`, or as `run` or `report` has it.

    Value and raw are those of `lint`. Warnings count where eslint was told that they fail (`--max-warnings`). With
    `min_files`, so many files must have been checked.
    """
    check_counts("eslint", most=max, min_files=min_files)
    default = ("eslint", *(() if args else (".",)))
    origin, name = source_of(
        "eslint", ("eslint",), run=run, report=report, args=args, after=after, default=default
    )

    async def check(seen: Seen, place: Place) -> Measure:
        def judge(ran: Ran) -> Score:
            found = findings(ran, format, place.root, empty_means_clean=empty_means_clean)
            return score_of_findings(found, most=max, min_files=min_files)

        return await judged(origin, seen, place, judge)

    return Gate(rule=Rule(name=name), check=check, probe=probe(origin), python=run is not None)
