"""What a run's gates judge by: its protected files and the files that decide what gates see, as one mapping.

Rule: a mapping of path → digest is the whole truth about the evidence of one moment. Protected files have a plain
digest, the others one that begins with `whole:`, `part:` or `stands` (`deciding`). A file in both sets is protected.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopwright.workspace import protect
from loopwright.workspace.deciding import STANDS, WHOLE, Deciding
from loopwright.workspace.earlier import is_test
from loopwright.workspace.named import named

_PART = "part:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """What is not as it was: protected files changed or gone, deciding ones changed, gone or new."""

    protected: tuple[str, ...] = ()
    deciding: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.protected or self.deciding)


class Evidence:
    """The evidence set of one run in one workspace.

    `there`: anything at all is evidence. `frees`: the agent may change what would be.
    """

    def __init__(
        self,
        root: Path,
        *,
        protected: Sequence[str] = (),
        may_change: Sequence[str] = (),
        gates: Sequence[Any] | None = None,
        defined_in: tuple[str, ...] = (),
        project: Path | None = None,
    ) -> None:
        self._root = root
        self._globs = tuple(protected)
        self._free = protect.matcher(may_change)
        self.frees = bool(may_change)
        self._deciding = (
            None if gates is None else Deciding(root, named(gates), defined_in, self._free, project)
        )
        self.there = bool(self._globs) or self._deciding is not None

    def now(self, known: Mapping[str, str] | None = None) -> dict[str, str]:
        """The evidence as it is; beside the `known` one only new files that decide what gates see are new in it."""
        files = protect.protected(self._root, self._globs) if self._globs else {}
        found = {path: is_ for path, is_ in files.items() if not self._free(os.fsencode(path))}
        if known is not None:
            found = {path: is_ for path, is_ in found.items() if is_protected(known.get(path))}
        if self._deciding is None:
            return found
        others = self._deciding.seen(known)
        theirs = {
            path: is_
            for path, is_ in others.items()
            if path not in found and not (known and is_protected(known.get(path)))
        }
        return {**theirs, **found}

    def of(self, known: Mapping[str, str]) -> dict[str, str]:
        """What of a mapping on record is evidence: what may change by now is not."""
        return {path: was for path, was in known.items() if not self._free(os.fsencode(path))}

    def free_test(self, path: bytes) -> bool:
        """Whether this is a test, as it is called, that the agent may change."""
        return self._free(path) and is_test(path)

    def unmatched(self) -> tuple[str, ...]:
        """The globs that protect nothing: a slip of the pen, or files to come."""
        return tuple(glob for glob in self._globs if not protect.protected(self._root, (glob,)))


def is_protected(digest: str | None) -> bool:
    """Whether this is the digest of a protected file."""
    return digest is not None and digest != STANDS and not digest.startswith((WHOLE, _PART))


def touched(before: Mapping[str, str], after: Mapping[str, str]) -> Touched:
    """How the evidence differs; a file that only may not be new may go."""
    differ = protect.tampered(before, after)
    new = protect.added(before, after)
    return Touched(
        protected=tuple(path for path in differ if is_protected(before[path])),
        deciding=tuple(
            sorted({*(p for p in differ if not is_protected(before[p]) and before[p] != STANDS), *new})
        ),
    )


def copied(mapping: Mapping[str, str]) -> dict[str, str]:
    """The files of which copies are kept, so that they can be put back: path → plain digest."""
    return {
        path: is_.removeprefix(WHOLE)
        for path, is_ in mapping.items()
        if is_ != STANDS and not is_.startswith(_PART)
    }
