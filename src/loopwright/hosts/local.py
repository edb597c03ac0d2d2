"""Runs on this machine, in this process: take the run, drive it, give it back.

Rules. Nothing is created before the loop is known to be startable. A run is taken by its lease, its
workspace's lock and a `Claimed` commit, in this order; the journal is the fence. The environment
is read by the caller and passed down.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack
from typing import Final

from loopwright.clock import Clock
from loopwright.core import events as ev
from loopwright.core.limits import in_force
from loopwright.drive import Waiting, drive
from loopwright.errors import Locked, UsageError
from loopwright.hosts import environment, opening, take
from loopwright.hosts.mend import handed_over, mend
from loopwright.hosts.ways import STATE, Held, Ways
from loopwright.journal import Journal
from loopwright.loop import Assembled, Loop, assemble
from loopwright.mending import mended
from loopwright.perform import Run
from loopwright.stores.opened import open_store, owner, store_exists, store_path
from loopwright.supervise import child_environment
from loopwright.workspace.lock import create_state, lock
from loopwright.workspace.opened import open_workspace, shown

LEASE_S: Final = 30.0


async def start(loop: Loop, run: str | None, ways: Ways) -> Held:
    """Runs `loop` under this id (made up when `None`) until it is over or waits; the same id again goes on.

    `ConfigError` when it cannot be started (nothing is created), `UsageError` when the id stands for
    another loop, `Locked` when another runner has it.
    """
    name = take.made_id(loop.name) if run is None else take.check_id(run)
    take.check_folder(ways.project)
    assembled = assemble(loop, project=ways.project, path=ways.environ.get("PATH", ""))
    with ExitStack() as stack:
        journal = _journal(name, ways, stack) if _store_exists(ways) else None
        if journal is not None and journal.exists:
            return await _again(journal, assembled, ways, stack)
        programs = environment.probe(assembled, ways)
        if assembled.mode != "none" or ways.store is None or assembled.agent.in_folder:
            create_state(ways.project / STATE)
        journal = journal or _journal(name, ways, stack)
        begun = ev.RunStarted(
            run=name,
            spec=assembled.loop.spec(),
            digest=assembled.loop.digest(),
            workspace=None if assembled.mode == "none" else str(ways.project),
            labels=assembled.loop.labels,
            origin=ways.origin,
        )
        return await _hold(journal, assembled, ways, stack, begun, programs=programs)


async def resume(run: str, ways: Ways) -> Held:
    """Goes on with a run on record, under the loop it was started with; a finished good one is only shown."""
    with ExitStack() as stack:
        journal = _journal(run, ways, stack)
        state = journal.state
        if not journal.exists:
            raise UsageError(f"there is no run {run} here; loopwright list --all shows what there is")
        if state.finished is not None and state.finished.phase == "complete":
            if ways.add:
                raise UsageError(f"run {run} is complete and is never reopened; start a new run instead")
            return Held(state=state)
        loop = Loop.from_spec(state.spec)
        assembled = assemble(loop, project=ways.project, path=ways.environ.get("PATH", ""))
        new = take.raised(state, assembled.policy.limits, ways.add)
        wanted: list[ev.Event] = []
        if new:
            wanted.append(ev.LimitsChanged(limits=new, by=ways.by))
        if ways.note:
            wanted.append(ev.NoteAdded(text=ways.note, by=ways.by))
        if state.finished is not None:
            wanted.append(ev.RunReopened(by=ways.by))
            take.check_reopen(state, assembled.policy.limits, wanted)
        elif state.paused or state.pause or state.expired:
            wanted.append(ev.Resumed(by=ways.by))
        return await _hold(
            journal, assembled, ways, stack, *wanted, programs=environment.probe(assembled, ways)
        )


async def settle(run: str, ways: Ways) -> Held:
    """Takes in what others asked of a run that nobody drives, as far as that needs no agent or gate.

    `Locked` while somebody does: they will take it in themselves.
    """
    with ExitStack() as stack:
        journal = _journal(run, ways, stack)
        if journal.state.finished is not None:
            return Held(state=journal.state)
        loop = Loop.from_spec(journal.state.spec)
        assembled = assemble(loop, project=ways.project, path=ways.environ.get("PATH", ""))
        held = await _hold(journal, assembled, ways, stack)
        if journal.state.finished is None and journal.state.pause == "later" and not journal.state.paused:
            # nobody works on the iteration it was to wait for
            journal.record(Clock().now(), ev.PauseRequested(now=True, by=ways.by))
            journal.flush()
            held = Held(state=journal.state, waiting=held.waiting)
        return held


async def _again(journal: Journal, assembled: Assembled, ways: Ways, stack: ExitStack) -> Held:
    """The same id once more: a finished run is shown, an active one goes on."""
    state, loop = journal.state, assembled.loop
    if state.finished is not None:
        return Held(state=state)
    wanted: list[ev.Event] = []
    if loop.digest() != state.digest and not ways.accept_changes:
        raise UsageError(take.differences(journal.run, state.spec, loop.spec()))
    if loop.spec() != state.spec:
        wanted.append(ev.PolicyChanged(spec=loop.spec(), digest=loop.digest()))
        if anew := take.set_anew(state, loop.spec()):
            wanted.append(ev.LimitsChanged(limits=anew, by=ways.by))
    if state.paused or state.pause or state.expired:
        wanted.append(ev.Resumed(by=ways.by))
    return await _hold(journal, assembled, ways, stack, *wanted, programs=environment.probe(assembled, ways))


async def _hold(
    journal: Journal,
    assembled: Assembled,
    ways: Ways,
    stack: ExitStack,
    *wanted: ev.Event,
    programs: list[str] | None = None,
) -> Held:
    """Takes the run, drives it, and gives it back. Without `programs`, what runs as what, it starts none."""
    run = _taken(journal, assembled, ways, stack, wanted)
    ways.signals(run)
    if programs is not None:
        _tell_opening(run, assembled, ways, programs)
    now = journal.state
    rested = now.paused or now.approval is not None or any(isinstance(e, ev.Resumed) for e in wanted)
    await mend(run, ways, environment.marks(journal.run, ways), rested=rested)
    try:
        over = await drive(run, effects=programs is not None)
    except asyncio.CancelledError:
        handed_over(run)
        raise
    return Held(state=journal.state, waiting=over if isinstance(over, Waiting) else None)


def _taken(
    journal: Journal, assembled: Assembled, ways: Ways, stack: ExitStack, wanted: tuple[ev.Event, ...]
) -> Run:
    """The run, ours: leased, its workspace locked, and claimed in its journal."""
    me, clock = owner(), Clock()
    watched = environment.watched(assembled, ways)
    lease = journal.store.lease(journal.run, me, LEASE_S)
    if lease is None:
        journal.catch_up()
        raise Locked(take.in_use(journal.run, journal.state.claim))
    stack.callback(lease.release)
    state_dir = ways.project / STATE
    if assembled.mode != "none":
        stack.enter_context(lock(ways.project, state_dir, journal.run, me))
    outputs = take.outputs_of(ways.project)
    workspace = open_workspace(
        assembled.mode,
        ways.project,
        state_dir,
        journal.run,
        protected=assembled.loop.protected,
        outputs=outputs,
    )
    seen = journal.n
    journal.catch_up()
    if wanted and journal.n != seen:  # what is wanted was made of what stood there before
        raise Locked(f"run {journal.run} was driven by another process meanwhile: say it again")
    clock.after(journal.state.updated_at)
    begun = [e for e in wanted if isinstance(e, ev.RunStarted)]
    if begun and workspace.watched:
        workspace.look()  # what cannot be snapshotted is said before the run is on record
    journal.record(clock.now(), *begun)
    epoch = (journal.state.claim.epoch if journal.state.claim else 0) + 1
    host, boot = me.split("@")[1:3]
    claimed = ev.Claimed(
        epoch=epoch, owner=me, host=host, boot=boot, outputs=tuple(shown(str(p)) for p in outputs)
    )
    journal.claim(claimed, clock.now())
    journal.record(clock.now(), *(e for e in wanted if not isinstance(e, ev.RunStarted)))
    journal.flush()
    return Run(
        journal=journal,
        policy=assembled.policy,
        agent=assembled.agent,
        improve=assembled.improve,
        gates={gate.name: gate for gate in assembled.gates},
        workspace=workspace,
        project=ways.project,
        artifacts=state_dir / "artifacts" / journal.run,
        env=environment.environment(journal.run, ways, allow=assembled.loop.env),
        keys={name: ways.environ[name] for name in environment.allowed(assembled) if name in ways.environ},
        clock=clock,
        lease=lease,
        lease_s=LEASE_S,
        watched=watched,
        dice=random.random,
        hear=ways.hear,
        begin=ways.begin,
        tell=ways.tell,
    )


def _tell_opening(run: Run, assembled: Assembled, ways: Ways, programs: list[str]) -> None:
    """Says what begins here, before anything runs."""
    state = run.journal.state
    if state.finished is not None:
        return
    told = opening.lines(
        run.journal.run,
        place=ways.project,
        mode=assembled.mode,
        programs=programs,
        limits=in_force(assembled.policy.limits, state),
        withheld=child_environment(ways.environ, allow=environment.allowed(assembled))[1],
    )
    for line in told:
        ways.tell(line)


def _store_exists(ways: Ways) -> bool:
    if ways.store is not None and not isinstance(ways.store, str):
        return True
    path = store_path(ways.store, ways.project)
    return path is not None and store_exists(path)


def _journal(run: str, ways: Ways, stack: ExitStack) -> Journal:
    store = ways.store
    if store is None or isinstance(store, str):
        store = open_store(store, ways.project)
        stack.callback(store.close)
    journal = Journal(store, run, observe=ways.observe)
    if journal.exists:
        for line in mended(store, run):
            ways.tell(line)
    take.check_place(run, journal.state, ways.project)
    return journal
