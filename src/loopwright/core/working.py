"""How the facts of the work are folded: attempts, waits, the workspace, scores, closing.

Rule: as for `apply`. A fact that cannot follow raises `IllegalEvent`.
"""

from __future__ import annotations

from typing import Any, Final, assert_never

from loopwright.core import events as ev
from loopwright.core.closing import best_measures, better, closing, doubtful
from loopwright.core.ratchet import counts
from loopwright.core.replacing import replace
from loopwright.core.state import EDITS, RECENT, Iteration, LoopState, Totals
from loopwright.core.values import PARTS, UNKNOWN_USAGE, Outcome, Scored, Session, Usage
from loopwright.errors import IllegalEvent

REWRITES: Final = 3  # times the gates may void each other's scores in one iteration
FATAL: Final = frozenset({"permanent", "policy_violation"})
UNOPENED: Final = Iteration(number=0)


def attempt_started(state: LoopState, event: ev.AttemptStarted) -> LoopState:
    """The intent to call the agent; never after a stop, a pause or while a person is asked."""
    it = state.current
    if it is None:
        if event.iteration != state.iteration + 1:
            raise IllegalEvent(f"AttemptStarted in iteration {event.iteration} after {state.iteration}")
        it = UNOPENED
    elif it.open is not None or it.done or it.number != event.iteration:
        raise IllegalEvent(f"AttemptStarted in iteration {event.iteration} while {it.number} is under way")
    if event.attempt != it.started + 1:
        raise IllegalEvent(f"AttemptStarted with number {event.attempt} after {it.started}")
    if state.stop or state.approval or state.paused:
        raise IllegalEvent("AttemptStarted after a stop, a pause or an open request")
    return replace(
        state,
        iteration=event.iteration,
        current=replace(
            it,
            number=event.iteration,
            open=event,
            start=it.start if it.started else event.snapshot,
            started=event.attempt,
            notes_shown=len(state.notes),
            failed=None,
            interrupted=False,
        ),
        answer=None,
        restored=(),
        denied_again=(),
        wait_until=None,
        wait_why="",
        snapshot=event.snapshot or state.snapshot,
        evidence=_evidence(state, event.evidence),
        totals=replace(state.totals, attempts=state.totals.attempts + 1),
    )


def attempt_ended(
    state: LoopState, event: ev.AttemptSucceeded | ev.AttemptFailed | ev.AttemptInterrupted
) -> LoopState:
    """A result, a failure or a cut; what was used is booked, whatever came of it."""
    it = state.current
    if it is None or it.open is None:
        raise IllegalEvent(f"{type(event).__name__} without an open attempt")
    usage = Usage(cost_usd=it.open.reserve_usd) if isinstance(event, ev.AttemptInterrupted) else event.usage
    seconds = it.seconds + event.seconds
    cost = None if usage.cost_usd is None or it.cost_usd is None else it.cost_usd + usage.cost_usd
    tokens = None if usage.tokens is None or it.tokens is None else it.tokens + usage.tokens
    interruptions = 0
    output, summary, notes, session = state.output, state.summary, state.notes, state.session
    denied, again = state.denied, state.denied_again
    match event:
        case ev.AttemptSucceeded(result=output, summary=summary):
            now = replace(
                it,
                open=None,
                seconds=seconds,
                cost_usd=cost,
                tokens=tokens,
                done=True,
                output=output,
                previous=state.output,
                summary=summary,
            )
            notes = notes[it.notes_shown :]
            session = _session(session, event, it.number)
            again = tuple([what for what in event.denied if what in denied]) if event.denied else ()
            denied = event.denied
        case ev.AttemptFailed(kind=kind):
            used, kinds = it.used + (kind != "rate_limited"), (*it.kinds, kind)[-RECENT:]
            now = replace(it, open=None, seconds=seconds, cost_usd=cost, tokens=tokens)
            now = replace(now, failed=event, used=used, kinds=kinds)
            session = _session(session, event, it.number)
        case ev.AttemptInterrupted(cause=cause):
            now = replace(it, open=None, seconds=seconds, cost_usd=cost, tokens=tokens, interrupted=True)
            interruptions = state.interruptions + (cause == "crash")
        case _:
            assert_never(event)
    return replace(
        state,
        current=now,
        totals=_spend(state.totals, usage, event),
        interruptions=interruptions,
        output=output,
        summary=summary,
        session=session,
        denied=denied,
        denied_again=again,
        notes=notes,
        snapshot=event.snapshot or state.snapshot,
        work=state.work if event.snapshot in {None, state.snapshot} else event.snapshot,
        evidence=_evidence(state, event.evidence),
    )


