"""What people ask of a run from beside it: to stop, to pause.

Rule: it is on record, durably, before anybody is told that it is; who drives the run takes it in.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from loopwright.codec import encode_signal
from loopwright.core import events as ev
from loopwright.core.state import LoopState
from loopwright.ports import Store

What: TypeAlias = Literal["stop", "pause"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """It is on record: whether the agent is cut off, and whether the same was asked before with the same key."""

    now: bool
    again: bool = False


def ask(
    store: Store,
    state: LoopState,
    what: What,
    *,
    by: str,
    now: bool = False,
    at: datetime | None = None,
    key: str | None = None,
) -> Left:
    """Leaves it for a run that is not over: after this iteration, or `now`. The same `key` asks it once."""
    event_of = ev.StopRequested if what == "stop" else ev.PauseRequested
    now = now or state.phase == "waiting"  # for a time: nothing is at work that could be finished
    made = secrets.token_hex(8) if key is None else hashlib.sha256(key.encode()).hexdigest()[:16]
    name = f"{what}/{made}"
    free = store.signal(state.run, name, encode_signal(event_of(now=now, by=by, key=name), at))
    return Left(now=now, again=not free)
