"""The gate that counts a linter's findings.

Rule: the findings in its report decide; its exit says only whether it could lint at all. 0 and 1 are answers, 2 and
above are not, and an exit of 1 without a finding is a contradiction.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import BadEvidence, ConfigError
from loopwright.evidence import lint as reader
from loopwright.evidence.files import whole
from loopwright.evidence.text import decode, one_line
from loopwright.gates._tool import MAX_BYTES, REASON, Ran, judged, name_of, probe, source
from loopwright.ports import Gate, Measure, Place, Seen

_NO_FILES = re.compile(r"^warning: No .*files? found", re.IGNORECASE | re.MULTILINE)  # ruff, on stderr


def lint(
    *,
    run: str | list[str] | None = None,
    report: str | None = None,
    format: reader.Format = "auto",  # noqa: A002 - the word of the loop file
    max: int = 0,  # noqa: A002
    min_files: int = 0,
    empty_means_clean: bool = False,
    after: tuple[str, ...] = (),
) -> Gate:
    """A gate that passes when the linter `run` has at most `max` findings, in `report` or on its stdout.

    Value 1, else 1 ÷ (1 + findings above `max`); raw: findings. `format`: ruff's or eslint's JSON or any JSON list of
    findings (told apart by "auto"), or "text": lines `file:line:column: message`. `min_files`: so many files must
    have been checked, where the report says. `empty_means_clean` is for linters that print nothing when all is well.
    """
    check_counts("lint", most=max, min_files=min_files)
    origin = source("lint", run=run, report=report, after=after)

    async def check(seen: Seen, place: Place) -> Measure:
        def judge(ran: Ran) -> Score:
            found = findings(ran, format, place.root, empty_means_clean=empty_means_clean)
            return score_of_findings(found, most=max, min_files=min_files)

        return await judged(origin, seen, place, judge)

    return Gate(
        rule=Rule(name=name_of("lint", run)), check=check, probe=probe(origin), python=run is not None
    )


def check_counts(kind: str, *, most: int, min_files: int) -> None:
    """ConfigError for counts below zero."""
    for option, value in (("max", most), ("min_files", min_files)):
        if value < 0:
            raise ConfigError(f"{kind}: {option} is {value}, below 0")


def findings(
    ran: Ran, form: reader.Format, root: Path, *, empty_means_clean: bool = False
) -> reader.Findings:
    """What the linter found, with the exit it had; BadEvidence when it could not lint or contradicts itself."""
    if ran.code >= 2:
        raise BadEvidence("exit", "the linter could not do its work")
    name, path = ran.report
    data = whole(path, name, MAX_BYTES, ran.redact)
    if empty_means_clean and not data.strip() and ran.code == 0:
        found = reader.Findings(count=0, items=(), ids=())
    else:
        found = reader.read(data, name, form, root=root)
    if ran.code == 1 and found.count == 0 and found.warnings:  # it was told that warnings fail
        found = reader.read(data, name, form, root=root, warnings=True)
    if ran.code == 1 and found.count == 0:
        raise BadEvidence("inconsistent", f"{name} lists no finding")
    if found.files is None and ran.exit is not None and _NO_FILES.search(decode(ran.exit.stderr)):
        return replace(found, files=0)
    return found


def score_of_findings(found: reader.Findings, *, most: int, min_files: int) -> Score:
    """The score of these findings; BadEvidence `no_files` when too few files were checked, or nobody knows how many."""
    if min_files and found.files is None:
        raise BadEvidence(
            "no_files", "the report does not say how many files were checked; leave min_files out"
        )
    if found.files is not None and found.files < min_files:
        raise BadEvidence("no_files", f"{found.files} files were checked and {min_files} are wanted")
    excess = max(0, found.count - most) or bool(found.unchecked)  # what was not checked is not clean
    counts = {
        "findings": found.count,
        "syntax": found.syntax,
        "warnings": found.warnings,
        "files": found.files,
        "suppressed": found.suppressed,
    }
    return Score(
        1 / (1 + excess),
        _reason(found, most),
        status="fail" if excess else "pass",
        raw=float(found.count),
        unit="findings",
        direction="min",
        graded=True,
        failing=found.ids,
        evidence={"counts": counts, **({"chatter": found.chatter} if found.chatter else {})},
    )


def _reason(found: reader.Findings, most: int) -> str:
    """What was found: the count, then a line for each, files that cannot be parsed first."""
    what = "1 finding" if found.count == 1 else f"{found.count} findings"
    allowed = f", {most} allowed" if most else ""
    warned = f", {found.warnings} warnings" if found.warnings else ""
    nothing = "; warning: no file was checked" if found.files == 0 else ""
    lost = f"; {found.syntax} could not be parsed and were not checked" if found.syntax else ""
    lost = f"; not all was checked: {found.unchecked}" if found.unchecked else lost
    hidden = f", {found.suppressed} suppressed" if found.suppressed else ""
    lines, left = [one_line(f"{what}{allowed}{hidden}{warned}{nothing}{lost}", 600)], REASON - 600
    for item in found.items:
        line = one_line(str(item), 300)
        if len(line) > left:
            break
        lines.append(line)
        left -= len(line) + 1
    if found.count > len(lines) - 1:
        lines.append(f"and {found.count - len(lines) + 1} more")
    return "\n".join(lines)
