"""The spans of a run, made of its facts as these become durable.

Rule: no second record. A span is what the journal says, with the journal's times, and it is given out once it has
ended; a process that goes on with a run reads from the journal what had begun before. What people, agents and gates
said is left out unless it is asked for (`content`).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, Final

from loopwright import traces
from loopwright.core import events as ev
from loopwright.core.head import document
from loopwright.core.values import Usage
from loopwright.journal import Journal, latest
from loopwright.names import BUILT_IN
from loopwright.serving import semconv as sc

BEFORE: Final = 300  # commits that are read of a run that goes on: what began before these has their time
MOST_EVENTS: Final = 200  # of one span
LONGEST: Final = 4000  # characters of a text
_ILL: Final = frozenset({"health", "policy_violation"})
Values = dict[str, str | int | float | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """Something that happened within a span."""

    name: str
    at: datetime
    attributes: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Work that is over; ids are hexadecimal. `error` says that it failed, and as what."""

    name: str
    trace: str
    id: str
    parent: str | None
    began: datetime
    ended: datetime
    attributes: Values
    events: tuple[Noted, ...] = ()
    error: str | None = None


@dataclass(slots=True)
class _Open:
    """A span that has begun."""

    key: tuple[object, ...]
    began: datetime
    attributes: Values = field(default_factory=dict)
    events: list[Noted] = field(default_factory=list)
    error: str | None = None

    def note(self, name: str, at: datetime, attributes: Values) -> None:
        if len(self.events) < MOST_EVENTS:
            self.events.append(Noted(name=name, at=at, attributes=attributes))


class Spans:
    """Follows one run and gives each span out as it ends."""

    def __init__(self, journal: Journal, emit: Callable[[Span], None], *, content: bool = False) -> None:
        self._journal = journal
        self._content = content
        self._emit: Callable[[Span], None] = lambda _: None
        self._trace: traces.Trace | None = None
        self._whole: _Open | None = None
        self._iteration: _Open | None = None
        self._attempt: _Open | None = None
        self._asked: _Open | None = None
        self._number = 0
        if journal.exists:  # these were given out by who recorded them
            for at, event in latest(journal.store, journal.run, journal.n, most=BEFORE):
                self.follow(at, event)
        self._emit = emit

    def follow(self, at: datetime, event: ev.Event) -> None:
        """One more fact of the run that is durable."""
        match event:
            case ev.RunStarted():
                self._iteration = _Open(("iteration", 0), at)
                self._number = 0
            case ev.AttemptStarted():
                self._attempt_began(at, event)
            case ev.AttemptSucceeded() | ev.AttemptFailed() | ev.AttemptInterrupted():
                self._attempt_ended(at, event)
            case ev.GateScored():
                self._scored(at, event)
            case ev.Judged(verdict=verdict):
                best = self._journal.state.best
                found = {sc.SCORE: verdict.score, sc.PASSED: verdict.passed}
                self._within(at).attributes.update(
                    {**found, **({} if best is None else {sc.BEST: best.score})}
                )
            case ev.AlertRaised():
                about: Values = {sc.ALERT_KIND: event.kind, sc.ALERT_ACTION: event.action}
                (self._iteration or self._run(at)).note(sc.ALERT, at, about)
            case ev.WaitStarted():
                (self._iteration or self._run(at)).note(sc.WAIT, at, {sc.WAIT_SECONDS: event.seconds})
            case ev.ApprovalRequested():
                asked: Values = {sc.APPROVAL_ID: event.id, sc.ABOUT: event.about}
                self._asked = _Open(("approval", event.id), at, asked)
            case ev.ApprovalDecided():
                self._decided(at, event)
            case ev.IterationClosed():
                self._closed(at, event)
            case ev.RunReopened():
                self._whole = _Open(("reopened", at.astimezone(UTC).isoformat()), at)
            case ev.RunFinished():
                self._finished(at, event)
            case _:
                pass

    def _attempt_began(self, at: datetime, event: ev.AttemptStarted) -> None:
        if self._iteration is None or event.iteration != self._number:
            self._iteration, self._number = _Open(("iteration", event.iteration), at), event.iteration
        said = agent_name(self._journal.state.spec, event.iteration)
        provider = sc.PROVIDERS.get(said)
        self._attempt = _Open(
            ("attempt", event.iteration, event.attempt),
            at,
            {
                sc.OPERATION: sc.INVOKE_AGENT,
                sc.AGENT: said,
                sc.INDEX: event.iteration,
                sc.ATTEMPT: event.attempt,
                **({} if provider is None else {sc.PROVIDER: provider}),
            },
        )

    def _attempt_ended(
        self, at: datetime, event: ev.AttemptSucceeded | ev.AttemptFailed | ev.AttemptInterrupted
    ) -> None:
        found = self._attempt
        if found is None:
            return
        self._attempt = None
        match event:
            case ev.AttemptSucceeded():
                found.attributes.update(_used(event.usage))
                if event.timed_out:
                    found.attributes[sc.TIMED_OUT] = True
                self._say(found, sc.SUMMARY, event.summary)
            case ev.AttemptFailed():
                found.error = event.kind
                found.attributes.update(_used(event.usage))
                self._say(found, sc.SUMMARY, event.message)
            case ev.AttemptInterrupted():
                found.attributes[sc.INTERRUPTED] = event.cause
                found.error = "crash" if event.cause == "crash" else None
        within = self._within(at)
        if isinstance(event, ev.AttemptFailed):
            within.error = event.kind  # if the iteration is errored in the end, this is why
        name = f"{sc.INVOKE_AGENT} {found.attributes[sc.AGENT]}"
        self._give(name, found, at, parent=within.key)

    def _scored(self, at: datetime, event: ev.GateScored) -> None:
        found: Values = {
            sc.EVALUATION_NAME: event.gate,
            sc.EVALUATION_SCORE: event.score.value,
            sc.EVALUATION_LABEL: event.score.status or "fail",
            sc.GATE_SECONDS: event.seconds,
        }
        if event.usage is not None and event.usage.cost_usd is not None:
            found[sc.COST] = event.usage.cost_usd
        if self._content and event.score.reason:
            found[sc.EVALUATION_WHY] = event.score.reason[:LONGEST]
        self._within(at).note(sc.EVALUATION, at, found)

    def _decided(self, at: datetime, event: ev.ApprovalDecided) -> None:
        asked, self._asked = self._asked, None
        if asked is None:
            return
        waited = round(max(0.0, (at - asked.began).total_seconds()), 3)
        asked.attributes.update({sc.ANSWER: event.answer, sc.WAITED: waited})
        if event.channel:
            asked.attributes[sc.CHANNEL] = event.channel
        self._give(sc.APPROVAL, asked, at, parent=(self._iteration or self._run(at)).key)

    def _closed(self, at: datetime, event: ev.IterationClosed) -> None:
        found, self._iteration = self._within(at), None
        found.attributes.update({sc.INDEX: self._number, sc.OUTCOME: event.outcome})
        if snapshot := self._journal.state.snapshot:
            found.attributes[sc.SNAPSHOT] = snapshot
        if event.outcome != "errored":
            found.error = None
        self._give(sc.ITERATION, found, at, parent=self._run(at).key)

    def _finished(self, at: datetime, event: ev.RunFinished) -> None:
        found, self._whole, self._iteration = self._run(at), None, None
        state = self._journal.state
        head = document(state)
        found.attributes.update(
            {
                sc.OPERATION: sc.INVOKE_WORKFLOW,
                sc.AGENT: loop_name(state.spec),
                sc.CONVERSATION: self._journal.run,
                sc.ORIGIN: state.origin[:100],
                sc.PHASE: event.phase,
                sc.STOP_REASON: event.reason,
                sc.ITERATIONS: head["iterations"],
            }
        )
        for name, value in ((sc.COST, head["cost_usd"]), (sc.TOKENS, head["tokens"])):
            if value is not None:  # unknown is not zero
                found.attributes[name] = value
        self._say(found, sc.GOAL, str(state.spec.get("goal", "")))
        self._say(found, sc.EXPLANATION, event.explanation)
        if event.phase == "failed" or event.reason in _ILL:
            found.error = event.reason
        self._give(f"{sc.INVOKE_WORKFLOW} {loop_name(state.spec)}", found, at, parent=None)

    def _run(self, at: datetime) -> _Open:
        """The span of the run, or of what it did since it was reopened."""
        if self._whole is None:
            self._whole = _Open(("run",), self._journal.state.started_at or at)
        return self._whole

    def _within(self, at: datetime) -> _Open:
        """The span of the iteration under way."""
        if self._iteration is None:
            self._number = self._journal.state.iteration
            self._iteration = _Open(("iteration", self._number), at)
        return self._iteration

    def _say(self, span: _Open, name: str, text: str) -> None:
        if self._content and text:
            span.attributes[name] = self._journal.redact.text(text)[:LONGEST]

    def _give(self, name: str, span: _Open, at: datetime, *, parent: tuple[object, ...] | None) -> None:
        state = self._journal.state
        if self._trace is None:
            self._trace = traces.trace_of(self._journal.run, state.started_at or at, state.labels)
        trace = self._trace
        if not trace.sampled:
            return
        above = trace.parent if span.key == ("run",) else trace.span(*(parent or ("run",)))
        said = {**span.attributes, sc.RUN: self._journal.run, sc.SEMCONV: sc.VERSION}
        self._emit(
            Span(
                name=name,
                trace=trace.id,
                id=trace.span(*span.key),
                parent=above,
                began=min(span.began, at),
                ended=at,
                attributes=said if span.error is None else {**said, sc.ERROR: span.error},
                events=tuple(span.events),
                error=span.error,
            )
        )


