"""What a probe looks at and what it says.

Rule: values only; the loop file is read once, by whoever asks first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

from loopwright.config import Loaded, discover, load
from loopwright.errors import ConfigError, UsageError
from loopwright.hosts.ways import STATE
from loopwright.stores.opened import store_path
from loopwright.supervise import at_work

Status: TypeAlias = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the doctor: what was looked at, how it is, and what to do about it."""

    name: str
    status: Status
    what: str
    do: str = ""


@dataclass(frozen=True, kw_only=True)
class Here:
    """Where the doctor was called: the folder, the environment, the store that was named."""

    folder: Path
    environ: Mapping[str, str]
    named_store: str | None

    @property
    def path(self) -> str:
        """Where programs are looked for."""
        return self.environ.get("PATH", "")

    @cached_property
    def file(self) -> Path | None:
        """The loop file that `run` would find."""
        try:
            return discover(self.folder)
        except ConfigError:  # a pyproject.toml that is none
            return self.folder / "pyproject.toml"

    @cached_property
    def loaded(self) -> Loaded | ConfigError | None:
        """The loop that `run` would start, or what is wrong with it; `None` where there is no loop file."""
        if self.file is None:
            return None
        try:
            return load(folder=self.folder, path=self.path)
        except ConfigError as error:
            return error

    @cached_property
    def at_work(self) -> dict[str, list[int]]:
        """The processes that runs have started here, as they were when this was first asked."""
        return at_work(self.project)

    @property
    def project(self) -> Path:
        """The project folder: that of the loop file, else of the runs that are kept here or above, else this one."""
        if self.file is not None:
            return self.file.parent
        for place in (self.folder, *self.folder.parents):
            if (place / STATE).is_dir():
                return place
            if (place / ".git").exists():
                break
        return self.folder

    @property
    def store(self) -> str | None:
        """The store's URL; `None` is the project's own file."""
        if self.named_store is None and isinstance(self.loaded, Loaded):
            return self.loaded.loop.store
        return self.named_store

    @property
    def kept(self) -> Path | None:
        """The file or folder in which runs are kept; `None` where there is none, or the URL names none."""
        try:
            return store_path(self.store, self.project)
        except UsageError:
            return None


Probe: TypeAlias = Callable[[Here], Iterable[Finding]]
