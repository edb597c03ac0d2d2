"""The login that an agent uses, which other runs use as well: what one of them found out, the others need not try.

Rule: a hold is a hint that saves a call, never the truth. A limit holds till its reset; a lost login holds the runs
that were under way when it was lost, and whoever starts one after that tries anew. So does one that could not wait for
the reset: it has nothing to lose. Times here are of the wall clock, which all runs share.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from loopwright import ledger
from loopwright.core.limits import in_force
from loopwright.core.values import NO_USAGE, Failed, Worked
from loopwright.ports import Agent, Place
from loopwright.running import Cut, Run

AGAIN_S: Final = 900.0  # a host that waits for a lost login tries it so often
STAGGER_S: Final = 60.0  # at most: those that wait for the same reset come back one after another


def held(run: Run, agent: Agent, place: Place) -> Failed | None:
    """What an attempt would come to that is not made, because another run found out; `None` where it may be made."""
    store = run.journal.store
    if agent.login is None or not ledger.kept(store):
        return None
    login, now = agent.login(place), datetime.now(UTC)
    hold = next((hold for hold in store.holds() if hold.login == login), None)
    if hold is None:
        return None
    anew = hold.since < run.taken or hold.since > now  # a clock that was wrong must not hold anybody for ever
    why = f"{hold.why} (so another run of this login found)"
    if hold.until is None:
        lost = Failed(kind="permanent", message=why, usage=NO_USAGE, of_login=True)
        return None if anew else lost
    left, state = (hold.until - now).total_seconds(), run.journal.state
    rest = in_force(run.policy.limits, state).max_wait - state.totals.waited_s
    if left <= 0 or (anew and left > rest):
        return None
    later = min(STAGGER_S, left, max(0.0, rest - left)) * run.dice()  # for seconds nobody waits a minute
    return Failed(kind="rate_limited", message=why, retry_after_s=left + later, usage=NO_USAGE)


def waited_for(run: Run, outcome: Worked | Failed | Cut) -> Worked | Failed | Cut:
    """The outcome as it goes on record: where somebody may mend a lost login meanwhile, it is waited for."""
    if isinstance(outcome, Failed) and outcome.of_login and outcome.kind == "permanent" and run.holds:
        return replace(outcome, kind="rate_limited", retry_after_s=AGAIN_S)
    return outcome


def learnt(run: Run, agent: Agent, place: Place, outcome: Worked | Failed) -> None:
    """Tells the other runs of this login what an attempt found out about it."""
    store = run.journal.store
    if agent.login is None or not ledger.kept(store):
        return
    login = agent.login(place)
    if isinstance(outcome, Worked):
        began = datetime.now(UTC) - timedelta(seconds=run.clock.monotonic() - run.began)
        if any(hold.login == login and hold.since < began for hold in store.holds()):  # then it is not so
            store.lift(login)
    elif outcome.of_login and outcome.kind == "permanent":
        store.hold(login, None, outcome.message)
    elif outcome.of_login and outcome.retry_after_s is not None:
        until = datetime.now(UTC) + timedelta(seconds=outcome.retry_after_s)
        store.hold(login, until, outcome.message)
