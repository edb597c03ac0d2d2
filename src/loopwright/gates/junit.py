"""The gate that reads JUnit reports.

Rule: it passes when tests ran and none failed, in every report of this run, and the command that ran them says so
too. A command that exits otherwise never passes, whatever the report says: some reporters hide a suite that could
not be loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import ConfigError
from loopwright.evidence import junit as reader
from loopwright.evidence.files import chunks
from loopwright.evidence.text import one_line
from loopwright.gates._tool import MAX_BYTES, REASON, Ran, judged, name_of, probe, said, source
from loopwright.ports import Gate, Measure, Place, Seen

_PLACE = re.compile(r"^(\S+:\d+): ", re.MULTILINE)  # pytest: where it was raised, the last one is the deepest
_MARKED = re.compile(r"^E\s+(.*)$", re.MULTILINE)  # pytest: the lines of the error itself


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


def check_counts(kind: str, min_tests: int) -> None:
    """ConfigError for a `min_tests` that would let nothing pass for something."""
    if min_tests < 1:
        raise ConfigError(f"{kind}: min_tests is {min_tests}; to accept no tests write allow_empty = true")


def score_of_tests(
    ran: Ran,
    *,
    min_tests: int,
    allow_empty: bool,
    max_bytes: int = MAX_BYTES,
    flaky: Literal["allow", "fail"] = "allow",
    ok: tuple[int, ...] = (0,),
    named: Callable[[reader.Failing], str] = lambda failing: failing.id,
) -> Score:
    """The score of a run with its reports; `ok` are exits that say the same as a clean report.

    An exit that the report does not explain counts as one more thing that fails.
    """
    tests = reader.read(
        ((name, chunks(path, name, max_bytes, ran.redact)) for name, path in ran.reports),
        allow_empty=allow_empty,
    )
    unsteady = tests.flaky if flaky == "fail" else ()
    unexplained = ran.code not in ok and tests.bad == 0
    bad = tests.bad + len(unsteady) + unexplained
    passed = tests.passed - len(unsteady)
    few = tests.executed < min_tests and not (allow_empty and tests.executed == 0)
    value = passed / (passed + bad) if passed + bad else 1.0
    if few:
        value = min(value, tests.executed / min_tests)
    lines = [f"{named(failing)}: {_short(failing)}".rstrip(": ") for failing in tests.failing]
    lines += [f"{id_}: passed only when run again" for id_ in unsteady]
    summary = _summary(tests, bad, unexplained=unexplained, few=min_tests if few else 0, code=ran.code)
    failing = (
        [named(f) for f in tests.failing] + list(unsteady) + ([f"exit {ran.code}"] if unexplained else [])
    )
    return Score(
        value,
        said(ran, summary) if unexplained else _reason(summary, lines, bad),
        status="fail" if bad or few else "pass",
        raw=float(passed),
        unit="tests passed",
        direction="max",
        graded=True,
        failing=tuple(dict.fromkeys(failing))[:200],
        evidence={
            "counts": {
                "tests": tests.total,
                "executed": tests.executed,
                "passed": tests.passed,
                "failed": tests.failed,
                "errors": tests.errors,
                "skipped": tests.skipped,
                "collection": tests.collection,
                "flaky": len(tests.flaky),
            },
            **({"warnings": list(tests.warnings)} if tests.warnings else {}),
        },
    )


def _summary(tests: reader.Tests, bad: int, *, unexplained: bool, few: int, code: int) -> str:
    """One line: what ran and what did not."""
    skipped = f", {tests.skipped} skipped" if tests.skipped else ""
    lost = tests.collection
    if unexplained:
        return f"exit {code}, although the report shows no failure ({tests.passed} passed{skipped})"
    if few:
        skipped += f"; {tests.executed} ran and {few} are wanted"
    if not bad:
        return f"{tests.passed} passed{skipped}"
    parts = [f"{bad - lost} of {tests.executed} tests fail"] if bad - lost else []
    parts += [f"{lost} {'file' if lost == 1 else 'files'} of tests could not be loaded"] if lost else []
    return f"{' and '.join(parts)}{skipped}"


def _reason(summary: str, lines: list[str], bad: int) -> str:
    """The summary and, for each that fails, a line: shorter ones where there are many, at most 4 KB in all."""
    if not lines:
        return summary
    each = max(120, min(700, (REASON - 300) // len(lines)))
    shown, left = [], REASON - 300
    for line in lines:
        short = one_line(line, each)
        if len(short) > left:
            break
        shown.append(short)
        left -= len(short) + 1
    if bad > len(shown):
        shown.append(f"and {bad - len(shown)} more")
    return "\n".join([summary, *shown])


def _short(failing: reader.Failing) -> str:
    """What went wrong and where, in a line: the message, or the lines of the traceback that say it."""
    told = failing.message
    if failing.kind == "collection" or not told:
        marked = " ".join(_MARKED.findall(failing.text))
        told = marked or failing.text.strip().rpartition("\n")[2] or told
    places = _PLACE.findall(failing.text)
    at = f" ({places[-1]})" if places and places[-1] not in told else ""
    return f"{' '.join(told.split())}{at}"
