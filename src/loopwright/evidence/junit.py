"""JUnit XML: which tests ran and which of them failed.

Rule: `<testcase>` elements are counted, headers are not; but a header that claims what no element shows is
believed against the report, never for it. The file is streamed: neither captured output nor the number of tests
decides how much memory it takes.

There is no one standard. Read are the shapes of pytest, Maven Surefire (with its reruns), Jest, Gradle, GoogleTest
and CTest: https://github.com/testmoapp/junitxml collects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from xml.parsers import expat

from loopwright.errors import BadEvidence
from loopwright.evidence.tally import (
    COLLECTION,
    ERROR,
    FAILED,
    KEPT,
    PASSED,
    SKIPPED,
    Tally,
    Tests,
    identity,
    joined,
)

TOKEN = 8 << 20  # bytes of one tag with its attributes; a longer one would have to be held in memory
HEAD, TAIL = 1500, 2500  # characters kept of a failure's text

_SUITES = {"testsuites", "testsuite"}
_NOT_RUN = {
    "notrun",
    "disabled",
    "skipped",
    "suppressed",
    "ignored",
}  # GoogleTest and CTest say it by attribute
_DID_FAIL = {"fail", "failed", "failure", "error"}
_FAILING_CHILDREN = {"failure": FAILED, "error": ERROR}
_FLAKY_CHILDREN = {"flakyFailure", "flakyError"}  # Surefire: it failed first and passed when run again
_CONTROL = bytes(c for c in range(32) if c not in b"\t\n\r")
_BLANK = bytes.maketrans(_CONTROL, b" " * len(_CONTROL))


def read(reports: Iterable[tuple[str, Iterable[bytes]]], *, allow_empty: bool = False) -> Tests:
    """The tests of all these reports (name, bytes in chunks) as one whole.

    Raises BadEvidence when one of them cannot be read (`unreadable_report`: no bytes, `malformed`, `entity`,
    `too_large`), when headers claim failures or tests that are not there (`inconsistent`), and, unless
    `allow_empty`, when no test ran (`no_tests`).
    """
    tally = Tally()
    files = 0
    for name, chunks in reports:
        _parse(name, chunks, tally)
        files += 1
    return tally.tests(files, allow_empty=allow_empty)


@dataclass(slots=True)
class _Case:
    """The testcase being read; or, for a failure that belongs to no test, the suite it stands in (`lost`)."""

    depth: int
    classname: str
    name: str
    file: str = ""
    lost: bool = False
    status: int = PASSED
    flaky: bool = False
    message: str = ""
    head: str = ""
    tail: str = ""


class _Reader:
    """What to do at each element; small, because it runs for every one."""

    def __init__(self, parser: expat.XMLParserType, tally: Tally, name: str) -> None:
        self.parser, self.tally, self.report = parser, tally, name
        self.depth = 0
        self.text_depth = 0  # of the failure whose text is being read
        self.case: _Case | None = None
        self.cases = 0
        self.suites: list[tuple[str, int | None, int]] = []  # name, tests by its header, cases before it

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        self.depth += 1
        tag = tag.rpartition(":")[2]
        if self.depth == 1 and tag not in _SUITES:
            raise BadEvidence(
                "malformed", f"{self.report} is not a JUnit report: it begins with <{tag[:40]}>"
            )
        if tag == "testcase":
            self.begin(attributes)
        elif self.case is not None:
            if self.depth == self.case.depth + 1:  # only here a child speaks of the test
                self.child(self.case, tag, attributes)
        elif tag in _SUITES:
            self.header(attributes)
        elif tag in _FAILING_CHILDREN:  # a suite that could not be loaded
            self.case = _Case(self.depth, "", self.suites[-1][0] or "(suite)", lost=True)
            self.child(self.case, tag, attributes)

    def begin(self, attributes: dict[str, str]) -> None:
        """A testcase begins."""
        if self.case is not None:
            raise BadEvidence("malformed", f"{self.report} has a testcase inside {self.case.name[:80]!r}")
        get = attributes.get
        self.case = _Case(self.depth, get("classname") or "", get("name") or "", get("file") or "")
        said = {(get("status") or "").lower(), (get("result") or "").lower()}
        if said & _NOT_RUN:
            self.case.status = SKIPPED
        elif said & _DID_FAIL:
            self.case.status = FAILED

    def child(self, case: _Case, tag: str, attributes: dict[str, str]) -> None:
        """Something is said about the test."""
        if tag in _FAILING_CHILDREN:
            message = attributes.get("message") or ""
            lost = case.lost or (tag == "error" and message == "collection failure")  # pytest's words
            case.status = max(case.status, COLLECTION if lost else _FAILING_CHILDREN[tag])
            case.message = joined(case.message, message)
            self.text_depth = self.depth
            self.parser.CharacterDataHandler = self.text
        elif tag == "skipped":
            case.status = max(case.status, SKIPPED)
        elif tag in _FLAKY_CHILDREN:
            case.flaky = True

    def header(self, attributes: dict[str, str]) -> None:
        """A suite begins: what its header claims is only ever held against it."""
        name = (attributes.get("name") or "")[:200]
        where = f"{self.report}: the header of suite {name!r}" if name else f"{self.report}: a header"
        for what in ("failures", "errors"):
            if _some(attributes.get(what)):
                claim = f"{where} counts {attributes[what][:20]} {what}"
                self.tally.distrust("inconsistent", f"{claim}, but no test in the report shows it")
        tests = attributes.get("tests") or ""
        if _some(tests) and not self.tally.headed:
            self.tally.headed = f"{where} counts {tests[:20]} tests"
        number = int(tests) if tests.isascii() and tests.isdigit() and len(tests) < 10 else None
        self.suites.append((name, number, self.cases))

    def text(self, data: str) -> None:
        """Text of a failure: its head and its tail are kept."""
        case = self.case
        if case is None:
            return
        if room := HEAD - len(case.head):
            case.head += data[:room]
            data = data[room:]
        if data:
            case.tail = (case.tail + data[-TAIL:])[-TAIL:]

    def end(self, tag: str) -> None:
        """An element ends."""
        if self.depth == self.text_depth:
            self.text_depth = 0
            self.parser.CharacterDataHandler = None
        if self.case is not None:
            if self.depth == self.case.depth:
                self.close(self.case)
                self.case = None
        elif tag.rpartition(":")[2] in _SUITES:
            name, claimed, before = self.suites.pop()
            held = self.cases - before
            if claimed is not None and claimed != held and len(self.tally.warnings) < 5:
                self.tally.warnings.append(
                    f"{self.report}: suite {name!r} says {claimed} tests and holds {held}"
                )
        self.depth -= 1

    def close(self, case: _Case) -> None:
        """Count a test that has been read."""
        self.cases += not case.lost
        tally, flaky = self.tally, self.tally.flaky
        if case.status < COLLECTION:
            tally.add(case.status, case.name, case.classname, case.file, lost=case.lost)
            if case.flaky and case.status == PASSED and len(flaky) < KEPT:
                flaky.add(identity(case.classname, case.name))
            return
        text = f"{case.head}{' … ' if len(case.tail) == TAIL else ''}{case.tail}"
        tally.add(
            case.status,
            case.name,
            case.classname,
            case.file,
            message=case.message,
            text=text,
            lost=case.lost,
        )


def _parse(name: str, chunks: Iterable[bytes], tally: Tally) -> None:
    """Add one report to the tally."""
    parser = expat.ParserCreate()
    reader = _Reader(parser, tally, name)
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = _refuse_doctype(name)
    tally.last = name
    fed = 0
    wide = False  # UTF-16: every other byte is zero, and that is right
    try:
        for chunk in chunks:
            wide = wide if fed else chunk[:2] in {b"\xff\xfe", b"\xfe\xff"}
            if not wide and (bare := chunk.translate(_BLANK)) != chunk:
                if not tally.blanked:
                    tally.blanked = True
                    at = fed + next(i for i, (a, b) in enumerate(zip(chunk, bare, strict=True)) if a != b)
                    tally.distrust("malformed", f"{name} is not XML: a control character at byte {at}")
                chunk = bare  # noqa: PLW2901 - read on for the sake of the failures; it cannot pass any more
            parser.Parse(chunk)
            fed += len(chunk)
            if fed - parser.CurrentByteIndex > TOKEN:
                raise BadEvidence(
                    "too_large", f"{name} has a tag of more than {TOKEN >> 20} MB at byte {fed}"
                )
        if not fed:
            raise BadEvidence("unreadable_report", f"{name} is empty: nothing was written")
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        where = f"byte {parser.ErrorByteIndex} (line {error.lineno})"
        why = expat.ErrorString(error.code)
        raise BadEvidence("malformed", f"{name} is not complete, well-formed XML: {why} at {where}") from None
    except (ValueError, LookupError) as error:  # an encoding Python does not know or cannot stream
        raise BadEvidence("malformed", f"{name} is in an encoding that cannot be read: {error}") from None


def _refuse_doctype(name: str) -> Callable[[str, str | None, str | None, int], None]:
    """Refuse before any entity is declared: no expansion, no look at another file or the network."""

    def refuse(_name: str, _system: str | None, _public: str | None, _subset: int) -> None:
        raise BadEvidence(
            "entity", f"{name} declares a document type; a JUnit report has none, it is refused"
        )

    return refuse


def _some(count: str | None) -> bool:
    """Whether a header counts anything; `1,234` does."""
    return any(digit in "123456789" for digit in count or "")
