"""A name in a loop → the agent or gate it means. A factory's signature is the schema of its options.

Rule: nothing is guessed, and every fault of every option comes at once. Strings are tried in DESIGN's
order: (1) a built-in or plug-in of exactly that name (`name:ARG`), (3) `module:attr`, (4) a command, which
is (2) the gate of a known tool where it starts one; (5) anything else is an error with the nearest name.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from loopwright import vocabulary
from loopwright.argv import words
from loopwright.cards import Channel
from loopwright.errors import ConfigError
from loopwright.names import (
    BUILT_IN,
    FROM_FUNCTION,
    Kind,
    agent_of_command,
    builtin,
    factory,
    gate_of_command,
    nameless,
    typed,
)
from loopwright.names import Plugin as Plugin  # noqa: PLC0414 - `plugins` belongs to this page's readers too
from loopwright.names import plugins as plugins  # noqa: PLC0414
from loopwright.options import is_factory, options_of, parameters
from loopwright.ports import Agent, Gate
from loopwright.readers import Fault, WrongError, hint, inside, thawed, wrong
from loopwright.references import SCRIPT, imported
from loopwright.supervise import tool_path
from loopwright.units import shown

Made = TypeVar("Made", Agent, Gate, Channel)
_NAMED: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)(?::(\S.*))?", re.DOTALL)
_ATTR: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where names are looked up: modules and tools in `project` first, programs on `path`."""

    project: Path
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The agents and gates that a loop's names mean, and what is wrong with those that mean nothing."""

    agent: Agent | None
    improve: Agent | None
    gates: tuple[Gate, ...]
    faults: tuple[Fault, ...]

    @property
    def opinions(self) -> str:
        """What is wrong where the required gates are opinions alone and none is let to be (`alone`); "" where not."""
        required = [gate for gate in self.gates if gate.rule.required]
        if not required or any(gate.alone or not gate.opinion for gate in required):
            return ""
        return f"only {required[0].name} is required, and it has an opinion: add a gate that measures, or say alone = true in it"


def resolve_agent(value: object, *, project: Path, path: str) -> Agent:
    """The agent that a string, a table with `use`, a function or an `Agent` means; `ConfigError` if none."""
    return _or_config_error(_agent, value, Where(project=project, path=path))


def resolve_gate(value: object, *, project: Path, path: str) -> Gate:
    """The gate that a string, a table with `use`, a function or a `Gate` means; `ConfigError` if none.

    The options that every gate has are applied to it: `weight` is 2, or 1 when it is not required.
    """
    return _or_config_error(_gate, value, Where(project=project, path=path))


def resolve_channels(
    values: Sequence[object], *, project: Path, path: str
) -> tuple[tuple[Channel, ...], list[Fault]]:
    """The channels that names, addresses (`scheme://…`) and tables with `use` mean, and what is wrong with the rest.

    They keep their order and get unique names (`slack-2`).
    """
    where = Where(project=project, path=path)
    faults: list[Fault] = []
    found: list[Channel] = []
    for i, value in enumerate(values):
        try:
            found.append(_channel(value, where))
        except WrongError as bad:
            faults.extend((inside(f"[{i}]", sub), what) for sub, what in bad.faults)
        except ConfigError as error:
            faults.extend((f"[{i}]", problem) for problem in error.problems)
    names = [channel.name for channel in found]
    again = [names[: i + 1].count(name) for i, name in enumerate(names)]
    unique = (
        replace(channel, name=f"{channel.name}-{n}") if n > 1 else channel
        for channel, n in zip(found, again, strict=True)
    )
    return tuple(unique), faults


