"""Text out of tools, made fit for a reason: no control characters, no noise, a bounded length.

Rule: what a person needs to act on is kept; what differs between two runs of the same failure (colours, the
folder, addresses, how long it took) is not, so that the same failure reads the same.
"""

from __future__ import annotations

import re
from pathlib import Path

from loopwright.errors import BadEvidence
from loopwright.prompt import clean

_PYTEST_ESCAPE = re.compile(r"#x1B\[[0-9;]*[A-Za-z]")  # how pytest writes an ANSI escape into XML
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{4,}")
_LASTED = re.compile(r"\b(in|after|took:?)(\s+)\d+(?:\.\d+)?\s?(ms|s|secs?|seconds?)\b")
_SCRATCH = re.compile(r"(/tmp/pytest-of-[^/\s]+)/pytest-\d+|(/tmp/tmp)[a-z0-9_]{8}\b")


def plain(text: str) -> str:
    """`text` without ANSI sequences and control characters."""
    return clean(_PYTEST_ESCAPE.sub("", text))


def steady(text: str, root: Path | None = None) -> str:
    """`text` the same for the same failure: paths relative to `root`, no addresses, no lengths of time."""
    if root is not None:
        for folder in {str(root), str(root.resolve())} - {"/", "."}:
            text = text.replace(folder + "/", "")
    text = _ADDRESS.sub("at 0x…", text)
    text = _LASTED.sub(r"\1\2… \3", text)
    return _SCRATCH.sub(lambda m: m[1] or f"{m[2]}…", text)


def clip(text: str, limit: int) -> str:
    """`text`, or its head and tail with `…` between them where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head].rstrip()} … {text[len(text) - (limit - head - 3) :].lstrip()}"


def one_line(text: str, limit: int) -> str:
    """`text` as one line of at most `limit` characters."""
    return clip(" ".join(text.split()), limit)


def decoded(data: bytes, name: str) -> str:
    """A report that is lines of text, plain; BadEvidence `malformed` for one that is none (UTF-16, gzip)."""
    if b"\0" in data:
        raise BadEvidence("malformed", f"{name} is not text in UTF-8: it holds zero bytes")
    return decode(data.removeprefix(b"\xef\xbb\xbf"))


def decode(data: bytes) -> str:
    """What a tool said, as plain text; bytes that are not UTF-8 are shown as `\ufffd`."""
    return plain(data.decode("utf-8", "replace"))
