"""Asking `decide` again: where a recorded run would have ended under another policy.

Rules. Only what is on record is used: attempts, scores and answers are replayed, everything decided is
decided anew. Where the new policy wants something that never happened (another attempt, a gate without a
score, an answer nobody gave), the answer is "beyond the record". It is taken that the agent would have
done the same work, whatever it would have been told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias

from loopwright.core import events as ev
from loopwright.core.apply import apply
from loopwright.core.decide import decide
from loopwright.core.head import document, explanation
from loopwright.core.judge import settle
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
from loopwright.core.values import Score
from loopwright.errors import IllegalEvent
from loopwright.report.gather import Fact

BEYOND: Final = "beyond the record"
SLACK_S: Final = 1.0  # an attempt is cut a little after its time
Timed: TypeAlias = Sequence[tuple[datetime, ev.Event]]
World = ev.NoteAdded | ev.StopRequested | ev.WorkspaceChanged | ev.EvidenceChanged | ev.DaySpent
Ended = ev.AttemptSucceeded | ev.AttemptFailed | ev.AttemptInterrupted
Mark = ev.AttemptStarted | ev.GateScored | ev.Judged | ev.IterationClosed | ev.ApprovalDecided


class _Beyond(Exception):
    """The record has no answer to what the new policy wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a run ended, or how far it is known to have come."""

    reason: str
    explanation: str
    iterations: int
    best_score: float | None
    best_iteration: int | None
    passed: bool
    cost_usd: float | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """What really happened to a run, and what would have under the new policy."""

    run: str
    really: Standing
    would: Standing

    @property
    def same(self) -> bool:
        """Whether it would have ended for the same reason after as many iterations."""
        return (self.really.reason, self.really.iterations) == (self.would.reason, self.would.iterations)


@dataclass(slots=True)
class _Tape:
    """The facts of a run, played one after another."""

    facts: Timed
    by_value: frozenset[str]
    now: datetime
    i: int = 0
    answers: dict[tuple[int, str], list[ev.ApprovalDecided]] = field(default_factory=dict)

    @property
    def head(self) -> ev.Event | None:
        return self.facts[self.i][1] if self.i < len(self.facts) else None

    def take(self) -> ev.Event:
        at, event = self.facts[self.i]
        self.i += 1
        self.now = max(self.now, at)
        return event


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A run as it is replayed: its facts in order, and the state they led to."""

    facts: tuple[tuple[datetime, ev.Event], ...]
    state: LoopState


def record(facts: Iterable[Fact]) -> Record:
    """The record of a run from its history, which must have a beginning."""
    kept: list[tuple[datetime, ev.Event]] = []
    state = LoopState()
    for _, at, event, after in facts:
        kept.append((at, event))
        state = after
    return Record(facts=tuple(kept), state=state)


def unfit(policy: Policy, recorded: Record) -> str:
    """Why nothing can be said about a run under this policy; empty when something can."""
    judged = {event.gate for _, event in recorded.facts if isinstance(event, ev.GateScored)}
    missing = [rule.name for rule in policy.gates if judged and rule.name not in judged]
    return f"{', '.join(missing)} never judged it" if missing else ""


def backtest(policy: Policy, recorded: Record) -> Tested:
    """What really happened to a run and what would have."""
    facts = recorded.facts
    started_at, started = facts[0]
    tape = _Tape(_playable(facts[1:]), _by_value(facts), started_at, answers=_answers(facts))
    work = next((e for _, e in facts if isinstance(e, ev.AttemptStarted | ev.GateScored)), None)
    policy = replace(policy, baseline=isinstance(work, ev.GateScored), deliver="none")
    state = apply(LoopState(), started, started_at)
    gap = ""
    try:
        while state.finished is None:
            state = _world(tape, state)
            state = _perform(policy, tape, state, decide(policy, state, tape.now))
    except _Beyond as end:
        gap = str(end)
    except IllegalEvent as error:
        gap = f"the record does not fit from here on ({error})"
    really, would = _standing(recorded.state), _standing(state)
    whole = tape.head is None and not any(isinstance(event, ev.PolicyChanged) for _, event in facts)
    if gap and whole and recorded.state.finished is None:
        would = really  # paused, waiting or under way: as far as it came, nothing would have been otherwise
    elif gap:
        would = replace(would, reason=BEYOND, explanation=gap)
    return Tested(run=recorded.state.run, really=really, would=would)


def _standing(state: LoopState) -> Standing:
    doc = document(state)
    return Standing(
        reason=doc["reason"] or state.phase,
        explanation=explanation(state),
        iterations=state.iteration,
        best_score=doc["best_score"],
        best_iteration=doc["best_iteration"],
        passed=doc["passed"],
        cost_usd=doc["cost_usd"],
        seconds=doc["duration_s"],
    )


def _playable(facts: Timed) -> list[tuple[datetime, ev.Event]]:
    """What happened, without what was decided; up to where the loop itself was changed."""
    reopened = max((i for i, (_, e) in enumerate(facts) if isinstance(e, ev.RunReopened)), default=-1)
    played: list[tuple[datetime, ev.Event]] = []
    for i, (at, event) in enumerate(facts):
        if isinstance(event, ev.PolicyChanged):
            break
        if isinstance(event, ev.StopRequested) and i < reopened:
            continue  # whoever stopped it had it go on
        if isinstance(event, World | Ended | Mark):
            played.append((at, event))
    return played


