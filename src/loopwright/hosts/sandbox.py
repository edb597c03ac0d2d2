"""The walls around agent and gates: none, bubblewrap, or a command of the user's that they are started through.

Rule: what is asked for is there or the run does not start; it is never left out in silence. The words before a
command are looked up on the PATH of whoever starts the run, never among tools that an agent could have written.

In `bwrap` everything is read-only but the folder the agent works in and the folder for its files; what other
programs listen on and keep secret is not there. The network is shared: agents live on it. TERM goes to the program
inside: bubblewrap would die of it, and everything inside with it, before the grace is over.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from loopwright.assembled import Assembled
from loopwright.errors import ConfigError
from loopwright.hosts.ways import STATE, Ways
from loopwright.loop import Loop
from loopwright.workspace.ours import Copy
from loopwright.workspace.plumbing import find_repository

Wrap = Callable[[tuple[Path, ...], bool], tuple[str, ...]]
_TRIAL_S: Final = 20.0
_WALLS: Final = ("--die-with-parent", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL")
_PRIVATE: Final = ("/tmp", "/var/tmp", "/run")  # noqa: S108 - they are replaced, not used
# What of /run programs cannot do without: how names are resolved, and where NixOS has its programs.
_OF_RUN: Final = ("systemd/resolve", "resolvconf", "NetworkManager", "nscd", "current-system", "wrappers")
_SECRETS: Final = (
    *(
        ".ssh",
        ".gnupg",
        ".aws",
        ".azure",
        ".kube",
        ".docker",
        ".password-store",
        ".config/gcloud",
        ".config/gh",
    ),
    *(".netrc", ".git-credentials", ".pgpass", ".pypirc", ".npmrc"),
)
_LOGINS: Final = (
    *(".claude", ".claude.json", ".codex", ".gemini", ".copilot"),
    *(".config/opencode", ".local/share/opencode", ".local/state/opencode"),
)


def check(assembled: Assembled, ways: Ways) -> None:
    """`ConfigError` when agent and gates cannot be wrapped as asked."""
    asked = assembled.loop.sandbox
    if asked is None or asked == "none":
        return
    agents = (each for each in (assembled.agent, assembled.improve) if each is not None)
    within = [f"agent {agent.name}" for agent in agents if agent.in_process]
    within += [f"gate {gate.name}" for gate in assembled.gates if gate.in_process]
    if within:
        raise ConfigError(
            *(f"sandbox: {who} is a function, which runs inside loopwright: use a command" for who in within)
        )
    if not isinstance(asked, str):
        if _found(asked[0], ways) is None:
            raise ConfigError(
                f'sandbox: there is no program {asked[0]!r} {_where(asked[0], ways)}: install it, or say sandbox = "none"'
            )
        return
    if (bwrap := _found("bwrap", ways)) is None or _found("env", ways) is None:
        raise ConfigError(
            "sandbox: bwrap is not on PATH: install bubblewrap (apt install bubblewrap, dnf install bubblewrap), "
            'or say sandbox = "none"'
        )
    if why := _refused((*_start(ways), "--ro-bind", "/", "/", "--proc", "/proc", *_inside(ways), "true")):
        raise ConfigError(
            f"sandbox: {bwrap} cannot make a sandbox on this machine ({why}): user namespaces may be switched off "
            '(sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), or say sandbox = "none"'
        )


def lines(loop: Loop, ways: Ways) -> list[str]:
    """What a person is told at the start of what agent and gates are wrapped in."""
    asked = loop.sandbox
    if asked is None or asked == "none":
        return []
    words = (asked,) if isinstance(asked, str) else asked
    path = _found(words[0], ways) or words[0]
    loose = "/" in words[0] and Path(os.path.realpath(path)).is_relative_to(ways.project)
    note = " (it stands in the project: the agent may be able to change it)" if loose else ""
    return [f"sandbox: {' '.join((path, *words[1:]))}{note}"]


def wrapping(loop: Loop, ways: Ways, root: Path, copy: Copy | None, payload: Path | None = None) -> Wrap:
    """What comes before the command of an agent (`True`) or gate, which may write in these folders as well.

    `root` is where they work, in `copy` when that is a folder apart. An agent may read `payload`.
    """
    asked = loop.sandbox
    if asked is None or asked == "none":
        return lambda _folders, _agent: ()
    if not isinstance(asked, str):
        prefix = (_found(asked[0], ways) or asked[0], *asked[1:])
        return lambda _folders, _agent: prefix
    start, inside = (*_start(ways), *_system(ways)), _inside(ways)
    places, home = tuple(_places(ways, root, copy)), tuple(_home(ways, root))
    own = (*_logins(ways), *(("--ro-bind", str(payload), str(payload)) if payload is not None else ()))

    def wrap(folders: tuple[Path, ...], agent: bool) -> tuple[str, ...]:
        files = [word for each in folders if each.is_dir() for word in ("--bind", str(each), str(each))]
        return (*start, *places, *files, *home, *(own if agent else ()), *inside)

    return wrap


def _found(program: str, ways: Ways) -> str | None:
    """The path of a program: with a `/` from the project folder, else on the caller's PATH."""
    if "/" in program:
        path = ways.project / program
        return str(path) if path.is_file() and os.access(path, os.X_OK) else None
    found = shutil.which(program, path=ways.environ.get("PATH", os.defpath))
    return None if found is None else os.path.abspath(found)  # noqa: PTH100 - links stay: their names matter


