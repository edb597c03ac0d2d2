"""The score of tests that ran, for every gate that counts tests, and those gates themselves.

Rule: it passes when tests ran, none failed, and the command that ran them says so too. An exit that the report does
not explain counts as one more thing that fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import ConfigError
from loopwright.evidence.tally import Failing, Tests
from loopwright.evidence.text import one_line
from loopwright.gates._tool import REASON, Ran, Source, judged, probe, said
from loopwright.ports import Gate, Measure, Place, Seen

_PLACE = re.compile(r"^(\S+:\d+): ", re.MULTILINE)  # pytest: where it was raised, the last one is the deepest
_MARKED = re.compile(r"^E\s+(.*)$", re.MULTILINE)  # pytest: the lines of the error itself


def check_counts(kind: str, min_tests: int) -> None:
    """ConfigError for a `min_tests` that would let nothing pass for something."""
    if min_tests < 1:
        raise ConfigError(f"{kind}: min_tests is {min_tests}; to accept no tests write allow_empty = true")


def score_of(
    ran: Ran,
    tests: Tests,
    *,
    min_tests: int,
    allow_empty: bool,
    flaky: Literal["allow", "fail"] = "allow",
    ok: tuple[int, ...] = (0,),
    named: Callable[[Failing], str] = lambda failing: failing.id,
) -> Score:
    """The score of a run with its tests; `ok` are exits that say the same as a clean report."""
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


def _summary(tests: Tests, bad: int, *, unexplained: bool, few: int, code: int) -> str:
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


def _short(failing: Failing) -> str:
    """What went wrong and where, in a line: the message, or the lines of the traceback that say it."""
    told = failing.message
    if failing.kind == "collection" or not told:
        marked = " ".join(_MARKED.findall(failing.text))
        told = marked or failing.text.strip().rpartition("\n")[2] or told
    places = _PLACE.findall(failing.text)
    at = f" ({places[-1]})" if places and places[-1] not in told else ""
    return f"{' '.join(told.split())}{at}"


def gate_of_tests(
    source: tuple[Source, str], read: Callable[[Ran, Path], Tests], *, min_tests: int, allow_empty: bool
) -> Gate:
    """A gate with this source and name on the tests that `read` finds (with the folder) in what was reported."""
    origin, name = source
    check_counts(name, min_tests)

    async def check(seen: Seen, place: Place) -> Measure:
        def judge(ran: Ran) -> Score:
            return score_of(ran, read(ran, place.root), min_tests=min_tests, allow_empty=allow_empty)

        return await judged(origin, seen, place, judge)

    return Gate(rule=Rule(name=name), check=check, probe=probe(origin), python=origin.argv is not None)
