"""The values a run is made of: what an agent is asked, what it gave, how it was judged.

Rule: a value that exists is valid. Every number is checked to be finite here, at the only
entrance; unknown is `None`, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from math import isfinite
from typing import Any, Literal

Status = Literal["pass", "fail", "error", "skipped"]
Cause = Literal["tool", "evidence"]
Direction = Literal["max", "min"]
Phase = Literal[
    "planning",
    "executing",
    "validating",
    "human_review",
    "waiting",
    "paused",
    "complete",
    "failed",
    "stopped",
]
FailureKind = Literal[
    "transient",
    "rate_limited",
    "context_overflow",
    "no_op",
    "no_output",
    "timeout",
    "unknown",
    "blocked",
    "permanent",
    "policy_violation",
]
Outcome = Literal["accepted", "not_accepted", "revised", "errored", "cut"]
About = Literal["accept", "alert", "blocked", "evidence"]
Action = Literal["note", "nudge", "ask", "stop", "off"]
Answer = Literal["approve", "revise", "reject", "expired"]

NO_EVIDENCE: Mapping[str, Any] = {}


def finite(name: str, value: float, *, low: float | None = None, high: float | None = None) -> float:
    """`value` as a float, checked to be a finite number in `[low, high]`; `ValueError` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}, not a number")  # noqa: TRY004 - one error type for bad values
    if not isfinite(value):
        raise ValueError(f"{name} is {value!r}, not a finite number")
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(f"{name} is {value!r}, outside {_range(low, high)}")
    return float(value)


def _range(low: float | None, high: float | None) -> str:
    return f"{'-∞' if low is None else f'{low:g}'} to {'∞' if high is None else f'{high:g}'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an attempt used, as far as it is known: dollars, tokens, turns. `None` is unknown, not zero."""

    cost_usd: float | None = None
    tokens: int | None = None
    turns: int | None = None

    def __post_init__(self) -> None:
        for name in ("cost_usd", "tokens", "turns"):
            value = getattr(self, name)
            if value is not None:
                finite(name, value, low=0)


UNKNOWN_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class Result:
    """What an agent gives back: `output` is any JSON value, the rest is what it knows about its own work.

    `needs_human` says what only a person can do; it is asked for instead of judging the work.
    `claims_done` is a hint for reports: nothing is decided by it.
    """

    output: Any = None
    _: KW_ONLY
    summary: str = ""
    usage: Usage = UNKNOWN_USAGE
    session: str | None = None
    needs_human: str | None = None
    claims_done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """An attempt that gave a result. `degraded` names what went wrong beside it; `timed_out`: cut, work kept."""

    result: Result
    degraded: str | None = None
    timed_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An attempt that gave none: its kind decides what follows (DESIGN §5), `message` is the feedback."""

    kind: FailureKind
    message: str
    retry_after_s: float | None = None
    usage: Usage = UNKNOWN_USAGE
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """How far a gate's measure is to its own mark: `value` 0 to 1, 1 at or beyond it, and why.

    `status` may be left out: then `value` at or above the gate's `min` passes. `raw`, `unit` and
    `direction` tell the measure as taken. `failing` names the items that fail; a score with a
    number or such a set is `graded`, and only graded scores can converge. An `error` has a cause:
    *tool* (the gate could not run) or *evidence* (it ran and proves nothing).
    """

    value: float
    reason: str = ""
    _: KW_ONLY
    status: Status | None = None
    raw: float | None = None
    unit: str = ""
    direction: Direction | None = None
    cause: Cause | None = None
    graded: bool = False
    failing: tuple[str, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        finite("a score", self.value, low=0, high=1)
        if self.raw is not None:
            finite("a raw score", self.raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A score with the gate that gave it and the seconds it took."""

    gate: str
    score: Score
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All scores of one iteration together; its `reasons` are the next feedback, blockers first.

    `score` weighs every gate, `required_score` the required ones, which alone decide `passed`.
    `failing` is the set of failing items, `None` when nothing graded was measured.
    """

    score: float
    passed: bool
    required_score: float | None = None
    blockers: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    graded: bool = False
    failing: tuple[str, ...] = ()
    fingerprint: str = ""
    broken: tuple[str, ...] = ()
    objective: float | None = None
    min_gain: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """One closed iteration, as the fold remembers it (64 at most)."""

    number: int
    outcome: Outcome
    score: float | None
    passed: bool
    peak: float | None = None
    graded: bool = False
    failing: tuple[str, ...] = ()
    fingerprint: str = ""
    snapshot: str | None = None
    seconds: float = 0.0
    cost_usd: float | None = None
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best iteration so far: passed first, then score, then the earliest."""

    iteration: int
    score: float
    passed: bool
    snapshot: str | None
    output: Any = None
    objective: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What the limits leave for this attempt and those after it. `None` is no such limit."""

    iterations: int
    seconds: float
    attempts: int
    budget_usd: float | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """What the next attempt should know: reasons, people's notes, nudges, the last iterations, a warning."""

    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    nudges: tuple[str, ...] = ()
    history: tuple[Closed, ...] = ()
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One call of the agent: what is wanted, what came of it so far, and what is left to spend.

    `key` is the same for every attempt of one iteration (`<run>/<iteration>`): use it to make
    effects outside the workspace idempotent. `deadline_s` is the seconds this attempt may take.
    """

    run: str
    iteration: int
    number: int
    key: str
    goal: str
    feedback: Feedback
    left: Left
    deadline_s: float
    previous: Any = None
    best: Best | None = None
    reserve_usd: float | None = None
    workdir: str | None = None