def resolve(agent: object, improve: object, gates: Sequence[object], *, project: Path, path: str) -> Resolved:
    """All of a loop's names at once; gates keep their order and get unique names (`name-2`)."""
    where = Where(project=project, path=path)
    faults: list[Fault] = []

    def one(key: str, find: Callable[[object, Where], Any], value: object) -> Any:
        try:
            return None if value is None else find(value, where)
        except WrongError as bad:
            faults.extend((inside(key, sub), what) for sub, what in bad.faults)
        except ConfigError as error:
            faults.extend((key, problem) for problem in error.problems)
        return None

    worker = one("agent", _agent, agent)
    improver = one("improve", _agent, improve)
    named = _uniquely([one(f"gates[{i}]", _gate, gate) for i, gate in enumerate(gates)])
    if None not in named:
        faults += _misordered([gate for gate in named if gate is not None])
    goals = [i for i, gate in enumerate(named) if gate is not None and gate.rule.objective]
    faults += [(f"gates[{i}].objective", "another gate is the objective already") for i in goals[1:]]
    found = _in_order([gate for gate in named if gate is not None])
    return Resolved(agent=worker, improve=improver, gates=found, faults=tuple(faults))


def _or_config_error(find: Callable[[object, Where], Made], value: object, where: Where) -> Made:
    try:
        return find(value, where)
    except WrongError as bad:
        raise ConfigError(*(f"{key}: {what}" if key else what for key, what in bad.faults)) from None


def _uniquely(gates: Iterable[Gate | None]) -> list[Gate | None]:
    """The gates with the second of a name called `name-2`, the third `name-3`."""
    taken: set[str] = set()
    named: list[Gate | None] = []
    for gate in gates:
        if gate is None:
            named.append(None)
            continue
        name, n = gate.name, 1
        while name in taken:
            n += 1
            name = f"{gate.name}-{n}"
        taken.add(name)
        named.append(gate if n == 1 else replace(gate, rule=replace(gate.rule, name=name)))
    return named


def _misordered(gates: Sequence[Gate]) -> list[Fault]:
    """`after` that names no gate, or gates that wait for each other."""
    after = {gate.name: gate.after for gate in gates}
    faults = [
        (f"gates[{i}].after", f"no gate is called {name!r}{hint(name, after)}")
        for i, gate in enumerate(gates)
        for name in gate.after
        if name not in after
    ]
    if faults:
        return faults
    done: set[str] = set()
    while ready := {name for name, needs in after.items() if name not in done and done.issuperset(needs)}:
        done |= ready
    stuck = [name for name in after if name not in done]
    return [("gates", f"these wait for each other (after): {', '.join(stuck)}")] if stuck else []


def _in_order(gates: Sequence[Gate]) -> tuple[Gate, ...]:
    """The gates in file order, each after those it comes `after`; what cannot be ordered is at the end."""
    waiting, done = list(gates), list[Gate]()
    while waiting:
        names = {gate.name for gate in done}
        done.append(next((gate for gate in waiting if names.issuperset(gate.after)), waiting[0]))
        waiting.remove(done[-1])
    return tuple(done)


def _agent(value: object, where: Where) -> Agent:
    made = _named("agents", vocabulary.agent(value), where)
    if not isinstance(made, Agent):
        raise wrong(f"{_called(value)} gives {shown(made)}, not an agent")
    return made


def _gate(value: object, where: Where) -> Gate:
    value = vocabulary.gate(value)
    made = _named("gates", value, where)
    if not isinstance(made, Gate):
        raise wrong(f"{_called(value)} gives {shown(made)}, not a gate")
    return made


def _channel(value: object, where: Where) -> Channel:
    if isinstance(value, str) and "://" in value:
        value = {"use": "apprise", "url": value}
    if isinstance(value, str):
        found = _NAMED.fullmatch(value)
        if not _ATTR.fullmatch(value) and not (found and factory("channels", found[1])):
            raise wrong(nameless("channels", value))
    made = _named("channels", value, where)
    if not isinstance(made, Channel):
        raise wrong(f"{_called(value)} gives {shown(made)}, not a channel")
    return made


def _called(value: object) -> str:
    if isinstance(value, Mapping):
        return repr(value["use"])
    return repr(value) if isinstance(value, str) else _title(value)


def _title(value: object) -> str:
    return str(getattr(value, "__name__", type(value).__name__))


def _named(kind: Kind, value: Any, where: Where) -> object:
    if isinstance(value, Agent | Gate | Channel):
        return value
    if isinstance(value, Mapping):
        return _used(kind, {key: thawed(item) for key, item in value.items()}, where)
    if isinstance(value, str):
        return _said(kind, value, where)
    return _product(kind, _title(value), value, {})


