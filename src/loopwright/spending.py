"""What attempts and gates cost, in the ledger of their day, which all runs of a store share.

Rule: with a budget for the day, what an attempt may cost is set aside before it begins, and an attempt that there is
no money for does not begin. What nobody knows stays set aside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from loopwright import ledger
from loopwright.core import events as ev
from loopwright.core.judge import ROUNDING
from loopwright.core.values import NO_USAGE, Attempt, Failed, Usage
from loopwright.errors import ConfigError
from loopwright.running import Run

OTHERS_S: Final = 30.0  # before it is asked again whether others need what they have set aside


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """What is set aside for an attempt, as what it is booked, and what the day leaves it at most."""

    booking: str
    usd: float
    most_usd: float


def set_aside(run: Run, asked: Attempt, cap_usd: float) -> Aside | ev.DaySpent | Failed:
    """What is set aside of the day's money; or that the day has none left; or that others may still need the rest."""
    store, now, need = run.journal.store, run.clock.now(), asked.reserve_usd
    if not ledger.kept(store):
        raise ConfigError(
            "limits.budget_per_day needs a store that keeps ledgers: sqlite:///PATH or files:DIR"
        )
    day = ledger.today(now)
    booking = ledger.booking(now, _key(run, asked.iteration, asked.number))
    mine = ledger.standing(store, booking)  # by a runner that was killed before it could begin
    spent, reserved = ledger.spent(store, day)
    reserved -= mine or 0.0
    if spent >= cap_usd or spent + (need or 0.0) > cap_usd + ROUNDING:
        return ev.DaySpent(day=day, cost_usd=spent)
    room = cap_usd - spent - reserved
    left = asked.left.budget_usd
    usd = need if need is not None else room if left is None else min(room, left)
    if mine == 0 or room <= 0 or usd > room + ROUNDING:
        return _others(run, reserved)
    if mine is not None:
        return Aside(booking=booking, usd=mine, most_usd=room)
    if ledger.reserve(store, booking, usd) > cap_usd + ROUNDING:  # somebody was as quick
        ledger.settle(store, booking, 0.0)
        return _others(run, reserved)
    return Aside(booking=booking, usd=usd, most_usd=room)


def _key(run: Run, iteration: int, number: int) -> str:
    """An attempt's key, whoever runs it: the next run of this name, begun later, has other ones."""
    began = run.journal.state.started_at
    return f"{run.journal.run}/{began.isoformat() if began else ''}/{iteration}/{number}"


def _others(run: Run, reserved: float) -> Failed:
    why = f"${reserved:.2f} of what is left of today's budget are set aside for other attempts"
    return Failed(kind="rate_limited", message=why, retry_after_s=OTHERS_S * (1 + run.dice()), usage=NO_USAGE)


def settle(run: Run, started: ev.AttemptStarted, usage: Usage | None) -> None:
    """Puts what an attempt cost on the ledger of its day; of one that was cut off, what was set aside."""
    store = run.journal.store
    cost = started.reserve_usd if usage is None else usage.cost_usd
    if cost is None:
        cost = run.policy.limits.reserve
    if cost is None or not ledger.kept(store):
        return
    plan = usage is not None and usage.plan
    if started.booking is not None:
        ledger.settle(store, started.booking, cost, plan=plan)
    elif cost:
        key = _key(run, started.iteration, started.attempt)
        ledger.settle(store, ledger.booking(run.clock.now(), key), cost, plan=plan)


def gate_spent(run: Run, gate: str, usage: Usage) -> None:
    """Puts what a gate itself cost on the ledger of the day."""
    if usage.cost_usd and ledger.kept(run.journal.store):
        booking = ledger.booking(run.clock.now(), ledger.unique(f"{run.journal.run}/gate/{gate}"))
        ledger.settle(run.journal.store, booking, usage.cost_usd, plan=usage.plan)
