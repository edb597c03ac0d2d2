"""What is to be sent just now: read from the store, told apart from what was sent before, whoever sent it.

Rules. What was done is on record under the pseudo-run `post:<run>`, each key created once: nothing is due twice. A look
is cheap while nothing changes, and every look may be the first one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from loopwright.cards import Card, Channel
from loopwright.codec import dumps, loads
from loopwright.core.state import LoopState
from loopwright.errors import LoopwrightError
from loopwright.hosts import people
from loopwright.journal import Journal
from loopwright.loop import table_of
from loopwright.ports import Store
from loopwright.registry import resolve_channels
from loopwright.serving import card as cards
from loopwright.serving.card import Source
from loopwright.unattended import NEWS

SHORT: Final = 12  # characters of an approval's id in keys
DAY: Final = timedelta(days=1)
NEWEST: Final = 200  # runs of a quick look: those that changed last
MOST: Final = 100_000  # of a whole one
WHOLE_EVERY: Final = 60  # looks
LOOK_S: Final = 1.0  # of one look: who sends must keep its lease
LATER: Final = 20  # looks until a run that could not be read is read again
KEPT: Final = 64  # lists of channels remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One message: what it is about, on which channel, and until when it is worth sending.

    `mark` is `ask` for the first, `told-<channel>` for one that could not be reached, `over` for how a request ended.
    `ref` is where the first one stands; `reached`: somebody was reached by another channel that leaves here.
    """

    run: str
    what: str
    mark: str
    channel: Channel
    card: Card
    until: datetime
    ref: str | None = None
    reached: bool = False

    @property
    def key(self) -> str:
        """The beginning of the keys of what is on record about this and its channel."""
        return f"{self.what}/{self.channel.name}"


