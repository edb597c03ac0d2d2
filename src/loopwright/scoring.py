"""Performing the gates: each judges the present workspace, and its score is a fact.

Rules. What a gate does wrong becomes an error, never an exception. What it changes of the work it
judges, or of protected files, is seen from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from loopwright import old_tests, spending, standing
from loopwright.core import events as ev
from loopwright.core import replacing
from loopwright.core.judge import settle
from loopwright.core.policy import RunGates
from loopwright.core.values import Score, Usage, together
from loopwright.evidence import suppressions
from loopwright.gates.measure import measure
from loopwright.ports import Gate, Place, Seen
from loopwright.running import (
    UNSEEN,
    Cut,
    Run,
    Watched,
    environment_of,
    folder_of,
    in_checkout,
    inside,
    look,
    traceparent,
)
from loopwright.workspace import runners
from loopwright.workspace.behind import words_behind
from loopwright.workspace.opened import shown

# A gate's score, the seconds it took, and what it spent itself.
_Scored: TypeAlias = tuple[Score, float, Usage | None]


async def gates(run: Run, command: RunGates, watched: Watched) -> None:
    """Scores the workspace with the missing gates, one after another; neighbours that may run in parallel do."""
    journal, workspace = run.journal, run.workspace
    seen = await standing.seen(run) if workspace.watched else UNSEEN
    missing = [run.gates[name] for name in command.missing]
    tree, moved = journal.state.snapshot, False
    while missing:
        batch = _next(missing)
        alone = len(batch) == 1
        run.begin(f"#{command.iteration} gate {', '.join([gate.name for gate in batch])}")
        started = run.clock.monotonic()
        scored = await watched(
            _scored(run, batch[0], command.iteration) if alone else _together(run, batch, command.iteration)
        )
        run.gated, run.left = True, None
        rewritten, clean = "", True
        if workspace.watched:
            journal.check()  # they ran code of the agent's
            rewritten, clean = await _undone(run, command.iteration)
        if isinstance(scored, Cut):
            return
        scored = [scored] if alone else scored
        if workspace.watched:
            scored, tree, changed = await _untouched(
                run, batch, scored, rewritten, tree, first=command.iteration == 0
            )
            moved = moved or (changed and any(gate.writes for gate in batch))
        run.left, longest = tree, 0.0
        for gate, (score, seconds, usage) in zip(batch, scored, strict=True):
            if usage is not None:
                await asyncio.to_thread(spending.gate_spent, run, gate.name, usage)
            journal.record(
                run.clock.now(),
                ev.GateScored(
                    gate=gate.name,
                    score=score,
                    seconds=seconds,
                    snapshot=journal.state.snapshot,
                    beside_s=min(seconds, longest),
                    usage=usage,
                ),
            )
            longest = max(longest, seconds)
        if run.clock.monotonic() - started > 0.2:
            await journal.save()  # facts wait for company a second at most
        # Each gate was looked after, so where nothing changed this is how the next attempt finds it.
        same = workspace.recorded and clean and tree == seen.tree
        run.fresh = (seen, run.clock.monotonic()) if same else None
    if moved:  # what the gates made of the work is what would be kept: they judge that
        standing.note_changes(run, await look(run))


def _next(missing: list[Gate]) -> list[Gate]:
    """Those that run next, taken from the missing: the first, and with it neighbours where all may run in parallel."""
    batch = [missing.pop(0)]
    while missing and _beside(batch[0]) and _beside(missing[0]):
        if {gate.name for gate in batch} & set(missing[0].after):
            break
        batch.append(missing.pop(0))
    return batch


def _beside(gate: Gate) -> bool:
    """Whether others may run at the same time: who writes would change the work under them, and they be blamed."""
    return gate.parallel and not gate.writes


async def _together(run: Run, batch: list[Gate], iteration: int) -> list[_Scored]:
    tasks = [asyncio.ensure_future(_scored(run, gate, iteration)) for gate in batch]
    try:
        return list(await asyncio.gather(*tasks))
    finally:  # where one ends the run, none is left at work in a workspace that is given back
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _scored(run: Run, gate: Gate, iteration: int) -> _Scored:
    """One gate's score, with its status, the seconds it took, and what it spent itself."""
    started = run.clock.monotonic()
    used: list[Usage] = []
    if gate.clean:
        score = await in_checkout(run, lambda root: _measured(run, gate, iteration, root, used))
    else:
        score = await _measured(run, gate, iteration, run.workspace.root, used)
    score = settle(gate.rule, run.policy.threshold, score)
    if iteration and run.workspace.frees:
        score = await old_tests.with_old(
            run, gate, score, lambda root: _measured(run, gate, iteration, root, used, "/old-tests")
        )
    if score.status == "pass" and iteration and ("command" in score.evidence or score.unit == "%"):
        score = await asyncio.to_thread(_looked_away, run, gate, score)
    return score, round(run.clock.monotonic() - started, 3), together(used) if used else None


