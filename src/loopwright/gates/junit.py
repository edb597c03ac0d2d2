"""The gate that reads JUnit reports.

Rule: it passes when tests ran and none failed, in every report of this run, and the command that ran them says so
too. A command that exits otherwise never passes, whatever the report says: some reporters hide a suite that could
not be loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.evidence import junit as reader
from loopwright.evidence.files import chunks
from loopwright.evidence.tally import Failing
from loopwright.gates._tests import check_counts, score_of
from loopwright.gates._tool import MAX_BYTES, Ran, judged, name_of, probe, source
from loopwright.ports import Gate, Measure, Place, Seen


def junit(
    *,
    report: str | list[str] | None = None,
    run: str | list[str] | None = None,
    min_tests: int = 1,
    allow_empty: bool = False,
    max_bytes: int = MAX_BYTES,
    flaky: Literal["allow", "fail"] = "allow",
    after: tuple[str, ...] = (),
) -> Gate:
    """A gate on the JUnit reports that match `report` (globs), as the command `run` wrote them; else on its stdout.

    Value: passed ÷ executed tests; raw: tests passed. Passes with at least `min_tests` executed, none failed, exit
    0; with `allow_empty` none need be executed. `flaky = "fail"`: a test that passed only when run again fails.
    Reports of a gate named in `after` need no `run`. ConfigError otherwise.
    """
    check_counts("junit", min_tests)
    origin = source("junit", run=run, report=report, after=after, max_bytes=max_bytes)

    def judge(ran: Ran) -> Score:
        return score_of_tests(
            ran, min_tests=min_tests, allow_empty=allow_empty, max_bytes=max_bytes, flaky=flaky
        )

    async def check(seen: Seen, place: Place) -> Measure:
        return await judged(origin, seen, place, judge)

    return Gate(
        rule=Rule(name=name_of("junit", run)), check=check, probe=probe(origin), python=run is not None
    )


def score_of_tests(
    ran: Ran,
    *,
    min_tests: int,
    allow_empty: bool,
    max_bytes: int = MAX_BYTES,
    flaky: Literal["allow", "fail"] = "allow",
    ok: tuple[int, ...] = (0,),
    named: Callable[[Failing], str] = lambda failing: failing.id,
) -> Score:
    """The score of a run with its JUnit reports; `ok` are exits that say the same as a clean report."""
    tests = reader.read(
        ((name, chunks(path, name, max_bytes, ran.redact)) for name, path in ran.reports),
        allow_empty=allow_empty,
    )
    return score_of(ran, tests, min_tests=min_tests, allow_empty=allow_empty, flaky=flaky, ok=ok, named=named)
