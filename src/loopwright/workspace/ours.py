"""Where the snapshots of a project are kept, and the folder apart in which a run may work.

Rule: one place for one project. Snapshots of the project's folder and of every copy of it stand in the same
objects: the user's where there is a repository, else our own in the state folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from loopwright.errors import WorkspaceError
from loopwright.state_folder import create_state
from loopwright.workspace import place, plumbing

_OBJECTS: Final = "objects"  # where the snapshots of a run are, from the project
BRING_BACK: Final = "bring it back as it was, or start a new run"
Mode: TypeAlias = Literal["none", "in_place", "worktree", "folder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """Git for one project: the user's repository if there is one, our own git dir, the objects, who writes refs."""

    program: str
    project: Path
    repository: plumbing.Repository | None
    own: Path
    objects: Path
    refs: plumbing.Call
    names: Path  # the folder of the refs, when they are files
    alone: bool = True  # nobody else is to write these files

    def keep(self, name: str, commit: str) -> None:
        """`refs/loopwright/<name>` is this commit, on disk when this returns; WorkspaceError when it cannot be written.

        A file and not `git update-ref`, which a lock that a crash left and a HEAD that an agent broke would stop.
        """
        self.sound()
        if not self.alone or (self.names.parent / "reftable").is_dir():
            self.refs("update-ref", f"refs/loopwright/{name}", commit)
            return
        ref = self.names / "loopwright" / name
        try:
            self.names.mkdir(exist_ok=True)
            place.put(self.names, f"loopwright/{name}".encode(), f"{commit}\n".encode(), mode=0o644)
            plumbing.sync_folder(ref.parent)  # the folder says that the ref is there
        except OSError as error:
            raise WorkspaceError(f"{ref} cannot be written: {error.strerror or error}") from error

    def sound(self) -> None:
        """WorkspaceError when the objects are gone, or a link was put where they were: nothing is written through it."""
        for folder in (self.objects.parent, self.objects):
            try:
                if stat.S_ISDIR(folder.lstat().st_mode):
                    continue
                why = "is no folder any more"
            except OSError:
                why = "is gone"
            raise WorkspaceError(f"{folder} {why}, and with it the snapshots: {BRING_BACK}")

    def call(self, root: Path, index: Path) -> plumbing.Call:
        """Our git over the folder `root`, with this index."""
        return plumbing.own_git(self.program, self.own, root, index=index, objects=self.objects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A folder of a run's own. The agent works in `root`; `top`, the same or above it, has the `.git`.

    It was made of `commit`, in which `root` has the tree `tree`; `links` lead into the user's folder.
    """

    mode: Mode
    project: Path
    top: Path
    root: Path
    commit: str
    tree: str
    links: Sequence[str] = ()
    ready: bool = False


def open_ours(project: Path, state: Path, *, aside: bool = False) -> Ours:
    """Where the snapshots of `project` are kept; `state` is its `.agent-state`, made when missing.

    `aside`: in `state` alone, also where there is a repository, which then is only read.

    WorkspaceError: no git ≥ 2.30 on PATH, not a folder, an unusable repository.
    """
    project = project.resolve()
    if not project.is_dir():
        raise WorkspaceError(f"{project} is not a folder")
    program, version = plumbing.find_git()
    repository = plumbing.find_repository(project)
    users = plumbing.users_git(program, repository) if repository else None
    create_state(state)
    # By its place from the state folder, so that a project that is moved keeps its snapshots.
    own = state.resolve() / "git" / plumbing.key_of(Path(os.path.relpath(project, state.resolve())))
    try:
        shared = plumbing.make_git_dir(own, version, users)
        if aside and repository and users:
            plumbing.borrow_objects(own, repository, users)
    except OSError as error:
        raise WorkspaceError(f"{own} cannot be written: {error.strerror or error}") from error
    home = repository.shared if repository and not aside else own
    objects, names = (home / each for each in ("objects", "refs"))
    objects = objects.resolve()  # they may stand elsewhere from the beginning
    users = None if aside else users
    return Ours(
        program=program,
        project=project,
        repository=repository,
        own=own,
        objects=objects,
        names=names.resolve(),
        alone=shared == "umask",
        refs=users or plumbing.own_git(program, own, project, index=own / "index", objects=objects),
    )


def note_place(ours: Ours, folder: Path) -> None:
    """Writes down, in the folder of a run, where its snapshots are."""
    plumbing.write_whole(folder / _OBJECTS, _here(ours))


def check_place(ours: Ours, folder: Path, run: str) -> None:
    """WorkspaceError when the snapshots of a run are in another repository than the one that stands here now."""
    try:
        was = (folder / _OBJECTS).read_bytes()
    except FileNotFoundError:
        return
    if was == _here(ours) or ours.refs("for-each-ref", "--count=1", f"refs/loopwright/{run}/", ok=(0, 128)):
        return
    git_dir = Path(os.path.normpath(ours.project / os.fsdecode(was))).parent
    why = f"the .git of {ours.project} does not lead there any more: {BRING_BACK}"
    if not git_dir.is_dir():
        why = f"that is gone: {BRING_BACK}"
    elif not plumbing.has_head(git_dir):
        why = "its HEAD is gone or says nothing, so git takes it for no repository: write that file anew (ref: refs/heads/main)"
    raise WorkspaceError(f"the snapshots of run {run} are in {git_dir}, and {why}")


def began(state: Path, run: str) -> bool:
    """Whether snapshots of this run were ever made."""
    return any((state / "git").glob(f"*/*/{run}/{_OBJECTS}"))


def _here(ours: Ours) -> bytes:
    return os.fsencode(os.path.relpath(ours.objects, ours.project))
