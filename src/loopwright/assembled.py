"""A loop with all it names: its agent and gates found, its texts read, every default written out.

Rule: what is wrong with a loop comes at once, before anything is made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from loopwright import readers
from loopwright.cards import Channel
from loopwright.core.policy import Policy
from loopwright.errors import ConfigError
from loopwright.loop import HOPELESS, Loop, Mode, table_of
from loopwright.places import told
from loopwright.ports import Agent, Gate
from loopwright.readers import Fault
from loopwright.sites import names
from loopwright.template import read_goal, read_template, used


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A loop with all it names: what a host needs to run it.

    `loop` has its goal and prompt read and every default written out: record this one. `mode` is the workspace's. Requests go to
    `channels`, news to `notify`.
    """

    loop: Loop
    policy: Policy
    agent: Agent
    improve: Agent | None
    gates: tuple[Gate, ...]
    mode: Mode
    channels: tuple[Channel, ...] = ()
    notify: tuple[Channel, ...] = ()


def assemble(loop: Loop, *, project: Path, path: str, places: Mapping[str, str] | None = None) -> Assembled:
    """The loop with its agents and gates found, tools and modules of `project` first, programs on `path`.

    `places` says where a dotted key was written, for the messages. `ConfigError` has every problem.
    """
    from loopwright.registry import resolve

    faults: list[Fault] = []
    goal = readers.take(faults, "goal", lambda text: read_goal(text, project), loop.goal)
    prompt = loop.prompt and readers.take(
        faults, "prompt", lambda text: read_template(text, project), loop.prompt
    )
    if prompt and "notes" in used(prompt) and not loop.notes:
        faults.append(("prompt", 'the template has {notes}: say notes = "progress.txt" or notes = true'))
    found = resolve(loop.agent, loop.improve, loop.gates, project=project, path=path)
    faults += found.faults
    told_by = [
        _channels(faults, key, table_of(table).get(word, ()), project, path)
        for key, table, word in (
            ("approval.channels", loop.approval, "channels"),
            ("notify.to", loop.notify, "to"),
        )
    ]
    if not found.faults and not _passable(loop, (gate.rule.required for gate in found.gates)):
        faults.append(("gates", HOPELESS))
    if not found.faults and found.opinions and table_of(loop.approval).get("when") != "always":
        faults.append(("gates", found.opinions))
    if found.agent is not None:
        mode = loop.mode(found.agent, found.improve)
        if mode == "none":
            faults += [(key, _DEAD) for key in ("protected", "may_change") if getattr(loop, key)]
            faults += [("notes", f"{loop.notes!r} {_DEAD}, or notes = true")] * isinstance(loop.notes, str)
            faults += [("gates", f"{g.name}: clean {_DEAD}") for g in found.gates if g.clean]
        faults += _homeless(loop, mode)
    if isinstance(loop.notes, str):
        again = (g for g in loop.protected if names(g, loop.notes))
        faults += [("notes", f"{loop.notes!r} is protected by {g!r}, so it would be put back") for g in again]
    if faults or found.agent is None:
        raise ConfigError(*told(faults, places or {}))
    whole = replace(loop, goal=goal, prompt=prompt).resolved(found.agent, found.improve)
    return Assembled(
        loop=whole,
        policy=whole.judged_by(found.gates),
        agent=found.agent,
        improve=found.improve,
        gates=found.gates,
        mode=mode,
        channels=told_by[0],
        notify=told_by[1],
    )


def _channels(
    faults: list[Fault], key: str, values: Iterable[object], project: Path, path: str
) -> tuple[Channel, ...]:
    """The channels that these values mean; what is wrong goes to `faults`."""
    from loopwright.registry import resolve_channels

    values = tuple(values)
    if not values:  # nothing to load
        return ()
    found, more = resolve_channels(values, project=project, path=path)
    faults += [(f"{key}{sub}", what) for sub, what in more]
    return found


_APART: Final = 'needs workspace.mode = "worktree" or "folder": a folder of its own'
_DEAD: Final = 'needs a workspace and this loop has none; say workspace.mode = "in_place"'


def _homeless(loop: Loop, mode: Mode) -> list[Fault]:
    """What is said of a workspace that this loop does not have."""
    said = table_of(loop.workspace)
    apart = mode in {"worktree", "folder"}
    faults = [(f"workspace.{key}", _APART) for key in ("setup", "link") if said.get(key) and not apart]
    if said.get("base") and mode != "worktree":
        faults.append(("workspace.base", 'needs workspace.mode = "worktree"'))
    if loop.start_from == "best" and not apart:
        faults.append(("start_from", f'"best" {_APART}'))
    if table_of(loop.deliver).get("branch") and table_of(loop.deliver).get("to") != "branch":
        faults.append(("deliver.branch", 'needs deliver.to = "branch"'))
    return faults


def _passable(loop: Loop, required: Iterable[bool]) -> bool:
    return any(required) or table_of(loop.approval).get("when") == "always" or loop.until == "limits"
