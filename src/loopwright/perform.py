"""Performing the two commands that touch the world: an attempt, and the gates.

Rules. The intent is on record before the effect. What an agent or gate does wrong becomes a fact,
never an exception. The work is looked at from outside: trees and protected files before and after.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from loopwright import standing
from loopwright.clock import Clock
from loopwright.core import events as ev
from loopwright.core.judge import settle
from loopwright.core.policy import Policy, RunAgent, RunGates
from loopwright.core.values import Attempt, Failed, Score, Worked
from loopwright.errors import WorkspaceError
from loopwright.gates.measure import measure
from loopwright.journal import Journal
from loopwright.ports import Agent, Gate, Lease, Place, Seen
from loopwright.workspace.opened import Look, Workspace, shown
from loopwright.workspace.watch import prints

UNSEEN: Final = Look(tree=None, evidence=None)


@dataclass(frozen=True, slots=True)
class Cut:
    """The work was cut from outside, and why."""

    cause: Literal["stop", "pause", "handover"]


Watched = Callable[[Awaitable[Any]], Awaitable[Any]]


@dataclass(slots=True, kw_only=True)
class Run:
    """One run as its host holds it open: its journal, its pure policy, and who performs."""

    journal: Journal
    policy: Policy
    agent: Agent
    improve: Agent | None
    gates: Mapping[str, Gate]
    workspace: Workspace
    project: Path
    artifacts: Path
    env: Mapping[str, str]
    clock: Clock
    keys: Mapping[str, str] = field(default_factory=dict)  # secrets that one agent or gate alone may see
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    lease: Lease | None = None
    lease_s: float = 30.0
    renewed: float = field(default_factory=time.monotonic)
    began: float = field(default_factory=time.monotonic)  # when the attempt under way did
    watched: tuple[Path, ...] = ()  # what no agent may change
    dice: Callable[[], float] = lambda: 0.5
    hear: Callable[[bytes], None] | None = None
    begin: Callable[[str], None] = lambda _: None  # told what starts now, for a live view
    tell: Callable[[str], None] = lambda _: None  # a line of news for the person who started it
    gated: bool = False  # gates ran since the last look
    on_tamper: str = "restore"  # or "ask": what becomes of protected files that the agent changed
    waits: bool = False  # for the person who is asked, with the run kept open
    person: Callable[[Run], None] = lambda _: None  # called again and again while one is waited for


async def attempt(run: Run, command: RunAgent, watched: Watched) -> None:
    """Performs one attempt: looks, records the intent, runs the agent, looks again, records the outcome."""
    journal, asked = run.journal, replace(command.attempt, workdir=str(run.workspace.root))
    before = await look(run)
    note_changes(run, before)
    outside = await _outside(run)
    limits = run.policy.limits
    journal.record(
        run.clock.now(),
        ev.AttemptStarted(
            iteration=asked.iteration,
            attempt=asked.number,
            key=asked.key,
            allowance_s=asked.deadline_s,
            snapshot=before.tree,
            evidence=before.evidence,
            reserve_usd=asked.reserve_usd,
        ),
    )
    journal.flush()
    agent = run.improve if run.improve is not None and asked.iteration > 1 else run.agent
    place = Place(
        root=run.workspace.root,
        project=run.project,
        artifacts=_folder(run, asked.iteration, f"attempt-{asked.number}", made=agent.in_folder),
        env=_environment(run, asked, agent),
        timeout_s=asked.deadline_s,
        grace_s=limits.grace,
        idle_s=limits.idle_timeout,
        active=run.workspace.sign_of_life if run.workspace.recorded else None,
        hear=run.hear,
    )
    run.begin(
        f"#{asked.iteration} agent working" + (f" (attempt {asked.number})" if asked.number > 1 else "")
    )
    run.began = run.clock.monotonic()
    outcome = await watched(_called(agent, asked, place))
    seconds = round(run.clock.monotonic() - run.began, 3)
    after, restored = await _after(run)
    if restored:
        journal.record(run.clock.now(), ev.EvidenceChanged(paths=restored, action="restored"))
    if changed := [str(root) for root, seen in (await _outside(run)).items() if outside[root] != seen]:
        outcome = _violation(outcome, changed)
    fact = _outcome(
        outcome, before=before, after=after, seconds=seconds, dice=run.dice(), recorded=run.workspace.recorded
    )
    journal.record(run.clock.now(), fact)
    journal.flush()


async def _called(agent: Agent, asked: Attempt, place: Place) -> Worked | Failed:
    try:
        return await agent.call(asked, place)
    except Exception as error:  # noqa: BLE001 - whatever an agent does wrong is a fact
        lines = "".join(traceback.format_exception(error)[-3:])[-2000:]
        return Failed(kind="unknown", message=f"{type(error).__name__}: {error}\n{lines}")


async def look(run: Run) -> Look:
    """The workspace as it is now."""
    return await asyncio.to_thread(run.workspace.look) if run.workspace.watched else UNSEEN


def note_changes(run: Run, seen: Look) -> None:
    """Records what changed in the workspace while no attempt ran: the first look, the user's edits, gates' files."""
    state = run.journal.state
    if not run.workspace.watched:
        return
    if state.snapshot is None and state.evidence is None:
        evidence = run.workspace.trust()
        changed = ev.WorkspaceChanged(snapshot=seen.tree, evidence=evidence, cause="baseline")
        for glob in run.workspace.unmatched():
            run.tell(f"protected: {glob!r} matches no file")
        if seen.left_out:
            run.tell(
                f"in no snapshot (secret-looking, large or a repository): {', '.join(seen.left_out[:10])}"
            )
    elif state.tampered is not None and seen.evidence != standing.expected(state):
        standing.note_tampering(run, run.workspace.touched())
        changed = ev.WorkspaceChanged(snapshot=seen.tree, cause="user")
    elif (seen.tree, seen.evidence) != (state.snapshot, standing.expected(state)):
        evidence = state.evidence
        if state.tampered is None and (seen.evidence != evidence or not run.gated):
            evidence = run.workspace.trust()  # the user's new files too
        changed = ev.WorkspaceChanged(
            snapshot=seen.tree, evidence=evidence, cause="gate" if run.gated else "user"
        )
    else:
        return
    run.gated = False
    run.journal.record(run.clock.now(), changed)


async def _after(run: Run) -> tuple[Look, tuple[str, ...]]:
    """The workspace after an attempt, protected files put back (or left, to be asked about).

    What they were changed to stays in a snapshot.
    """
    if not run.workspace.watched:
        return UNSEEN, ()
    touched = await asyncio.to_thread(run.workspace.touched)
    if run.on_tamper == "ask":
        standing.note_tampering(run, touched)
        seen = await asyncio.to_thread(run.workspace.look)
        return replace(seen, evidence=run.journal.state.evidence), ()
    if touched:
        await asyncio.to_thread(run.workspace.look)
        touched = await asyncio.to_thread(run.workspace.put_back, touched)
    return await asyncio.to_thread(run.workspace.look), touched


async def _outside(run: Run) -> dict[Path, str]:
    """The fingerprints of what the loop says no agent may change."""
    return await asyncio.to_thread(prints, run.watched, run.workspace.root) if run.watched else {}


def _violation(outcome: Worked | Failed | Cut, changed: list[str]) -> Failed:
    """The end of an attempt that changed what is watched, whatever else came of it."""
    message = f"{', '.join(changed)} changed while the agent worked, and workspace.watch forbids that"
    match outcome:
        case Worked(result=result):
            return Failed(
                kind="policy_violation", message=message, usage=result.usage, session=result.session
            )
        case Failed(usage=usage, session=session):
            return Failed(kind="policy_violation", message=message, usage=usage, session=session)
        case Cut():
            return Failed(kind="policy_violation", message=message)


def _outcome(
    outcome: Worked | Failed | Cut, *, before: Look, after: Look, seconds: float, dice: float, recorded: bool
) -> ev.AttemptSucceeded | ev.AttemptFailed | ev.AttemptInterrupted:
    """The fact that an attempt's end is, by DESIGN §5's table of outcomes."""
    same = recorded and before.tree == after.tree
    if isinstance(outcome, Worked):
        outcome = _honest(outcome, same=same, recorded=recorded)
    match outcome:
        case Cut(cause=cause):
            return ev.AttemptInterrupted(
                cause=cause, seconds=seconds, snapshot=after.tree, evidence=after.evidence
            )
        case Worked(result=result):
            return ev.AttemptSucceeded(
                result=result.output,
                summary=result.summary,
                usage=result.usage,
                session=result.session,
                seconds=seconds,
                snapshot=after.tree,
                evidence=after.evidence,
                degraded=outcome.degraded,
                timed_out=outcome.timed_out,
                claims_done=result.claims_done,
            )
        case Failed():
            return ev.AttemptFailed(
                kind=outcome.kind,
                message=outcome.message,
                retry_after=outcome.retry_after_s,
                dice=dice,
                usage=outcome.usage,
                session=outcome.session,
                seconds=seconds,
                snapshot=after.tree,
                evidence=after.evidence,
            )


def _honest(worked: Worked, *, same: bool, recorded: bool) -> Worked | Failed:
    """A result, unless nothing came of the attempt: a cut one without changes, a silent one without changes."""
    result = worked.result
    if worked.timed_out and (same or not recorded):
        kind: Literal["no_output", "timeout"] = "no_output" if recorded else "timeout"
        why = worked.degraded or "it ran out of time"
        return Failed(
            kind=kind, message=f"{why} and changed nothing", usage=result.usage, session=result.session
        )
    if result.needs_human:
        return Failed(kind="blocked", message=result.needs_human, usage=result.usage, session=result.session)
    if result.usage.turns == 0 or (same and _empty(result.output) and not result.summary.strip()):
        silent = "reported no turn" if result.usage.turns == 0 else "changed nothing and said nothing"
        return Failed(kind="no_op", message=f"the agent {silent}", usage=result.usage, session=result.session)
    return worked


def _empty(output: Any) -> bool:
    return output in (None, "", {}, [])


async def gates(run: Run, command: RunGates, watched: Watched) -> None:
    """Scores the workspace with the missing gates, one after another; neighbours that may run in parallel do."""
    seen = await look(run)
    note_changes(run, seen)
    missing = [run.gates[name] for name in command.missing]
    tree = run.journal.state.snapshot
    while missing:
        batch = [missing.pop(0)]
        while batch[0].parallel and missing and missing[0].parallel:
            if {gate.name for gate in batch} & set(missing[0].after):
                break
            batch.append(missing.pop(0))
        run.begin(f"#{command.iteration} gate {', '.join(g.name for g in batch)}")
        started = run.clock.monotonic()
        scores = await watched(asyncio.gather(*(_scored(run, gate, command.iteration) for gate in batch)))
        run.gated = True
        rewritten = await _undone(run)
        if isinstance(scores, Cut):
            return
        scores, tree = await _untouched(run, batch, scores, rewritten, tree, first=command.iteration == 0)
        for gate, (score, seconds) in zip(batch, scores, strict=True):
            run.journal.record(
                run.clock.now(),
                ev.GateScored(
                    gate=gate.name, score=score, seconds=seconds, snapshot=run.journal.state.snapshot
                ),
            )
        if run.clock.monotonic() - started > 0.2:
            run.journal.flush()  # facts wait for company a second at most


async def _scored(run: Run, gate: Gate, iteration: int) -> tuple[Score, float]:
    """One gate's score, with its status, and the seconds it took."""
    state = run.journal.state
    it = state.current
    seen = Seen(
        iteration=iteration,
        output=it.output if it else None,
        summary=it.summary if it else "",
        workdir=run.workspace.root if run.workspace.mode != "none" else None,
        diff=lambda: run.workspace.diff(state.base),
        previous=it.previous if it else None,
        scores=it.scores if it else (),
        mark=state.measured.get(gate.name),
    )
    folder = _folder(run, iteration, f"gate-{gate.name}", made=run.workspace.mode != "none")
    env = {
        **_own(run, gate.env),
        "CI": "1",
        "LOOPWRIGHT_ITERATION": str(iteration),
        "LOOPWRIGHT_ARTIFACTS": str(folder),
    }
    if gate.python:
        env["PYTHONPYCACHEPREFIX"] = str(folder / "pycache")
    place = Place(
        root=run.workspace.root / gate.cwd if gate.cwd else run.workspace.root,
        project=run.project,
        artifacts=folder,
        env=env,
        timeout_s=gate.timeout or run.policy.limits.gate_timeout,
        grace_s=run.policy.limits.grace,
    )
    started = run.clock.monotonic()
    score = settle(gate.rule, run.policy.threshold, await measure(gate, seen, place))
    return score, round(run.clock.monotonic() - started, 3)


