"""What the workspace holds now, as a git tree, found with an index of our own.

The rule: the index is a cache. It remembers what each file was when last read, so that a snapshot
reads only what changed; losing it costs time and nothing else. Three files beside it are not a cache:
the patterns ignored at snapshot 0, the tree that HEAD had then, and what was left out then.
"""

# Names are bytes here, which pathlib cannot hold.
# ruff: noqa: PTH114, PTH118

from __future__ import annotations

import fcntl
import os
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from loopwright.errors import WorkspaceError
from loopwright.workspace import ignore, place, plumbing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from loopwright.workspace.ours import Copy, Ours

LARGEST_FILE = 50 * 1024 * 1024  # bytes
MOST_FILES = 100_000  # these two only where no repository says what belongs to the project
MOST_BYTES = 2 * 1024**3
LOCK_WAIT_S = 15.0  # for another reader or writer of the index, which hashes 2 GB in about 10 s
_MANY = 256  # from here on one sync for all new objects is cheaper than one for each


class _TooLargeError(Exception):
    """More than is snapshotted outside a repository."""


@dataclass(kw_only=True)
class _Found:
    """How the workspace differs from the index: paths to read, to take out, left out; bytes to read."""

    read: list[bytes] = field(default_factory=list)
    take_out: list[bytes] = field(default_factory=list)
    left_out: list[bytes] = field(default_factory=list)
    size: int = 0


