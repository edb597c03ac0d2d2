"""Bringing the changes of one tree into another that moved on meanwhile.

Rule: three-way and file by file, without anybody's merge driver. What only one side changed is taken; what both
changed in different lines is joined; anything else is a conflict, and then nothing at all is changed.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loopwright.errors import WorkspaceError
from loopwright.workspace import place
from loopwright.workspace.plumbing import Call

FILES: Final = frozenset({"100644", "100755"})


@dataclass(frozen=True, slots=True)
class Entry:
    """What a tree has at a path."""

    mode: str
    blob: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What must change in the tree it is brought into (`None`: goes), and the paths that nobody can join."""

    changes: Mapping[bytes, Entry | None]
    conflicts: tuple[bytes, ...]


def merge(git: Call, *, old: str, new: str, mine: str) -> Merged:
    """The changes that lead from `mine` to what it would be had the step from `old` to `new` been made there.

    A file whose line ends differ between the sides (CRLF in a checkout, LF in a commit) keeps those of `mine`.
    """
    have = _entries(git, mine)
    changes: dict[bytes, Entry | None] = {}
    conflicts: list[bytes] = []
    for path, before, after in _steps(git, old, new):
        now = have.get(path)
        if now == after:
            continue
        if now == before:
            changes[path] = after
        elif now and before and after and {now.mode, before.mode, after.mode} <= FILES:
            joined = _join(git, now, before, after)
            if joined is None:
                conflicts.append(path)
            elif joined != now:
                changes[path] = joined
        else:
            conflicts.append(path)
    left = {path for path in {**have, **changes} if changes.get(path, have.get(path)) is not None}
    folders = {parent for path in left for parent in place.parents(path)}
    for path, entry in changes.items():
        if entry is not None and (path in folders or left & set(place.parents(path))):
            conflicts.append(path)  # a file where the other side has a folder
    return Merged(changes=changes, conflicts=tuple(sorted(set(conflicts))))


def written(git: Call, tree: str, changes: Mapping[bytes, Entry | None], *, inner: bytes = b"") -> str:
    """The tree with these changes made below its folder `inner` (which ends in `/`)."""
    with tempfile.TemporaryDirectory(prefix="loopwright-") as folder:
        own = Call(program=git.program, env={**git.env, "GIT_INDEX_FILE": f"{folder}/index"}, cwd=git.cwd)
        own("read-tree", tree)
        gone = [
            b"0 %s\t%s" % (b"0" * len(tree), inner + path) for path, entry in changes.items() if not entry
        ]
        put = [
            b"%s %s\t%s" % (entry.mode.encode(), entry.blob.encode(), inner + path)
            for path, entry in changes.items()
            if entry
        ]
        own("update-index", "-z", "--index-info", stdin=b"".join(line + b"\0" for line in (*gone, *put)))
        return own("write-tree").decode().strip()


def _entries(git: Call, tree: str) -> dict[bytes, Entry]:
    found = {}
    for item in git("ls-tree", "-r", "-z", tree).split(b"\0"):
        if item:
            about, _, path = item.partition(b"\t")
            mode, _, blob = about.decode().split(" ")
            found[path] = Entry(mode, blob)
    return found


def _steps(git: Call, old: str, new: str) -> list[tuple[bytes, Entry | None, Entry | None]]:
    """Each path in which two trees differ, with what they have there."""
    fields = iter(git("diff-tree", "-r", "-z", "--no-renames", "--raw", old, new).split(b"\0"))
    steps = []
    for item in fields:
        if item:
            before, after, was, blob, _ = item.decode().removeprefix(":").split(" ")
            steps.append((next(fields), _entry(before, was), _entry(after, blob)))
    return steps


def _entry(mode: str, blob: str) -> Entry | None:
    return Entry(mode, blob) if mode.strip("0") else None


def _join(git: Call, now: Entry, before: Entry, after: Entry) -> Entry | None:
    """Both sides' changes of one file in one, or `None`."""
    mine, old, new = (git("cat-file", "blob", each.blob) for each in (now, before, after))
    if _crlf(mine) != _crlf(old):
        old, new = (_with_ends_of(mine, each) for each in (old, new))
    if mine == old:
        text = new
    elif new in {old, mine}:
        text = mine
    else:
        with tempfile.TemporaryDirectory(prefix="loopwright-") as folder:
            files = [Path(folder, name) for name in ("mine", "old", "new")]
            for file, content in zip(files, (mine, old, new), strict=True):
                file.write_bytes(content)
            try:
                text = git("merge-file", "-p", "-q", *map(str, files))
            except WorkspaceError:  # its exit code counts the conflicts, or says that it is no text
                return None
    blob = git("hash-object", "-w", "--stdin", "--no-filters", stdin=text).decode().strip()
    return Entry(after.mode if now.mode == before.mode else now.mode, blob)


def _crlf(text: bytes) -> bool:
    return b"\r\n" in text and b"\0" not in text and re.search(rb"(?<!\r)\n", text) is None


def _with_ends_of(mine: bytes, text: bytes) -> bytes:
    if b"\0" in text:
        return text
    text = text.replace(b"\r\n", b"\n")
    return text.replace(b"\n", b"\r\n") if _crlf(mine) else text