async def _undone(run: Run) -> tuple[str, ...]:
    """Protected files that the code a gate ran has changed, put back: it is the agent's code, not the user."""
    if not run.workspace.watched or not (touched := await asyncio.to_thread(run.workspace.touched)):
        return ()
    if (asked := run.journal.state.tampered) is not None:  # those were so before
        touched = tuple(path for path in touched if shown(path) not in asked.paths)
    await asyncio.to_thread(run.workspace.look)  # keeps what is replaced
    return await asyncio.to_thread(run.workspace.put_back, touched)


async def _untouched(
    run: Run,
    batch: list[Gate],
    scores: list[tuple[Score, float]],
    rewritten: tuple[str, ...],
    tree: str | None,
    *,
    first: bool,
) -> tuple[list[tuple[Score, float]], str | None]:
    """The scores, as errors where a gate changed or deleted what it judged, and the tree it leaves for the next.

    Before any work (`first`) no agent can have made it so: the gate itself must be mended.
    """
    if rewritten:
        why = f"protected files were changed while it ran, and put back: {', '.join(rewritten[:5])}"
        error = Score(0.0, why, status="error", cause="evidence")
        return [(error, seconds) for _, seconds in scores], tree
    if tree is None:
        return scores, tree
    changed, tree = await asyncio.to_thread(run.workspace.after_gate, tree)
    if not changed:
        return scores, tree
    why = f"it changed {', '.join(changed[:5])} of the work it judged; allow it with writes = true"
    error = Score(0.0, why, status="error", cause="tool" if first else "evidence")
    judged = [(score if gate.writes else error, s) for gate, (score, s) in zip(batch, scores, strict=True)]
    return judged, tree


def _folder(run: Run, iteration: int, name: str, *, made: bool) -> Path:
    folder = run.artifacts / f"{iteration:04d}" / name
    try:
        if made:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise WorkspaceError(f"{folder} cannot be made: {error.strerror or error}") from error
    return folder


def _own(run: Run, names: tuple[str, ...]) -> dict[str, str]:
    """The environment with the secrets of these names, and no one else's."""
    return {**{name: run.keys[name] for name in names if name in run.keys}, **run.env}


def _environment(run: Run, asked: Attempt, agent: Agent) -> dict[str, str]:
    best = "" if asked.best is None else f"{asked.best.score:.4f}"
    return {
        **_own(run, agent.keys),
        "LOOPWRIGHT_ITERATION": str(asked.iteration),
        "LOOPWRIGHT_ATTEMPT": str(asked.number),
        "LOOPWRIGHT_KEY": asked.key,
        "LOOPWRIGHT_BEST_SCORE": best,
        "LOOPWRIGHT_ARTIFACTS": str(_folder(run, asked.iteration, f"attempt-{asked.number}", made=False)),
    }
