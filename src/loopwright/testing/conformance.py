"""`check_store`: what every store must keep, tried; for loopwright's stores and for those of others.

    order         commits come back as written, in order; heads newest first; signals oldest first; the last hold counts
    uniqueness    a number is written once, a gap is refused, a signal's key is never free again; an entry counts once
    concurrency   eight processes write at once: each number, and each key, has one winner; no entry and no hold is lost
    fencing       a holder that was overtaken is refused, changes nothing, and one lease has one owner
    crash         killed at every operation, and again at every operation of the recovery
    durability    power is lost after every operation, on two kinds of disk

Rule: each family counts what it tried and says what was lost; nothing tried is a loss too.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from loopwright.errors import Corrupt, Taken
from loopwright.ports import Store
from loopwright.testing import counting, play, power
from loopwright.testing.crash import Fault, How, Say, begun, crashed, ended, unsynced
from loopwright.testing.operations import Op, Tap, os_calls

Make: TypeAlias = Callable[[Path], Store]
Work: TypeAlias = Callable[[Say], None]
Tried: TypeAlias = tuple[Mapping[str, int], list[str]]  # how much of what, and the losses
FAMILIES: Final = ("order", "uniqueness", "concurrency", "fencing", "crash", "durability")
HOWS: Final[tuple[How, ...]] = ("before", "after", "torn", "short")
REFUSED: Final[tuple[How, ...]] = ("eio", "enospc")
WRITERS: Final = 8
NUMBERS: Final = 20
SHOWN: Final = 20  # losses printed
WITHOUT: Final = (
    "it has not all of add, total, hold, holds and lift: if it keeps none of them, say ledgers=False"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What came of it: per family how much was tried, and every loss in words. Printed, it is a small report."""

    tried: Mapping[str, int]
    losses: tuple[str, ...]

    def __str__(self) -> str:
        counts = ", ".join(f"{family} {n}" for family, n in self.tried.items())
        more = [f"  … and {len(self.losses) - SHOWN} more"] if len(self.losses) > SHOWN else []
        lines = [f"tried: {counts}; losses: {len(self.losses)}", *(f"  {x}" for x in self.losses[:SHOWN])]
        return "\n".join([*lines, *more])


def check_store(
    make: Make,
    folder: Path,
    *,
    tap: Tap = os_calls,
    lasting: bool = True,
    ledgers: bool = True,
    families: tuple[str, ...] = FAMILIES,
    every: int = 1,
    chances: int = 4,
) -> Checked:
    """Tries the store that `make` opens on a folder, which may not exist yet; `folder` is for scratch.

    `tap` shows the store's operations (by default what it does through `os`); a store that does not outlive its
    process (`lasting=False`) is spared the families that need it to, one without ledgers and holds (`ledgers=False`)
    what is asked of them. `every` thins out crash and durability, `chances` is how many disks are drawn by lot beside
    the three extreme ones after each operation.
    """
    tried: dict[str, int] = {}
    losses: list[str] = []
    names = ("order", "uniqueness", "fencing") if not lasting else FAMILIES
    trial = _Trial(make, tap, ledgers)
    checks: dict[str, Callable[[Path], Tried]] = {
        "order": lambda place: _order(trial, place),
        "uniqueness": lambda place: _uniqueness(trial, place),
        "fencing": lambda place: _fencing(trial, place),
        "concurrency": lambda place: _concurrency(trial, place),
        "crash": lambda place: _crash(trial, place, every),
        "durability": lambda place: _durability(trial, place, every, chances),
    }
    for family in (name for name in names if name in families):
        with _scratch(folder) as place:
            try:
                counts, found = checks[family](place)
            except Exception as error:  # noqa: BLE001 - whatever a store under trial raises is its loss
                counts, found = {family: 1}, [f"it failed: {type(error).__name__}: {error}"]
        tried |= counts
        losses += [f"{family}: {what}" for what in found]
        if not counts.get(family):
            losses.append(f"{family}: no operation of the store was seen, so nothing was tried: give a tap")
    return Checked(tried=tried, losses=tuple(losses))


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="check-", dir=folder))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def opened(make: Make, folder: Path) -> Iterator[Store]:
    """The store in `folder`, closed at the end."""
    store = make(folder)
    try:
        yield store
    finally:
        store.close()