def _where(program: str, ways: Ways) -> str:
    return f"that can be run, from {ways.project}" if "/" in program else "on PATH"


def _start(ways: Ways) -> tuple[str, ...]:
    return (_found("env", ways) or "env", "--ignore-signal=TERM", _found("bwrap", ways) or "bwrap", *_WALLS)


def _inside(ways: Ways) -> tuple[str, ...]:
    return ("--", _found("env", ways) or "env", "--default-signal=TERM")


def _refused(argv: tuple[str, ...]) -> str:
    """Why this command does not run; empty when it does."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_S,
            check=False,
            cwd="/",
            env={},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return "" if done.returncode == 0 else (said[-1][:300] if said else f"exit {done.returncode}")


def _system(ways: Ways) -> Iterator[str]:
    """All of the machine to read, but for what is private: temporary files and what other programs listen on."""
    yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    for folder in _PRIVATE:
        if Path(folder).is_dir() and not Path(folder).is_symlink():
            yield from ("--tmpfs", folder)
    for name in _OF_RUN:
        yield from ("--ro-bind-try", f"/run/{name}", f"/run/{name}")
    for folder in ways.environ.get("PATH", "").split(os.pathsep):  # tools that stand in what is private now
        tools = Path(folder)
        if folder.startswith(tuple(f"{private}/" for private in _PRIVATE)) and tools.is_dir():
            whole = tools.parent if (tools.parent / "pyvenv.cfg").is_file() else tools
            yield from ("--ro-bind", str(whole), str(whole))


def _places(ways: Ways, root: Path, copy: Copy | None) -> Iterator[str]:
    """The project to read, and of it the folder the agent works in to write; our own records are not there."""
    state = ways.project / STATE
    repository = find_repository(ways.project)
    tops = (ways.project,) if repository is None else (repository.top, repository.shared)
    for top in tops:
        yield from ("--ro-bind", str(top), str(top))
    if copy is None:
        yield from ("--bind", str(root), str(root))
        if (git := root / ".git").exists() and not git.is_symlink():
            yield from (
                "--ro-bind",
                str(git),
                str(git),
            )  # a hook or filter planted there would run as the user
    if state.is_dir():
        yield from ("--tmpfs", str(state))
        once = state / "once"  # what `run_once` has done is not to be done again
        if copy is None and not once.is_symlink():
            once.mkdir(mode=0o700, exist_ok=True)
            yield from ("--bind", str(once), str(once))
    if copy is not None:
        yield from ("--bind", str(copy.top), str(copy.top))


def _home(ways: Ways, root: Path) -> Iterator[str]:
    """The user's folder: read-only as all the rest, without what is secret in it, with a cache of its own."""
    for path in _of_home(ways, (*_SECRETS, ".cache")):
        if not root.is_relative_to(path):
            yield from ("--tmpfs", str(path)) if path.is_dir() else ("--ro-bind", "/dev/null", str(path))


def _logins(ways: Ways) -> Iterator[str]:
    """Where coding agents keep their login and their sessions."""
    for path in _of_home(ways, _LOGINS):
        yield from ("--bind", str(path), str(path))


def _of_home(ways: Ways, names: tuple[str, ...]) -> Iterator[Path]:
    home = ways.environ.get("HOME", "")
    if home.startswith("/"):
        paths = (Path(os.path.realpath(Path(home, name))) for name in names)
        yield from (path for path in paths if path.exists())
