"""The workspace of one run: its folder, snapshots and evidence, as the host uses them.

Rule: nothing here moves the user's own folder backwards except putting evidence back, and what it is
replaced by is kept in a snapshot first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loopwright.errors import NotStartable, WorkspaceError
from loopwright.ports import Changes, Past
from loopwright.workspace import protect
from loopwright.workspace.earlier import Old, old_tests
from loopwright.workspace.evidence import Evidence, Touched, copied, touched
from loopwright.workspace.git import Diff, Git, fingerprint, open_git
from loopwright.workspace.none import Unrecorded
from loopwright.workspace.ours import Copy, Mode, began
from loopwright.workspace.plumbing import write_whole

TOOLS: Final = (".venv", "node_modules")  # a pristine checkout has none of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The workspace at one moment: its tree and the digest of its evidence."""

    tree: str | None
    evidence: str | None
    left_out: tuple[str, ...] = ()


class Workspace:
    """The folder an agent works in; calls block and may come from any thread. Those that only read may overlap.

    `recorded`: snapshots are made. `watched`: there is anything to look at, snapshots or evidence. `apart`: the folder
    is the run's own and may be moved backwards. `frees`: the agent may change what would be evidence.
    """

    def __init__(self, mode: Mode, kept: Git | Unrecorded, evidence: Evidence, copies: Path) -> None:
        self.mode = mode
        self.root = kept.root
        self.recorded = isinstance(kept, Git)
        self.watched = self.recorded or evidence.there
        self.apart = mode in {"worktree", "folder"}
        self.frees = evidence.frees
        self.problem = ""
        self._kept = kept
        self._set = evidence
        self._copies = copies
        self._own_list = copies.parent / "gate-files.json"
        self._under_way = copies.parent / "restoring"
        self._own: frozenset[str] | None = None
        self._evidence: dict[str, str] | None = None  # the true one, once it is known
        self.trusted: str | None = None  # its digest
        self._tree: str | None = None
        self._next = 0

    def look(self) -> Look:
        """The workspace as it is now, kept as a snapshot when it is a new one."""
        evidence = protect.digest(self._set.now(self._evidence)) if self._set.there else None
        if not isinstance(self._kept, Git):
            return Look(tree=None, evidence=evidence)
        seen = self._kept.now()
        if seen.tree != self._tree:
            if not self._next:
                self._next = max(self._kept.trees(), default=-1) + 1
            self._kept.keep(self._next, seen.tree)
            self._next += 1
            self._tree = seen.tree
        return Look(tree=seen.tree, evidence=evidence, left_out=seen.left_out)

    def trust(self) -> str | None:
        """Takes the evidence as it is now, new files too, for the true one; its digest."""
        if not self._set.there:
            return None
        self._evidence = None
        digest = self.keep()
        self.remember(digest)
        return digest

    def keep(self) -> str:
        """The digest of the evidence as it is now, copied so that it can be trusted under it later."""
        seen = self._set.now(self._evidence)
        digest = protect.digest(seen)
        try:
            protect.keep_copies(self.root, copied(seen), self._copies)
            write_whole(self._copies / f"{digest}.json", json.dumps(seen).encode())
        except OSError as error:
            raise WorkspaceError(
                f"the evidence files cannot be copied to {self._copies}: {error.strerror or error}"
            ) from error
        return digest

    def unmatched(self) -> tuple[str, ...]:
        """The globs that protect nothing: a slip of the pen, or files to come."""
        return self._set.unmatched()

    def remember(self, digest: str | None) -> None:
        """Takes the evidence recorded under `digest` for the true one (after a resume)."""
        if not self._set.there or digest is None:
            return
        try:
            known = json.loads((self._copies / f"{digest}.json").read_text(encoding="utf-8"))
            if protect.digest(known) != digest:
                raise ValueError("it was changed")
        except (OSError, ValueError) as error:
            raise WorkspaceError(
                f"the record of the evidence files is lost ({error}); start a new run"
            ) from None
        self._evidence, self.trusted = self._set.of(known), digest

    def touched(self) -> Touched:
        """How the evidence differs from the true one."""
        if self._evidence is None:
            return Touched()
        return touched(self._evidence, self._set.now(self._evidence))

    def copied(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Those of these paths that can be put back: not new ones, nor shared files."""
        known = copied(self._evidence or {})
        return tuple(path for path in paths if path in known)

    def put_back(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Puts evidence back as it was; the paths that changed."""
        known = copied(self._evidence or {})
        return tuple(map(shown, protect.put_back(self.root, self._copies, known, paths)))

    def after_gate(self, tree: str) -> tuple[tuple[str, ...], str]:
        """The files of `tree` that a gate changed or deleted, and the tree now.

        New files are the gate's own: it may write them again, also after a resume.
        """
        if not isinstance(self._kept, Git) or (now := self._kept.now().tree) == tree:
            return (), tree
        files = self._kept.diff(tree, now).files
        new = {shown(f.path) for f in files if f.status == "A"} - self._gates_own()
        if new:
            self._own = self._gates_own() | new
            self._own_list.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._own_list, json.dumps(sorted(self._own)).encode())
        theirs = (shown(f.path) for f in files if f.status != "A")
        return tuple(path for path in theirs if path not in self._gates_own()), now

    def edited(self, old: str | None, new: str | None) -> bool:
        """Whether the step between two trees is more than files that gates have left."""
        if old is None or new is None or old == new:
            return False
        changed = self._kept.diff(old, new)
        return changed is None or not {shown(path) for path in changed.paths} <= self._gates_own()

    def moved(self, tree: str | None) -> bool:
        """Whether the workspace differs from `tree` in more than the files that gates left."""
        return isinstance(self._kept, Git) and tree is not None and self.edited(tree, self._kept.now().tree)

    def _gates_own(self) -> frozenset[str]:
        if self._own is None:
            try:
                self._own = frozenset(json.loads(self._own_list.read_text(encoding="utf-8")))
            except (OSError, ValueError):  # none yet; a lost list costs one more error of a gate
                self._own = frozenset()
        return self._own

    def diff(self, old: str | None, new: str | None = None) -> Diff | None:
        """What changed from one tree to another, or to now; `None` where nothing is recorded."""
        return None if old is None else self._kept.diff(old, new)

    def old_tests(
        self, base: str | None, now: str | None, edits: Sequence[tuple[str, str]], new: Collection[str] = ()
    ) -> Old | None:
        """The tests of `may_change` that are not as they were at `base`, or as the user left them; `None` for none.

        What gates left and the `new` files among these paths are not taken away.
        """
        if not self._set.frees or not isinstance(self._kept, Git) or now is None or base in {None, now}:
            return None
        stay = {*map(os.fsencode, self._gates_own()), *map(os.fsencode, new)}
        return old_tests(self._kept.entries, str(base), now, edits, self._set.free_test, stay)

    def checkout(self, tree: str | None, folder: Path, old: Old | None = None) -> None:
        """A pristine checkout of `tree` in a new folder, with links to the tools that stand in the workspace.

        With the `old` tests in the place of those of the tree. NotStartable where there are no snapshots to make it of.
        """
        if tree is None or not isinstance(self._kept, Git):
            raise NotStartable(
                f"clean = true needs snapshots of the work, and there are none: {self.problem}"
            )
        folder.mkdir(mode=0o700)
        self._kept.checkout(tree, folder, old)
        for name in TOOLS:
            if (self.root / name).is_dir() and not os.path.lexists(folder / name):
                (folder / name).symlink_to(self.root / name)

    def past(
        self,
        path: str,
        *,
        now: str | None,
        began: str | None,
        base: str | None,
        edits: Sequence[tuple[str, str]],
    ) -> Past | None:
        """One file at these trees; `None` where nothing is recorded. `edits` are the user's, from tree to tree."""
        if not isinstance(self._kept, Git) or now is None or base is None:
            return None
        began = began or now
        held = self._kept.texts(path, (now, began, base, *(tree for edit in edits for tree in edit)))
        left = held.get(base)
        for before, after in edits:
            if held.get(before) != held.get(after):
                left = held.get(after)
        others = set(self._kept.names(began, now)) - {path}
        elsewhere = not {shown(other) for other in others} <= self._gates_own()
        return Past(now=held.get(now), began=held.get(began), left=left, elsewhere=elsewhere)

    def changes(self, old: str | None, new: str | None) -> Changes | None:
        """Everything that differs between two trees; `None` where nothing is recorded."""
        if not isinstance(self._kept, Git) or old is None or new is None:
            return None
        raw, patch, whole = self._kept.change(old, new)
        return Changes(
            raw=raw, patch=patch, whole=whole, secrets=self._kept.new_secrets(), of_gates=self._gates_own()
        )

    def restore(self, tree: str) -> tuple[str, ...]:
        """Makes the folder as `tree` says; the paths that changed. In a folder apart a crash undoes none of it."""
        if not self.apart:
            return self._kept.restore(tree)
        self._under_way.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self._under_way, tree.encode())
        changed = self._kept.restore(tree)
        self._under_way.unlink()
        return changed

    def finish_restoring(self) -> None:
        """Ends a restore that a crash cut off, so that a half restored tree is nobody's work."""
        if self.apart and self._under_way.exists():
            self.look()
            self.restore(self._under_way.read_text())

    def sign_of_life(self) -> object:
        """A cheap fingerprint: when it differs, something was written."""
        return fingerprint(self.root)


