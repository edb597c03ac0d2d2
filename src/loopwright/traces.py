"""Which trace a run belongs to, and the names of its spans: what a child process finds in `TRACEPARENT`.

Rule: made of the run's record alone, so a run that goes on in another process goes on in the same trace, and two
processes never make the same name for different work. Nothing here sends anything. The format is that of W3C Trace
Context, https://www.w3.org/TR/trace-context/.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

LABEL: Final = "traceparent"  # of a run: the span that it was started in
_FORMAT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace of a run: its id, the span that the run was started in (`None`: none), whether it is sampled.

    Ids are hexadecimal: 32 digits for a trace, 16 for a span.
    """

    id: str
    seed: bytes
    parent: str | None = None
    sampled: bool = True

    def span(self, *key: object) -> str:
        """The id of the run's span of this name: the same name, the same id."""
        words = "\0".join(map(str, key)).encode()
        return hashlib.sha256(self.seed + words).hexdigest()[:16]

    def header(self, *key: object) -> str:
        """What a child of that span is given as `TRACEPARENT`."""
        return f"00-{self.id}-{self.span(*key)}-{'01' if self.sampled else '00'}"


def trace_of(run: str, started_at: datetime, labels: Mapping[str, str]) -> Trace:
    """The trace of a run: the one it was started in, where its labels say so, else one of its own."""
    seed = hashlib.sha256(f"{run}\0{started_at.astimezone(UTC).isoformat()}".encode()).digest()
    found = _read(labels.get(LABEL, ""))
    if found is None:
        return Trace(seed.hex()[:32], seed)
    trace, span, sampled = found
    return Trace(trace, seed, span, sampled)


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The label of a run that is started inside a span, as the environment says; none where it says nothing valid."""
    said = environ.get("TRACEPARENT", "")
    return {LABEL: said} if said and _read(said) is not None else {}


def _read(header: str) -> tuple[str, str, bool] | None:
    """Trace, span and whether it is sampled; `None` for what is no valid header. Later versions may say more."""
    found = _FORMAT.fullmatch(header) if len(header) <= 200 else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not trace.strip("0") or not span.strip("0"):
        return None
    return trace, span, bool(int(flags, 16) & 1)