def _by_value(facts: Timed) -> frozenset[str]:
    """The gates whose pass was a matter of a number alone, so that another mark judges them anew."""
    seen: dict[str, list[Score]] = {}
    for _, event in facts:
        if isinstance(event, ev.GateScored) and event.score.status in {"pass", "fail"}:
            seen.setdefault(event.gate, []).append(event.score)
    found = set()
    for gate, scores in seen.items():
        plain = all(s.graded and s.raw is None and not s.evidence and not s.failing for s in scores)
        passes = [s.value for s in scores if s.status == "pass"]
        fails = [s.value for s in scores if s.status == "fail"]
        if plain and (not passes or not fails or max(fails) < min(passes)):
            found.add(gate)
    return frozenset(found)


def _answers(facts: Timed) -> dict[tuple[int, str], list[ev.ApprovalDecided]]:
    asked: dict[str, ev.ApprovalRequested] = {}
    found: dict[tuple[int, str], list[ev.ApprovalDecided]] = {}
    for _, event in facts:
        if isinstance(event, ev.ApprovalRequested):
            asked[event.id] = event
        elif isinstance(event, ev.ApprovalDecided) and event.id in asked:
            request = asked[event.id]
            found.setdefault((request.iteration, request.about), []).append(event)
    return found


def _world(tape: _Tape, state: LoopState) -> LoopState:
    """What came from outside just now."""
    while isinstance(tape.head, World | ev.ApprovalDecided):
        event = tape.take()
        if not isinstance(event, ev.ApprovalDecided):
            state = apply(state, event, tape.now)
    return state


def _perform(policy: Policy, tape: _Tape, state: LoopState, command: Command) -> LoopState:
    match command:
        case RunAgent():
            return _attempt(tape, state, command)
        case RunGates(missing=missing):
            return _gates(policy, tape, state, missing)
        case Judge(verdict=verdict, alerts=alerts):
            if isinstance(tape.head, ev.Judged):
                tape.take()
            return _all(state, tape, ev.Judged(verdict=verdict), *alerts)
        case Close(outcome=outcome, alerts=alerts):
            _past_close(tape, state)
            return _all(state, tape, *alerts, ev.IterationClosed(outcome=outcome))
        case Ask(request=request):
            given = tape.answers.get((request.iteration, request.about))
            if not given:
                raise _Beyond(f"a person would be asked: {request.question}")
            return _all(state, tape, request, replace(given.pop(0), id=request.id, edits={}))
        case Wait(until=until, why=why, seconds=seconds):
            if until is None:
                raise _Beyond(f"it would wait: {why}")
            if seconds is not None:
                return _all(state, tape, ev.WaitStarted(until=until, seconds=seconds, why=why))
            tape.now = max(tape.now, until)
            return state
        case Expire(id=id_):
            return _all(state, tape, ev.ApprovalDecided(id=id_, answer="expired", by="time"))
        case Deliver(to=to):
            return _all(state, tape, ev.Delivered(to=to))
        case Finish(finished=finished):
            return _all(state, tape, finished)


def _all(state: LoopState, tape: _Tape, *events: ev.Event) -> LoopState:
    for event in events:
        state = apply(state, event, tape.now)
    return state


def _attempt(tape: _Tape, state: LoopState, command: RunAgent) -> LoopState:
    """The attempt that is wanted, if it is the one on record and had the time it took."""
    wanted, head = command.attempt, tape.head
    if head is None:
        raise _Beyond(f"it would have gone on with iteration {wanted.iteration}")
    if not isinstance(head, ev.AttemptStarted) or (head.iteration, head.attempt) != (
        wanted.iteration,
        wanted.number,
    ):
        raise _Beyond(f"in iteration {wanted.iteration} it would have done what is not on record")
    tape.take()
    begun = replace(head, key=wanted.key, allowance_s=wanted.deadline_s, reserve_usd=wanted.reserve_usd)
    state = _world(tape, apply(state, begun, tape.now))  # what became of evidence is on record before its end
    ended = tape.head
    if not isinstance(ended, Ended):
        raise _Beyond(f"iteration {wanted.iteration} is still under way")
    shorter = wanted.deadline_s < head.allowance_s and not isinstance(ended, ev.AttemptInterrupted)
    if shorter and ended.seconds > wanted.deadline_s + SLACK_S:
        raise _Beyond(
            f"the attempt of iteration {wanted.iteration} took {ended.seconds:.0f} s and would have been cut "
            f"after {wanted.deadline_s:.0f} s"
        )
    return apply(state, tape.take(), tape.now)


def _gates(policy: Policy, tape: _Tape, state: LoopState, missing: Sequence[str]) -> LoopState:
    """The scores that are wanted, settled by the new marks."""
    rules = {rule.name: rule for rule in policy.gates}
    wanted = set(missing)
    while wanted:
        state = _world(tape, state)
        head = tape.head
        if not isinstance(head, ev.GateScored):
            number = state.current.number if state.current else 0
            raise _Beyond(f"{', '.join(sorted(wanted))} did not judge iteration {number}")
        tape.take()
        rule = rules.get(head.gate)
        if rule is None:
            continue  # a gate that the new loop does not have
        score = replace(head.score, status=None, reason="") if head.gate in tape.by_value else head.score
        settled = settle(rule, policy.threshold, score)
        state = apply(state, replace(head, score=settled, snapshot=state.snapshot), tape.now)
        wanted.discard(head.gate)
    return state


def _past_close(tape: _Tape, state: LoopState) -> None:
    """Goes past the recorded close of the open iteration, if all that is left of it was decided, not done."""
    number = state.current.number if state.current else 0
    while (head := tape.head) is not None:
        if isinstance(head, ev.AttemptStarted) and head.iteration > number:
            return
        if isinstance(head, ev.AttemptStarted | Ended):
            raise _Beyond(f"iteration {number} would have ended before its last attempt")
        tape.take()
        if isinstance(head, ev.IterationClosed):
            return
