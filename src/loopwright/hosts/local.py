"""Runs on this machine, in this process: take the run, drive it, give it back.

Rules. Nothing is created before the loop is known to be startable. A run is taken by its lease, its
workspace's lock and a `Claimed` commit, in this order; the journal is the fence. The environment
is read by the caller and passed down.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from loopwright import traces
from loopwright.assembled import Assembled, assemble
from loopwright.clock import Clock
from loopwright.core import events as ev
from loopwright.core.limits import in_force
from loopwright.core.policy import Ask, Command, Deliver, RunAgent, RunGates, Wait
from loopwright.drive import Waiting, drive
from loopwright.errors import Locked, UsageError
from loopwright.hosts import apart, deliver, environment, opening, sandbox, take
from loopwright.hosts.mend import handed_over, mend
from loopwright.hosts.ways import STATE, Held, Ways, silent
from loopwright.journal import Journal
from loopwright.loop import Loop
from loopwright.mending import mended
from loopwright.ports import Lease
from loopwright.prompting import notes_file, payload_file, renderer
from loopwright.running import Run
from loopwright.state_folder import create_state
from loopwright.stores.opened import open_store, owner, store_exists, store_path
from loopwright.supervise import child_environment
from loopwright.workspace import copies
from loopwright.workspace.opened import Workspace, shown

LEASE_S: Final = 30.0
_IDLE: Final[tuple[type[Command], ...]] = (RunAgent, RunGates, Wait)  # what starts or waits for something
_REHEARSED: Final[tuple[type[Command], ...]] = (RunAgent, Ask, Deliver, Wait)  # iteration 0 and no more


async def start(loop: Loop | Assembled, run: str | None, ways: Ways) -> Held:
    """Runs `loop` under this id (made up when `None`) until it is over or waits; the same id again goes on.

    Who starts many runs of one loop assembles it once.

    `ConfigError` when it cannot be started (nothing is created), `UsageError` when the id stands for
    another loop, `Locked` when another runner has it.
    """
    said = loop if isinstance(loop, Loop) else loop.loop
    name = take.made_id(said.name) if run is None else take.check_id(run)
    take.check_folder(ways.project)
    assembled = (
        assemble(loop, project=ways.project, path=ways.environ.get("PATH", ""))
        if isinstance(loop, Loop)
        else loop
    )
    assembled = environment.without_secrets(assembled, ways)
    with ExitStack() as stack:
        journal = _journal(name, ways, stack) if _store_exists(ways) else None
        if journal is not None and journal.exists:
            return await _again(journal, assembled, ways, stack)
        apart.check(assembled, ways)
        sandbox.check(assembled, ways)
        # In a folder apart, setup may bring the tools: there they are looked for once it is made.
        programs = [] if apart.is_apart(assembled.mode) else environment.probe(assembled, ways)
        kept = assembled.mode != "none" or ways.store is None or assembled.agent.in_folder
        if kept or assembled.loop.notes:
            create_state(ways.state)
        journal = journal or _journal(name, ways, stack)
        begun = ev.RunStarted(
            run=name,
            spec=assembled.loop.spec(),
            digest=assembled.loop.digest(),
            workspace=None if assembled.mode == "none" else str(ways.project),
            labels={**assembled.loop.labels, **traces.inherited(ways.environ)},
            origin=ways.origin,
        )
        return await _hold(journal, assembled, ways, stack, begun, programs=programs)


async def resume(run: str, ways: Ways, *, idle: bool = False) -> Held:
    """Goes on with a run on record, under the loop it was started with; a finished good one is only shown.

    `idle`: it is only made ready to go on, for a host that takes it up.
    """
    with ExitStack() as stack:
        journal = _journal(run, ways, stack)
        state = journal.state
        if not journal.exists:
            raise UsageError(f"there is no run {run} here; loopwright list --all shows what there is")
        if state.finished is not None and state.finished.phase == "complete":
            if ways.add:
                last = state.iteration
                raise UsageError(
                    f"run {run} is complete and is never reopened; loopwright fork {run} --from {last} goes on from there"
                )
            return Held(state=state)
        assembled = _recorded(journal, ways)
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
        programs = None if idle else _programs(run, assembled, ways)
        return await _hold(journal, assembled, ways, stack, *wanted, programs=programs)


async def take_up(run: str, ways: Ways) -> Held:
    """Goes on with a run on record as it stands, and reopens nothing: what a host does with runs that nobody drives."""
    with ExitStack() as stack:
        journal = _journal(run, ways, stack)
        if journal.state.finished is not None:
            return Held(state=journal.state)
        assembled = _recorded(journal, ways)
        return await _hold(journal, assembled, ways, stack, programs=_programs(run, assembled, ways))


async def settle(run: str, ways: Ways) -> Held:
    """Takes in what others asked of a run that nobody drives, as far as that needs no agent or gate.

    `Locked` while somebody does: they will take it in themselves.
    """
    with ExitStack() as stack:
        journal = _journal(run, ways, stack)
        if journal.state.finished is not None:
            return Held(state=journal.state)
        assembled = _recorded(journal, ways)
        held = await _hold(journal, assembled, ways, stack)
        if journal.state.finished is None and journal.state.pause == "later" and not journal.state.paused:
            # nobody works on the iteration it was to wait for
            journal.record(Clock().now(), ev.PauseRequested(now=True, by=ways.by))
            journal.flush()
            held = Held(state=journal.state, waiting=held.waiting)
        return held


def _recorded(journal: Journal, ways: Ways) -> Assembled:
    """The loop that a run was started with."""
    loop = Loop.from_spec(journal.state.spec)
    return assemble(loop, project=ways.project, path=ways.environ.get("PATH", ""))


async def _again(journal: Journal, assembled: Assembled, ways: Ways, stack: ExitStack) -> Held:
    """The same id once more: a finished run is shown, an active one goes on."""
    state, loop = journal.state, assembled.loop
    another = loop.digest() != state.digest
    if another and state.finished is not None:
        ways.tell(take.differences(journal.run, state.spec, loop.spec(), over=True))
    if state.finished is not None:
        return Held(state=state)
    if another and not ways.accept_changes:
        raise UsageError(take.differences(journal.run, state.spec, loop.spec()))
    wanted: list[ev.Event] = []
    take.check_mode(journal.run, state.spec, loop.spec())
    if loop.spec() != state.spec:
        wanted.append(ev.PolicyChanged(spec=loop.spec(), digest=loop.digest()))
        if anew := take.set_anew(state, loop.spec()):
            wanted.append(ev.LimitsChanged(limits=anew, by=ways.by))
    if state.paused or state.pause or state.expired:
        wanted.append(ev.Resumed(by=ways.by))
    programs = _programs(journal.run, assembled, ways)
    return await _hold(journal, assembled, ways, stack, *wanted, programs=programs)


def _programs(run: str, assembled: Assembled, ways: Ways) -> list[str]:
    """What agent and gates of a run on record will run as; of one whose copy is gone, once it is made again."""
    sandbox.check(assembled, ways)
    if not apart.is_apart(assembled.mode):
        return environment.probe(assembled, ways)
    copy = copies.find(ways.project / STATE, run)
    return [] if copy is None else environment.probe(assembled, ways, copy.root)


async def _hold(
    journal: Journal,
    assembled: Assembled,
    ways: Ways,
    stack: ExitStack,
    *wanted: ev.Event,
    programs: list[str] | None = None,
) -> Held:
    """Takes the run, drives it, and gives it back. Without `programs`, what runs as what, it starts none."""
    journal.redact = environment.redacting(assembled, ways)
    run, told = await _taken(journal, assembled, ways, stack, wanted, idle=programs is None)
    ways.signals(run)
    if programs is not None:
        _tell_opening(
            run, assembled, ways, programs or environment.probe(assembled, ways, run.workspace.root)
        )
        for line in told:
            ways.tell(f"  {line}")
    now = journal.state
    rested = now.paused or now.approval is not None or any(isinstance(e, ev.Resumed) for e in wanted)
    await mend(run, ways, environment.marks(journal.run, run.workspace.root), rested=rested)
    try:
        stops = _REHEARSED if ways.scratch is not None else ()
        over = await drive(run, before=_IDLE if programs is None else stops)
    except asyncio.CancelledError:
        handed_over(run)
        raise
    return Held(state=journal.state, waiting=over if isinstance(over, Waiting) else None)


async def _taken(
    journal: Journal,
    assembled: Assembled,
    ways: Ways,
    stack: ExitStack,
    wanted: tuple[ev.Event, ...],
    *,
    idle: bool,
) -> tuple[Run, list[str]]:
    """The run, ours: leased, its workspace locked, and claimed in its journal; and what is new of its folder."""
    me, clock = owner(), Clock()
    watched = environment.watched(assembled, ways)
    lease = journal.store.lease(journal.run, me, LEASE_S)
    if lease is None:
        journal.catch_up()
        raise Locked(take.in_use(journal.run, journal.state.claim))
    stack.callback(lease.release)
    workspace, told = await apart.enter(journal, assembled, ways, stack, (lease, LEASE_S), me, idle=idle)
    seen = journal.n
    journal.catch_up()
    if wanted and journal.n != seen:  # what is wanted was made of what stood there before
        raise Locked(f"run {journal.run} was driven by another process meanwhile: say it again")
    clock.after(journal.state.updated_at)
    clock.after(ways.since)
    begun = [e for e in wanted if isinstance(e, ev.RunStarted)]
    if begun and workspace.watched:
        workspace.look()  # what cannot be snapshotted is said before the run is on record
    journal.record(clock.now(), *begun)
    epoch = (journal.state.claim.epoch if journal.state.claim else 0) + 1
    host, boot = me.split("@")[1:3]
    found = take.outputs_of(workspace.root) if workspace.mode != "none" else ()
    outputs = tuple(shown(str(path)) for path in found)
    claimed = ev.Claimed(epoch=epoch, owner=me, host=host, boot=boot, outputs=outputs)
    journal.claim(claimed, clock.now())
    journal.record(clock.now(), *(e for e in wanted if not isinstance(e, ev.RunStarted)))
    await journal.save()
    return _opened(journal, assembled, ways, workspace, clock, lease, watched), told


def _opened(
    journal: Journal,
    assembled: Assembled,
    ways: Ways,
    workspace: Workspace,
    clock: Clock,
    lease: Lease,
    watched: tuple[Path, ...],
) -> Run:
    """The run as it is driven: who performs what, where, and who is told."""
    root, artifacts = workspace.root, ways.state / "artifacts" / journal.run
    payload = payload_file(artifacts)
    copy = apart.copy_of(journal.run, assembled, ways)
    run = Run(
        journal=journal,
        policy=assembled.policy,
        agent=assembled.agent,
        improve=assembled.improve,
        gates={gate.name: gate for gate in assembled.gates},
        workspace=workspace,
        project=environment.tools(root, ways),
        artifacts=artifacts,
        env=environment.environment(journal.run, ways, allow=assembled.loop.env, root=root),
        keys={name: ways.environ[name] for name in environment.allowed(assembled) if name in ways.environ},
        clock=clock,
        lease=lease,
        lease_s=LEASE_S,
        watched=watched,
        dice=random.random,
        hear=ways.hear,
        begin=ways.begin,
        tell=ways.tell,
        template=assembled.loop.prompt,
        notes=assembled.loop.notes,
        payload=payload,
        on_tamper=assembled.loop.on_tamper,
        patience_s=ways.patience_s,
        holds=ways.holds,
        waits=ways.wait,
        person=ways.person,
        sandbox=sandbox.wrapping(assembled.loop, ways, root, copy, payload),
    )
    run.render = renderer(run)
    run.deliver = lambda asked: deliver.at_the_end(run, ways, asked)
    return run


def _tell_opening(run: Run, assembled: Assembled, ways: Ways, programs: list[str]) -> None:
    """Says what begins here, before anything runs."""
    state = run.journal.state
    if state.finished is not None or ways.tell is silent or ways.narrow or ways.scratch is not None:
        return
    told = opening.lines(
        run.journal.run,
        place=run.workspace.root,
        mode=assembled.mode,
        programs=(*programs, *sandbox.lines(assembled.loop, ways)),
        limits=in_force(assembled.policy.limits, state),
        withheld=child_environment(ways.environ, allow=environment.allowed(assembled))[1],
    )
    asked = opening.asked_with(assembled.loop, notes_file(run))
    for line in (*told, *asked, *environment.written_secrets(assembled.loop, run.journal.redact)):
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
    journal = Journal(store, run, observe=ways.observe, together=ways.together)
    if journal.exists:
        for line in mended(store, run):
            ways.tell(line)
    take.check_place(run, journal.state, ways.project)
    journal.follow = tuple(make(journal) for make in ways.follow)
    return journal
