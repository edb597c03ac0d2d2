"""Whether a loop can be served here: its hooks have their secrets, its channels can be opened and answered.

Rule: what would fail in the night is refused in the evening, with the place and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from loopwright.cards import Channel
from loopwright.errors import ConfigError
from loopwright.serving import heard, hooks, watches
from loopwright.serving.book import Served
from loopwright.unattended import Server


def problems(
    served: Served, loops: Iterable[Served], *, environ: Mapping[str, str], server: Server
) -> list[str]:
    """Why a loop must not be served with these others and these settings, a line each; nothing where it can be."""
    made = served.assembled
    channels = {channel.name: channel for channel in (*made.channels, *made.notify)}
    found = [
        *hooks.problems(served, environ, loops),
        *watches.problems(served),
        *heard.unheard(made, server_alive=True, public_url=server.public_url),
        *(why for channel in channels.values() for why in _unopened(channel, environ)),
    ]
    return [f"{served.file.name}: {why}" for why in found]


def _unopened(channel: Channel, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Why a channel cannot be opened: a secret that is missing, most often."""
    try:
        channel.open(environ)
    except ConfigError as error:
        return tuple(f"channel {channel.name}: {problem}" for problem in error.problems)
    return ()
