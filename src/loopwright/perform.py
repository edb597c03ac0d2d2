"""Performing an attempt: the agent is called, and what came of it is a fact.

Rules. The intent is on record before the effect. What an agent does wrong becomes a fact, never an
exception. The work is looked at from outside: trees and protected files before and after.
"""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Literal

from loopwright import logins, prompting, spending, standing
from loopwright.core import events as ev
from loopwright.core import replacing
from loopwright.core.limits import in_force
from loopwright.core.policy import RunAgent
from loopwright.core.showing import allow_line, listed
from loopwright.core.values import Attempt, Failed, Usage, Worked
from loopwright.ports import Agent, Place
from loopwright.running import (
    UNSEEN,
    Cut,
    Run,
    Watched,
    environment_of,
    folder_of,
    inside,
    look,
    traceparent,
)
from loopwright.workspace.opened import Look
from loopwright.workspace.watch import prints


async def attempt(run: Run, command: RunAgent, watched: Watched) -> None:
    """Performs one attempt: looks, records the intent, runs the agent, looks again, records the outcome."""
    journal = run.journal
    agent = run.improve if run.improve is not None and command.attempt.iteration > 1 else run.agent
    place = _place(run, agent, command.attempt)
    refused = await asyncio.to_thread(logins.held, run, agent, place) if agent.login is not None else None
    bound = run.policy.limits.budget_per_day is not None
    aside = await _set_aside(run, command.attempt) if bound and refused is None else None
    if isinstance(aside, ev.DaySpent):
        journal.record(run.clock.now(), aside)
        return
    if isinstance(aside, Failed):
        refused, aside = aside, None
    asked, before = await _begun(run, command)
    if aside is not None:
        most = min(aside.most_usd, asked.left.budget_usd if asked.left.budget_usd is not None else inf)
        asked = replacing.replace(asked, left=replace(asked.left, budget_usd=most), reserve_usd=aside.usd)
    if run.notes:
        asked = await asyncio.to_thread(prompting.with_notes, run, asked)
        if asked.notes is not None:
            place = replace(place, env={**place.env, "LOOPWRIGHT_NOTES_FILE": asked.notes.file})
    outside = await _outside(run) if run.watched else {}
    started = ev.AttemptStarted(
        iteration=asked.iteration,
        attempt=asked.number,
        key=asked.key,
        allowance_s=asked.deadline_s,
        snapshot=before.tree,
        evidence=before.evidence,
        reserve_usd=asked.reserve_usd if refused is None else 0.0,
        booking=aside.booking if aside is not None else None,
    )
    journal.record(run.clock.now(), started)
    await journal.save()
    run.gated = False  # from here on what changes is the agent's doing, or a person's
    run.begin(
        f"#{asked.iteration} agent working" + (f" (attempt {asked.number})" if asked.number > 1 else "")
    )
    run.began = run.clock.monotonic()
    outcome = refused or await watched(_called(agent, asked, place))
    seconds = round(run.clock.monotonic() - run.began, 3)
    if agent.in_folder:
        journal.check()
    after = await _after(run) if run.workspace.watched else UNSEEN
    if after.left_out != before.left_out:
        standing.note_left_out(run, sorted(set(after.left_out) - set(before.left_out)))
    if outside and (
        changed := [str(root) for root, seen in (await _outside(run)).items() if outside[root] != seen]
    ):
        outcome = _violation(outcome, changed)
    told, kept = logins.waited_for(run, outcome), run.workspace.recorded
    fact = _outcome(told, before=before, after=after, seconds=seconds, dice=run.dice(), recorded=kept)
    journal.record(run.clock.now(), fact)
    try:
        if refused is None:  # before it is on record: after a crash it is then said again, and never left out
            await _learnt(run, agent, place, started, outcome)
    finally:
        await journal.save()


def _place(run: Run, agent: Agent, asked: Attempt) -> Place:
    """Where the attempt works."""
    if not agent.placed:
        return inside(run, "", asked.deadline_s)
    limits, folder = run.policy.limits, run.artifacts
    if agent.in_folder:
        folder = folder_of(run, asked.iteration, f"attempt-{asked.number}")
    return Place(
        root=run.workspace.root,
        project=run.project,
        artifacts=folder,
        env=environment_of(run, agent.keys, _marks(run, asked, folder)),
        timeout_s=asked.deadline_s,
        grace_s=limits.grace,
        idle_s=limits.idle_timeout,
        active=run.workspace.sign_of_life if run.workspace.recorded else None,
        hear=run.hear,
        redact=run.journal.redact,
        sandbox=run.sandbox(_folders(run, folder), True),
        commands=tuple(words for gate in run.gates.values() for words in gate.commands),
    )


async def _set_aside(run: Run, asked: Attempt) -> spending.Aside | ev.DaySpent | Failed | None:
    cap = in_force(run.policy.limits, run.journal.state).budget_per_day
    return None if cap is None else await asyncio.to_thread(spending.set_aside, run, asked, cap)


