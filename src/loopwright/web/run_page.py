"""What `/runs/<id>` shows, as values: the answers to the eight questions, in their order.

Rule: pure, from a report and what was looked up beside it. Unknown is said, never zero; what was left out is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from loopwright.core import events as ev
from loopwright.core.head import head as head_of
from loopwright.core.limits import spent, used_tokens
from loopwright.core.monitors import REPEAT, healthy
from loopwright.core.recorded import limits_of
from loopwright.core.state import LoopState
from loopwright.figures import brief, count, money, safe, score, seconds, short
from loopwright.report.landing import WORDS, landing
from loopwright.report.telling import decision
from loopwright.report.values import Report, Request
from loopwright.report.why import Why, why
from loopwright.units import duration
from loopwright.web.words import Tone, When, Word, ago, clock, cost, word

GOAL: Final = 4000  # characters
QUIET_S: Final = 120.0  # without a sign of life for so long is worth a look
SILENT_S: Final = 600.0  # and for so long a worry


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What is known of a run beside its journal.

    `here`: this server works on it; `queued`: it waits for a place; `sign` is the agent's last sign of life; `pending`
    are signals that nobody has taken in yet; `problem` why it cannot be taken up.
    """

    here: bool = False
    queued: bool = False
    sign: datetime | None = None
    pending: tuple[ev.Event, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number of the header with its name, and what it is measured against."""

    name: str
    value: str
    of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One line of the health card."""

    tone: Tone
    text: str
    at: When | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bound of the run: what is used of it; `share` from 0 to 1."""

    name: str
    text: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run as its page shows it, without the parts that depend on what is selected."""

    run: str
    loop: str
    goal: str
    title: str
    word: Word
    explanation: str
    agent: str
    place: str
    origin: str
    began: When | None
    news: When | None
    figures: tuple[Figure, ...]
    health: tuple[Health, ...]
    bars: tuple[Bar, ...]
    landing: str
    stops: str
    burn: str
    why: Why
    pending: tuple[str, ...]
    may: frozenset[Literal["stop", "pause", "resume"]]
    over: bool
    audit: tuple[tuple[When, str, tuple[str, ...]], ...]
    audit_left_out: int
    alerts: int
    labels: Mapping[str, str] = field(default_factory=dict)


def run_view(report: Report, beside: Beside, now: datetime) -> RunView:
    """The view of a run at this time."""
    state = report.state
    h = head_of(state)
    goal = str(state.spec.get("goal") or "")
    landed = _landing(state)
    return RunView(
        run=state.run,
        loop=brief(str(state.spec.get("name") or ""), 60),
        goal=goal[:GOAL],
        title=brief(goal, 110),
        word=word(h, now, alone=report.alone and not beside.queued, queued=beside.queued),
        explanation=safe(str(h["explanation"]))[:GOAL],
        agent=_agent(state),
        place=_place(state),
        origin=brief(state.origin, 80),
        began=ago(state.started_at, now),
        news=ago(state.updated_at, now),
        figures=_figures(state, h),
        health=tuple(_health(report, beside, now)),
        bars=tuple(_bars(state)),
        landing=landed,
        stops=_stops(state),
        burn=_burn(state),
        why=why(report),
        pending=tuple(_pending(each) for each in beside.pending),
        may=_may(state, alone=report.alone),
        over=state.finished is not None,
        audit=tuple(_audited(each, now) for each in reversed(report.requests)),
        audit_left_out=report.requests_left_out,
        alerts=len(report.alerts),
        labels=state.labels,
    )


def _agent(state: LoopState) -> str:
    said = state.spec.get("agent")
    table = said if isinstance(said, Mapping) else {"use": said}
    name = str(table.get("use") or "")
    run = table.get("run")
    more = f": {run}" if isinstance(run, str) and name == "command" else ""
    return brief(f"{name}{more}", 60)


def _place(state: LoopState) -> str:
    table = state.spec.get("workspace")
    mode = str(table.get("mode") or "none") if isinstance(table, Mapping) else "none"
    words = {
        "worktree": "worktree of its own",
        "folder": "folder of its own",
        "in_place": "in your folder",
        "none": "no workspace",
    }
    told = words.get(mode, mode)
    if state.delivered is not None and state.delivered.ref:
        return f"{told} · branch {brief(state.delivered.ref, 60)}"
    return told


def _figures(state: LoopState, h: Mapping[str, Any]) -> tuple[Figure, ...]:
    limits = limits_of(state)
    best = "" if h["best_score"] is None else f"best {score(h['best_score'])} at #{h['best_iteration']}"
    budget = "" if limits.budget is None else f"of {money(limits.budget)}"
    return (
        Figure(name="iterations", value=str(state.iteration), of=f"of {limits.max_iterations}"),
        Figure(name="score", value=score(h["score"]), of=best),
        Figure(name="cost", value=cost(h), of="a plan pays" if h["plan"] else budget),
        Figure(name="work", value=seconds(state.totals.seconds), of=f"of {duration(limits.max_duration)}"),
    )


def _health(report: Report, beside: Beside, now: datetime) -> Iterator[Health]:
    state = report.state
    yield _alive(report, beside, now)
    if beside.problem:
        yield Health(tone="bad", text=f"it cannot be taken up: {brief(beside.problem, 300)}")
    fresh = [a for a in report.alerts if a.iteration > state.iteration - REPEAT]
    for alert in fresh[-4:]:
        tone: Tone = "bad" if alert.critical or alert.action == "stop" else "warn"
        yield Health(tone=tone, text=f"{alert.kind} (#{alert.iteration}): {brief(alert.message)}")
    if not fresh:
        older = count(len(report.alerts) + report.alerts_left_out, "earlier alert") if report.alerts else ""
        said = "no alert yet" if not older else f"no alert in the last {REPEAT} iterations ({older})"
        yield Health(tone="good" if healthy(state) else "warn", text=said)
    most = limits_of(state).max_consecutive_errors
    if state.errors:
        yield Health(tone="bad", text=f"{state.errors} of {most} errored iterations in a row")
    elif state.totals.attempts:
        yield Health(tone="good", text="the last iteration brought a result")
    if state.tampered is not None:
        paths = ", ".join(state.tampered.paths[:5])
        yield Health(tone="bad", text=f"files that gates judge by were changed: {safe(paths)}")
    if state.denied_again:
        yield Health(tone="warn", text=f"twice denied to the agent: {brief(', '.join(state.denied_again))}")


def _alive(report: Report, beside: Beside, now: datetime) -> Health:
    """The first line, which says whether it is alive."""
    state = report.state
    if state.finished is not None:
        return Health(tone="calm", text="ended", at=ago(state.updated_at, now))
    if state.approval is not None or state.paused or state.expired:
        return Health(
            tone="calm",
            text="at rest, nothing has to run meanwhile; last news",
            at=ago(state.updated_at, now),
        )
    if beside.queued:
        return Health(tone="calm", text="waits for a place: other runs are at work")
    if report.alone:
        return Health(tone="bad", text="its process is gone; last news", at=ago(state.updated_at, now))
    if state.wait_until is not None:
        return Health(
            tone="calm", text=f"waits: {brief(state.wait_why)}; goes on at", at=clock(state.wait_until, now)
        )
    sign = max((at for at in (beside.sign, state.updated_at) if at is not None), default=None)
    still = 0.0 if sign is None else (now - sign).total_seconds()
    tone: Tone = "good" if still < QUIET_S else "warn" if still < SILENT_S else "bad"
    who = "this server works on it" if beside.here else _driver(state)
    return Health(tone=tone, text=f"{who}; last sign of life", at=ago(sign, now))


def _driver(state: LoopState) -> str:
    if state.claim is None:
        return "nobody has taken it up yet"
    return f"process {safe(state.claim.owner.partition(':')[0])} on {safe(state.claim.host)} works on it"


def _bars(state: LoopState) -> Iterator[Bar]:
    limits, totals = limits_of(state), state.totals
    yield _bar(
        "iterations", state.iteration, limits.max_iterations, f"{state.iteration}", f"{limits.max_iterations}"
    )
    yield _bar(
        "work", totals.seconds, limits.max_duration, seconds(totals.seconds), duration(limits.max_duration)
    )
    if limits.budget is not None:
        used = spent(limits, totals)
        told = f"{money(used)}{' and what is unknown' if totals.unknown_costs and not limits.reserve else ''}"
        yield _bar("budget", used, limits.budget, told, money(limits.budget))
    if limits.max_tokens is not None:
        yield _bar(
            "tokens",
            used_tokens(totals),
            limits.max_tokens,
            short(used_tokens(totals)),
            short(limits.max_tokens),
        )
    if totals.waited_s:
        yield _bar(
            "waiting", totals.waited_s, limits.max_wait, seconds(totals.waited_s), duration(limits.max_wait)
        )
    if state.errors:
        most = limits.max_consecutive_errors
        yield _bar("errors in a row", state.errors, most, str(state.errors), str(most))


def _bar(name: str, used: float, most: float, told: str, bound: str) -> Bar:
    return Bar(name=name, text=f"{told} of {bound}", share=round(min(1.0, used / most), 4))


def _landing(state: LoopState) -> str:
    found = landing(state)
    if found is None:
        return ""
    return f"going on like this, {WORDS[found.bound]} end first: at #{found.iteration}"


def _stops(state: LoopState) -> str:
    """What ends it well."""
    if state.finished is not None:
        return ""
    approval = state.spec.get("approval")
    asks = isinstance(approval, Mapping) and approval.get("when", "passed") in {"passed", "always"}
    if state.spec.get("until") == "limits":
        return "it works until a limit is met and keeps the best" + (
            ", which a person accepts" if asks else ""
        )
    return "it ends well when every required gate passes" + (" and a person approves" if asks else "")


def _burn(state: LoopState) -> str:
    """What an iteration costs and where it all lands; after the end, what one cost."""
    totals = state.totals
    found = landing(state)
    if found is None:
        done = min(state.iteration, state.closed)
        known = totals.known_costs and not totals.unknown_costs and not totals.plan and totals.cost_usd > 0
        return f"{money(totals.cost_usd / done)} per iteration" if known and done else ""
    if totals.plan and found.per_tokens and found.tokens:
        each, all_ = short(round(found.per_tokens)), short(round(found.tokens))
        return f"≈ {each} tokens per iteration → lands near {all_} tokens at #{found.iteration}"
    if not totals.plan and found.per_usd and found.usd is not None:
        return f"≈ {money(found.per_usd)} per iteration → lands near {money(found.usd)} at #{found.iteration}"
    if totals.unknown_costs:
        return f"{count(totals.unknown_costs, 'attempt')} told no cost: where it lands is unknown"
    return ""


def _may(state: LoopState, *, alone: bool) -> frozenset[Literal["stop", "pause", "resume"]]:
    """What can be asked of it now."""
    end = state.finished
    if end is not None:
        return frozenset() if end.phase == "complete" else frozenset({"resume"})
    rests = state.paused or state.expired
    if rests:
        return frozenset({"resume", "stop"})
    return frozenset({"stop", "pause", "resume"} if alone else {"stop", "pause"})


def _pending(event: ev.Event) -> str:
    """A signal that nobody has taken in yet, for people."""
    match event:
        case ev.StopRequested(now=at_once, by=by):
            return f"{brief(by, 60) or 'a person'} asked it to stop{' at once' if at_once else ' after this iteration'}"
        case ev.PauseRequested(now=at_once, by=by):
            return f"{brief(by, 60) or 'a person'} asked it to pause{' at once' if at_once else ' after this iteration'}"
        case ev.ApprovalDecided():
            return decision(event)
        case ev.NoteAdded(text=text, by=by):
            return f"{brief(by, 60) or 'a person'} left a note: {brief(text)}"
        case ev.Resumed(by=by):
            return f"{brief(by, 60) or 'a person'} lets it go on"
        case _:
            return type(event).__name__


def _audited(request: Request, now: datetime) -> tuple[When, str, tuple[str, ...]]:
    """A request and all that came of it, a line each."""
    asked = request.asked
    lines = [
        f"shown on {brief(n.channel, 40)}"
        if not n.problem
        else f"not shown on {brief(n.channel, 40)}: {brief(n.problem)}"
        for n in request.noticed
    ]
    if request.decided is not None:
        at = "" if request.decided_at is None else f", {clock(request.decided_at, now).text} UTC"
        lines.append(f"{decision(request.decided)}{at}")
    else:
        lines.append("no answer yet")
    return clock(request.at, now), f"#{asked.iteration} {brief(asked.question, 500)}", tuple(lines)