def shown(path: str) -> str:
    """A path as text that can be written down: bytes of a name that are not UTF-8 are shown as `\ufffd`."""
    return os.fsencode(path).decode(errors="replace")


def open_workspace(
    mode: Mode,
    root: Path,
    state: Path,
    run: str,
    *,
    evidence: Evidence | None = None,
    outputs: tuple[Path, ...] = (),
    beside: tuple[str, ...] = (),
    copy: Copy | None = None,
    aside: bool = False,
) -> Workspace:
    """The workspace of `run`; without git there are no snapshots, and `problem` says so.

    `root` is the user's folder, or that of the `copy` of a run that works apart. `aside`: snapshots go to `state`
    alone, nothing is written in the user's repository. Without `evidence` there is none. `beside` are files below the
    root that snapshots leave out.
    """
    copies = state / "artifacts" / run / "protected"
    if mode == "none":
        return Workspace(mode, Unrecorded(root), Evidence(root), copies)
    try:
        kept: Git | Unrecorded = open_git(
            root, state, run, outputs=outputs, beside=beside, copy=copy, aside=aside
        )
        problem = ""
    except WorkspaceError as error:
        if began(state, run):  # its snapshots are wanted
            raise
        kept, problem = Unrecorded(root), str(error)
    opened = Workspace(mode, kept, evidence or Evidence(root), copies)
    opened.problem = problem
    if copy is not None:
        opened.finish_restoring()
    return opened