class Index:
    """The index of one run: `now` is the tree of the workspace. One caller at a time, by a kernel lock."""

    def __init__(
        self,
        *,
        folder: Path,
        root: Path,
        git: plumbing.Call,
        ours: Ours,
        left_out: frozenset[bytes],
        copy: Copy | None = None,
    ) -> None:
        self._folder = folder
        self._root = root
        self._git = git
        self._users = ours.refs
        self._repository = ours.repository
        self._ours = left_out
        self._copy = copy
        self._index = folder / "index"
        self._exclude = folder / "exclude"
        self._head = folder / "head"
        self._first = folder / "left_out"  # at snapshot 0
        self._last: tuple[tuple[int, int], str] | None = None  # the index file as it was, and its tree

    def now(self) -> tuple[str, tuple[str, ...]]:
        """The tree of the workspace, its objects on disk, and the names left out of it.

        No ref keeps that tree yet. WorkspaceError when git fails twice, or when there is too much.
        """
        with self._alone() as git:
            for last in (False, False, True):
                try:
                    if last or not self._exclude.exists():
                        self._begin(git)
                    found = self._look(git)
                    if not self._first.exists():
                        plumbing.write_whole(self._first, b"\0".join(found.left_out))
                    return self._write(git, found), tuple(sorted(map(os.fsdecode, found.left_out)))
                except WorkspaceError:
                    # A file that changed its kind between two git processes is cured by looking again,
                    # a damaged index or an object that somebody pruned by beginning anew.
                    if last:
                        raise
                except _TooLargeError as error:
                    raise WorkspaceError(str(error)) from None
        raise AssertionError

    def new_secrets(self) -> tuple[str, ...]:
        """Secret-looking files that are left out now and were not at snapshot 0, sorted."""
        now = {os.fsencode(path) for path in self.now()[1]}
        new = now - set(self._first.read_bytes().split(b"\0"))
        return tuple(sorted(os.fsdecode(path) for path in new if ignore.is_secret(path)))

    def covers(self, path: bytes) -> bool:
        """False for paths whose content snapshots never look at, whatever HEAD or git say of them."""
        if ignore.is_secret(path) or path in self._ours or b".agent-state" in path.split(b"/"):
            return False
        return not any(parent in self._ours for parent in place.parents(path))

    @contextmanager
    def _alone(self) -> Iterator[plumbing.Call]:
        """Git, while nobody else works on the index."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(
                self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise WorkspaceError(
                f"{self._folder} cannot be written: {error.strerror or error}; resume makes it anew"
            ) from error
        try:
            self._wait_for(lock)
            # Held by us, so whoever made this file was killed.
            self._index.with_name("index.lock").unlink(missing_ok=True)
            yield replace(self._git, hold=lock)
        finally:
            os.close(lock)

    def _wait_for(self, lock: int) -> None:
        """Takes the lock; WorkspaceError when somebody else has it for too long."""
        end = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise WorkspaceError(
                        f"{self._folder / 'lock'} is held by another process for {LOCK_WAIT_S:.0f} s, so the snapshots "
                        "of this run cannot be made or read: end that process (fuser names it) and try again"
                    ) from None
            time.sleep(0.02)

    def _begin(self, git: plumbing.Call) -> None:
        """A fresh index: what HEAD has, each file read once. The first time, decide what is ignored."""
        self._index.unlink(missing_ok=True)
        self._last = None
        first = not self._exclude.exists()
        if first:
            plumbing.write_whole(self._head, self._tree_of_head())
        head = self._head.read_text()
        if head:
            git("read-tree", head)
            git("update-index", "-q", "--refresh", ok=(0, 1))
        else:
            git("read-tree", "--empty")
        if first:  # last, because this file says that all of the above is done
            plumbing.write_whole(self._exclude, self._patterns())

    def _tree_of_head(self) -> bytes:
        if self._copy is not None:
            return self._copy.tree.encode()
        if self._repository is None:
            return b""
        inner = self._root.relative_to(self._repository.top)
        # ":" takes the path as it is, "^{tree}" only a name; an unborn branch or a new folder has no tree.
        name = b"HEAD:" + os.fsencode(inner) if inner.parts else b"HEAD^{tree}"
        found = self._users("rev-parse", "--verify", "--quiet", name, ok=(0, 1, 128)).strip()
        if not found or self._users("cat-file", "-t", found).strip() != b"tree":
            return b""
        return found

    def _patterns(self) -> bytes:
        root, top = self._root, self._repository.top if self._repository else None
        if self._copy is not None and self._copy.mode == "folder":
            root = self._copy.project  # what was copied was what git sees there
        elif self._copy is not None:
            top = self._copy.top
        info = self._repository.shared / "info" / "exclude" if self._repository else None
        ours = b"".join(ignore.exactly(path) + b"\n" for path in sorted(self._ours))
        return ignore.frozen_patterns(root, top=top, info=info) + ours

    def _look(self, git: plumbing.Call) -> _Found:
        listed = git("ls-files", "-z", "-o", "-m", b"--exclude-from=" + os.fsencode(self._exclude))
        found = _Found()
        links: dict[bytes, bool] = {}
        for path in sorted(set(listed.split(b"\0")) - {b""}):
            if path.endswith(b"/"):
                found.left_out.append(path)  # a repository of its own
            elif ignore.is_secret(path):
                found.left_out.append(path)
            elif self.covers(path):
                self._sort(path, found, links)
        if self._repository is None and (len(found.read) > MOST_FILES or found.size > MOST_BYTES):
            raise _TooLargeError(
                f"{self._root} holds {len(found.read):,} files ({found.size / 1e9:.1f} GB) to snapshot; outside a "
                f"repository at most {MOST_FILES:,} files and {MOST_BYTES / 1e9:.1f} GB are. "
                "Run in the project's own folder, use git init, or list what does not belong in .gitignore"
            )
        return found

    def _sort(self, path: bytes, found: _Found, links: dict[bytes, bool]) -> None:
        full = os.path.join(os.fsencode(self._root), path)
        if any(self._is_link(parent, links) for parent in place.parents(path)):
            found.take_out.append(path)  # git looked through a link; what is there is not ours
            return
        try:
            seen = os.lstat(full)
        except OSError:
            found.read.append(path)  # gone: git takes it out
            return
        if stat.S_ISLNK(seen.st_mode) or stat.S_ISDIR(seen.st_mode):
            # Of a submodule git reads the commit; any other folder that it lists stands in a file's place.
            found.read.append(path)
        elif not stat.S_ISREG(seen.st_mode):
            found.take_out.append(path)  # a socket, a pipe
        elif seen.st_size > LARGEST_FILE or not os.access(full, os.R_OK):
            found.left_out.append(path)
        else:
            found.read.append(path)
            found.size += seen.st_size

    def _is_link(self, path: bytes, links: dict[bytes, bool]) -> bool:
        if path not in links:
            links[path] = os.path.islink(os.path.join(os.fsencode(self._root), path))
        return links[path]

    def _write(self, git: plumbing.Call, found: _Found) -> str:
        if not found.read and not found.take_out and self._last is not None and self._last[0] == self._sign():
            return self._last[1]
        if found.take_out:
            git("update-index", "-z", "--force-remove", "--stdin", stdin=b"\0".join(found.take_out))
        many = len(found.read) >= _MANY
        fsync = ("-c", "core.fsync=none") if many else ()
        if found.read:
            words = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
            git(*fsync, *words, stdin=b"\0".join(found.read))
        tree = git(*fsync, "write-tree").decode().strip()
        if many:
            os.sync()
        self._last = self._sign(), tree
        return tree

    def _sign(self) -> tuple[int, int]:
        seen = self._index.stat()  # git replaces the file whole, so another writer leaves another inode
        return seen.st_ino, seen.st_mtime_ns
