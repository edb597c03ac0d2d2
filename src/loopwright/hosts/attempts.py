"""Answers that did not count, on the record of their run: who came second, too late, or may not decide.

Rule: each is there once, so many of one request at most, whoever tries how often. It is a signal, as the answer that
counts is, which whoever drives the run takes in; where the run is over it is taken in here.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Final

from loopwright.codec import encode_signal
from loopwright.core.events import Noticed
from loopwright.errors import Locked, StoreError
from loopwright.journal import Journal, history
from loopwright.ports import Store
from loopwright.stores.opened import owner

MOST: Final = 20  # of one request
LEASE_S: Final = 10.0


def put_down(store: Store, run: str, attempt: Noticed, now: datetime) -> None:
    """Puts an answer that did not count on record.

    A store that cannot keep it just now keeps nobody from being told what stands.
    """
    said = f"{attempt.channel}/{attempt.problem}".encode("utf-8", "replace")
    before = f"noticed/{attempt.approval[:12]}/attempt-"
    key = before + hashlib.sha256(said).hexdigest()[:12]
    try:
        waiting = [each for each, _ in store.signals(run) if each.startswith(before)]
        if key in waiting or len(waiting) + _kept(store, run, attempt.approval) >= MOST:
            return
        if store.signal(run, key, encode_signal(attempt, now)):
            _take_in(store, run, key, attempt, now)
    except (StoreError, Locked):
        return


def _kept(store: Store, run: str, request: str) -> int:
    """How many problems with a request its run has on record."""
    told = (event for _, _, event, _ in history(store, run) if isinstance(event, Noticed))
    return sum(event.approval == request and event.problem is not None for event in told)


def _take_in(store: Store, run: str, key: str, attempt: Noticed, now: datetime) -> None:
    """Makes it a fact of a run that is over, for nobody will drive that; of another, who drives it does."""
    if Journal(store, run).state.finished is None:
        return
    lease = store.lease(run, owner(), LEASE_S)
    if lease is None:
        return
    try:
        journal = Journal(store, run)
        if journal.state.finished is not None:
            journal.record(now, attempt)
            journal.flush()
            store.settle(run, [key])
    finally:
        lease.release()
