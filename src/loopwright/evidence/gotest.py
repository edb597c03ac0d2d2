"""The events of `go test -json`: which tests of which packages ran and failed.

Rule: every line counts. One that is no event says what could not be built; a package without an end, a test without
one, and a package that passed without running a test have proved nothing.

Format: https://pkg.go.dev/cmd/test2json; `build-output`, `build-fail` and `FailedBuild` are of Go 1.24 and later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from loopwright.errors import BadEvidence
from loopwright.evidence import files, strict_json
from loopwright.evidence.tally import COLLECTION, ERROR, FAILED, PASSED, SKIPPED, Tally, Tests
from loopwright.evidence.text import decode, one_line

_KEPT = 2500  # characters kept of what a test or package said
_OPEN = 5000  # tests without an end of which the output is kept
_MOST = 200_000  # packages, and tests of one that have begun and not ended
_FAIL = re.compile(r"FAIL\s+(\S+)\s+(\[(?:build|setup) failed\])")
_NOISE = re.compile(
    r"\s*(=== (RUN|PAUSE|CONT|NAME)\b|--- (PASS|FAIL|SKIP|BENCH): |FAIL\b|ok\s|exit status|PASS$)"
)
_STACK = re.compile(r"goroutine \d+ \[")
_UNTESTED = ("[no tests to run]", "[no test files]", "no tests to run")
_ENDS = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}


@dataclass(slots=True)
class _Package:
    """What is known of one package."""

    end: str = ""
    tests: int = 0
    failed: bool = False
    empty: bool = False  # it says that there was nothing to run
    hollow: bool = False  # it passed and ran nothing, and does not say why
    open: dict[str, str] = field(default_factory=dict)  # tests that run, with what they said
    said: str = ""
    build: str = ""  # what was built for it and could not be


@dataclass(slots=True)
class _State:
    packages: dict[str, _Package] = field(default_factory=dict)
    builds: dict[str, str] = field(default_factory=dict)  # what the compiler said, by import path
    broken: set[str] = field(default_factory=set)
    cached: int = 0
    about: str = ""  # the package that lines without an event speak of
    events: int = 0


def read(
    reports: Iterable[tuple[str, Iterable[bytes]]], *, stderr: bytes = b"", allow_empty: bool = False
) -> Tests:
    """The tests of all these reports (name, bytes in pieces) as one whole; failing ones are `package::Test/sub`.

    Go before 1.24 says on `stderr` why a package cannot be built.

    Unless something failed, raises BadEvidence: `no_output` (nothing at all), `malformed` (not these events, or a line
    breaks off), `incomplete` (a package or test without an end), `inconsistent` (a package that passed and ran
    nothing) and, unless `allow_empty`, `no_tests`.
    """
    tally, count = Tally(), 0
    for name, pieces in reports:
        tally.last = name
        state, some = _State(), False
        for line in decode(stderr).splitlines():
            _text(state, line)
        state.about = ""
        for number, line in enumerate(files.lines(pieces, name), 1):
            some = some or bool(line.strip())
            _line(state, tally, line, f"line {number} of {name}")
        if not some:
            tally.distrust("no_output", f"{name} is empty")
        elif not state.events and not state.broken:
            tally.distrust("malformed", f"{name} holds no event of go test -json")
        _close(state, tally, name)
        if state.cached:
            tally.warnings.append(f"{state.cached} packages were not run again: go had their results cached")
        count += 1
    return tally.tests(count, allow_empty=allow_empty)


def _line(state: _State, tally: Tally, line: str, where: str) -> None:
    if line.lstrip().startswith("{"):
        try:
            event = strict_json.of_line(line, where)
        except BadEvidence as error:
            tally.distrust(error.code, str(error))
            return
        if isinstance(event, dict) and isinstance(event.get("Action"), str):
            state.events += 1
            state.about = ""
            _event(state, tally, event)
            return
    _text(state, line)


def _text(state: _State, line: str) -> None:
    """A line that is no event."""
    if found := _FAIL.match(line):
        state.broken.add(found[1])
        state.about = ""
    elif line.startswith("# "):
        state.about = line[2:].split(" ", 1)[0]
    elif state.about and line.strip():
        _add(state.builds, state.about, line + "\n")


def _event(state: _State, tally: Tally, event: dict[str, Any]) -> None:
    action, test = event["Action"], event.get("Test")
    output = event.get("Output")
    output = output if isinstance(output, str) else ""
    if action in {"build-output", "build-fail"}:
        path = str(event.get("ImportPath", "")).split(" ", 1)[0]
        _add(state.builds, path, output)
        if action == "build-fail":
            state.broken.add(path)
        return
    name = str(event.get("Package", ""))
    package = state.packages.setdefault(name, _Package())
    if len(state.packages) > _MOST or len(package.open) > _MOST:
        raise BadEvidence("too_large", f"more than {_MOST:,} packages, or tests at once")
    if not isinstance(test, str):
        _of_package(state, package, action, output, event)
    elif action == "run":
        package.open[test] = ""
    elif action in _ENDS:
        said = package.open.pop(test, "")
        package.tests += 1
        package.failed |= action == "fail"
        tally.add(
            _ENDS[action], test, name, message=_short(said) if action == "fail" else "", text=_bare(said)
        )
    elif action == "bench":
        package.empty = True  # a benchmark is no test, and it ran
    elif output and len(package.open) < _OPEN:
        _add(package.open, test, output)


def _of_package(state: _State, package: _Package, action: str, output: str, event: dict[str, Any]) -> None:
    if action in _ENDS:  # of two runs in one report, neither hides what the other one was
        package.hollow |= action == "pass" and not (package.tests or package.empty or package.open)
        package.end = "fail" if package.end == "fail" else action
        package.build = package.build or str(event.get("FailedBuild", ""))
        package.tests, package.empty = 0, False
    elif action == "output":
        package.empty |= any(words in output for words in _UNTESTED) or output.startswith("Benchmark")
        state.cached += output.startswith("ok ") and "(cached)" in output
        package.said = (package.said + output)[-_KEPT:]


def _close(state: _State, tally: Tally, name: str) -> None:
    """What is left at the end: packages that failed without a failing test, and what did not end."""
    for path, package in state.packages.items():
        lost = sorted(package.open)
        for test in lost:
            said = package.open[test]
            if package.end == "fail":
                package.failed = True
                tally.add(ERROR, test, path, message=_short(said) or "it did not end", text=_bare(said))
            else:
                tally.distrust("incomplete", f"{name}: {test} of {path} began and did not end")
        if package.end == "fail" and not package.failed:
            _lost(state, tally, path, package.said, package.build.split(" ", 1)[0])
        elif not package.end and not package.failed:
            tally.distrust("incomplete", f"{name} breaks off: the package {path} has no end")
        elif package.hollow:
            tally.distrust("inconsistent", f"{name}: the package {path} passed and ran no test")
    if state.about:
        tally.distrust("incomplete", f"{name} breaks off where the compiler speaks of {state.about[:200]}")
    for path in sorted(state.broken & state.packages.keys()):
        if state.packages[path].end != "fail":
            tally.distrust("inconsistent", f"{name}: {path} could not be built and passed")
    for path in sorted(state.broken - state.packages.keys()):
        if not any(path == package.build.split(" ", 1)[0] for package in state.packages.values()):
            _lost(state, tally, path, "", path)


def _lost(state: _State, tally: Tally, path: str, said: str, built: str) -> None:
    """A package whose tests could not be run to their end."""
    text = state.builds.get(built) or state.builds.get(path) or said
    message = _short(text) or ("it could not be built" if built else "the package failed")
    tally.add(COLLECTION, path, message=message, text=_bare(text), lost=True)


def _add(texts: dict[str, str], key: str, more: str) -> None:
    if key in texts or len(texts) < _OPEN:
        texts[key] = (texts.get(key, "") + more)[:_KEPT]


def _bare(said: str) -> str:
    """What a test said, without the frame that go puts around it and the stacks of its goroutines."""
    lines = [line.strip() for line in said.splitlines() if not _NOISE.match(line)]
    stack = next((i for i, line in enumerate(lines) if _STACK.match(line)), len(lines))
    return "\n".join(lines[:stack])


def _short(said: str) -> str:
    return one_line(_bare(said), 600)
