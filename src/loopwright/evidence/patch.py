"""What a change is made of: its files, and the lines it adds and removes.

Rule: hunks are read by the counts in their heads, so no line of a file is taken for a head; and one line is looked at
after the other, however many an agent has made.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from loopwright.errors import BadEvidence

_HUNK = re.compile(rb"@@ -(?:\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_LETTERS = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
_SNIFFED: Final = 8000  # bytes in which git, too, looks for a NUL


@dataclass(frozen=True, slots=True)
class Line:
    """One changed line, without its end: its number in the new file, 0 when it was removed."""

    path: str
    number: int
    text: bytes


@dataclass(slots=True)
class Tally:
    """How many lines of one path were changed, and whether that is text at all: binary content has no lines."""

    changed: int = 0
    sniffed: int = 0
    binary: bool = False

    def add(self, line: Line) -> None:
        """One more line of it."""
        self.changed += 1
        if self.sniffed < 2 * _SNIFFED and not self.binary:  # what was and what is now
            self.binary = b"\0" in line.text
            self.sniffed += len(line.text) + 1

    @property
    def lines(self) -> int:
        """Lines added and removed; none of a binary file."""
        return 0 if self.binary else self.changed


def paths(raw: bytes) -> tuple[str, ...]:
    """The changed paths in git's order, of `git diff-tree --raw -z`."""
    return tuple(os.fsdecode(path) for path in raw.split(b"\0")[1::2])


def lines(patch: bytes) -> Iterator[Line]:
    """Every line that a patch without lines around it adds or removes.

    BadEvidence `malformed` for one that breaks off.
    """
    rest = (line.removesuffix(b"\n") for line in io.BytesIO(patch))
    old = new = ""
    for line in rest:
        if line.startswith(b"--- "):
            old, new = _path(line[4:]), _path(next(rest, b"")[4:])
        elif head := _HUNK.match(line):
            less, at, more = int(head[1] or 1), int(head[2]), int(head[3] or 1)
            for _ in range(less):
                yield Line(old, 0, _text(rest, b"-"))
            for number in range(at, at + more):
                yield Line(new, number, _text(rest, b"+"))


def _text(lines: Iterator[bytes], sign: bytes) -> bytes:
    line = next(lines, b"")
    if line.startswith(b"\\"):  # "\ No newline at end of file", of the line before
        line = next(lines, b"")
    if not line.startswith(sign):
        raise BadEvidence("malformed", "the patch breaks off inside a hunk")
    return line[1:]


def _path(written: bytes) -> str:
    """A path as a patch writes it: with `a/` or `b/` before it, quoted like C where it must be, else with a final tab."""
    if written.startswith(b'"'):
        written = _ESCAPE.sub(_unescaped, written.rpartition(b'"')[0][1:])
    else:
        written = written.removesuffix(b"\t")
    return "" if written == b"/dev/null" else os.fsdecode(written[2:])


def _unescaped(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else _LETTERS.get(code, code)
