"""What agents printed: the end of a log, for the page and for the API.

Rule: an agent could leave a link or a pipe in the place of its log, and none is followed; what would drive a terminal is
taken out, or shown.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from loopwright.figures import colourless, safe
from loopwright.hosts.ways import STATE
from loopwright.redact import Redactor


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The end of what an attempt's agent printed; `cut` when more stood before it."""

    text: str
    attempt: int
    cut: bool
    at: datetime


def printed(project: Path, run: str, iteration: int, *, most: int, redact: Redactor) -> Log | None:
    """The last `most` bytes of the last attempt of an iteration; `None` where nothing was kept."""
    folder = project / STATE / "artifacts" / run / f"{iteration:04d}"
    attempts = [int(name[8:]) for name in _names(folder) if name[:8] == "attempt-" and name[8:].isdecimal()]
    for attempt in sorted(attempts, reverse=True):
        found = _tail(folder / f"attempt-{attempt}" / "agent.log", most)
        if found is not None:
            text, cut, at = found
            return Log(text=safe(redact.text(colourless(text))), attempt=attempt, cut=cut, at=at)
    return None


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return []


def _tail(file: Path, most: int) -> tuple[str, bool, datetime] | None:
    """The end of a regular file, whether more stood before it, and when it was written; links are not followed."""
    if any(part.is_symlink() for part in (file, *list(file.parents)[:4])):
        return None
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as opened:
        kept = os.fstat(fd)
        if not stat.S_ISREG(kept.st_mode):
            return None
        opened.seek(max(0, kept.st_size - most))
        text = opened.read(most).decode("utf-8", "replace")
    return text, kept.st_size > most, datetime.fromtimestamp(kept.st_mtime, UTC)
