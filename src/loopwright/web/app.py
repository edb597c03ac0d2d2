"""The page and the API as one application, behind one door.

Rule: it reads journals and writes signals through stores of its own, and owns no state: what it says is what is on
record.
"""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from loopwright.errors import Corrupt, Locked, LoopwrightError, StoreError, UsageError
from loopwright.serving.live import Live
from loopwright.web import api, letters, pages
from loopwright.web.address import Address
from loopwright.web.agents import forbid
from loopwright.web.bounds import Bounds, Streams
from loopwright.web.mounts import mounts
from loopwright.web.problems import Draw, Problem, Trouble, answer
from loopwright.web.security import Door
from loopwright.web.tokens import Tokens, people_of

OPENAPI: Final = f"{api.ROOT}/openapi.json"
_WORDS: Final = {404: "there is nothing at this address", 405: "this address is not asked so: Allow says how"}
FAULT: Final = "this is a fault of loopwright; the server's log says more"


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
        generate_unique_id_function=lambda route: route.name.strip("_"),
    )
    app.openapi = lambda: api.described(app)  # type: ignore[method-assign] # as FastAPI has it done
    app.state.live, app.state.address = live, address
    app.state.tokens = Tokens(live.project / ".agent-state", lambda: people_of(live.server, live.environ))
    app.state.streams = Streams(bounds.streams)
    app.include_router(mounts())
    app.include_router(api.router())
    app.include_router(pages.router(live))
    _tell_problems(app, pages.draw_problem)
    app.add_middleware(
        Door,
        address=address,
        tokens=app.state.tokens,
        streams=app.state.streams,
        bounds=bounds,
        draw=pages.draw_problem,
        forbid=lambda scope, person: forbid(live, scope, person),
        holds=lambda letter: letters.holds(live, letter),
        open_files=pages.OPEN,
    )
    return app


def _tell_problems(app: FastAPI, draw: Draw) -> None:
    """Whatever is raised in a route is told to whoever asked, in their form."""

    async def refuse(request: Request, error: Exception) -> Response:
        return answer(_problem_of(error), request.scope, draw)

    for kind in (HTTPException, RequestValidationError, Trouble, LoopwrightError):
        app.add_exception_handler(kind, refuse)


def _problem_of(error: Exception) -> Problem:
    """What a person is told of an error."""
    match error:
        case Trouble(problem=problem):
            return problem
        case HTTPException(status_code=status, detail=detail, headers=headers):
            return Problem(status=status, detail=_WORDS.get(status, str(detail)), headers=headers or {})
        case RequestValidationError():
            wrong = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:20])
            return Problem(status=422, detail="; ".join(wrong)[:2000])
        case UsageError():
            return Problem(status=422, detail=str(error))
        case Locked():
            return Problem(status=409, detail=str(error), headers={"retry-after": "2"})
        case Corrupt():  # later it is no better
            return Problem(status=503, detail=str(error))
        case StoreError():
            return Problem(status=503, detail=str(error), headers={"retry-after": "5"})
        case _:
            return Problem(status=500, detail=FAULT if not isinstance(error, LoopwrightError) else str(error))
