"""The open journal of one run: fold what stands there, record what happens, keep the fence.

Rules. A fact is applied before it is written, so an illegal one never reaches a store. Facts may
wait for company until `flush`. A refused commit means that another runner was first: unless what
stands there is our own bytes, this one leaves.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from loopwright import codec
from loopwright.core.apply import apply
from loopwright.core.events import AttemptSucceeded, Claimed, Event, IterationClosed, RunStarted
from loopwright.core.head import head, readable
from loopwright.core.state import LoopState
from loopwright.errors import Corrupt, IllegalEvent, Locked, StoreError, Taken
from loopwright.ports import Follow, Kept, Observe, Refused, Store
from loopwright.redact import PLAIN, Redactor

if TYPE_CHECKING:  # it loads asyncio, which those who only read do without
    from loopwright.together import Together

_Facts: TypeAlias = tuple[tuple[datetime, Event], ...]  # of one commit, each with when it happened
KEEP_FOLD_EVERY: Final = 256  # commits between cached folds: resuming re-reads no more, in some milliseconds


class Journal:
    """The journal of one run and its fold, `state`."""

    def __init__(
        self, store: Store, run: str, *, observe: tuple[Observe, ...] = (), together: Together | None = None
    ) -> None:
        self.store = store
        self.run = run
        self.state = LoopState()
        self.n = 0
        self._link = ""
        self._owner = ""
        self._epoch = 0
        self._nonce = secrets.token_hex(6)
        self._observe = observe
        self._together = together
        self.redact: Redactor = PLAIN
        self.follow: tuple[Follow, ...] = ()  # told as those who observe are, and when each fact happened
        self._pending: list[tuple[datetime, Event]] = []
        self._closed: LoopState | None = None  # as the last iteration closed, while that waits for a flush
        self._kept = 0
        self._load()

    @property
    def exists(self) -> bool:
        """Whether the run is on record."""
        return self.n > 0

    def _load(self) -> None:
        cached = self.store.cached(self.run)
        kept = codec.decode_fold(cached[1]) if cached else None
        if kept is not None and self._stands(kept[0], kept[1]):
            self.n, self._link, self.state = kept
            self._kept = self.n
        self.catch_up()

    def _stands(self, n: int, link: str) -> bool:
        """Whether commit `n` is the one a cached fold was made of: a copy of another history is not used."""
        line = next((body for number, body in self.store.read(self.run, n - 1) if number == n), None)
        if line is None:
            raise Corrupt(f"run {self.run} has lost commits: a fold was kept of {n}")
        return codec.link_of(line) == link

    def check(self) -> None:
        """`Corrupt` unless the last commit stands as it was written: an agent can reach the files of a store."""
        one = getattr(self.store, "one", None)  # other stores notice as they append
        line = None if one is None else one(self.run, self.n)
        if one is not None and (line is None or codec.link_of(line) != self._link):
            raise Corrupt(
                f"commit {self.n} of run {self.run} was changed while it was in use: nothing more is kept"
            )

    def catch_up(self) -> None:
        """Folds what others wrote since."""
        for commit in commits(self.store, self.run, self.n, self._link):
            for _, _, after in followed(self.store, self.run, self.state, commit):
                self.state = after
            self.n, self._link = commit.n, commit.link

    def claim(self, claimed: Claimed, at: datetime) -> None:
        """Takes the run for this host; from now on its commits carry this epoch."""
        self._owner, self._epoch = claimed.owner, claimed.epoch
        self.record(at, claimed)

    def record(self, at: datetime, *events: Event) -> None:
        """Folds these facts in, without secrets, and keeps them for the next `flush`."""
        for fact in events:
            event = self.redact.event(fact)
            self.state = apply(self.state, event, at)
            self._pending.append((self.state.updated_at or at, event))  # `at`, and never before the last fact
            if type(event) is IterationClosed:
                self._closed = self.state

    def flush(self) -> None:
        """Writes the waiting facts as one commit; returns once they are durable. `Locked` when fenced off."""
        if not self._pending:
            return
        n, facts = self.n + 1, tuple(self._pending)
        line, kept = self._written(n, facts)
        refused: Taken | None = None
        try:
            self.store.append_with(self.run, n, line, kept)
        except Taken as taken:
            refused = taken
        self._settle(n, facts, line, kept, refused)

    async def save(self) -> None:
        """`flush`, in one go with other runs of this process where there are any."""
        if self._together is None or not self._pending:
            self.flush()
            return
        n, facts = self.n + 1, tuple(self._pending)
        line, kept = self._written(n, facts)
        await self._together.write(
            self.run, n, line, kept, lambda refused: self._settle(n, facts, line, kept, refused)
        )

    def _written(self, n: int, facts: _Facts) -> tuple[bytes, Kept]:
        """Commit `n`, of these facts, and what a store keeps beside it."""
        line = codec.encode(n, self._link, self._owner, self._epoch, self._nonce, facts)
        due = n - self._kept >= KEEP_FOLD_EVERY
        silent = len(facts) == 1 and isinstance(facts[0][1], AttemptSucceeded)
        kept = kept_of(
            self.state,
            self._closed,
            # The result of an attempt alone says nothing that a reader of heads cannot hear a commit later.
            told=not silent,
            fold=codec.encode_fold(n, codec.link_of(line), self.state) if due else None,
        )
        return line, kept

    def _settle(self, n: int, facts: _Facts, line: bytes, kept: Kept, refused: Refused | None) -> None:
        """The commit stands, or why it does not is raised."""
        if isinstance(refused, StoreError):
            raise refused
        if refused is not None and refused.standing != line:
            raise Locked(
                f"run {self.run} was taken over by another runner (commit {n}); this one stops"
            ) from None
        self.n, self._link = n, codec.link_of(line)
        if kept.fold is not None:
            self._kept = n
        del self._pending[: len(facts)]
        self._closed = None
        if self._observe or self.follow:
            for at, event in facts:
                for see in self._observe:
                    see(event)
                for follow in self.follow:
                    follow(at, event)


def kept_of(
    state: LoopState, closed: LoopState | None, *, told: bool = True, fold: bytes | None = None
) -> Kept:
    """What a store keeps beside a commit that leads to `state`; `closed` is the state as it closed an iteration.

    Unless `told`, the head of the commit before may stand.
    """
    return Kept(
        head=codec.dumps(head(state)) if told else None,
        active=state.finished is None,
        fold=fold,
        closed=None if closed is None else closed.iteration,
        state=partial(_for_people, state),
        at_close=partial(_for_people, closed or state),
    )


def _for_people(state: LoopState) -> bytes:
    return codec.dumps(readable(state), indent=2)


def commits(store: Store, run: str, after: int = 0, link: str = "") -> Iterator[codec.Commit]:
    """The commits of a run after number `after`; a damaged one is a `Corrupt` that says where it stands."""
    try:
        for commit in codec.commits(run, store.read(run, after), after, link):
            begun = commit.facts[0][1] if commit.n == 1 and commit.facts else None
            if isinstance(begun, RunStarted) and begun.run != run:
                raise Corrupt(f"commit 1 of run {run} is of run {begun.run}: their records were mixed up")
            yield commit
            after = commit.n
    except StoreError as error:
        raise _placed(store, run, after + 1, error) from None


def latest(store: Store, run: str, n: int, *, most: int) -> Iterator[tuple[datetime, Event]]:
    """The last facts of a run and when they happened: those of at most so many commits up to commit `n`."""
    after, link = max(0, n - most), ""
    if after:
        first = next((line for _, line in store.read(run, after - 1)), b"")
        link = codec.link_of(first)
    for commit in commits(store, run, after, link):
        if commit.n > n:
            return
        yield from commit.facts


def _placed(store: Store, run: str, n: int, error: StoreError) -> StoreError:
    """The error, with where commit `n` stands if it does not say so."""
    place = getattr(store, "place", None)
    where = "" if place is None else place(run, n)
    if not where or where.partition(", ")[0] in str(error):
        return error
    return type(error)(f"{error} ({where})")


def followed(
    store: Store, run: str, state: LoopState, commit: codec.Commit
) -> Iterator[tuple[datetime, Event, LoopState]]:
    """Each fact of a commit on record and the state after it; `Corrupt` when it cannot follow `state`."""
    try:
        for at, event in commit.facts:
            state = apply(state, event, at)
            yield at, event, state
    except IllegalEvent as error:
        found = Corrupt(f"commit {commit.n} of run {run} cannot follow the ones before it: {error}")
        raise _placed(store, run, commit.n, found) from None


def history(store: Store, run: str) -> Iterator[tuple[int, datetime, Event, LoopState]]:
    """Each fact of a run with its commit's number, when it happened, and the state after it."""
    state = LoopState()
    for commit in commits(store, run):
        for at, event, after in followed(store, run, state, commit):
            state = after
            yield commit.n, at, event, after
