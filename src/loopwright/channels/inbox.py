"""The inbox: the page of a server and `loopwright approvals`. It needs nobody to send anything.

Rule: a request stands there because it is on record, so there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping

from loopwright.cards import Card, Channel


class _Inbox:
    async def show(self, card: Card, ref: str | None) -> str:  # noqa: ARG002 - the shape of a channel
        return "page"


def inbox() -> Channel:
    """The channel that is always there."""

    def opened(environ: Mapping[str, str]) -> _Inbox:  # noqa: ARG001 - the same
        return _Inbox()

    return Channel(name="inbox", open=opened, remote=False)
