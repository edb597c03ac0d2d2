"""Which project, store and run a verb means.

Rule: verbs on runs use the nearest `.agent-state/` upward to the repository's root, and create nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loopwright.around import run_of
from loopwright.errors import UsageError
from loopwright.stores.opened import open_store, store_exists, store_path

if TYPE_CHECKING:  # what only types need is not loaded: verbs that read start the sooner
    from loopwright.ports import Store


F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Where:
    """The project folder and the store's URL (`None`: the project's own)."""

    project: Path
    store: str | None
    named: bool = False  # the store was named here: the next verb needs it named again


def places(command: F) -> F:
    """Adds `-C DIR` and `--store URL` to a verb."""
    command = click.option("--store", metavar="URL", envvar="LOOPWRIGHT_STORE", help="Where runs are kept.")(
        command
    )
    return click.option("-C", "folder", metavar="DIR", default=".", help="Work as if started in DIR.")(
        command
    )


def as_json(command: F) -> F:
    """Adds `--json` to a verb."""
    return click.option("--json", "json_", is_flag=True, help="Print one JSON document on stdout.")(command)


def enter(folder: str) -> Path:
    """The folder as an absolute path; `UsageError` when there is none."""
    path = Path(folder)
    if not path.is_dir():
        raise UsageError(f"-C {folder}: there is no such folder")
    return path.resolve()


def find(folder: str, store: str | None) -> Where:
    """Where the runs of this folder are kept; `UsageError` when there have never been any."""
    start = enter(folder)
    if (where := nearest(start, store)) is not None:
        return where
    raise UsageError(
        f"there are no runs here: no .agent-state/ in {start} or above it; begin with loopwright run"
    )


def nearest(start: Path, store: str | None) -> Where | None:
    """Where runs are kept, looked for from `start` upward to the repository's root; `None` when nowhere."""
    if store is not None:
        return Where(start, store, named=True)
    for place in (start, *start.parents):
        if (place / ".agent-state").is_dir():
            return Where(place, _said(place / "loop.toml"))
        if (place / ".git").exists():
            break
    return None


def _said(file: Path) -> str | None:
    """The store that the loop file beside the runs names; a file that cannot be read names none."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    import tomllib

    try:
        url = tomllib.loads(text).get("store", {}).get("url")
    except (ValueError, AttributeError):
        return None
    return url if isinstance(url, str) else None


@contextmanager
def opened(where: Where) -> Iterator[Store]:
    """The store, which must exist."""
    path = store_path(where.store, where.project)
    if path is not None and not store_exists(path):
        state = where.project / ".agent-state"
        other = where.store is None and any(state.glob("*.journal.jsonl"))
        hint = "; there are some in files: say --store files:.agent-state" if other else ""
        raise UsageError(f"there are no runs here: {path} does not exist{hint}")
    store = open_store(where.store, where.project)
    try:
        yield store
    finally:
        store.close()


def the_run(store: Store, name: str) -> str:
    """The run a person means by an id, a unique prefix, or `latest`."""
    heads = [run for run, _ in store.heads(limit=100_000)]
    if name == "latest":
        if not heads:
            raise UsageError("there are no runs here yet")
        return heads[0]
    if name in heads:
        return name
    found = [run for run in heads if name and run.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{name!r} is the beginning of {len(found)} runs: {', '.join(found[:5])}")
    raise UsageError(f"there is no run {name!r} here; loopwright list --all shows what there is")


def outside(verb: str) -> None:
    """`UsageError` inside a run: what works in one decides nothing about runs."""
    run = os.environ.get("LOOPWRIGHT_RUN") or run_of(os.getppid())
    if run:
        raise UsageError(
            f"loopwright {verb} is refused inside run {run}: agents do not decide about runs; type it in a shell"
        )


@contextmanager
def no_bytecode() -> Iterator[None]:
    """While it is open, importing a project's modules leaves no `__pycache__` in it."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def who() -> str:
    """The person at this terminal, for the record."""
    name = os.environ.get("LOGNAME") or os.environ.get("USER") or f"uid {os.getuid()}"
    return os.fsencode(name).decode(errors="replace")
