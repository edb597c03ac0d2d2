"""A rehearsal of a run: its iteration 0 on the workspace as it is, and nothing of it kept.

Rule: it is the run itself, taken and driven as any other, up to where an agent or a person would come in. Its
journal is in memory and its files are in a folder that is removed; in the project only gates write.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from loopwright.assembled import Assembled, assemble
from loopwright.core import events as ev
from loopwright.core.head import exit_code
from loopwright.core.policy import Policy
from loopwright.core.state import LoopState
from loopwright.core.values import Score
from loopwright.hosts import apart, environment, opening
from loopwright.hosts.local import start
from loopwright.hosts.ways import Ways
from loopwright.journal import history
from loopwright.loop import Loop
from loopwright.stores.memory import MemoryStore
from loopwright.supervise import child_environment

RUN: Final = "dry-run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What iteration 0 of a run would say just now: the scores, and the state it would leave.

    `programs` says what agent and gates would run as, `withheld` what they would not see, `bounds` and `spec` what
    would bind the run; `notes` is what a person would be told.
    """

    project: Path
    mode: str
    state: LoopState
    scores: Mapping[str, Score]
    programs: tuple[tuple[str, str], ...]
    bounds: str
    spec: Mapping[str, Any]
    withheld: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def judged(self) -> bool:
        """Whether the gates have said something."""
        return self.state.zero is not None

    @property
    def exit_code(self) -> int:
        """0 when it could be done, whatever the verdict; else that of the run, which would end here."""
        return (exit_code(self.state) or 0) if self.state.finished is not None else 0


async def rehearse(loop: Loop, ways: Ways) -> Rehearsal:
    """Judges the project folder as it is, once, without agent or record.

    Raises what `start` raises: `ConfigError` for what cannot be started, `Locked` while a run works there.
    """
    assembled = assemble(loop, project=ways.project, path=ways.environ.get("PATH", ""))
    apart.check(assembled, ways)
    notes = [*_notes(assembled)]
    whole = environment.without_secrets(replace(assembled, **_here(assembled)), ways)
    redact = environment.redacting(whole, ways)
    notes += [line.strip() for line in opening.asked_with(whole.loop, None)]
    notes += environment.written_secrets(whole.loop, redact)
    programs = [redact.text(line) for line in environment.probe(whole, ways)]
    store = MemoryStore()
    with tempfile.TemporaryDirectory(prefix="loopwright-") as scratch:
        held = await start(
            whole, RUN, replace(ways, store=store, scratch=Path(scratch), origin=RUN, tell=notes.append)
        )
    return Rehearsal(
        project=ways.project,
        mode=assembled.mode,
        state=held.state,
        scores={
            event.gate: event.score
            for _, _, event, _ in history(store, RUN)
            if isinstance(event, ev.GateScored)
        },
        programs=tuple((who, command) for who, _, command in (line.partition(": ") for line in programs)),
        bounds=opening.bounds(whole.policy.limits),
        spec=whole.loop.spec(),
        withheld=child_environment(ways.environ, allow=environment.allowed(whole))[1],
        notes=tuple(notes),
    )


def _here(assembled: Assembled) -> dict[str, Any]:
    """The same loop as it judges the project folder itself: before any work, whatever the run would do there."""
    policy: Policy = assembled.policy
    if apart.is_apart(assembled.mode):
        return {"mode": "in_place", "policy": replace(policy, baseline=True)}
    return {"policy": replace(policy, baseline=policy.baseline or assembled.mode != "none")}


def _notes(assembled: Assembled) -> list[str]:
    """Where the run itself would go about it in another way."""
    notes = []
    if apart.is_apart(assembled.mode):
        notes.append(
            f"the run would work in a folder of its own ({assembled.mode}); this judges the project folder as it is"
        )
    if not assembled.policy.baseline:
        notes.append(
            "without a workspace the gates judge what the agent returns: there is nothing to judge before it"
            if assembled.mode == "none"
            else "the run would not judge before any work (--no-baseline)"
        )
    return notes