def _used(kind: Kind, given: dict[str, Any], where: Where) -> object:
    """A table: `use` names a built-in, a plug-in or `module:attr`, the rest are options."""
    use = given.pop("use")
    found = _NAMED.fullmatch(use)
    if found and (maker := factory(kind, found[1])):
        return _product(kind, found[1], maker, given, found[2])
    if use.startswith(SCRIPT) or _ATTR.fullmatch(use):
        return _product(kind, use, imported(use, where.project), given)
    how = '; use = takes a name or module:attr, a command is written use = "command", run = …'
    raise WrongError(("use", nameless(kind, use) + how))


def _said(kind: Kind, value: str, where: Where) -> object:
    """A plain string, by the rules above."""
    found = _NAMED.fullmatch(value)
    if found and (maker := factory(kind, found[1])):
        return _product(kind, found[1], maker, {}, found[2])
    if value.startswith(SCRIPT) or _ATTR.fullmatch(value):
        return _product(kind, value, imported(value, where.project), {})
    program = words(value)[0]
    if "/" not in program and not shutil.which(program, path=tool_path(where.project, where.path)):
        if re.match(r"[A-Za-z_]\w*=", program):
            raise wrong(f"{program!r} is no program; to set a variable for a command, write env {value}")
        raise wrong(nameless(kind, program, f" and no program {program!r} is on PATH"))
    known = gate_of_command if kind == "gates" else agent_of_command
    return known(words(value)) or _product(
        kind, "command", builtin(BUILT_IN[kind]["command"]), {"run": value}
    )


def _product(
    kind: Kind, label: str, made: Any, given: Mapping[str, Any], argument: str | None = None
) -> object:
    """The agent or gate that `made` is (a product, a function) or makes of its options (a factory).

    A factory takes keywords only; a function with positional parameters is itself the agent or gate.
    """
    shared = {key: item for key, item in given.items() if kind == "gates" and key in vocabulary.GATE}
    own = {key: item for key, item in given.items() if key not in shared}
    if isinstance(made, Agent | Gate | Channel) or not is_factory(made):
        if own or argument is not None:
            raise WrongError(*((key, f"unknown option: {label} has none of its own") for key in own or [""]))
        product = (
            made
            if isinstance(made, Agent | Gate | Channel) or not callable(made) or kind == "channels"
            else builtin(FROM_FUNCTION[kind])(made)
        )
        return _shared(product, shared, {})
    taken = parameters(label, made)
    options = options_of(label, taken, own, shared if kind == "gates" else None, argument)
    try:
        product = _shared(made(**options), shared, taken)
        return replace(product, commands=typed(label, options)) if isinstance(product, Gate) else product
    except (TypeError, ValueError) as error:
        if isinstance(error, WrongError):
            raise
        raise wrong(f"{label}: {error}") from error


_PLAIN: Final = ("timeout", "parallel", "writes", "clean", "cwd")  # as they are written


def _shared(product: object, given: Mapping[str, Any], taken: Mapping[str, object]) -> object:
    """A gate with the options that every gate has; `min` is the factory's own when it takes one."""
    if not isinstance(product, Gate) or not given:
        return product
    rule = product.rule
    weight = {True: 2.0, False: 1.0}[given["required"]] if "required" in given else rule.weight
    lowest = rule.min if "min" in taken else given.get("min", rule.min)
    if lowest is not None and lowest > 1:
        raise WrongError(("min", f"{lowest:g} is above 1; a score is 0 to 1"))
    return replace(
        product,
        rule=replace(
            rule,
            name=given.get("name", rule.name),
            required=given.get("required", rule.required),
            weight=given.get("weight", weight),
            min=lowest,
            objective=given.get("objective", rule.objective),
            min_gain=given.get("min_gain", rule.min_gain),
        ),
        after=tuple(given.get("after", product.after)),
        env=tuple(dict.fromkeys((*product.env, *given.get("env", ())))),  # its own key stays
        **{word: given[word] for word in _PLAIN if word in given},
    )
