"""Answers that come through channels: listeners that are kept alive, and requests of their services.

Rules. A channel decides only about runs that ask through one with the same secret: whoever has that of one loop has no
say in another's. A listener that fails is begun again, later and later. Nothing is believed before the channel has checked it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from loopwright.cards import Answered, Channel, Incoming, Reply, Told
from loopwright.codec import loads
from loopwright.errors import ConfigError, LoopwrightError, UsageError
from loopwright.figures import brief
from loopwright.hosts.take import check_id
from loopwright.journal import Journal
from loopwright.loop import table_of
from loopwright.ports import Store
from loopwright.registry import resolve_channels
from loopwright.serving.answers import answered
from loopwright.serving.book import Book

REFRESH_S: Final = 2.0  # how soon a new channel is listened to
LATEST_S: Final = 60.0
MOST: Final = 200  # channels


def named(channel: Channel) -> str:
    """What a channel is called in addresses and on record: the second of a name is no other one there."""
    return re.sub(r"-\d+$", "", channel.name)


def _key(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _known_by(key: str, channel: Channel) -> tuple[str, str]:
    """By what an answer is known to come through a channel: the first of its secrets, else all that is written of it."""
    return named(channel), channel.secrets[0] if channel.secrets else key


@dataclass(slots=True, kw_only=True)
class Ears:
    """What hears for one server. `book` are its loops; open requests of other runs of its store are heard of, too."""

    project: Path
    environ: Mapping[str, str]
    book: Book
    stores: Callable[[], AbstractContextManager[Store]]
    nudge: Callable[[], None]
    tell: Callable[[str], None]
    again_s: float = 1.0
    _made: Mapping[str, Channel] = field(default_factory=dict)  # what it is written as → it
    _known: Mapping[tuple[str, str], Channel] = field(default_factory=dict)
    _asking: dict[str, tuple[object, ...]] = field(default_factory=dict)  # run → what its request is shown on
    _tasks: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict)
    _looked: bool = False

    async def hear(self, name: str, incoming: Incoming) -> Reply:
        """What the channel of that name answers to a request of its service; 401 where none believes it."""
        if (
            not self._looked
        ):  # after that `work` sees to it: who knows no secret must not make a store be read
            await asyncio.to_thread(self._refresh)
        found = [
            (key, each) for key, each in self._known.items() if named(each) == name and each.hear is not None
        ]
        reply = Reply(status=404 if not found else 401)
        for by, channel in found:
            assert channel.hear is not None
            try:
                reply = await channel.hear(incoming, self.environ, partial(self._answered, by))
            except Exception as error:  # noqa: BLE001 - a channel is other people's code
                self.tell(
                    f"{channel.name} could not read a request: {type(error).__name__}: {brief(str(error))}"
                )
                reply = Reply(status=400)
            if reply.status != 401:
                break
        return reply

    async def work(self) -> None:
        """Keeps every channel that hears by itself listening, until it is cancelled."""
        try:
            while True:
                await asyncio.to_thread(self._refresh)
                wanted = {by: each for by, each in self._known.items() if each.listen is not None}
                for by in [by for by in self._tasks if by not in wanted]:
                    self._tasks.pop(by).cancel()
                for by, channel in wanted.items():
                    if by not in self._tasks:
                        self._tasks[by] = asyncio.create_task(self._listening(by, channel))
                await asyncio.sleep(REFRESH_S)
        finally:
            tasks = list(self._tasks.values())
            self._tasks.clear()
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=5.0)

    async def _listening(self, by: tuple[str, str], channel: Channel) -> None:
        assert channel.listen is not None
        pause_s, said = self.again_s, ""
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await channel.listen(self.environ, partial(self._answered, by))
                why = "it stopped"
            except LoopwrightError as error:
                why = str(error)
            except Exception as error:  # noqa: BLE001 - a channel is other people's code
                why = f"{type(error).__name__}: {brief(str(error))}"
            if asyncio.get_running_loop().time() - began > LATEST_S:
                pause_s, said = self.again_s, ""
            if why != said:
                self.tell(f"{channel.name} does not listen, and is begun again: {why}")
            said = why
            await asyncio.sleep(pause_s)
            pause_s = min(LATEST_S, 2 * pause_s)

    def _refresh(self) -> None:
        """Looks for channels: of the loops it serves, and of every request that is open."""
        lists: list[tuple[object, ...]] = [
            tuple(table_of(served.loop.approval).get("channels") or ()) for served in self.book.loops.values()
        ]
        with self.stores() as store:
            lists += self._of_requests(store)
        made: dict[str, Channel] = {}
        known: dict[tuple[str, str], Channel] = {}
        for value in (each for values in lists for each in values):
            key = _key(value)
            channel = made.get(key) or self._of(value)
            if channel is not None and len(made) < MOST:
                made[key] = channel
                known.setdefault(_known_by(key, channel), channel)
        self._made, self._known, self._looked = made, known, True

    def _of_requests(self, store: Store) -> Iterable[tuple[object, ...]]:
        asking: dict[str, tuple[object, ...]] = {}
        for run, body in store.heads(active=True, limit=100_000):
            try:
                if loads(body)["approval"] is not None:
                    known = self._asking.get(run)  # of most, nothing
                    asking[run] = _values(store, run) if known is None else known
            except (LoopwrightError, ValueError, TypeError, KeyError):
                continue  # a damaged run is told of where it is worked on
        self._asking = asking
        return asking.values()

    def _of(self, value: object) -> Channel | None:
        """The channel that is written so; `None` where that means none here."""
        if (known := self._made.get(_key(value))) is not None:
            return known
        try:
            found, faults = resolve_channels([value], project=self.project, path=self.environ.get("PATH", ""))
        except ConfigError:
            return None
        return None if faults else found[0]

    async def _answered(self, by: tuple[str, str], said: Answered) -> Told:
        """What becomes of an answer that came through this channel."""
        told = await asyncio.to_thread(self._told, by, said)
        self.nudge()
        return told

    def _told(self, by: tuple[str, str], said: Answered) -> Told:
        try:
            with self.stores() as store:
                asks = ((_key(value), self._of(value)) for value in _values(store, check_id(said.run)))
                if by not in [_known_by(key, channel) for key, channel in asks if channel is not None]:
                    return Told(word="unknown", text=f"no run {said.run} asks through this channel")
                return answered(store, said, by[0], environ=self.environ)
        except UsageError as error:
            return Told(word="unknown", text=str(error))
        except LoopwrightError as error:
            self.tell(f"an answer to {brief(said.run)} could not be kept: {error}")
            return Told(word="nothing", text="it could not be kept just now; try again")


def _values(store: Store, run: str) -> tuple[Any, ...]:
    """What the requests of a run are shown on, as it was written."""
    return tuple(table_of(Journal(store, run).state.spec.get("approval")).get("channels") or ())
