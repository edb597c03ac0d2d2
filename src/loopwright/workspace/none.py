"""The workspace without snapshots: for functions, and where git is not installed.

The rule: it never pretends. What is not known is None, and what cannot be done is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from loopwright.errors import WorkspaceError

if TYPE_CHECKING:
    from pathlib import Path


class Unrecorded:
    """A folder of which no snapshots are made; the methods of `Git`, so that the caller need not ask."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def snapshot(self, n: int) -> None:
        """Nothing: there is no tree."""

    def keep(self, n: int, tree: str) -> None:
        """Nothing is kept."""

    def matches(self, tree: str | None) -> bool:
        """True for None: nothing is known to have changed. No tree is ever matched."""
        return tree is None

    def diff(self, old: str | None, new: str | None = None) -> None:
        """None, not an empty diff: a gate that needs the diff must not pass for want of one."""

    def restore(self, tree: str | None, *, paths: tuple[str, ...] | None = None) -> NoReturn:
        """Always WorkspaceError."""
        del tree, paths
        raise WorkspaceError(
            f"{self.root} has no snapshots to restore from: they need git and --workspace in_place"
        )

    def trees(self) -> dict[int, str]:
        """No snapshots."""
        return {}

    def forget(self) -> None:
        """Nothing to forget."""
