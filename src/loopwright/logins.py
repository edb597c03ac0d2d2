"""The login that an agent uses, which other runs use as well: what one of them found out, the others need not try.

Rule: a hold is a hint that saves a call, never the truth. A limit holds till its reset; a lost login holds the runs
that were under way when it was lost, and whoever starts one after that tries anew.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from loopwright import ledger
from loopwright.core.values import NO_USAGE, Failed, Worked
from loopwright.ports import Agent, Place
from loopwright.running import Run

STAGGER_S: Final = 60.0  # those that wait for the same reset come back one after another


def held(run: Run, agent: Agent, place: Place) -> Failed | None:
    """What an attempt would come to that is not made, because another run found out; `None` where it may be made."""
    store = run.journal.store
    if agent.login is None or not ledger.kept(store):
        return None
    login, now = agent.login(place), run.clock.now()
    hold = next((hold for hold in store.holds() if hold.login == login), None)
    if hold is None or (hold.until is None and hold.since < run.taken):
        return None
    why = f"{hold.why} (so another run of this login found)"
    if hold.until is None:
        return Failed(kind="permanent", message=why, usage=NO_USAGE)
    left = (hold.until - now).total_seconds()
    if left <= 0:
        return None
    return Failed(
        kind="rate_limited", message=why, retry_after_s=left + STAGGER_S * run.dice(), usage=NO_USAGE
    )


def learnt(run: Run, agent: Agent, place: Place, outcome: Worked | Failed) -> None:
    """Tells the other runs of this login what an attempt found out about it."""
    store = run.journal.store
    if agent.login is None or not ledger.kept(store):
        return
    login = agent.login(place)
    if isinstance(outcome, Worked):
        if any(hold.login == login and hold.until is None for hold in store.holds()):
            store.lift(login)
    elif outcome.of_login and outcome.kind == "permanent":
        store.hold(login, None, outcome.message)
    elif outcome.of_login and outcome.retry_after_s is not None:
        store.hold(login, run.clock.now() + timedelta(seconds=outcome.retry_after_s), outcome.message)
