"""The folder apart that a run of mode `worktree` or `folder` works in: made, found again, removed.

Rule: the user's checkout is only read. A copy stands in `.agent-state/workspaces/<run>/` and has a `.git` of its
own that borrows the user's objects: git works in it as anywhere, and no commit, stash, checkout or configuration
made there reaches the user's repository. Only what is marked as made here, in its own place, is ever removed, and
never once a run has worked there. The mark can be written by an agent: it says nothing of any place outside, and as
it says nothing absolute either, a project that is moved keeps its copies.

`worktree`: the whole repository as of a commit, written as git writes it, but without filters of anybody's.
`folder`: the project folder as it is now, as snapshots see it, byte for byte.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from loopwright.errors import ConfigError, WorkspaceError
from loopwright.workspace import ignore, place, plumbing
from loopwright.workspace.git import open_git
from loopwright.workspace.index import MOST_BYTES, MOST_FILES
from loopwright.workspace.ours import Copy, Mode, Ours, open_ours

WHERE: Final = "workspaces"
_MARK: Final = "made.json"
_MARK_BYTES: Final = 1 << 20
_ID: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_ORIGIN: Final = "base"  # refs/loopwright/<run>/base: what the copy was made of
_CONFIG: Final = """\
[core]
\trepositoryformatversion = {version}
\tbare = false
\tfileMode = true
\tsymlinks = true
\tlogAllRefUpdates = true
[gc]
\tauto = 0
"""


def home(state: Path, run: str) -> Path:
    """The folder that holds the copy of a run, whether it is there or not: what the run's lock is on."""
    return state.resolve() / WHERE / run


def find(state: Path, run: str) -> Copy | None:
    """The copy of a run, when it is all there; nothing outside the run's own place ever is."""
    folder = home(state, run)
    mark = place.read(folder, os.fsencode(_MARK))
    if mark is None:
        return None
    with open(mark, "rb") as file:  # noqa: PTH123 - a descriptor
        raw = file.read(_MARK_BYTES)
    try:
        said = json.loads(raw)
        top, root, links = folder / said["top"], folder / said["root"], tuple(said["links"])
        copy = Copy(
            mode=said["mode"],
            project=state.parent.resolve(),
            top=top,
            root=root,
            commit=said["commit"],
            tree=said["tree"],
            links=links,
            ready=said["ready"] is True,
        )
        ids = all(_ID.fullmatch(each) for each in (copy.commit, copy.tree))
        known = ids and copy.mode in {"worktree", "folder"} and all(isinstance(link, str) for link in links)
        real = Path(os.path.realpath(top))
        inside = folder in real.parents and Path(os.path.realpath(root)).is_relative_to(real)
        whole = root.is_dir()
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return copy if copy.ready and known and inside and whole else None


def check(project: Path, mode: Mode, rev: str = "HEAD", links: Sequence[str] = ()) -> str | None:
    """The commit that a copy of mode `worktree` begins at; nothing is made.

    ConfigError for a revision or link that is not there, WorkspaceError without git.
    """
    project = project.resolve()
    try:
        program, _ = plumbing.find_git()
    except WorkspaceError as error:
        raise ConfigError(f'workspace.mode: "{mode}" cannot be had: {error}') from None
    missing = [
        f"workspace.link: there is no {link} in {project}" for link in links if not (project / link).exists()
    ]
    if missing:
        raise ConfigError(*missing)
    if mode != "worktree":
        return None
    repository = plumbing.find_repository(project)
    if repository is None:
        raise ConfigError(
            f"workspace.mode: {project} is in no git repository; --workspace folder makes a copy without one"
        )
    return _commit(project, repository, plumbing.users_git(program, repository), rev)


def make(
    project: Path,
    state: Path,
    run: str,
    *,
    mode: Mode,
    rev: str = "HEAD",
    links: Sequence[str] = (),
    again: bool = False,
) -> Copy:
    """A fresh copy for `run`, not marked as ready; what is left of one that no run worked in is removed.

    `again`: the run is on record, so it is made of what it was first made of, not of `rev`, and an earlier copy
    must have been set aside. The caller holds the run's lock. ConfigError for a revision or link that is not
    there, WorkspaceError when git fails.
    """
    project = project.resolve()
    ours = open_ours(project, state)
    commit = _origin(ours, run) if again else None
    commit = commit or check(project, mode, rev, links) or _present(project, state, run, ours)
    if not again:
        remove(state, run)
    repository = ours.repository
    name, inner = project.name, Path()
    if mode == "worktree" and repository is not None:
        name, inner = repository.top.name, project.relative_to(repository.top)
    top = home(state, run) / (name or "root")
    tree = ours.refs(
        "rev-parse", "--verify", f"{commit}^{{tree}}" if not inner.parts else f"{commit}:{inner}"
    )
    copy = Copy(
        mode=mode,
        project=project,
        top=top,
        root=top / inner,
        commit=commit,
        tree=tree.decode().strip(),
        links=tuple(links),
    )
    home(state, run).mkdir(mode=0o700, parents=True)
    _write_mark(state, run, copy)  # first: what has no mark is never removed
    top.mkdir()
    _write_git_dir(ours, copy, run)
    git = plumbing.copys_git(ours.program, top)
    git("read-tree", commit)
    git("checkout-index", "--all", "--force", "--index", "--quiet")
    for link in links:
        _link(copy, link)
    return copy


