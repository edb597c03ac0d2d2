"""`Loop`: what a user writes. It is inert: `run(loop)` runs it.

Rule: a loop that exists is valid, and a loop that cannot be is one error with every problem. What was not
said stays unsaid until the agent is known, because an agent may bring limits of its own; `assemble` then
writes every default out, so that a run on record never depends on the defaults of another version.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from loopwright import readers, vocabulary
from loopwright.core.limits import Backoff, Convergence, Limits
from loopwright.core.monitors import Monitors
from loopwright.core.policy import Asking, Policy
from loopwright.errors import ConfigError
from loopwright.ports import Agent, Gate
from loopwright.readers import Fault

Duration: TypeAlias = float | str
Mode: TypeAlias = Literal["in_place", "worktree", "folder", "none"]
Table: TypeAlias = Mapping[str, Any]

# The tables whose one usual key may stand alone in Python: approval="always".
_ALONE: Final = {"approval": "when", "workspace": "mode", "deliver": "to"}
_MANY: Final = frozenset(
    {"gates", "protected", "may_change", "env", "labels", "trigger"}
)  # empty is not said
_POLICY: Final = Policy()


@dataclass(frozen=True)
class Loop:
    """A goal, who works on it, who judges the work, and the bounds of it all.

    `agent` and each of `gates` is a name, a command, a table with `use` and options, or a function.
    Durations are seconds or texts such as "90s", "30m", "1h30m"; money is US dollars. The limits and
    every other option have the names and meanings of the loop file (`docs/configuration.md`); `None`
    is not said. `baseline` is iteration 0, on by default where there is a workspace. Raises
    `ConfigError` with every problem at once.
    """

    goal: str
    _: KW_ONLY
    agent: str | Table | Callable[..., Any] | Agent | None = None
    gates: Sequence[str | Table | Callable[..., Any] | Gate] = ()
    improve: str | Table | Callable[..., Any] | Agent | None = None
    name: str | None = None
    threshold: float | None = None
    until: Literal["passed", "limits"] | None = None
    start_from: Literal["last", "best"] | None = None
    if_passing: Literal["run", "finish"] | None = None
    baseline: bool | None = None
    protected: Sequence[str] = ()
    on_tamper: Literal["restore", "block", "ask"] | None = None
    may_change: Sequence[str] = ()
    known_failures: Literal["allow"] | None = None
    prompt: str | None = None
    notes: str | bool | None = None
    env: Sequence[str] = ()
    sandbox: str | Sequence[str] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    max_iterations: int | None = None
    max_duration: Duration | None = None
    max_wait: Duration | None = None
    attempts: int | None = None
    attempt_timeout: Duration | None = None
    idle_timeout: Duration | None = None
    gate_timeout: Duration | None = None
    max_consecutive_errors: int | None = None
    budget: float | None = None
    budget_per_day: float | None = None
    max_tokens: int | None = None
    convergence: Table | Convergence | Literal[False] | None = None
    backoff: Table | Backoff | None = None
    grace: Duration | None = None
    reserve: float | None = None
    monitors: Table | None = None
    approval: str | Table | None = None
    workspace: str | Table | None = None
    deliver: str | Table | None = None
    notify: Table | None = None
    trigger: Sequence[Table] = ()
    server: Table | None = None
    store: str | None = None

    def __post_init__(self) -> None:
        given = self.said()
        for key, word in _ALONE.items():
            if isinstance(given.get(key), str):
                given[key] = {word: given[key]}
        found, faults = vocabulary.read(given)
        faults += impossible(found, faults)
        if faults:
            raise ConfigError(*(f"{_flat(key)}: {what}" for key, what in faults))
        for key, value in found.items():
            object.__setattr__(self, _flat(key), value)
        for name in _MANY - {_flat(key) for key in found}:
            object.__setattr__(self, name, readers.ReadOnly() if name == "labels" else ())

    def said(self) -> dict[str, Any]:
        """What is said, by the dotted names of a loop file."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        empty = {
            name for name in _MANY if isinstance(values[name], list | tuple | Mapping) and not values[name]
        }
        return {_dotted(name): v for name, v in values.items() if v is not None and name not in empty}

    @property
    def watch(self) -> tuple[str, ...]:
        """What no agent may change: `workspace.watch`."""
        return tuple(table_of(self.workspace).get("watch", ()))

    def spec(self) -> dict[str, Any]:
        """The loop as JSON, in the shape of a loop file; functions as `module:name` or `script:PATH#name`.

        To read, not to change: it is made once.
        """
        return self._spec

    @cached_property
    def _spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        for key, value in self.said().items():
            if key in {"trigger", "server"}:  # of who starts runs, not of a run
                continue
            table, _, name = key.rpartition(".")
            place = spec.setdefault(table, {}) if table else spec
            place[name] = _written(key, value)
        return spec

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Loop:
        """The loop that `spec()` was of; `ConfigError` for keys that another version wrote."""
        given, faults = vocabulary.flat(spec)
        if faults:
            raise ConfigError(*(f"{key}: {what}" for key, what in faults))
        known = {f.name for f in fields(cls)}  # empty tables of what comes later are no option of a loop
        said = {_flat(key): value for key, value in given.items() if _flat(key) in known}
        return cls(**{"goal": "", **said})

    def digest(self) -> str:
        """The hash of what may not change under one run id: goal, prompt, agent, improve, gates with weights.

        A gate's `timeout` is a limit and not part of it; nor is the folder a script stands in.
        """
        return self._digest

    @cached_property
    def _digest(self) -> str:
        body = {
            "goal": self.goal,
            "agent": _portable(_written("agent", self.agent)),
            "improve": _portable(_written("agent", self.improve)),
            "gates": [_counted(gate) for gate in self.gates],
            **({"prompt": self.prompt} if self.prompt else {}),
        }
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]

    def mode(self, *agents: Agent | None) -> Mode:
        """The workspace mode: what is said, else `in_place` for agents that work in a folder, else `none`."""
        said: Mode | None = table_of(self.workspace).get("mode")
        return said or ("in_place" if any(a is not None and a.in_folder for a in agents) else "none")

    def resolved(self, agent: Agent, improve: Agent | None = None) -> Loop:
        """The same loop with every default written out, those that the agents bring included."""
        mode = self.mode(agent, improve)
        monitors = Monitors(**(self.monitors or {}))
        asking = Asking(**{k: v for k, v in table_of(self.approval).items() if k in _ASKING})
        return replace(
            self,
            **{key: getattr(self, key) or getattr(_POLICY, key) for key in _SAME},
            name=self.name or "loop",
            sandbox=self.sandbox or "none",
            baseline=mode != "none" if self.baseline is None else self.baseline,
            monitors={f.name: getattr(monitors, f.name) for f in fields(monitors)},
            approval={
                **asdict(asking),
                **{k: v for k, v in table_of(self.approval).items() if k not in _ASKING},
            },
            workspace={**table_of(self.workspace), "mode": mode},
            **_limits(self, [a for a in (agent, improve) if a is not None]),
        )

    def policy(self, *, agent: Agent, gates: Sequence[Gate], improve: Agent | None = None) -> Policy:
        """The pure part of this loop, with these agents and gates."""
        return self.resolved(agent, improve).judged_by(gates)

    def judged_by(self, gates: Sequence[Gate]) -> Policy:
        """The policy of a loop that has every default written out (`resolved`)."""
        whole = self
        limits = {f.name: getattr(whole, f.name) for f in fields(Limits)}
        approval = {k: v for k, v in table_of(whole.approval).items() if k in _ASKING}
        return Policy(
            goal=whole.goal,
            gates=tuple(gate.rule for gate in gates),
            limits=Limits(**{**limits, "convergence": limits["convergence"] or None}),
            monitors=Monitors(**(whole.monitors or {})),
            approval=Asking(**approval),
            baseline=bool(whole.baseline),
            deliver=table_of(whole.deliver).get("to", "none"),
            known_failures=whole.known_failures == "allow",
            **{key: getattr(whole, key) for key in _SAME},
        )


