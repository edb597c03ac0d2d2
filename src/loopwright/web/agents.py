"""Agents do not decide about runs: a request of a process that works in one is refused, and that is on record.

Rule: looked up by the machine, not believed from what is sent. Where the other end cannot be seen (another machine,
another user, a proxy) its token is what counts.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from starlette.types import Scope

from loopwright.around import UnseenError, run_of_peer
from loopwright.codec import encode_signal
from loopwright.core.events import Noticed
from loopwright.errors import LoopwrightError
from loopwright.serving.live import Live
from loopwright.web import reading
from loopwright.web.problems import Trouble
from loopwright.web.tokens import Person

_ABOUT: Final = re.compile(r"/runs/([^/]+)(?:/approvals/([^/]+))?")
_LOG: Final = logging.getLogger("loopwright.web")


def forbid(live: Live, scope: Scope, person: Person) -> str | None:
    """Why who is connected may not change anything, though this person's token may; `None` when they may."""
    here, peer = scope.get("server"), scope.get("client")
    if here is None or peer is None:
        return None
    try:
        inside = run_of_peer((here[0], here[1]), (peer[0], peer[1]))
    except UnseenError:
        _LOG.warning("a process that is not to be found tried to decide as %s", person.name)
        return "the process at the other end of this connection is not to be found, and agents do not decide"
    if inside is None:
        return None
    _LOG.warning("a process of run %r tried to decide as %s", inside, person.name)
    with suppress(LoopwrightError, Trouble, OSError):  # it is refused, whether that can be written or not
        _note(live, scope, person, inside)
    return f"this comes from a process of run {inside}: agents do not decide about runs"


def _note(live: Live, scope: Scope, person: Person, inside: str) -> None:
    """On the record of the run that was to be decided about, once for each of its requests."""
    about = _ABOUT.search(scope["path"])
    if about is None:
        return
    with live.stores() as store:
        state = reading.known(store, about[1])
        if state.approval is None or about[2] not in {None, state.approval.id}:
            return
        request = state.approval.id
        problem = f"a process of run {inside} tried to answer as {person.name}"
        noticed = Noticed(approval=request, channel="page", problem=problem)
        store.signal(state.run, f"noticed/{request[:12]}/page", encode_signal(noticed, datetime.now(UTC)))
