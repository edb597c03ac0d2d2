"""Getting the work of a run out of its workspace: into the user's checkout, or onto a branch.

Rule: three-way against what the run began from, all or nothing. A conflict is reported, never resolved; a second
time finds that it is done. A branch touches neither checkout nor index, and one that stands is never moved.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from loopwright.core import events as ev
from loopwright.core.closing import best_now
from loopwright.core.policy import Deliver
from loopwright.core.state import LoopState
from loopwright.errors import Conflict, LoopwrightError, UsageError, WorkspaceError
from loopwright.hosts.apart import beside
from loopwright.hosts.take import check_place
from loopwright.hosts.ways import STATE, Ways
from loopwright.journal import Journal, history
from loopwright.loop import Loop
from loopwright.ports import Store
from loopwright.running import Run
from loopwright.stores.opened import owner
from loopwright.workspace import copies, place
from loopwright.workspace.git import open_git
from loopwright.workspace.lock import lock
from loopwright.workspace.merge import Entry, Merged, merge, written
from loopwright.workspace.ours import Ours, open_ours
from loopwright.workspace.plumbing import Call

PATTERN: Final = "loopwright/{run}"
_GITLINK: Final = "160000"
_LINK: Final = "120000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is handed over: an iteration's snapshot and how it was judged."""

    iteration: int
    tree: str
    score: float | None


def work_of(store: Store, run: str, iteration: str | None) -> Work:
    """The work of an iteration (a number or `best`); by default of the accepted one, else of the best.

    `UsageError` when there is none.
    """
    state = Journal(store, run).state
    if iteration is None:
        last = state.recent[-1] if state.recent else None
        iteration = str(last.number) if last is not None and last.outcome == "accepted" else "best"
    if iteration == "best":
        best = best_now(state)
        if best is None or not best.iteration:
            raise UsageError(
                f"run {run} has nothing better than it began with; --iteration N says which to take"
            )
        iteration = str(best.iteration)
    if not iteration.isdecimal():
        raise UsageError(f"--iteration {iteration}: a number or 'best'")
    it = state.current
    if (
        it is not None
        and it.verdict is not None
        and it.number == int(iteration)
        and state.snapshot is not None
    ):
        return Work(iteration=it.number, tree=state.snapshot, score=it.verdict.score)
    for _, _, event, after in history(store, run):
        if isinstance(event, ev.IterationClosed) and after.iteration == int(iteration) and after.recent:
            closed = after.recent[-1]
            if closed.snapshot is None:
                break
            return Work(iteration=closed.number, tree=closed.snapshot, score=closed.score)
    raise UsageError(f"run {run} has no snapshot of an iteration {iteration}")


def apply(project: Path, store: Store, run: str, work: Work) -> tuple[str, ...]:
    """The files of the user's that were changed by bringing the work there; none when it was there already.

    `Conflict` when they were changed otherwise since the run began, or just now; `Locked` while a run works in the
    checkout.
    """
    state = _known(project, store, run)
    here = project / STATE
    with lock(project, here, run, owner()):
        there = _mode(state) == "in_place"
        git = open_git(project, here, run, beside=beside(Loop.from_spec(state.spec)) if there else ())
        now = git.now().tree
        if there:
            if work.tree == now:
                return ()
            raise UsageError(
                f"run {run} worked in {project} itself, and other work is there than that of iteration "
                f"{work.iteration}: loopwright restore {run} --iteration {work.iteration} brings it back"
            )
        call = git.ours.call(project, git.ours.own / "index")
        merged = merge(call, old=str(state.base), new=work.tree, mine=now)
        conflicts = {*merged.conflicts, *_blocked(project, call, merged, now)}
        if conflicts:
            raise Conflict(_told(run, f"the files in {project}", conflicts))
        if not merged.changes:
            return ()
        git.keep(f"before-{now[:16]}", now)
        paths = tuple(os.fsdecode(path) for path in merged.changes)
        return git.restore(written(call, now, merged.changes), paths=paths, since=now)


