"""What can be named in a loop: the built-ins, the plug-ins of installed packages, and what comes later.

Rule: a name leads to a module path, and nothing is imported before it is named. Other people's plug-ins
may be broken: that is one message, never a crash.
"""

from __future__ import annotations

import importlib
import inspect
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import PurePosixPath
from typing import Any, Final, Literal, TypeAlias

from loopwright.argv import words
from loopwright.errors import ConfigError
from loopwright.ports import Agent, Gate, Place
from loopwright.readers import hint
from loopwright.references import raised

Kind: TypeAlias = Literal["agents", "gates", "channels"]

BUILT_IN: Final[Mapping[str, Mapping[str, str]]] = {
    "agents": {
        name: f"loopwright.agents.{name}:{name}"
        for name in ("command", "claude", "codex", "opencode", "aider", "acp")
    },
    "gates": {
        **{
            name: f"loopwright.gates.{name}:{name}"
            for name in (
                "command",
                "junit",
                "pytest",
                "coverage",
                "lint",
                "ruff",
                "eslint",
                "types",
                "sarif",
                "score",
                "checklist",
                "diff",
                "judge",
            )
        },
        **{name: f"loopwright.gates.suites:{name}" for name in ("tap", "gotest", "jest", "vitest", "cargo")},
    },
    "channels": {
        name: f"loopwright.channels.{name}:{name}"
        for name in ("inbox", "slack", "email", "webhook", "apprise")
    },
}
FROM_FUNCTION: Final[Mapping[str, str]] = {
    "agents": "loopwright.agents.function:function_agent",
    "gates": "loopwright.gates.function:as_gate",
}
PLUGGED: Final = ("agents", "gates", "stores", "channels", "triggers", "monitors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One thing that can be named: what it is, where it comes from, and why it cannot be used (`problem`)."""

    kind: str
    name: str
    where: str
    signature: str = ""
    doc: str = ""
    problem: str = ""


def plugins() -> list[Plugin]:
    """Everything that can be named, built-ins first; a broken one is a row with its problem."""
    rows = []
    for kind in PLUGGED:
        own = BUILT_IN.get(kind, {})
        rows += [_row(kind, name, where, lambda where=where: builtin(where)) for name, where in own.items()]
        found = points(kind)
        names = [point.name for point in found]
        for point in found:
            row = _row(kind, point.name, point.value, point.load)
            if point.name in own:
                row = Plugin(
                    kind=kind, name=row.name, where=row.where, problem="the built-in of this name is used"
                )
            elif names.count(point.name) > 1:
                row = Plugin(
                    kind=kind, name=row.name, where=row.where, problem="another plug-in has this name"
                )
            rows.append(row)
    return rows


def _row(kind: str, name: str, where: str, load: Any) -> Plugin:
    try:
        factory = load()
        signature = _signature(factory) if callable(factory) else ""
        doc = (inspect.getdoc(factory) or "").partition("\n")[0]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - other people's code
        return Plugin(kind=kind, name=name, where=where, problem=raised(error))
    problem = "" if callable(factory) else f"a {type(factory).__name__}, not a function"
    return Plugin(kind=kind, name=name, where=where, signature=signature, doc=doc, problem=problem)


def _signature(factory: Any) -> str:
    """The options of a factory as they are written in its source."""
    options = []
    for name, option in inspect.signature(factory).parameters.items():
        kind = "" if option.annotation is option.empty else f": {option.annotation}"
        options.append(f"{name}{kind}" + ("" if option.default is option.empty else f" = {option.default!r}"))
    return f"({', '.join(options)})"


def points(kind: str) -> list[EntryPoint]:
    """The plug-ins of one kind, by name; the same one seen twice on sys.path counts once."""
    return sorted(set(entry_points(group=f"loopwright.{kind}")), key=lambda point: (point.name, point.value))


def builtin(reference: str) -> Any:
    """The object at `module:attr` of loopwright itself."""
    module, _, attr = reference.partition(":")
    return getattr(importlib.import_module(module), attr)


def factory(kind: Kind, name: str) -> Any:
    """What is called exactly this, `None` if nothing is; `ConfigError` for a broken or ambiguous plug-in."""
    if name in BUILT_IN[kind]:
        return builtin(BUILT_IN[kind][name])
    found = [point for point in points(kind) if point.name == name]
    if len(found) > 1:
        both = ", ".join(point.value for point in found)
        raise ConfigError(f"two plug-ins are called {name!r} ({both}): write module:attr to say which")
    if not found:
        return None
    try:
        return found[0].load()
    except (Exception, SystemExit) as error:  # other people's code
        raise ConfigError(
            f"the plug-in {name!r} ({found[0].value}) cannot be loaded: {raised(error)}"
        ) from error


def gate_of_command(argv: tuple[str, ...]) -> Gate | None:
    """The gate of the known tool that a command line starts, which says so at the start; `None` if it is none."""
    from loopwright.gates._tool import resolve
    from loopwright.gates.known import GATES, known

    found = known(argv)
    if found is None:
        return None
    use = GATES.get(found.tool, found.tool)
    try:
        gate: Gate = builtin(BUILT_IN["gates"][use])(run=list(found.start), args=list(found.args))
    except ConfigError:
        return None  # what the tool's gate cannot be asked for may be a fine command

    def probe(place: Place) -> str:
        gate.probe(place)
        return f"{shlex.join((resolve(argv[0], place), *argv[1:]))} (as the gate {use})"

    return replace(gate, probe=probe, commands=(argv,))


def agent_of_command(argv: tuple[str, ...]) -> Agent | None:
    """The adapter of the coding-agent CLI that a command line starts, with its arguments; `None` if it is none."""
    for at, word in enumerate(argv[:3]):
        use = PROGRAMS.get(PurePosixPath(word).name)
        launched = at == 0 or argv[0] in LAUNCHERS
        if use is not None and launched and use in BUILT_IN["agents"]:
            asked = builtin(BUILT_IN["agents"][use].replace(f":{use}", ":asked"))(argv[at + 1 :])
            return (
                None
                if asked is None
                else builtin(BUILT_IN["agents"][use])(run=list(argv[: at + 1]), args=asked)
            )
    return None


# The programs of the adapters, and what may stand before one.
PROGRAMS: Final[Mapping[str, str]] = {
    "claude": "claude",
    "claude-code": "claude",
    "codex": "codex",
    "opencode": "opencode",
    "opencode-ai": "opencode",
    "aider": "aider",
}
LAUNCHERS: Final = frozenset({"npx", "bunx", "pnpm", "uvx"})


def typed(use: str, options: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """The command lines that a gate with these options runs, as a person would type them; none where it runs none."""
    run, args = options.get("run"), tuple(options.get("args") or ())
    start = words(run) if run else _TYPED.get(use)
    if start is None:
        return ()
    python = (("python", "-m", *start, *args),) if start[0] == "pytest" else ()
    return ((*start, *args), *python)


_TYPED: Final[Mapping[str, tuple[str, ...]]] = {"pytest": ("pytest",), "ruff": ("ruff", "check")}


def nameless(kind: Kind, name: str, why: str = "") -> str:
    """Why `name` names nothing, with the nearest name that does."""
    one = kind.removesuffix("s")
    known = [*BUILT_IN[kind], *(point.name for point in points(kind))]
    if name in known:  # said as a command
        return why.removeprefix(" and ")
    return f"no {one} is called {name!r}{why}{hint(name, known)}"
