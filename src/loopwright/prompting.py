"""What a host adds to an attempt: the text it is asked with, and the notes that its agent keeps.

Rule: nothing is read or made that is not asked for. The notes are the agent's own file: untrusted, never followed
anywhere, read only in part where they are large.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from loopwright import prompt as prompts
from loopwright.core import replacing
from loopwright.core.values import Attempt, Notes
from loopwright.prompt import NOTES_BYTES, clean, fit
from loopwright.running import Run
from loopwright.workspace import place

PART_BYTES: Final = 8 * NOTES_BYTES  # read of each end: secrets are taken out before the text is cut short
OWN: Final = "notes/notes.md"  # below the run's artifacts
PAYLOAD: Final = "payload.json"  # as it came, below the run's artifacts


def notes_file(run: Run) -> Path | None:
    """The file that the agent of this run may keep, absolute; `None` for none."""
    if not run.notes:
        return None
    return run.workspace.root / run.notes if isinstance(run.notes, str) else run.artifacts / OWN


def payload_file(artifacts: Path) -> Path | None:
    """The file with what started the run from outside, absolute; `None` where nothing did."""
    file = artifacts.absolute() / PAYLOAD
    try:
        return file if stat.S_ISREG(file.lstat().st_mode) else None
    except OSError:
        return None


def with_notes(run: Run, attempt: Attempt) -> Attempt:
    """The attempt with what the agent's notes say; of notes that are no readable file, why not."""
    file = notes_file(run)
    if file is None:
        return attempt
    root, name = (run.workspace.root, run.notes) if isinstance(run.notes, str) else (run.artifacts, OWN)
    if root == run.artifacts:
        with suppress(OSError):  # then it is said that there is no such folder
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text, size, problem = _read(root, os.fsencode(str(name)))
    text = fit(clean(run.journal.redact.text(text)).strip(), NOTES_BYTES)
    return replacing.replace(attempt, notes=Notes(file=str(file), text=text, size=size, problem=problem))


def renderer(run: Run) -> Callable[[Attempt], str]:
    """What makes the prompt of an attempt of this run, and keeps it for `show --prompt` where runs are kept."""
    workdir = run.workspace.mode != "none"

    def render(attempt: Attempt) -> str:
        text: str = run.journal.redact.text(prompts.prompt(attempt, workdir=workdir))
        _keep(run.artifacts, attempt, text)
        return text

    return render


def _read(root: Path, name: bytes) -> tuple[str, int, str]:
    """The text of a file that an agent wrote, its size, and what is wrong with it."""
    seen = place.look(root, name)
    if seen is None:
        there = os.path.lexists(Path(root, os.fsdecode(name)))
        return "", 0, "a folder above the file is a link" if there else ""
    if not stat.S_ISREG(seen.st_mode):
        kind = (
            "a link"
            if stat.S_ISLNK(seen.st_mode)
            else "a folder"
            if stat.S_ISDIR(seen.st_mode)
            else "no file"
        )
        return "", 0, f"this is {kind}, make it a plain file"
    descriptor = place.read(root, name)
    if descriptor is None:
        return "", 0, "the file cannot be opened"
    try:
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, 2 * PART_BYTES, 0)
        if size > 2 * PART_BYTES:
            data = data[:PART_BYTES] + b"\n" + os.pread(descriptor, PART_BYTES, size - PART_BYTES)
    except OSError as error:
        return "", 0, f"the file cannot be read: {error.strerror}"
    finally:
        os.close(descriptor)
    return data.decode(errors="replace"), size, ""


def _keep(artifacts: Path, attempt: Attempt, text: str) -> None:
    """Writes a prompt down. It is a record and no more: where it cannot be kept, the attempt goes on."""
    if not artifacts.parents[1].is_dir():  # nothing is kept of this run, or not here
        return
    file = artifacts / f"{attempt.iteration:04d}" / f"attempt-{attempt.number}" / "prompt.md"
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
