"""What `/loops` shows: each loop that is served, what starts it and when, and how its last runs went.

Rule: reads the book and the store; a file that is broken is shown with what is wrong, beside the loop that it was before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Final

from loopwright.codec import loads
from loopwright.core.limits import Limits
from loopwright.figures import brief, money, short
from loopwright.loop import table_of
from loopwright.ports import Store
from loopwright.serving import slot_records
from loopwright.serving.book import Book, Served
from loopwright.triggers.cron import Schedule
from loopwright.unattended import Trigger
from loopwright.units import duration
from loopwright.web.list_page import Row, listed

NEXT: Final = 5
RUNS: Final = 5
SLOTS: Final = 10
WHEN: Final = "%Y-%m-%d %H:%M UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """What starts runs by itself: in the file's words, in a person's, and when next, in UTC and in its zone."""

    what: str
    words: str = ""
    next: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopView:
    """One loop. `slots` are the last times it was to start: when, what came of it, why."""

    name: str
    file: str
    problem: str
    goal: str
    agent: str
    gates: tuple[str, ...]
    mode: str
    asks: str
    limits: tuple[str, ...]
    triggers: tuple[Starts, ...]
    slots: tuple[tuple[str, str, str], ...]
    runs: tuple[Row, ...]


def loops_view(
    book: Book,
    heads: Sequence[Mapping[str, Any]],
    slots: Mapping[str, Sequence[tuple[str, str, str]]],
    now: datetime,
) -> tuple[LoopView, ...]:
    """The loops by name, with the newest of these runs."""
    return tuple(
        _view(served, heads, slots.get(name, ()), book.project, now)
        for name, served in sorted(book.loops.items())
    )


def broken(book: Book) -> tuple[tuple[str, str], ...]:
    """Files that say no loop that can be used, and why; those that said one before are shown with it."""
    kept = {served.file for served in book.loops.values()}
    return tuple(
        (shown_file(file, book.project), why) for file, why in book.problems.items() if file not in kept
    )


def shown_file(file: Path, project: Path) -> str:
    """A loop's file as it is typed in the project's folder."""
    return str(file.relative_to(project)) if file.is_relative_to(project) else str(file)


def _view(
    served: Served,
    heads: Sequence[Mapping[str, Any]],
    slots: Sequence[tuple[str, str, str]],
    project: Path,
    now: datetime,
) -> LoopView:
    made, loop = served.assembled, served.loop
    last = [h for h in heads if h.get("loop") == served.name][:RUNS]
    agent = loop.agent
    said = agent if isinstance(agent, str) else made.agent.name
    return LoopView(
        name=served.name,
        file=shown_file(served.file, project),
        problem=served.problem,
        goal=brief(loop.goal, 300),
        agent=brief(said, 80),
        gates=tuple(brief(gate.name, 60) for gate in made.gates),
        mode=made.mode.replace("_", " "),
        asks=_asks(table_of(loop.approval)),
        limits=binding(made.policy.limits),
        triggers=tuple(
            _starts(each, plan, now)
            for each, plan in zip_longest(served.triggers, served.schedules[: len(served.triggers)])
        ),
        slots=tuple(slots[:SLOTS]),
        runs=tuple(sorted(listed(last, now=now, every=True).rows, key=lambda row: row.word.order != 0)),
    )


def _asks(approval: Mapping[str, Any]) -> str:
    when = {"passed": "before good work is accepted", "always": "after every iteration", "alert": "on alerts"}
    if not approval or approval.get("when") == "never":
        return "never"
    return when.get(str(approval.get("when", "passed")), str(approval.get("when")))


def binding(limits: Limits) -> tuple[str, ...]:
    """Every limit that binds, for people."""
    told = [
        f"{limits.max_iterations} iterations",
        f"{duration(limits.max_duration)} of work",
        f"{duration(limits.max_wait)} of waiting",
        "" if limits.budget is None else f"{money(limits.budget)}",
        "" if limits.budget_per_day is None else f"{money(limits.budget_per_day)} a day, all runs",
        "" if limits.max_tokens is None else f"{short(limits.max_tokens)} tokens",
        f"{duration(limits.attempt_timeout)} an attempt",
        f"{limits.max_consecutive_errors} errors in a row",
    ]
    return tuple(line for line in told if line)


def left_out(store: Store, loop: str) -> list[tuple[str, str, str]]:
    """What schedules, webhooks and files came to lately, the latest first: when, what, why."""
    found = [
        (f"{each.slot:{WHEN}}", each.what, each.reason) for each in slot_records.history(store, loop)[:SLOTS]
    ]
    for key, record in store.signals(slot_records.of(loop)):
        kind = key.partition("/")[0]
        if kind in {"slot", "begun", "seen"}:
            continue
        try:
            told = loads(record)
            found.append(
                (
                    brief(str(told["at"]), 30),
                    f"{kind} {brief(str(told['status']), 30)}",
                    brief(str(told["why"])),
                )
            )
        except (ValueError, TypeError, KeyError):
            continue
    return sorted(found, reverse=True)[:SLOTS]


def _starts(trigger: Trigger, plan: Schedule | None, now: datetime) -> Starts:
    if trigger.webhook is not None:
        signed = "GitHub" if trigger.signature == "github" else "standard webhooks"
        return Starts(what=f"webhook: POST /hooks/{trigger.webhook}", words=f"signed by {signed}")
    if trigger.cron is None:
        return Starts(what=f"watch: {', '.join(trigger.watch)}", words="when one of these files changes")
    if plan is None:
        return Starts(what=f"cron: {trigger.cron}")
    times = [
        (f"{at.astimezone(UTC):{WHEN}}", f"{at.astimezone(plan.zone):%a %Y-%m-%d %H:%M} {plan.name}")
        for at in islice(plan.later(now), NEXT)
    ]
    zone = plan.name if plan.said else f"{plan.name}, the zone of this machine"
    return Starts(what=f"cron: {trigger.cron}", words=f"{plan.words} ({zone})", next=tuple(times))
