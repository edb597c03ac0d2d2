"""Listen, decide, perform, record, until the run ends or must wait. The only loop in loopwright.

Rules. Nothing is decided here: `decide` names the command, this performs it and records the facts
that come of it. What must be on record before an effect is flushed before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar, assert_never

from loopwright import perform, scoring, standing
from loopwright.beat import beat_of
from loopwright.codec import decode_signal, encode_signal
from loopwright.core import events as ev
from loopwright.core.decide import decide
from loopwright.core.policy import (
    Ask,
    Close,
    Command,
    Deliver,
    Expire,
    Finish,
    Judge,
    RunAgent,
    RunGates,
    Wait,
)
from loopwright.errors import Locked
from loopwright.ports import Store
from loopwright.running import Cut, Run

_AFTER: Final = (ev.NoteAdded, ev.LimitsChanged, ev.Noticed)  # signals that count when the run has ended
POLL_S: Final = 0.2  # how soon a signal is noticed while an agent works
BREATH_S: Final = 0.02  # how long the event loop may be kept from others
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The run is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Nothing to do before `until` (`None`: before a person acts); `what` is waited for."""

    until: datetime | None
    what: str


async def drive(run: Run, *, before: tuple[type[Command], ...] = ()) -> Finished | Waiting:
    """Performs one command after another until the run is over, or only time or a person can help.

    It also stops `before` any command of these kinds.
    """
    watch = _Watch(run)
    try:
        return await _driven(run, watch, before)
    finally:
        watch.over()


async def _driven(run: Run, watch: _Watch, before: tuple[type[Command], ...]) -> Finished | Waiting:
    journal, policy = run.journal, run.policy
    listening, now = True, run.clock.now()
    while journal.state.finished is None:
        if listening:  # facts recorded without waiting for anything leave others no time to say something
            if watch.breathless:
                await watch.breathe()
            listen(run)
            if journal.state.evidence is not None or journal.state.tampered is not None:
                await standing.follow(run)
            if run.leaving.is_set():
                await journal.save()
                return Waiting(until=None, what="this host is shutting down")
            now = run.clock.now()
        command = decide(policy, journal.state, now)
        if isinstance(command, before):
            await journal.save()
            return Waiting(until=None, what="to be resumed")
        listening = not isinstance(command, Judge | Close)
        match command:
            case RunAgent():
                await perform.attempt(run, command, watch.watched)
            case RunGates():
                await scoring.gates(run, command, watch.watched)
            case Judge(verdict=verdict, alerts=alerts):
                journal.record(now, ev.Judged(verdict=verdict), *alerts)
            case Close(outcome="accepted") if journal.state.answer is not None and await standing.moved(run):
                run.tell("the files changed since a person was asked: that answer is not for this work")
            case Close(outcome=outcome, alerts=alerts):
                journal.record(now, *alerts, ev.IterationClosed(outcome=outcome))
            case Ask(request=request) if request.about == "accept" and await standing.moved(run):
                pass  # a person is shown what was judged: the gates judge again first
            case Ask(request=request):
                journal.record(now, request)
                await journal.save()
            case Expire(id=id_):
                expire(journal.store, journal.run, id_, now)
            case Deliver():
                await journal.save()
                journal.record(now, await asyncio.to_thread(run.deliver, command))
            case Finish(finished=finished):
                journal.record(now, finished)
                await journal.save()
            case Wait():
                if (rest := await _rested(run, command, now)) is not None:
                    return rest
            case _:
                assert_never(command)
    listen(run)  # a stop that came with the end must not end the run when it is reopened
    await journal.save()
    return Finished()


async def _rested(run: Run, command: Wait, now: datetime) -> Waiting | None:
    """Waits a moment, of the wait that is asked for; or says that somebody else must see to it."""
    journal, until = run.journal, command.until
    if command.seconds is not None and until is not None:
        journal.record(now, ev.WaitStarted(until=until, seconds=command.seconds, why=command.why))
    await journal.save()
    asked = journal.state.approval is not None
    resting = journal.state.paused or journal.state.pause is not None
    if (asked or until is None) and not (asked and run.waits and not resting):
        return Waiting(until=until, what=command.why)
    if until is not None and not asked and (until - now).total_seconds() > run.patience_s:
        return Waiting(until=until, what=command.why)
    if asked:
        run.person(run)
    keep_lease(run)
    left = POLL_S if until is None else (until - now).total_seconds()
    await run.clock.sleep(min(POLL_S, max(0.0, left)))
    return None


