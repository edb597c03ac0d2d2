"""The gate that runs `ruff check`: `lint` with the command and the report of its own.

Rule: ruff writes its report to a file, so that nothing it prints beside it matters and nothing is cut off.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Final

from loopwright.argv import words
from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import BadEvidence, ConfigError
from loopwright.evidence.files import whole
from loopwright.evidence.lint import Format
from loopwright.gates._tool import MAX_BYTES, Ran, Source, arguments, judged, resolve
from loopwright.gates.lint import check_counts, findings, lint, score_of_findings
from loopwright.ports import Gate, Measure, Place, Seen

_REPORT: Final = "ruff.json"


def ruff(
    *,
    args: str | Sequence[str] = (),
    run: str | list[str] = "ruff check",
    report: str | None = None,
    format: Format = "ruff",  # noqa: A002 - the word of the loop file
    max: int = 0,  # noqa: A002
    min_files: int = 0,
    empty_means_clean: bool = False,
) -> Gate:
    """A gate that passes when `ruff check` with `args` has at most `max` findings.

    `run` is how ruff is started where that is not plain `ruff check` (`uv run ruff check`). A `run` that does not name
    ruff, or with a `report`, is a command whose report is read as it is, as `lint` does. Value and raw are those of
    `lint`. With `min_files`, so many Python files must have been checked; a run that checked none passes otherwise,
    and says so.
    """
    start = words(run)
    given = arguments(args)
    check_counts("ruff", most=max, min_files=min_files)
    if report is not None or not any(PurePath(word).name == "ruff" for word in start):
        return lint(
            run=[*start, *given],
            report=report,
            format=format,
            max=max,
            min_files=min_files,
            empty_means_clean=empty_means_clean,
        )
    if any(word.startswith(("--output-f", "-o")) for word in (*start, *given)):
        raise ConfigError("ruff: leave the output options out, the gate writes and reads a report of its own")

    def argv(place: Place) -> tuple[str, ...]:
        report = ("--output-format", "json", "--output-file", str(place.artifacts.absolute() / _REPORT))
        cache = () if {"--no-cache", "-n"} & {*start, *given} else ("--no-cache",)
        return (resolve(start[0], place), *start[1:], *report, *cache, *given)

    def listing(place: Place) -> tuple[str, ...]:
        return (resolve(start[0], place), *start[1:], "--show-files", *given)

    def probe(place: Place) -> str:
        return shlex.join((resolve(start[0], place), *start[1:], *given))

    async def check(seen: Seen, place: Place) -> Measure:
        files: int | None = None
        if min_files:  # ruff's report does not say how many files it checked
            listed = await judged(Source(argv=listing, stdout=True), seen, place, _counted)
            if listed.raw is None:
                return listed
            files = int(listed.raw)

        def judge(ran: Ran) -> Score:
            found = findings(ran, "ruff", place.root)
            found = found if files is None else replace(found, files=files)
            return score_of_findings(found, most=max, min_files=min_files)

        return await judged(Source(argv=argv, own=(_REPORT,)), seen, place, judge)

    return Gate(rule=Rule(name="ruff"), check=check, probe=probe, python=False)


def _counted(ran: Ran) -> Score:
    """How many files of Python ruff lists, as `raw`."""
    if ran.code:
        raise BadEvidence("exit", "ruff could not list the files it checks")
    name, path = ran.report
    listed = whole(path, name, MAX_BYTES).decode("utf-8", "replace").split("\n")
    return Score(1.0, raw=float(sum(bool(line.strip()) and not line.endswith(".toml") for line in listed)))
