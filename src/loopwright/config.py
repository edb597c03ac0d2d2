"""A loop file, `[tool.loopwright]` or a Python module, and the command line, to a `Loop`.

Rule: the flags and `--set` win over the file, the file over the defaults, and every value knows where it was
said. All that is wrong comes at once, each with its file, line and key and the nearest right word.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from loopwright import readers, vocabulary
from loopwright.assembled import assemble
from loopwright.errors import ConfigError
from loopwright.loop import Loop, impossible
from loopwright.places import holders, lines, told
from loopwright.readers import Fault
from loopwright.references import import_module, raised
from loopwright.registry import resolve
from loopwright.template import read_goal, read_template

# The flags of `run` by their names in Python, each with what it sets. `gate` and `env` add, the rest replace.
FLAGS: Final[Mapping[str, tuple[str, str]]] = {
    "goal": ("--goal", "goal"),
    "agent": ("--agent", "agent"),
    "gate": ("--gate", "gates"),
    "tasks": ("--tasks", "gates"),
    "max_iterations": ("--max-iterations", "limits.max_iterations"),
    "max_duration": ("--max-duration", "limits.max_duration"),
    "threshold": ("--threshold", "threshold"),
    "budget": ("--budget", "limits.budget"),
    "approve": ("--approve", "approval.when"),
    "workspace": ("--workspace", "workspace.mode"),
    "store": ("--store", "store.url"),
    "env": ("--env", "env"),
    "no_baseline": ("--no-baseline", "baseline"),
}
FILE: Final = "loop.toml"
TASKS: Final = (
    "Work through the open items of {file} in their order, one in each go. Tick an item (`[x]`) when its work is done, "
    "and change nothing else in that list."
)
_FILES: Final = {"goal": read_goal, "prompt": read_template}  # what a key's text may name the file of
_NUMBERS: Final = frozenset({"max_iterations", "max_duration", "threshold", "budget"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A loop with where it comes from.

    `project` is the folder to run it in: that of a discovered loop file, else the one asked from.
    `places` says where each dotted key, table and item stands, for messages; `origins` where each value
    was said: what is not in it is a default.
    """

    loop: Loop
    project: Path
    file: Path | None
    places: Mapping[str, str]
    origins: Mapping[str, str]
    path: str


@dataclass(slots=True)
class _Draft:
    """A loop on its way: the document so far, where its keys were said, and what is wrong with it."""

    project: Path
    file: Path | None = None
    document: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def put(self, key: str, value: object, place: str) -> None:
        """Sets a dotted key and forgets what was said there before."""
        table = self.document
        *holders, name = key.split(".")
        for holder in holders:
            inner = table.get(holder)
            table[holder] = dict(inner) if isinstance(inner, Mapping) else {}
            table = table[holder]
        table[name] = value
        self.places = {
            k: p for k, p in self.places.items() if k != key and not k.startswith((f"{key}.", f"{key}["))
        }
        self.places[key] = place


def load(
    loopfile: str | Path | None = None,
    *,
    folder: Path,
    path: str,
    sets: Iterable[str] = (),
    flags: Mapping[str, Any] | None = None,
) -> Loaded:
    """The loop that a file and the command line say together.

    `loopfile` is a .toml or .py file or `module:attr`; without it and without a `goal` flag the nearest
    `loop.toml`, then `[tool.loopwright]`, is looked for from `folder` up to the repository's root. `sets`
    are texts `K=V`, `flags` the options of `run` by name (see `FLAGS`; `None` and empty are not given).
    `path` is where programs are looked for. `ConfigError` has every problem.
    """
    given = {name: value for name, value in (flags or {}).items() if _is_given(value)}
    draft = _Draft(project=folder)
    if loopfile is not None:
        _read(draft, str(loopfile), folder)
    elif "goal" not in given and (file := discover(folder) if "tasks" in given else _discovered(folder)):
        draft.file = file
        draft.project = file.parent
        _read_toml(draft, file, folder)
    for name in [each for each in given if each != "tasks"]:  # that adds to the goal
        _flag(draft, name, given[name])
    for text in sets:
        _set(draft, text)
    if "tasks" in given:
        _work_through(draft, folder, str(given["tasks"]))
    return _finished(draft, path)


def _is_given(value: object) -> bool:
    """Whether a flag was used; 0 is a value."""
    return value is not None and value is not False and not (isinstance(value, list | tuple) and not value)


def _finished(draft: _Draft, path: str) -> Loaded:
    """The loop of a draft, if nothing at all is wrong with it."""
    given, strays = vocabulary.flat(draft.document)
    found, faults = vocabulary.read(given)
    faults = [*draft.faults, *strays, *faults]
    faults += impossible(found, faults)
    if faults:
        agents, gates = (given.get("agent"), given.get("improve")), given.get("gates")
        gates = gates if isinstance(gates, list) else ()
        named = resolve(*agents, gates, project=draft.project, path=path)
        raise ConfigError(*told(dict.fromkeys([*faults, *named.faults]), draft.places))
    loop = Loop.from_spec(draft.document)
    assemble(loop, project=draft.project, path=path, places=draft.places)
    origins = {key: _place(key, draft.places) for key, _ in _rows("", draft.document)}
    return Loaded(
        loop=loop, project=draft.project, file=draft.file, places=draft.places, origins=origins, path=path
    )


