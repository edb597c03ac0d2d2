"""The gates on test suites that do not write JUnit: TAP, go, jest, vitest, cargo.

Rule: without options they run the tool themselves and read a report of their own; with `run` or `report` they judge
what that wrote. A command line of the tool is asked for a report as well, unless `report` names one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from loopwright.evidence import gotest as go_reader
from loopwright.evidence import jest as jest_reader
from loopwright.evidence import libtest as cargo_reader
from loopwright.evidence import tap as tap_reader
from loopwright.evidence.files import chunks, whole
from loopwright.evidence.tally import Tests
from loopwright.gates._tests import gate_of_tests
from loopwright.gates._tool import MAX_BYTES, Ran, Source
from loopwright.gates.known import source_of
from loopwright.ports import Gate

_JSON_BYTES: Final = 64_000_000  # read at once: as objects it takes many times its size


def tap(
    *,
    run: str | list[str] | None = None,
    report: str | list[str] | None = None,
    min_tests: int = 1,
    allow_empty: bool = False,
    after: tuple[str, ...] = (),
) -> Gate:
    """A gate on TAP, on the stdout of `run` or in `report` (globs, one stream in each file).

    Value and raw are those of `junit`. `not ok` with TODO counts as skipped; no plan, other numbers than planned and
    `Bail out!` are errors.
    """
    source = source_of("tap", (), run=run, report=report, args=(), after=after)

    def read(ran: Ran, _root: Path) -> Tests:
        return tap_reader.read(_pieces(ran), allow_empty=allow_empty)

    return gate_of_tests(source, read, min_tests=min_tests, allow_empty=allow_empty)


def gotest(
    *,
    args: str | Sequence[str] = (),
    run: str | list[str] | None = None,
    report: str | list[str] | None = None,
    min_tests: int = 1,
    allow_empty: bool = False,
    after: tuple[str, ...] = (),
) -> Gate:
    """A gate on the events of `go test -json`: `go test ./...`, or with `args`, or as `run` or `report` has it.

    Value and raw are those of `junit`; what fails is named `package::Test/sub`. A package that cannot be built fails.
    `-count=1` is added unless a count is given, so that each result is of this run.
    """
    default = ("go", "test", *(() if args else ("./...",)))
    source = source_of("gotest", ("go",), run=run, report=report, args=args, after=after, default=default)

    def read(ran: Ran, _root: Path) -> Tests:
        return go_reader.read(_pieces(ran), stderr=_stderr(ran), allow_empty=allow_empty)

    return gate_of_tests(source, read, min_tests=min_tests, allow_empty=allow_empty)


def cargo(
    *,
    args: str | Sequence[str] = (),
    run: str | list[str] | None = None,
    report: str | list[str] | None = None,
    min_tests: int = 1,
    allow_empty: bool = False,
    after: tuple[str, ...] = (),
) -> Gate:
    """A gate on what `cargo test` (with `args`) prints, or what `run` or `report` has of it.

    Value and raw are those of `junit`, all binaries and doc tests together. What does not compile fails; a binary that
    ended before its tests is an error, or fails where cargo says so.
    """
    source = source_of(
        "cargo", ("cargo",), run=run, report=report, args=args, after=after, default=("cargo", "test")
    )

    def read(ran: Ran, _root: Path) -> Tests:
        return cargo_reader.read(_pieces(ran), stderr=_stderr(ran), allow_empty=allow_empty)

    return gate_of_tests(source, read, min_tests=min_tests, allow_empty=allow_empty)


def jest(
    *,
    args: str | Sequence[str] = (),
    run: str | list[str] | None = None,
    report: str | list[str] | None = None,
    min_tests: int = 1,
    allow_empty: bool = False,
    after: tuple[str, ...] = (),
) -> Gate:
    """A gate on the JSON of jest: `jest` with `args` writes it, or `run` or `report` has it.

    Value and raw are those of `junit`; what fails is named `file::test`. A file that could not be run fails.
    """
    source = source_of("jest", ("jest",), run=run, report=report, args=args, after=after, default=("jest",))
    return _jest(source, min_tests=min_tests, allow_empty=allow_empty)


def vitest(
    *,
    args: str | Sequence[str] = (),
    run: str | list[str] | None = None,
    report: str | list[str] | None = None,
    min_tests: int = 1,
    allow_empty: bool = False,
    after: tuple[str, ...] = (),
) -> Gate:
    """A gate on the JSON of vitest: `vitest run` with `args` writes it, or `run` or `report` has it.

    Value and raw are those of `junit`; what fails is named `file::test`. Errors outside of tests fail by the exit.
    """
    default = ("vitest", "run")
    source = source_of("vitest", ("vitest",), run=run, report=report, args=args, after=after, default=default)
    return _jest(source, min_tests=min_tests, allow_empty=allow_empty)


def _jest(source: tuple[Source, str], *, min_tests: int, allow_empty: bool) -> Gate:
    def read(ran: Ran, root: Path) -> Tests:
        reports = ((name, whole(path, name, _JSON_BYTES, ran.redact)) for name, path in ran.reports)
        return jest_reader.read(reports, root=root, allow_empty=allow_empty)

    return gate_of_tests(source, read, min_tests=min_tests, allow_empty=allow_empty)


def _stderr(ran: Ran) -> bytes:
    """What a compiler said of what failed."""
    return ran.exit.stderr if ran.exit is not None and ran.code else b""


def _pieces(ran: Ran) -> Iterator[tuple[str, Iterator[bytes]]]:
    return ((name, chunks(path, name, MAX_BYTES, ran.redact)) for name, path in ran.reports)
