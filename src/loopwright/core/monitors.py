"""Loop health: named illnesses of a loop, seen in its recent iterations.

Rules. A monitor is a pure function of the last closed iterations and is silent until its window is
full. One alert per kind per three iterations; five within ten are critical. SLOWDOWN and the
convergence nudge are notes and never count. The series it looks at is part of the state, so a
resumed run remembers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from typing import Final

from loopwright.core.events import AlertRaised
from loopwright.core.frozen import frozen
from loopwright.core.state import ALERTS, RECENT, LoopState
from loopwright.core.values import Action, Closed, finite, whole

REPEAT: Final = 3  # an alert of one kind is raised at most once in so many iterations
CALM: Final = frozenset({"SLOWDOWN", "NO_PROGRESS"})  # kinds that never add up to critical


@frozen
class Oscillation:
    """Scores that go up and down with no new best, or a tree that keeps coming back."""

    action: Action = "note"
    window: int = 6
    changes: int = 4
    above: float = 0.005

    def __post_init__(self) -> None:
        whole("oscillation.window", self.window, low=3, high=RECENT)
        whole("oscillation.changes", self.changes, high=RECENT)
        finite("oscillation.above", self.above, low=0, high=1)


@frozen
class Degradation:
    """Scores that only fall."""

    action: Action = "note"
    window: int = 4
    drop: float = 0.05

    def __post_init__(self) -> None:
        whole("degradation.window", self.window, low=2, high=RECENT)
        finite("degradation.drop", self.drop, low=0, high=1)


@frozen
class Slowdown:
    """Iterations that take longer each time."""

    action: Action = "note"
    window: int = 4
    ratio: float = 1.5

    def __post_init__(self) -> None:
        whole("slowdown.window", self.window, low=2, high=RECENT)
        finite("slowdown.ratio", self.ratio, low=1)


@frozen
class HighErrorRate:
    """Too many of the last iterations errored."""

    action: Action = "note"
    window: int = 5
    rate: float = 0.5

    def __post_init__(self) -> None:
        whole("high_error_rate.window", self.window, high=RECENT)
        finite("high_error_rate.rate", self.rate, low=0, high=1)


@frozen
class Stall:
    """The same failure on the same tree, again and again."""

    action: Action = "stop"
    window: int = 3

    def __post_init__(self) -> None:
        whole("stall.window", self.window, low=2, high=RECENT)


@frozen
class Critical:
    """So many alerts within so many iterations stop the run."""

    alerts: int = 5
    within: int = 10

    def __post_init__(self) -> None:
        whole("critical.alerts", self.alerts, high=ALERTS)
        whole("critical.within", self.within, high=RECENT)


@frozen
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
    number = closing.number
    raised: list[AlertRaised] = []
    for kind, action, message in _found(monitors, state, closing):
        if recently(state, kind, number):
            continue
        critical = kind not in CALM and _counted(state, monitors.critical, number, raised)
        raised.append(
            AlertRaised(kind=kind, iteration=number, action=action, message=message, critical=critical)
        )
    return tuple(raised)


def _found(monitors: Monitors, state: LoopState, closing: Closed) -> list[tuple[str, Action, str]]:
    """What the monitors that are on see; an iteration without a score tells those of scores nothing new."""
    series = (*state.recent, closing)
    found: list[tuple[str, Action, str]] = []
    errors = monitors.high_error_rate
    if errors.action != "off" and (said := high_error_rate(errors, series)):
        found.append(("HIGH_ERROR_RATE", errors.action, said))
    if closing.score is None:
        return found
    turns, falls, times, same = monitors.oscillation, monitors.degradation, monitors.slowdown, monitors.stall
    scored = _scored(series, 1 + max(turns.window, falls.window, times.window, same.window))
    if turns.action != "off" and (said := oscillation(turns, scored)):
        found.append(("OSCILLATION", turns.action, said))
    if falls.action != "off" and (said := degradation(falls, scored)):
        found.append(("DEGRADATION", falls.action, said))
    if times.action != "off" and (said := slowdown(times, scored)):
        found.append(("SLOWDOWN", times.action, said))
    if same.action != "off" and (said := stall(same, scored)):
        found.append(("STALL", same.action, said))
    return found


def _scored(series: Sequence[Closed], most: int) -> list[Closed]:
    """As many of the last scored iterations as the widest window looks at, and the one before them."""
    found: list[Closed] = []
    for closed in reversed(series):
        if closed.score is not None:
            found.append(closed)
            if len(found) == most:
                break
    found.reverse()
    return found


def recently(state: LoopState, kind: str, number: int) -> bool:
    """Whether an alert of this kind is too fresh for another at iteration `number`."""
    return any(a.kind == kind and a.iteration > number - REPEAT for a in state.alerts)


def _counted(state: LoopState, rule: Critical, number: int, raised: Sequence[AlertRaised]) -> bool:
    """Whether one more alert at `number` makes it critical."""
    since = max(state.calm_from, number - rule.within)
    earlier = sum(a.iteration > since and a.kind not in CALM for a in (*state.alerts, *raised))
    return earlier + 1 >= rule.alerts


def oscillation(rule: Oscillation, scored: Sequence[Closed]) -> str | None:
    """Says how often the score turned, or that the tree returned, with no new best meanwhile."""
    if len(scored) < rule.window:
        return None
    window = scored[-rule.window :]
    returns = _returns(window)
    if returns >= 2:
        return f"the work returned to an earlier state {returns} times in {rule.window} iterations"
    before = scored[-rule.window - 1] if len(scored) > rule.window else window[0]  # the first sets the mark
    if (window[-1].peak or 0.0) > (before.peak or 0.0):
        return None
    turns = _turns(window, rule.above)
    if turns >= rule.changes:
        return f"the score changed direction {turns} times in {rule.window} iterations without a new best"
    return None


def _returns(window: Sequence[Closed]) -> int:
    """How often the tree became one that it was before the last."""
    returns = 0
    trees: list[str | None] = []
    for c in window:
        tree = c.snapshot
        returns += tree is not None and tree in trees and tree != trees[-1]
        trees.append(tree)
    return returns


def _turns(window: Sequence[Closed], above: float) -> int:
    """How often the score turned; a step that is not `above` so much is none."""
    turns, last = 0, window[0].score or 0.0
    up: bool | None = None
    for c in window:
        score = c.score or 0.0
        step, last = score - last, score
        if abs(step) > above:
            turns += up is not None and up is not (step > 0)
            up = step > 0
    return turns


def degradation(rule: Degradation, scored: Sequence[Closed]) -> str | None:
    """Says how far the score fell, when it only fell."""
    scores = [c.score or 0.0 for c in scored[-rule.window :]]
    if len(scores) < rule.window or scores[-1] >= scores[-2] or not all(b < a for a, b in pairwise(scores)):
        return None
    if scores[0] - scores[-1] < rule.drop - 1e-9:
        return None
    return f"the score only fell over {rule.window} iterations, {scores[0]:.2f} to {scores[-1]:.2f}"


def slowdown(rule: Slowdown, scored: Sequence[Closed]) -> str | None:
    """Says how much slower iterations became, when each was slower than the last."""
    times = [c.seconds for c in scored[-rule.window :]]
    if len(times) < rule.window or times[-1] <= times[-2] or not all(b > a for a, b in pairwise(times)):
        return None
    if times[-1] < rule.ratio * times[0]:
        return None
    return f"iterations take longer each time, {times[0]:.1f} s to {times[-1]:.1f} s"


def high_error_rate(rule: HighErrorRate, series: Sequence[Closed]) -> str | None:
    """Says how many of the last iterations errored, when it was more than the rate."""
    window = series[-rule.window :]
    errored = 0
    for c in window:
        errored += c.outcome == "errored"
    if len(window) < rule.window or errored <= rule.rate * rule.window:
        return None
    return f"{errored} of the last {rule.window} iterations errored"


def stall(rule: Stall, scored: Sequence[Closed]) -> str | None:
    """Says since when the same things fail on the same work, whatever gates left. An unknown tree is never the same."""
    window = scored[-rule.window :]
    first = window[0]
    if len(window) < rule.window or first.work is None or not first.fingerprint:
        return None
    if any((c.work, c.fingerprint) != (first.work, first.fingerprint) for c in window):
        return None
    return f"nothing changed since iteration {first.number}, and the same things keep it from passing"


def healthy(state: LoopState) -> bool:
    """Whether no alert that counts was raised in the last three iterations."""
    return not any(a.iteration > state.iteration - REPEAT and a.kind not in CALM for a in state.alerts)