@dataclass(frozen=True, slots=True)
class _Trial:
    """A store under trial, which is opened and seen by these."""

    make: Make
    tap: Tap
    ledgers: bool

    @contextmanager
    def opened(self, folder: Path) -> Iterator[Store]:
        """The store, for looking; nothing it does is synced."""
        with self.tap(folder, unsynced), opened(self.make, folder / "s") as store:
            yield store

    def work(self, folder: Path) -> Work:
        """The play, by a process that may be killed."""

        def go(say: Say) -> None:
            with opened(self.make, folder / "s") as store:
                play.play(store, say)

        return go

    def left(self, folder: Path, said: tuple[str, ...], where: str) -> list[str]:
        """What is wrong with what was left, read as it is."""
        try:
            with self.opened(folder) as store:
                return [f"{where}: {what}" for what in play.wrong(store, said)]
        except Exception as error:  # noqa: BLE001 - whatever it is, the store cannot be opened
            return [f"{where}: the store cannot be opened: {type(error).__name__}: {error}"]

    def finished(self, folder: Path, said: tuple[str, ...], where: str) -> list[str]:
        """What is wrong once the play was carried to its end."""
        try:
            with self.opened(folder) as store:
                play.play(store, lambda _: None)
                wrong = [*play.wrong(store, said), *play.whole(store)]
            return [f"{where}, carried on: {what}" for what in wrong]
        except Exception as error:  # noqa: BLE001 - whatever it is, it does not go on
            return [f"{where}: it does not go on: {type(error).__name__}: {error}"]


def _order(trial: _Trial, place: Path) -> Tried:
    found: list[str] = []
    with trial.opened(place) as store:
        for n in range(1, 151):
            store.append("r", n, b"%d" % n)
        expected = [(n, b"%d" % n) for n in range(1, 151)]
        if list(store.read("r")) != expected or list(store.read("r", 148)) != expected[148:]:
            found.append("150 commits do not come back as written")
        if list(store.read("none")):
            found.append("a run that never was has commits")
        for run in ("a", "b", "c", "a"):
            n = 1 + sum(1 for _ in store.read(run))
            store.append_with(run, n, b"x", play.kept(1))
        if [run for run, _ in store.heads(active=True) if run != "r"] != ["a", "c", "b"]:
            found.append("heads are not newest first")
        for i in range(20):
            store.signal("r", f"note/{i}", b"%d" % i)
        if list(store.signals("r")) != [(f"note/{i}", b"%d" % i) for i in range(20)]:
            found.append("signals do not come back oldest first")
        if trial.ledgers:
            found += counting.order(store) if play.keeps_ledgers(store) else [WITHOUT]
    return {"order": 175 + 30 * trial.ledgers}, found


def _uniqueness(trial: _Trial, place: Path) -> Tried:
    found: list[str] = []
    with trial.opened(place) as store:
        store.append_with("r", 1, play.commit(1), play.kept(1))
        for body in (play.commit(1), play.commit(2)):
            try:
                store.append_with("r", 1, body, play.kept(2))
                found.append("a number was written twice")
            except Taken as taken:
                if taken.standing != play.commit(1):
                    found.append("a refusal does not say what stands there")
        if dict(store.heads()).get("r") not in {b"", play.head(1)} or store.cached("r") is not None:
            found.append("a refused commit changed what is kept")
        try:
            store.append("r", 3, play.commit(3))
            found.append("a gap was written")
        except (ValueError, Corrupt):
            pass
        if list(store.read("r")) != [(1, play.commit(1))]:
            found.append("a refused commit is there")
        found += _several(store)
        for name in ("r", "trigger:r"):  # what is kept of a loop's slots is under a name that no run has
            free = [store.signal(name, "decision/1", b"yes"), store.signal(name, "decision/1", b"no")]
            store.settle(name, ["decision/1"])
            free.append(store.signal(name, "decision/1", b"again"))
            if free != [True, False, False]:
                found.append("a signal's key was free twice")
            if list(store.signals(name)):
                found.append("a consumed signal is still there")
        found += counting.uniqueness(store) if trial.ledgers else []
    return {"uniqueness": 7 + 6 * trial.ledgers}, found


