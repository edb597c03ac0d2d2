"""A store by its URL.

Rule: `memory:`, `files:DIR` and `sqlite:///PATH` are here; a URL of a kind that is not is refused by name.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from loopwright.errors import StoreError, UsageError

if TYPE_CHECKING:  # what only types need is not loaded: verbs that read start the sooner
    from loopwright.ports import Store


LATER = ("postgresql", "s3")


def owner() -> str:
    """This process, as leases and claims name it: `pid:start@host@boot`."""
    return _owner(os.getpid())


@cache
def _owner(pid: int) -> str:  # noqa: ARG001 - a forked child is another owner
    from loopwright.supervise import (  # loads asyncio: verbs that read do not need it
        boot_id,
        owner_of_this_process,
    )

    return f"{owner_of_this_process()}@{os.uname().nodename}@{boot_id()}"


def owner_alive(name: str) -> bool | None:
    """Whether that owner's process lives; `None` when it is on another host and cannot be asked."""
    process, _, place = name.partition("@")
    host, _, boot = place.partition("@")
    if host != os.uname().nodename:
        return None
    from loopwright.supervise import alive, boot_id

    return boot == boot_id() and alive(process)


def store_path(url: str | None, project: Path) -> Path | None:
    """The SQLite file or the folder a URL names (`None`: the project's own file); `None` for `memory:`."""
    if url is None:
        return project / ".agent-state" / "loopwright.db"
    kind, _, rest = url.partition(":")
    if kind == "memory" and not rest:
        return None
    if kind == "sqlite" and rest.startswith("///") and len(rest) > 3:
        path = Path(rest[3:])
        return path if path.is_absolute() else project / path
    if kind == "files" and rest:
        return project / rest
    if kind in LATER:
        raise UsageError(
            f"the store {url!r}: {kind} stores are not available in this version; use sqlite:///PATH or files:DIR"
        )
    raise UsageError(f"the store {url!r} is not a store URL; write sqlite:///PATH, files:DIR or memory:")


def store_exists(path: Path) -> bool:
    """Whether a store's file or folder is there; `StoreError` where we may not even look."""
    try:
        return path.exists()
    except OSError as error:
        raise StoreError(f"{path} cannot be reached: {error.strerror or error}") from error


def open_store(url: str | None, project: Path) -> Store:
    """The store a URL names, made on first use; `StoreError` when it cannot be used."""
    path = store_path(url, project)
    if path is None:
        from loopwright.stores.memory import MemoryStore

        return MemoryStore()
    if url is not None and url.startswith("files:"):
        from loopwright.stores.files import FilesStore

        return FilesStore(path)
    from loopwright.stores.sqlite import SqliteStore

    return SqliteStore(path, alive=owner_alive)