_SAME: Final = ("threshold", "until", "start_from", "if_passing")  # called the same in Loop and Policy
_ASKING: Final = frozenset(f.name for f in fields(Asking))


HOPELESS: Final = 'nothing can make this loop pass: add a required gate, or say approval.when = "always" or until = "limits"'


def impossible(found: Mapping[str, Any], faults: Iterable[Fault] = ()) -> list[Fault]:
    """What is wrong with a loop as a whole, beyond what is wrong with its keys (`faults`)."""
    bad = {re.split(r"[.\[]", key, maxsplit=1)[0] for key, _ in faults}
    missing = [key for key in ("goal", "agent") if found.get(key) is None and key not in bad]
    hints = {"goal": "say what is wanted", "agent": "name one, such as agent = \"sh -c '…'\""}
    new = [(key, f"missing: {hints[key]}") for key in missing]
    if bad.isdisjoint({"gates", "approval", "until"}):
        gates = found.get("gates") or ()
        required = [
            gate.rule.required
            if isinstance(gate, Gate)
            else not isinstance(gate, Mapping) or gate.get("required", True)
            for gate in gates
        ]
        when = table_of(found.get("approval")).get("when")
        if not any(required) and when != "always" and found.get("until") != "limits":
            new.append(("gates", HOPELESS))
    return new


