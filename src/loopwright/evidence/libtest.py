"""What `cargo test` prints: the text of Rust's test harness, once for each binary and for the doc tests.

Rule: each `running N tests` needs its `test result:` with N tests in it. A binary without one ended before its tests
did, whatever its exit (a test may call `exit(0)`). Names are shown, the results' counts decide: with `--nocapture` and
`--quiet` not every test has a line of its own.

Format: https://doc.rust-lang.org/rustc/tests/; the JSON of libtest is unstable and is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from loopwright.errors import BadEvidence
from loopwright.evidence import files
from loopwright.evidence.tally import KEPT, Failing, Tally, Tests, identity
from loopwright.evidence.text import clip, decode, one_line, plain

_RUNNING = re.compile(r"running (\d+) tests?$")
_RESULT = re.compile(
    r"test result: (ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored; (\d+) measured; \d+ filtered out"
)
_FAILED = re.compile(r"test (\S.*?)(?: - should panic)? \.\.\. FAILED\b")
_SECTION = re.compile(r"---- (\S.*?)(?: stdout)? ----$")
_LISTED = re.compile(r" {4}(\S.*)")
_BUILD = re.compile(r"error: (could not compile `([^`]+)`.*)")
_COMPILER = re.compile(r"error(\[E\d+\])?: ")
_NOT_THE_POINT = re.compile(r"error: (could not compile|aborting due|\d+ targets? failed|test failed)")
_RERUN = re.compile(r"error: test failed, to rerun pass `(.+)`")
_DIED = re.compile(r"\s+process didn't exit successfully: .* \((.+)\)$")
_PANIC = re.compile(r"thread '.*' (?:\(\d+\) )?panicked at (.*)")
_LONGEST = 4000  # characters of a line of cargo's
_TEXT = 2500  # characters kept of what a failing test said


@dataclass(slots=True)
class _Counts:
    passed: int = 0
    failed: int = 0
    ignored: int = 0
    due: int | None = None  # tests of the binary that runs
    names: dict[str, str] = field(default_factory=dict)  # failing tests with what they said
    section: str = ""
    listing: bool = False
    builds: dict[str, str] = field(default_factory=dict)
    compiler: list[str] = field(default_factory=list)
    results: int = 0
    rerun: str = ""  # the binary that cargo says failed
    died: str = ""


def read(
    reports: Iterable[tuple[str, Iterable[bytes]]], *, stderr: bytes = b"", allow_empty: bool = False
) -> Tests:
    """The tests of all these outputs (name, bytes in pieces), and of `stderr` what could not be compiled.

    Unless something failed, raises BadEvidence: `no_output` (nothing at all), `malformed` (no such text), `incomplete`
    (a binary ended before its tests), `inconsistent` (counts that do not agree) and, unless `allow_empty`, `no_tests`.
    """
    tally, counts, number = Tally(), _Counts(), 0
    for name, pieces in reports:
        tally.last = name
        some = False
        for line in files.lines(pieces, name):
            some = some or bool(line.strip())
            _line(counts, tally, name, line)
        _finish(counts, tally, name)
        if not some:
            tally.distrust("no_output", f"{name} is empty")
        elif not counts.results and not counts.builds:
            tally.distrust("malformed", f"{name} is not what cargo test prints: it holds no test result")
        number += 1
    for line in decode(stderr).splitlines():
        _compiled(counts, line)
    return _tests(counts, tally, number, allow_empty=allow_empty)


def _line(counts: _Counts, tally: Tally, name: str, line: str) -> None:
    if found := _RUNNING.match(line):
        _finish(counts, tally, name)
        counts.due, counts.section, counts.listing = int(found[1][:12]), "", False
    elif found := _RESULT.match(line):
        _result(counts, tally, name, found)
    elif found := _SECTION.match(line):
        counts.section, counts.listing = found[1], False
    elif line == "failures:":
        counts.section, counts.listing = "", True
    elif found := (counts.listing and _LISTED.match(line)) or _FAILED.match(line):
        _failing(counts, found[1])
    elif counts.section:
        _failing(counts, counts.section, line + "\n")
    else:
        _compiled(counts, line)


def _failing(counts: _Counts, name: str, said: str = "") -> None:
    if name in counts.names or len(counts.names) < KEPT:
        counts.names[name] = (counts.names.get(name, "") + said)[:_TEXT]


def _result(counts: _Counts, tally: Tally, name: str, found: re.Match[str]) -> None:
    """The result of a binary: what it counts must be what it set out to run."""
    passed, failed, ignored, measured = (int(each[:12]) for each in found.groups()[1:])
    if counts.due is None:
        tally.distrust("inconsistent", f"{name} has a test result where no tests were running")
    elif counts.due != passed + failed + ignored + measured:
        tally.distrust(
            "inconsistent", f"{name}: {counts.due} tests were to run and the result counts {found[0][13:]}"
        )
    if (found[1] == "FAILED") != (failed > 0):
        tally.distrust("inconsistent", f"{name} has a result that contradicts itself: {found[0]}")
    counts.passed, counts.failed, counts.ignored = (
        counts.passed + passed,
        counts.failed + failed,
        counts.ignored + ignored,
    )
    counts.results += 1
    counts.due, counts.section, counts.listing = None, "", False


def _finish(counts: _Counts, tally: Tally, name: str) -> None:
    """Another binary begins, or the text ends: the one before must have had its result."""
    if counts.due is not None:
        tally.distrust("incomplete", f"{name}: a binary of {counts.due} tests ended before they did")
    counts.due = None


def _compiled(counts: _Counts, line: str) -> None:
    """A line of cargo or the compiler."""
    line = line[:_LONGEST]
    if found := _RERUN.match(line):
        counts.rerun = found[1]
    elif found := _DIED.match(line):
        counts.died = found[1]
    if found := _BUILD.match(line):
        counts.builds.setdefault(found[2], " ".join(counts.compiler[:3]) or found[1])
        counts.compiler = []
    elif _COMPILER.match(line) and not _NOT_THE_POINT.match(line):
        counts.compiler.append(line[:400])
    elif counts.compiler and line.lstrip().startswith("-->") and "-->" not in counts.compiler[-1]:
        counts.compiler[-1] += f" {line.strip()}"[:200]


def _tests(counts: _Counts, tally: Tally, number: int, *, allow_empty: bool) -> Tests:
    if counts.rerun and tally.doubt is not None and tally.doubt.code == "incomplete":
        counts.builds.setdefault(counts.rerun, f"its process ended before its tests did ({counts.died})")
    failing = [
        Failing(
            id=identity("", plain(name)), kind="failed", message=_short(said), text=plain(said), name=name
        )
        for name, said in sorted(counts.names.items())
    ]
    failing += [
        Failing(id=identity("", plain(name)), kind="collection", message=clip(plain(said), 1000), name=name)
        for name, said in sorted(counts.builds.items())
    ]
    failed = max(counts.failed, len(counts.names))
    if counts.rerun:
        tally.distrust(
            "inconsistent", f"{tally.last}: cargo says that {counts.rerun} failed, and no result does"
        )
    if failed == 0 and not counts.builds:
        if tally.doubt is not None:
            raise tally.doubt
        if counts.passed == 0 and not allow_empty:
            what = f"{counts.ignored} tests, all ignored" if counts.ignored else "no tests"
            raise BadEvidence("no_tests", f"{tally.last} holds {what}: nothing was proved")
    return Tests(
        passed=counts.passed,
        failed=failed,
        errors=0,
        skipped=counts.ignored,
        collection=len(counts.builds),
        failing=tuple(failing[:KEPT]),
        files=number,
        warnings=(str(tally.doubt),) if tally.doubt else (),
    )


def _short(said: str) -> str:
    """What a failing test said, from its panic on."""
    lines = [line.strip() for line in plain(said).splitlines() if line.strip()]
    at = next((i for i, line in enumerate(lines) if _PANIC.match(line)), None)
    if at is None:
        return one_line(" ".join(lines), 600)
    where = _PANIC.match(lines[at])
    told = []
    for line in lines[at + 1 :]:
        if line.startswith(("stack backtrace:", "note: ")):
            break
        told.append(line)
    return one_line(f"{' '.join(told)} ({where[1].rstrip(':') if where else ''})", 600)
