"""Run a gate's tool in its place and find the report that this run wrote, for every gate that has one.

Rule: a report counts only when this run wrote it; a tool that was cut off, killed or asked wrongly has judged
nothing. Which of these happened is in the score, with the command, its exit and each report's digest.

Where a report comes from. `run` with `report`: files that were there before are remembered by inode, time, size and
digest, and one that is the same afterwards is stale, as is one whose content is older than the run (moved, linked,
unpacked); nobody's file is removed. `run` alone: stdout is the report.
`report` alone: another gate wrote it, and the loop must name that gate in `after` (the registry hands `after`
to a factory that has a parameter of this name, as it does with `min`). Then a file counts when its *change* time,
which no program can set, is not before the start of that gate in this iteration, as noted in its evidence.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from loopwright.argv import words
from loopwright.core.values import Score
from loopwright.errors import BadEvidence, ConfigError, NotStartable
from loopwright.evidence.files import redacted
from loopwright.evidence.text import clip, decode, one_line, steady
from loopwright.gates._fresh import digest, names, older, regular
from loopwright.gates.measure import unproven
from loopwright.ports import Place, Seen
from loopwright.redact import PLAIN, Redactor
from loopwright.supervise import Exit, Process, supervise, tool_path

MAX_BYTES: Final = 256_000_000
REASON: Final = 3800  # characters of a reason; 4 KB of it reach the next prompt
_SAID: Final = 1500  # characters of a tool's output in a reason
_LISTED: Final = 50  # reports named in evidence

Command = str | list[str]
Build = Callable[[Place], tuple[str, ...]]
Prints = dict[str, tuple[int, int, int, str]]

# What tools say to arguments they do not know: argparse, clap, click, commander, getopt, optionator (eslint).
_USAGE = re.compile(
    r"^usage:|unrecognized arguments|unexpected argument|no such option|unknown option|invalid option"
    r"|unrecognized option|unexpected option|cannot be used multiple times",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a gate's evidence comes from. `own` are files in the artifacts folder that `argv` is told to write."""

    argv: Build | None = None
    reports: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    stdout: bool = False
    max_bytes: int = MAX_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run left: how it ended (`None`: another gate's run), its reports by name, and what it said, plain."""

    exit: Exit | None = None
    reports: tuple[tuple[str, Path], ...] = ()
    said: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    redact: Redactor = PLAIN

    @property
    def code(self) -> int:
        """The exit code; 0 for another gate's run, which is judged there."""
        return 0 if self.exit is None or self.exit.code is None else self.exit.code

    @property
    def misused(self) -> bool:
        """Whether the tool complained about its arguments."""
        return self.exit is not None and self.code != 0 and bool(_USAGE.search(decode(self.exit.stderr)))

    @property
    def report(self) -> tuple[str, Path]:
        """The one report; BadEvidence `ambiguous` for several, where they cannot be added up."""
        if len(self.reports) != 1:
            names = ", ".join(name for name, _ in self.reports[:4])
            raise BadEvidence("ambiguous", f"{len(self.reports)} reports where one is due: {names}")
        return self.reports[0]


def source(
    kind: str,
    *,
    run: Command | None,
    report: str | list[str] | None,
    after: Sequence[str] = (),
    max_bytes: int = MAX_BYTES,
) -> Source:
    """Where the evidence of a gate with these options comes from; ConfigError when it cannot come from anywhere."""
    reports = (report,) if isinstance(report, str) else tuple(report or ())
    if max_bytes <= 0:
        raise ConfigError(f"{kind}: max_bytes is {max_bytes}")
    if not all(reports):
        raise ConfigError(f"{kind}: report is an empty path")
    if run is None and not reports:
        raise ConfigError(f"{kind}: run (a command) is missing")
    if run is None and not after:
        raise ConfigError(
            f"{kind}: nothing writes {', '.join(reports)}: add run = … or name the gate that does in after = […]"
        )
    return Source(
        argv=None if run is None else _fixed(words(run)),
        reports=reports,
        after=() if run is not None else tuple(after),
        stdout=not reports,
        max_bytes=max_bytes,
    )


def _fixed(argv: tuple[str, ...]) -> Build:
    return lambda place: (resolve(argv[0], place), *argv[1:])


def arguments(args: str | Sequence[str]) -> tuple[str, ...]:
    """More words for a command, as a string or a list of them; none at all is fine."""
    if isinstance(args, str):
        return words(args) if args.strip() else ()
    return words(tuple(args)) if args else ()


def name_of(kind: str, run: Command | None) -> str:
    """A gate's name by its command: the program, or the module of `python -m`; `kind` without a command."""
    if run is None:
        return kind
    argv = words(run)
    program = Path(argv[0]).name
    if re.fullmatch(r"python[\d.]*", program) and argv[1:2] == ("-m",) and len(argv) > 2:
        return argv[2]
    return program or kind


def resolve(program: str, place: Place) -> str:
    """The path of a program: in the project's tools, then on the place's PATH; with a `/`, from its root.

    NotStartable, naming it, when there is none.
    """
    if "/" in program:
        found = place.root.absolute() / program
        if not found.is_file():
            raise NotStartable(f"cannot start {program!r}: there is no file {found}")
        if not os.access(found, os.X_OK):
            raise NotStartable(f"cannot start {program!r}: it is not executable; try: chmod +x {program}")
        return str(found)
    path = tool_path(place.project, place.env.get("PATH", os.defpath))
    folders = os.pathsep.join(str(place.root.absolute() / folder) for folder in path.split(os.pathsep))
    if (on_path := shutil.which(program, path=folders)) is None:
        raise NotStartable(
            f"cannot start {program!r}: no program of that name on PATH ({path}); is it installed?"
        )
    return on_path


def probe(origin: Source) -> Callable[[Place], str]:
    """A gate's probe: the command as it will run, empty where another gate runs it."""
    return lambda place: "" if origin.argv is None else shlex.join(origin.argv(place))


async def judged(origin: Source, seen: Seen, place: Place, judge: Callable[[Ran], Score]) -> Score:
    """The score that `judge` (run in a thread) gives to what the tool did and reported.

    An `error` where it was cut off or killed, or has no report of this run. NotStartable when it cannot run.
    """
    before = await asyncio.to_thread(_prints, origin, place)
    ran = await _run(origin, place)
    return await asyncio.to_thread(_score, origin, seen, place, before, ran, judge)


def _score(
    origin: Source, seen: Seen, place: Place, before: Prints, ran: Ran, judge: Callable[[Ran], Score]
) -> Score:
    evidence = ran.evidence
    try:
        _must_have_ended(ran, place)
        ran = replace(
            ran, reports=_reports(origin, place, before, _began(origin, seen, ran)), redact=place.redact
        )
        evidence = {**evidence, **_listed(ran, origin)}
        score = judge(ran)
    except BadEvidence as error:
        score = unproven(error)
        if ran.code:
            reason = said(ran, f"{score.reason}; exit {ran.code}")
            score = replace(score, reason=reason, cause="tool" if ran.misused else "evidence")
        elif error.code in {"missing_report", "stale_report"}:
            score = replace(score, reason=said(ran, score.reason))
    return replace(
        score,
        reason=clip(steady(score.reason, place.root), REASON),
        evidence={**evidence, **score.evidence},
    )


def said(ran: Ran, reason: str) -> str:
    """`reason` with the end of what the tool said."""
    return f"{reason}\n{ran.said}" if ran.said else reason


def _must_have_ended(ran: Ran, place: Place) -> None:
    """BadEvidence when the tool did not end by itself: the limits are named, for they are the same every time."""
    end = ran.exit
    if end is None:
        return
    if end.ended == "timeout":
        raise BadEvidence("timeout", said(ran, f"ran longer than {place.timeout_s:g} s and was ended"))
    if end.ended != "exited":
        quiet = f"showed no sign of life for {place.idle_s or 0:g} s and was ended"
        raise BadEvidence(end.ended, said(ran, quiet))
    if end.code is None:
        raise BadEvidence("signal", said(ran, f"was killed by signal {end.signal}"))


async def _run(origin: Source, place: Place) -> Ran:
    """Run the tool, if this gate has one. Its bytecode goes to a folder that is new and thrown away."""
    if origin.argv is None:
        return Ran(evidence={"after": list(origin.after)})
    folder = place.artifacts.absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in origin.own:
        (folder / name).unlink(missing_ok=True)
    argv = origin.argv(place)
    bytecode = folder / "pycache"
    shutil.rmtree(bytecode, ignore_errors=True)
    log = folder / "gate.log"
    began = _now(folder / "began")
    process = Process(
        argv=(*place.sandbox, *argv),
        cwd=place.root,
        env={**place.env, "PYTHONPYCACHEPREFIX": str(bytecode)},
        log=log,
        timeout_s=place.timeout_s,
        idle_s=place.idle_s,
        grace_s=place.grace_s,
        active=place.active,
        redact=place.redact,
    )
    try:
        with _Stdout(folder / "stdout" if origin.stdout else None, place, origin.max_bytes) as stdout:
            end = await supervise(process, observe=stdout.add)
    finally:
        await asyncio.to_thread(shutil.rmtree, bytecode, ignore_errors=True)
        for name in origin.own:
            await asyncio.to_thread(redacted, folder / name, place.redact)
    return Ran(
        exit=end,
        said=clip(steady(_tail(log, end), place.root).strip(), _SAID),
        evidence={
            "command": list(argv),
            "exit": end.code,
            "signal": end.signal,
            "ended": end.ended,
            "seconds": round(end.seconds, 3),
            "log": str(log),
            "began_ns": str(began),  # as text: JSON numbers are exact to 2**53 only
        },
    )


class _Stdout:
    """Takes stdout as it comes: to the live view, and whole (up to one byte too many) into a file."""

    def __init__(self, path: Path | None, place: Place, most: int) -> None:
        self.path, self.hear, self.left = path, place.hear, most + 1
        self.descriptor = -1

    def __enter__(self) -> Self:
        if self.path is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            self.descriptor = os.open(self.path, flags, 0o600)
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def add(self, chunk: bytes) -> None:
        """One more chunk."""
        if self.hear:
            self.hear(chunk)
        if self.descriptor >= 0 and self.left > 0:
            view = memoryview(chunk)[: self.left]
            self.left -= len(view)
            while view:
                view = view[os.write(self.descriptor, view) :]


def _now(path: Path) -> int:
    """The time of the file system's clock, by which the reports are dated."""
    path.write_bytes(b"")
    os.utime(path)
    return path.stat().st_ctime_ns


def _tail(log: Path, end: Exit) -> str:
    """The end of what the tool said, stdout and stderr as they came."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4 * _SAID))
            return decode(file.read())
    except OSError:
        return decode(end.stdout[-2 * _SAID :] + end.stderr[-2 * _SAID :])


def _prints(origin: Source, place: Place) -> Prints:
    """The reports that are there before the run."""
    found: Prints = {}
    if origin.argv is None:
        return found
    for pattern in origin.reports:
        for name in names(place.root, pattern):
            if (state := regular(place.root / name)) is None:
                continue
            try:
                text = digest(place.root / name, name, origin.max_bytes)
            except BadEvidence:
                continue  # what cannot be read now and can be afterwards was written in between
            found[name] = (state.st_ino, state.st_mtime_ns, state.st_size, text)
    return found


def _reports(origin: Source, place: Place, before: Prints, began: int) -> tuple[tuple[str, Path], ...]:
    """The reports of this run by name; BadEvidence `missing_report` or `stale_report` when one is not."""
    folder = place.artifacts.absolute()
    if origin.stdout:
        return (("stdout", folder / "stdout"),)
    for name in origin.own:
        if not (folder / name).exists():
            raise BadEvidence("missing_report", f"it wrote no report ({name})")
    found = [(name, folder / name) for name in origin.own]
    stale: list[str] = []
    for pattern in origin.reports:
        matching = names(place.root, pattern)
        if not matching:
            raise BadEvidence("missing_report", f"there is no report: nothing matches {pattern}")
        for name in matching:
            path = place.root / name
            state = regular(path)
            if state is not None and (
                older(state.st_ctime_ns, began)
                if origin.argv is None
                else older(state.st_mtime_ns, began)
                or (
                    before.get(name, ())[:3] == (state.st_ino, state.st_mtime_ns, state.st_size)
                    and before[name][3] == digest(path, name, origin.max_bytes)
                )
            ):
                stale.append(name)
            found.append((name, path))
    if stale:
        which = one_line(", ".join(stale[:4]), 300)
        raise BadEvidence(
            "stale_report",
            f"{len(stale)} of {len(found)} reports are from before this run ({which}): remove what nothing writes",
        )
    return tuple(dict(found).items())


def _began(origin: Source, seen: Seen, ran: Ran) -> int:
    """When the run began, or the first of the gates that write the report, in this iteration."""
    if origin.argv is not None:
        return int(ran.evidence["began_ns"])
    stamps = [str(s.score.evidence.get("began_ns", "")) for s in seen.scores if s.gate in origin.after]
    if not (known := [int(stamp) for stamp in stamps if stamp.isdigit()]):
        raise BadEvidence(
            "stale_report",
            f"no gate of {', '.join(origin.after)} ran a command in this iteration before this one",
        )
    return min(known)


def _listed(ran: Ran, origin: Source) -> dict[str, Any]:
    """The reports for the record, each with its digest."""
    if not ran.reports:
        return {}
    listed = [
        {"path": name, "sha256": digest(path, name, origin.max_bytes), "bytes": path.stat().st_size}
        for name, path in ran.reports[:_LISTED]
    ]
    return {"reports": listed, "report_count": len(ran.reports)}