def expire(store: Store, run: str, request: str, now: datetime) -> None:
    """Writes that nobody answered in time under the key of the answer, unless one stands there."""
    expired = ev.ApprovalDecided(id=request, answer="expired", by="time", channel="host")
    store.signal(run, f"decision/{request}", encode_signal(expired, now))


def listen(run: Run) -> None:
    """Takes the signals others left: each becomes the fact it asks for, once."""
    journal = run.journal
    waiting = journal.store.signals(journal.run)
    if not waiting:
        return
    taken = []
    for key, record in waiting:
        event = decode_signal(journal.run, key, record)
        taken.append(key)
        if isinstance(event, ev.ApprovalDecided):
            if journal.state.approval is None or journal.state.approval.id != event.id:
                if f"decision/{event.id}" not in journal.state.signals:
                    journal.record(run.clock.now(), _unheard(event))
                continue  # its request is no longer open
        elif journal.state.finished is not None and not isinstance(event, _AFTER):
            continue
        journal.record(run.clock.now(), event)
    journal.flush()
    journal.store.settle(journal.run, taken)


def _unheard(late: ev.ApprovalDecided) -> ev.Noticed:
    """The record of an answer whose question was withdrawn meanwhile, by a stop or because the work moved."""
    return ev.Noticed(
        approval=late.id,
        channel=late.channel,
        problem=f"{late.answer} by {late.by} came after the question was withdrawn",
    )


class _Watch:
    """Looks every `POLL_S` whether the work that the driving task awaits must be cut, and then cancels the task.

    By the beat that all runs share, not by a second task: work that is over at once costs no turn of the event loop.
    """

    __slots__ = ("_beat", "_began", "_breath", "_cut", "_error", "_loop", "_run", "_task", "_working")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._beat = beat_of(self._loop)
        self._beat.join(self, self._look)
        self._working = False
        self._began = 0.0  # when the work under way did
        self._cut: Cut | None = None
        self._error: BaseException | None = None
        self._breath = self._loop.time()

    def _look(self) -> None:
        if not self._working or self._cut or self._error or self._loop.time() - self._began < POLL_S:
            return
        try:
            self._cut = _interruption(self._run)
        except BaseException as error:  # noqa: BLE001 - raised where the work is awaited
            self._error = error
        if self._task is not None and (self._cut or self._error):
            self._task.cancel()

    def over(self) -> None:
        """Looks no more."""
        self._beat.leave(self)

    @property
    def breathless(self) -> bool:
        """Whether the event loop was kept from others for long."""
        return self._loop.time() - self._breath > BREATH_S

    async def breathe(self) -> None:
        """Gives the event loop a turn, and keeps the lease, where nothing ever waits."""
        self._breath = self._loop.time()
        keep_lease(self._run)
        for _ in range(3):  # a timer that is due needs a turn to say so, and others to be heard
            await asyncio.sleep(0)

    async def watched(self, work: Awaitable[T]) -> T | Cut:
        """The result of `work`, or why it was cut: a stop or pause now, a lost lease, a shutdown."""
        self._working, self._began = True, self._loop.time()
        try:
            result = await work
            if not (self._cut or self._error):
                return result
        except asyncio.CancelledError:
            if not (self._cut or self._error):
                raise
        finally:
            self._working = False
            if self._loop.time() - self._began > BREATH_S:  # work that takes time leaves others theirs
                self._breath = self._loop.time()
        cut, error = self._cut, self._error
        self._cut = self._error = None
        if self._task is not None and self._task.uncancel() > 0:
            raise asyncio.CancelledError  # somebody else wants the task to end
        if error is not None:
            raise error
        assert cut is not None
        return cut


def _interruption(run: Run) -> Cut | None:
    """Why the work under way must be cut, if it must; keeps the lease meanwhile."""
    journal = run.journal
    if run.leaving.is_set():
        return Cut("handover")
    listen(run)
    journal.flush()  # what waited for company while a gate works has waited long enough
    if journal.state.stop == "now":
        return Cut("stop")
    if journal.state.paused:
        return Cut("pause")
    keep_lease(run)
    return None


def keep_lease(run: Run) -> None:
    """Renews the lease when a third of it is over; `Locked` when another runner has the run."""
    if run.lease is not None and run.clock.monotonic() - run.renewed > run.lease_s / 3:
        run.renewed = run.clock.monotonic()
        if not run.lease.renew():
            raise Locked(f"run {run.journal.run} was taken over by another runner; this one stops")
