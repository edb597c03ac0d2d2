"""Tests as they were at the start: which of the files that an agent may change are tests, and their old text.

Rule: old is how snapshot 0 has a file, or how the user last left it: a person's edit is the new truth. Old tests are
old ones alone: what was added since is taken away, so that nothing new helps them to pass.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from loopwright.workspace import ignore, runners

Entry = tuple[bytes, bytes, bytes]  # a path, and how the first and the second tree have it: `mode blob`

REPOSITORY: Final = b"160000 "  # how a submodule is entered: a commit, no files
_TOOLS: Final = frozenset({b".venv", b"node_modules"})
_MOST_LINKS: Final = 10_000


def is_test(path: bytes) -> bool:
    """Whether a file is called like a test, or lies in a folder that is."""
    *folders, name = os.fsdecode(path).split("/")
    return bool(runners.TEST_FOLDERS.intersection(folders)) or any(
        fnmatch.fnmatchcase(name, pattern) for pattern in (*runners.TEST_NAMES, "conftest.py")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Old:
    """Tests that are not as they were: how each was (`mode blob`), and which files `counts` takes for such tests."""

    entries: Mapping[bytes, bytes]
    counts: Callable[[bytes], bool]

    @property
    def paths(self) -> tuple[str, ...]:
        """Their names, sorted."""
        return tuple(os.fsdecode(path) for path in sorted(self.entries))


def old_tests(
    differ: Callable[[str, str], Iterable[Entry]],
    base: str,
    now: str,
    edits: Sequence[tuple[str, str]],
    counts: Callable[[bytes], bool],
    stay: Collection[bytes] = (),
) -> Old | None:
    """The tests that `counts` names and that are not in `now` as they were; `None` where there are no old ones to run.

    `differ` compares two trees; `edits` are the user's since `base`, from tree to tree. New files of `stay` are left.
    """
    old: dict[bytes, bytes] = {}
    present: dict[bytes, bytes] = {}
    for path, is_, was in differ(now, base):
        if counts(path):
            old[path], present[path] = was, is_
    for before, after in edits:
        old.update((path, left) for path, _, left in differ(before, after) if counts(path))
    changed = {
        path: was
        for path, was in old.items()
        if present.get(path) != was and not was.startswith(REPOSITORY) and not (path in stay and _gone(was))
    }
    if not changed:
        return None
    there = any(not _gone(was) for was in changed.values()) or any(
        counts(path) and path not in changed for path, *_ in differ(_empty(base), base)
    )
    return Old(entries=changed, counts=counts) if there else None


def index_lines(old: Old) -> bytes:
    """What `git update-index -z --index-info` reads to put them in their place, removals first."""
    ordered = sorted(old.entries.items(), key=lambda item: not _gone(item[1]))
    return b"".join(b"%s\t%s\0" % (entry, path) for path, entry in ordered)


def _gone(entry: bytes) -> bool:
    return entry.startswith(b"000000 ")


def _empty(like: str) -> str:
    """The id of the tree without files, which git has always."""
    return hashlib.new("sha1" if len(like) == 40 else "sha256", b"tree 0\0").hexdigest()


def link_left_out(
    left_out: Iterable[bytes], root: Path, folder: Path, counts: Callable[[bytes], bool]
) -> None:
    """Links in `folder`, a checkout, to what the workspace has and no snapshot holds: built files, tools, data.

    Not to litter, nor to the files that count: those are in it as they were.
    """
    inside = folder.resolve()
    for path in islice(left_out, _MOST_LINKS):
        parts = path.rstrip(b"/").split(b"/")
        if {b".git", b".agent-state"}.intersection(parts) or counts(path):
            continue
        if ignore.is_litter(parts[-1]) and parts[-1] not in _TOOLS:
            continue
        name = os.fsdecode(path)
        link = inside / name
        if not link.parent.resolve().is_relative_to(inside):
            continue  # behind a link that leads out
        if link.is_dir() and not link.is_symlink() and not any(link.iterdir()):
            link.rmdir()  # how git checks out a submodule
        if os.path.lexists(link):
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(root / name)
