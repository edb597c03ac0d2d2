"""TAP, versions 12 to 14: which test points came and which of them failed.

Rule: a stream without a plan, with another number of points than planned, or that bailed out has not finished, and
what has not finished does not pass. The points of the top level are counted; a subtest speaks for or against the
point that closes it, and a point that says `ok` over a subtest that is not is a contradiction.

Format: https://testanything.org/tap-version-14-specification.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from loopwright.errors import BadEvidence
from loopwright.evidence import files
from loopwright.evidence.tally import FAILED, MOST, PASSED, SKIPPED, Tally, Tests
from loopwright.evidence.text import one_line, plain

_DEEPEST = 20  # subtests in subtests
_KEPT = 1500  # characters kept of what a failing point says
_POINT = re.compile(r"(not )?ok\b(?:\s+(\d{1,9})(?!\S))?\s*(?:-\s+)?(.*)")
_PLAN = re.compile(r"(\d{1,9})\.\.(\d{1,9})(?!\S)\s*(#.*)?")
_DIRECTIVE = re.compile(r"(?:^|\s)#\s*(TODO|SKIP)\w*", re.IGNORECASE)
_BAIL = re.compile(r"\s*Bail out!(.*)", re.IGNORECASE)
_TELLING = re.compile(r"(?:error|message):\s*(?:[|>]\S*\n)?(\S.*)")
_TIME = re.compile(r"\s#\s?time=[\d.]+m?s\b")
_VARIES = re.compile(r"(?:duration_ms|time|elapsed):|# Subtest:")


@dataclass(slots=True)
class _Stream:
    """One level: the whole stream, or a subtest in it."""

    planned: int | None = None
    points: int = 0
    failed: list[str] = field(default_factory=list)
    odd: set[int] = field(default_factory=set)  # numbers that do not say which point it is
    places: set[int] = field(default_factory=set)  # and the points they stand at
    fault: str = ""

    def unfinished(self) -> str:
        """What is wrong with its counts, empty when nothing is."""
        if self.fault:
            return self.fault
        if self.odd != self.places:
            return f"points numbered otherwise than 1 to {self.points}"
        if self.planned is None:
            return f"no plan among {self.points} test points: it is not complete"
        if self.planned != self.points:
            return f"{self.points} test points where {self.planned} are planned"
        return ""


@dataclass(slots=True)
class _Open:
    """The point that was read last: what follows it is said of it."""

    status: int
    name: str
    number: int
    deeper: str = ""
    said: list[str] = field(default_factory=list)
    size: int = 0


def read(reports: Iterable[tuple[str, Iterable[bytes]]], *, allow_empty: bool = False) -> Tests:
    """The tests of all these reports (name, bytes in pieces) as one whole.

    Unless a test failed, raises BadEvidence: `no_output` (nothing at all), `malformed` (no TAP, or it breaks off),
    `bail_out`, `incomplete` (no plan, fewer or more points than planned), `inconsistent` and, unless `allow_empty`,
    `no_tests`.
    """
    tally, count = Tally(), 0
    for name, pieces in reports:
        tally.last = name
        _Reader(name, tally).read(files.lines(pieces, name))
        count += 1
    return tally.tests(count, allow_empty=allow_empty)


class _Reader:
    """Reads one stream, line by line."""

    def __init__(self, name: str, tally: Tally) -> None:
        self.name, self.tally = name, tally
        self.levels = [_Stream()]
        self.open: _Open | None = None
        self.yaml: str | None = None  # the indent of the block that is being read
        self.bailed = ""
        self.held: list[tuple[int, re.Match[str]]] = []  # points with `{`: their subtests follow, up to a `}`

    def read(self, lines: Iterable[str]) -> None:
        """All of it."""
        some = False
        for line in lines:
            some = some or bool(line.strip())
            if self.yaml is not None:
                if line.startswith(self.yaml + "...") or line.strip() == "...":
                    self.yaml = None
                else:
                    self.said(line)
            elif found := _BAIL.match(line):
                self.bailed = self.bailed or found[1].strip() or "without a reason"
            else:
                self.line(line)
        if self.held:  # or a name that ends so: then it cannot be told
            self.tally.distrust("incomplete", f"{self.name} breaks off in a subtest")
        self.release(0)
        self.close()
        self.judge(some=some)

    def line(self, line: str) -> None:
        """One line outside of a diagnostic block."""
        bare = line.lstrip(" ")
        depth = (len(line) - len(bare)) // 4
        if bare.rstrip() == "---" and any(level.points for level in self.levels):
            self.yaml = line[: len(line) - len(bare)]
        elif bare.rstrip() == "}" and self.held and self.held[-1][0] == depth:
            self.release(depth)
        elif depth < _DEEPEST and (found := _POINT.fullmatch(bare)):
            self.release(depth)
            if found[3].endswith("{"):
                self.held.append((depth, found))
            else:
                self.point(depth, found, found[3])
        elif depth < _DEEPEST and (found := _PLAN.fullmatch(bare.rstrip())):
            self.release(depth)
            self.plan(depth, found)
        else:
            self.said(line)

    def level(self, depth: int) -> _Stream:
        """The stream at this depth; deeper ones without a point to close them are left to the next one."""
        while len(self.levels) <= depth:
            self.levels.append(_Stream())
        return self.levels[depth]

    def release(self, depth: int) -> None:
        """The points from this depth on that were held for their subtests now close them, or had none."""
        while self.held and self.held[-1][0] >= depth:
            at, found = self.held.pop()
            self.point(at, found, found[3][:-1])

    def point(self, depth: int, found: re.Match[str], text: str) -> None:
        """A test point; it closes the subtests before it."""
        here = self.level(depth)
        here.points += 1
        number = int(found[2]) if found[2] else here.points
        if number != here.points:
            if number in here.odd:
                here.fault = here.fault or f"the number {number} twice"
            if len(here.odd) >= MOST:
                raise BadEvidence("too_large", f"{self.name} holds more than {MOST:,} tests")
            here.odd.add(number)
            here.places.add(here.points)
        name, directive = _described(text)
        bad = found[1] is not None and directive != "TODO"
        for inner in self.levels[depth + 1 :]:
            why = "; ".join([*inner.failed[:3], *filter(None, [inner.unfinished()])])
            if why and not bad and not directive:
                here.fault = here.fault or f"{name or number!r} says ok over a subtest that is not ({why})"
        deeper = [name for inner in self.levels[depth + 1 :] for name in inner.failed]
        del self.levels[depth + 1 :]
        if bad and len(here.failed) < 10:
            here.failed.append(one_line(" > ".join([name, *deeper[:1]]), 200))
        if depth == 0:
            self.close()
            status = FAILED if bad else SKIPPED if directive == "SKIP" or found[1] else PASSED
            self.open = _Open(status, name, number, "; ".join(deeper))

    def plan(self, depth: int, found: re.Match[str]) -> None:
        """A plan: how many points there are."""
        here = self.level(depth)
        if here.planned is not None:
            here.fault = here.fault or "two plans"
        first, last = int(found[1]), int(found[2])
        here.planned = last if first == 1 else last - first + 1

    def said(self, line: str) -> None:
        """Something between the points of the top level: it belongs to the last one."""
        here, bare = self.open, line.strip()
        if here is None or here.status != FAILED or here.size >= _KEPT or len(self.yaml or "") >= 4:
            return
        if bare and not _VARIES.match(bare) and (self.yaml is not None or not line.startswith("    ")):
            here.said.append(bare[:300])
            here.size += len(here.said[-1])

    def close(self) -> None:
        """Count the last point."""
        if (here := self.open) is not None:
            text = "\n".join(here.said)
            telling = _TELLING.search(text)
            told = telling[1].strip("'\"") if telling else one_line(text.lstrip("# "), 600)
            # The number tells two points of one name apart.
            self.tally.add(
                here.status,
                here.name or f"test {here.number}",
                file=f"{self.name}#{here.number}",
                message="; ".join(filter(None, (here.deeper, told))),
                text=text,
            )
        self.open = None

    def judge(self, *, some: bool) -> None:
        """What speaks against the stream as a whole."""
        top = self.levels[0]
        if not some:
            self.tally.distrust("no_output", f"{self.name} is empty")
        elif self.bailed:
            self.tally.distrust(
                "bail_out", f"{self.name}: it bailed out: {one_line(plain(self.bailed), 300)}"
            )
        elif self.yaml is not None:
            self.tally.distrust("malformed", f"{self.name} breaks off in a diagnostic block")
        elif top.points == 0 and top.planned is None:
            self.tally.distrust(
                "malformed", f"{self.name} is not TAP: it has neither a plan nor a test point"
            )
        elif why := top.unfinished():
            code = "inconsistent" if top.fault or top.odd != top.places else "incomplete"
            self.tally.distrust(code, f"{self.name}: {why}")
        elif any(level.points for level in self.levels[1:]):
            self.tally.distrust("incomplete", f"{self.name} ends in a subtest")


def _described(text: str) -> tuple[str, str]:
    """A point's description and its directive, `TODO` or `SKIP` or nothing; an escaped `#` is none."""
    found = _DIRECTIVE.search(text.replace("\\#", "\0\0"))
    directive = found[1].upper() if found else ""
    name = _TIME.sub("", text[: found.start()] if found else text)
    return plain(name.replace("\\#", "#")).strip(), directive
