"""What an error of an HTTP client means, whichever a function uses: urllib, httpx, requests, openai, anthropic and such.

Rule: the structured fields of the answer decide: status, Retry-After, the type, code and message of its error. Reading
them is bounded in bytes and in time and never holds up the event loop; no client is imported to look.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from loopwright.agents.failures import Failure, classify
from loopwright.calling import Threads
from loopwright.prompt import clean, fit

BODY_BYTES: Final = 8192
WORDS_BYTES: Final = 1000
READING_S: Final = 5.0
DEEPEST: Final = 8
GONE: Final = frozenset({404, 405, 410})  # the same request meets the same
_WAITS: Final = ("retry-after-ms", "retry-after")


async def failure(error: BaseException) -> Failure | None:
    """What the server refused and why; `None` for an error without a status from 400 to 599.

    Where no rule knows it, a 404 is permanent, from 500 on it is transient, and else unknown.
    """
    status = _status(error)
    if status is None:
        return None
    words = await Threads(_words).call(error, timeout_s=READING_S, grace_s=0.0)
    told = " ".join(clean(words).split()) if isinstance(words, str) else ""
    line = "; ".join(part for part in (f"HTTP {status}", *_waits(error), told) if part)
    found = classify(line, datetime.now().astimezone())
    if found.kind != "unknown" or (status < 500 and status not in GONE):
        return found
    return Failure("transient" if status >= 500 else "permanent", found.message, found.retry_after_s)


def passing(error: BaseException) -> bool:
    """Whether it is a fault of the way to a server: no connection, a cut one, a name that is not found, too late."""
    from http.client import HTTPException
    from socket import gaierror

    passes = (TimeoutError, ConnectionError, HTTPException, gaierror)
    return any(isinstance(each, passes) for each in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it wraps or was raised from, eight at most."""
    each: object = error
    for _ in range(DEEPEST):
        if not isinstance(each, BaseException):
            return
        yield each
        wrapped = (*each.args[:2], _field(each, "reason"), each.__cause__)
        each = next((inner for inner in wrapped if isinstance(inner, BaseException)), None)


def _field(value: object, name: str) -> Any:
    """A field of somebody's object, `None` where it has none or cannot give it."""
    with suppress(Exception):
        return getattr(value, name, None)
    return None


def _status(error: BaseException) -> int | None:
    from urllib.error import HTTPError

    response = _field(error, "response")
    found = (
        error.code if isinstance(error, HTTPError) else None,
        *(_field(each, name) for each in (error, response) for name in ("status_code", "status")),
    )
    return next((code for code in found if isinstance(code, int) and 400 <= code <= 599), None)


def _waits(error: BaseException) -> list[str]:
    """The headers that say how long to wait, as our patterns read them."""
    headers = _field(error, "headers") or _field(_field(error, "response"), "headers")
    found = []
    for name in _WAITS:
        with suppress(Exception):
            if value := headers.get(name) or headers.get(name.title()):
                found.append(f"{name}: {' '.join(str(value)[:60].split())}")
    return found


def _words(error: BaseException) -> str:
    """What the answer says of the error: its fields where it is JSON, else its beginning. May wait for the network."""
    from urllib.error import HTTPError

    if isinstance(error, HTTPError):
        body: Any = error.read(BODY_BYTES).decode(errors="replace")
    else:
        body = _field(error, "body") or _field(_field(error, "response"), "text") or str(error)
    if isinstance(body, str):
        with suppress(ValueError, RecursionError):
            body = json.loads(body)
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return fit(str(body), WORDS_BYTES)
    inner = body.get("error", body)
    if not isinstance(inner, dict):
        return fit(str(inner), WORDS_BYTES)
    told = (inner.get(name) for name in ("type", "status", "code", "message", "detail"))
    return fit(" · ".join(str(value) for value in told if isinstance(value, str | int)), WORDS_BYTES)