async def _learnt(
    run: Run, agent: Agent, place: Place, started: ev.AttemptStarted, outcome: Worked | Failed | Cut
) -> None:
    """What others need to know of an attempt that has ended: about its login, and what it cost."""
    if agent.login is not None and not isinstance(outcome, Cut):
        await asyncio.to_thread(logins.learnt, run, agent, place, outcome)
    match outcome:
        case Worked(result=result):
            usage: Usage | None = result.usage
        case Failed(usage=usage):
            pass
        case Cut():
            usage = None
    if started.booking is not None or (usage is not None and usage.cost_usd):
        await asyncio.to_thread(spending.settle, run, started, usage)


async def _begun(run: Run, command: RunAgent) -> tuple[Attempt, Look]:
    """The attempt and what it begins from. A folder apart is set to its start, unless a person changed it since."""
    state, asked = run.journal.state, _addressed(run, command.attempt)
    if (
        asked.session is not None
        and run.improve is not None
        and asked.iteration > 1 >= asked.session.iteration
    ):
        asked = replacing.replace(asked, session=None)  # it was another agent's
    if not run.workspace.watched:
        return asked, UNSEEN
    left, gated = state.snapshot, run.gated
    before = await standing.seen(run)
    if not run.workspace.apart or command.start in {None, left}:
        return asked, before
    if not gated and await asyncio.to_thread(run.workspace.edited, left, before.tree):
        return asked, before
    await asyncio.to_thread(run.workspace.restore, str(command.start))
    found = await asyncio.to_thread(run.workspace.touched)
    back = run.workspace.copied(standing.left(found))  # a person changed them since that snapshot
    await asyncio.to_thread(run.workspace.put_back, back)
    if run.journal.state.tampered is not None:
        standing.note_tampering(run, standing.left(found, back))
    elif standing.left(found, back):
        await asyncio.to_thread(run.workspace.trust)
    before = await look(run)
    run.journal.record(
        run.clock.now(), ev.WorkspaceChanged(snapshot=before.tree, evidence=before.evidence, cause="restored")
    )
    return replace(asked, feedback=replace(asked.feedback, interrupted=False)), before


def _addressed(run: Run, attempt: Attempt) -> Attempt:
    """The attempt with what only its host knows."""
    workdir = str(run.workspace.root)
    if run.render is None:
        return replacing.replace(attempt, workdir=workdir)
    if run.payload is not None:
        attempt = replacing.replace(attempt, payload=str(run.payload))
    return replacing.replace(attempt, workdir=workdir, template=run.template, render=run.render)


async def _called(agent: Agent, asked: Attempt, place: Place) -> Worked | Failed:
    try:
        return await agent.call(asked, place)
    except Exception as error:  # noqa: BLE001 - whatever an agent does wrong is a fact
        lines = place.redact.text("".join(traceback.format_exception(error)[-3:]))[-2000:]
        return Failed(kind="unknown", message=f"{type(error).__name__}: {error}\n{lines}")


async def _after(run: Run) -> Look:
    """The workspace after an attempt, evidence put back, or left and on record as changed.

    What it was changed to stays in a snapshot.
    """
    await standing.answer_tampering(run)
    seen = await asyncio.to_thread(run.workspace.look)
    if run.journal.state.tampered is None:
        run.fresh = seen, run.clock.monotonic()
        return seen
    return replace(seen, evidence=run.journal.state.evidence)


async def _outside(run: Run) -> dict[Path, str]:
    """The fingerprints of what the loop says no agent may change."""
    return await asyncio.to_thread(prints, run.watched, run.workspace.root)


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
                denied=result.denied,
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
    idle = result.usage.turns == 0 and (same or not recorded)
    if idle or (same and _empty(result.output) and not result.summary.strip()):
        silent = "reported no turn" if idle else "changed nothing and said nothing"
        return Failed(kind="no_op", message=f"the agent {silent}", usage=result.usage, session=result.session)
    if same and result.denied:
        return Failed(
            kind="blocked", message=denied(result.denied), usage=result.usage, session=result.session
        )
    return worked


def denied(what: tuple[str, ...]) -> str:
    """What stopped an agent that was not allowed to do this, with the line that lets it."""
    return f"it was not allowed to use {listed(what)} and changed nothing; {allow_line(what)} lets it"


def _empty(output: Any) -> bool:
    return output in (None, "", {}, [])


def _marks(run: Run, asked: Attempt, folder: Path) -> dict[str, str]:
    marks = {
        "LOOPWRIGHT_ITERATION": str(asked.iteration),
        "LOOPWRIGHT_ATTEMPT": str(asked.number),
        "LOOPWRIGHT_KEY": asked.key,
        "LOOPWRIGHT_BEST_SCORE": "" if asked.best is None else f"{asked.best.score:.4f}",
        "LOOPWRIGHT_ARTIFACTS": str(folder),
        "TRACEPARENT": traceparent(run, "attempt", asked.iteration, asked.number),
    }
    if run.payload is not None:
        marks["LOOPWRIGHT_PAYLOAD_FILE"] = str(run.payload)
    return marks


def _folders(run: Run, folder: Path) -> tuple[Path, ...]:
    """What an agent behind walls may write beside the workspace."""
    notes = prompting.notes_file(run)
    return (folder,) if notes is None or isinstance(run.notes, str) else (folder, notes.parent)