def _session(
    before: Session | None, event: ev.AttemptSucceeded | ev.AttemptFailed, iteration: int
) -> Session | None:
    """The session that goes on after this attempt: the one it names, with what was used in it; "" ends it."""
    if event.session is None:
        return before
    if not event.session:
        return None
    same = before is not None and before.id == event.session
    usage = _more(before.usage if before is not None and same else UNKNOWN_USAGE, event.usage)
    return Session(id=event.session, usage=usage, iteration=iteration)


def _more(so_far: Usage, usage: Usage) -> Usage:
    """Both together, as far as they are known: what one does not tell, the session's next total holds."""
    if so_far is UNKNOWN_USAGE:
        return usage
    names = ("cost_usd", "tokens", *PARTS)
    pairs = {name: (getattr(so_far, name), getattr(usage, name)) for name in names}
    sums: dict[str, Any] = {
        name: (a or 0) + (b or 0) for name, (a, b) in pairs.items() if a is not None or b is not None
    }
    return Usage(model=usage.model, plan=usage.plan, **sums)


def _evidence(state: LoopState, seen: str | None) -> str | None:
    """The digest of the true evidence: no attempt changes it while a change of it is not undone or accepted."""
    return state.evidence if state.tampered is not None else seen or state.evidence


def _spend(
    totals: Totals, usage: Usage, event: ev.AttemptSucceeded | ev.AttemptFailed | ev.AttemptInterrupted
) -> Totals:
    """Books what an attempt used; an unknown amount is counted as unknown, never as zero.

    What is booked for an attempt that was cut off is an estimate: no later one is measured by it. Nor by one that
    failed before it cost anything.
    """
    cost, tokens, cut = usage.cost_usd, usage.tokens, isinstance(event, ev.AttemptInterrupted)
    known = cost is not None and not cut
    measure = cost if known and (cost or isinstance(event, ev.AttemptSucceeded)) else None
    return replace(
        totals,
        seconds=totals.seconds + event.seconds,
        cost_usd=totals.cost_usd + (cost or 0.0),
        known_costs=totals.known_costs + known,
        unknown_costs=totals.unknown_costs + (cost is None),
        dearest_usd=totals.dearest_usd if measure is None else max(measure, totals.dearest_usd or 0.0),
        tokens=totals.tokens + (tokens or 0),
        unknown_tokens=totals.unknown_tokens + (tokens is None and not cut),
        most_tokens=max(totals.most_tokens, tokens or 0),
        cut=totals.cut + cut,
        plan=totals.plan or usage.plan,
    )


def wait_started(state: LoopState, event: ev.WaitStarted) -> LoopState:
    """Nothing before `until`; the whole wait is booked when it begins."""
    it = state.current
    if (it is not None and (it.open is not None or it.done)) or state.approval is not None:
        raise IllegalEvent("WaitStarted while something is under way")
    totals = replace(state.totals, waited_s=state.totals.waited_s + event.seconds)
    return replace(state, wait_until=event.until, wait_why=event.why, totals=totals)


