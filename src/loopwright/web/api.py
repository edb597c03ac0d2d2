"""The JSON API under /api/v1: the same facts as the command line, and the same answers.

Rule: every status an operation can end with stands in its description; whatever went wrong is a problem document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

from loopwright.web import api_changes, api_loops, api_runs
from loopwright.web.problems import MEDIA
from loopwright.web.shapes import Problem

ROOT: Final = "/api/v1"
ALWAYS: Final = {
    400: "The request cannot be read.",
    401: "No token, or one that is not known (any more).",
    403: "This person may only look; or a browser asks for another site.",
    413: "More than a megabyte.",
    421: "The Host header names no server of ours.",
    422: "A parameter or a body that says something else than is described; `detail` says what.",
    429: "Too many wrong tokens of one address, or changes of one person, in a minute.",
    431: "More than 32 KiB of headers.",
    500: "A fault of loopwright; the server's log says more.",
    503: "The store cannot be read or written just now, or too much is open.",
}
CHANGING: Final = {
    408: "The body was not whole in time.",
    415: "The body does not say that it is JSON.",
}


def router() -> APIRouter:
    """Every operation of the API."""
    routes = APIRouter(prefix=ROOT)
    for part in (api_runs.routes, api_changes.routes, api_loops.routes):
        routes.include_router(part)
    return routes


def described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the API, with the problems that every operation may end with."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    made = get_openapi(
        title="loopwright",
        version="1",
        summary="Runs, requests to people, and loops of one server.",
        routes=app.routes,
    )
    for path in made["paths"].values():
        for method, operation in path.items():
            _with_problems(operation["responses"], changing=method != "get")
    parts = made["components"]
    parts["schemas"]["Problem"] = Problem.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        parts["schemas"].pop(unused, None)
    parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    made["security"] = [{"token": []}]
    app.openapi_schema = made
    return made


def _with_problems(responses: dict[str, Any], *, changing: bool) -> None:
    words: Mapping[int, str] = {**ALWAYS, **(CHANGING if changing else {})}
    for status, why in words.items():
        said = responses.get(str(status), {})
        told = said["description"] if said and status != 422 else why
        responses[str(status)] = {"description": told}
    for said_status, response in responses.items():
        if int(said_status) >= 400:
            response["content"] = {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}