def _measured(
    run: Run, gate: Gate, iteration: int, root: Path, used: list[Usage], beside: str = ""
) -> Awaitable[Score]:
    """What one gate measures in the folder `root`; its files go to its own folder, or one `beside` them."""
    name, timeout_s = gate.name, gate.timeout or run.policy.limits.gate_timeout
    folder, in_folder = run.artifacts, run.workspace.mode != "none"
    if in_folder:
        folder = folder_of(run, iteration, f"gate-{name}{beside}")
    seen = _seen(run, name, iteration, root if in_folder else None)
    if not gate.placed:
        return measure(gate, seen, inside(run, name, timeout_s))
    own = {
        "CI": "1",
        "LOOPWRIGHT_ITERATION": str(iteration),
        "LOOPWRIGHT_ARTIFACTS": str(folder),
        "TRACEPARENT": traceparent(run, "iteration", iteration),
    }
    if gate.python:
        own["PYTHONPYCACHEPREFIX"] = str(folder / "pycache")
    place = Place(
        root=root / gate.cwd if gate.cwd else root,
        project=run.project,
        artifacts=folder,
        env=environment_of(run, gate.env, own),
        timeout_s=timeout_s,
        grace_s=run.policy.limits.grace,
        redact=run.journal.redact,
        sandbox=run.sandbox((folder,) if root == run.workspace.root else (folder, root), False),
        spend=used.append,
    )
    return measure(gate, seen, place)


def _seen(run: Run, name: str, iteration: int, workdir: Path | None) -> Seen:
    """What the gate of this name may look at."""
    state = run.journal.state
    it = state.current
    seen = Seen(
        iteration=iteration,
        goal=run.policy.goal,
        threshold=run.policy.threshold,
        output=it.output if it else None,
        summary=it.summary if it else "",
        workdir=workdir,
        previous=it.previous if it else None,
        scores=it.scores if it else (),
        mark=state.measured.get(name),
        spent_usd=state.gate_costs.get(name, 0.0),
    )
    if not run.workspace.recorded:
        return seen
    return replacing.replace(
        seen,
        diff=lambda: run.workspace.diff(state.base),
        past=lambda path: run.workspace.past(
            path, now=state.snapshot, began=it.start if it else None, base=state.base, edits=state.edits
        ),
        changes=lambda: run.workspace.changes(state.base, state.snapshot),
    )


def _heeding(run: Run, gate: Gate, score: Score) -> frozenset[str]:
    """The tools behind a score that heed comments which tell them to look away; runners of tests where none counted."""
    command = score.evidence.get("command")
    if not isinstance(command, list) or not command:
        return frozenset({"coverage"} if score.unit == "%" else ())
    words = words_behind(run.workspace.root, command, gate.cwd or "")
    testers = {name for name, kinds in runners.TESTERS.items() if kinds}
    tests = bool(words & testers) and "counts" not in score.evidence
    names = suppressions.tools(words)
    return names | ({suppressions.TESTS} if tests else set()) | ({"coverage"} if score.unit == "%" else set())


def _looked_away(run: Run, gate: Gate, score: Score) -> Score:
    """The score, with how many such comments the work adds."""
    tools = _heeding(run, gate, score)
    if not tools or (diff := run.workspace.diff(run.journal.state.base)) is None:
        return score
    return replace(score, evidence={**score.evidence, "suppressions": suppressions.added(diff.text, tools)})


async def _undone(run: Run, iteration: int) -> tuple[str, bool]:
    """What the code a gate ran has changed of the evidence, in words; and whether all is as it was.

    It is the agent's code, not the user.

    Protected files are put back; of the rest it is on record that they must be. Before any work no agent can have
    done it: what gates make then is taken as it is at the next look.
    """
    found, state = await asyncio.to_thread(run.workspace.touched), run.journal.state
    before = state.tampered.paths if state.tampered is not None else ()
    touched = tuple(path for path in found.protected if shown(path) not in before)
    deciding = tuple(path for path in found.deciding if shown(path) not in before) if iteration else ()
    if touched:
        await asyncio.to_thread(run.workspace.look)  # keeps what is replaced
        await asyncio.to_thread(run.workspace.put_back, touched)
    if deciding and state.tampered is None:  # once is enough: each time it is on record, all judge again
        standing.note_tampering(run, deciding)
    back = f"protected files were changed while it ran, and put back: {_some(touched)}" if touched else ""
    changed = (
        f"files that decide what gates see were changed while it ran: {_some(deciding)}" if deciding else ""
    )
    return "; ".join(filter(None, (back, changed))), not found


def _some(paths: tuple[str, ...]) -> str:
    return ", ".join(map(shown, paths[:5]))


async def _untouched(
    run: Run,
    batch: list[Gate],
    scored: list[_Scored],
    rewritten: str,
    tree: str | None,
    *,
    first: bool,
) -> tuple[list[_Scored], str | None, bool]:
    """The scores, as errors where a gate changed or deleted what it judged; the tree it leaves; whether it did that.

    Before any work (`first`) no agent can have made it so: the gate itself must be mended.
    """
    if rewritten:
        error = Score(0.0, rewritten, status="error", cause="evidence")
        return [(error, seconds, usage) for _, seconds, usage in scored], tree, False
    if tree is None:
        return scored, tree, False
    changed, tree = await asyncio.to_thread(run.workspace.after_gate, tree)
    if not changed:
        return scored, tree, False
    why = f"it changed {', '.join(changed[:5])} of the work it judged; allow it with writes = true"
    error = Score(0.0, why, status="error", cause="tool" if first else "evidence")
    judged = [
        (score if gate.writes else error, seconds, usage)
        for gate, (score, seconds, usage) in zip(batch, scored, strict=True)
    ]
    return judged, tree, True
