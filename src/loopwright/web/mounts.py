"""What other programs call that is no part of the API: events, channels, metrics, health.

Rule: what comes without a token is handed on as raw bytes, and is believed by its signature alone, elsewhere.
"""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse, Response

from loopwright.cards import Incoming
from loopwright.serving.hooks import received
from loopwright.web.asking import Behind
from loopwright.web.problems import Problem, problem


def mounts() -> APIRouter:
    """`/health`, `/metrics`, `/hooks/<name>`, `/channels/<name>`."""
    routes = APIRouter(include_in_schema=False)
    routes.add_api_route("/health", _health, methods=["GET", "HEAD"])
    routes.add_api_route("/metrics", _metrics, methods=["GET"])
    routes.add_api_route("/hooks/{name}", _hook, methods=["POST"])
    routes.add_api_route("/channels/{name}", _channel, methods=["POST"])
    return routes


async def _health() -> Response:
    """It answers; what it knows is for who has a token."""
    return PlainTextResponse("ok\n")


def _metrics(live: Behind) -> Response:
    return Response(live.metrics(), headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})


async def _hook(live: Behind, name: str, request: Request) -> Response:
    headers, body = _headers(request), await request.body()
    status, told = await run_in_threadpool(received, live, name, headers, body, datetime.now(UTC))
    if status >= 400:
        return problem(Problem(status=status, detail=str(told["why"])))
    return JSONResponse(told, status_code=status)


async def _channel(live: Behind, name: str, request: Request) -> Response:
    said = Incoming(headers=_headers(request), body=await request.body(), now=datetime.now(UTC))
    reply = await live.hear(name, said)
    return Response(reply.body, status_code=reply.status, headers={"content-type": reply.media})


def _headers(request: Request) -> dict[str, str]:
    """By lower-case name; of one that was sent twice nothing, so that nobody reads another than was signed."""
    names = [name.lower() for name in request.headers]
    return {name: request.headers[name] for name in names if names.count(name) == 1}