def _several(store: Store) -> list[str]:
    """What is wrong with commits of several runs in one go, one of which is refused."""
    for run in ("a", "b"):
        store.append_with(run, 1, play.commit(1), play.kept(1))
    store.append("b", 2, play.commit(6))
    refused = store.append_all([(run, 2, play.commit(2), play.kept(2)) for run in ("a", "b")])
    standing = refused[1].standing if isinstance(refused[1], Taken) else None
    if refused[0] is not None or standing != play.commit(6):
        return ["one refusal among several commits is not told, or takes another with it"]
    there = [list(store.read(run))[1][1] for run in ("a", "b")]
    return (
        ["of several commits the wrong ones are there"] if there != [play.commit(2), play.commit(6)] else []
    )


def _fencing(trial: _Trial, place: Path) -> Tried:
    """A paused holder is the first of two stores; the second goes on without it, then the first comes back."""
    found: list[str] = []
    with trial.opened(place) as first:
        second = trial.make(place / "s") if place.joinpath("s").exists() else first
        lease = first.lease("r", "1:1@one@boot", 30)
        if lease is None or not lease.renew() or second.lease("r", "2:2@two@boot", 30) is not None:
            found.append("a lease has two owners, or none")
        first.append_with("r", 1, play.commit(1), play.kept(1))
        second.append_with("r", 2, play.commit(2), play.kept(2))
        for late in (2, 1):
            try:
                first.append_with("r", late, play.commit(4), play.kept(4))
                found.append("the late commit of a holder that was overtaken was taken")
            except Taken as taken:
                if taken.standing != play.commit(late):
                    found.append("the refusal does not say what stands there")
        if dict(second.heads()).get("r") not in {play.head(1), play.head(2)}:
            found.append("a refused commit changed the head")
        if [body for _, body in first.read("r")] != [play.commit(1), play.commit(2)]:
            found.append("a refused commit changed the record")
        if lease is not None:
            lease.release()
        if (after := second.lease("r", "2:2@two@boot", 30)) is None or (lease and lease.renew()):
            found.append("a lease that was given back is not free, or is still renewed")
        if after is not None:
            after.release()
        if second is not first:
            second.close()
    return {"fencing": 6}, found


def _concurrency(trial: _Trial, place: Path) -> Tried:
    """Eight processes begin together, on a folder that is not there yet, and all want the same numbers and keys."""
    store = place / "s"
    wait, go = os.pipe()

    def work(me: int) -> Work:
        def write(say: Say) -> None:
            os.close(go)
            os.read(wait, 1)  # ends when everybody is there and has let go
            with opened(trial.make, store) as mine:
                for n in range(1, NUMBERS + 1):
                    if mine.signal("r", f"key/{n}", b"%d" % me):
                        say(f"key {n}")
                    try:
                        mine.append_with("r", n, b"%d/%d" % (me, n), play.kept(1))
                        say(f"number {n}")
                    except Taken:
                        pass
                    if trial.ledgers:
                        counting.write(mine, me, n)

        return write

    writers = [begun(work(i), place, trial.tap) for i in range(WRITERS)]
    os.close(go)
    os.close(wait)
    ends = [ended(*writer) for writer in writers]
    found = [f"a writer failed: {end.error}" for end in ends if end.error or end.killed]
    said = [text for end in ends for text in end.said]
    for what in ("key", "number"):
        wins = sorted(int(text.split()[1]) for text in said if text.startswith(what))
        if wins != list(range(1, NUMBERS + 1)):
            found.append(f"of {WRITERS} writers, each {what} was won by {len(wins)} in all, not {NUMBERS}")
    with trial.opened(place) as now:
        if [n for n, _ in now.read("r")] != list(range(1, NUMBERS + 1)):
            found.append("the numbers are not whole")
        found += counting.kept(now, WRITERS, NUMBERS) if trial.ledgers else []
    return {"concurrency": WRITERS * NUMBERS * (2 + 2 * trial.ledgers)}, found


