"""The gate on type checkers: mypy, pyright, tsc.

Rule: the errors it lists decide, and its exit says only whether it could check at all. What stopped half-way has not
checked the rest and does not pass, whatever `max` allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from loopwright.argv import words
from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import BadEvidence, ConfigError
from loopwright.evidence import types as reader
from loopwright.evidence.files import whole
from loopwright.evidence.lint import Findings
from loopwright.gates._tool import Ran, judged, probe
from loopwright.gates.known import known, source_of
from loopwright.gates.lint import check_counts, score_of_findings
from loopwright.ports import Gate, Measure, Place, Seen

_MOST: Final = 64_000_000  # bytes of a report, read at once
_DEFAULT: Final[Mapping[reader.Tool, tuple[str, ...]]] = {
    "mypy": ("mypy",),
    "pyright": ("pyright",),
    "tsc": ("tsc", "--noEmit"),
}
# Exits that are answers. mypy's 2 is one when it lists what kept it from going on; tsc's says whether it wrote files.
_ANSWERS: Final[Mapping[reader.Tool, int]] = {"mypy": 2, "pyright": 1, "tsc": 2}


def types(
    *,
    tool: reader.Tool | None = None,
    args: str | Sequence[str] = (),
    run: str | list[str] | None = None,
    max: int = 0,  # noqa: A002 - the word of the loop file
) -> Gate:
    """A gate that passes when a type checker has at most `max` errors.

    `tool` is "mypy", "pyright" or "tsc": else the one that `run` starts, else mypy. Without `run` the gate runs
    `mypy .`, `pyright` or `tsc --noEmit`, or the tool with `args`. Of another `run`, stdout is read. Value 1, else
    1 ÷ (1 + errors above `max`); raw: errors.
    """
    check_counts("types", most=max, min_files=0)
    found = None if run is None else known(words(run))
    started = next((each for each in _DEFAULT if found is not None and each == found.tool), None)
    if tool is not None and started is not None and tool != started:
        raise ConfigError(f"types: tool is {tool!r} and run starts {started}")
    chosen: reader.Tool = tool or started or "mypy"
    default = _DEFAULT[chosen] if args or chosen != "mypy" else ("mypy", ".")
    origin, name = source_of("types", (chosen,), run=run, report=None, args=args, after=(), default=default)
    ours = name == chosen

    async def check(seen: Seen, place: Place) -> Measure:
        def judge(ran: Ran) -> Score:
            read = _findings(
                ran, chosen, place, says_files=ours and "--diagnostics" in ran.evidence["command"]
            )
            return score_of_findings(read, most=max, min_files=0)

        return await judged(origin, seen, place, judge)

    return Gate(rule=Rule(name=name), check=check, probe=probe(origin), python=not ours)


def _findings(ran: Ran, tool: reader.Tool, place: Place, *, says_files: bool) -> Findings:
    """What the checker found; BadEvidence when it could not check or contradicts itself."""
    if ran.code > _ANSWERS[tool]:
        raise BadEvidence("exit", f"{tool} could not do its work")
    name, path = ran.report
    data = whole(path, name, _MOST, ran.redact)
    found = reader.read(data, name, tool, root=place.root, ended_well=ran.code == 0)
    if ran.code == 1 and found.count == 0 and found.warnings:  # pyright was told that warnings fail
        found = reader.read(data, name, tool, root=place.root, warnings=True)
    if tool == "mypy" and ran.code == _ANSWERS[tool]:
        found = replace(found, unchecked=found.unchecked or "mypy could not check everything (exit 2)")
    if ran.code and found.count == 0:
        raise BadEvidence("inconsistent", f"{name} lists no error")
    if says_files and found.files is None and found.count == 0:
        raise BadEvidence("no_output", "tsc did not say how many files it checked")
    return found
