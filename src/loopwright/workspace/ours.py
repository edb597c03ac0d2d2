"""Where the snapshots of a project are kept, and the folder apart in which a run may work.

Rule: one place for one project. Snapshots of the project's folder and of every copy of it stand in the same
objects: the user's where there is a repository, else our own in the state folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from loopwright.errors import WorkspaceError
from loopwright.state_folder import create_state
from loopwright.workspace import plumbing

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
        plumbing.make_git_dir(own, version, users)
        if aside and repository and users:
            plumbing.borrow_objects(own, repository, users)
    except OSError as error:
        raise WorkspaceError(f"{own} cannot be written: {error.strerror or error}") from error
    objects = (repository.shared if repository and not aside else own) / "objects"
    users = None if aside else users
    return Ours(
        program=program,
        project=project,
        repository=repository,
        own=own,
        objects=objects,
        refs=users or plumbing.own_git(program, own, project, index=own / "index", objects=objects),
    )
