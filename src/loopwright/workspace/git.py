"""Snapshots of a workspace, what changed between them, and the way back.

The rule: the user's branch, HEAD, index, stash and uncommitted work are never written. A snapshot is a
tree made with a git dir and an index of our own over the user's objects, and lives as long as its ref
`refs/loopwright/<run>/<n>`. What a snapshot leaves out, nothing here ever touches.

Left out: what was ignored at snapshot 0 (unless HEAD had it), tool litter, secret-looking names, files
above 50 MB, unreadable files, our own output files, the state folder. A path left out keeps the content
that snapshots last had for it (HEAD's, or none). Repositories inside: a submodule of HEAD is recorded as the
commit it stands at and never written; of any other the files are kept like all files, and its `.git` never is.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loopwright.errors import Conflict, WorkspaceError
from loopwright.workspace import ignore, past, place, plumbing
from loopwright.workspace.index import LARGEST_FILE, Index
from loopwright.workspace.ours import BRING_BACK, Copy, Ours, check_place, note_place, open_ours

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loopwright.workspace.earlier import Entry, Old

PATCH_BYTES = 1024 * 1024
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TREE = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_GITLINK = "160000"
_LINK = "120000"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A tree id (equal content, equal id), and what was left out because secret, huge, unreadable or a repository."""

    tree: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """One changed path: status A, M, D or T (another kind of file), and lines (0 for binary content).

    A renamed file is a D and an A. The path is relative to the root, as `os.fsdecode` gives it.
    """

    path: str
    status: str
    added: int
    removed: int


@dataclass(frozen=True, kw_only=True)
class Diff:
    """What changed between two trees: the files, and a patch of at most 1 MB that says where it was cut."""

    files: tuple[FileChange, ...]
    text: str

    @property
    def added(self) -> int:
        """Lines added."""
        return sum(file.added for file in self.files)

    @property
    def removed(self) -> int:
        """Lines removed."""
        return sum(file.removed for file in self.files)

    @property
    def paths(self) -> tuple[str, ...]:
        """The names of the files, from the root."""
        return tuple(file.path for file in self.files)

    @property
    def lines(self) -> int:
        """Lines added and lines removed."""
        return self.added + self.removed


@dataclass(frozen=True, kw_only=True)
class _Change:
    path: bytes
    status: str
    mode: str  # in the new tree
    blob: str


def open_git(
    root: Path,
    state: Path,
    run: str,
    *,
    outputs: tuple[Path, ...] = (),
    beside: tuple[str, ...] = (),
    copy: Copy | None = None,
    aside: bool = False,
) -> Git:
    """Snapshots of the folder `root` for one run; `state` is the project's `.agent-state`, made when missing.

    `outputs` are regular files our own stdout and stderr are open on, `beside` others below the root that are left
    out. With `copy`, `root` is that copy of a project and not the project itself. `aside`: see `open_ours`. Nothing
    else in the workspace is written. WorkspaceError: no git ≥ 2.30 on PATH, not a folder, an unusable repository or run id.
    """
    if not _RUN.fullmatch(run) or ".." in run or run.endswith((".", ".lock")):
        raise WorkspaceError(f"{run!r} cannot name a run: letters, digits, '.', '_' and '-', at most 64")
    root = root.resolve()
    if not root.is_dir():
        raise WorkspaceError(f"{root} is not a folder")
    ours = open_ours(copy.project if copy else root, state, aside=aside)
    folder = ours.own / ("copies" if copy else "runs") / run
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise WorkspaceError(f"{folder} cannot be written: {error.strerror or error}") from error
    inside = [path.resolve() for path in (*outputs, state)]
    left_out = {
        os.fsencode(path.relative_to(root)) for path in inside if path != root and path.is_relative_to(root)
    }
    left_out |= {os.fsencode(path) for path in (*beside, *(copy.links if copy else ()))}
    check_place(ours, folder, run)
    git = ours.call(root, folder / "index")
    index = Index(folder=folder, root=root, git=git, ours=ours, left_out=frozenset(left_out), copy=copy)
    return Git(root=root, run=run, folder=folder, git=git, ours=ours, index=index)


