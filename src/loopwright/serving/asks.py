"""Asking a run to stop or to rest, whoever asks: the command line, the page, a request.

Rule: what is asked is on record, durably, when this returns; who drives the run takes it in.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Literal

from loopwright.codec import encode_signal
from loopwright.core import events as ev
from loopwright.core.state import LoopState
from loopwright.errors import UsageError
from loopwright.journal import Journal
from loopwright.ports import Store


def ask(
    store: Store, run: str, kind: Literal["stop", "pause"], *, by: str, now: bool
) -> tuple[LoopState, bool]:
    """How the run stood, and whether it will be at once; nothing is asked of one that is over (`state.finished`).

    `UsageError` where there is no such run.
    """
    journal = Journal(store, run)
    if not journal.exists:
        raise UsageError(f"there is no run {run} here")
    state = journal.state
    now = now or state.phase == "waiting"  # for a time: nothing is at work that could be finished
    if state.finished is None:
        key = f"{kind}/{secrets.token_hex(8)}"
        asked = ev.StopRequested if kind == "stop" else ev.PauseRequested
        store.signal(run, key, encode_signal(asked(now=now, by=by, key=key), datetime.now(UTC)))
    return state, now