def gate_scored(state: LoopState, event: ev.GateScored) -> LoopState:
    """One score of the present workspace; the first one of all opens iteration 0."""
    it = state.current
    if it is None:
        if state.iteration or state.zero is not None:
            raise IllegalEvent(f"GateScored({event.gate}) outside an iteration")
        it = Iteration(number=0, done=True)
    if not it.done:
        raise IllegalEvent(f"GateScored({event.gate}) before the agent's work was done")
    if event.snapshot != state.snapshot:
        raise IllegalEvent(f"GateScored({event.gate}) of a snapshot that is not the present one")
    if state.approval is not None:
        raise IllegalEvent(f"GateScored({event.gate}) while a person is asked about the scores")
    if state.answer is not None and state.answer.answer in {"approve", "revise"}:
        raise IllegalEvent(f"GateScored({event.gate}) after a person decided about the scores")
    others = [s for s in it.scores if s.gate != event.gate]
    scored = Scored(gate=event.gate, score=event.score, seconds=event.seconds)
    spent = event.seconds - event.beside_s
    totals, costs = replace(state.totals, seconds=state.totals.seconds + spent), state.gate_costs
    it_cost, it_tokens = it.cost_usd, it.tokens
    if event.usage is not None:
        cost, tokens = event.usage.cost_usd, event.usage.tokens
        totals = replace(
            totals,
            cost_usd=totals.cost_usd + (cost or 0.0),
            unknown_costs=totals.unknown_costs + (cost is None),
            tokens=totals.tokens + (tokens or 0),
            unknown_tokens=totals.unknown_tokens + (tokens is None),
        )
        costs = {**costs, event.gate: costs.get(event.gate, 0.0) + (cost or 0.0)}
        it_cost = None if cost is None or it_cost is None else it_cost + cost
        it_tokens = None if tokens is None or it_tokens is None else it_tokens + tokens
    return replace(
        state,
        current=replace(
            it,
            scores=(*others, scored),
            seconds=it.seconds + spent,
            cost_usd=it_cost,
            tokens=it_tokens,
            verdict=None,
        ),
        totals=totals,
        gate_costs=costs,
    )


def judged(state: LoopState, event: ev.Judged) -> LoopState:
    """The verdict on the open iteration; one, unless its scores become void."""
    it = state.current
    if it is None or not it.done:
        raise IllegalEvent("Judged before the agent's work was done")
    if it.verdict is not None:
        raise IllegalEvent(f"Judged twice in iteration {it.number}")
    return replace(state, current=replace(it, verdict=event.verdict))


def voided(state: LoopState) -> LoopState:
    """The open iteration judged anew: its scores, verdict, and what a person is or was asked about them."""
    it = state.current
    if it is None:
        return state
    about_work = state.approval is not None and state.approval.about == "accept"
    return replace(
        state,
        current=replace(it, scores=(), verdict=None),
        approval=None if about_work else state.approval,
        answer=None if it.done else state.answer,
    )


def workspace_changed(state: LoopState, event: ev.WorkspaceChanged) -> LoopState:
    """Another tree or other evidence than was judged: scores are void, and so is a request to accept them."""
    it = state.current
    if it is not None and it.open is not None:
        raise IllegalEvent("WorkspaceChanged during an attempt")
    evidence = event.evidence or state.evidence
    same = event.snapshot is not None and (event.snapshot, evidence) == (state.snapshot, state.evidence)
    if it is not None and not same:
        by_gate = event.cause == "gate" and it.done
        kept = it.scores if by_gate and it.rewrites >= REWRITES else ()
        theirs = event.cause != "gate" and not it.done  # the next attempt begins from what a person left
        it = replace(
            it,
            start=event.snapshot if theirs else it.start,
            scores=kept,
            verdict=None,
            rewrites=it.rewrites + by_gate,
        )
        state = replace(voided(state), current=it)
    return replace(
        state,
        snapshot=event.snapshot,
        work=state.work if event.cause == "gate" else event.snapshot,
        evidence=evidence,
        base=event.snapshot if event.cause == "baseline" else state.base,
        edits=_edits(state, event),
    )


