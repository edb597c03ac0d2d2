"""Readers for what a loop says of places: folders, commands run in them, commits and branches.

Rule: what cannot be one is refused here, before anything is started; whether it is there is looked up later.
"""

from __future__ import annotations

import os
import re
from typing import Final

from loopwright.argv import words
from loopwright.errors import ConfigError
from loopwright.readers import WrongError, list_of, text, wrong
from loopwright.units import shown

_BRANCH: Final = re.compile(r"[^\s~^:?*\[\\{}@/-][^\s~^:?*\[\\{}]*")


def inner_folder(value: object) -> str:
    """A folder inside the workspace, relative to it."""
    found = text(value)
    if found.startswith(("/", "~")) or ".." in found.split("/"):
        raise wrong(f"{shown(found)} is not a folder inside the workspace, such as 'packages/api'")
    return found


def inner_path(value: object) -> str:
    """A file or folder inside the project folder, relative to it and not that folder itself."""
    found = text(value).rstrip("/")
    parts = found.split("/")
    ours = {"", ".", "..", ".git", ".agent-state"}  # on some file systems .GIT is .git
    if found.startswith("~") or any(part.casefold() in ours for part in parts):
        raise wrong(f"{shown(found)} is not a path inside the project folder, such as 'node_modules'")
    return found


def glob(value: object) -> str:
    """A glob of files of the workspace."""
    found = text(value)
    try:
        glob_pattern(os.fsencode(found))
    except re.error as error:
        raise wrong(f"{shown(found)} is no glob: {error.msg}") from None
    return found


def names(glob: str, path: str) -> bool:
    """Whether this glob names this path from the workspace's top."""
    return glob_pattern(os.fsencode(glob)).fullmatch(os.fsencode(path)) is not None


def notes(value: object) -> str | bool:
    """A file inside the workspace that the agent keeps, or whether it keeps one outside it."""
    if isinstance(value, bool):
        return value
    try:
        return inner_path(value)
    except WrongError:
        raise wrong(
            f"{shown(value)} is not a file inside the workspace, such as 'progress.txt'; true keeps one outside it"
        ) from None


def commands(value: object) -> tuple[str, ...]:
    """One command or several, in their order, none of which needs a shell."""
    return (_command(value),) if isinstance(value, str) else list_of(_command)(value)


def _command(value: object) -> str:
    found = text(value)
    try:
        words(found)
    except ConfigError as error:
        raise wrong(str(error)) from None
    return found


def revision(value: object) -> str:
    """What git may look up as a commit."""
    found = text(value)
    if found.startswith("-") or not found.isprintable() or " " in found:
        raise wrong(f"{shown(found)} is no commit, branch or tag")
    return found


def branch(value: object) -> str:
    """The name of a branch, in which {run} stands for the run's id."""
    found = text(value)
    plain = found.replace("{run}", "r")
    if not _BRANCH.fullmatch(plain) or ".." in plain or plain.endswith(("/", ".", ".lock")):
        raise wrong(f"{shown(found)} cannot name a branch, as 'loopwright/{{run}}' can")
    return found


def glob_pattern(glob: bytes) -> re.Pattern[bytes]:
    """What a glob of the loop means, for paths from the workspace's top; `re.error` for one that means nothing.

    `*` and `?` match within a name, `**` any number of folders. A glob without `/` matches at any depth, one with
    `/` from the top; naming a folder names all it holds.
    """
    glob = glob.removeprefix(b"./").rstrip(b"/")
    anchored = b"/" in glob
    parts = []
    for token in re.findall(rb"\*\*/|\*\*|\*|\?|\[[!^]?\]?[^\]]*\]|.", glob.removeprefix(b"/"), re.DOTALL):
        if token == b"**/":
            parts.append(rb"(?:.*/)?")
        elif token == b"**":
            parts.append(rb".*")
        elif token == b"*":
            parts.append(rb"[^/]*")
        elif token == b"?":
            parts.append(rb"[^/]")
        elif token[:1] == b"[" and len(token) > 1:
            inner = token[1:-1].replace(b"\\", b"\\\\")
            parts.append(b"[^/" + inner[1:] + b"]" if inner[:1] in {b"!", b"^"} else b"[" + inner + b"]")
        else:
            parts.append(re.escape(token))
    start = rb"" if anchored else rb"(?:.*/)?"
    return re.compile(start + b"".join(parts) + rb"(?:/.*)?", re.DOTALL)
