"""How the page says how a run stands: a word, a tone that is never told by colour alone, and times as people read them.

Rule: from a run's head alone; the reason speaks, not the phase. What is not known is a dash or said to be unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from loopwright.figures import paid, seconds

Tone = Literal["good", "bad", "warn", "busy", "calm"]
MARKS: Final[Mapping[Tone, str]] = {"good": "✓", "bad": "✗", "warn": "!", "busy": "▶", "calm": "‖"}
_BUSY: Final = {
    "planning": "about to begin",
    "executing": "agent at work",
    "validating": "being judged",
}
_PASSED: Final = {
    "quality_reached": "passed: quality reached",
    "already_satisfied": "passed: already satisfied",
    "limits_reached": "kept the best: limits reached",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """How a run stands: the word, what it means for who looks, and the mark beside the colour."""

    text: str
    tone: Tone
    order: int  # needs you, failed, under way, rests, good

    @property
    def mark(self) -> str:
        """The sign that says the same as the colour."""
        return MARKS[self.tone]


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A time: how long from now, and exactly."""

    text: str
    exact: str
    iso: str


def word(head: Mapping[str, Any], now: datetime, *, alone: bool = False, queued: bool = False) -> Word:
    """How the run of this head stands. `alone`: its process is gone; `queued`: it waits for a place."""
    reason, phase = head.get("reason"), head.get("phase")
    if reason == "approval_requested":
        wake = moment(head.get("wake"))
        left = "" if wake is None else f" · {lasting((wake - now).total_seconds())} left"
        return Word(text=f"waits for you{left}", tone="warn", order=0)
    if reason == "approval_expired":
        return Word(text="nobody answered in time", tone="warn", order=0)
    if reason == "paused":
        return Word(text="paused", tone="calm", order=3)
    if phase in {"complete", "failed", "stopped"}:
        said = str(reason).replace("_", " ")
        if phase == "complete":
            return Word(text=_PASSED.get(str(reason), said), tone="good", order=4)
        return Word(text=f"{phase}: {said}", tone="bad", order=1)
    if alone:
        return Word(text="its process is gone", tone="bad", order=1)
    if queued:
        return Word(text="waits for a place", tone="calm", order=2)
    if phase == "waiting":
        wake = moment(head.get("wake"))
        left = "" if wake is None else f" · {lasting((wake - now).total_seconds())} left"
        return Word(text=f"waits for its agent{left}", tone="calm", order=2)
    return Word(text=_BUSY.get(str(phase), str(phase)), tone="busy", order=2)


def moment(value: object) -> datetime | None:
    """A time of a head: a text, a time, or none."""
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def lasting(value: float) -> str:
    """`42 s`, `12 min`, `3 h`, `2 d`: a length at a glance, rounded down."""
    left = max(0, int(value))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if left >= 2 * size or (size < 86400 and left >= size):
            rest = left % size // (60 if size == 3600 else 3600) if size > 60 else 0
            more = f" {rest} {'min' if size == 3600 else 'h'}" if rest and left < 10 * size else ""
            return f"{left // size} {unit}{more}"
    return f"{left} s"


def ago(at: datetime | None, now: datetime) -> When | None:
    """How long ago."""
    return None if at is None else _when(at, f"{lasting((now - at).total_seconds())} ago")


def until(at: datetime | None, now: datetime) -> When | None:
    """How long it is to go; `over` where it is past."""
    if at is None:
        return None
    left = (at - now).total_seconds()
    return _when(at, f"in {lasting(left)}" if left > 0 else "over")


def clock(at: datetime, now: datetime) -> When:
    """`09:45:31`, with the day where it is another one, in UTC."""
    at = at.astimezone(UTC)
    day = "" if at.date() == now.astimezone(UTC).date() else f"{at:%Y-%m-%d} "
    return _when(at, f"{day}{at:%H:%M:%S}")


def _when(at: datetime, text: str) -> When:
    utc = at.astimezone(UTC)
    return When(text=text, exact=f"{utc:%Y-%m-%d %H:%M:%S} UTC", iso=f"{utc:%Y-%m-%dT%H:%M:%SZ}")


def cost(head: Mapping[str, Any]) -> str:
    """What it cost: dollars, tokens where a plan pays, `unknown` where nobody knows; nothing before any attempt."""
    plan, usd, tokens = bool(head.get("plan")), head.get("cost_usd"), head.get("tokens")
    if usd is None and tokens is None and not plan:
        return "-" if not head.get("iterations") else "unknown"
    return f"{paid(usd, tokens, plan=True)} (plan)" if plan else "unknown" if usd is None else paid(usd, None)


def worked(value: float) -> str:
    """Seconds of work as people read them."""
    return seconds(value)
