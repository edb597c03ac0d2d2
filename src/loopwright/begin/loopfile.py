"""A first loop file: the gates that a project's own tools make, each with how it stands today.

Rule: what is written is valid and was tried. A tool that is set up but cannot run is there as a comment with the
reason. No loop file is ever replaced.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from loopwright.assembled import assemble
from loopwright.begin.project import Project, look
from loopwright.begin.tools import CODERS, Found, GateText, coder, detect
from loopwright.config import FILE, named
from loopwright.core.limits import Limits
from loopwright.core.policy import Asking
from loopwright.core.values import Score
from loopwright.errors import ConfigError, UsageError
from loopwright.figures import brief, safe
from loopwright.hosts import environment
from loopwright.hosts.rehearse import rehearse
from loopwright.hosts.ways import Ways
from loopwright.loop import Loop
from loopwright.units import duration

TRIAL_S: Final = 60.0  # for each gate
GOAL: Final = "Make every gate pass"
NOBODY: Final = "./agent.sh"  # refused at the start of a run, with a message, until it is there
CHECK: Final = "./check.sh"
_SHOWN: Final = 100  # characters of a reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A tool that was found, and its score today (`None`: it cannot run, `found.problem` says why)."""

    found: Found
    score: Score | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A loop file to be written: its text and what it is made of."""

    file: Path
    text: str
    agent: GateText
    tried: tuple[Tried, ...]
    protected: tuple[str, ...]
    notes: tuple[str, ...]


def _nobody(attempt: object) -> None:
    """Stands where a loop names its agent while its gates are tried."""


async def draft(agent: str | None, ways: Ways) -> Draft:
    """The loop file for the project folder; its gates are run once. Nothing is written yet.

    `UsageError` where there is one already; `ConfigError` for an `agent` that cannot be; `Locked` while a run works.
    """
    check_free(ways.project)
    project = look(ways.project, ways.environ.get("PATH", ""))
    known = coder(project)
    worker: GateText = agent or known or NOBODY
    tried = await _tried(detect(project), ways)
    notes = []
    if agent is None and known is None:
        names = ", ".join(CODERS)
        notes.append(
            f"no coding agent is on PATH ({names}): agent is {NOBODY}, which is yours to write or replace"
        )
    if all(each.score is None for each in tried):
        what = "nothing that it knows" if not tried else "no tool that can run here"
        notes.append(
            f"found {what} to judge the work by: the gate is {CHECK}, which is yours to write or replace"
        )
    protected = tuple(f"{folder}/**" for folder in project.tests())
    text = "\n".join(_lines(worker, tried, protected, notes))
    _check(text, project)
    return Draft(
        file=ways.project / FILE,
        text=text,
        agent=worker,
        tried=tuple(tried),
        protected=protected,
        notes=tuple(notes),
    )


def check_free(folder: Path) -> None:
    """`UsageError` naming the loop file that this folder has."""
    if (there := named(folder)) is not None:
        raise UsageError(f"{there} is there already and is never replaced: edit it, or move it away first")


def write(made: Draft) -> None:
    """Writes it as a new file; `UsageError` when one came to be meanwhile, or none can be written."""
    try:
        opened = os.open(
            made.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
        )
    except FileExistsError:
        check_free(made.file.parent)
        raise UsageError(f"{made.file} is there already and is never replaced") from None
    except OSError as error:
        raise UsageError(f"{made.file} cannot be written: {error.strerror or error}") from error
    with os.fdopen(opened, "w", encoding="utf-8") as file:
        file.write(made.text)


async def _tried(found: Sequence[Found], ways: Ways) -> list[Tried]:
    """Each tool with its score today. What cannot start, or breaks before it has judged, has none."""
    tried = [Tried(found=each if each.problem else _startable(each, ways)) for each in found]
    usable = [each for each in tried if not each.found.problem]
    if not usable:
        return tried
    seen = await rehearse(_loop([each.found.gate for each in usable]), ways)
    scores = dict(zip((each.found.tool for each in usable), seen.scores.values(), strict=True))
    return [_settled(each, scores.get(each.found.tool)) for each in tried]


def _loop(gates: Sequence[GateText]) -> Loop:
    return Loop(GOAL, agent=_nobody, gates=list(gates), workspace="in_place", gate_timeout=TRIAL_S)


def _startable(found: Found, ways: Ways) -> Found:
    """The same, with the reason why its gate cannot start, where it cannot."""
    try:
        one = assemble(_loop([found.gate]), project=ways.project, path=ways.environ.get("PATH", ""))
        environment.probe(one, ways)
    except ConfigError as error:
        return replace(found, problem=error.problems[0].partition(": ")[2] or error.problems[0])
    return found


def _settled(tried: Tried, score: Score | None) -> Tried:
    """The tool with its score, unless its tool broke, or the command is ours and measured nothing."""
    if score is None or score.status != "error":
        return replace(tried, score=score)
    ours = not isinstance(tried.found.gate, str) and score.evidence.get("ended") == "exited"
    if score.cause == "tool" or ours:
        return Tried(found=replace(tried.found, problem=score.reason or "it cannot judge here"))
    return replace(tried, score=score)


def _check(text: str, project: Project) -> None:
    """`ConfigError` for a text that is no loop: `agent` as it was given may be none."""
    document = tomllib.loads(text)
    document["gates"] = [*document["gates"], *document.pop("gate", ())]
    assemble(Loop.from_spec(document), project=project.root, path=project.path)


# The text


def _lines(
    agent: GateText, tried: Sequence[Tried], protected: Sequence[str], notes: Sequence[str]
) -> Iterator[str]:
    yield "# Written by loopwright init. Say what you want done, look at the rest, and try it: loopwright run --dry-run"
    yield from (f"# {_comment(note)}" for note in notes)
    yield f'goal = {_toml(GOAL)}  # what you want done, or the name of a file: "@PROMPT.md"'
    yield f"agent = {_toml(agent)}"
    yield "gates = ["
    for each in tried:
        if isinstance(each.found.gate, str):
            off = "# " if each.score is None else ""
            yield f"    {off}{_toml(each.found.gate)},  # {_today(each)}"
    if all(each.score is None for each in tried):
        yield f"    {_toml(CHECK)},  # any command: exit 0 passes"
    yield "]"
    if protected:
        yield f"protected = {_toml(protected)}  # what the agent changes there is put back"
    for each in tried:
        if not isinstance(each.found.gate, str):
            off = "# " if each.score is None else ""
            yield ""
            yield f"{off}[[gate]]  # {_today(each)}"
            yield from (f"{off}{key} = {_toml(value)}" for key, value in each.found.gate.items())
    yield from _defaults()


def _defaults() -> Iterator[str]:
    """What bounds a run unless it is said otherwise, to be uncommented."""
    limits, asking = Limits(), Asking()
    yield ""
    yield "# These are the defaults; take the # away to change one."
    yield "# [limits]"
    yield f"# max_iterations = {limits.max_iterations}"
    for name in ("max_duration", "attempt_timeout", "idle_timeout", "gate_timeout"):
        yield f"# {name} = {_toml(duration(getattr(limits, name)))}"
    yield "# budget = 5.00  # US dollars; no default"
    yield ""
    yield "# [approval]"
    yield f'# when = "{asking.when}"  # or "passed": a person looks before it is done'
    yield f"# timeout = {_toml(duration(asking.timeout))}"
    yield ""


def _today(each: Tried) -> str:
    """How it stands, as a comment: what it says today, or why it cannot be a gate."""
    if each.score is None:
        return _comment(f"seen in {each.found.why}, but {each.found.problem}")
    return _comment(f"today: {stands(each.score)} (seen in {each.found.why})")


def stands(score: Score) -> str:
    """A score in some words: `passes`, `fails, 1 of 2 tests fail`."""
    word = {"pass": "passes", "fail": "fails", "error": "error", "skipped": "skipped"}[
        score.status or "error"
    ]
    lines = [line for line in score.reason.splitlines() if line.strip()]
    if len(lines) > 1 and re.fullmatch(r"exit \d+", lines[0]):  # of a command: what it said last tells more
        return f"{word}, {lines[0]}: {brief(lines[-1], _SHOWN)}"
    return f"{word}, {brief(lines[0], _SHOWN)}" if lines else word


def _comment(text: str) -> str:
    return safe(" ".join(text.split()))


def _toml(value: Any) -> str:
    """A value as TOML writes it, on one line."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_toml(item)}' for key, item in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
