"""Tests and what became of them, counted one at a time: what every reader of test reports fills.

Rule: a test that is there twice counts once, by its worst status; whatever speaks against a report (a claim, a break,
a test without an end) is a `doubt`, and a doubt never lets it pass. How many tests there are does not decide how much
memory is taken.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from loopwright.errors import BadEvidence
from loopwright.evidence.text import clip, plain

Kind = Literal["collection", "error", "failed"]

KEPT: Final = 200  # failing tests kept with their messages
MOST: Final = 2_000_000  # distinct tests; of more, only the memory they take would be noticed
MESSAGE: Final = 2000

PASSED, SKIPPED, COLLECTION, ERROR, FAILED = range(5)  # worse is larger
_KINDS: dict[int, Kind] = {COLLECTION: "collection", ERROR: "error", FAILED: "failed"}
_COLOUR = re.compile(r" \[\d{0,3}(?:;\d{1,3})*m")  # what is left of an ANSI colour when its ESC is blanked


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """A test that did not pass: `classname::name`, and what the report says about it, plain and bounded.

    `kind` is `collection` for a file whose tests could not even be loaded. `text` is the head and tail of the
    traceback; `file` is the test's file where the report names it.
    """

    id: str
    kind: Kind
    message: str
    text: str = ""
    classname: str = ""
    name: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """Distinct tests by their worst status. `failing` holds the first 200 by id; `warnings` is what looks odd.

    `collection` counts files (or suites) whose tests could not be loaded; they are in none of the other counts.
    """

    passed: int
    failed: int
    errors: int
    skipped: int
    collection: int
    failing: tuple[Failing, ...] = ()
    flaky: tuple[str, ...] = ()
    files: int = 1
    warnings: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Every distinct test, skipped ones too."""
        return self.executed + self.skipped

    @property
    def executed(self) -> int:
        """Tests that ran to a result."""
        return self.passed + self.failed + self.errors

    @property
    def bad(self) -> int:
        """Tests that failed or broke, and files that could not be loaded."""
        return self.failed + self.errors + self.collection


@dataclass(slots=True)
class Tally:
    """What all reports say together. Tests are kept as hashes: a collision of 64 bits could merge two, hide none."""

    worst: dict[int, int] = field(default_factory=dict)
    failing: dict[str, Failing] = field(default_factory=dict)
    flaky: set[str] = field(default_factory=set)
    doubt: BadEvidence | None = None  # the first thing that speaks against these reports
    headed: str = ""  # the first header that counts tests
    blanked: bool = False  # control characters were taken out before parsing
    warnings: list[str] = field(default_factory=list)
    last: str = "the report"
    beyond: str = "\U0010ffff"  # no failing test after this id is kept

    def add(
        self,
        status: int,
        name: str,
        classname: str = "",
        file: str = "",
        *,
        message: str = "",
        text: str = "",
        lost: bool = False,
    ) -> None:
        """Count a test by its status; `COLLECTION` is a file of tests, and `lost` one that has no name of a test.

        Raises BadEvidence `too_large` for too many.
        """
        key = hash((classname, name, file, lost))
        if len(self.worst) >= MOST and key not in self.worst:
            raise BadEvidence("too_large", f"{self.last} holds more than {MOST:,} tests")
        self.worst[key] = max(status, self.worst.get(key, PASSED))
        if status >= COLLECTION:
            self.fail(
                Failing(
                    id=identity(classname, name),
                    kind=_KINDS[status],
                    message=clip(message, MESSAGE),
                    text=text,
                    classname=classname,
                    name=name,
                    file=file,
                )
            )

    def fail(self, found: Failing) -> None:
        """Remember a failing test, the first 200 by id: which ones must not depend on the order of the run."""
        if found.id > self.beyond:
            return
        before = self.failing.get(found.id)
        if before is not None:
            worse = found if found.kind == "failed" else before
            found = replace(worse, message=joined(before.message, found.message))
        self.failing[found.id] = found
        if len(self.failing) > 3 * KEPT:
            self.failing = {id_: self.failing[id_] for id_ in sorted(self.failing)[:KEPT]}
            self.beyond = max(self.failing)

    def distrust(self, code: str, why: str) -> None:
        """These reports cannot pass any more, and this is why; the first reason is kept."""
        self.doubt = self.doubt or BadEvidence(code, why)

    def tests(self, files: int, *, allow_empty: bool) -> Tests:
        """What was counted in so many reports; unless something failed, BadEvidence when it proves nothing.

        That is the first doubt, `inconsistent` for a header that counts tests where there are none, and, unless
        `allow_empty`, `no_tests` when none ran.
        """
        counts = Counter(self.worst.values())
        found = Tests(
            passed=counts[PASSED],
            failed=counts[FAILED],
            errors=counts[ERROR],
            skipped=counts[SKIPPED],
            collection=counts[COLLECTION],
            failing=tuple(self._shown(self.failing[id_]) for id_ in sorted(self.failing)[:KEPT]),
            flaky=tuple(sorted(self.flaky)),
            files=files,
            warnings=(*self.warnings, *([str(self.doubt)] if self.doubt else [])),
        )
        if found.bad == 0:
            if self.doubt is not None:
                raise self.doubt
            if found.total == 0 and self.headed:
                raise BadEvidence("inconsistent", f"{self.headed}, but the report holds none")
            if found.executed == 0 and not allow_empty:
                what = "no tests" if found.total == 0 else f"{found.skipped} tests, all skipped"
                raise BadEvidence("no_tests", f"{self.last} holds {what}: nothing was proved")
        return found

    def _shown(self, found: Failing) -> Failing:
        """A failing test with its words as they were meant."""

        def clean(text: str) -> str:
            return plain(_COLOUR.sub("", text) if self.blanked else text).strip()

        return replace(found, message=clean(found.message), text=clean(found.text))


def joined(before: str, message: str) -> str:
    """Two messages of one test as one."""
    if not message or message in before:
        return before
    return clip(f"{before}; {message}" if before else message, MESSAGE)


def identity(classname: str, name: str) -> str:
    """`classname::name`; what is too long for a list keeps a hash, so that it stays one of its own."""
    full = f"{classname}::{name}" if classname else name
    full = (full if full.isascii() and full.isprintable() else plain(full)) or "(no name)"
    if len(full) <= 300:
        return full
    return f"{full[:280]}…{hashlib.sha256(full.encode()).hexdigest()[:12]}"
