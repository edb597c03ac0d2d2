"""Loop health: named illnesses of a loop, seen in its recent iterations.

Rules. A monitor is a pure function of the last closed iterations and is silent until its window is
full. One alert per kind per three iterations; five within ten are critical. SLOWDOWN is a note and
never counts. The series it looks at is part of the state, so a resumed run remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeVar

from loopwright.core.events import AlertRaised
from loopwright.core.state import LoopState
from loopwright.core.values import Action, Closed

R = TypeVar("R")
REPEAT: Final = 3  # an alert of one kind is raised at most once in so many iterations
CALM: Final = frozenset({"SLOWDOWN", "NO_PROGRESS"})  # kinds that never add up to critical


@dataclass(frozen=True, slots=True, kw_only=True)
class Oscillation:
    """Scores that go up and down with no new best, or a tree that keeps coming back."""

    action: Action = "note"
    window: int = 6
    changes: int = 4
    above: float = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Degradation:
    """Scores that only fall."""

    action: Action = "note"
    window: int = 4
    drop: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """Iterations that take longer each time."""

    action: Action = "note"
    window: int = 4
    ratio: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class HighErrorRate:
    """Too many of the last iterations errored."""

    action: Action = "note"
    window: int = 5
    rate: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """The same failure on the same tree, again and again."""

    action: Action = "stop"
    window: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Critical:
    """So many alerts within so many iterations stop the run."""

    alerts: int = 5
    within: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitors:
    """The monitors of a loop with their numbers."""

    oscillation: Oscillation = field(default_factory=Oscillation)
    degradation: Degradation = field(default_factory=Degradation)
    slowdown: Slowdown = field(default_factory=Slowdown)
    high_error_rate: HighErrorRate = field(default_factory=HighErrorRate)
    stall: Stall = field(default_factory=Stall)
    critical: Critical = field(default_factory=Critical)


def alerts(monitors: Monitors, state: LoopState, closing: Closed) -> tuple[AlertRaised, ...]:
    """The alerts that closing this iteration raises."""
    series = (*state.recent, closing)
    scored = [c for c in series if c.score is not None]
    found = (
        (
            "OSCILLATION",
            monitors.oscillation.action,
            _when(closing, oscillation, monitors.oscillation, scored),
        ),
        (
            "DEGRADATION",
            monitors.degradation.action,
            _when(closing, degradation, monitors.degradation, scored),
        ),
        ("SLOWDOWN", monitors.slowdown.action, _when(closing, slowdown, monitors.slowdown, scored)),
        (
            "HIGH_ERROR_RATE",
            monitors.high_error_rate.action,
            high_error_rate(monitors.high_error_rate, series),
        ),
        ("STALL", monitors.stall.action, _when(closing, stall, monitors.stall, scored)),
    )
    raised: list[AlertRaised] = []
    for kind, action, message in found:
        if message is None or action == "off" or _recently(state, kind, closing.number):
            continue
        critical = kind not in CALM and _counted(state, monitors.critical, closing.number, raised)
        raised.append(
            AlertRaised(
                kind=kind, iteration=closing.number, action=action, message=message, critical=critical
            )
        )
    return tuple(raised)


def _when(
    closing: Closed, look: Callable[[R, Sequence[Closed]], str | None], rule: R, scored: Sequence[Closed]
) -> str | None:
    """What a monitor of scores sees; an iteration without a score tells it nothing new."""
    return None if closing.score is None else look(rule, scored)


def _recently(state: LoopState, kind: str, number: int) -> bool:
    return any(
        a.kind == kind and a.iteration > number - REPEAT
        for a in state.alerts
        if a.iteration > state.calm_from
    )


def _counted(state: LoopState, rule: Critical, number: int, raised: Sequence[AlertRaised]) -> bool:
    """Whether one more alert at `number` makes it critical."""
    earlier = [a for a in state.alerts if a.iteration > max(state.calm_from, number - rule.within)]
    return sum(a.kind not in CALM for a in (*earlier, *raised)) + 1 >= rule.alerts


def oscillation(rule: Oscillation, scored: Sequence[Closed]) -> str | None:
    """Says how often the score turned, or that the tree returned, with no new best meanwhile."""
    if len(scored) < rule.window:
        return None
    window = scored[-rule.window :]
    trees = [c.snapshot for c in window]
    returns = sum(
        tree is not None and tree != trees[i - 1] and tree in trees[: i - 1]
        for i, tree in enumerate(trees)
        if i > 1
    )
    if returns >= 2:
        return f"the work returned to an earlier state {returns} times in {rule.window} iterations"
    steps = [b.score - a.score for a, b in pairwise(window) if a.score is not None and b.score is not None]
    steps = [s for s in steps if abs(s) > rule.above]
    turns = sum((a > 0) != (b > 0) for a, b in pairwise(steps))
    before = scored[-rule.window - 1].peak if len(scored) > rule.window else None
    new_best = before is None or (window[-1].peak or 0.0) > before
    if before is None:  # no earlier best to beat: one is set when a later score tops the first
        new_best = any((c.score or 0.0) > (window[0].score or 0.0) for c in window[1:])
    if turns >= rule.changes and not new_best:
        return f"the score changed direction {turns} times in {rule.window} iterations without a new best"
    return None


def degradation(rule: Degradation, scored: Sequence[Closed]) -> str | None:
    """Says how far the score fell, when it only fell."""
    scores = [c.score for c in scored[-rule.window :] if c.score is not None]
    if len(scores) < rule.window or not all(b < a for a, b in pairwise(scores)):
        return None
    if scores[0] - scores[-1] < rule.drop - 1e-9:
        return None
    return f"the score fell {rule.window} times in a row, {scores[0]:.2f} to {scores[-1]:.2f}"


def slowdown(rule: Slowdown, scored: Sequence[Closed]) -> str | None:
    """Says how much slower iterations became, when each was slower than the last."""
    times = [c.seconds for c in scored[-rule.window :]]
    if len(times) < rule.window or not all(b > a for a, b in pairwise(times)):
        return None
    if times[-1] < rule.ratio * times[0]:
        return None
    return f"iterations take longer each time, {times[0]:.1f} s to {times[-1]:.1f} s"


def high_error_rate(rule: HighErrorRate, series: Sequence[Closed]) -> str | None:
    """Says how many of the last iterations errored, when it was more than the rate."""
    window = series[-rule.window :]
    errored = sum(c.outcome == "errored" for c in window)
    if len(window) < rule.window or errored <= rule.rate * rule.window:
        return None
    return f"{errored} of the last {rule.window} iterations errored"


def stall(rule: Stall, scored: Sequence[Closed]) -> str | None:
    """Says since when the same things fail on an unchanged tree. An unknown tree is never the same."""
    window = scored[-rule.window :]
    first = window[0]
    if len(window) < rule.window or first.snapshot is None or not first.fingerprint:
        return None
    if any((c.snapshot, c.fingerprint) != (first.snapshot, first.fingerprint) for c in window):
        return None
    return f"nothing changed and the same gates fail since iteration {first.number}"


def healthy(state: LoopState) -> bool:
    """Whether no alert was raised in the last three iterations."""
    return not any(a.iteration > state.iteration - REPEAT and a.kind != "NO_PROGRESS" for a in state.alerts)
