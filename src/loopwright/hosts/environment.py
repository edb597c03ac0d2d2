"""What agent and gates of a run see of this machine: environment, tools, watched folders.

Rule: a name that looks like a secret is withheld unless the loop lets it through.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loopwright.errors import ConfigError, NotStartable
from loopwright.hosts.ways import Ways
from loopwright.loop import Assembled
from loopwright.ports import Place
from loopwright.supervise import child_environment, tool_path
from loopwright.workspace.watch import roots


def probe(assembled: Assembled, ways: Ways) -> list[str]:
    """What agent and gates will run as, for the start line; `ConfigError` naming every one that cannot."""
    place = Place(
        root=ways.project,
        project=ways.project,
        artifacts=ways.project,
        env=environment("probe", ways, allow=allowed(assembled)),
        timeout_s=10.0,
    )
    lines, problems = [], []
    asked = [(f"agent {a.name}", a.probe) for a in (assembled.agent, assembled.improve) if a is not None]
    for who, look_up in (*asked, *((f"gate {g.name}", g.probe) for g in assembled.gates)):
        try:
            found = look_up(place)
        except NotStartable as error:
            problems.append(f"{who}: {error}")
        else:
            lines.append(f"{who}: {found}" if found else who)
    try:
        watched(assembled, ways)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return lines


def watched(assembled: Assembled, ways: Ways) -> tuple[Path, ...]:
    """What no agent may change, by the loop's `workspace.watch`."""
    return roots(ways.project, assembled.loop.watch)


def environment(run: str, ways: Ways, *, allow: Sequence[str]) -> dict[str, str]:
    """The whole environment of agent and gates: the user's without secrets, the project's tools first, our marks."""
    env, _ = child_environment(ways.environ, allow=allow)
    return {
        **env,
        "PATH": tool_path(ways.project, ways.environ.get("PATH", "")),
        **marks(run, ways),
    }


def allowed(assembled: Assembled) -> tuple[str, ...]:
    """The secret-looking names that somebody may see: all, by the loop's `env`; one agent or gate, by its own."""
    keys = {k for a in (assembled.agent, assembled.improve) if a is not None for k in a.keys}
    return (*assembled.loop.env, *sorted(keys.union(*(gate.env for gate in assembled.gates))))


def marks(run: str, ways: Ways) -> dict[str, str]:
    """The names by which everything this run starts can be found again."""
    return {"LOOPWRIGHT_RUN": run, "LOOPWRIGHT_WORKDIR": str(ways.project)}
