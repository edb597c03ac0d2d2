"""A command agent that repairs a small Python project by search: no model, no network, no knowledge of the answer.

    python -m loopwright.demo.repair [--source PATH]… [--tests PATH] [--seed N] [--timeout S] [--fixes N]

It runs the tests once and notes which lines each of them runs, suspects the lines that failing tests share, tries
one-token edits of those lines in memory, and writes the first edit that makes a failing test pass and breaks none.
One fix per call, so that a loop has something to loop over; when no test fails it tidies one file of lint findings.
The rule it obeys: tests are read and never written, and a file is written only after the whole suite has agreed.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loopwright.demo import answer, locate, mutate, tidy
from loopwright.demo.warm import WALL_PER_CPU, Patch, Report, Request, Warm, warm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROGRAM: Final = "loopwright.demo.repair"
_NOT_SOURCE: Final = frozenset(
    {"tests", "test", "build", "dist", "node_modules", "site-packages", "__pycache__"}
)


@dataclass(frozen=True, slots=True)
class Change:
    """A new text for one file, with the sentence that says what is new."""

    path: str
    source: bytes
    sentence: str


@dataclass(slots=True)
class Search:
    """One call's search: the warm process, what the suite said, and how many candidates were tried."""

    runs: Warm
    report: Report
    cpu: float
    tried: int = 0

    def gain(self, path: str, source: bytes, failing: Sequence[str], passing: Sequence[str]) -> int | None:
        """Count the failing tests that pass with this text; None if it helps none or breaks one that passed."""
        self.tried += 1
        if self.tried % 20 == 0:
            answer.say(f"tried {self.tried} candidates")
        tests = [*failing, *passing]
        report = self.runs.run(
            Request(
                tests=tests,
                hoped=list(failing),
                files=sorted({self.report.tests[test].file for test in tests}),
                patch=Patch(path, source.decode("utf-8")),
                cpu=self.cpu,
                wall=self.cpu * WALL_PER_CPU,
            )
        )
        if report.cut:
            answer.say(f"cut a candidate for {path} at its {report.cut} limit")
        passed = set(report.having("passed"))
        helped = len(passed.intersection(failing))
        return helped if passed.issuperset(passing) and (helped or not failing) and not report.error else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Make one improvement to the project in the current folder and print a result line."""
    options = _options(arguments)
    answer.ignore_prompt()
    sources = list(_sources(options.source, options.tests))
    if not sources:
        return answer.give_up(PROGRAM, "there is no Python file to repair here; name one with --source")
    done: list[str] = []
    tried = 0
    while True:
        # A warm process per fix: Python's bytecode cannot tell two texts of one size and second apart.
        with warm([options.tests] if options.tests else []) as runs:
            report = runs.run(Request(sources=sources))
            if report.error or report.cut:
                why = report.error or f"it was cut at its {report.cut} limit"
                return answer.give_up(PROGRAM, f"the test-suite cannot be run: {why}")
            search = Search(runs, report, options.timeout or max(1.0, 2 * report.cpu))
            change, remark = _improvement(search, sources, options.seed)
        tried += search.tried
        if change is None:
            return answer.finish("; ".join([*done, *([] if done else [remark])]), tried)
        answer.replace_file(Path(change.path), change.source)
        answer.say(change.sentence)
        done.append(change.sentence)
        if len(done) == options.fixes:
            return answer.finish("; ".join(done), tried)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m {PROGRAM}", description="Repair a small Python project."
    )
    parser.add_argument(
        "--source", action="append", default=[], metavar="PATH", help="a file or folder to repair"
    )
    parser.add_argument("--tests", metavar="PATH", help="the tests (default: what pytest finds)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="orders what is equally suspicious")
    parser.add_argument("--timeout", type=float, metavar="S", help="CPU seconds per candidate")
    parser.add_argument(
        "--fixes", type=int, default=1, metavar="N", help="how many changes to make (default 1)"
    )
    return parser.parse_args(arguments)


def _sources(named: Sequence[str], tests: str | None) -> Iterator[str]:
    """The files that may be changed, relative to the project's folder, never a test among them."""
    off_limits = Path(tests).resolve() if tests else None
    for start in sorted(named) or ["."]:
        for path in [Path(start)] if Path(start).is_file() else sorted(_python_files(Path(start))):
            test = path.name == "conftest.py" or path.stem.startswith("test_") or path.stem.endswith("_test")
            inside = off_limits is not None and path.resolve().is_relative_to(off_limits)
            if not test and not inside:
                yield os.path.relpath(path)


