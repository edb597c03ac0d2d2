"""The loops of a server, and starting them, as the API has it.

Rule: a start is on record when it is answered, whoever works on it and when.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path

from loopwright import codec
from loopwright.errors import StoreError, UsageError
from loopwright.serving.book import Served
from loopwright.unattended import Trigger
from loopwright.web import shapes
from loopwright.web.api_changes import Key
from loopwright.web.asking import Behind, Who, because
from loopwright.web.problems import Trouble

routes = APIRouter(tags=["loops"])
_USUAL: Final[dict[str, Any]] = codec.plain(Trigger())


@routes.get("/loops", responses=because())
def loops(live: Behind) -> shapes.Loops:
    """The loops this server knows, and what is wrong with files that say none."""
    book = live.book
    told = [_loop(served, _shown(served.file, live.project)) for _, served in sorted(book.loops.items())]
    problems = {_shown(file, live.project): why for file, why in book.problems.items()}
    return shapes.Loops(loops=told, problems=problems)


def _shown(file: FilePath, project: FilePath) -> str:
    return str(file.relative_to(project)) if file.is_relative_to(project) else str(file)


def _loop(served: Served, file: str) -> shapes.Loop:
    made = served.assembled
    return shapes.Loop(
        name=served.name,
        file=file,
        goal=served.loop.goal,
        agent=made.agent.name,
        workspace=made.mode,
        gates=[shapes.LoopGate(name=gate.name, required=gate.rule.required) for gate in made.gates],
        triggers=[_said(codec.plain(trigger)) for trigger in served.triggers],
        problem=served.problem or None,
    )


def _said(trigger: dict[str, Any]) -> dict[str, Any]:
    """What a trigger says beside what is usual."""
    return {word: value for word, value in trigger.items() if value != _USUAL[word]}


@routes.post(
    "/loops/{name}/start",
    status_code=202,
    responses=because(
        _404="This server knows no such loop.",
        _409="It cannot be started as it is; `detail` says why.",
    ),
)
def start(
    live: Behind,
    who: Who,
    name: Annotated[str, Path(max_length=200)],
    body: shapes.Starting | None = None,
    key: Key = None,
) -> shapes.Started:
    """Starts a run; with a key (in the body, or as Idempotency-Key) the one that was started with it, if any."""
    if name not in live.book.loops:
        raise Trouble(404, "this server knows no loop of that name")
    said = (body.key if body is not None else None) or key
    try:
        run, begun = live.begin(name, origin=f"page: {who}", key=said)
    except StoreError:
        raise
    except UsageError as error:
        raise Trouble(409, str(error)) from None
    return shapes.Started(run=run, begun=begun)
