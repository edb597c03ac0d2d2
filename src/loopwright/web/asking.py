"""Who asks through the API, and the server they ask: what its routes are given.

Rule: taken from what the door wrote down, never from what was sent.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import Depends, Request

from loopwright.serving.live import Live


def _live(request: Request) -> Live:
    return cast("Live", request.app.state.live)


def _who(request: Request) -> str:
    return str(request.state.who)


Behind = Annotated[Live, Depends(_live)]
Who = Annotated[str, Depends(_who)]


def because(**why: str) -> dict[int | str, dict[str, Any]]:
    """What the statuses of an operation mean that not every one has: `because(_409="…")`."""
    return {int(status.lstrip("_")): {"description": text} for status, text in why.items()}
