"""Termination criteria: the bounds that end a run, in the order they are looked at.

Rule: every bound is finite and met by every iteration, errored ones included. Unknown cost or
tokens never count as zero: a bounded run that cannot know what it spent stops and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, TypeAlias

from loopwright.core.events import AlertRaised, AttemptFailed, StopReason
from loopwright.core.frozen import frozen
from loopwright.core.judge import ROUNDING
from loopwright.core.monitors import recently
from loopwright.core.replacing import replace
from loopwright.core.state import RECENT, LoopState, Totals
from loopwright.core.values import COUNTS, LIMITS, Closed, Left, bounded, finite, positive, whole

Ending: TypeAlias = tuple[StopReason, str]
WAITING_KINDS: Final = frozenset({"transient", "rate_limited"})


@frozen
class Backoff:
    """Seconds before the next attempt: `first`, then `factor` times more each time, up to `max`."""

    first: float = 5.0
    factor: float = 2.0
    max: float = 300.0

    def __post_init__(self) -> None:
        positive("backoff.first", self.first)
        positive("backoff.max", self.max)
        finite("backoff.factor", self.factor, low=1, high=1000)  # to the power of 60: still a float


@frozen
class Convergence:
    """No progress over `window` graded iterations: a nudge; the `patience`-th time in a row the run ends."""

    window: int = 3
    within: float = 0.01
    patience: int = 2

    def __post_init__(self) -> None:
        finite("convergence.within", self.within, low=1e-6, high=1)
        whole("convergence.window", self.window, high=RECENT)
        whole("convergence.patience", self.patience, high=RECENT)
        if self.window * self.patience > RECENT:
            raise ValueError(f"convergence looks back window × patience iterations, {RECENT} at most")


@frozen
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
    budget_per_day: float | None = None
    max_tokens: int | None = None
    reserve: float | None = None
    grace: float = 10.0
    convergence: Convergence | None = Convergence()
    backoff: Backoff = Backoff()

    def __post_init__(self) -> None:
        for name in LIMITS:
            value = getattr(self, name)
            if value is not None:
                bounded(name, value)


def in_force(limits: Limits, state: LoopState) -> Limits:
    """The limits with what people changed on this run."""
    if not state.limits:
        return limits
    changes = {name: int(value) if name in COUNTS else value for name, value in state.limits.items()}
    return replace(limits, **changes)  # type: ignore[arg-type]


def spent(limits: Limits, totals: Totals) -> float:
    """US dollars booked: what is known, and the estimate for each attempt whose cost is not."""
    return totals.cost_usd + totals.unknown_costs * (limits.reserve or 0.0)


def used_tokens(totals: Totals) -> int:
    """Tokens booked: what was told, and as many as the hungriest attempt so far for each that was cut off."""
    return totals.tokens + totals.cut * totals.most_tokens


def reserve_usd(limits: Limits, totals: Totals) -> float | None:
    """What to set aside for the next attempt: the estimate, else the dearest so far, else all that is left.

    `None` where nothing is, and where that is all that the day leaves: how much that is only its ledger says.
    """
    if limits.reserve is not None or (limits.budget is None and limits.budget_per_day is None):
        return limits.reserve
    if totals.dearest_usd is not None:
        return totals.dearest_usd
    if limits.budget is None or limits.budget_per_day is not None:
        return None
    return max(0.0, limits.budget - spent(limits, totals))


def left(limits: Limits, state: LoopState) -> Left:
    """What the limits leave: iterations after the one of the next attempt, all else for that attempt too."""
    totals, it = state.totals, state.current
    opened = state.iteration + 1 if it is None else it.number
    return Left(
        iterations=max(0, limits.max_iterations - opened),
        seconds=max(0.0, limits.max_duration - totals.seconds),
        attempts=max(0, limits.attempts - (it.used if it else 0)),
        budget_usd=None if limits.budget is None else max(0.0, limits.budget - spent(limits, totals)),
        tokens=None if limits.max_tokens is None else max(0, limits.max_tokens - used_tokens(totals)),
    )


def exceeded(limits: Limits, state: LoopState) -> Ending | None:
    """The first bound that forbids another iteration, with the figures that say so; `None` if none does."""
    return used_up(limits, state) or _between_iterations(limits, state)


def used_up(limits: Limits, state: LoopState) -> Ending | None:
    """The first bound that forbids even another attempt of the same iteration: money, tokens, time, waiting."""
    totals, ending = state.totals, None
    if limits.budget is not None or limits.budget_per_day is not None:
        ending = _money(limits, totals) or _day(limits, state)
    if ending is None and limits.max_tokens is not None:
        ending = _tokens(limits.max_tokens, totals)
    if ending is None and totals.seconds >= limits.max_duration:
        used = f"{totals.seconds:.0f} s of agents and gates"
        ending = "max_duration", f"{used}, {limits.max_duration:.0f} s allowed"
    return ending or _waits(limits, state)


def _money(limits: Limits, totals: Totals) -> Ending | None:
    if limits.budget is not None:
        reserve = reserve_usd(limits, totals) or 0.0
        used = spent(limits, totals)
        if used >= limits.budget or used + reserve > limits.budget + ROUNDING:
            return (
                "budget",
                f"${used:.2f} of ${limits.budget:.2f} spent and another attempt may cost ${reserve:.2f}",
            )
    bound = limits.budget if limits.budget is not None else limits.budget_per_day
    if totals.unknown_costs and limits.reserve is None and bound is not None:
        who = _count(totals.unknown_costs, "attempt")
        why = f"{who} did not report a cost, so the budget of ${bound:.2f} cannot be kept"
        return "cost_unknown", f"{why}; set limits.reserve to an estimate per attempt"
    return None


def _day(limits: Limits, state: LoopState) -> Ending | None:
    """The day's money is used up, as its ledger said; the next day has its own."""
    cap, seen = limits.budget_per_day, state.day
    if cap is None or seen is None or not of_day(state):
        return None
    reserve = reserve_usd(limits, state.totals) or 0.0
    if seen.cost_usd < cap and seen.cost_usd + reserve <= cap + ROUNDING:
        return None
    more = f" and another attempt may cost ${reserve:.2f}" if seen.cost_usd < cap else ""
    return "budget", f"${seen.cost_usd:.2f} of ${cap:.2f} spent on {seen.day} (UTC) by all runs here{more}"