def effective(loaded: Loaded) -> list[tuple[str, Any, str]]:
    """Every value that holds, defaults included, with where it was said: a place, `agent NAME` or `default`."""
    assembled = assemble(loaded.loop, project=loaded.project, path=loaded.path, places=loaded.places)
    agents = [agent for agent in (assembled.agent, assembled.improve) if agent is not None]
    rows = []
    for key, value in _rows("", assembled.loop.spec()):
        said = loaded.origins.get(key) or loaded.origins.get(key.removesuffix(".action"))
        if said is None and key == "approval.when" and loaded.loop.approval is not None:
            said = _place(key, loaded.places)  # a table without `when`
        bringing = (f"agent {agent.name}" for agent in agents if key.removeprefix("limits.") in agent.limits)
        rows.append((key, value, said or next(bringing, "default")))
    return rows


def _place(key: str, places: Mapping[str, str]) -> str:
    return places.get(next((holder for holder in holders(key) if holder in places), ""), "")


def _rows(key: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping) and "use" not in value:
        for name, item in value.items():
            yield from _rows(readers.inside(key, name), item)
    elif key == "gates":
        yield from ((f"gates[{i}]", item) for i, item in enumerate(value))
    else:
        yield key, value


def discover(folder: Path) -> Path | None:
    """The nearest `loop.toml`, else the nearest `[tool.loopwright]`, from here up to the repository's root."""
    above = [folder, *folder.parents]
    above = above[: above.index(_root(folder)) + 1]
    for place in above:
        if (place / FILE).is_file():
            return place / FILE
    for place in above:
        if (file := _table_in(place)) is not None:
            return file
    return None


def _root(folder: Path) -> Path:
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)


def _discovered(folder: Path) -> Path:
    """The file that `discover` finds, which must be there."""
    if (file := discover(folder)) is not None:
        return file
    root = _root(folder)
    upto = "" if root == folder else f" or above it up to {root}"
    raise ConfigError(
        f"there is no loop.toml and no [tool.loopwright] in {folder}{upto}: name a loop file, or start one with run --goal and --agent"
    )


def named(folder: Path) -> Path | None:
    """The loop file that this very folder has, `pyproject.toml` with `[tool.loopwright]` too."""
    file = folder / FILE
    return file if os.path.lexists(file) else _table_in(folder)


def _table_in(folder: Path) -> Path | None:
    file = folder / "pyproject.toml"
    there = file.is_file() and "loopwright" in _parsed(_text(file, file.name), file.name).get("tool", {})
    return file if there else None


def _read(draft: _Draft, name: str, folder: Path) -> None:
    """A loop file that was named: TOML, Python, or `module:attr`."""
    found = re.fullmatch(r"(.+\.py)(?::([A-Za-z_]\w*))?", name)
    if found:
        draft.file = folder / found[1]
        _read_module(draft, _module(draft.file, found[1], draft.project), found[1], found[2])
    elif name.endswith(".toml"):
        draft.file = folder / name
        _read_toml(draft, draft.file, folder)
    elif re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        module, _, attr = name.partition(":")
        _read_module(draft, import_module(module, draft.project), module, attr)
    else:
        raise ConfigError(f"{name}: a loop file is a .toml or .py file, or module:attr")


def _text(file: Path, shown: str) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        near = readers.hint(file.name, (p.name for p in file.parent.glob("*.toml")))
        raise ConfigError(f"{shown}: there is no such loop file{near}") from None
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown}: is not UTF-8 text (byte {error.start})") from None


def _parsed(text: str, shown: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, at = str(error).partition(" (at ")
        place = re.match(r"line (\d+), column (\d+)", at)
        end = text.splitlines() or [""]
        where = f"{place[1]}:{place[2]}" if place else f"{len(end)}:{len(end[-1]) + 1}"
        raise ConfigError(f"{shown}:{where}: {what[:1].lower()}{what[1:]}") from None


def _shown(file: Path, folder: Path) -> str:
    return str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)


def _read_toml(draft: _Draft, file: Path, folder: Path) -> None:
    shown = _shown(file, folder)
    text = _text(file, shown)
    document: Any = _parsed(text, shown)
    inside = ""
    if file.name == "pyproject.toml":
        inside = "tool.loopwright"
        document = document.get("tool", {}).get("loopwright")
        if document is None:
            raise ConfigError(f"{shown}: there is no [tool.loopwright] in it")
    draft.places[""] = shown
    for key, line in lines(text).items():
        own = key.removeprefix(f"{inside}.") if inside else key
        if not inside or own != key:
            draft.places[own] = f"{shown}:{line}"
    if "baseline" in document:
        document.pop("baseline")
        draft.faults.append(("baseline", "unknown key: say --no-baseline, or baseline=False in Python"))
    draft.document = document
    _join_gates(draft)
    for key in _FILES:
        _fetch(draft, key, file.parent)


