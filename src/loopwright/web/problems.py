"""What is answered when something cannot be done: problem+json (RFC 9457) for programs, a plain page for people.

Rule: a text says what happened and what to do; it never repeats what was sent, and never says how the inside looks.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode

from starlette.responses import Response
from starlette.types import Scope

MEDIA: Final = "application/problem+json"
PROGRAMS: Final = frozenset({"api", "hooks", "channels", "metrics", "health"})  # what people do not open


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a request was not done: the status, a sentence, further members of the document, and headers."""

    status: int
    detail: str
    more: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The status in words."""
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:
            return "Error"


Draw: TypeAlias = Callable[[Problem, Scope], Response]  # a problem of a request, as a page


class Trouble(Exception):
    """Raised where a request cannot be done; becomes its `problem` as a response."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self.problem = Problem(status=status, detail=detail, headers=headers or {}, more=more or {})
        super().__init__(detail)


def problem(told: Problem) -> Response:
    """The problem as a document (RFC 9457)."""
    body = {
        **told.more,
        "type": "about:blank",
        "title": told.title,
        "status": told.status,
        "detail": told.detail,
    }
    text = json.dumps(body, ensure_ascii=False)
    return Response(text, status_code=told.status, headers=dict(told.headers), media_type=MEDIA)


def sign_in(scope: Scope) -> str:
    """The form that takes a token and leads on to what was asked for."""
    query = urlencode(
        [each for each in parse_qsl(scope["query_string"].decode("latin-1")) if each[0] not in {"token", "k"}]
    )  # a key that did not open is carried nowhere
    path = quote(scope["path"], safe="/~") + (f"?{query}" if query else "")
    return (
        '<form method="post" action="/login"><p><label>Token <input name="token" type="password" '
        'autocomplete="current-password" required autofocus></label>\n'
        f'<input name="next" type="hidden" value="{html.escape(path if scope["method"] == "GET" else "/")}">'
        "<button>Sign in</button></p></form>\n"
    )


def answer(told: Problem, scope: Scope, draw: Draw) -> Response:
    """The problem in the form that whoever asks at this path reads."""
    first = scope["path"].lstrip("/").partition("/")[0]
    return problem(told) if first in PROGRAMS else draw(told, scope)
