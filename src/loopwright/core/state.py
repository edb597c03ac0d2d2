"""What is known of a run: `LoopState`, the fold of its facts.

Rule: bounded, so an iteration costs the same at number 10 and at number 10,000. Only `apply`
(beside this file) makes a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Final, Literal

from loopwright.core import events as ev
from loopwright.core.frozen import frozen
from loopwright.core.values import About, Best, Closed, Phase, Scored, Session, Verdict

RECENT: Final = 64  # closed iterations kept; no window may be longer
SIGNALS: Final = 256  # signal keys remembered, so that none counts twice
ALERTS: Final = 32
EDITS: Final = 64  # the user's edits that are remembered


@frozen
class Iteration:
    """The iteration under way. Number 0 is the baseline: judged without an attempt."""

    number: int
    open: ev.AttemptStarted | None = None
    done: bool = False
    start: str | None = None  # the snapshot that its first attempt began from, or a person changed it to
    started: int = 0  # attempts started in it
    used: int = 0  # attempts that count against the limit
    failed: ev.AttemptFailed | None = None
    kinds: tuple[str, ...] = ()  # kinds of its failures, in order
    interrupted: bool = False
    output: Any = None
    previous: Any = None  # the output before it
    summary: str = ""
    seconds: float = 0.0
    cost_usd: float | None = 0.0
    tokens: int | None = 0
    scores: tuple[Scored, ...] = ()
    verdict: Verdict | None = None
    notes_shown: int = 0  # how many of the waiting notes its prompt held
    rewrites: int = 0  # times a gate changed what the others had judged


@frozen
class Totals:
    """What the run used so far. `unknown_costs` attempts are not in `cost_usd`.

    `cut` attempts were cut off from outside, so nobody told what they used: their reserve is in
    `cost_usd`, and their tokens are taken to be `most_tokens` each. `plan`: a flat plan paid for one of them or more,
    so tokens say more than the dollars, which are what a list of prices says.
    """

    attempts: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0
    cost_usd: float = 0.0
    known_costs: int = 0
    unknown_costs: int = 0
    dearest_usd: float | None = None
    tokens: int = 0
    unknown_tokens: int = 0
    most_tokens: int = 0
    cut: int = 0
    plan: bool = False


@frozen
class LoopState:
    """Everything the next decision may look at."""

    run: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    workspace: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    started_at: datetime | None = None
    updated_at: datetime | None = None
    claim: ev.Claimed | None = None
    snapshot: str | None = None
    evidence: str | None = None
    work: str | None = None  # the last tree that an attempt or a person made: what gates left is not in it
    base: str | None = None  # snapshot 0
    edits: tuple[tuple[str, str], ...] = ()  # the user's since, each from one snapshot to another
    tampered: ev.EvidenceChanged | None = None  # not undone and not accepted: nothing passes
    iteration: int = 0  # the last one opened
    current: Iteration | None = None
    wait_until: datetime | None = None  # before the next attempt
    wait_why: str = ""
    recent: tuple[Closed, ...] = ()
    closed: int = 0
    baseline: Verdict | None = None
    zero: Closed | None = None  # iteration 0, as it is remembered
    last: Verdict | None = None
    output: Any = None
    summary: str = ""
    session: Session | None = None  # the agent's last, and what its attempts used in it
    denied: tuple[str, ...] = ()  # what the last result says it was not allowed to do
    denied_again: tuple[str, ...] = ()  # of that, what the one before was not either
    best: Best | None = None
    totals: Totals = Totals()
    day: ev.DaySpent | None = None  # the last day whose money was too little
    gate_costs: Mapping[str, float] = field(default_factory=dict)  # US dollars that a gate itself spent
    errors: int = 0  # errored iterations in a row
    interruptions: int = 0  # crashes in a row
    broken: tuple[str, ...] = ()  # required gates whose tool broke in the last judged iteration
    broke_twice: tuple[str, ...] = ()
    alerts: tuple[ev.AlertRaised, ...] = ()
    fresh_from: int = 0  # convergence looks only at later iterations
    nudged: int = 0  # the iteration of the last convergence nudge
    calm_from: int = 0  # alerts up to here count no more
    ran: frozenset[str] = frozenset()  # gates that were scored before
    counted: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # tests run, skipped at iteration 0
    measured: Mapping[str, float] = field(default_factory=dict)  # the best raw measure of each gate so far
    restored: tuple[str, ...] = ()  # protected files the last attempt changed, put back: the next is told
    signals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    stop: Literal["later", "now"] | None = None
    pause: Literal["later", "now"] | None = None
    paused: bool = False
    approval: ev.ApprovalRequested | None = None
    requests: int = 0
    subject: About | None = None  # of the last request
    answer: ev.ApprovalDecided | None = None  # to the last request, until it is acted on
    refused: ev.ApprovalDecided | None = None  # the answer that closed the last iteration, if it was a no
    failure: ev.AttemptFailed | None = None  # of the last iteration, when it was errored or cut: feedback
    fatal: Literal["permanent", "policy_violation"] | None = None
    peak: float | None = None  # the highest score so far
    delivered: ev.Delivered | None = None
    finished: ev.RunFinished | None = None

    @property
    def phase(self) -> Phase:
        """Where the run stands, in the mission's words."""
        it = self.current
        if self.finished is not None:
            return self.finished.phase
        if self.approval is not None:
            return "human_review"
        if self.paused or self.expired:
            return "paused"
        if it is not None and it.open is not None:
            return "executing"
        if self.wait_until is not None:
            return "waiting"
        return "validating" if it is not None and it.done else "planning"

    @property
    def expired(self) -> bool:
        """Whether the last request got no answer in time and nothing followed from it yet."""
        return self.answer is not None and self.answer.answer == "expired"
