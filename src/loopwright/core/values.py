"""The values a run is made of: what an agent is asked, what it gave, how it was judged.

Rule: a value that exists is valid. Every number is checked to be finite where it comes in, here and
in the facts; unknown is `None`, never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from math import isfinite
from typing import Any, Final, Literal, get_args

from loopwright.core.frozen import frozen

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

STATUSES: Final = frozenset(get_args(Status))
CAUSES: Final = frozenset({None, *get_args(Cause)})
DIRECTIONS: Final = frozenset({None, *get_args(Direction)})
LARGEST: Final = 1.7976931348623157e308  # of all floats but infinity
MOST: Final = 1e9  # no limit is longer than 30 years or dearer than this: dates and sums stay finite
COUNTS: Final = frozenset({"max_iterations", "attempts", "max_consecutive_errors", "max_tokens"})
LIMITS: Final = COUNTS | {  # the names of `[limits]` that hold one number
    "max_duration",
    "max_wait",
    "attempt_timeout",
    "idle_timeout",
    "gate_timeout",
    "budget",
    "budget_per_day",
    "reserve",
    "grace",
}


def finite(name: str, value: float, *, low: float = -LARGEST, high: float = LARGEST) -> float:
    """`value`, checked to be a finite number in `[low, high]`; `ValueError` otherwise."""
    if type(value) is float and low <= value <= high:  # nearly always, and never for NaN
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}, not a number")  # noqa: TRY004 - one error type for bad values
    try:
        counts = isfinite(value)
    except OverflowError:  # an int beyond every float
        counts = False
    if not counts:
        raise ValueError(f"{name} is not a finite number")
    if not low <= value <= high:
        least, most = "-∞" if low == -LARGEST else f"{low:g}", "∞" if high == LARGEST else f"{high:g}"
        raise ValueError(f"{name} is {value!r}, outside {least} to {most}")
    return value


def bounded(name: str, value: float) -> float:
    """`value` as the limit of this name: finite, above zero, whole where it counts; `ValueError` otherwise."""
    if name not in LIMITS:
        raise ValueError(f"{name} is not a limit; the limits are {', '.join(sorted(LIMITS))}")
    return whole(name, value, high=1e12) if name in COUNTS else positive(name, value)


def positive(name: str, value: float) -> float:
    """`value`, checked to be finite and above zero, and below what would overflow a date or a sum."""
    if finite(name, value, high=MOST) <= 0:
        raise ValueError(f"{name} is {value!r}, not above 0")
    return value


def whole(name: str, value: float, *, high: float, low: int = 1) -> int:
    """`value` as an int, checked to be a whole number in `[low, high]`."""
    if finite(name, value, low=low, high=high) != int(value):
        raise ValueError(f"{name} is {value!r}, not a whole number")
    return int(value)


PARTS: Final = ("input_tokens", "cache_write_tokens", "cache_read_tokens", "output_tokens")


@frozen
class Usage:
    """What an attempt used, as far as it is known: dollars, tokens, turns. `None` is unknown, not zero.

    `tokens` are all of them; where only its parts are told it is their sum. `input_tokens` are those that no cache
    held. `plan`: a flat plan pays for it, and the dollars are what a list of prices says.
    """

    cost_usd: float | None = None
    tokens: int | None = None
    turns: int | None = None
    input_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_read_tokens: int | None = None
    output_tokens: int | None = None
    model: str | None = None
    plan: bool = False

    def __post_init__(self) -> None:
        if self.cost_usd is not None:
            finite("cost_usd", self.cost_usd, low=0)
        for name in ("tokens", "turns", *PARTS):
            value = getattr(self, name)
            if value is not None and not isinstance(value, int):
                object.__setattr__(self, name, whole(name, value, low=0, high=1e15))
            elif value is not None:
                finite(name, value, low=0)
        parts = [value for name in PARTS if (value := getattr(self, name)) is not None]
        if self.tokens is None and parts:
            object.__setattr__(self, "tokens", sum(parts))


UNKNOWN_USAGE = Usage()
NO_USAGE = Usage(cost_usd=0.0, tokens=0, turns=0)


def together(parts: Sequence[Usage]) -> Usage:
    """All of several usages; what one of them does not tell is unknown of all."""
    sums: dict[str, Any] = {}
    for name in ("cost_usd", "tokens", "turns", *PARTS):
        values = [getattr(part, name) for part in parts]
        sums[name] = None if None in values else sum(values)
    return Usage(model=parts[-1].model if parts else None, plan=any(p.plan for p in parts), **sums)


@frozen
class Result:
    """What an agent gives back: `output` is any JSON value, the rest is what it knows about its own work.

    `needs_human` says what only a person can do; it is asked for instead of judging the work.
    `claims_done` is a hint for reports: nothing is decided by it. `denied` is what it was not allowed to do, as it
    would be allowed: `Bash(npm test)`. A `session` of "" says that the one before is gone.
    """

    output: Any = field(default=None, kw_only=False)
    summary: str = ""
    usage: Usage = UNKNOWN_USAGE
    session: str | None = None
    needs_human: str | None = None
    claims_done: bool = False
    denied: tuple[str, ...] = ()


@frozen
class Worked:
    """An attempt that gave a result. `degraded` names what went wrong beside it; `timed_out`: cut, work kept."""

    result: Result
    degraded: str | None = None
    timed_out: bool = False


@frozen
class Failed:
    """An attempt that gave none: its kind decides what follows (DESIGN §5), `message` is the feedback.

    `of_login`: the limit or the lost access is the agent login's, so every run that uses it meets it.
    """

    kind: FailureKind
    message: str
    retry_after_s: float | None = None
    usage: Usage = UNKNOWN_USAGE
    session: str | None = None
    of_login: bool = False

    def __post_init__(self) -> None:
        if self.retry_after_s is not None:
            finite("retry_after_s", self.retry_after_s, low=0)


@frozen
class Score:
    """How far a gate's measure is to its own mark: `value` 0 to 1, 1 at or beyond it, and why.

    `status` may be left out: then `value` at or above the gate's `min` passes. `raw`, `unit` and `direction` tell the
    measure as taken. `failing` names the items that fail; a score with a number or such a set is `graded`, and only
    graded scores can converge. An `error` has a cause: *tool* (the gate could not run) or *evidence* (it ran and proves
    nothing). `unsure`: it passes, but by an opinion too weak to be believed alone, so a person is asked.
    """

    value: float = field(kw_only=False)
    reason: str = field(default="", kw_only=False)
    status: Status | None = None
    raw: float | None = None
    unit: str = ""
    direction: Direction | None = None
    cause: Cause | None = None
    graded: bool = False
    failing: tuple[str, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    unsure: bool = False

    def __post_init__(self) -> None:
        finite("a score", self.value, low=0, high=1)
        if self.raw is not None:
            finite("a raw score", self.raw)
        if self.status is not None and self.status not in STATUSES:
            raise ValueError(f"a score's status is {self.status!r}, not one of {', '.join(sorted(STATUSES))}")
        if self.cause not in CAUSES or self.direction not in DIRECTIONS:
            raise ValueError(f"a score has cause {self.cause!r} and direction {self.direction!r}")
        if not isinstance(self.reason, str) or not isinstance(self.unit, str):
            raise ValueError(f"a score's reason and unit are texts, not {self.reason!r} and {self.unit!r}")  # noqa: TRY004 - one error type for bad values
        some = type(items := self.failing) is not tuple or items  # an array has no truth, nor has its `!=`
        if some and (isinstance(items, str) or not all(isinstance(item, str) for item in items)):
            raise ValueError(f"a score's failing items are texts, not {self.failing!r}")
        if not isinstance(self.evidence, (dict, Mapping)) or not isinstance(self.graded, bool):  # dict: quick
            raise ValueError("a score's evidence is a mapping, and graded is True or False")  # noqa: TRY004 - the same


@frozen
class Scored:
    """A score with the gate that gave it and the seconds it took."""

    gate: str
    score: Score
    seconds: float = 0.0


@frozen
class Verdict:
    """All scores of one iteration together; its `reasons` are the next feedback, blockers first.

    `unsure` are required gates that pass by an opinion too weak to be believed alone. `score` weighs every gate, `required_score` the required ones, which alone decide `passed`.
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
    unsure: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:  # the quick way round: made in every iteration
            finite("score", self.score, low=0, high=1)
        if self.required_score is not None and not 0.0 <= self.required_score <= 1.0:
            finite("required_score", self.required_score, low=0, high=1)
        if self.min_gain:
            finite("min_gain", self.min_gain, low=0)
        if self.objective is not None:
            finite("objective", self.objective)


