"""Runs of one loop beside each other: what stands in the way of one more, and whose turn it is.

Rule: a run is under way from its first commit until it is over, also while it waits for a person. What is under way is
read from the store, so any number of servers see the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from loopwright.codec import loads
from loopwright.core.state import LoopState
from loopwright.errors import LoopwrightError
from loopwright.ports import Store
from loopwright.serving.book import Book
from loopwright.serving.others import first
from loopwright.unattended import Trigger

MOST: Final = 100_000  # active runs looked at
QUEUED: Final = 100  # runs of a loop under way, beyond which no more are begun
RESTING: Final = frozenset({"paused", "human_review"})  # a person must act
FRESH_S: Final = 0.25  # how long one look at the store is good


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """A run that is not over: since when, whether anybody has begun to work on it, and how it stands."""

    run: str
    since: str
    begun: bool
    phase: str = ""


def under_way(store: Store, loop: str) -> list[Active]:
    """The runs of this loop that are not over, in the order in which they take their turns."""
    found = (_active(store, run, body) for run, body in store.heads(active=True, limit=MOST))
    return sorted((each for name, each in found if name == loop), key=_rank)


def _active(store: Store, run: str, body: bytes) -> tuple[str, Active]:
    """A run and the name of its loop; empty where that cannot be read."""
    try:
        head: Any = loads(body)
        since, news = str(head["started_at"]), str(head["updated_at"])
        found = Active(run=run, since=since, begun=news != since, phase=str(head["phase"]))
        return str(head["loop"] or ""), found
    except (ValueError, TypeError, KeyError):  # damaged, or not made yet: it is there
        try:
            begun = first(store, run)
        except LoopwrightError:  # whoever takes it up says what is wrong
            begun = None
        name = "" if begun is None else str(begun.spec.get("name") or "")
        return name, Active(run=run, since="", begun=True)


def _rank(each: Active) -> tuple[bool, str, str]:
    return not each.begun, each.since, each.run


def in_the_way(active: Iterable[Active], overlap: str) -> str:
    """Why no further run of a loop is begun now that these are under way; empty where it is."""
    runs = list(active)
    if overlap == "queue":
        return f"{len(runs)} runs of it are waiting already" if len(runs) >= QUEUED else ""
    if not runs:
        return ""
    phase = f" ({runs[0].phase})" if runs[0].phase else ""
    return f"{runs[0].run} is under way{phase}"


def may_begin(run: str, active: Iterable[Active]) -> bool:
    """Whether it is this run's turn, where runs of its loop follow each other: `active` are all that are not over.

    Those that somebody has begun to work on come first, then the oldest; one that is not among them waits.
    """
    return min(active, key=_rank, default=Active(run="", since="", begun=False)).run == run


def queues(triggers: Iterable[Trigger]) -> bool:
    """Whether runs of a loop with these triggers follow each other."""
    return any(trigger.overlap == "queue" for trigger in triggers)


class Hosting(Protocol):
    """What of a server this needs (`live.Live`)."""

    @property
    def book(self) -> Book:
        """The loops it knows."""

    @property
    def store(self) -> Store:
        """The store of the thread that drives runs."""

    @property
    def tell(self) -> Callable[[str], None]:
        """Takes a line for the operator."""


def turn(live: Hosting) -> Callable[[LoopState, Mapping[str, LoopState]], bool]:
    """Whether it is a run's turn, for `Workers.turn`: where the runs of its loop follow each other, the store says so."""
    seen = dict[str, tuple[float, list[Active]]]()
    told = dict[str, str]()  # loop → the run that all others wait for, and that rests itself

    def its_turn(state: LoopState, in_hand: Mapping[str, LoopState]) -> bool:
        run, loop = state.run, str(state.spec.get("name") or "")
        served = live.book.loops.get(loop)
        if served is None or not queues(served.triggers):
            return True
        if any(other != run and held.spec.get("name") == loop for other, held in in_hand.items()):
            return False
        at, active = seen.get(loop, (0.0, []))
        if time.monotonic() - at > FRESH_S or not any(each.run == run for each in active):
            active = under_way(live.store, loop)
            seen[loop] = time.monotonic(), active
        if may_begin(run, active):
            return True
        head = next(iter(active), None)
        if head is not None and head.phase in RESTING and told.get(loop) != head.run:
            told[loop] = head.run
            live.tell(
                f"{run} waits for its turn: {head.run} is before it ({head.phase}); answer, resume or stop that one"
            )
        return False

    return its_turn
