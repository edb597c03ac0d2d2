"""What a channel looks like, and the card that it shows. Read this page to add one.

Rule: protocols and plain values only, as in `ports`. A factory (one file, one function) returns a `Channel`; its
keyword-only parameters are its options in a loop file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias

from loopwright.core.showing import Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """How a request ended: `answer` is approve, revise, reject, expired or withdrawn; `why` an override's reason."""

    answer: str
    by: str = ""
    channel: str = ""
    at: datetime | None = None
    note: str = ""
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What every channel shows of a request, or of news, each drawn in its own way: without secrets, bounded.

    `about` says why it is sent. `shown` and `approval` are there for a request alone. `head` is the run document.
    `required` names the gates that must pass (`None` where nobody says).
    `files added removed` and `patch` are what changed since the run began (`None` where nobody knows; `cut`: not the
    whole patch). `link` is the page of it, where a server has a public address. `decided` and `superseded` are how the
    request ended, `unreached` the channels that could not be reached.
    """

    run: str
    loop: str
    about: Literal["needs_you", "failed", "finished", "alert"]
    title: str
    head: Mapping[str, Any]
    shown: Shown | None = None
    approval: str | None = None
    required: tuple[str, ...] | None = None
    files: int | None = None
    added: int = 0
    removed: int = 0
    patch: str = ""
    cut: bool = False
    link: str | None = None
    decided: Decided | None = None
    superseded: bool = False
    unreached: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a person said through a channel, of a request by its id; `by` is who they are there."""

    run: str
    approval: str
    answer: Literal["approve", "revise", "reject"]
    by: str
    note: str = ""
    override: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What becomes of it, for the person: `recorded` stands now, `again` stood already, the rest was not taken."""

    word: Literal["recorded", "again", "conflict", "late", "stale", "nothing", "refused", "unknown"]
    text: str


Answer: TypeAlias = Callable[[Answered], Awaitable[Told]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A POST to `/channels/<name>` as it came: nothing of it is believed yet. `headers` by lower-case name."""

    headers: Mapping[str, str]
    body: bytes
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What it is answered. 401 where it is not signed as it should be."""

    status: int
    body: bytes = b""
    media: str = "application/json"


class Line(Protocol):
    """A channel that is open."""

    async def show(self, card: Card, ref: str | None) -> str:
        """Sends the card, or brings what was sent as `ref` up to date; where it now stands. `Undelivered` if not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """How requests and news reach people, and decisions come back.

    `secrets` are the environment variables it cannot be without, the first the one that answers are believed by. `open` gets them with the environment and raises
    `ConfigError` for what it cannot be opened with. `hear` reads a POST to `/channels/<name>`, `listen` hears by itself
    until it is cancelled; a channel with neither only tells. `remote`: what it sends is answered somewhere else than
    here, so somebody must listen; `linked`: on the page or by what its service posts here, which needs a public address.
    """

    name: str
    open: Callable[[Mapping[str, str]], Line]
    secrets: tuple[str, ...] = ()
    remote: bool = True
    linked: bool = False
    hear: Callable[[Incoming, Mapping[str, str], Answer], Awaitable[Reply]] | None = None
    listen: Callable[[Mapping[str, str], Answer], Awaitable[None]] | None = None
