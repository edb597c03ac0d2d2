"""Power loss at any operation: which disks may be found afterwards.

What was written and not yet synced may be there, or not, or in part, 512 bytes at a time, and a file may have its
new length without its new content. What was done to names may be lost too: profile `posix` forgets any of it until
the folder is synced; `ext4` keeps an order, and any sync commits the names made before it.

Rule: a disk is only ever made worse than the calls asked for, never better than they promise.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from loopwright.testing.crash import Fault, Say, crashed
from loopwright.testing.operations import Op, Tap

Profile: TypeAlias = Literal["posix", "ext4"]
PROFILES: Final[tuple[Profile, ...]] = ("posix", "ext4")
BLOCK: Final = 512
SAID: Final = "+"  # an operation of this path is no operation: the work was told something


@dataclass(slots=True)
class _File:
    """A file's durable bytes, and what is written and not yet synced. `folder`: it is one."""

    folder: bool = False
    data: bytearray = field(default_factory=bytearray)
    pending: list[Op] = field(default_factory=list)


def recorded(work: Callable[[Say], None], folder: Path, tap: Tap, fault: Fault | None = None) -> list[Op]:
    """Every operation of `work` below `folder`, and in between what it said was acknowledged.

    It works in a process of its own, which is gone afterwards, as after power loss; `fault` may end it before.
    """
    with tempfile.TemporaryFile(buffering=0) as file:

        def note(op: Op) -> None:
            file.write(json.dumps({**asdict(op), "data": op.data.hex()}).encode() + b"\n")

        def see(op: Op, result: Any) -> None:
            if op.kind in {"create", "mkdir"}:
                op = replace(op, file=os.stat(op.path).st_ino)  # noqa: PTH116 - not one of the operations
            if op.kind == "write" and isinstance(result, int):
                op = replace(op, data=op.data[:result])
            note(op)

        def told(say: Say) -> Say:
            def tell(text: str) -> None:
                note(Op(kind="write", path=SAID, data=text.encode()))
                say(text)

            return tell

        end = crashed(lambda say: work(told(say)), folder, tap, fault, see)
        if end.error:
            raise RuntimeError(f"the work that was to be recorded failed: {end.error}")
        file.seek(0)
        rows = [json.loads(line) for line in file]
    return [Op(**{**row, "data": bytes.fromhex(row["data"])}) for row in rows]


class Disk:
    """A disk below `folder` to which operations happen, and what power loss would leave of it."""

    def __init__(self, folder: Path, profile: Profile) -> None:
        self._folder = str(folder)
        self._profile = profile
        self._now: dict[str, _File] = {}  # as programs see it
        self._durable: dict[str, _File] = {}
        self._names: list[Op] = []  # what was done to names since
        self._files: dict[int, _File] = {}
        self._meant: dict[int, _File] = {}  # the file that an operation on names is about
        self.said: list[str] = []

    def feed(self, op: Op) -> None:
        """One operation more."""
        if op.path == SAID:
            self.said.append(op.data.decode())
            return
        match op.kind:
            case "create" | "mkdir":
                made = _File(folder=op.kind == "mkdir")
                self._meant[id(op)] = self._now[op.path] = made
                self._files[op.file or -id(op)] = made
                self._names.append(op)
            case "rename" | "link" | "unlink":
                if op.path in self._now:
                    self._meant[id(op)] = self._now[op.path]
                    self._name(self._now, op)
                    self._names.append(op)
            case "write" | "truncate":
                if (file := self._files.get(op.file)) is not None:
                    file.pending.append(op)
            case "sync":
                self._sync(op)

    def _sync(self, op: Op) -> None:
        file = self._files.get(op.file)
        if file is not None and not file.folder:
            for pending in file.pending:
                _apply(file.data, pending)
            file.pending.clear()
        elif self._profile == "posix":  # a folder: its own names
            mine = [n for n in self._names if op.path in {os.path.dirname(n.path), os.path.dirname(n.to)}]  # noqa: PTH120
            self._commit(mine)
        if self._profile == "ext4":
            self._commit(list(self._names))

    def _commit(self, names: list[Op]) -> None:
        for op in names:
            self._name(self._durable, op)
        done = {id(op) for op in names}
        self._names = [op for op in self._names if id(op) not in done]

    def _name(self, names: dict[str, _File], op: Op) -> None:
        match op.kind:
            case "create" | "mkdir":
                names[op.path] = self._meant[id(op)]
            case "unlink":
                names.pop(op.path, None)
            case "rename":
                names.pop(op.path, None)
                names[op.to] = self._meant[id(op)]
            case "link":
                names[op.to] = self._meant[id(op)]
            case _:
                pass

    def lost(
        self, dice: random.Random, how: Literal["all", "none", "names", "some"]
    ) -> dict[str, bytes | None]:
        """What may be found: files with their bytes, folders with `None`, by their path below the folder.

        `all`: nothing was lost; `none`: all that could be; `names`: only unsynced content; `some`: by chance.
        """
        names = dict(self._durable)
        match how:
            case "all" | "names":
                kept = self._names
            case "none":
                kept = []
            case "some" if self._profile == "ext4":
                kept = self._names[: dice.randint(0, len(self._names))]
            case "some":
                kept = [op for op in self._names if dice.random() < 0.5]
        for op in kept:
            self._name(names, op)
        found: dict[str, bytes | None] = {}
        for path, file in sorted(names.items()):
            parent = os.path.dirname(path)  # noqa: PTH120
            if parent != self._folder and os.path.relpath(parent, self._folder) not in found:
                continue  # its folder is lost
            found[os.path.relpath(path, self._folder)] = None if file.folder else _content(file, dice, how)
        return found


def _content(file: _File, dice: random.Random, how: str) -> bytes:
    data = bytearray(file.data)
    for op in file.pending if how in {"all", "some"} else ():
        if how == "all":
            _apply(data, op)
        elif op.kind == "truncate":
            if dice.random() < 0.5:
                _apply(data, op)
        else:
            for at in range(0, len(op.data), BLOCK):
                block, chance = op.data[at : at + BLOCK], dice.random()
                if chance < 0.5:
                    _apply(data, replace(op, at=op.at + at, data=block))
                elif chance < 0.6:  # the length was written, the content not
                    _apply(data, replace(op, at=op.at + at, data=bytes(len(block))))
    return bytes(data)


def _apply(data: bytearray, op: Op) -> None:
    if op.kind == "truncate":
        del data[op.at :]
        data.extend(bytes(op.at - len(data)))
    else:
        data.extend(bytes(max(0, op.at - len(data))))
        data[op.at : op.at + len(op.data)] = op.data


def states(
    ops: list[Op], folder: Path, *, profile: Profile, chances: int, seed: str
) -> Iterator[tuple[int, dict[str, bytes | None], list[str]]]:
    """After each operation, disks that power loss may leave: which operation, the disk, what was acknowledged."""
    disk = Disk(folder, profile)
    dice = random.Random(seed)  # noqa: S311 - repeatable on purpose
    hows: list[Literal["all", "none", "names", "some"]] = ["all", "none", "names", *["some"] * chances]  # type: ignore[list-item]
    for number, op in enumerate(ops):
        disk.feed(op)
        for how in hows:
            yield number, disk.lost(dice, how), list(disk.said)


def written(found: dict[str, bytes | None], folder: Path) -> None:
    """Makes `folder` that disk."""
    for path, data in found.items():
        target = folder / path
        if data is None:
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
