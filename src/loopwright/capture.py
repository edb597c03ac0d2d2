"""Keep what a process says: everything up to a cap in a file, head and tail in memory, the last result line.

Rule: work per chunk, never per line, and memory that does not grow with what is said. Bytes are kept raw; whoever
shows them decodes them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINE_BYTES = 4 << 20  # a longer line is never a result
PEEKS = 8  # how often a line without its end is asked about: each costs as much as the line is long
LOG_TAIL_BYTES = 256 << 10


@dataclass(slots=True)
class Ends:
    """The first `head` and the last `tail` bytes of a stream, and how many bytes passed in all."""

    head: int
    tail: int
    total: int = 0
    first: bytearray = field(default_factory=bytearray)
    last: bytearray = field(default_factory=bytearray)

    def add(self, chunk: bytes) -> None:
        """Take one more chunk."""
        self.total += len(chunk)
        if len(self.first) < self.head:
            room = self.head - len(self.first)
            self.first += chunk[:room]
            chunk = chunk[room:]
        if len(chunk) >= self.tail:
            self.last[:] = memoryview(chunk)[len(chunk) - self.tail :]
        else:
            self.last += chunk
            if len(self.last) > 2 * self.tail:  # seldom, so that many small chunks stay cheap
                del self.last[: len(self.last) - self.tail]

    def text(self) -> tuple[bytes, int]:
        """What was kept, with a line that says so where bytes are left out, and how many were left out."""
        left_out = max(0, self.total - len(self.first) - self.tail)
        last = bytes(self.last[max(0, len(self.last) - self.tail) :])
        gap = b"\n[loopwright: truncated %d bytes]\n" % left_out if left_out else b""
        return bytes(self.first) + gap + last, left_out


@dataclass(slots=True)
class Log:
    """A file of at most `cap` bytes: the head is written as it comes, the tail when the log is closed."""

    descriptor: int
    rest: Ends
    room: int
    problem: str = ""

    def add(self, chunk: bytes) -> None:
        """Write one more chunk, or keep it for the tail; a file that cannot be written costs the log, not the agent."""
        if self.room > 0 and not self.problem:
            head, rest = chunk[: self.room], chunk[self.room :]
            chunk = self._write(head) + rest
        if chunk:
            self.room = 0
            self.rest.add(chunk)

    def _write(self, data: bytes) -> bytes:
        view = memoryview(data)
        try:
            while view:
                written = os.write(self.descriptor, view)
                self.room -= written
                view = view[written:]
        except OSError as error:
            self.problem = f"the log could not be written: {error.strerror}"
        return bytes(view)

    def close(self) -> int:
        """Write the tail after the words "truncated N bytes"; N, 0 when the file holds everything."""
        text, left_out = self.rest.text()
        self.problem, before = "", self.problem  # a disk that was full may have room again
        unwritten = self._write(text)
        self.problem = before or self.problem
        os.close(self.descriptor)
        return left_out + len(unwritten)


def open_log(path: Path, cap: int) -> Log:
    """A new log at `path` (made readable by us only, never through a symlink the agent may have put there)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    tail = min(LOG_TAIL_BYTES, cap // 4)
    return Log(os.open(path, flags, 0o600), Ends(0, tail), max(0, cap - tail - 64))


def looks_like_result(line: bytes) -> bool:
    """Whether a line may be the final result; a cheap test of bytes, the reader parses it."""
    line = line.strip()
    return line[:1] == b"{" and line[-1:] == b"}" and b'"result"' in line and b'"type"' in line


@dataclass(slots=True)
class Lines:
    """The last result line of a stream, and whether `finished` held for one of its JSON lines.

    `each` hears every complete one of them, once; what it answers with True is `enough`.
    """

    finished: Callable[[bytes], bool] | None = None
    each: Callable[[bytes], bool] | None = None
    result: bytes | None = None
    done: bool = False
    enough: bool = False
    carried: bytearray = field(default_factory=bytearray)  # the line that is not complete yet
    overlong: bool = False
    peeked: int = 0

    def add(self, chunk: bytes) -> None:
        """Look through one more chunk."""
        end = chunk.rfind(b"\n")
        if end >= 0:
            first = chunk.find(b"\n")
            self._carry(chunk[:first])
            self.close()
            self._search(chunk, first, end)
        self._carry(chunk[end + 1 :])
        if chunk[-1:] == b"}" and self.carried[:1] == b"{" and self.peeked < PEEKS:
            self.peeked += 1  # it may have no more to say, not even the end of the line
            self._ask(bytes(self.carried))

    def close(self) -> None:
        """The line carried so far is complete."""
        line = bytes(self.carried)
        self.carried.clear()
        if not self.overlong and line:
            self.result = line.strip() if looks_like_result(line) else self.result
            self._whole(line)
        self.overlong, self.peeked = False, 0

    def _carry(self, part: bytes) -> None:
        if self.overlong or len(self.carried) + len(part) > LINE_BYTES:
            self.overlong = True
            self.carried.clear()
        else:
            self.carried += part

    def _whole(self, line: bytes) -> None:
        if self.each and line.lstrip()[:1] == b"{" and line.rstrip()[-1:] == b"}":
            self.enough = bool(self.each(line.strip())) or self.enough
        self._ask(line)

    def _ask(self, line: bytes) -> None:
        line = line.strip()
        if self.finished and not self.done and line[:1] == b"{" and line[-1:] == b"}":
            self.done = bool(self.finished(line))

    def _search(self, chunk: bytes, first: int, end: int) -> None:
        """Look at the complete lines between two line ends, touching only those that can matter."""
        at = chunk.rfind(b'"result"', first, end)
        while at >= 0:
            start = chunk.rfind(b"\n", first, at) + 1
            line = chunk[start : chunk.find(b"\n", at)]
            if looks_like_result(line):
                self.result = line.strip()
                break
            at = chunk.rfind(b'"result"', first, start)
        if (
            not (self.finished or self.each) or b"{" not in chunk
        ):  # one byte is searched for ten times as fast as two
            return
        at = chunk.find(b"\n{", first, end)
        while at >= 0 and (self.each or not self.done):
            self._whole(chunk[at + 1 : chunk.find(b"\n", at + 1)])
            at = chunk.find(b"\n{", at + 1, end)