def settled(state: Path, run: str, copy: Copy) -> Copy:
    """The copy, marked as ready to be worked in; from now on what it was made of is kept."""
    open_ours(copy.project, state).keep(f"{run}/{_ORIGIN}", copy.commit)
    ready = replace(copy, ready=True)
    _write_mark(state, run, ready)
    return ready


def set_aside(state: Path, run: str) -> Path | None:
    """Where what stands in the place of a run's copy was moved to, as it was; `None` when nothing stood there.

    For a run on record: what an agent or a person did there is nobody's to remove. WorkspaceError for what
    loopwright did not make.
    """
    folder = home(state, run)
    if not _stands(folder):
        return None
    aside = folder.with_name(f"{run}~{secrets.token_hex(4)}")  # no run has such an id
    try:
        folder.rename(aside)
    except OSError as error:
        raise WorkspaceError(f"{folder} cannot be moved aside: {error.strerror or error}") from error
    return aside


def remove(state: Path, run: str) -> None:
    """Removes the copy of a run, if there is one; WorkspaceError for anything else that stands in its place."""
    folder = home(state, run)
    if not _stands(folder):
        return
    mark = folder / _MARK
    for above, inner, _ in os.walk(folder):  # an agent may have left folders that nobody can write to
        for each in inner:
            if not Path(above, each).is_symlink():
                Path(above, each).chmod(0o700)
    for path in folder.iterdir():
        if path != mark:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    mark.unlink(missing_ok=True)  # last: without it nothing here is known as ours
    folder.rmdir()


def inherit(ours: Ours, parent: str, run: str) -> None:
    """The copy of `run` will be made of what that of `parent` was made of."""
    commit = _origin(ours, parent)
    if commit is None:
        raise WorkspaceError(
            f"what the folder of run {parent} was made of is lost: refs/loopwright/{parent}/{_ORIGIN} is gone"
        )
    ours.keep(f"{run}/{_ORIGIN}", commit)


def origin(ours: Ours, run: str) -> str | None:
    """The commit of the user's that the work of a run began at; `None` for a run that was in no worktree."""
    commit = _origin(ours, run)
    return None if commit is None or plumbing.is_snapshot(ours.refs("cat-file", "commit", commit)) else commit


def uncommitted(ours: Ours) -> tuple[str, ...] | None:
    """What a worktree of HEAD does not have of the user's checkout: changed, staged and untracked files, sorted.

    Secret-looking names are left out: nobody is to commit them. `None` when that cannot be told. The user's index is
    read from a copy, which git may refresh.
    """
    repository = ours.repository
    if repository is None:
        return ()
    info = repository.shared / "info" / "exclude"
    try:
        with tempfile.TemporaryDirectory(prefix="loopwright-") as folder:
            index, exclude = Path(folder, "index"), Path(folder, "exclude")
            shutil.copy2(repository.git_dir / "index", index)  # its time says which files git must read
            exclude.write_bytes(ignore.frozen_patterns(repository.top, info=info))
            git = ours.call(repository.top, index)
            changed = git("ls-files", "-z", "-m", "-o", f"--exclude-from={exclude}").split(b"\0")
            head = ours.refs("rev-parse", "--verify", "HEAD^{tree}").decode().strip()
            changed += git("diff-index", "-z", "--cached", "--name-only", head).split(b"\0")
    except (OSError, WorkspaceError):  # no index, or one that cannot be read apart from its folder
        return None
    return tuple(sorted({os.fsdecode(path) for path in changed if path and not ignore.is_secret(path)}))


def _stands(folder: Path) -> bool:
    """Whether there is a copy in its place; WorkspaceError when something else is."""
    if os.path.realpath(folder.parent) != os.fspath(folder.parent):
        raise WorkspaceError(f"{folder.parent} leads to {os.path.realpath(folder.parent)}: remove that link")
    if not os.path.lexists(folder):
        return False
    plain = folder.is_dir() and not folder.is_symlink()
    mark = folder / _MARK
    if not plain or not (mark.is_file() or all(each.name.startswith(_MARK) for each in folder.iterdir())):
        raise WorkspaceError(f"{folder} was not made by loopwright: move it away")
    return True