def of_day(state: LoopState) -> bool:
    """Whether what ended a run for its money is the money of the day: then the next day has more."""
    return (
        state.day is not None and state.updated_at is not None and state.day.day == day_of(state.updated_at)
    )


def day_of(at: datetime) -> str:
    """The day of a ledger, by UTC: `2026-11-30`."""
    return at.astimezone(UTC).date().isoformat()


def _tokens(most: int, totals: Totals) -> Ending | None:
    used = used_tokens(totals)
    if totals.unknown_tokens and used < most:
        who = _count(totals.unknown_tokens, "attempt")
        return "cost_unknown", f"{who} did not report tokens, so max_tokens {most} cannot be kept"
    return ("max_tokens", f"{used} of {most} tokens used") if used >= most else None


def _waits(limits: Limits, state: LoopState) -> Ending | None:
    """Waiting that is over its bound, or would be: a failure asks for more than is left."""
    totals, it = state.totals, state.current
    rest = limits.max_wait - totals.waited_s
    if rest < -ROUNDING:
        return "max_wait", f"{totals.waited_s:.0f} s of waiting, {limits.max_wait:.0f} s allowed"
    failed = state.failure if it is None else it.failed
    if failed is None or failed.kind not in WAITING_KINDS or state.wait_until is not None:
        return None  # a wait that was begun is booked already
    asked = failed.retry_after or 0.0
    if asked <= rest and rest > ROUNDING:
        return None
    wish = f"the agent asked to wait {asked:.0f} s more" if asked else "the agent still fails"
    return "max_wait", f"{wish}, {totals.waited_s:.0f} s of {limits.max_wait:.0f} s of waiting are used"


