"""The server behind the page and the API, as far as these use it.

Rule: what is asked of it may be asked from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from loopwright.cards import Incoming, Reply
from loopwright.core.state import LoopState
from loopwright.ports import Store
from loopwright.serving.book import Book
from loopwright.unattended import Server


class Live(Protocol):
    """The server behind the page, as far as the page and the API use it."""

    @property
    def project(self) -> Path:
        """The project folder."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The server's environment."""

    @property
    def book(self) -> Book:
        """The loops it knows."""

    @property
    def server(self) -> Server:
        """What `[server]` says now."""

    @property
    def problems(self) -> Mapping[str, str]:
        """Runs that cannot be taken up, and why."""

    @property
    def working(self) -> frozenset[str]:
        """Runs that are driven here just now."""

    def stores(self) -> AbstractContextManager[Store]:
        """A store for the calling thread."""

    def begin(
        self, loop: str, *, origin: str, key: str | None = None, labels: Mapping[str, str] | None = None
    ) -> tuple[str, bool]:
        """The id of a run of this loop, and whether it was begun now: the same key, the same run."""

    def reopen(
        self, run: str, *, by: str, add: Mapping[str, float] | None = None, note: str | None = None
    ) -> LoopState:
        """Lets a run that is over, paused or expired go on."""

    def nudge(self) -> None:
        """Looks soon at what was signalled."""

    def metrics(self) -> bytes:
        """What Prometheus reads."""

    async def hear(self, name: str, incoming: Incoming) -> Reply:
        """What a channel answers to a request of its service."""