def to_branch(
    project: Path, state: LoopState, work: Work, name: str, environ: Mapping[str, str]
) -> tuple[str, bool]:
    """The branch `name` with one commit of the work, and whether it is a new one.

    `Conflict` when the user's commits since then changed the same, `UsageError` for a branch that holds anything else.
    """
    ours = open_ours(project, project / STATE)
    if ours.repository is None:
        raise UsageError(f"{project} is in no git repository, so there are no branches")
    if name.startswith("-") or not ours.refs("check-ref-format", "--branch", name, ok=(0, 1, 128)):
        raise UsageError(f"{name!r} cannot name a branch")
    ref = f"refs/heads/{name}"
    standing = _commit(ours, ref)
    parent = (
        _commit(ours, f"{standing}^") if standing else copies.origin(ours, state.run) or _commit(ours, "HEAD")
    )
    tree = _tree_on(ours, project, state, work, parent)
    message = _message(state, work)
    if standing is not None:
        raw = ours.refs("cat-file", "commit", standing)
        if raw.startswith(f"tree {tree}\n".encode()) and raw.endswith(b"\n\n" + message):
            return name, False
        raise UsageError(
            f"there is a branch {name} with other commits: name another with --branch, or delete it"
        )
    author, email = identity(project, environ)
    call = ours.call(project, ours.own / "index")
    who = {"AUTHOR_NAME": author, "AUTHOR_EMAIL": email, "COMMITTER_NAME": author, "COMMITTER_EMAIL": email}
    call = replace(call, env={**call.env, **{f"GIT_{key}": value for key, value in who.items()}})
    parents = ("-p", parent) if parent else ()
    commit = call("commit-tree", tree, *parents, "-F", "-", stdin=message).decode().strip()
    try:
        ours.refs("update-ref", ref, commit, "0" * len(commit))
    except WorkspaceError as error:
        raise UsageError(f"the branch {name} cannot be made: {error}") from error
    return name, True


def at_the_end(run: Run, ways: Ways, asked: Deliver) -> ev.Delivered:
    """The last act of an accepted run; what stands in its way is on record, and ends nothing."""
    state = run.journal.state
    said = state.spec.get("deliver") or {}
    name = str(said.get("branch", PATTERN)).replace("{run}", state.run)
    found = [c for c in state.recent if c.snapshot == asked.snapshot and c.score is not None]
    try:
        if asked.snapshot is None or not found:
            raise UsageError("there are no snapshots of the work")
        work = Work(iteration=found[-1].number, tree=asked.snapshot, score=found[-1].score)
        ref, _ = to_branch(ways.project, state, work, name, ways.environ)
    except LoopwrightError as error:
        run.tell(f"not delivered: {error}")
        return ev.Delivered(to=asked.to, problem=str(error))
    run.tell(f"delivered: branch {ref}")
    return ev.Delivered(to=asked.to, ref=ref)


def identity(project: Path, environ: Mapping[str, str]) -> tuple[str, str]:
    """The name and address that the user's git would write into a commit, else loopwright's."""
    found = []
    for name, key in (("NAME", "user.name"), ("EMAIL", "user.email")):
        said = environ.get(f"GIT_AUTHOR_{name}", "")
        if not said:
            with suppress(OSError, subprocess.SubprocessError):  # a name is no reason to deliver nothing
                done = subprocess.run(
                    ["git", "config", "--get", key],
                    cwd=project,
                    env=dict(environ),
                    capture_output=True,
                    check=False,
                    timeout=10,
                    text=True,
                    errors="replace",
                )
                said = done.stdout.strip()
        found.append(said)
    author, email = found
    return (author, email) if author and email else ("loopwright", "loopwright@localhost")


def _known(project: Path, store: Store, run: str) -> LoopState:
    state = Journal(store, run).state
    check_place(run, state, project)
    if state.base is None:
        raise UsageError(f"run {run} kept no snapshots; they need git and a workspace")
    return state


def _mode(state: LoopState) -> Any:
    return (state.spec.get("workspace") or {}).get("mode")


def _commit(ours: Ours, rev: str) -> str | None:
    found = ours.refs("rev-parse", "--verify", "--quiet", f"{rev}^{{commit}}", ok=(0, 1, 128))
    return found.decode().strip() or None


