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
import re
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from loopwright.errors import WorkspaceError
from loopwright.workspace import ignore, place, plumbing
from loopwright.workspace.ours import BRING_BACK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from loopwright.workspace.ours import Copy, Ours

LARGEST_FILE = 50 * 1024 * 1024  # bytes
MOST_FILES = 100_000  # these two only where no repository says what belongs to the project
MOST_BYTES = 2 * 1024**3
LOCK_WAIT_S = 15.0  # for another reader or writer of the index, which hashes 2 GB in about 10 s
_SEED = b".loopwright-seed.tmp"
_CLOSED = re.compile(rb"could not open directory '([^'\n]+)")
_DEEPEST = 32  # folders above a repository inside that is looked into
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
        self._sound = ours.sound
        self._ours = left_out
        self._copy = copy
        self._index = folder / "index"
        self._exclude = folder / "exclude"
        self._head = folder / "head"
        self._closed: set[bytes] = set()  # repositories inside that are too large
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
                    self._check_pipes()
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
        self._sound()
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
            try:
                git("read-tree", head)
            except WorkspaceError:
                if git("cat-file", "-t", head, ok=(0, 1, 128)).strip() == b"tree":
                    raise
                raise WorkspaceError(
                    f"what HEAD had when the run began is not in the repository of {self._root} any more: {BRING_BACK}"
                ) from None
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
        found = _Found()
        links: dict[bytes, bool] = {}
        for path in sorted(self._listed(git)):
            if path.endswith(b"/"):
                found.left_out.append(path)  # a repository that is too large or deep, a folder closed to us
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

    def _check_pipes(self) -> None:
        """Git reads attributes where a file stands, and waits for a pipe until we lose patience; so that it is said why."""
        for folder, _, names in os.walk(os.fsencode(self._root)):
            path = os.path.join(folder, b".gitattributes")
            with suppress(OSError):
                if b".gitattributes" in names and not stat.S_ISREG(os.lstat(path).st_mode):
                    raise WorkspaceError(
                        f"{os.fsdecode(path)} is no file, and git would wait for it: remove it"
                    )

    def _listed(self, git: plumbing.Call) -> set[bytes]:
        """What differs from the index, and what is not in it. Repositories inside are looked into, but not their `.git`.

        Git passes over a folder that is a repository unless its index has a file in there: so it is given one, which
        is not on disk and is taken out with all that is gone.
        """
        words = ("ls-files", "-z", "-o", "-m", b"--exclude-from=" + os.fsencode(self._exclude))
        listed, closed = _asked(git, words)
        while (
            nested := {path for path in listed if path.endswith(b"/") and path.count(b"/") <= _DEEPEST}
            - self._closed
        ):
            some = git("hash-object", "--stdin").strip()
            seeds = (b"100644 %s\t%s%s" % (some, path, _SEED) for path in sorted(nested))
            git("update-index", "-z", "--index-info", stdin=b"\0".join(seeds) + b"\0")
            listed, closed = _asked(git, words)
            self._closed |= {folder for folder in nested if self._is_large(_inside(folder, listed))}
            for folder in self._closed:
                inside = _inside(folder, listed)
                listed = listed - inside | {folder} | (inside & {folder + _SEED})
        return listed | closed

    def _is_large(self, paths: set[bytes]) -> bool:
        if len(paths) > MOST_FILES:
            return True
        size = 0
        for path in paths:
            with suppress(OSError):
                size += os.lstat(os.path.join(os.fsencode(self._root), path)).st_size
        return size > MOST_BYTES

    def _sort(self, path: bytes, found: _Found, links: dict[bytes, bool]) -> None:
        full = os.path.join(os.fsencode(self._root), path)
        if any(self._is_link(parent, links) for parent in place.parents(path)):
            found.take_out.append(path)  # git looked through a link; what is there is not ours
            return
        try:
            seen = os.lstat(full)
        except (FileNotFoundError, NotADirectoryError):
            found.read.append(path)  # gone: git takes it out
            return
        except OSError:
            found.left_out.append(path)  # behind a folder that is closed to us
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


def _asked(git: plumbing.Call, words: tuple[str | bytes, ...]) -> tuple[set[bytes], set[bytes]]:
    """The paths that git lists, and the folders that it could not look into: closed to us, or too deep for any name."""
    listed, warned = git.told(*words)
    folders = {_brief(folder.rstrip(b"/") + b"/") for folder in _CLOSED.findall(warned)}
    return set(listed.split(b"\0")) - {b""}, folders


def _brief(folder: bytes) -> bytes:
    return folder if len(folder) <= 200 else folder[:200].rpartition(b"/")[0] + b"/.../"


def _inside(folder: bytes, paths: set[bytes]) -> set[bytes]:
    return {path for path in paths if path.startswith(folder)}
