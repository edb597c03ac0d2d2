"""Report files as bytes: regular, readable, bounded.

Rule: an agent may have put anything at the path of a report (a pipe, a link to a device, a folder, a file that
never ends); none of it may hold, fill or stop us.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from loopwright.errors import BadEvidence
from loopwright.redact import Redactor

CHUNK = 1 << 20
LINE = 8 << 20  # bytes of one line; a longer one would have to be held in memory


def chunks(path: Path, name: str, max_bytes: int, redact: Redactor | None = None) -> Iterator[bytes]:
    """The file's bytes, a megabyte at a time; an empty file gives none. With `redact`, without its secrets.

    Raises BadEvidence: `missing_report`, `unreadable_report` (not a regular file, no permission), `too_large`.
    """
    try:
        # O_NONBLOCK: opening a pipe that nobody writes to must not hold us.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise BadEvidence("missing_report", f"{name} does not exist") from None
    except OSError as error:
        raise BadEvidence("unreadable_report", f"{name} cannot be read: {error.strerror}") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise BadEvidence("unreadable_report", f"{name} is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        left, stream = max_bytes, redact.stream() if redact is not None else None
        while chunk := file.read(CHUNK):
            left -= len(chunk)
            if left < 0:
                raise BadEvidence(
                    "too_large", f"{name} is larger than {max_bytes} bytes ({found.st_size}); see max_bytes"
                )
            yield chunk if stream is None else stream.add(chunk)
        if stream is not None:
            yield stream.close()


def lines(pieces: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of a text that comes in pieces, without their ends; bytes that are not UTF-8 are shown as `\ufffd`.

    Raises BadEvidence `too_large` for a line of more than 8 MB.
    """
    rest = b""
    for piece in pieces:
        *complete, rest = (rest + piece).split(b"\n")
        for line in complete:
            yield line.decode("utf-8", "replace").removesuffix("\r")
        if len(rest) > LINE:
            raise BadEvidence("too_large", f"{name} has a line of more than {LINE >> 20} MB")
    if rest:
        yield rest.decode("utf-8", "replace").removesuffix("\r")


def redacted(path: Path, redact: Redactor) -> None:
    """A report that a tool wrote into a folder of ours holds no secrets any more; one that held none is not touched.

    What is no regular file stays as it is: nobody reads it. Raises OSError when it cannot be written again.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    temp = path.with_name(f".{secrets.token_hex(8)}.redacted")
    stream, changed = redact.stream(), False
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return
    with os.fdopen(descriptor, "rb") as file:
        try:
            with open(temp, "xb", opener=_private) as clean:
                while chunk := file.read(CHUNK):
                    changed |= redact.may_hold(stream.held + chunk)
                    clean.write(stream.add(chunk))
                clean.write(stream.close())
            if changed:
                temp.replace(path)
        finally:
            temp.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def whole(path: Path, name: str, max_bytes: int, redact: Redactor | None = None) -> bytes:
    """All bytes of the file, for formats that are read at once; raises as `chunks` does."""
    return b"".join(chunks(path, name, max_bytes, redact))
