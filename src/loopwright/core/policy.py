"""`Policy`, the pure part of a loop, and the commands that can follow from it.

Rule: a command is imperative and closed; hosts match all of them.
"""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from typing import Literal, TypeAlias

from loopwright.core import events as ev
from loopwright.core.frozen import frozen
from loopwright.core.judge import Rule
from loopwright.core.limits import Limits
from loopwright.core.monitors import Monitors
from loopwright.core.values import Attempt, Outcome, Verdict, finite, positive


@frozen
class Asking:
    """When a person is asked to accept, how long is waited, and what silence means."""

    when: Literal["never", "passed", "always", "alert"] = "never"
    timeout: float = 24 * 3600.0
    on_timeout: Literal["hold", "reject", "continue"] = "hold"

    def __post_init__(self) -> None:
        positive("approval.timeout", self.timeout)


@frozen
class Policy:
    """The pure part of a loop: everything `decide` needs to know of it."""

    goal: str = ""
    gates: tuple[Rule, ...] = ()
    threshold: float = 0.85
    limits: Limits = field(default_factory=Limits)
    monitors: Monitors = field(default_factory=Monitors)
    approval: Asking = field(default_factory=Asking)
    until: Literal["passed", "limits"] = "passed"
    start_from: Literal["last", "best"] = "last"
    if_passing: Literal["run", "finish"] = "run"
    baseline: bool = False
    deliver: str = "none"
    known_failures: bool = False  # tests that failed at iteration 0 may fail

    def __post_init__(self) -> None:
        finite("threshold", self.threshold, low=0, high=1)
        names = [rule.name for rule in self.gates]
        if len(set(names)) < len(names):
            raise ValueError(f"two gates have one name: {', '.join(names)}")


@frozen
class RunAgent:
    """Start this attempt, for at most `attempt.deadline_s` seconds, from the snapshot `start`."""

    attempt: Attempt
    start: str | None


@frozen
class RunGates:
    """Score the present workspace with these gates, in this order."""

    iteration: int
    missing: tuple[str, ...]


@frozen
class Judge:
    """Record this verdict and the alerts it brings."""

    verdict: Verdict
    alerts: tuple[ev.AlertRaised, ...]


@frozen
class Ask:
    """Ask a person: record the request, then show it."""

    request: ev.ApprovalRequested


@frozen
class Expire:
    """The open request's time is over: write so under its key, if no decision stands there."""

    id: str


@frozen
class Close:
    """Close the open iteration."""

    outcome: Outcome
    alerts: tuple[ev.AlertRaised, ...] = ()


@frozen
class Wait:
    """Nothing to do before `until` (`None`: before a person acts). `seconds` is set when the wait is new."""

    until: datetime | None
    why: str
    seconds: float | None = None


@frozen
class Deliver:
    """Hand the accepted work over."""

    to: str
    snapshot: str | None


@frozen
class Finish:
    """End the run."""

    finished: ev.RunFinished


Command: TypeAlias = RunAgent | RunGates | Judge | Ask | Expire | Close | Wait | Deliver | Finish
