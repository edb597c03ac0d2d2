"""What a failure is recognised by: gates, failing items and messages, without what differs between two runs of it.

Rule: noise is what a machine makes up anew each time (folders, times, addresses, ids, ports); what was asserted is
kept, so small integers and quoted values count. In quotes only what can be nothing but noise is taken out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final

KEPT: Final = 1000  # characters of a message; where a long one was cut short before depends on its noise
_GONE: Final = "…"

# Noise wherever it stands, in quotes too: nobody writes these by hand.
_SURE: Final = re.compile(
    r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"  # a UUID
    r"|\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\b0x[0-9a-f]{4,}\b"
    r"|(?:/private)?/(?:tmp|var/tmp|var/folders|dev/shm|run/user)/(?:[^\s'\"`:,;()<>\[\]]*/)?"  # up to the last name
    r"|\bpytest-(?:of-)?\w+/|\btmp[-_.]?(?=[a-z0-9_]{0,11}[0-9_])[a-z0-9_]{6,12}\b|\btmp[a-z0-9_]{8}\b",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile(r"""(?<!\w)(?:'[^'\n]{0,200}'(?!\w)|"[^"\n]{0,200}"|`[^`\n]{0,200}`)""")
_LENGTH: Final = r"(?:[nmuµ]?s|m?secs?|(?:milli|micro|nano)?seconds?|mins?|minutes?|hours?)\b"
# Noise outside quotes, each with what takes its place.
_BARE: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), instead)
    for pattern, instead in (
        (r"(?<![\w.:/~])(?:[a-z]:\\|~?/)(?:[^\s'\"`:,;()<>\[\]\\/]+[\\/])+", ""),  # the folders of a path
        (
            r"\b(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? +(?=\d|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)",
            "",
        ),
        (r"\b(?:\d{1,2} )?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? \d{1,4}\b", _GONE),
        (r"\b\d{1,2}[/.]\d{1,2}[/.]\d{4}\b|\b\d{4}[/.]\d{1,2}[/.]\d{1,2}\b", _GONE),
        (r"\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?(?: ?[ap]m\b)?", _GONE),
        (r"\b(?:\d{1,3}\.){3}\d{1,3}\b", _GONE),
        (
            r"(?<![\w.])(?:\d+h ?)?(?:\d+m ?)?\d+(?:\.\d+)?(?:e-?\d+)? ?" + _LENGTH,
            _GONE,
        ),
        (r"\b\d+h(?: ?\d+m)?\b|\b\d+m(?= \d+s|\b(?!\w))", _GONE),
        (r"\b(pid|tid|port|thread|process|seed|gw)(\]?[ =:#-]{0,2})\d+\b", rf"\1\2{_GONE}"),
        (r"\b(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,}\b", _GONE),  # ids of commits, requests, containers
        (r"\b\d{1,3}(?:,\d{3})+(?:\.\d+)?\b", _GONE),
        (r"(?<![\w.])\d{4,}(?:\.\d+)?\b", _GONE),
    )
)
_ID: Final = re.compile(r"\b(?=[A-Za-z]*\d)(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])[A-Za-z0-9]{16,}\b")
_TELLS: Final = re.compile(r"[0-9/\\]")


def steadied(message: str) -> str:
    """A message the same for the same failure: without paths, times, addresses, ids, ports, processes, long numbers."""
    if not _TELLS.search(message):
        return message
    message = _SURE.sub(_GONE, message)
    parts, at = [], 0
    for quoted in _QUOTED.finditer(message):
        parts += [_bare(message[at : quoted.start()]), quoted[0]]
        at = quoted.end()
    return "".join([*parts, _bare(message[at:])])


def _bare(text: str) -> str:
    text = _ID.sub(_GONE, text)
    for pattern, instead in _BARE:
        text = pattern.sub(instead, text)
    return text


def fingerprint(failures: Iterable[tuple[str, Sequence[str], str]]) -> str:
    """16 hexadecimal digits for gates (with their status), their failing items in any order, and their messages."""
    lines = [
        "\0".join((name, *sorted(failing), steadied(message)[:KEPT])) for name, failing, message in failures
    ]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]