class Git:
    """The snapshots of one run in one workspace; made by `open_git`. Every call blocks; threads may share it."""

    def __init__(
        self,
        *,
        root: Path,
        run: str,
        folder: Path,
        git: plumbing.Call,
        ours: Ours,
        index: Index,
    ) -> None:
        self.root = root
        self.ours = ours
        self._run = run
        self._folder = folder
        self._git = git
        self._users = ours.refs
        self._index = index
        self._objects = ours.objects
        self._placed = False

    def snapshot(self, n: int) -> Snapshot:
        """The workspace as it is now, kept as snapshot `n` (again: replaced), on disk when this returns.

        WorkspaceError when git fails, or outside a repository when there is too much to keep.
        """
        taken = self.now()
        self.keep(n, taken.tree)
        return taken

    def now(self) -> Snapshot:
        """The workspace as it is now, its objects on disk but kept by no ref: see `keep`."""
        tree, left_out = self._index.now()
        return Snapshot(tree=tree, left_out=left_out)

    def keep(self, n: int | str, tree: str) -> None:
        """Keep a tree that git has as snapshot `n` of this run; a word instead of a number is no snapshot of it."""
        try:
            commit = plumbing.write_commit(self._objects, _tree(tree))
        except OSError as error:
            raise WorkspaceError(f"{self._objects} cannot be written: {error.strerror or error}") from error
        if not self._placed:
            note_place(self.ours, self._folder)
            self._placed = True
        self.ours.keep(f"{self._run}/{n}", commit)

    def trees(self) -> dict[int, str]:
        """The tree of each snapshot of this run that is kept."""
        prefix = f"refs/loopwright/{self._run}/"
        listed = self._users("for-each-ref", "--format=%(refname) %(tree)", prefix).decode()
        pairs = [line.removeprefix(prefix).split(" ") for line in listed.splitlines()]
        numbered = sorted((int(n), tree) for n, tree in pairs if n.isdecimal())  # the rest is no snapshot
        return dict(numbered)

    def forget(self) -> None:
        """Drop the refs of this run; its snapshots go when git next cleans the repository up."""
        named = self._users("for-each-ref", "--format=delete %(refname)", f"refs/loopwright/{self._run}/")
        self._users("update-ref", "--stdin", stdin=named)
        shutil.rmtree(self._folder, ignore_errors=True)

    def matches(self, tree: str) -> bool:
        """True when the workspace is now as this tree says, as far as snapshots look."""
        return self._index.now()[0] == tree

    def diff(self, old: str, new: str | None = None) -> Diff:
        """What changed from one tree to another, or to the workspace as it is now."""
        ids = _tree(old), _tree(new) if new is not None else self._index.now()[0]
        fields = iter(self._compared("--numstat", *ids))
        statuses: dict[bytes, str] = {}
        counts: dict[bytes, tuple[int, int]] = {}
        for item in fields:
            if item.startswith(b":"):
                statuses[next(fields)] = item.rpartition(b" ")[2].decode()
            elif item:
                added, removed, path = item.split(b"\t", 2)
                counts[path] = (int(added), int(removed)) if added != b"-" else (0, 0)
        files = tuple(
            FileChange(path=os.fsdecode(path), status=status, added=counts[path][0], removed=counts[path][1])
            for path, status in statuses.items()
        )
        options = "-r -p --no-renames --no-ext-diff --no-textconv --no-color --submodule=short".split()  # noqa: SIM905 - legible
        patch, whole = (
            self._git.head("diff-tree", *options, *ids, limit=PATCH_BYTES) if files else (b"", True)
        )
        text = patch.decode(errors="replace")
        if not whole:
            text = (
                text.rpartition("\n")[0]
                + f"\n[cut after {PATCH_BYTES:,} bytes; {len(files):,} files changed in all]\n"
            )
        return Diff(files=files, text=text)

    def checkout(self, tree: str, folder: Path, old: Old | None = None) -> None:
        """The files of `tree` in a folder that is new or empty (see `past.checkout`); the workspace is not touched."""
        past.checkout(self._git, _tree(tree), folder, old)

    def entries(self, old: str, new: str) -> Iterator[Entry]:
        """How two trees have what differs between them: see `past.entries`."""
        return past.entries(self._compared(_tree(old), _tree(new)))

    def _compared(self, *words: str) -> list[bytes]:
        """How two trees, the last of the words, differ; WorkspaceError naming one that is lost."""
        try:
            return self._git("diff-tree", "-r", "-z", "--no-renames", "--raw", *words).split(b"\0")
        except WorkspaceError:
            for tree in words[-2:]:
                if self._git("cat-file", "-t", tree, ok=(0, 1, 128)).strip() != b"tree":
                    raise WorkspaceError(
                        f"snapshot {tree[:12]} is not in {self._objects} any more: {BRING_BACK}"
                    ) from None
            raise

    def texts(self, path: str, trees: Iterable[str]) -> dict[str, bytes]:
        """One file's bytes in each tree that has it: see `past.texts`."""
        return past.texts(self._git, path, map(_tree, trees))

    def names(self, old: str, new: str) -> tuple[str, ...]:
        """The paths that differ between two trees."""
        return past.names(self._git, _tree(old), _tree(new))

    def change(self, old: str, new: str) -> tuple[bytes, bytes, bool]:
        """Everything that differs between two trees: see `past.change`."""
        return past.change(self._git, _tree(old), _tree(new))

    def new_secrets(self) -> tuple[str, ...]:
        """Secret-looking files that are left out now and were not there at snapshot 0, sorted."""
        return self._index.new_secrets()

    def restore(
        self, tree: str, *, paths: tuple[str, ...] | None = None, since: str | None = None
    ) -> tuple[str, ...]:
        """Make the workspace (or only these files and folders of it) as `tree` says; the paths it changed.

        Each file is replaced in one step. Files that snapshots leave out stay as they are, also where the
        tree has another text for them. WorkspaceError, after all the rest is done, naming the files that
        could not be put because something left out stands where they or their folders must be. Conflict, and
        nothing is changed, when the workspace is no longer as the tree `since` says.
        """
        now = self._index.now()[0]
        if since is not None and now != since:
            raise Conflict(self._moved_on(since, now))
        wanted = None if paths is None else [os.fsencode(os.path.normpath(path)) for path in paths]
        changes = [change for change in self._changes(now, _tree(tree)) if self._may_change(change, wanted)]
        removed = [change.path for change in changes if change.status == "D"]
        written = [change for change in changes if change.status != "D"]
        blocked: list[bytes] = []
        try:
            changed = [path for path in removed if place.drop(self.root, path)]
            place.prune(self.root, changed, [change.path for change in written])
            for change, content in self._contents(written):
                (changed if self._put(change, content) else blocked).append(change.path)
        except OSError as error:
            raise WorkspaceError(
                f"{self.root} is only partly restored ({error}): restore again to go on"
            ) from error
        if blocked:
            names = ", ".join(repr(os.fsdecode(path)) for path in blocked[:20])
            raise WorkspaceError(
                f"all is restored but {names}: what stands there is in no snapshot, move it away"
            )
        return tuple(sorted(map(os.fsdecode, changed)))

    def _moved_on(self, since: str, now: str) -> str:
        names = [repr(path) for path in self.diff(since, now).paths]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return (
            f"nothing was changed: {', '.join(names[:5])}{more} changed in {self.root} meanwhile; "
            "do it again when nothing writes there"
        )

    def _may_change(self, change: _Change, wanted: list[bytes] | None) -> bool:
        path = change.path
        if wanted is not None and not {b".", path, *place.parents(path)} & set(wanted):
            return False
        if not self._index.covers(path):
            return False
        standing = place.look(self.root, path)
        if standing is None or stat.S_ISDIR(standing.st_mode):
            return True
        # Not in the tree of now and yet there, or there and huge: it was left out of that tree.
        return change.status != "A" and not (
            stat.S_ISREG(standing.st_mode) and standing.st_size > LARGEST_FILE
        )

    def _put(self, change: _Change, content: bytes) -> bool:
        standing = place.look(self.root, change.path)
        if standing is not None and stat.S_ISREG(standing.st_mode):
            mode = stat.S_IMODE(standing.st_mode)
        else:
            mode = 0o666 & ~_umask()
        mode = mode | (mode & 0o444) >> 2 if change.mode == "100755" else mode & ~0o111
        try:
            place.put(self.root, change.path, content, mode=mode, link=change.mode == _LINK)
        except (IsADirectoryError, NotADirectoryError):
            return False
        return True

    def _changes(self, old: str, new: str) -> Iterator[_Change]:
        """How files differ; gitlinks are passed over, their folders belong to other repositories."""
        fields = iter(self._compared(old, new))
        for item in fields:
            if item:
                before, mode, _, blob, status = item.decode().removeprefix(":").split(" ")
                path = next(fields)
                if _GITLINK not in {before, mode}:
                    yield _Change(path=path, status=status, mode=mode, blob=blob)

    def _contents(self, changes: list[_Change]) -> Iterator[tuple[_Change, bytes]]:
        """Each change with its new content; git is asked for a few at a time, for the sake of memory."""
        for start in range(0, len(changes), 32):
            batch = changes[start : start + 32]
            output = self._git(
                "cat-file", "--batch", stdin="".join(f"{change.blob}\n" for change in batch).encode()
            )
            at = 0
            for change in batch:
                end = output.index(b"\n", at)
                words = output[at:end].split(b" ")
                if words[-1] == b"missing":
                    raise WorkspaceError(
                        f"the text of {os.fsdecode(change.path)!r} is no longer in the repository"
                    )
                at = end + 1 + int(words[2])
                yield change, output[end + 1 : at]
                at += 1


def fingerprint(root: Path, *, most: int = 20_000) -> tuple[int, int]:
    """A cheap sign of life: how many entries the folder has and its newest change time (ns), of the first `most`.

    Equal values say that probably nothing changed. Tool litter and `.git` are not looked at.
    """
    count, newest = 0, 0
    folders = [os.fspath(root)]
    while folders and count < most:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name)
                    if name == b".git" or ignore.is_litter(name):
                        continue
                    count += 1
                    newest = max(newest, entry.stat(follow_symlinks=False).st_mtime_ns)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError:
            continue  # vanished while we looked: the count says so
    return count, newest


def _tree(tree: str) -> str:
    if not _TREE.fullmatch(tree):
        raise WorkspaceError(f"{tree!r} is not the id of a snapshot")
    return tree


def _umask() -> int:
    # os.umask can only be read by setting it, which other threads would notice.
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    return 0o022
