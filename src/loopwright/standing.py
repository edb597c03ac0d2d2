"""Whether what gates have judged, and judge by, still stands; and what people decided about it, carried out.

Rules. A person's word holds for what they were shown, nothing else. A change of evidence that is not put back
stays in place: it passes nothing while it is there, and is trusted only when a person says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from loopwright.core import events as ev
from loopwright.core.state import LoopState
from loopwright.running import Run, just_seen, look
from loopwright.workspace.evidence import Touched
from loopwright.workspace.opened import Look, shown


def expected(state: LoopState) -> str | None:
    """The digest that the evidence has while nobody touches it: the true one, or that of the change on record."""
    touched = state.tampered
    return touched.digest if touched is not None and touched.digest else state.evidence


def note_tampering(run: Run, touched: tuple[str, ...], *, asks: bool = False) -> None:
    """Records which evidence is not the true one, so that nothing passes; or that all is again.

    With `asks`, or by the loop's `on_tamper`, a person is to look at it.
    """
    state = run.journal.state
    if touched:
        digest = run.workspace.keep()
        if state.tampered is not None and state.tampered.digest == digest:
            return
        action: Literal["asked", "blocked"] = "asked" if asks or run.on_tamper == "ask" else "blocked"
        noted = ev.EvidenceChanged(paths=tuple(map(shown, touched)), action=action, digest=digest)
        run.journal.record(run.clock.now(), noted)
    elif state.tampered is not None:
        undone = ev.EvidenceChanged(paths=state.tampered.paths, action="restored", digest=state.evidence)
        run.journal.record(run.clock.now(), undone)


async def answer_tampering(run: Run, *, crashed: bool = False) -> tuple[str, ...]:
    """Puts back what `on_tamper` says is put back, and records what of the evidence stays changed; what was put back.

    After a crash nobody knows who changed what cannot be put back: a person is asked.
    """
    workspace = run.workspace
    found = await asyncio.to_thread(workspace.touched)
    back: tuple[str, ...] = ()
    if run.on_tamper in {None, "restore"}:
        back = found.protected
    if run.on_tamper == "restore":
        back += workspace.copied(found.deciding)
    if back:
        await asyncio.to_thread(workspace.look)  # keeps what is replaced
        await asyncio.to_thread(workspace.put_back, back)
        restored = ev.EvidenceChanged(paths=tuple(map(shown, back)), action="restored")
        run.journal.record(run.clock.now(), restored)
    note_tampering(run, left(found, back), asks=crashed)
    return back


def left(found: Touched, back: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What stays changed when `back` is put back."""
    return tuple(path for path in (*found.protected, *found.deciding) if path not in back)


async def moved(run: Run) -> bool:
    """Whether the workspace is no longer what was judged. That is on record then, and its scores are void.

    Files that gates leave are their own and move nothing.
    """
    state = run.journal.state
    if not run.workspace.watched or state.current is None:
        return False
    run.fresh = None
    seen: Look = await asyncio.to_thread(run.workspace.look)
    touched = seen.evidence != expected(state)
    if not touched and not await asyncio.to_thread(run.workspace.moved, state.snapshot):
        run.gated = False
        return False
    if touched and state.tampered is not None:
        note_tampering(run, left(run.workspace.touched()))
        touched = False
    evidence = run.workspace.trust() if touched else None
    cause = _whose(run, seen)
    run.gated = False
    run.journal.record(
        run.clock.now(), ev.WorkspaceChanged(snapshot=seen.tree, evidence=evidence, cause=cause)
    )
    return True


async def follow(run: Run) -> None:
    """Makes the evidence what a person decided: trusted as it was shown, or put back as far as there are copies."""
    state, workspace = run.journal.state, run.workspace
    touched = state.tampered
    asked = run.on_tamper == "ask" or state.subject == "evidence"  # a person said so, not the loop
    if touched is not None and touched.action == "blocked" and asked:
        found = await asyncio.to_thread(workspace.touched)
        files = workspace.copied(left(found))
        if not files and found:  # only the agent or a person can undo the rest
            return
        run.fresh = None
        await asyncio.to_thread(workspace.look)  # keeps what is replaced
        back = await asyncio.to_thread(workspace.put_back, files)
        seen: Look = await asyncio.to_thread(workspace.look)
        run.journal.record(
            run.clock.now(),
            ev.EvidenceChanged(paths=back or touched.paths, action="restored", digest=state.evidence),
            ev.WorkspaceChanged(snapshot=seen.tree, cause="restored"),
        )
        if rest := left(found, files):
            kept = workspace.keep()
            blocked = ev.EvidenceChanged(paths=tuple(map(shown, rest)), action="blocked", digest=kept)
            run.journal.record(run.clock.now(), blocked)
        run.journal.flush()
    elif touched is None and state.evidence is not None and workspace.trusted != state.evidence:
        await asyncio.to_thread(workspace.remember, state.evidence)


def note_left_out(run: Run, paths: Sequence[str]) -> None:
    """Says which files are in no snapshot: nothing that loopwright does later can bring them back."""
    if paths:
        more = f" and {len(paths) - 10} more" if len(paths) > 10 else ""
        names = run.journal.redact.text(", ".join(map(shown, paths[:10])))
        run.tell(f"in no snapshot (secret-looking, large or a repository): {names}{more}")


async def seen(run: Run) -> Look:
    """The workspace as it is now; what changed in it while no attempt ran is on record then."""
    found = just_seen(run) or await look(run)
    note_changes(run, found)
    return found


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
        note_left_out(run, seen.left_out)
    elif state.tampered is not None and seen.evidence != expected(state):
        note_tampering(run, left(run.workspace.touched()))
        changed = ev.WorkspaceChanged(snapshot=seen.tree, cause="user")
    elif (seen.tree, seen.evidence) != (state.snapshot, expected(state)):
        evidence = state.evidence
        if state.tampered is None and (seen.evidence != evidence or not run.gated):
            evidence = run.workspace.trust()  # the user's new files too
        changed = ev.WorkspaceChanged(snapshot=seen.tree, evidence=evidence, cause=_whose(run, seen))
    else:
        return
    run.gated = False
    run.journal.record(run.clock.now(), changed)


def _whose(run: Run, seen: Look) -> Literal["gate", "user"]:
    """Who made the change: what gates left is theirs, and goes on record first where a person has gone on from it."""
    if not run.gated or run.left in {None, seen.tree}:
        return "gate" if run.gated else "user"
    if run.left != run.journal.state.snapshot:
        run.journal.record(run.clock.now(), ev.WorkspaceChanged(snapshot=run.left, cause="gate"))
    return "user"