def wait_seconds(limits: Limits, state: LoopState, failed: AttemptFailed) -> float:
    """How long to wait after this failure: exponential with jitter, not less than it asked for, not past `max_wait`."""
    kinds = state.current.kinds if state.current else (failed.kind,)
    again = sum(kind in WAITING_KINDS for kind in kinds)
    rule = limits.backoff
    grown = min(rule.max, rule.first * rule.factor ** min(again - 1, 60))
    seconds = grown * (0.5 + failed.dice / 2)
    if failed.retry_after is not None:  # a little later than that, so that a fleet does not come back as one
        seconds = max(seconds, failed.retry_after + min(seconds, rule.first))
    return min(seconds, limits.max_wait - state.totals.waited_s)


def _between_iterations(limits: Limits, state: LoopState) -> Ending | None:
    """The bounds that only a new iteration meets: their number, errors in a row, convergence."""
    if state.iteration >= limits.max_iterations:
        done = _count(state.iteration, "iteration")
        return "max_iterations", f"{done} done, {limits.max_iterations} allowed"
    if state.errors >= limits.max_consecutive_errors:
        why = _brief(state.failure.message if state.failure else "")
        return "consecutive_errors", f"{_count(state.errors, 'iteration')} in a row without a result: {why}"
    rule = limits.convergence
    if rule is None:
        return None
    times = stale(rule, state, state.recent)
    if times < rule.patience:
        return None
    peak = f"best score {state.peak or 0.0:.2f}"
    return "converged", f"no progress over {times} × {_count(rule.window, 'iteration')} ({peak})"


def stale(rule: Convergence, state: LoopState, recent: Sequence[Closed]) -> int:
    """How many windows in a row, up to now, were without progress.

    0: the last one had some, or is not full yet, counted anew from the last nudge.
    """
    if not recent or not recent[-1].graded:
        return 0  # nothing new: it was looked at when the last graded one closed
    begun = max(state.fresh_from, state.nudged)
    graded: list[Closed] = []  # newest first
    for c in reversed(recent):
        if c.number <= state.fresh_from or len(graded) == rule.window * rule.patience:
            break
        if c.graded:
            graded.append(c)
    since = sum(c.number > begun for c in graded)
    if begun == state.nudged and 0 < since < rule.window:
        return 0
    times = 0
    while len(graded) >= (times + 1) * rule.window:
        if not _flat(rule, state, recent, graded[times * rule.window : (times + 1) * rule.window]):
            break
        times += 1
    return times


def _flat(rule: Convergence, state: LoopState, recent: Sequence[Closed], window: Sequence[Closed]) -> bool:
    """Whether neither the best score rose nor the failing set lost a member in these (newest first)."""
    last, first = window[0], window[-1]
    earlier = recent[: first.number - recent[0].number]  # they are numbered without gaps
    if not earlier and state.zero is not None and state.closed <= RECENT:
        earlier = (state.zero,)
    peak = earlier[-1].peak if earlier else first.peak  # with nothing before it, the first is the start
    if (last.peak or 0.0) - (peak or 0.0) >= rule.within - ROUNDING:
        return False
    before = next((c for c in reversed(earlier) if c.graded), first)
    return all(set(a.failing) <= set(b.failing) for b, a in pairwise((*window, before)))


def nudge(limits: Limits, state: LoopState, closing: Closed) -> AlertRaised | None:
    """The convergence nudge that closing this iteration brings, if it completes a window without progress."""
    rule = limits.convergence
    if rule is None or not closing.graded or recently(state, "NO_PROGRESS", closing.number):
        return None
    times = stale(rule, state, (*state.recent, closing)[-RECENT:])
    if not 0 < times < rule.patience:
        return None
    items = len(closing.failing)
    what = (
        f"{_count(items, 'item')} still failing"
        if items
        else f"the score stays near {closing.peak or 0.0:.2f}"
    )
    span = f"the last {_count(rule.window, 'iteration')}"
    message = f"{what} and nothing improved over {span}; try another way"
    return AlertRaised(kind="NO_PROGRESS", iteration=closing.number, action="nudge", message=message)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _brief(text: str) -> str:
    line = next((part for part in text.strip().splitlines() if part.strip()), "no message")
    return line if len(line) <= 200 else line[:199] + "…"
