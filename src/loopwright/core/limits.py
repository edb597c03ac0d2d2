"""Termination criteria: the bounds that end a run, in the order they are looked at.

Rule: every bound is finite and met by every iteration, errored ones included. Unknown cost or
tokens never count as zero: a bounded run that cannot know what it spent stops and says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from loopwright.core.events import AlertRaised, StopReason
from loopwright.core.state import LoopState, Totals
from loopwright.core.values import Closed, Left

Ending: TypeAlias = tuple[StopReason, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Seconds before the next attempt: `first`, then `factor` times more each time, up to `max`."""

    first: float = 5.0
    factor: float = 2.0
    max: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """No progress over `window` graded iterations: a nudge; the `patience`-th time in a row the run ends."""

    window: int = 3
    within: float = 0.01
    patience: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of a run; seconds, US dollars, counts. `None` is no such bound."""

    max_iterations: int = 20
    max_duration: float = 1800.0
    max_wait: float = 8 * 3600.0
    attempts: int = 3
    attempt_timeout: float = 900.0
    idle_timeout: float = 300.0
    gate_timeout: float = 600.0
    max_consecutive_errors: int = 3
    budget: float | None = None
    max_tokens: int | None = None
    reserve: float | None = None
    grace: float = 10.0
    convergence: Convergence | None = Convergence()
    backoff: Backoff = Backoff()


def in_force(limits: Limits, state: LoopState) -> Limits:
    """The limits with what people changed on this run."""
    return replace(limits, **state.limits) if state.limits else limits  # type: ignore[arg-type]


def spent(limits: Limits, totals: Totals) -> float:
    """US dollars booked: what is known, and the estimate for each attempt whose cost is not."""
    return totals.cost_usd + totals.unknown_costs * (limits.reserve or 0.0)


def reserve_usd(limits: Limits, totals: Totals) -> float | None:
    """What to set aside for the next attempt: the estimate, else the dearest so far, else all that is left."""
    if limits.budget is None:
        return limits.reserve
    if limits.reserve is not None:
        return limits.reserve
    if totals.known_costs:
        return totals.dearest_usd
    return max(0.0, limits.budget - spent(limits, totals))


def left(limits: Limits, state: LoopState) -> Left:
    """What the limits leave after the iteration now under way has begun."""
    totals = state.totals
    used = state.current.used if state.current else 0
    opened = state.iteration if state.current and state.current.number else state.iteration + 1
    return Left(
        iterations=max(0, limits.max_iterations - opened),
        seconds=max(0.0, limits.max_duration - totals.seconds),
        attempts=max(0, limits.attempts - used),
        budget_usd=None if limits.budget is None else max(0.0, limits.budget - spent(limits, totals)),
        tokens=None if limits.max_tokens is None else max(0, limits.max_tokens - totals.tokens),
    )


def exceeded(limits: Limits, state: LoopState) -> Ending | None:
    """The first bound that forbids another attempt, with the figures that say so; `None` if none does."""
    return used_up(limits, state) or between_iterations(limits, state)


def used_up(limits: Limits, state: LoopState) -> Ending | None:
    """Like `exceeded`, for a further attempt of the iteration under way: money, tokens and time only."""
    totals = state.totals
    if limits.budget is not None:
        if totals.unknown_costs and limits.reserve is None:
            who = _count(totals.unknown_costs, "attempt")
            why = f"{who} did not report a cost, so the budget of ${limits.budget:.2f} cannot be kept"
            return "cost_unknown", f"{why}; set limits.reserve to an estimate per attempt"
        reserve = reserve_usd(limits, totals) or 0.0
        used = spent(limits, totals)
        if used >= limits.budget or used + reserve > limits.budget + 1e-9:
            return (
                "budget",
                f"${used:.2f} of ${limits.budget:.2f} spent and another attempt may cost ${reserve:.2f}",
            )
    if limits.max_tokens is not None:
        if totals.unknown_tokens:
            who = _count(totals.unknown_tokens, "attempt")
            return (
                "cost_unknown",
                f"{who} did not report tokens, so max_tokens {limits.max_tokens} cannot be kept",
            )
        if totals.tokens >= limits.max_tokens:
            return "max_tokens", f"{totals.tokens} of {limits.max_tokens} tokens used"
    if totals.seconds >= limits.max_duration:
        return (
            "max_duration",
            f"{totals.seconds:.0f} s of agents and gates, {limits.max_duration:.0f} s allowed",
        )
    if totals.waited_s >= limits.max_wait:
        return "max_wait", f"{totals.waited_s:.0f} s of back-off, {limits.max_wait:.0f} s allowed"
    return None


def between_iterations(limits: Limits, state: LoopState) -> Ending | None:
    """The bounds that only a new iteration meets: their number, errors in a row, convergence."""
    if state.iteration >= limits.max_iterations:
        return (
            "max_iterations",
            f"{_count(state.iteration, 'iteration')} done, {limits.max_iterations} allowed",
        )
    if state.errors >= limits.max_consecutive_errors:
        why = state.failure.message if state.failure else "no result"
        return (
            "consecutive_errors",
            f"{_count(state.errors, 'iteration')} in a row without a result: {_brief(why)}",
        )
    if limits.convergence is not None:
        times = stale(limits.convergence, state)
        if times >= limits.convergence.patience:
            peak = "none" if state.peak is None else f"{state.peak:.2f}"
            return (
                "converged",
                f"no progress over {times} × {limits.convergence.window} iterations (best score {peak})",
            )
    return None


def stale(rule: Convergence, state: LoopState) -> int:
    """How many windows in a row, up to now, were without progress (0: the last one had some, or is not full)."""
    graded = [c for c in state.recent if c.graded and c.number > state.fresh_from]
    times = 0
    end = len(graded)
    while end >= rule.window and _flat(
        rule, graded[end - rule.window : end], _before(state, graded, end - rule.window)
    ):
        times += 1
        end -= rule.window
    return times if _on_mark(rule, state, graded, times) else 0


def _on_mark(rule: Convergence, state: LoopState, graded: list[Closed], times: int) -> bool:
    """Whether the count, begun anew at the last nudge, is full just now."""
    marks = [a.iteration for a in state.alerts if a.kind == "NO_PROGRESS" and a.iteration > state.fresh_from]
    if not marks or not times:
        return bool(times)
    since = sum(c.number > marks[-1] for c in graded)
    return since >= rule.window or since == 0


def _before(state: LoopState, graded: list[Closed], start: int) -> Closed | None:
    if start:
        return graded[start - 1]
    earlier = [c for c in state.recent if c.number < graded[0].number]
    return earlier[-1] if earlier else state.zero


def _flat(rule: Convergence, window: list[Closed], before: Closed | None) -> bool:
    peak = before.peak if before else None
    if peak is None:
        peak = window[0].score  # nothing to compare the first with: it is where progress starts from
    top = window[-1].peak
    if top is not None and peak is not None and top - peak >= rule.within - 1e-9:
        return False
    pairs = zip([before, *window], window, strict=False)
    return not any(a is not None and set(a.failing) - set(b.failing) for a, b in pairs if a is not b)


def nudge(limits: Limits, state: LoopState, closing: Closed) -> AlertRaised | None:
    """The convergence nudge that closing this iteration brings, if it completes a window without progress."""
    rule = limits.convergence
    if rule is None or not closing.graded:
        return None
    after = replace(state, recent=(*state.recent, closing))
    times = stale(rule, after)
    if not times or times >= rule.patience:
        return None
    what = (
        f"{len(closing.failing)} items fail"
        if closing.failing
        else f"the score stays near {closing.peak:.2f}"
    )
    message = f"{what} and nothing improved over the last {rule.window} iterations; try another way"
    return AlertRaised(kind="NO_PROGRESS", iteration=closing.number, action="nudge", message=message)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _brief(text: str) -> str:
    line = next((part for part in text.strip().splitlines() if part.strip()), "no message")
    return line if len(line) <= 200 else line[:199] + "…"