def loop_name(spec: Mapping[str, Any]) -> str:
    """The name of the loop that a run was started with."""
    return str(spec.get("name") or "loop")[:80]


def agent_name(spec: Mapping[str, Any], iteration: int) -> str:
    """What the agent of an iteration is called: a name, a function or a program, never its arguments."""
    said = (spec.get("improve") if iteration > 1 else None) or spec.get("agent")
    if isinstance(said, Mapping):
        use = said.get("use")
        said = said.get("run") if use in {None, "command"} else use
    if isinstance(said, list | tuple):
        said = shlex.join(map(str, said))
    text = str(said or "agent")
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    first = words[0] if words else "agent"
    name, of_module, attribute = first.partition(":")
    if text.startswith("script:"):
        first = text.rpartition("#")[2].rpartition(".")[2]
    elif name in BUILT_IN["agents"]:
        first = name
    elif of_module and len(words) == 1:
        first = attribute.rpartition(".")[2]
    return PurePath(first).name[:64] or "agent"


def _used(usage: Usage) -> Values:
    """What an attempt used, as far as it is known. The conventions count cached tokens among the input."""
    parts = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    told = {
        sc.COST: usage.cost_usd,
        sc.TOKENS: usage.tokens,
        sc.INPUT_TOKENS: None if usage.input_tokens is None else sum(part or 0 for part in parts),
        sc.OUTPUT_TOKENS: usage.output_tokens,
        sc.CACHE_READ: usage.cache_read_tokens,
        sc.CACHE_WRITTEN: usage.cache_write_tokens,
        sc.MODEL: None if usage.model is None else usage.model[:100],
    }
    return {name: value for name, value in told.items() if value is not None}
