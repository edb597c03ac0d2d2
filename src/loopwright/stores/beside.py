"""What the files store keeps beside a journal: for people, for `list`, and for a quick start.

Rules. It is written after the commit it tells of is durable, whole or not at all; only a checkpoint is fsynced,
so that none is ever seen torn. All of it can be made anew from the journal. The head says what the journal was:
it is the witness by which an older copy, or a cut one, is known.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loopwright.errors import Corrupt
from loopwright.ports import Kept
from loopwright.stores import disk
from loopwright.stores.lines import Seen, Witness, witness


class Beside:
    """The files beside the journals in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[str, int] = {}  # how many checkpoints a run has

    def state(self, run: str) -> Path:
        """The latest state, for people."""
        return self.folder / f"{run}.json"

    def head(self, run: str) -> Path:
        """The run document, framed."""
        return self.folder / "heads" / f"{run}.head"

    def fold(self, run: str) -> Path:
        """A cached fold, framed."""
        return self.folder / "folds" / f"{run}.fold"

    def checkpoint(self, run: str, number: int) -> Path:
        """The state as iteration `number` closed, for people."""
        return self.folder / "checkpoints" / f"{run}-{number:04d}.json"

    def _sums(self, run: str) -> Path:
        return self.folder / "checkpoints" / f"{run}.sha256"

    def framed(self, run: str, path: Path) -> tuple[dict[str, Any], bytes] | None:
        """What a framed file of this run holds; `None` when it is missing, damaged or another run's."""
        found = disk.framed(path)
        return found if found is not None and found[0].get("run") == run else None

    def known(self, run: str) -> Witness | None:
        """What the head knows of the journal; `None` without a good head."""
        found = self.framed(run, self.head(run))
        try:
            return None if found is None else witness(found[0])
        except (ValueError, KeyError, TypeError):
            return None

    def traces(self, run: str) -> bool:
        """Whether anything says that this run was here."""
        return self.head(run).exists() or self.state(run).exists()

    def keep(self, run: str, seen: Seen, commit: bytes, kept: Kept) -> None:
        """Writes what belongs to the commit that `seen` ends with."""
        for path in (self.head(run), self._sums(run)):
            disk.make_dir(path.parent)
        if kept.closed is not None:
            self._made[run] = (
                self._count(run) + 1
            )  # counted even if it cannot be written: then the count tells
            text = kept.at_close()
            disk.put(self.checkpoint(run, kept.closed), text, sync=True)
            disk.extend(self._sums(run), self._sum(run, kept.closed, text))
        state = kept.state()
        disk.put(self.state(run), state, sync=False)
        if kept.fold is not None:
            disk.make_dir(self.fold(run).parent)
            disk.put(self.fold(run), disk.frame(kept.fold, run=run, n=seen.n), sync=False)
        self._put_head(run, seen, commit, kept, state)

    def _put_head(self, run: str, seen: Seen, commit: bytes, kept: Kept, state: bytes) -> None:
        fields = {
            "run": run,
            "n": seen.n,
            "end": seen.end,
            "line": disk.digest(commit),
            "journal": seen.hash.hexdigest(),
            "active": kept.active,
            "touched": time.time_ns(),
            "checkpoints": self._count(run),
            "state": disk.digest(state),
        }
        body = kept.head
        if (
            body is None
        ):  # the document of the commit before may stand; what is known of the journal is of this one
            body = (self.framed(run, self.head(run)) or ({}, b""))[1]
        disk.put(self.head(run), disk.frame(body, **fields), sync=False)

    def _count(self, run: str) -> int:
        if run not in self._made:
            found = self.framed(run, self.head(run))
            self._made[run] = found[0].get("checkpoints", 0) if found else len(self._listed(run) or ())
        return self._made[run]

    def _sum(self, run: str, number: int, text: bytes) -> bytes:
        """A line for `sha256sum -c`."""
        return f"{disk.digest(text)}  {self.checkpoint(run, number).name}\n".encode()

    def _listed(self, run: str) -> list[tuple[str, str]] | None:
        """Each checkpoint written, in order: name and digest; `None` when the list is damaged."""
        try:
            rows = self._sums(run).read_text("ascii").splitlines()
            found = [(name, sha) for sha, name in (row.split("  ") for row in rows)]
            return found if all(name.rpartition("-")[0] == run for name, _ in found) else None
        except FileNotFoundError:
            return []
        except (OSError, ValueError):
            return None

    def sound(self, run: str, seen: Seen) -> bool:
        """Whether everything is as it was written with the last commit of the journal, which `seen` ends with."""
        found, listed = self.framed(run, self.head(run)), self._listed(run)
        if found is None or listed is None:
            return False
        fields = found[0]
        told = (fields.get("n"), fields.get("checkpoints"), fields.get("journal"))
        if told != (seen.n, len(listed), seen.hash.hexdigest()):
            return False
        if self.fold(run).exists() and self.framed(run, self.fold(run)) is None:
            return False
        files = [(self.state(run), fields.get("state"))]
        files += [(self.folder / "checkpoints" / name, sha) for name, sha in dict(listed).items()]
        return all(_holds(path, sha) for path, sha in files)

    def anew(self, run: str, seen: Seen, commit: bytes, made: Iterator[tuple[int, Kept]]) -> list[str]:
        """Every file as the journal says, whose commits `made` goes through; what was done.

        What says otherwise is moved aside. `Corrupt` when a checkpoint is of an iteration the journal does not have.
        """
        for path in (self.head(run), self._sums(run)):
            disk.make_dir(path.parent)
        closed: dict[int, bytes] = {}
        last: Kept | None = None
        for _, last in made:
            if last.closed is not None:
                closed[last.closed] = last.at_close()
        if last is None:
            return []
        for name in disk.names(self.folder / "checkpoints", ".json"):
            of, _, at = name.rpartition("-")
            if of == run and at.isdecimal() and int(at) not in closed:
                raise Corrupt(
                    f"the journal of run {run} in {self.folder} is older than checkpoints/{name}.json: restore a newer copy"
                )
        told: list[str] = []
        for number, text in closed.items():
            told += _corrected(self.checkpoint(run, number), text)
        sums = b"".join(self._sum(run, number, text) for number, text in closed.items())
        disk.put(self._sums(run), sums, sync=False)
        self._made[run] = len(closed)
        state = last.state()
        told += _corrected(self.state(run), state, earlier=run)
        for cache in (self.head(run), self.fold(run)):
            if cache.exists() and self.framed(run, cache) is None:
                told.append(f"{cache} was damaged: it is kept as {disk.aside(cache).name}")
        self._put_head(run, seen, commit, last, state)
        return told


def _corrected(path: Path, text: bytes, *, earlier: str = "") -> list[str]:
    """`path` holds `text`; what else stood there is kept aside, unless it is an earlier state of that run."""
    told = []
    if path.exists():
        stood = path.read_bytes()
        if stood == text:
            return []
        if not (earlier and _state_of(stood) == earlier):
            told.append(
                f"{path} was not as the journal says: made anew, the other one is kept as {disk.aside(path).name}"
            )
    disk.put(path, text, sync=True)
    return told


def _state_of(text: bytes) -> Any:
    """The run whose state this is; `None` when it is not one."""
    try:
        return json.loads(text, parse_constant=_refused)["loop_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _refused(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def _holds(path: Path, sha: Any) -> bool:
    try:
        return bool(disk.digest(path.read_bytes()) == sha)
    except OSError:
        return False
