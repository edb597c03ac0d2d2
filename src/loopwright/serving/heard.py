"""Whether the channels of a loop can work where it is to run: who sends, and how answers come back.

Rule: what can never reach anybody is refused before a run begins; what only tells is allowed, and said.
"""

from __future__ import annotations

from typing import Final

from loopwright.assembled import Assembled
from loopwright.cards import Channel
from loopwright.hosts.environment import allowed
from loopwright.ports import Store
from loopwright.serving.post import LEADER

PROBE_S: Final = 1.0


def server_alive(store: Store, me: str) -> bool:
    """Whether a server of this store sends just now."""
    lease = store.lease(LEADER, me, PROBE_S)
    if lease is None:
        return True
    lease.release()
    return False


def unheard(assembled: Assembled, *, server_alive: bool, public_url: str | None) -> list[str]:
    """Why channels of this loop cannot work here, a line each; nothing where all can."""
    told = []
    remote = [channel.name for channel in assembled.channels if channel.remote]
    if remote and not server_alive:
        told.append(
            f"approval.channels: {_and(remote)} {_needs(remote)} a server that sends, and none runs here: "
            "start one in this folder (loopwright serve), or leave that out"
        )
    told += [
        f"approval.channels: {name}, the secret of {channel.name}, is in env, which shows it to agents: "
        "they could decide with it"
        for channel in assembled.channels
        for name in channel.secrets
        if name in allowed(assembled)
    ]
    if public_url is None:
        told += [
            f"approval.channels: nobody could answer on {channel.name}: it comes back as a request to this server, "
            "which needs its address: say [server] public_url"
            for channel in assembled.channels
            if _clicked(channel)
        ]
    return told


def only_told(assembled: Assembled, *, server_alive: bool, public_url: str | None) -> list[str]:
    """What a person must know of channels that work in part, a line each: no answers there, no news without a server."""
    told = []
    silent = [
        channel.name
        for channel in assembled.channels
        if channel.remote
        and not _answers(channel, public_url)
        and not (_clicked(channel) and public_url is None)
    ]
    if silent:
        told.append(f"{_and(silent)}: no answers there; answer with loopwright approve, revise, reject")
    news = [channel.name for channel in assembled.notify if channel.remote]
    if news and not server_alive:
        told.append(f"notify.to: nothing goes to {_and(news)} before a server runs here (loopwright serve)")
    return told


def _clicked(channel: Channel) -> bool:
    """Whether its answers are clicks that another company posts to this server."""
    return channel.remote and channel.linked and channel.hear is not None and channel.listen is None


def _answers(channel: Channel, public_url: str | None) -> bool:
    """Whether an answer can be given on or through it."""
    if channel.listen is not None or (channel.hear is not None and not channel.linked):
        return True
    return channel.linked and public_url is not None


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _needs(names: list[str]) -> str:
    return "needs" if len(names) == 1 else "need"
