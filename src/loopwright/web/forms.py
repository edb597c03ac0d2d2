"""What people do on the page: decide, stop, pause, let go on, start.

Rule: a form is a POST, changes one thing through the door that everybody uses, and comes back to a page that says what
became of it. Nothing here is decided by a GET.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal
from urllib.parse import parse_qs

from loopwright.cards import Answered, Told
from loopwright.errors import Locked, LoopwrightError, UsageError
from loopwright.figures import brief
from loopwright.hosts import people
from loopwright.hosts import steer as hosts_steer
from loopwright.serving.answers import answered
from loopwright.serving.live import Live
from loopwright.units import seconds
from loopwright.web import letters, reading
from loopwright.web.words import MARKS, Tone

CHANNEL: Final = "page"
FIELDS: Final = 20
KEPT: Final = 256  # messages
# What an answer that was not taken is answered with: somebody was first, it is over, another one is asked.
STATUS: Final[Mapping[str, int]] = {
    "conflict": 409,
    "stale": 409,
    "nothing": 409,
    "late": 410,
    "refused": 422,
    "unknown": 404,
}
_ANSWERS: Final[Mapping[str, Literal["approve", "revise", "reject"]]] = {
    "approve": "approve",
    "revise": "revise",
    "reject": "reject",
}
_ADDS: Final = {"add_iterations": "max_iterations", "add_budget": "budget", "add_duration": "max_duration"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message for the page that follows a form."""

    text: str
    tone: Tone = "good"

    @property
    def mark(self) -> str:
        """The sign that says the same as the colour."""
        return MARKS[self.tone]


class Messages:
    """Messages by a word that nobody guesses, so that no address can make the page say what it never said."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Said] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, said: Said) -> str:
        """The word under which the next page finds it."""
        word = secrets.token_urlsafe(9)
        with self._lock:
            self._kept[word] = said
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return word

    def of(self, word: str) -> Said | None:
        """The message, for as long as it is kept."""
        with self._lock:
            return self._kept.get(word)


def fields_of(body: bytes) -> dict[str, str]:
    """The fields of a form; `UsageError` for what is none."""
    try:
        found = parse_qs(
            body.decode("utf-8"), keep_blank_values=True, max_num_fields=FIELDS, errors="replace"
        )
    except ValueError:
        raise UsageError("this is no form of the page") from None
    return {name: values[-1].replace("\r\n", "\n").replace("\0", "�") for name, values in found.items()}


def amounts(given: Mapping[str, str]) -> dict[str, float]:
    """The limits that a form raises; `UsageError` names what is no amount."""
    add: dict[str, float] = {}
    for field, name in _ADDS.items():
        text = given.get(field, "").strip().lstrip("+").strip()
        if not text:
            continue
        try:
            add[name] = seconds(text) if name == "max_duration" else float(text)
        except ValueError:
            hint = "30m or 2h" if name == "max_duration" else "a number"
            raise UsageError(
                f"{field.replace('_', ' ')}: {brief(text, 30)!r} is no amount; write {hint}"
            ) from None
        if not 0 < add[name] < 1e9 or (name == "max_iterations" and add[name] != int(add[name])):
            raise UsageError(f"{field.replace('_', ' ')}: {brief(text, 30)!r} is no amount to add")
    return add


def decide(
    live: Live, run: str, approval: str, given: Mapping[str, str], who: str, *, letter: str | None = None
) -> Told:
    """What becomes of an answer that was given on the page; it is durable when the word is `recorded`.

    `letter`: the ticket of the mail that led here, whose reader decides this and nothing more.
    """
    answer = _ANSWERS.get(given.get("answer", ""))
    if answer is None:
        raise UsageError("the answer is approve, revise or reject")
    override = given.get("override")
    said = Answered(
        run=run,
        approval=approval,
        answer=answer,
        by=who,
        note=given.get("note", "").strip(),
        override=override.strip() if override is not None else None,
    )
    if letter is not None:
        if amounts(given):
            raise UsageError("who comes by a mail decides, and raises no limits: leave those fields empty")
        return letters.decide(live, said, letter)
    with live.stores() as store:
        reading.known(store, run)
        if not any(each.request.id == approval for each in people.requests(store, run)):
            return Told(word="unknown", text="this run never asked that")
        told = answered(store, said, CHANNEL, environ=live.environ, add=amounts(given))
    live.nudge()
    return told


def steer(live: Live, run: str, kind: Literal["stop", "pause"], given: Mapping[str, str], who: str) -> Said:
    """Asks a run to stop or to rest; what follows from it."""
    with live.stores() as store:
        state = reading.known(store, run)
        if state.finished is not None:
            return Said(text=f"{run} is over already: {state.finished.reason}", tone="warn")
        left = hosts_steer.ask(store, state, kind, by=who, now=given.get("now") == "1", at=datetime.now(UTC))
    live.nudge()
    return Said(text=f"{run} will {kind} {'now' if left.now else 'after this iteration'}")


def go_on(live: Live, run: str, given: Mapping[str, str], who: str) -> Said:
    """Lets a run that rests or has ended go on, with limits raised and a note for its agent."""
    note = given.get("note", "").strip() or None
    with live.stores() as store:
        reading.known(store, run)
    try:
        live.reopen(run, by=who, add=amounts(given), note=note)
    except Locked as locked:
        return Said(text=str(locked), tone="warn")
    return Said(text=f"{run} goes on")


def ask_again(live: Live, run: str, who: str) -> Said:
    """Lets a request that expired be asked anew."""
    with live.stores() as store:
        reading.known(store, run)
        outcome = people.ask_again(store, run, by=who, now=datetime.now(UTC))
    live.nudge()
    match outcome:
        case None:
            return Said(text=f"{run} asks again")
        case people.Stale(live=asked):
            return Said(text=f"{run} still asks: {brief(asked.question)}", tone="warn")
        case people.Late(why=why) | people.Nothing(why=why):
            return Said(text=f"{why}: nothing expired", tone="warn")


def start(live: Live, loop: str, given: Mapping[str, str], who: str) -> tuple[str, Said]:
    """A run of a loop, begun now or, with the same key, earlier."""
    key = given.get("key", "").strip() or None
    try:
        run, begun = live.begin(loop, origin=f"page ({who})", key=key)
    except LoopwrightError as error:
        raise UsageError(str(error)) from error
    if not begun:
        return run, Said(text=f"{run} was started with this key before", tone="warn")
    return run, Said(text=f"{run} is started: it waits for a place and then works by itself")
