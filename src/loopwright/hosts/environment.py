"""What agent and gates of a run see of this machine: environment, tools, watched folders.

Rule: a name that looks like a secret is withheld unless the loop lets it through.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from loopwright.assembled import Assembled
from loopwright.errors import ConfigError, NotStartable
from loopwright.hosts.ways import STATE, Ways
from loopwright.loop import Loop
from loopwright.ports import Place
from loopwright.redact import Redactor, redactor
from loopwright.supervise import child_environment, tool_path
from loopwright.workspace.watch import roots

# What tells git where a repository is, as a hook's environment does.
_ELSEWHERE: Final = frozenset(
    f"GIT_{name}"
    for name in (
        "DIR",
        "WORK_TREE",
        "INDEX_FILE",
        "OBJECT_DIRECTORY",
        "ALTERNATE_OBJECT_DIRECTORIES",
        "COMMON_DIR",
        "PREFIX",
        "NAMESPACE",
    )
)

# What a server hands on of its own environment without being asked: who and where one is, and how to reach the net.
_NEEDED: Final = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "TERM",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    ]
)


def probe(assembled: Assembled, ways: Ways, root: Path | None = None) -> list[str]:
    """What agent and gates will run as, for the start line; `ConfigError` naming every one that cannot.

    `root` is where they will work, when that is not the project folder.
    """
    lines, problems = [], []
    for who, found in looked_up(assembled, ways, root or ways.project):
        if isinstance(found, NotStartable):
            problems.append(f"{who}: {found}")
        else:
            lines.append(f"{who}: {found}" if found else who)
    try:
        watched(assembled, ways)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return lines


def looked_up(assembled: Assembled, ways: Ways, root: Path) -> Iterator[tuple[str, str | NotStartable]]:
    """Each agent and gate with what it will run as in `root`, or why it cannot start."""
    place = Place(
        root=root,
        project=tools(root, ways),
        artifacts=ways.project / STATE / "artifacts",  # below which each run has a folder
        env=environment("probe", ways, allow=allowed(assembled), root=root),
        timeout_s=10.0,
    )
    asked = [(f"agent {a.name}", a.probe) for a in (assembled.agent, assembled.improve) if a is not None]
    for who, look_up in (*asked, *((f"gate {g.name}", g.probe) for g in assembled.gates)):
        try:
            yield who, look_up(place)
        except NotStartable as error:
            yield who, error


def watched(assembled: Assembled, ways: Ways) -> tuple[Path, ...]:
    """What no agent may change, by the loop's `workspace.watch`."""
    return roots(ways.project, assembled.loop.watch)


def tools(root: Path, ways: Ways) -> Path:
    """The folder whose tools are used: the copy a run works in where it has its own, else the project."""
    return root if root != ways.project and tool_path(root, "") else ways.project


def environment(run: str, ways: Ways, *, allow: Sequence[str], root: Path) -> dict[str, str]:
    """The whole environment of agent and gates: the user's without secrets, the project's tools first, our marks.

    In a copy git is to find the copy, whatever the user's shell or hook told it, and never the folders above it.
    """
    env, _ = child_environment(seen(ways, allow), allow=allow)
    path = tool_path(ways.project, ways.environ.get("PATH", ""))
    if root != ways.project:
        env = {name: value for name, value in env.items() if name not in _ELSEWHERE}
        env["GIT_CEILING_DIRECTORIES"] = os.fspath(ways.project / STATE)
        path = tool_path(root, path)
    return {**env, "PATH": path, **marks(run, root)}


def seen(ways: Ways, allow: Sequence[str]) -> Mapping[str, str]:
    """What of the host's environment may be looked at: all, or under a server what everybody needs and the loop names."""
    if not ways.narrow:
        return ways.environ
    return {
        name: value
        for name, value in ways.environ.items()
        if name in _NEEDED or name in allow or name.startswith(("LC_", "XDG_"))
    }


def allowed(assembled: Assembled) -> tuple[str, ...]:
    """The secret-looking names that somebody may see: all, by the loop's `env`; one agent or gate, by its own."""
    keys = {k for a in (assembled.agent, assembled.improve) if a is not None for k in a.keys}
    return (*assembled.loop.env, *sorted(keys.union(*(gate.env for gate in assembled.gates))))


def redacting(assembled: Assembled, ways: Ways) -> Redactor:
    """What takes this machine's secrets out of everything that is written about a run."""
    return _redactor(frozenset(ways.environ.items()), allowed(assembled))


@lru_cache(maxsize=8)
def _redactor(environ: frozenset[tuple[str, str]], names: tuple[str, ...]) -> Redactor:
    """Made once for all runs of a process: what it looks for takes longer to prepare than a run to start."""
    return redactor(dict(environ), allowed=names)


def without_secrets(assembled: Assembled, ways: Ways) -> Assembled:
    """The loop with no secret in what is in every prompt: goal, template. Commands stay: they must run as they are."""
    redact, said = redacting(assembled, ways), assembled.loop
    goal, prompt = redact.text(said.goal), said.prompt and redact.text(said.prompt)
    if (goal, prompt) == (said.goal, said.prompt):
        return assembled
    loop, policy = replace(said, goal=goal, prompt=prompt), replace(assembled.policy, goal=goal)
    return replace(assembled, loop=loop, policy=policy)


def written_secrets(loop: Loop, redact: Redactor) -> list[str]:
    """What to tell a person who wrote a secret into the loop itself."""
    spec = loop.spec()
    keys = [key for key in ("agent", "improve", "gates") if redact.value(spec.get(key)) != spec.get(key)]
    told = [
        f"{key} holds a secret, which is kept as it stands: name a variable in env instead" for key in keys
    ]
    for what, text in (("goal", loop.goal), ("prompt", loop.prompt or "")):
        if "[redacted:" in text:
            told.append(
                f"the {what} held a secret, which no agent gets to see: name a variable in env instead"
            )
    return told


def marks(run: str, root: Path) -> dict[str, str]:
    """The names by which everything this run starts can be found again."""
    return {"LOOPWRIGHT_RUN": run, "LOOPWRIGHT_WORKDIR": str(root)}