def _python_files(folder: Path) -> Iterator[Path]:
    """All Python files below a folder but those of tests, builds, environments and hidden folders."""
    for place, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name not in _NOT_SOURCE
            and not name.startswith(".")
            and not Path(place, name, "pyvenv.cfg").exists()
        ]
        yield from (Path(place, name) for name in files if name.endswith(".py"))


def _improvement(search: Search, sources: Sequence[str], seed: int) -> tuple[Change | None, str]:
    """The next change to make, or None and the reason why there is none."""
    failing, passing = search.report.having("failed"), search.report.having("passed")
    answer.say(f"{len(passing)} tests pass, {len(failing)} fail")
    if not failing:
        return _tidying(search, sources, passing)
    texts = {path: Path(path).read_bytes() for path in sources}
    ranked = locate.suspects(search.report, _edits(texts), seed)
    for line in _most_suspicious(ranked):
        answer.say(line)
    found = _first_that_helps(search, texts, ranked)
    if found is None:
        return None, f"no one-token change helps any of the {len(failing)} failing tests"
    edit = found.edit
    old, new = (text.decode().strip() or "nothing" for text in (edit.old, edit.new))
    sentence = f"{found.path}:{edit.line} {old} → {new}"
    return Change(found.path, mutate.applied(texts[found.path], edit), sentence), ""


def _edits(texts: dict[str, bytes]) -> dict[str, list[mutate.Edit]]:
    edits = {}
    for path, text in texts.items():
        try:
            edits[path] = mutate.mutations(text)
        except (SyntaxError, ValueError) as error:
            answer.say(f"left alone: {path} ({error})")
    return edits


def _most_suspicious(ranked: Sequence[locate.Suspect]) -> list[str]:
    scores: dict[tuple[str, int], float] = {}
    for suspect in ranked:
        scores.setdefault((suspect.path, suspect.edit.line), suspect.score)
    return [f"suspicious: {path}:{line} {score:.2f}" for (path, line), score in list(scores.items())[:5]]


def _first_that_helps(
    search: Search, texts: dict[str, bytes], ranked: Sequence[locate.Suspect]
) -> locate.Suspect | None:
    """Try the suspects in order and return the first that holds for the whole suite.

    One that helps every failing test it touches is taken at once. One that helps only some is compared with the
    other edits of its function first: where two edits help, the one that helps more is likelier to be meant.
    """
    for place, suspect in enumerate(ranked):
        best, best_gain = suspect, _tried(search, texts, suspect)
        if best_gain is None:
            continue
        for rival in ranked[place + 1 :] if best_gain < len(suspect.failing) else []:
            if (rival.path, rival.edit.scope) == (suspect.path, suspect.edit.scope):
                gain = _tried(search, texts, rival)
                if gain is not None and gain > best_gain:
                    best, best_gain = rival, gain
        whole = mutate.applied(texts[best.path], best.edit)
        every = search.report.having("failed"), search.report.having("passed")
        if search.gain(best.path, whole, *every):
            return best
    return None


def _tried(search: Search, texts: dict[str, bytes], suspect: locate.Suspect) -> int | None:
    """How many failing tests the edit helps, if it is Python at all."""
    text = mutate.applied(texts[suspect.path], suspect.edit)
    try:
        compile(text, suspect.path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    return search.gain(suspect.path, text, suspect.failing, suspect.passing)


def _tidying(search: Search, sources: Sequence[str], passing: Sequence[str]) -> tuple[Change | None, str]:
    """The first file ruff can tidy without a test noticing."""
    command = tidy.ruff()
    if command is None:
        return None, "nothing to do: every test passes, and ruff is not installed"
    try:
        candidates = tidy.tidied(command, sources)
    except RuntimeError as error:
        return None, f"nothing to do: every test passes, and ruff cannot look: {error}"
    for found in candidates:
        if search.gain(found.path, found.source, [], passing) is not None:
            return Change(found.path, found.source, f"{found.path} without {', '.join(found.rules)}"), ""
    return None, "nothing to do: every test passes and there is no lint finding that can be removed safely"


if __name__ == "__main__":
    sys.exit(main())
