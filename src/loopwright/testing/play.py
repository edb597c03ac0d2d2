"""A small play with a store: every kind of call, and what must be true of the store at any moment of it.

Rule: what was acknowledged must be found; what was not may be found, whole, or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

from loopwright.errors import LoopwrightError, Taken
from loopwright.ports import Kept, Store

RUN: Final = "r"
OTHER: Final = "r-2"
SIZES: Final = (40, 700, 5000, 3, 1500, 600)  # bytes of the commits' padding: below and above a block
SIGNALS: Final = {1: "stop/a", 3: "decision/b c", 4: "note/c"}  # left after this commit
SETTLED: Final = {2: "stop/a", 5: "decision/b c"}
LEDGER: Final = ("usd/spent", "2026-11-30")
ENTRIES: Final = {1: ("r/1/1", 1.0), 5: ("r/1/1/settled", -0.5)}  # counted after this commit
SUMS: Final = (0.0, 1.0, 0.5)  # after so many of them
LATE: Final = datetime(9000, 1, 1, tzinfo=UTC)
HELD: Final = {2: ("a login", None), 4: ("another", LATE)}  # held after this commit
LIFTED: Final = {6: "a login"}


def commit(n: int) -> bytes:
    """Commit `n` of the play; no two of its bytes are alike those of another."""
    return json.dumps({"n": n, "pad": str(n) * SIZES[n - 1]}).encode()


def head(n: int) -> bytes:
    """What is kept beside it."""
    return json.dumps({"head": n}).encode()


def fold(n: int) -> bytes:
    """A cached fold."""
    return json.dumps({"fold": n, "pad": "f" * 900}).encode()


def record(key: str) -> bytes:
    """What a signal holds."""
    return json.dumps({"asks": key}).encode()


def kept(n: int) -> Kept:
    """Beside commit `n`: a head, at every third a fold, and each closes an iteration."""
    state = json.dumps({"loop_id": RUN, "commit": n}).encode()
    return Kept(
        head=head(n),
        active=n < len(SIZES),
        fold=fold(n) if n % 3 == 0 else None,
        closed=n,
        state=lambda: state,
        at_close=lambda: state,
    )


def mend(store: Store) -> None:
    """What a host does first with a store that keeps files for people."""
    make: Callable[..., Any] | None = getattr(store, "mend", None)
    if make is not None:
        make(RUN, lambda: ((n, kept(n)) for n, _ in store.read(RUN)))


def play(store: Store, say: Callable[[str], None]) -> None:
    """Goes on from wherever an earlier play ended, to the end; says what was acknowledged."""
    mend(store)
    there = sum(1 for _ in store.read(RUN))
    for n in range(1, len(SIZES) + 1):
        if n > there:
            try:
                store.append_with(RUN, n, commit(n), kept(n))
            except Taken as taken:
                if taken.standing != commit(n):
                    raise
            say(f"commit {n}")
        if n in SIGNALS:
            store.signal(RUN, SIGNALS[n], record(SIGNALS[n]))
            say(f"signal {SIGNALS[n]}")
        if n in SETTLED:
            store.settle(RUN, [SETTLED[n]])
            say(f"settled {SETTLED[n]}")
        if keeps_ledgers(store):
            _count(store, n, say, new=n > there)
    store.append(OTHER, 1, b'{"n":1}') if not list(store.read(OTHER)) else None
    say("other 1")


def keeps_ledgers(store: Store) -> bool:
    """Whether it has what a store may be without."""
    return all(hasattr(store, name) for name in ("add", "total", "hold", "holds", "lift"))


def _count(store: Store, n: int, say: Callable[[str], None], *, new: bool) -> None:
    """What belongs after commit `n`; an entry is said again whoever wrote the commit, a hold is not."""
    if n in ENTRIES:
        store.add(*LEDGER, *ENTRIES[n])
        say(f"entry {ENTRIES[n][0]}")
    if n in HELD and new:
        store.hold(*HELD[n], "over the limit")
        say(f"hold {HELD[n][0]}")
    if n in LIFTED and new:
        store.lift(LIFTED[n])
        say(f"lift {LIFTED[n]}")


def wrong(store: Store, said: Iterable[str]) -> list[str]:
    """What is not as it must be after these acknowledgements, whatever happened; `[]` when all is."""
    told = set(said)
    found: list[str] = []
    try:
        lines = list(store.read(RUN))
        if [n for n, _ in lines] != list(range(1, len(lines) + 1)):
            found.append(f"the commits are {[n for n, _ in lines]}: not a gapless beginning")
        found += [f"commit {n} holds other bytes" for n, body in lines if body != commit(n)]
        known = max((int(text.split()[1]) for text in told if text.startswith("commit ")), default=0)
        if len(lines) < known:
            found.append(f"commit {known} was acknowledged, but there are {len(lines)}")
        found += _signals(store, told)
        found += _beside(store, len(lines))
        found += _counted(store, told, len(lines)) if keeps_ledgers(store) else []
        if "other 1" in told and list(store.read(OTHER)) != [(1, b'{"n":1}')]:
            found.append("the other run's commit was acknowledged and is not there")
    except (LoopwrightError, OSError, ValueError) as error:
        found.append(f"what was left cannot be read: {type(error).__name__}: {error}")
    return found


def _signals(store: Store, told: set[str]) -> list[str]:
    found = []
    waiting = dict(store.signals(RUN))
    for key in SIGNALS.values():
        settled, asked = f"settled {key}" in told, f"signal {key}" in told
        if settled and key in waiting:
            found.append(f"the signal {key} was consumed and is there again")
        if asked and key not in waiting and key not in SETTLED.values():
            found.append(f"the signal {key} was acknowledged and is not there")
        if key in waiting and waiting[key] != record(key):
            found.append(f"the signal {key} holds other bytes")
    return found


def _counted(store: Store, told: set[str], lines: int) -> list[str]:
    found = []
    total, known = store.total(*LEDGER), sum(f"entry {name}" in told for name, _ in ENTRIES.values())
    if total not in SUMS[known:]:
        found.append(f"{known} entries were acknowledged, but the ledger's total is {total}")
    holds = {hold.login: hold for hold in store.holds()}
    for n, (login, until) in HELD.items():
        held = holds.get(login)
        lifted = login in LIFTED.values() and lines >= max(LIFTED)
        if f"hold {login}" in told and held is None and not lifted:
            found.append(f"the hold of {login} after commit {n} was acknowledged and is not there")
        if held is not None and (held.until != until or held.why != "over the limit"):
            found.append(f"the hold of {login} is not what was said")
        if f"lift {login}" in told and held is not None:
            found.append(f"the hold of {login} was lifted and is there again")
    return found


def _beside(store: Store, n: int) -> list[str]:
    found = []
    heads = dict(store.heads())
    if n and RUN not in heads:
        found.append("the run is on record and not listed")
    if heads.get(RUN, b"") not in {b"", *(head(i) for i in range(1, n + 1))}:
        found.append("the run's head is none that was written, or ahead of its commits")
    cached = store.cached(RUN)
    if cached is not None and (cached[0] > n or cached[1] != fold(cached[0])):
        found.append("the cached fold is not what was written, or ahead of its commits")
    return found


def whole(store: Store) -> list[str]:
    """What is not as it must be once the play is over."""
    told = [f"commit {len(SIZES)}", "other 1", *(f"signal {k}" for k in SIGNALS.values())]
    found = wrong(store, [*told, *(f"settled {k}" for k in SETTLED.values())])
    found += [f"the key {key} is free again" for key in SIGNALS.values() if store.signal(RUN, key, b"{}")]
    if keeps_ledgers(store):
        sums = {store.add(*LEDGER, name, 7.0) for name, _ in ENTRIES.values()}
        found += [f"an entry was counted twice: {sums}"] if sums != {SUMS[-1]} else []
    return found
