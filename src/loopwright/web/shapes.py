"""What the API is told and what it says, as the OpenAPI document has it.

Rule: a shape says every field it has and the unit of each number; `null` is unknown, never zero. A body with a word
that is not known is refused.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Text = Annotated[str, StringConstraints(max_length=20_000)]
Key = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Said(BaseModel):
    """A body that somebody sends."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Alert(BaseModel):
    """A monitor named an illness of the loop."""

    kind: str
    iteration: int


class Head(BaseModel):
    """The run document: where a run stands."""

    schema_: Literal["loopwright/run/v1"] = Field(alias="schema")
    run: str
    goal: str
    phase: str
    reason: str | None = Field(description="The closed word for the ending, or for what is waited for.")
    explanation: str
    next: str = Field(description="The command to type next.")
    passed: bool
    iterations: int
    score: float | None
    best_score: float | None
    best_iteration: int | None
    cost_usd: float | None
    tokens: int | None
    plan: bool = False
    duration_s: float = Field(description="Seconds of work, without waits.")
    started_at: datetime | None
    alerts: list[Alert]
    exit_code: int | None
    updated_at: datetime | None
    approval: str | None = Field(description="The id of the open request.")
    wake: datetime | None = Field(description="When the run goes on by itself, or its request is over.")
    loop: str | None = Field(default=None, description="The name of its loop.")
    max_iterations: int | None = Field(default=None, description="The iterations it may have.")
    trend: list[float | None] = Field(default=[], description="The last scores, oldest first.")


class Heads(BaseModel):
    """A page of runs, those with the latest news first."""

    runs: list[Head]
    next: str | None = Field(description="The `cursor` of the page after this one; null on the last.")
    damaged: list[str] = Field(description="What is wrong with runs that cannot be read.")


class Run(Head):
    """A run with what its loop says and what is asked."""

    origin: str
    labels: dict[str, str]
    limits: dict[str, Any] = Field(description="Those in force: seconds, US dollars, counts.")
    working: bool = Field(description="This server drives it just now.")
    problem: str | None = Field(description="Why this server cannot take it up.")
    asked: dict[str, Any] | None = Field(description="Everything a person is shown who is asked something.")


class Gate(BaseModel):
    """A score of one gate."""

    iteration: int
    gate: str
    status: str
    value: float | None
    raw: float | None
    unit: str | None
    reason: str
    cause: str | None
    evidence: Any
    spent: dict[str, Any] | None = Field(description="What the gate itself spent, where it asks a model.")


class Gates(BaseModel):
    """Scores, the oldest first."""

    gates: list[Gate]
    next: int | None = Field(description="The `after` of the page after this one.")


class Iteration(BaseModel):
    """One iteration as its facts tell it."""

    schema_: Literal["loopwright/iteration/v1"] = Field(alias="schema")
    run: str
    iteration: int
    outcome: str
    score: float | None
    attempts: int
    seconds: float
    cost_usd: float | None
    tokens: int | None
    spent: list[dict[str, Any]]
    summary: str
    problem: str | None
    notes: list[str]
    snapshot: str | None
    gates: list[Gate]


class Fact(BaseModel):
    """A fact on record, with the fields of its type beside these."""

    model_config = ConfigDict(extra="allow")

    n: int = Field(description="The number of its commit.")
    type: str
    at: datetime


class Facts(BaseModel):
    """Facts, the oldest first; never a part of a commit."""

    events: list[Fact]
    next: int | None = Field(description="The `after` of the page after this one.")


class Health(BaseModel):
    """Whether the loop is well."""

    healthy: bool
    summary: str
    alerts: list[dict[str, Any]]


class Diff(BaseModel):
    """What changed between two snapshots."""

    from_: str = Field(alias="from")
    to: str
    files: list[str]
    lines: int
    text: str = Field(description="A unified diff, bounded, without secrets.")


class Request(BaseModel):
    """A request to a person and what became of it."""

    run: str
    approval: str
    iteration: int
    about: str
    question: str
    asked_at: datetime
    deadline: datetime | None
    left_s: float | None
    answer: str | None
    by: str | None
    channel: str | None
    decided_at: datetime | None
    note: str | None
    override: str | None
    next: str | None


class Requests(BaseModel):
    """What waits for a person, the nearest deadline first; with `all`, everything that was asked, newest first."""

    approvals: list[Request]
    left_out: int = Field(description="How many more there are.")
    damaged: list[str]


class Add(Said):
    """By how much limits are raised."""

    iterations: int | None = Field(default=None, ge=1, le=1_000_000_000)
    budget: float | None = Field(default=None, gt=0, le=1e12, description="US dollars.")
    duration: float | None = Field(default=None, gt=0, le=1e9, description="Seconds.")

    def limits(self) -> dict[str, float]:
        """By the names of a loop file's `[limits]`."""
        named = {"max_iterations": self.iterations, "budget": self.budget, "max_duration": self.duration}
        return {name: amount for name, amount in named.items() if amount is not None}


class Decision(Said):
    """A person's answer to a request."""

    answer: Literal["approve", "revise", "reject"]
    note: Text = Field(default="", description="For revise it is what the agent reads, and needed.")
    override: Text | None = Field(default=None, description="Why work that has not passed is accepted.")
    add: Add = Field(default_factory=Add)


class Decided(BaseModel):
    """What stands on record after an answer."""

    word: Literal["recorded", "again"]
    text: str
    run: str
    approval: str
    answer: str
    by: str
    channel: str
    at: datetime | None


class Asking(Said):
    """Whether the agent is cut off (`now`) or the iteration may end."""

    now: bool = False


class Resuming(Said):
    """What goes with the run: words for the agent, higher limits."""

    note: Text | None = None
    add: Add = Field(default_factory=Add)


class Nothing(Said):
    """An empty object, or no body at all."""


class Done(BaseModel):
    """What was asked is on record."""

    run: str
    word: Literal["recorded", "again"]
    text: str


class Starting(Said):
    """Why it is started: the same key, the same run."""

    key: Key | None = None


class Started(BaseModel):
    """A run is on record."""

    run: str
    begun: bool = Field(description="Now; false where this key had begun it before.")


class LoopGate(BaseModel):
    """A gate of a loop."""

    name: str
    required: bool


class Loop(BaseModel):
    """A loop this server can start."""

    name: str
    file: str
    goal: str
    agent: str
    workspace: str
    gates: list[LoopGate]
    triggers: list[dict[str, Any]]
    problem: str | None = Field(description="Why what its file says now cannot be used.")


class Loops(BaseModel):
    """Every loop this server knows, by name, and files that say none."""

    loops: list[Loop]
    problems: dict[str, str]


class Problem(BaseModel):
    """Why a request was not done (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