def _dotted(name: str) -> str:
    if name == "store":
        return "store.url"
    return f"limits.{name}" if name in vocabulary.LIMITS else name


def _flat(key: str) -> str:
    return "store" if key == "store.url" else key.removeprefix("limits.")


def table_of(value: object) -> Mapping[str, Any]:
    """A table that is said, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def _limits(loop: Loop, agents: Sequence[Agent]) -> dict[str, Any]:
    """Every limit: what is said, else the widest that an agent brings, else the default."""
    plain = Limits()
    brought = []
    for agent in agents:
        given, faults = vocabulary.flat({"limits": agent.limits})
        found, more = vocabulary.read(given)
        faults += more
        faults += [
            (key, "an agent brings numbers only")
            for key, v in found.items()
            if not isinstance(v, int | float | None)
        ]
        if faults:
            raise ConfigError(*(f"agent {agent.name} brings {key}: {what}" for key, what in faults))
        brought.append({_flat(key): value for key, value in found.items()})
    limits = {}
    for name in vocabulary.LIMITS:
        default: Any = getattr(plain, name, None)
        each = [agent.get(name, default) for agent in brought]
        widest = (
            max((value for value in each if value is not None), default=default)
            if any(name in agent for agent in brought)
            else default
        )
        said = getattr(loop, name)
        limits[name] = widest if said is None else said
    return limits


def _written(key: str, value: Any) -> Any:
    """A value as JSON: functions by reference, a gate's weight with it where it is not the usual one."""
    if key == "gates":
        return [_written("gate", gate) for gate in value]
    if key not in {"agent", "improve", "gate"} or isinstance(value, str | Mapping | None):
        return readers.thawed(value)
    from loopwright.references import reference
    from loopwright.registry import resolve_gate

    name = reference(value)
    if key != "gate":
        return name
    rule = resolve_gate(value, project=Path(), path="").rule
    table: dict[str, Any] = {} if rule.required else {"required": False}
    if rule.weight != (2.0 if rule.required else 1.0):
        table["weight"] = rule.weight
    return {"use": name, **table} if table else name


def _portable(value: Any) -> Any:
    """A reference that is the same wherever its script stands."""
    if isinstance(value, Mapping):
        return {key: _portable(item) if key == "use" else item for key, item in value.items()}
    return re.sub(r"^script:.*/", "script:", value) if isinstance(value, str) else value


def _counted(gate: Any) -> dict[str, Any]:
    """A gate as the digest sees it: what is said beyond the defaults, without its timeout."""
    written = _portable(_written("gate", gate))
    found = (
        {key: item for key, item in written.items() if key != "timeout"}
        if isinstance(written, dict)
        else {"use": written}
    )
    if found.get("required") is True:
        del found["required"]
    if found.get("weight") == (2.0 if found.get("required", True) else 1.0):
        del found["weight"]
    return found
