"""The API's reading side: runs, their scores, facts, iterations, diffs; what waits for people.

Rule: it changes nothing. Every list is a page; what agents and gates wrote is text, and never more.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi import Path as InPath
from starlette.responses import Response

from loopwright import codec, units
from loopwright.core.head import health
from loopwright.errors import UsageError
from loopwright.hosts import people
from loopwright.ports import Store
from loopwright.report import inbox, rows
from loopwright.serving.live import Live
from loopwright.web import reading, shapes
from loopwright.web.asking import Behind, because
from loopwright.web.printed import printed
from loopwright.web.problems import Trouble
from loopwright.workspace.opened import open_workspace, shown

routes = APIRouter(tags=["runs"])
LOG: Final = 4_000_000  # bytes of a log, its end
_NO_RUN: Final = "There is no such run."
_NO_IT: Final = "There is no such run, iteration, or no such thing was kept of it."
_TEXT: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "A file to keep.", "content": {"text/plain": {"schema": {"type": "string"}}}},
    **because(_404=_NO_IT),
}
RunId = Annotated[str, InPath(description="The id of a run, whole.")]
Number = Annotated[int, InPath(ge=0, le=1_000_000_000, description="0 is the baseline.")]
After = Annotated[int, Query(ge=-1, le=1_000_000_000)]


@routes.get("/runs", responses=because())
def runs(
    live: Behind,
    active: Annotated[
        bool | None, Query(description="Only runs that are not over, or only those that are.")
    ] = None,
    since: Annotated[
        str | None, Query(max_length=40, description="With news in the last so much: `12h`.")
    ] = None,
    loop: Annotated[str | None, Query(max_length=200, description="Of the loop of this name.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=400, description="`next` of the page before.")] = None,
) -> shapes.Heads:
    """Runs, those with the latest news first."""
    behind = None if cursor is None else reading.placed(cursor)
    since_s = None if since is None else _seconds(since)
    damaged: list[str] = []
    with live.stores() as store:
        found = reading.heads(store, active=active, since_s=since_s, loop=loop, damaged=damaged)
        rest = [row for row in found if behind is None or reading.place(row) < behind]
        page = rest[:limit]
        more = reading.cursor(page[-1]) if len(rest) > limit else None
        told = [_with_next(store, row) for row in page]
    return shapes.Heads.model_validate({"runs": told, "next": more, "damaged": damaged[:100]})


def _with_next(store: Store, row: dict[str, Any]) -> dict[str, Any]:
    """A head with what to type next where nobody drives its run."""
    return (
        row
        if row["exit_code"] is not None
        else {**row, "next": reading.head_of(reading.known(store, row["run"]))["next"]}
    )


def _seconds(text: str) -> float:
    try:
        return units.seconds(text)
    except ValueError:
        raise Trouble(422, 'since: write "90s", "30m", "12h", "1d"') from None


@routes.get("/runs/{run}", responses=because(_404=_NO_RUN))
def run(live: Behind, run: RunId) -> shapes.Run:
    """Where a run stands, what its loop says, and what is asked."""
    with live.stores() as store:
        state = reading.known(store, run)
    asked = people.view(state)
    limits = {**(state.spec.get("limits") or {}), **state.limits}
    return shapes.Run.model_validate(
        {
            **reading.head_of(state),
            "loop": state.spec.get("name"),
            "origin": state.origin,
            "labels": dict(state.labels),
            "limits": {name: value for name, value in limits.items() if value is not None},
            "working": run in live.working,
            "problem": live.problems.get(run),
            "asked": None if asked is None else codec.plain(asked),
        }
    )


@routes.get("/runs/{run}/gates", responses=because(_404=_NO_RUN))
def gates(
    live: Behind, run: RunId, after: After = -1, limit: Annotated[int, Query(ge=1, le=500)] = 50
) -> shapes.Gates:
    """The scores of at most `limit` iterations after iteration `after`."""
    found: list[dict[str, Any]] = []
    more, many, last = None, 0, after
    with live.stores() as store:
        reading.known(store, run)
        for row in rows.rows(store, run):
            if row.number <= after:
                continue
            if many == limit:
                more = last
                break
            many, last = many + 1, row.number
            found += rows.of_row(row)
    return shapes.Gates.model_validate({"gates": found, "next": more})


@routes.get("/runs/{run}/events", responses=because(_404=_NO_RUN))
def events(
    live: Behind, run: RunId, after: After = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> shapes.Facts:
    """Facts on record, of the commits after number `after`; whole commits, so there may be a few more than `limit`."""
    with live.stores() as store:
        reading.known(store, run)
        told = [fact for commit in reading.facts(store, run, max(0, after), limit) for fact in commit]
    more = told[-1]["n"] if len(told) >= limit else None
    return shapes.Facts.model_validate({"events": told, "next": more})


@routes.get("/runs/{run}/health", responses=because(_404=_NO_RUN))
def health_(live: Behind, run: RunId) -> shapes.Health:
    """Whether the loop is well."""
    with live.stores() as store:
        return shapes.Health.model_validate(health(reading.known(store, run)))


@routes.get("/runs/{run}/iterations/{number}", responses=because(_404=_NO_IT))
def iteration(live: Behind, run: RunId, number: Number) -> shapes.Iteration:
    """One iteration: its scores, what it cost, what became of it."""
    with live.stores() as store:
        reading.known(store, run)
        try:
            return shapes.Iteration.model_validate(rows.one(store, run, number))
        except UsageError as error:
            raise Trouble(404, str(error)) from None


@routes.get("/runs/{run}/iterations/{number}/diff", responses=because(_404=_NO_IT))
def diff(live: Behind, run: RunId, number: Number) -> shapes.Diff:
    """What an iteration changed."""
    return shapes.Diff.model_validate(_diff(live, run, number))


@routes.get("/runs/{run}/iterations/{number}/patch", responses=_TEXT, response_class=Response)
def patch(live: Behind, run: RunId, number: Number) -> Response:
    """What an iteration changed, as a file."""
    return _kept(str(_diff(live, run, number)["text"]).encode(errors="replace"), f"{run}-{number}.patch")


@routes.get("/runs/{run}/iterations/{number}/log", responses=_TEXT, response_class=Response)
def log(live: Behind, run: RunId, number: Number) -> Response:
    """What the agent printed in the last attempt of an iteration, as a file; of a long log the end."""
    with live.stores() as store:
        reading.known(store, run)
        clean = people.redacting(store, run, live.environ)
    found = printed(live.project, run, number, most=LOG, redact=clean)
    if found is None:
        raise Trouble(404, "no log was kept of it")
    return _kept(found.text.encode(errors="replace"), f"{run}-{number}.log")


def _diff(live: Live, run: str, number: int) -> dict[str, Any]:
    with live.stores() as store:
        reading.known(store, run)
        try:
            old, new = rows.snapshot_of(store, run, number)
        except UsageError as error:
            raise Trouble(404, str(error)) from None
        clean = people.redacting(store, run, live.environ)
    if old is None or new is None:
        raise Trouble(404, "this run kept no snapshots; they need git and a workspace")
    found = open_workspace("in_place", live.project, live.project / ".agent-state", run).diff(old, new)
    if found is None:
        raise Trouble(404, "the snapshots of this run cannot be read: is git on PATH?")
    return {
        "from": old,
        "to": new,
        "files": [shown(each.path) for each in found.files],
        "lines": found.lines,
        "text": clean.text(found.text),
    }


def _kept(body: bytes, name: str) -> Response:
    """A file that a browser keeps and never shows: whatever it holds, it is text."""
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(body, media_type="text/plain; charset=utf-8", headers=headers)


@routes.get("/approvals", responses=because(), tags=["approvals"])
def approvals(
    live: Behind,
    every: Annotated[bool, Query(alias="all", description="Answered and expired requests too.")] = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> shapes.Requests:
    """What waits for a person, in all runs."""
    now = datetime.now(UTC)
    with live.stores() as store:
        found, damaged = people.inbox(store, every=every)
        told = [inbox.row(store, state, asked, now) for state, asked in found[:limit]]
    left = max(0, len(found) - limit)
    return shapes.Requests.model_validate({"approvals": told, "left_out": left, "damaged": damaged[:100]})
