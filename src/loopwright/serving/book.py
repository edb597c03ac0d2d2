"""The loops a server knows: read from their files, and again when these change.

Rule: a file that cannot be used never takes away the loop that was read from it before; what is wrong with it is kept
and shown. One server has one project folder and one store.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from loopwright.assembled import Assembled, assemble
from loopwright.config import Loaded, discover, load
from loopwright.errors import ConfigError, UsageError
from loopwright.loop import Loop, table_of
from loopwright.triggers.cron import Schedule, schedules
from loopwright.unattended import Server, Trigger, server_of, triggers_of
from loopwright.workspace.plumbing import find_repository

_SAID: Final = ("workspace", "if_passing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A loop as a server runs it: apart from the user's own files, and not at all where the work is good already.

    `schedules` has one for each of `triggers` that is a cron. `problem` is why what its file says now cannot be used; the
    loop is then what it said before.
    """

    name: str
    file: Path
    assembled: Assembled
    triggers: tuple[Trigger, ...]
    schedules: tuple[Schedule | None, ...] = ()
    problem: str = ""

    @property
    def loop(self) -> Loop:
        """The loop with every default written out."""
        return self.assembled.loop


class Book:
    """The loops of a server by name, and files that say none that can be used. Read by many threads, changed by one.

    `check` says, of a loop among all that are read, why it cannot be served.
    """

    def __init__(
        self, files: Iterable[Path], *, project: Path, environ: Mapping[str, str], store: str | None = None
    ) -> None:
        self.project = project
        self.store = store
        self.loops: Mapping[str, Served] = {}
        self.problems: Mapping[Path, str] = {}
        self.server = Server()
        self.check: Callable[[Served, Sequence[Served]], list[str]] = lambda _served, _loops: []
        self._named = tuple(files)
        self._path = environ.get("PATH", "")
        self._zone = environ.get("TZ")
        self._read: dict[Path, str] = {}  # the digest of what was last read of each file
        self._of: dict[Path, Served] = {}
        self._bad: dict[Path, str] = {}
        self._servers: dict[Path, Mapping[str, Any]] = {}

    def refresh(self) -> list[str]:
        """Reads what is new or has changed; a line for each change."""
        told: list[str] = []
        files = _files(self._named, self.project)
        for gone in set(self._read) - set(files):
            told.append(f"{self._shown(gone)} is gone: {_names(self._of.get(gone))} is started no more")
            for known in (self._read, self._of, self._servers, self._bad):
                known.pop(gone, None)
        for file in files:
            digest = _digest(file)
            if self._read.get(file) == digest:
                continue
            again, self._read[file] = file in self._read, digest
            if again and file.suffix == ".py":  # modules are imported once, with all they import
                told.append(f"{self._shown(file)} has changed: a server that is started anew reads it")
                continue
            try:
                served, server = self._served(file)
                others = [each for path, each in self._of.items() if path != file]
                if wrong := self.check(served, [*others, served]):
                    raise ConfigError(*wrong)
            except (ConfigError, UsageError) as error:
                self._bad[file] = str(error)
                kept = self._of.get(file)
                if kept is not None:
                    self._of[file] = replace(kept, problem=str(error))
                told.append(f"{self._shown(file)} cannot be used: {error}")
                continue
            self._bad.pop(file, None)
            self._of[file], self._servers[file] = served, server
            if again:
                told.append(f"{self._shown(file)} was read again: {served.name}")
        self._publish()
        return told

    def _publish(self) -> None:
        """Puts the new loops in the place of the old, at once for all who read."""
        loops: dict[str, Served] = {}
        problems = dict(self._bad)
        for file, served in self._of.items():
            if (other := loops.get(served.name)) is not None:
                both = f"{self._shown(other.file)} and {self._shown(file)}"
                problems[file] = f"two loops are called {served.name!r} ({both}): give one another name"
                continue
            loops[served.name] = served
        self.loops, self.problems = MappingProxyType(loops), MappingProxyType(problems)
        tables = [table for table in self._servers.values() if table]
        if tables:
            self.server = server_of({word: value for table in tables for word, value in table.items()})

    def _served(self, file: Path) -> tuple[Served, Mapping[str, Any]]:
        loaded = load(str(file), folder=self.project, path=self._path)
        self._check_store(loaded)
        said = loaded.loop
        loop = replace(said, if_passing=said.if_passing or "finish", name=said.name or called(file))
        made = assemble(loop, project=self.project, path=self._path, places=loaded.places)
        if made.mode == "in_place" and "mode" not in table_of(said.workspace):
            apart = "folder" if find_repository(self.project) is None else "worktree"
            loop = replace(loop, workspace={**table_of(said.workspace), "mode": apart})
            made = assemble(loop, project=self.project, path=self._path, places=loaded.places)
        triggers = triggers_of(said.trigger)
        served = Served(
            name=made.loop.name or "loop",
            file=file,
            assembled=made,
            triggers=triggers,
            schedules=schedules(triggers, local=self._zone, places=loaded.places),
        )
        return served, table_of(said.server)

    def _check_store(self, loaded: Loaded) -> None:
        said = loaded.loop.store
        if said is not None and self.store is not None and said != self.store:
            raise ConfigError(
                f"store.url: {said} is not the store of this server ({self.store}); one server has one"
            )
        if said is not None and self.store is None:
            self.store = said

    def _shown(self, file: Path) -> str:
        return str(file.relative_to(self.project)) if file.is_relative_to(self.project) else str(file)


def _names(served: Served | None) -> str:
    return "what it said" if served is None else served.name


def called(file: Path) -> str:
    """What a loop without a name is called: after its file, or after the folder of a `loop.toml`."""
    stem = (
        file.parent.name if file.name in {"loop.toml", "pyproject.toml"} else file.stem.removesuffix(".loop")
    )
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in stem).strip("._-")[:40] or "loop"


def _digest(file: Path) -> str:
    """A hash of what a loop file says, with the texts that it takes from files beside it."""
    try:
        body = file.read_bytes()
        parts = [body, *(each.read_bytes() for each in _beside(file, body) if each.is_file())]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()
    except OSError as error:
        return f"unreadable: {error.strerror or error}"


def _beside(file: Path, body: bytes) -> list[Path]:
    """The files of its goal and its prompt, where it names some."""
    try:
        document = tomllib.loads(body.decode("utf-8"))
    except ValueError:
        return []
    goal, prompt = document.get("goal"), document.get("prompt")
    named = [goal[1:] if isinstance(goal, str) and goal.startswith("@") else None, prompt]
    return [file.parent / each for each in named if isinstance(each, str) and "\n" not in each]


def _files(named: tuple[Path, ...], project: Path) -> list[Path]:
    """The loop files of what a person named: files as they are, of a folder those that say a goal."""
    if not named:
        found = discover(project)
        return [found] if found is not None else []
    files: list[Path] = []
    for path in named:
        files += sorted(filter(_says_a_loop, path.glob("*.toml"))) if path.is_dir() else [path]
    return list(dict.fromkeys(files))


def _says_a_loop(file: Path) -> bool:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return file.name.endswith("loop.toml")  # broken: said, and not left out
    return "goal" in document
