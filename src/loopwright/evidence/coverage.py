"""Coverage reports: coverage.py's JSON, Cobertura XML, LCOV. How much of what could run did run.

Rule: one formula for every format, the one `coverage report` uses: covered lines and branches ÷ all lines and
branches (branches where they were measured). It is kept as the exact fraction; the rounded number a report shows
is never read. Nothing measured is no data, not 0 and not 100 percent.

Formats: https://coverage.readthedocs.io/en/latest/commands/cmd_json.html ·
https://raw.githubusercontent.com/cobertura/web/master/htdocs/xml/coverage-04.dtd · `man geninfo` (LCOV).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal
from xml.parsers import expat

from loopwright.errors import BadEvidence
from loopwright.evidence import strict_json

Format = Literal["auto", "coverage.py", "cobertura", "lcov"]

_IN_RECORD = frozenset({"DA", "BRDA", "LF", "LH", "BRF", "BRH", "end_of_record"})
_RATES = ("line-rate", "branch-rate")
_ROUNDED = 0.011  # rates with two digits, cut off


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What was measured: counts of lines and branches, `branches` 0 where none were."""

    covered_lines: int
    lines: int
    covered_branches: int = 0
    branches: int = 0

    @property
    def exact(self) -> Fraction:
        """Percent, exactly."""
        return Fraction(100 * (self.covered_lines + self.covered_branches), self.lines + self.branches)

    @property
    def percent(self) -> float:
        """Percent as the nearest float, 0 to 100."""
        return float(self.exact)

    def __str__(self) -> str:
        lines = f"{self.covered_lines} of {self.lines} lines"
        return lines + (f", {self.covered_branches} of {self.branches} branches" if self.branches else "")


def read(data: bytes, name: str, form: Format = "auto") -> Coverage:
    """What the report measured.

    Raises BadEvidence: `no_data` (nothing was measured), `not_finite`, `not_a_number`, `inconsistent` (more covered
    than there is), `malformed` (another format, broken off), `entity`, and those of `strict_json`.
    """
    if not data.strip():
        raise BadEvidence("no_data", f"{name} is empty: nothing was measured")
    form = _recognised(data, name) if form == "auto" else form
    reader = {"coverage.py": _coverage_py, "cobertura": _cobertura, "lcov": _lcov}[form]
    found = reader(data, name)
    for covered, of in ((found.covered_lines, found.lines), (found.covered_branches, found.branches)):
        if not 0 <= covered <= of:
            raise BadEvidence("inconsistent", f"{name} says {covered} of {of} are covered")
    if found.lines + found.branches == 0:
        raise BadEvidence("no_data", f"{name} measured no line: that is no coverage, neither 0 nor 100 %")
    return found


def _recognised(data: bytes, name: str) -> Literal["coverage.py", "cobertura", "lcov"]:
    start = data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start == b"{":
        return "coverage.py"
    if start == b"<" or data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return "cobertura"
    if data.lstrip()[:3] in {b"TN:", b"SF:"}:
        return "lcov"
    raise BadEvidence("malformed", f"{name} is neither coverage.py JSON, nor Cobertura XML, nor LCOV")


def _coverage_py(data: bytes, name: str) -> Coverage:
    document, _ = strict_json.only_value(data, name)
    totals = document.get("totals") if isinstance(document, dict) else None
    if not isinstance(totals, dict) or "num_statements" not in totals:
        raise BadEvidence("malformed", f"{name} has no totals.num_statements: not a report of coverage json")
    found = Coverage(
        covered_lines=_whole(totals, "covered_lines", name),
        lines=_whole(totals, "num_statements", name),
        covered_branches=_whole(totals, "covered_branches", name, 0),
        branches=_whole(totals, "num_branches", name, 0),
    )
    if "percent_covered" in totals:
        percent = strict_json.number(totals["percent_covered"], f"totals.percent_covered of {name}")
        covered, of = found.covered_lines + found.covered_branches, found.lines + found.branches
        _must_agree(percent / 100, covered, of, f"totals.percent_covered of {name} is {percent:g}")
    return found


def _must_agree(rate: float, covered: int, of: int, what: str) -> None:
    """BadEvidence `inconsistent` for a rate that is not that of its counts, however it was rounded."""
    if of > 0 and abs(rate - Fraction(covered, of)) > _ROUNDED:
        raise BadEvidence("inconsistent", f"{what}, but {covered} of {of} are covered")


def _whole(totals: dict[str, Any], key: str, name: str, missing: int | None = None) -> int:
    if key not in totals and missing is not None:
        return missing
    found = strict_json.number(totals.get(key), f"totals.{key} of {name}")
    if found != int(found):
        raise BadEvidence("malformed", f"totals.{key} of {name} is {found}, not a count")
    return int(found)


