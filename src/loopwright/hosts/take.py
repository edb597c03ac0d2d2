"""Taking a run: ids, what a crash left behind, reopening.

Rule: what is refused is refused before anything is written.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from loopwright.core.apply import apply
from loopwright.core.events import Claimed, Event
from loopwright.core.head import exit_code
from loopwright.core.limits import Limits, exceeded, in_force, of_day
from loopwright.core.state import LoopState
from loopwright.core.values import bounded
from loopwright.errors import UsageError
from loopwright.stores.opened import owner_alive

ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LETTERS: Final = "abcdefghjkmnpqrstuvwxyz"
FLAGS: Final = {
    "max_iterations": "--add-iterations",
    "max_duration": "--add-duration",
    "budget": "--add-budget",
}


def check_id(run: str) -> str:
    """`run`, when it is fit to be a run's id; `UsageError` when it is not."""
    if not ID.fullmatch(run) or ".." in run or run.endswith((".", ".lock")) or run == "latest":
        raise UsageError(
            f"{run!r} cannot name a run: letters, digits, . _ - (64 at most), beginning with a letter or digit, "
            "without .., a final . or .lock, and not 'latest'"
        )
    return run


def check_folder(project: Path) -> None:
    """`UsageError` for a folder whose name cannot be written down."""
    try:
        str(project).encode()
    except UnicodeEncodeError:
        raise UsageError(f"{str(project)!a} has a name that is not UTF-8: rename the folder") from None


def check_place(run: str, state: LoopState, project: Path) -> None:
    """`UsageError` when the run works in another folder than this one; a folder that is gone was moved."""
    if state.workspace not in {None, str(project)} and Path(str(state.workspace)).is_dir():
        raise UsageError(f"run {run} works in {state.workspace}, not in {project}: say -C {state.workspace}")


def made_id(name: str | None) -> str:
    """A fresh id: the loop's name and four letters."""
    words = re.sub(r"[^A-Za-z0-9_-]+", "-", name or "run").strip("-_")[:40] or "run"
    return f"{words}-{''.join(secrets.choice(LETTERS) for _ in range(4))}"


def raised(state: LoopState, limits: Limits, add: Mapping[str, float]) -> dict[str, float]:
    """The limits after adding; `UsageError` for one the run does not have."""
    now = in_force(limits, state)
    new: dict[str, float] = {}
    for name, amount in add.items():
        standing = getattr(now, name)
        if standing is None:
            raise UsageError(f"the run has no {name} to add to")
        used = state.iteration if name == "max_iterations" else standing
        try:
            new[name] = bounded(name, max(standing, used) + amount)
        except ValueError as error:
            raise UsageError(str(error)) from None
    return new


def set_anew(state: LoopState, spec: Mapping[str, Any]) -> dict[str, float]:
    """The limits that a person changed on the run and that its loop, as it is now written, says otherwise."""
    old, new = state.spec.get("limits", {}), spec.get("limits", {})
    return {
        name: new[name] for name in state.limits if new.get(name) is not None and new[name] != old.get(name)
    }


def left(state: LoopState) -> bool:
    """Whether a run is under way on record while nobody drives it: its process is gone."""
    under_way = state.finished is None and exit_code(state) is None
    return under_way and state.claim is not None and owner_alive(state.claim.owner) is False


def in_use(run: str, claim: Claimed | None) -> str:
    """Who holds a run, and what to do about it."""
    who = "another process"
    if claim is not None and owner_alive(claim.owner) is not False:
        who = f"process {claim.owner.partition(':')[0]} on {claim.host}"
    return f"run {run} is driven by {who} just now: wait for it, or loopwright stop {run}"


def check_reopen(state: LoopState, limits: Limits, wanted: Sequence[Event]) -> None:
    """`UsageError` naming the flag when a limit would end the run at once after these facts."""
    for event in wanted:
        state = apply(state, event, datetime.now(UTC))
    bound = exceeded(in_force(limits, state), state)
    if bound is None:
        return
    reason, why = bound
    flag = FLAGS.get(reason)
    what = "reserve" if reason == "cost_unknown" else reason
    how = f"add to it with {flag}" if flag else f"start a new run with --set limits.{what}=…"
    if reason == "budget" and of_day(state):
        how = "it can go on tomorrow (UTC), or start a new run with --set limits.budget_per_day=…"
    raise UsageError(f"run {state.run} would end at once ({reason}: {why}); {how}")


def differences(run: str, old: Mapping[str, Any], new: Mapping[str, Any], *, over: bool = False) -> str:
    """Why this loop is not the one the id stands for, key by key."""
    keys = [k for k in ("goal", "prompt", "agent", "improve", "gates") if old.get(k) != new.get(k)]
    lines = [f"  {k}: {_brief(old.get(k))} then, {_brief(new.get(k))} now" for k in keys]
    head = f"run {run} was started with another loop:"
    how = "use another id, or --accept-changes to go on with the new one"
    if over:
        how = "what follows is its result, not this loop's: use another id to run this one"
    return "\n".join([head, *lines, how])


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 500 else f"{text[:499]}…"


def check_mode(run: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """`UsageError` when a run on record would have to move to another workspace."""
    keys = ("mode", "base", "link")
    was, now = ((spec.get("workspace") or {}) for spec in (old, new))
    moved = [
        f"workspace.{key}: {was.get(key)!r} then, {now.get(key)!r} now"
        for key in keys
        if was.get(key) != now.get(key)
    ]
    if moved:
        raise UsageError("\n  ".join([f"run {run} stays where it began; use another id", *moved]))


def cut_off_seconds(folder: Path) -> float:
    """How long a crashed attempt worked, up to its last sign of life: from its prompt's time to its log's."""
    try:
        began = (folder / "prompt.md").stat().st_mtime
        last = max(file.stat().st_mtime for file in folder.iterdir())
    except (OSError, ValueError):
        return 0.0
    return round(max(0.0, last - began), 3)


def outputs_of(root: Path) -> tuple[Path, ...]:
    """The regular files below `root` that our own stdout and stderr are open on."""
    found: list[Path] = []
    for fd in (1, 2):
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                continue
            path = Path(f"/proc/self/fd/{fd}").readlink()
        except OSError:
            continue
        if path.is_relative_to(root.resolve()) and path not in found:
            found.append(path)
    return tuple(found)
