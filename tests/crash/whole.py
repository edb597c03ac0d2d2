"""A whole run that may be cut off anywhere: three iterations of a function, a note, an approval.

Rule: what the run did to the world is in a file outside the faulted folder; what was acknowledged to it was said.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from loopwright import Loop, gate, run
from loopwright.codec import encode_signal
from loopwright.core import events as ev
from loopwright.errors import LoopwrightError
from loopwright.journal import Journal, history
from loopwright.stores.opened import open_store
from loopwright.testing import (
    PROFILES,
    Fault,
    crashed,
    recorded,
    states,
    unsynced,
    written,
)

RUN = "r"
STORES = {"files": "files:kept", "sqlite": "sqlite:///kept/runs.db"}


def mark(event: ev.Event) -> str:
    """A short name of a fact, by which it is known again."""
    return f"{type(event).__name__} {hashlib.sha256(repr(event).encode()).hexdigest()[:12]}"


def loop_of(effects: Path) -> Loop:
    async def work(attempt):
        with effects.open("a") as file:
            file.write(f"{attempt.iteration}\n")
        return {"n": attempt.iteration}

    @gate
    async def grows(output):
        return output["n"] / 3

    return Loop("count to three", agent=work, gates=[grows], threshold=1.0, approval="passed")


def working(url: str, folder: Path) -> Callable[[Callable[[str], None]], None]:
    """The run, from wherever it stands to its end, with a person who leaves a note and answers the request."""

    def go(say):
        effects = folder.parent / f"{folder.name}.effects"
        store = open_store(url, folder)

        def once():
            return run(loop_of(effects), RUN, folder=folder, store=store, observe=lambda e: say(mark(e)))

        try:
            store.signal(RUN, "note/1", encode_signal(ev.NoteAdded(text="mind the gap", key="note/1")))
            final = once()
            if final.reason == "approval_requested":
                asked = Journal(store, RUN).state.approval
                yes = ev.ApprovalDecided(id=asked.id, answer="approve", by="somebody")
                store.signal(RUN, f"decision/{asked.id}", encode_signal(yes))
                final = once()
            say(f"end {final.reason}")
        finally:
            store.close()

    return go


def facts(url: str, folder: Path, tap) -> list[ev.Event]:
    """What is on record, in what a fault left; nothing where there is no store."""
    with tap(folder, unsynced):
        store = open_store(url, folder)
        try:
            return [event for _, _, event, _ in history(store, RUN)]
        finally:
            store.close()


def calls(folder: Path) -> Counter:
    """How often the agent worked in each iteration."""
    effects = folder.parent / f"{folder.name}.effects"
    return Counter(effects.read_text().split()) if effects.exists() else Counter()


def copied(source: Path, target: Path) -> None:
    """What a fault left, with what it did to the world."""
    shutil.copytree(source, target, symlinks=True)
    effects = source.parent / f"{source.name}.effects"
    if effects.exists():
        shutil.copy(effects, target.parent / f"{target.name}.effects")


def dropped(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (folder.parent / f"{folder.name}.effects").unlink(missing_ok=True)


def lost(url: str, folder: Path, said, tap, *, crashes: int) -> list[str]:
    """What is wrong with what a fault left, and with the run once it was resumed to its end."""
    told = [text for text in said if not text.startswith("end")]
    try:
        before = facts(url, folder, tap)
    except LoopwrightError as error:
        return [f"cannot be read: {error}"]
    found = []
    recorded = [mark(event) for event in before]
    if recorded[: len(told)] != told:
        found.append(f"{len(told)} facts were acknowledged; {len(recorded)} are there, or others")
    over = {
        start.iteration
        for start, end in pairwise(before)
        if isinstance(start, ev.AttemptStarted) and isinstance(end, ev.AttemptSucceeded)
    }
    done = calls(folder)
    again = crashed(working(url, folder), folder, tap)
    if again.killed or again.error or "end quality_reached" not in again.said:
        return [*found, f"it does not end well: {again.error} {again.said[-1:]}"]
    after = facts(url, folder, tap)
    if [mark(event) for event in after][: len(before)] != recorded:
        found.append("what was on record changed")
    now = calls(folder)
    found += [f"iteration {n}: recorded, and done again" for n in over if now[str(n)] != done[str(n)]]
    found += [f"iteration {n} was worked on {c} times" for n, c in now.items() if c > 1 + crashes]
    if {*now, *map(str, over)} != {"1", "2", "3"}:
        found.append(f"iterations {sorted(now)} were worked on after {over}")
    for kind in (ev.ApprovalDecided, ev.RunFinished, ev.RunStarted):
        if (count := sum(isinstance(e, kind) for e in after)) != 1:
            found.append(f"{count} × {kind.__name__}")
    return found + consumed(url, folder)


def consumed(url: str, folder: Path) -> list[str]:
    """What is wrong with how the signals were taken in: each once, and none is left."""
    found, noted, notes = [], 0, ()
    store = open_store(url, folder)
    try:
        for _, _, _, state in history(store, RUN):
            noted += len(state.notes) > len(notes)
            notes = state.notes
        if noted != 1:
            found.append(f"the note was taken in {noted} times")
        if list(store.signals(RUN)):
            found.append("a signal is still there")
    finally:
        store.close()
    return found


def every_crash(url: str, place: Path, tap, *, hows, every: int, twice: int) -> tuple[Counter, list[str]]:
    """Killed at every `every`th operation, each way; where `twice`, again at every `twice`th of the recovery."""
    tried, losses = Counter(), []
    warm(url, place)
    for how in hows:
        at = 1
        while True:
            folder = place / f"{how}-{at}"
            folder.mkdir()
            end = crashed(working(url, folder), folder, tap, Fault(at=at, how=how))
            if not end.killed and end.operations < at:
                dropped(folder)
                break
            tried[how] += 1
            if end.error and how not in {"eio", "enospc"}:
                losses.append(f"{how} {at}: {end.error}")
            if twice and how == "before":
                more, found = second_crash(url, place, folder, end.said, tap, twice)
                tried["twice"] += more
                losses += [f"{how} {at}, {what}" for what in found]
            losses += [f"{how} {at}: {what}" for what in lost(url, folder, end.said, tap, crashes=1)]
            dropped(folder)
            at += every
    return tried, losses


def every_power_loss(
    url: str, place: Path, tap, *, chances: int, every: int, resumed: int
) -> tuple[Counter, list[str]]:
    """Power is lost after every `every`th operation; every `resumed`th disk is carried to the end."""
    tried, losses = Counter(), []
    base, folder = place / "base", place / "lost"
    base.mkdir()
    ops = recorded(working(url, base), base, tap)
    for profile in PROFILES:
        for number, disk, said in states(
            ops, base, profile=profile, chances=chances, seed=f"{url} {profile}"
        ):
            if number % every:
                continue
            tried[profile] += 1
            folder.mkdir()
            written(disk, folder)
            where = f"{profile} {number + 1}"
            told = [text for text in said if not text.startswith("end")]
            try:
                there = [mark(event) for event in facts(url, folder, tap)]
                if there[: len(told)] != told:
                    losses.append(f"{where}: {len(told)} facts were acknowledged; {len(there)} are there")
            except LoopwrightError as error:
                losses.append(f"{where}: cannot be read: {error}")
            losses += [f"{where}: {name} is torn" for name in torn(folder)]
            if sum(tried.values()) % resumed == 0:
                tried["resumed"] += 1
                losses += [f"{where}: {what}" for what in lost(url, folder, said, tap, crashes=1)]
            dropped(folder)
    return tried, losses


def torn(folder: Path) -> list[str]:
    """The checkpoints that a person could open and would find to be no JSON."""
    found = []
    for path in folder.glob("kept/checkpoints/*.json"):
        try:
            json.loads(path.read_bytes())
        except ValueError:
            found.append(path.name)
    return found


def warm(url: str, place: Path) -> None:
    """The run once in this process, so that its children need not import what it needs."""
    folder = place / "warm"
    folder.mkdir()
    working(url, folder)(lambda _: None)
    dropped(folder)


def second_crash(url: str, place: Path, left: Path, said, tap, every: int) -> tuple[int, list[str]]:
    tried, losses, at = 0, [], 1
    folder = place / "again"
    while True:
        copied(left, folder)
        end = crashed(working(url, folder), folder, tap, Fault(at=at))
        if not end.killed:
            dropped(folder)
            return tried, losses
        tried += 1
        before = len(facts_or_none(url, left, tap))
        told = [*said, *end.said] if len(said) == before else list(said)
        losses += [f"then {at}: {what}" for what in lost(url, folder, told, tap, crashes=2)]
        dropped(folder)
        at += every


def facts_or_none(url: str, folder: Path, tap) -> list[ev.Event]:
    try:
        return facts(url, folder, tap)
    except LoopwrightError:
        return []