def _crash(trial: _Trial, place: Path, every: int) -> Tried:
    """At each operation, each way; what is left is read, and carried to the end. Killed again on the way there."""
    once = twice = number = 0
    found: list[str] = []
    for how in (*HOWS, *REFUSED):
        at = 1
        while True:
            number += 1
            folder = place / str(number)
            folder.mkdir()
            end = crashed(trial.work(folder), folder, trial.tap, Fault(at=at, how=how))
            if not end.killed and end.operations < at:
                shutil.rmtree(folder)
                break
            once += 1
            where = f"{how} operation {at}"
            if end.error and how not in REFUSED:
                found.append(f"{where}: {end.error}")
            found += trial.left(folder, end.said, where)
            if how == "before":
                count, more = _again(trial, place, folder, end.said, every)
                twice += count
                found += [f"{where}, then {what}" for what in more]
            found += trial.finished(folder, end.said, where)
            shutil.rmtree(folder)
            at += every
    return {"crash": once, "crash twice": twice}, found


def _again(
    trial: _Trial, place: Path, left: Path, said: tuple[str, ...], every: int
) -> tuple[int, list[str]]:
    """Killed at every operation of the recovery too."""
    tries, at = 0, 1
    found: list[str] = []
    while True:
        folder = place / "again"
        shutil.copytree(left, folder, symlinks=True)
        end = crashed(trial.work(folder), folder, trial.tap, Fault(at=at))
        if end.killed:
            tries += 1
            both = (*said, *end.said)
            found += trial.left(folder, both, f"operation {at}")
            found += trial.finished(folder, both, f"operation {at}")
        shutil.rmtree(folder)
        if not end.killed:
            return tries, found
        at += every


def _durability(trial: _Trial, place: Path, every: int, chances: int) -> Tried:
    """Power is lost after each operation; and after a kill, at each acknowledgement of the process that goes on."""
    base = place / "recorded"
    base.mkdir()
    ops = power.recorded(trial.work(base), base, trial.tap)
    if all(op.path == power.SAID for op in ops):
        return {}, []
    chosen = set(range(0, len(ops), every))
    tries, found = _unplugged(trial, place, base, ops, chosen, chances)
    later = 0
    for at in range(1, sum(op.path != power.SAID for op in ops) + 1, every):
        shutil.rmtree(base)
        base.mkdir()
        before = power.recorded(trial.work(base), base, trial.tap, Fault(at=at, how="after"))
        both = [*before, *power.recorded(trial.work(base), base, trial.tap)]
        acked = {n for n, op in enumerate(both) if op.path == power.SAID and n >= len(before)}
        count, more = _unplugged(trial, place, base, both, acked, 0)
        later += count
        found += [f"killed after operation {at}, then {what}" for what in more]
    return {"durability": tries, "durability after a kill": later}, found


def _unplugged(
    trial: _Trial, place: Path, base: Path, ops: list[Op], chosen: set[int], chances: int
) -> tuple[int, list[str]]:
    """Power is lost after the chosen operations; every fifth disk is carried to the end."""
    tries, folder = 0, place / "lost"
    found: list[str] = []
    for profile in power.PROFILES:
        for number, disk, said in power.states(ops, base, profile=profile, chances=chances, seed=profile):
            if number not in chosen:
                continue
            tries += 1
            folder.mkdir()
            power.written(disk, folder)
            where = f"{profile}, after operation {number + 1}"
            found += trial.left(folder, tuple(said), where)
            if tries % 5 == 0:
                found += trial.finished(folder, tuple(said), where)
            shutil.rmtree(folder)
    return tries, found
