"""The facts: everything that can be on record about a run, as one closed union.

Rule: a fact says what happened, in the past tense, and never changes. Schema v1 freezes with the
first release; after that a field may be added with a default, never renamed or removed. When a
fact happened (`at`) is kept beside it, in its commit; lengths are `seconds` of a monotonic clock.
Like every value, a fact that exists is valid: numbers are finite, times have a zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

from loopwright.core.frozen import frozen
from loopwright.core.values import (
    UNKNOWN_USAGE,
    About,
    Action,
    Answer,
    FailureKind,
    Outcome,
    Score,
    Usage,
    Verdict,
    bounded,
    finite,
)

StopReason = Literal[
    "quality_reached",
    "already_satisfied",
    "limits_reached",
    "max_iterations",
    "max_duration",
    "max_wait",
    "budget",
    "cost_unknown",
    "max_tokens",
    "converged",
    "consecutive_errors",
    "permanent_error",
    "gate_error",
    "interrupted_too_often",
    "health",
    "rejected",
    "stopped_by_user",
    "policy_violation",
]
EndPhase = Literal["complete", "failed", "stopped"]


def _aware(name: str, at: datetime | None) -> None:
    if at is not None and at.utcoffset() is None:
        raise ValueError(f"{name} {at.isoformat()} has no time zone")


@frozen
class RunStarted:
    """The run exists: `spec` is the resolved loop (secrets as names), `origin` what started it."""

    run: str
    spec: Mapping[str, Any]
    digest: str
    workspace: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    origin: str = "hand"


@frozen
class Claimed:
    """A host took the run. `outputs` are files its own stdout or stderr is open on."""

    epoch: int
    owner: str
    host: str
    boot: str
    outputs: tuple[str, ...] = ()


@frozen
class AttemptStarted:
    """Intent, on record before the effect: this attempt of this iteration begins from `snapshot`.

    `booking` says as what `reserve_usd` stands in the ledger of a day.
    """

    iteration: int
    attempt: int
    key: str
    allowance_s: float
    candidate: int = 0
    snapshot: str | None = None
    evidence: str | None = None
    reserve_usd: float | None = None
    booking: str | None = None

    def __post_init__(self) -> None:
        finite("allowance_s", self.allowance_s, low=0)
        if self.reserve_usd is not None:
            finite("reserve_usd", self.reserve_usd, low=0)


@frozen
class AttemptSucceeded:
    """The agent gave a result; `snapshot` holds the work."""

    result: Any
    seconds: float
    summary: str = ""
    usage: Usage = UNKNOWN_USAGE
    session: str | None = None
    snapshot: str | None = None
    evidence: str | None = None
    degraded: str | None = None
    timed_out: bool = False
    claims_done: bool = False
    denied: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        finite("seconds", self.seconds, low=0)


@frozen
class AttemptFailed:
    """The agent gave none. `retry_after` is a lower bound in seconds, `dice` the chance its back-off uses."""

    kind: FailureKind
    message: str
    seconds: float
    retry_after: float | None = None
    dice: float = 0.0
    usage: Usage = UNKNOWN_USAGE
    session: str | None = None
    snapshot: str | None = None
    evidence: str | None = None

    def __post_init__(self) -> None:
        finite("seconds", self.seconds, low=0)
        finite("dice", self.dice, low=0, high=1)
        if self.retry_after is not None:
            finite("retry_after", self.retry_after, low=0)


@frozen
class AttemptInterrupted:
    """The attempt was cut from outside; `seconds` reach to its last sign of life."""

    cause: Literal["crash", "handover", "stop", "pause"]
    seconds: float = 0.0
    snapshot: str | None = None
    evidence: str | None = None

    def __post_init__(self) -> None:
        finite("seconds", self.seconds, low=0)


@frozen
class WaitStarted:
    """A back-off or rate-limit wait began: `seconds` long, till `until`."""

    until: datetime
    seconds: float
    why: str

    def __post_init__(self) -> None:
        finite("seconds", self.seconds, low=0)
        _aware("until", self.until)


@frozen
class DaySpent:
    """What all runs of this store spent on a day (UTC), as its ledger said when it was too much for an attempt."""

    day: str
    cost_usd: float

    def __post_init__(self) -> None:
        finite("cost_usd", self.cost_usd, low=0)


@frozen
class WorkspaceChanged:
    """The workspace is now `snapshot`, and no attempt made it so: scores of another snapshot are void."""

    snapshot: str | None
    evidence: str | None = None
    cause: Literal["baseline", "user", "restored", "gate"] = "user"


@frozen
class EvidenceChanged:
    """Files that gates judge by were touched, and what was done about it."""

    paths: tuple[str, ...]
    action: Literal["restored", "blocked", "asked", "accepted"]
    digest: str | None = None


@frozen
class GateScored:
    """One gate judged one snapshot. `beside_s` of its seconds ran beside gates on record before it: they count once.

    `usage` is what the gate itself spent, where it asks a model.
    """

    gate: str
    score: Score
    seconds: float
    snapshot: str | None = None
    beside_s: float = 0.0
    usage: Usage | None = None

    def __post_init__(self) -> None:
        finite("seconds", self.seconds, low=0)
        finite("beside_s", self.beside_s, low=0, high=self.seconds)
        if self.score.status is None:
            raise ValueError(f"the score of {self.gate} has no status; settle it first")


@frozen
class Judged:
    """The scores of the open iteration, weighed together."""

    verdict: Verdict


@frozen
class AlertRaised:
    """A monitor named an illness of the loop, or the convergence nudge did (`NO_PROGRESS`)."""

    kind: str
    iteration: int
    action: Action
    message: str
    critical: bool = False


@frozen
class ApprovalRequested:
    """A person is asked; `digest` is of exactly what is shown."""

    id: str
    number: int
    iteration: int
    about: About
    digest: str
    question: str = ""
    deadline: datetime | None = None

    def __post_init__(self) -> None:
        _aware("deadline", self.deadline)


@frozen
class ApprovalDecided:
    """The one decision a request got."""

    id: str
    answer: Answer
    by: str = ""
    channel: str = ""
    note: str = ""
    override: str | None = None
    edits: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.edits.items():
            bounded(name, value)


@frozen
class Noticed:
    """A request was shown on a channel, or could not be (`problem`)."""

    approval: str
    channel: str
    ref: str = ""
    problem: str | None = None


@frozen
class IterationClosed:
    """The open iteration is over."""

    outcome: Outcome


@frozen
class Delivered:
    """The accepted work was handed over, or could not be (`problem`)."""

    to: str
    ref: str = ""
    problem: str | None = None


@frozen
class StopRequested:
    """A person wants the run to end: after this iteration, or `now`. `key` is the signal's."""

    now: bool = False
    by: str = ""
    key: str = ""