@dataclass(slots=True)
class Desk:
    """Looks through a store for what is due; used by one thread."""

    problems: dict[str, str] = field(default_factory=dict)  # run → why its channels cannot be used
    lost: dict[str, dict[str, str]] = field(default_factory=dict)  # run → channel → why it is given up
    reached: set[str] = field(default_factory=set)  # runs whose open request somebody was shown
    _known: dict[str, tuple[int, object]] = field(default_factory=dict)
    _open: dict[str, str] = field(default_factory=dict)  # run → the request that is open
    _channels: dict[str, tuple[Channel, ...]] = field(default_factory=dict)
    _again: dict[str, int] = field(default_factory=dict)  # run → the look that looks at it, changed or not
    _left: dict[str, bytes] = field(default_factory=dict)  # run → its head, not looked at yet
    _looks: int = 0

    def again(self, run: str) -> None:
        """The next look looks at this run, changed or not."""
        self._again[run] = 0

    def look(self, store: Store, source: Source, now: datetime, *, room: int = MOST) -> list[Due]:
        """What is due of all that changed since the last look; at first, of all that is open or a day old.

        About `room` messages at most, and no longer than `LOOK_S`: the next look goes on where this one ended.
        """
        self._left |= self._heads(store)
        ends = time.monotonic() + LOOK_S
        found = self._answered(store, source, now) if room > 0 else []
        for wanted in (self._again_now(store, source, now), self._changed(store, source, now)):
            while len(found) < room and time.monotonic() < ends:
                some = next(wanted, None)
                if some is None:
                    break
                found += some
        return found

    def _again_now(self, store: Store, source: Source, now: datetime) -> Iterator[list[Due]]:
        for run in [run for run, look in self._again.items() if look <= self._looks]:
            del self._again[run]
            yield self._tried(run, partial(self._afresh, store, run, source, now))

    def _changed(self, store: Store, source: Source, now: datetime) -> Iterator[list[Due]]:
        while self._left:
            run, body = self._left.popitem()
            if self._known.get(run, (None, None))[0] != hash(body):
                yield self._tried(run, partial(self._of_head, store, run, body, source, now))

    def _tried(self, run: str, find: Callable[[], list[Due]]) -> list[Due]:
        """What is due of one run; where that cannot be told it is said and tried again: no run hides another."""
        try:
            found = find()
        except (LoopwrightError, ValueError, TypeError, KeyError, AttributeError) as error:
            self.problems[run] = str(error)
            self._again[run] = self._looks + LATER
            return []
        self.problems.pop(run, None)
        return found

    def _afresh(self, store: Store, run: str, source: Source, now: datetime) -> list[Due]:
        return self._due(store, Journal(store, run).state, source, now)

    def _heads(self, store: Store) -> dict[str, bytes]:
        whole = self._looks % WHOLE_EVERY == 0
        self._looks += 1
        if not whole:
            return dict(store.heads(limit=NEWEST))
        heads = {**dict(store.heads(limit=NEWEST * 5)), **dict(store.heads(active=True, limit=MOST))}
        self._known = {run: known for run, known in self._known.items() if run in heads}
        self.problems = {run: why for run, why in self.problems.items() if run in heads}
        self.lost = {run: lost for run, lost in self.lost.items() if run in heads}
        self._open = {run: approval for run, approval in self._open.items() if run in heads}
        return heads

    def _of_head(self, store: Store, run: str, body: bytes, source: Source, now: datetime) -> list[Due]:
        """What is due of a run whose head is new, if that says that there may be something to tell."""
        head = loads(body)
        ended = head["exit_code"] is not None and head["exit_code"] != 6
        said = (head["approval"], head["reason"], str(head["alerts"][-1:]), ended and head["updated_at"])
        before = self._known.get(run)
        self._known[run] = (hash(body), said)
        if before is not None and before[1] == said:
            return []
        old = ended and datetime.fromisoformat(str(head["updated_at"])) < now - DAY
        if old and not _still_shown(records(store, run)):
            return []
        asked = run in self._open
        if head["approval"] is None:
            self._open.pop(run, None)
        else:
            self._open[run] = head["approval"]
        if not (asked or ended or head["approval"] or head["alerts"]) and not any(
            store.signals(f"post:{run}")
        ):
            return []  # nothing to tell, nothing told
        return self._due(store, Journal(store, run).state, source, now)

    def _answered(self, store: Store, source: Source, now: datetime) -> list[Due]:
        """What is due of requests that got an answer which nobody took in yet: all places are busy, maybe for long."""
        found: list[Due] = []
        for run, approval in list(self._open.items()):
            if people.standing(store, run, approval) is not None:
                del self._open[run]
                found += self._tried(run, partial(self._afresh, store, run, source, now))
        return found

    def channels(self, values: Iterable[object], source: Source) -> tuple[Channel, ...]:
        """The channels that these words of a recorded loop mean; `ConfigError` where one means none."""
        values = list(values)
        key = json.dumps([values, str(source.project)], default=str, sort_keys=True)
        if key not in self._channels:
            found, faults = resolve_channels(
                values, project=source.project, path=source.environ.get("PATH", "")
            )
            if faults:
                raise LoopwrightError(
                    "; ".join(f"approval.channels or notify.to {at}: {why}" for at, why in faults)
                )
            if len(self._channels) >= KEPT:
                self._channels.pop(next(iter(self._channels)))
            self._channels[key] = found
        return self._channels[key]

    def _due(self, store: Store, state: LoopState, source: Source, now: datetime) -> list[Due]:
        asking = list(table_of(state.spec.get("approval")).get("channels") or ())
        notify = table_of(state.spec.get("notify"))
        telling = list(notify.get("to") or ())
        if not asking and not telling:
            return []
        done = records(store, state.run)
        found: list[Due] = []
        self._count(state, done)
        if asking:
            found += _requests(store, state, self.channels(asking, source), source, done, now)
        on = notify.get("on") or NEWS
        for (about, key), _ in cards.news(state) if telling and not _is_old(state, now) else ():
            if about not in on:
                continue
            channels = self.channels(telling, source)
            if about == "needs_you":  # who is asked need not be told that somebody is
                channels = tuple(c for c, value in zip(channels, telling, strict=True) if value not in asking)
            what = f"news/{about}/{key}"
            left = [
                c for c in channels if not {f"{what}/{c.name}/sent", f"{what}/{c.name}/lost"} & done.keys()
            ]
            card = cards.of_news(store, state.run, about, source, key=key) if left else None
            if card is not None:
                until = _began(done, what, now) + DAY
                found += [
                    Due(
                        run=state.run,
                        what=what,
                        mark="ask",
                        channel=c,
                        card=card,
                        until=until,
                        reached=_reached(done, what),
                    )
                    for c in left
                ]
        return found

    def _count(self, state: LoopState, done: Mapping[str, Any]) -> None:
        """Keeps what is known of an open request: who could not be reached, and whether anybody was."""
        self.lost.pop(state.run, None)
        self.reached.discard(state.run)
        if state.approval is None:
            return
        what = f"ask/{state.approval.id[:SHORT]}"
        if lost := {name: str(done[f"{what}/{name}/lost"]["problem"]) for name in unreached(done, what)}:
            self.lost[state.run] = lost
        if _reached(done, what):
            self.reached.add(state.run)


def records(store: Store, run: str) -> dict[str, Mapping[str, Any]]:
    """What was done about the messages of a run."""
    return {key: loads(record) for key, record in store.signals(f"post:{run}")}


def record(store: Store, due: Due, end: str, **said: Any) -> bool:
    """Whether this was not on record yet: it is now, durably."""
    return store.signal(f"post:{due.run}", f"{due.key}/{end}", dumps({"at": datetime.now(UTC), **said}))