def _fetch(draft: _Draft, key: str, folder: Path) -> None:
    """Puts the text of a file in the place of its name, which is one in `folder`."""
    value, read = draft.document.get(key), _FILES.get(key)
    if read is not None and isinstance(value, str):
        draft.document[key] = readers.take(draft.faults, key, lambda name: read(name, folder), value)


def _join_gates(draft: _Draft) -> None:
    """`[[gate]]` tables come after the short form, in one list."""
    tables = draft.document.pop("gate", [])
    short = draft.document.get("gates", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        draft.faults.append(("gate", "write [[gate]], one table for each gate"))
        return
    if isinstance(short, list) and tables:
        draft.document["gates"] = [*short, *tables]
        moved = re.compile(r"gate\[(\d+)\]")
        draft.places = {
            moved.sub(lambda found: f"gates[{int(found[1]) + len(short)}]", key, count=1): place
            for key, place in draft.places.items()
        }


def _module(file: Path, shown: str, project: Path) -> ModuleType:
    """A Python loop file, imported under a name by which its functions are found again, where it has one."""
    if not file.is_file():
        raise ConfigError(f"{shown}: there is no such loop file")
    parts = file.relative_to(project).with_suffix("").parts if file.is_relative_to(project) else ()
    if parts and all(part.isidentifier() for part in parts):
        return import_module(".".join(parts), project)
    name = f"__loopfile_{re.sub(r'[^A-Za-z0-9]', '_', file.stem)}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{shown}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # other people's code
        raise ConfigError(f"{shown}: cannot be imported: {raised(error)}") from error
    return module


def _read_module(draft: _Draft, module: ModuleType, shown: str, attr: str | None) -> None:
    loops = {name: value for name, value in vars(module).items() if isinstance(value, Loop)}
    name = attr or ("loop" if "loop" in loops else next(iter(loops), ""))
    if name not in loops:
        near = readers.hint(name, loops) if name else ""
        raise ConfigError(f"{shown}: there is no Loop{f' called {name!r}' if name else ''} in it{near}")
    if attr is None and len(loops) > 1 and name != "loop":
        raise ConfigError(
            f"{shown}: there are several loops in it, name one: {', '.join(f'{shown}:{n}' for n in loops)}"
        )
    for key, value in loops[name].said().items():
        draft.put(key, value if key in {"agent", "improve", "gates"} else readers.thawed(value), shown)
    draft.document["gates"] = list(draft.document.get("gates", ()))
    draft.places[""] = shown


def _flag(draft: _Draft, name: str, value: Any) -> None:
    flag, key = FLAGS[name]
    if name in {"gate", "env"}:
        there = draft.document.get(key, [])
        start = len(there) if isinstance(there, list | tuple) else 0
        draft.document[key] = [*(there if start else ()), *value]
        draft.places |= {f"{key}[{start + i}]": flag for i in range(len(value))}
        return
    if name == "no_baseline":
        value = False
    elif name in _NUMBERS and isinstance(value, str):
        value = _toml_value(value)
    draft.put(key, value, flag)
    _fetch(draft, key, draft.project)


def _work_through(draft: _Draft, folder: Path, file: str) -> None:
    """`--tasks`: the items of a list as the goal, or behind it; what is next, the gate says each time."""
    if not (folder / file).is_file():
        raise ConfigError(f"--tasks: there is no file {file} in {folder}")
    name = os.path.relpath((folder / file).absolute(), draft.project.absolute())
    there = draft.document.get("gates", [])
    known = list(there) if isinstance(there, list | tuple) else []
    draft.document["gates"] = [*known, {"use": "checklist", "file": name}]
    draft.places[f"gates[{len(known)}]"] = "--tasks"
    goal, words = draft.document.get("goal"), TASKS.format(file=name)
    if goal is None:
        draft.put("goal", words, "--tasks")
    elif isinstance(goal, str):
        draft.document["goal"] = f"{goal.rstrip()}\n\n{words}"


def _set(draft: _Draft, text: str) -> None:
    key, equals, value = text.partition("=")
    key = key.strip()
    place = f"--set {key}"
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key):
        raise ConfigError(f"--set {text}: write --set KEY=VALUE, such as --set limits.budget=5")
    if key.partition(".")[0] in {"gate", "baseline"}:
        better = "--gate NAME, or --set gates=[…]" if key.startswith("gate") else "--no-baseline"
        raise ConfigError(f"{place}: cannot be set so; write {better}")
    draft.put(key, _toml_value(value.strip()), place)
    _fetch(draft, key, draft.project)


def _toml_value(text: str) -> Any:
    """A value in TOML's writing, else the text itself."""
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if len(found) == 1 else text