@frozen
class Closed:
    """One closed iteration, as the fold remembers it (64 at most).

    `work` is the last tree that an attempt or a person made: it stays when gates only left files.
    """

    number: int
    outcome: Outcome
    score: float | None
    passed: bool
    peak: float | None = None
    graded: bool = False
    failing: tuple[str, ...] = ()
    fingerprint: str = ""
    snapshot: str | None = None
    work: str | None = None
    seconds: float = 0.0
    cost_usd: float | None = None
    summary: str = ""


@frozen
class Best:
    """The best iteration so far: passed first, then score, then the earliest."""

    iteration: int
    score: float
    passed: bool
    snapshot: str | None
    output: Any = None
    objective: float | None = None


@frozen
class Left:
    """What the limits leave for this attempt and those after it. `None` is no such limit."""

    iterations: int
    seconds: float
    attempts: int
    budget_usd: float | None = None
    tokens: int | None = None


@frozen
class Feedback:
    """What the next attempt should know: reasons, people's notes, nudges, the last iterations, a warning."""

    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    nudges: tuple[str, ...] = ()
    history: tuple[Closed, ...] = ()
    interrupted: bool = False


@frozen
class Session:
    """The conversation that the last attempt held with its agent, and what the attempts of this run used in it.

    `iteration` is that of the last of them. What an agent counts up over a whole session is lessened by `usage`.
    """

    id: str
    usage: Usage = UNKNOWN_USAGE
    iteration: int = 0


@frozen
class Notes:
    """A file that the agent keeps for itself from attempt to attempt, and what it says, as data.

    `text` is cleaned and bounded, `size` the bytes of the file. `problem` says why it was not read.
    """

    file: str
    text: str = ""
    size: int = 0
    problem: str = ""


def _goal_alone(attempt: Attempt) -> str:
    """The prompt of an attempt that no host made ready."""
    return attempt.goal


@frozen
class Attempt:
    """One call of the agent: what is wanted, what came of it so far, and what is left to spend.

    `key` is the same for every attempt of one iteration (`<run>/<iteration>`): use it to make
    effects outside the workspace idempotent. `deadline_s` is the seconds this attempt may take. The
    host fills in `workdir`, `template`, `notes`, `payload` (the file with what started the run) and `render`: `prompt`.
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
    session: Session | None = None
    workdir: str | None = None
    template: str | None = None
    notes: Notes | None = None
    payload: str | None = None
    render: Callable[[Attempt], str] = field(default=_goal_alone, repr=False, compare=False)

    @cached_property
    def prompt(self) -> str:
        """The text ready to send to a model: made when it is first asked for."""
        return self.render(self)

    def __getstate__(self) -> dict[str, Any]:
        """For another process, with the prompt made: only this one can make it."""
        return {**self.__dict__, "prompt": self.prompt, "render": _goal_alone}