def _write_mark(state: Path, run: str, copy: Copy) -> None:
    folder = home(state, run)
    said = asdict(copy) | {"top": copy.top.relative_to(folder), "root": copy.root.relative_to(folder)}
    del said["project"]  # it is around the state folder
    plumbing.write_whole(folder / _MARK, json.dumps(said, default=str).encode())


def _origin(ours: Ours, run: str) -> str | None:
    name = f"refs/loopwright/{run}/{_ORIGIN}"
    return ours.refs("rev-parse", "--verify", "--quiet", name, ok=(0, 1)).decode().strip() or None


def _commit(project: Path, repository: plumbing.Repository, users: plumbing.Call, rev: str) -> str:
    """The commit that a revision of the user's names."""
    found = users("rev-parse", "--verify", "--quiet", f"{rev}^{{commit}}", ok=(0, 1, 128))
    if not found and rev == "HEAD":
        raise ConfigError(
            'workspace.mode: nothing is committed yet; commit first, or "folder" copies the files as they are'
        )
    if not found:
        raise ConfigError(f"workspace.base: the repository has no commit {rev!r}")
    commit = found.decode().strip()
    inner = project.relative_to(repository.top)
    if inner.parts and users("cat-file", "-t", f"{commit}:{inner}", ok=(0, 128)).strip() != b"tree":
        raise ConfigError(f"workspace.base: {rev} has no folder {inner}: commit it first")
    return commit


def _present(project: Path, state: Path, run: str, ours: Ours) -> str:
    """A commit of the project folder as it is now; nothing but our ref will keep it."""
    tree = open_git(project, state, run).now().tree
    listed = ours.call(project, ours.own / "index")("ls-tree", "-r", "-l", "-z", tree).split(b"\0")
    sizes = [
        int(words[3]) for item in listed if (words := item.split(b"\t")[0].split())[3:] and words[3] != b"-"
    ]
    if len(sizes) > MOST_FILES or sum(sizes) > MOST_BYTES:
        raise ConfigError(
            f"workspace.mode: {project} holds {len(sizes):,} files ({sum(sizes) / 1e9:.1f} GB); at most {MOST_FILES:,} "
            f"files and {MOST_BYTES / 1e9:.1f} GB are copied. Mode worktree copies a commit of any size"
        )
    return plumbing.write_commit(ours.objects, tree)


def _write_git_dir(ours: Ours, copy: Copy, run: str) -> None:
    """A `.git` on a branch of its own, with the user's objects, branches and tags to read."""
    own = copy.top / ".git"
    for folder in ("objects/info", "refs/heads/loopwright", "info"):
        (own / folder).mkdir(parents=True)
    sha256 = len(copy.commit) == 64
    config = _CONFIG.format(version=1 if sha256 else 0)
    if sha256:
        config += "[extensions]\n\tobjectFormat = sha256\n"
    files = {
        "HEAD": f"ref: refs/heads/loopwright/{run}\n".encode(),
        f"refs/heads/loopwright/{run}": f"{copy.commit}\n".encode(),
        "config": config.encode(),
        "objects/info/alternates": os.fsencode(_way(own / "objects", ours.objects, copy.project)) + b"\n",
        "info/exclude": b"".join(ignore.exactly(os.fsencode(link)) + b"\n" for link in copy.links),
    }
    if copy.mode == "folder":
        files["info/attributes"] = plumbing.RAW
    elif ours.repository is not None:
        kept = ("refs/heads", "refs/tags", "refs/remotes")
        refs = ours.refs("for-each-ref", "--format=%(objectname) %(refname)", *kept)
        mine = (b" refs/heads/loopwright", b"/HEAD")  # of the first ours is a child; the second is symbolic
        files["packed-refs"] = b"".join(
            line + b"\n"
            for line in refs.splitlines()
            if not line.endswith((*mine, f"loopwright/{run}".encode()))
        )
        with suppress(FileNotFoundError):
            files["shallow"] = (ours.repository.shared / "shallow").read_bytes()
    for name, content in files.items():
        (own / name).write_bytes(content)


def _link(copy: Copy, link: str) -> None:
    source, target = copy.project / link, copy.root / link
    with suppress(OSError):
        target.rmdir()  # where a submodule would be
    if os.path.lexists(target):
        raise ConfigError(f"workspace.link: {link} is in the copy already: take it out of the list")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(_way(target.parent.resolve(), source, copy.project))


def _way(start: Path, to: Path, project: Path) -> Path:
    """How `start`, a folder, says where `to` is: what moves with the project is said from there."""
    repository = plumbing.find_repository(project)
    together = start.is_relative_to(project) and to.is_relative_to(repository.top if repository else project)
    return Path(os.path.relpath(to, start)) if together else to