@frozen
class PauseRequested:
    """A person wants the run to rest: after this iteration, or `now`."""

    now: bool = False
    by: str = ""
    key: str = ""


@frozen
class Resumed:
    """The pause is over; what nobody decided in time is asked again."""

    by: str = ""
    key: str = ""


@frozen
class NoteAdded:
    """A person's words for the next attempt."""

    text: str
    by: str = ""
    key: str = ""


@frozen
class LimitsChanged:
    """A person set limits anew: name to value, the names of a loop file's `[limits]`."""

    limits: Mapping[str, float]
    by: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        for name, value in self.limits.items():
            bounded(name, value)


@frozen
class PolicyChanged:
    """The loop was redefined for a run that exists; gates judge again."""

    spec: Mapping[str, Any]
    digest: str


@frozen
class RunReopened:
    """A failed or stopped run goes on: streaks start anew; money, iterations and time do not."""

    by: str = ""


@frozen
class RunFinished:
    """The run is over, for this reason."""

    phase: EndPhase
    reason: StopReason
    explanation: str


Event: TypeAlias = (
    RunStarted
    | Claimed
    | AttemptStarted
    | AttemptSucceeded
    | AttemptFailed
    | AttemptInterrupted
    | WaitStarted
    | DaySpent
    | WorkspaceChanged
    | EvidenceChanged
    | GateScored
    | Judged
    | AlertRaised
    | ApprovalRequested
    | ApprovalDecided
    | Noticed
    | IterationClosed
    | Delivered
    | StopRequested
    | PauseRequested
    | Resumed
    | NoteAdded
    | LimitsChanged
    | PolicyChanged
    | RunReopened
    | RunFinished
)
EVENTS: tuple[type[Event], ...] = get_args(Event)
