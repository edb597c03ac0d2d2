"""A run without a world: `decide` and `apply` driven by a scripted agent, gates and people.

Rule: no I/O, no clock, no chance. A command is performed by recording the facts a host would; time
moves by what they take. Everything that happened can be looked at afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from loopwright.core import events as ev
from loopwright.core.apply import apply
from loopwright.core.decide import decide
from loopwright.core.judge import Rule
from loopwright.core.policy import (
    Ask,
    Close,
    Command,
    Deliver,
    Expire,
    Finish,
    Judge,
    Policy,
    RunAgent,
    RunGates,
    Wait,
)
from loopwright.core.state import LoopState
from loopwright.core.values import Attempt, Score, Usage

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
Ended = ev.AttemptSucceeded | ev.AttemptFailed | ev.AttemptInterrupted

PASS = Score(1.0, status="pass")
FAIL = Score(0.0, "it is red", status="fail")
BROKEN = Score(0.0, "not found", status="error", cause="tool")
NO_PROOF = Score(0.0, "no report", status="error", cause="evidence")
SKIP = Score(0.0, status="skipped")
REQUIRED = (Rule(name="tests"),)


def graded(value: float, *failing: str, mark: float = 1.0) -> Score:
    """A score with a number and a set of failing items."""
    status = "pass" if value >= mark else "fail"
    return Score(value, f"at {value}", status=status, graded=True, failing=failing)


def worked(tree: str | None = None, seconds: float = 1.0, cost: float | None = 0.0) -> ev.AttemptSucceeded:
    usage = Usage(cost_usd=cost, tokens=10)
    return ev.AttemptSucceeded(result={"tree": tree}, seconds=seconds, usage=usage, snapshot=tree)


def failed(kind: str, *, retry_after: float | None = None, cost: float | None = 0.0) -> ev.AttemptFailed:
    usage = Usage(cost_usd=cost, tokens=10)
    return ev.AttemptFailed(
        kind=kind, message=f"it was {kind}", seconds=1.0, retry_after=retry_after, usage=usage, dice=1.0
    )


def crashed(seconds: float = 0.5) -> ev.AttemptInterrupted:
    return ev.AttemptInterrupted(cause="crash", seconds=seconds)


def answered(answer: str = "approve", **more: object) -> Callable[[ev.ApprovalRequested], ev.ApprovalDecided]:
    return lambda request: ev.ApprovalDecided(id=request.id, answer=answer, by="ann", **more)


def script(*turns: object) -> Callable[[object], object]:
    """One turn after another; the last one again and again."""
    left = list(turns)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


@dataclass
class Sim:
    """One run. `signals` maps the number of a command to the facts others ask for just before it."""

    policy: Policy
    agent: Callable[[Attempt], Ended] = field(default_factory=lambda: script(worked()))
    gates: Callable[[str], Score] | Mapping[str, Score] = field(default_factory=lambda: script(FAIL))
    people: Callable[[ev.ApprovalRequested], ev.ApprovalDecided] | None = None
    signals: Mapping[int, Sequence[ev.Event]] = field(default_factory=dict)
    gate_seconds: float = 0.1
    state: LoopState = field(default_factory=LoopState)
    now: datetime = BEGIN
    facts: list[tuple[datetime, ev.Event]] = field(default_factory=list)
    states: list[LoopState] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    starts: list[Attempt] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.state.started_at is None:
            self.record(ev.RunStarted(run="r", spec={"goal": "g"}, digest="d"))

    def record(self, *events: ev.Event) -> None:
        for event in events:
            self.state = apply(self.state, event, self.now)
            self.facts.append((self.now, event))
            self.states.append(self.state)

    def run(self, most: int = 3000) -> Sim:
        """Until the run is over, or only a person who does not come can help; fails after `most` commands."""
        while self.state.finished is None:
            self.record(*self.signals.get(len(self.commands), ()))
            assert len(self.commands) < most, f"still {self.state.phase} after {most} commands"
            command = decide(self.policy, self.state, self.now)
            assert command == decide(self.policy, self.state, self.now)
            self.commands.append(command)
            if not self.perform(command) and not any(n >= len(self.commands) for n in self.signals):
                break
        return self

    def perform(self, command: Command) -> bool:
        """Whether something came of it; not when a person is waited for who is not there."""
        match command:
            case RunAgent(attempt=attempt):
                self.attempt(attempt)
            case RunGates(missing=missing):
                for gate in missing:
                    self.score(gate)
            case Judge(verdict=verdict, alerts=alerts):
                self.record(ev.Judged(verdict=verdict), *alerts)
            case Ask(request=request):
                self.record(request)
            case Expire(id=id_):
                self.record(ev.ApprovalDecided(id=id_, answer="expired", by="time"))
            case Close(outcome=outcome, alerts=alerts):
                self.record(*alerts, ev.IterationClosed(outcome=outcome))
            case Deliver(to=to):
                self.record(ev.Delivered(to=to, ref="pull/1"))
            case Finish(finished=finished):
                self.record(finished)
            case Wait(until=until, why=why, seconds=seconds):
                return self.wait(until, why, seconds)
        return True

    def attempt(self, attempt: Attempt) -> None:
        self.starts.append(attempt)
        self.record(
            ev.AttemptStarted(
                iteration=attempt.iteration,
                attempt=attempt.number,
                key=attempt.key,
                allowance_s=attempt.deadline_s,
                snapshot=self.state.snapshot,
                reserve_usd=attempt.reserve_usd,
            )
        )
        outcome = self.agent(attempt)
        self.now += timedelta(seconds=outcome.seconds)
        self.record(outcome)

    def score(self, gate: str) -> None:
        score = self.gates[gate] if isinstance(self.gates, Mapping) else self.gates(gate)
        self.now += timedelta(seconds=self.gate_seconds)
        self.record(
            ev.GateScored(gate=gate, score=score, seconds=self.gate_seconds, snapshot=self.state.snapshot)
        )

    def wait(self, until: datetime | None, why: str, seconds: float | None) -> bool:
        if seconds is not None and until is not None:
            self.waits.append(seconds)
            self.record(ev.WaitStarted(until=until, seconds=seconds, why=why))
            return True
        if self.state.approval is not None and self.people is not None:
            self.record(self.people(self.state.approval))
            return True
        if until is None:
            return False
        self.now = max(self.now, until)
        return True

    @property
    def end(self) -> tuple[str, str] | str:
        """Reason and phase of the ending, or the phase it rests in."""
        over = self.state.finished
        return self.state.phase if over is None else (over.reason, over.phase)

    @property
    def alerts(self) -> list[tuple[str, int]]:
        return [(e.kind, e.iteration) for _, e in self.facts if isinstance(e, ev.AlertRaised)]

    @property
    def outcomes(self) -> list[str]:
        return [e.outcome for _, e in self.facts if isinstance(e, ev.IterationClosed)]