class _Cobertura:
    """Reads the header's counts; and counts `<line>` of classes, for writers that give only rates."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.depth = self.methods = 0  # elements that are open, and how many of them are methods
        self.header: dict[str, str] = {}
        self.lines = self.covered = self.branches = self.covered_branches = 0

    def doctype(self, _name: str, _system: str | None, _public: str | None, subset: int) -> None:
        """The public DTD is named by most writers and never fetched; declarations of its own are refused."""
        if subset:
            raise BadEvidence(
                "entity", f"{self.name} declares entities; a coverage report has none, it is refused"
            )

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        if not self.depth:
            if tag != "coverage":
                raise BadEvidence(
                    "malformed", f"{self.name} is not Cobertura XML: it begins with <{tag[:40]}>"
                )
            self.header = attributes
        elif tag == "line" and not self.methods:  # those of methods stand in their class again
            self.line(attributes)
        self.depth += 1
        self.methods += tag == "method"

    def line(self, attributes: dict[str, str]) -> None:
        """One line of a class."""
        self.lines += 1
        self.covered += _count(attributes.get("hits", ""), f"hits in {self.name}") > 0
        inside = attributes.get("condition-coverage", "").partition("(")[2].partition(")")[0]  # 50% (1/2)
        if "/" in inside:
            covered, _, of = inside.partition("/")
            self.covered_branches += _count(covered, f"condition-coverage in {self.name}")
            self.branches += _count(of, f"condition-coverage in {self.name}")

    def end(self, tag: str) -> None:
        """An element ends."""
        self.depth -= 1
        self.methods -= tag == "method"


def _cobertura(data: bytes, name: str) -> Coverage:
    reader = _Cobertura(name)
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        why = f"{expat.ErrorString(error.code)} at byte {parser.ErrorByteIndex}"
        raise BadEvidence("malformed", f"{name} is not complete, well-formed XML: {why}") from None
    except (ValueError, LookupError) as error:  # an encoding Python does not know
        raise BadEvidence("malformed", f"{name} is in an encoding that cannot be read: {error}") from None
    header = reader.header
    rates = {rate: _rate(header[rate], f"{rate} of {name}") for rate in _RATES if rate in header}
    if "lines-valid" not in header or "lines-covered" not in header:
        return Coverage(
            covered_lines=reader.covered,
            lines=reader.lines,
            covered_branches=reader.covered_branches,
            branches=reader.branches,
        )
    found = Coverage(
        covered_lines=_count(header["lines-covered"], f"lines-covered of {name}"),
        lines=_count(header["lines-valid"], f"lines-valid of {name}"),
        covered_branches=_count(header.get("branches-covered", "0"), f"branches-covered of {name}"),
        branches=_count(header.get("branches-valid", "0"), f"branches-valid of {name}"),
    )
    if "line-rate" in rates:
        what = f"line-rate of {name} is {rates['line-rate']:g}"
        _must_agree(rates["line-rate"], found.covered_lines, found.lines, what)
    return found


def _rate(text: str, what: str) -> float:
    """A rate, which is not used but betrays a broken report."""
    try:
        rate = strict_json.number(float(text), what)
    except ValueError:
        raise BadEvidence("not_a_number", f"{what} is {text[:40]!r}, not a number") from None
    if not 0 <= rate <= 1:
        raise BadEvidence("inconsistent", f"{what} is {rate}, outside 0 to 1")
    return rate


def _count(text: str, what: str) -> int:
    """A count; some writers put `12.0`, and gcov counts executions beyond any integer type."""
    try:
        return int(text) if len(text) < 20 else int(float(text))
    except OverflowError:
        raise BadEvidence("not_finite", f"{what} is {text[:40]}, not a finite number") from None
    except ValueError:
        if text.strip().lower() in {"nan", "inf", "-inf", "infinity", "-infinity"}:
            raise BadEvidence("not_finite", f"{what} is {text}, not a finite number") from None
        raise BadEvidence("not_a_number", f"{what} is {text[:40]!r}, not a count") from None


def _lcov(data: bytes, name: str) -> Coverage:
    """LCOV: a line is covered when any record of its file covers it; files without lines count by LF and LH."""
    hits: dict[tuple[str, str], bool] = {}
    taken: dict[tuple[str, str], bool] = {}
    summed = {"LF": 0, "LH": 0, "BRF": 0, "BRH": 0}
    record: dict[str, int] = {}
    file = ""
    for number, raw in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        key, colon, value = raw.strip().partition(":")
        where = f"line {number} of {name}"
        if key in _IN_RECORD and not record:
            raise BadEvidence("malformed", f"{where} is not LCOV: {key} stands in no record of a file (SF)")
        if key == "SF":
            if record:
                raise BadEvidence("malformed", f"{where}: a record begins in that of {file[:200]!r}")
            file, record = value, {"open": 1}
        elif key == "DA":
            line, _, rest = value.partition(",")
            hits[file, line] = _count(rest.partition(",")[0], where) > 0 or hits.get((file, line), False)
            record["lines"] = 1
        elif key == "BRDA":
            place, _, count = value.rpartition(",")
            hit = count != "-" and _count(count, where) > 0
            taken[file, place] = hit or taken.get((file, place), False)
            record["branches"] = 1
        elif key in summed:
            record[key] = _count(value, where)
        elif key == "end_of_record":
            for total, detail in (("LF", "lines"), ("LH", "lines"), ("BRF", "branches"), ("BRH", "branches")):
                summed[total] += 0 if detail in record else record.get(total, 0)
            record = {}
        elif not colon and key:
            raise BadEvidence("malformed", f"{where} is not LCOV: {raw[:60]!r}")
    if record:
        raise BadEvidence("malformed", f"{name} breaks off: its last record has no end_of_record")
    return Coverage(
        covered_lines=sum(hits.values()) + summed["LH"],
        lines=len(hits) + summed["LF"],
        covered_branches=sum(taken.values()) + summed["BRH"],
        branches=len(taken) + summed["BRF"],
    )
