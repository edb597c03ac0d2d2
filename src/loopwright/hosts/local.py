"""Runs on this machine, in this process: take the run, drive it, give it back.

Rules. Nothing is created before the loop is known to be startable. A run is taken by its lease, its
workspace's lock and a `Claimed` commit, in this order; the journal is the fence. The environment
is read by the caller and passed down.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from loopwright.clock import Clock
from loopwright.core import events as ev
from loopwright.core.head import exit_code
from loopwright.core.limits import in_force
from loopwright.core.state import LoopState
from loopwright.drive import Waiting, drive
from loopwright.errors import ConfigError, Locked, NotStartable, UsageError
from loopwright.hosts import opening, take
from loopwright.journal import Journal
from loopwright.loop import Assembled, Loop, assemble
from loopwright.perform import UNSEEN, Run, look
from loopwright.ports import Observe, Place, Store
from loopwright.stores.opened import open_store, owner, store_exists, store_path
from loopwright.supervise import child_environment, sweep, tool_path
from loopwright.workspace.lock import create_state, lock
from loopwright.workspace.opened import open_workspace, shown
from loopwright.workspace.watch import roots

LEASE_S: Final = 30.0
STATE: Final = ".agent-state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How a host goes about a run: where, with what environment, who watches, what is asked of it."""

    project: Path
    store: Store | str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    observe: tuple[Observe, ...] = ()
    hear: Callable[[bytes], None] | None = None
    begin: Callable[[str], None] = lambda _: None
    tell: Callable[[str], None] = lambda _: None  # a line of news for the person who started it
    signals: Callable[[Run], None] = lambda _: None  # connects Ctrl-C and TERM to the open run
    accept_changes: bool = False
    origin: str = "hand"
    by: str = ""
    note: str | None = None
    add: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What came of it: the state, and what is waited for when the run is not over."""

    state: LoopState
    waiting: Waiting | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of DESIGN §11; 6 while something is waited for."""
        code = exit_code(self.state)
        return 6 if code is None else code


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
        programs = probe(assembled, ways)
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
        return await _hold(journal, assembled, ways, stack, *wanted, programs=probe(assembled, ways))


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
    return await _hold(journal, assembled, ways, stack, *wanted, programs=probe(assembled, ways))


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
    await _mend(run, ways, rested=rested)
    try:
        over = await drive(run, effects=programs is not None)
    except asyncio.CancelledError:
        _handed_over(run)
        raise
    return Held(state=journal.state, waiting=over if isinstance(over, Waiting) else None)


def _taken(
    journal: Journal, assembled: Assembled, ways: Ways, stack: ExitStack, wanted: tuple[ev.Event, ...]
) -> Run:
    """The run, ours: leased, its workspace locked, and claimed in its journal."""
    me, clock = owner(), Clock()
    watched = _watched(assembled, ways)
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
        env=_environment(journal.run, ways, allow=assembled.loop.env),
        keys={name: ways.environ[name] for name in _allowed(assembled) if name in ways.environ},
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
        withheld=child_environment(ways.environ, allow=_allowed(assembled))[1],
    )
    for line in told:
        ways.tell(line)


async def _mend(run: Run, ways: Ways, *, rested: bool) -> None:
    """What a crash left: the old tree is ended, the present state kept, the attempt recorded as interrupted.

    Unless the run rested (paused, a person asked), what became of protected files in an iteration is nobody's edit.
    """
    journal, workspace = run.journal, run.workspace
    state = journal.state
    workspace.remember(state.evidence)
    if workspace.problem:
        ways.tell(f"no snapshots: {workspace.problem}")
    taken_over = state.claim is not None and state.claim.epoch > 1  # a new run has left nothing behind
    left = await asyncio.to_thread(sweep, _mark(journal.run, ways)) if taken_over else 0
    if left:
        ways.tell(f"ended {left} processes that an earlier runner left behind")
    it = state.current
    if it is None or (it.open is None and rested):
        return
    touched = await asyncio.to_thread(workspace.touched)
    if touched:
        await look(run)
        restored = await asyncio.to_thread(workspace.put_back, touched)
        journal.record(run.clock.now(), ev.EvidenceChanged(paths=restored, action="restored"))
    if it.open is None:
        return
    folder = run.artifacts / f"{it.number:04d}" / f"attempt-{it.open.attempt}"
    seen = await look(run)
    seconds = min(it.open.allowance_s, take.cut_off_seconds(folder))
    journal.record(
        run.clock.now(),
        ev.AttemptInterrupted(cause="crash", seconds=seconds, snapshot=seen.tree, evidence=seen.evidence),
    )
    journal.flush()


def _handed_over(run: Run) -> None:
    """Cancelled from outside: the agent is dead by now; the next host finds its attempt cut, not crashed."""
    state = run.journal.state
    if state.current is not None and state.current.open is not None:
        seen = run.workspace.look() if run.workspace.watched else UNSEEN
        seconds = round(run.clock.monotonic() - run.began, 3)
        run.journal.record(
            run.clock.now(),
            ev.AttemptInterrupted(
                cause="handover", seconds=seconds, snapshot=seen.tree, evidence=seen.evidence
            ),
        )
    run.journal.flush()


def probe(assembled: Assembled, ways: Ways) -> list[str]:
    """What agent and gates will run as, for the start line; `ConfigError` naming every one that cannot."""
    place = Place(
        root=ways.project,
        project=ways.project,
        artifacts=ways.project,
        env=_environment("probe", ways, allow=_allowed(assembled)),
        timeout_s=10.0,
    )
    lines, problems = [], []
    asked = [(f"agent {a.name}", a.probe) for a in (assembled.agent, assembled.improve) if a is not None]
    for who, look_up in (*asked, *((f"gate {g.name}", g.probe) for g in assembled.gates)):
        try:
            found = look_up(place)
        except NotStartable as error:
            problems.append(f"{who}: {error}")
        else:
            lines.append(f"{who}: {found}" if found else who)
    try:
        _watched(assembled, ways)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return lines


def _watched(assembled: Assembled, ways: Ways) -> tuple[Path, ...]:
    """What no agent may change, by the loop's `workspace.watch`."""
    return roots(ways.project, (assembled.loop.spec().get("workspace") or {}).get("watch", ()))


def _environment(run: str, ways: Ways, *, allow: Sequence[str]) -> dict[str, str]:
    env, _ = child_environment(ways.environ, allow=allow)
    return {
        **env,
        "PATH": tool_path(ways.project, ways.environ.get("PATH", "")),
        **_mark(run, ways),
    }


def _allowed(assembled: Assembled) -> tuple[str, ...]:
    """The secret-looking names that somebody may see: all, by the loop's `env`; one agent or gate, by its own."""
    keys = {k for a in (assembled.agent, assembled.improve) if a is not None for k in a.keys}
    return (*assembled.loop.env, *sorted(keys.union(*(gate.env for gate in assembled.gates))))


def _mark(run: str, ways: Ways) -> dict[str, str]:
    """The names by which everything this run starts can be found again."""
    return {"LOOPWRIGHT_RUN": run, "LOOPWRIGHT_WORKDIR": str(ways.project)}


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
    take.check_place(run, journal.state, ways.project)
    return journal
