"""The page and the API as one application, behind one door.

Rule: it reads journals and writes signals through stores of its own, and owns no state: what it says is what is on
record.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from loopwright.cards import Incoming, Reply
from loopwright.errors import StoreError, UsageError
from loopwright.ports import Store
from loopwright.serving.book import Book
from loopwright.unattended import Server
from loopwright.web.address import Address
from loopwright.web.problems import Problem, Trouble, answer, plain_page
from loopwright.web.security import Bounds, Door, Streams
from loopwright.web.tokens import Tokens, people_of

OPENAPI: Final = "/api/v1/openapi.json"


class Live(Protocol):
    """The server behind the page, as far as the page and the API use it."""

    @property
    def project(self) -> Path:
        """The project folder."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The server's environment."""

    @property
    def book(self) -> Book:
        """The loops it knows."""

    @property
    def server(self) -> Server:
        """What `[server]` says now."""

    @property
    def problems(self) -> Mapping[str, str]:
        """Runs that cannot be taken up, and why."""

    @property
    def working(self) -> frozenset[str]:
        """Runs that are driven here just now."""

    def stores(self) -> AbstractContextManager[Store]:
        """A store for the calling thread."""

    def begin(
        self, loop: str, *, origin: str, key: str | None = None, labels: Mapping[str, str] | None = None
    ) -> str:
        """The id of a run of this loop, begun now or earlier with the same key."""

    def reopen(self, run: str, *, by: str, add: Mapping[str, float], note: str | None) -> None:
        """Lets a run that is over, paused or expired go on."""

    def nudge(self) -> None:
        """Looks soon at what was signalled."""

    def metrics(self) -> bytes:
        """What Prometheus reads."""

    async def hear(self, name: str, incoming: Incoming) -> Reply:
        """What a channel answers to a request of its service."""


def create(live: Live, *, address: Address | None = None, bounds: Bounds | None = None) -> FastAPI:
    """The application for a server that listens at `address` (by default what `[server]` says).

    Its `state` has `live`, `address`, `tokens` and `streams`; of a request, `request.state.who` and `.role` say who asks.
    """
    server = live.server
    address = address or Address(host=server.host, port=server.port, public_url=server.public_url)
    bounds = bounds or Bounds()
    app = FastAPI(
        title="loopwright",
        version="1",
        openapi_url=OPENAPI,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.live, app.state.address = live, address
    app.state.tokens = Tokens(live.project / ".agent-state", lambda: people_of(live.server, live.environ))
    app.state.streams = Streams(bounds.streams)
    pages = _pages()
    draw = getattr(pages, "draw_problem", plain_page)

    async def refuse(request: Request, error: Exception) -> Response:
        return answer(_problem_of(error), request.scope, draw)

    for kind in (HTTPException, RequestValidationError, Trouble, UsageError, StoreError):
        app.add_exception_handler(kind, refuse)
    _mount(app, live)
    if pages is not None:
        app.include_router(pages.router(live))
    app.add_middleware(
        Door,
        address=address,
        tokens=app.state.tokens,
        streams=app.state.streams,
        bounds=bounds,
        draw=draw,
        forbid=lambda scope, person: None,  # noqa: ARG005 - not yet
        open_files=frozenset(getattr(pages, "OPEN", ())),
    )
    return app


def _pages() -> Any:
    """The pages for people, once there are any."""
    name = "loopwright.web.pages"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def _mount(app: FastAPI, live: Live) -> None:
    """What is no page and no part of the API."""

    @app.api_route("/health", methods=["GET", "HEAD"], include_in_schema=False)
    async def health() -> Response:
        return PlainTextResponse("ok\n")

    @app.post("/channels/{name}", include_in_schema=False)
    async def channel(name: str, request: Request) -> Response:
        headers = {key.lower(): value for key, value in request.headers.items()}
        said = Incoming(headers=headers, body=await request.body(), now=datetime.now(UTC))
        reply = await live.hear(name, said)
        return Response(reply.body, status_code=reply.status, media_type=reply.media)


def _problem_of(error: Exception) -> Problem:
    """What a person is told of an error."""
    match error:
        case Trouble(problem=problem):
            return problem
        case HTTPException(status_code=status, detail=detail, headers=headers):
            return Problem(status=status, detail=str(detail), headers=headers or {})
        case RequestValidationError():
            wrong = [
                f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}"
                for each in error.errors()[:20]
            ]
            return Problem(status=422, detail="; ".join(wrong))
        case UsageError():
            return Problem(status=422, detail=str(error))
        case StoreError():
            return Problem(status=503, detail=str(error), headers={"retry-after": "5"})
        case _:
            return Problem(status=500, detail="this is a fault of loopwright; the server's log says more")
