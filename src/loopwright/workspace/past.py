"""What trees that were snapshotted held: one file in several of them, and the whole change from one to another.

Rule: read from the objects, not from disk, so it is the same however often it is asked; and bounded, whatever an
agent has put there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from loopwright.workspace import earlier, plumbing

TEXT_BYTES: Final = 1_000_001  # of one file: enough to see that it is too large
PATCH_BYTES: Final = 32_000_000


def texts(git: plumbing.Call, path: str, trees: Iterable[str]) -> dict[str, bytes]:
    """The file's bytes (at most a megabyte and one) by the trees that have it."""
    asked = list(dict.fromkeys(trees))
    if not asked or "\n" in path:
        return {}
    lines = b"".join(f"{tree}:".encode() + os.fsencode(path) + b"\n" for tree in asked)
    blobs: dict[str, str] = {}
    for tree, line in zip(asked, git("cat-file", "--batch-check", stdin=lines).splitlines(), strict=True):
        words = line.split(b" ")
        if len(words) == 3 and words[1] == b"blob":
            blobs[tree] = words[0].decode()
    found = {
        blob: git.head("cat-file", "blob", blob, limit=TEXT_BYTES)[0]
        for blob in dict.fromkeys(blobs.values())
    }
    return {tree: found[blob] for tree, blob in blobs.items()}


def names(git: plumbing.Call, old: str, new: str) -> tuple[str, ...]:
    """The paths that differ between two trees."""
    listed = git("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new)
    return tuple(os.fsdecode(path) for path in listed.split(b"\0") if path)


def change(git: plumbing.Call, old: str, new: str) -> tuple[bytes, bytes, bool]:
    """`--raw -z` from one tree to another, and the patch of every file as text, cut after 32 MB; whether it is whole."""
    options = ("-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short")
    raw = git("diff-tree", *options, "--raw", "-z", old, new)
    patch, whole = git.head("diff-tree", *options, "-p", "-U0", "--text", old, new, limit=PATCH_BYTES)
    return raw, patch, whole


def entries(fields: Iterable[bytes]) -> Iterator[earlier.Entry]:
    """Each path that differs between two trees, and how the first and the second have it, from `diff-tree --raw -z`."""
    left = iter(fields)
    for item in left:
        if item:
            before, after, was, is_, _ = item.removeprefix(b":").split(b" ")
            yield next(left), b"%s %s" % (before, was), b"%s %s" % (after, is_)


def checkout(git: plumbing.Call, tree: str, folder: Path, old: earlier.Old | None = None) -> None:
    """Writes the files of a tree into a folder that is new or empty, by an index of its own beside it.

    With `old` tests in the place of those of the tree; then what no snapshot holds is linked, too.
    """
    own = replace(
        git, env={**git.env, "GIT_INDEX_FILE": os.fsencode(folder.with_name(f"{folder.name}.index"))}
    )
    own("read-tree", tree)
    if old is not None:
        own("update-index", "--replace", "-z", "--index-info", stdin=earlier.index_lines(old))
    own("checkout-index", "--all", "--quiet", b"--prefix=" + os.fsencode(folder) + b"/")
    if old is not None:
        listed = own("ls-files", "-z", "-s").split(b"\0")
        inner = [line.partition(b"\t")[2] for line in listed if line.startswith(earlier.REPOSITORY)]
        left_out = git("ls-files", "-z", "-o", "--directory").split(b"\0")
        earlier.link_left_out(filter(None, [*inner, *left_out]), git.cwd, folder, old.counts)
