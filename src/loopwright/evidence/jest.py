"""The JSON of jest (`--json`) and vitest (`--reporter=json`): which tests of which files ran and failed.

Rule: the results of the files are counted, the numbers above them are not; but what those claim beyond the results,
a run that was interrupted or calls itself no success, are held against it.

Formats: jest 20 to 30, vitest 0.30 to 4; vitest counts `describe` blocks as suites and has no runtime errors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from loopwright.errors import BadEvidence
from loopwright.evidence import strict_json
from loopwright.evidence.tally import COLLECTION, ERROR, FAILED, PASSED, SKIPPED, Tally, Tests
from loopwright.evidence.text import one_line, plain

_STATUS = {
    "passed": PASSED,
    "failed": FAILED,
    "pending": SKIPPED,
    "skipped": SKIPPED,
    "todo": SKIPPED,
    "disabled": SKIPPED,
    "focused": PASSED,  # jest's type has it; such a test ran and did not fail
}
_CLAIMS = ("numFailedTests", "numFailedTestSuites", "numRuntimeErrorTestSuites")
_FRAME = re.compile(r"^[^\S\n]+at ", re.MULTILINE)
_TEXT = 4000
_HEADLINE = re.compile(r"^[^\S\n]*●.*$", re.MULTILINE)


def read(
    reports: Iterable[tuple[str, bytes]], *, root: Path | None = None, allow_empty: bool = False
) -> Tests:
    """The tests of all these reports (name, bytes) as one whole; failing ones are `file::name`, relative to `root`.

    Raises BadEvidence for what is no such report (`malformed`, and those of `strict_json`); unless something failed,
    `inconsistent` for claims beyond the results or no success, `incomplete` (interrupted) and, unless `allow_empty`,
    `no_tests`.
    """
    tally, count = Tally(), 0
    prefixes = tuple({f"{root}/", f"{root.resolve()}/"} - {"//"}) if root else ()
    for name, data in reports:
        tally.last = name
        document, _ = strict_json.only_value(data, name)
        suites = document.get("testResults") if isinstance(document, dict) else None
        if not isinstance(suites, list) or not all(isinstance(suite, dict) for suite in suites):
            raise BadEvidence("malformed", f"{name} is not the JSON of jest or vitest: it has no testResults")
        shown = sum(_suite(tally, suite, name, prefixes) for suite in suites)
        _claims(tally, document, name, shown)
        count += 1
    return tally.tests(count, allow_empty=allow_empty)


def _suite(tally: Tally, suite: dict[str, Any], name: str, prefixes: tuple[str, ...]) -> int:
    """One file of tests; returns how many it shows."""
    file = str(suite.get("name") or suite.get("testFilePath") or "(no file)")
    for prefix in prefixes:
        file = file.removeprefix(prefix)
    results = suite.get("assertionResults", suite.get("testResults"))
    if results is None:
        results = []
        tally.distrust("malformed", f"{name}: {file[:200]} has no results")
    if not isinstance(results, list) or not all(isinstance(each, dict) for each in results):
        raise BadEvidence("malformed", f"{name}: the results of {file[:200]} are no list of tests")
    bad = False
    seen: Counter[str] = Counter()
    for each in results:
        title = _title(each)
        seen[title] += 1
        status = _STATUS.get(str(each.get("status")), ERROR)
        message = _messages(each.get("failureMessages")) if status >= COLLECTION else ""
        if status == ERROR:
            message = f"has the status {str(each.get('status'))[:40]!r} {message}"
        bad |= status >= COLLECTION
        # Tests of one name in one file are told apart by which of them it is.
        tally.add(status, title, file, str(seen[title]), message=_first(message), text=message[:_TEXT])
    failed = suite.get("status") == "failed" or _error(suite)
    if failed and not bad:
        said = _error(suite) or str(suite.get("message") or "the file failed, though none of its tests did")
        tally.add(COLLECTION, file, message=_first(said), text=said[:_TEXT], lost=True)
    return len(results)


def _title(each: dict[str, Any]) -> str:
    """A test's full name."""
    if isinstance(each.get("fullName"), str) and each["fullName"]:
        return str(each["fullName"])
    above = each.get("ancestorTitles")
    titles = [str(title) for title in above] if isinstance(above, list) else []
    return " ".join([*titles, str(each.get("title", ""))]).strip() or "(no name)"


def _messages(found: object) -> str:
    return "\n".join(str(each) for each in found[:10]) if isinstance(found, list) else ""


def _error(suite: dict[str, Any]) -> str:
    """What kept a file from being run, as jest's own results put it."""
    found = suite.get("testExecError")
    if not found:
        return ""
    said = found.get("message") or found.get("stack") if isinstance(found, dict) else found
    return str(said or "Test suite failed to run")


def _first(message: str) -> str:
    """A message without its stack and the headline that every one has."""
    bare = _HEADLINE.sub("", plain(message))
    return one_line(_FRAME.split(bare)[0] or bare, 700)


def _claims(tally: Tally, document: dict[str, Any], name: str, shown: int) -> None:
    """What the numbers above say beyond the results; only ever used against them."""
    for key in _CLAIMS:
        if _some(document.get(key)):
            tally.distrust("inconsistent", f"{name} says {key} {document[key]}, but no result shows it")
    if document.get("wasInterrupted"):
        tally.distrust("incomplete", f"{name}: the run was interrupted")
    passed = document.get("numPassedTests")
    if isinstance(passed, int | float) and passed > shown:  # old ones of vitest count skipped ones, too
        tally.distrust("inconsistent", f"{name} says that {passed} tests passed and shows {shown}")
    total = document.get("numTotalTests")
    if _some(total) and not tally.headed:
        tally.headed = f"{name} counts {total} tests"
    if document.get("success") is not True and (_some(total) or document.get("testResults")):
        tally.distrust("inconsistent", f"{name} does not say that it was a success, but no result shows why")


def _some(count: object) -> bool:
    """Whether a number counts anything; what is no number might."""
    return bool(count)