def _tree_on(ours: Ours, project: Path, state: LoopState, work: Work, parent: str | None) -> str:
    """The tree of a commit on `parent`: what it has, with the changes that the run made."""
    call = ours.call(project, ours.own / "index")
    if parent is None or ours.repository is None:
        return work.tree  # the first commit of all
    inner = project.resolve().relative_to(ours.repository.top)
    whole = ours.refs("rev-parse", "--verify", f"{parent}^{{tree}}").decode().strip()
    mine = whole
    if inner.parts:
        found = ours.refs("rev-parse", "--verify", "--quiet", f"{parent}:{inner}", ok=(0, 1, 128))
        mine = found.decode().strip() or call("mktree", stdin=b"").decode().strip()
    merged = merge(call, old=str(state.base), new=work.tree, mine=mine)
    if merged.conflicts:
        raise Conflict(_told(state.run, f"commit {parent[:12]}", merged.conflicts))
    if not merged.changes:
        raise UsageError(
            f"iteration {work.iteration} of run {state.run} changes nothing in commit {parent[:12]}"
        )
    return written(call, whole, merged.changes, inner=os.fsencode(inner) + b"/" if inner.parts else b"")


def _blocked(project: Path, call: Call, merged: Merged, now: str) -> set[bytes]:
    """The paths where something else stands that snapshots leave out, and submodules: they are not ours to write."""
    known = set(call("ls-tree", "-r", "-z", "--name-only", now).split(b"\0"))
    blocked = set()
    for path, entry in merged.changes.items():
        above = [place.look(project, parent) for parent in place.parents(path)]
        standing = place.look(project, path)
        in_the_way = any(each is not None and not stat.S_ISDIR(each.st_mode) for each in above)
        folder = standing is not None and stat.S_ISDIR(standing.st_mode)
        if entry is not None and entry.mode == _GITLINK:
            blocked.add(path)
        elif path not in known and entry is not None:
            full = project / os.fsdecode(path)
            if standing is not None and _holds(project, path, standing.st_mode, entry, call):
                continue
            if (
                (standing is not None and not folder)
                or (folder and any(files for _, _, files in os.walk(full)))
                or (in_the_way and not known & set(place.parents(path)))
            ):
                blocked.add(path)
    return blocked


def _holds(project: Path, path: bytes, mode: int, entry: Entry, call: Call) -> bool:
    """Whether what stands at `path`, which is of this mode, is what the entry says, byte for byte."""
    kind = _LINK if stat.S_ISLNK(mode) else "100755" if mode & stat.S_IXUSR else "100644"
    if entry.mode != kind:
        return False
    wanted = call("cat-file", "blob", entry.blob)
    if kind == _LINK:
        return os.fsencode((project / os.fsdecode(path)).readlink()) == wanted
    file = place.read(project, path)
    if file is None:
        return False
    with open(file, "rb") as standing:  # noqa: PTH123 - a descriptor
        return standing.read(len(wanted) + 1) == wanted


def _told(run: str, what: str, paths: Iterable[bytes]) -> str:
    names = [os.fsdecode(path).encode(errors="replace").decode() for path in sorted(paths)]
    more = [f"… and {len(names) - 20} more"] if len(names) > 20 else []
    return "\n".join(
        [f"nothing was applied: the work of run {run} and {what} change the same:", *names[:20], *more]
    )


def _message(state: LoopState, work: Work) -> bytes:
    """The commit's message: the goal, and which work of which run this is."""
    goal = " ".join(str(state.spec.get("goal", "")).split()) or "work of loopwright"
    first = goal if len(goal) <= 72 else goal[:71] + "…"
    score = "" if work.score is None else f"Loopwright-Score: {work.score:.2f}\n"
    rest = f"{goal[:2000]}\n\n" if first != goal else ""
    text = (
        f"{first}\n\n{rest}Loopwright-Run: {state.run}\nLoopwright-Iteration: {work.iteration}\n"
        f"{score}Loopwright-Tree: {work.tree}\n"
    )
    return text.encode(errors="replace")