def unreached(done: Mapping[str, Any], what: str) -> tuple[str, ...]:
    """The channels that could not be reached with this."""
    lost = (
        key.removeprefix(f"{what}/") for key in done if key.startswith(f"{what}/") and key.endswith("/lost")
    )
    return tuple(key.removesuffix("/lost") for key in lost)


def _still_shown(done: Mapping[str, Any]) -> bool:
    """Whether a request of a run stands somewhere as if it were open."""
    shown = (key.removesuffix("/sent") for key in done if key.startswith("ask/") and key.endswith("/sent"))
    return any(f"{key}/over" not in done for key in shown)


def _is_old(state: LoopState, now: datetime) -> bool:
    """Whether a run ended so long ago that its end is no news."""
    return state.finished is not None and state.updated_at is not None and state.updated_at < now - DAY


def _reached(done: Mapping[str, Any], what: str) -> bool:
    """Whether this was sent by a channel that leaves here."""
    ways = (key for key in done if key.startswith(f"{what}/") and key.endswith("/sent"))
    return any(done[key].get("remote") for key in ways)


def _began(done: Mapping[str, Any], what: str, now: datetime) -> datetime:
    """When it was first tried to tell of this."""
    times = [
        said["at"] for key, said in done.items() if key.startswith(f"{what}/") and key.endswith("/began")
    ]
    return min((datetime.fromisoformat(at) for at in times), default=now)


def _requests(
    store: Store,
    state: LoopState,
    channels: tuple[Channel, ...],
    source: Source,
    done: Mapping[str, Any],
    now: datetime,
) -> Iterator[Due]:
    """What is due of a run's requests: the open one where it was not shown, how others ended where they were."""
    asked = state.approval
    if asked is not None and people.standing(store, state.run, asked.id) is None:
        what = f"ask/{asked.id[:SHORT]}"
        until = asked.deadline or _began(done, what, now) + DAY
        due = {c.name: mark for c in channels if (mark := _mark(done, what, c))}
        due |= _named(done, what, channels)
        card = cards.of_request(store, state.run, asked.id, source) if due else None
        if card is not None:
            lost = unreached(done, what)
            for channel in channels:
                if channel.name in due:
                    others = tuple(name for name in lost if name != channel.name)
                    yield Due(
                        run=state.run,
                        what=what,
                        mark=due[channel.name],
                        channel=channel,
                        card=replace(card, unreached=others),
                        until=until,
                        ref=(done.get(f"{what}/{channel.name}/sent") or {}).get("ref"),
                        reached=_reached(done, what),
                    )
    yield from _ended(store, state, channels, source, done, now)


def _mark(done: Mapping[str, Any], what: str, channel: Channel) -> str | None:
    """`ask` where a channel was not sent this yet."""
    key = f"{what}/{channel.name}"
    return None if {f"{key}/sent", f"{key}/lost"} & done.keys() else "ask"


def _named(done: Mapping[str, Any], what: str, channels: tuple[Channel, ...]) -> dict[str, str]:
    """Which channel tells of one that could not be reached: the next that works, if none did yet."""
    names = [channel.name for channel in channels if channel.remote]
    for lost in unreached(done, what):
        if lost not in names or any(
            key.startswith(f"{what}/") and key.endswith(f"/told-{lost}") for key in done
        ):
            continue
        at = names.index(lost)
        working = [name for name in names[at + 1 :] + names[:at] if f"{what}/{name}/sent" in done]
        if working:
            return {working[0]: f"told-{lost}"}
    return {}


def _ended(
    store: Store,
    state: LoopState,
    channels: tuple[Channel, ...],
    source: Source,
    done: Mapping[str, Any],
    now: datetime,
) -> Iterator[Due]:
    """How requests ended that were shown somewhere and are not open any more."""
    by_name = {channel.name: channel for channel in channels}
    made: dict[str, Card | None] = {}
    for key, said in done.items():
        what, _, name = key.removesuffix("/sent").rpartition("/")
        channel = by_name.get(name)
        shown = what.startswith("ask/") and key.endswith("/sent") and channel is not None
        if not shown or channel is None or f"{what}/{name}/over" in done:
            continue
        approval = str(said["approval"])
        open_ = state.approval is not None and state.approval.id == approval
        if open_ and people.standing(store, state.run, approval) is None:
            continue
        if approval not in made:
            made[approval] = cards.of_request(store, state.run, approval, source)
        card = made[approval]
        if card is not None:
            yield Due(
                run=state.run,
                what=what,
                mark="over",
                channel=channel,
                card=card,
                until=now + timedelta(hours=1),
                ref=said["ref"],
            )


def spec_of(store: Store, run: str) -> Mapping[str, Any]:
    """The loop of a run, as it was recorded."""
    return Journal(store, run).state.spec


def is_open(store: Store, run: str, approval: str) -> bool:
    """Whether a request is open and nobody has answered it."""
    asked = Journal(store, run).state.approval
    return asked is not None and asked.id == approval and people.standing(store, run, approval) is None
