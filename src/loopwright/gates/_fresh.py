"""Which files a report's pattern names, what they are, and whether they are older than a run.

Rule: an answer for whatever stands there, a folder that nobody may enter included; what cannot be told here is
told when it is read.
"""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from pathlib import Path
from typing import Final

from loopwright.evidence.files import chunks

_SECOND: Final = 1_000_000_000
_COARSE: Final = 2 * _SECOND  # FAT keeps every second second


def names(root: Path, pattern: str) -> list[str]:
    """The files that match, as the pattern writes them; folders only where they are named themselves."""
    found = glob.glob(pattern, root_dir=root, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute ones
    return sorted({name for name in found if name == pattern or not os.path.isdir(root / name)})  # noqa: PTH112 - never raises


def regular(path: Path) -> os.stat_result | None:
    """What is known of a regular file, or of the one a link leads to; `None` for anything else."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def digest(path: Path, name: str, most: int) -> str:
    """The file's SHA-256; raises as `chunks` does."""
    found = hashlib.sha256()
    for chunk in chunks(path, name, most):
        found.update(chunk)
    return found.hexdigest()


def older(stamp: int, began: int) -> bool:
    """Whether a file's time (in nanoseconds) is before a run began, by as much as its file system can tell."""
    return stamp < (began - _COARSE if stamp % _SECOND == 0 else began)