def _edits(state: LoopState, event: ev.WorkspaceChanged) -> tuple[tuple[str, str], ...]:
    before, after = state.snapshot, event.snapshot
    if event.cause != "user" or before is None or after is None or before == after:
        return state.edits
    return (*state.edits, (before, after))[-EDITS:]


def evidence_changed(state: LoopState, event: ev.EvidenceChanged) -> LoopState:
    """What gates judge by was touched: undone and accepted changes are judged again, others never pass."""
    state = voided(state)
    asked = state.approval is not None and state.approval.about == "evidence"
    approval = None if asked else state.approval  # another change than the one a person was shown
    if event.action in {"restored", "accepted"}:
        return replace(
            state,
            tampered=None,
            restored=event.paths if event.action == "restored" else state.restored,
            evidence=event.digest or state.evidence,
            approval=approval,
        )
    return replace(state, tampered=event, approval=approval)


def closed(state: LoopState, event: ev.IterationClosed) -> LoopState:
    """The open iteration becomes a remembered one; the next may begin."""
    it = state.current
    if it is None:
        raise IllegalEvent(f"IterationClosed({event.outcome}) outside an iteration")
    if problem := _unclosable(state, it, event.outcome):
        raise IllegalEvent(f"IterationClosed({event.outcome}) {problem}")
    verdict, answer = it.verdict, state.answer
    now = closing(state, it, event.outcome, verdict)
    ran, best, measured, broken, twice = (
        state.ran,
        state.best,
        state.measured,
        state.broken,
        state.broke_twice,
    )
    if verdict is not None:
        scored = {s.gate for s in it.scores if s.score.status != "skipped"}
        ran = ran if scored <= ran else ran | scored
        best = better(state, it, verdict, accepted=event.outcome == "accepted")
        measured = measured if doubtful(state, verdict) else best_measures(measured, it.scores)
        twice = tuple([gate for gate in verdict.broken if gate in broken])
        broken = verdict.broken
    state = replace(
        state,
        current=None,
        approval=None,
        answer=None,
        refused=answer if answer is not None and answer.answer in {"reject", "expired"} else None,
        paused=state.paused or state.pause is not None,
        peak=now.peak,
        wait_until=None,
        wait_why="",
        last=verdict or state.last,
        ran=ran,
        best=best,
        measured=measured,
        broken=broken,
        broke_twice=twice,
    )
    if it.number == 0:
        return (
            replace(state, baseline=verdict, zero=now, counted=counts(it.scores))
            if verdict is not None
            else state
        )
    unfinished = event.outcome in {"errored", "cut"}
    kind = it.failed.kind if it.failed and unfinished else None
    return replace(
        state,
        recent=(*state.recent[1 - RECENT :], now),
        closed=state.closed + 1,
        errors=state.errors + 1 if event.outcome == "errored" else state.errors if unfinished else 0,
        failure=it.failed if unfinished else None,
        fatal=kind if kind == "permanent" or kind == "policy_violation" else None,  # noqa: PLR1714 - narrows
        fresh_from=it.number if event.outcome == "revised" else state.fresh_from,
    )


def _unclosable(state: LoopState, it: Iteration, outcome: Outcome) -> str:
    """Why an iteration cannot be closed so; empty when it can."""
    if it.open is not None:
        return "during an attempt"
    if outcome == "errored":
        return "" if it.failed is not None else "without a failed attempt"
    if outcome == "cut":
        return ""
    if it.verdict is None:
        return "without a verdict"
    answer = state.answer
    if outcome == "accepted" and answer is not None and answer.answer != "approve":
        return f"although the answer was {answer.answer}"
    approved = answer is not None and answer.answer == "approve" and answer.override
    if outcome == "accepted" and not it.verdict.passed and not approved:
        return "although it has not passed and nobody overrode that"
    if outcome == "accepted" and state.approval is not None:
        return "while a person is still asked"
    if outcome == "revised" and (answer is None or answer.answer != "revise"):
        return "although nobody asked for that"
    return ""
