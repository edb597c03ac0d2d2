"""Deliveries to `/hooks/<name>`: one event, one run, whatever is delivered twice and whoever dies meanwhile.

Rule: what came is on disk before the run that reads it, and the run before the answer. The id of the run is made of the
event, so a delivery that was not answered can be sent again, to any server of the store. Who sent it waits for no work.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, TypeAlias, assert_never

from loopwright.errors import LoopwrightError, StoreError
from loopwright.ports import Store
from loopwright.prompting import PAYLOAD
from loopwright.serving import starts
from loopwright.serving.book import Served
from loopwright.serving.live import Live
from loopwright.serving.others import exists, leave_out, taken_back
from loopwright.serving.turns import in_the_way, under_way
from loopwright.state_folder import create_state
from loopwright.stores import disk
from loopwright.triggers import webhook
from loopwright.unattended import Trigger

PATIENCE_S: Final = 5.0  # how long a delivery waits for the one before it
LEASE_S: Final = 10.0
_WORDS: Final[Mapping[int, str]] = {401: "forged", 503: "failed"}  # in the figures

Answer: TypeAlias = tuple[int, dict[str, Any]]


def received(live: Live, name: str, headers: Mapping[str, str], raw: bytes, now: datetime) -> Answer:
    """The HTTP status and the JSON that a delivery to the hook `name` is answered; what it starts is durable.

    `headers` by lower-case name, `raw` the body as it came. 202: `status` is started, duplicate or skipped, of the
    `run`. 200: ignored (a filter) or pong. 503: it could not be kept, send it again. Any thread may ask.
    """
    found = _hook(live.book.loops.values(), name)
    if found is None:
        return 404, {"status": "refused", "why": "there is no such hook"}
    status, answer = _answered(live, name, *found, headers, raw, now)
    live.figures.delivery(name, _WORDS.get(status, str(answer["status"])))
    return status, answer


def _answered(
    live: Live,
    name: str,
    served: Served,
    trigger: Trigger,
    headers: Mapping[str, str],
    raw: bytes,
    now: datetime,
) -> Answer:
    event = webhook.read(trigger, headers, raw, keys=_keys(trigger, live.environ), now=now)
    match event:
        case webhook.Refused(status=status, why=why):
            return status, {"status": "refused", "why": why}
        case webhook.Ignored(why="ping"):
            return 200, {"status": "pong"}
        case webhook.Ignored(why=why):
            return 200, {"status": "ignored", "why": why}
        case webhook.Event(key=key):
            run = starts.id_of_key(served.name, "webhook", name, *key)
        case _:
            assert_never(event)
    try:
        with live.stores() as store:
            answer = _taken(live, store, served, trigger, run, raw)
    except (LoopwrightError, OSError) as error:
        live.tell(f"a delivery to /hooks/{name} could not be kept: {error}")
        return 503, {"status": "refused", "why": "it could not be kept: send it again"}
    if answer["status"] == "started":
        live.nudge()
    return 202, answer


def problems(served: Served, environ: Mapping[str, str], loops: Iterable[Served] = ()) -> list[str]:
    """Why the webhook triggers of a loop must not be served; `loops` are all of the server."""
    found = []
    for trigger in served.triggers:
        if trigger.webhook is not None:
            found += webhook.problems(trigger, environ, served.loop.env)
            same = [each.name for each in loops for t in each.triggers if t.webhook == trigger.webhook]
            if len(same) > 1:
                found.append(
                    f"trigger {trigger.webhook}: {' and '.join(sorted(same))} have a hook of this name: one may"
                )
    return found


def _hook(loops: Iterable[Served], name: str) -> tuple[Served, Trigger] | None:
    for served in loops:
        for trigger in served.triggers:
            if trigger.webhook is not None and trigger.webhook == name:
                return served, trigger
    return None


def _keys(trigger: Trigger, environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """The keys that may sign: none where they cannot be used, and then nothing is right."""
    try:
        return webhook.keys_of(environ.get(trigger.secret or "", ""), trigger.signature)
    except ValueError:
        return ()


def _taken(
    live: Live, store: Store, served: Served, trigger: Trigger, run: str, raw: bytes
) -> dict[str, Any]:
    if exists(store, run):
        return _duplicate(run)
    if trigger.overlap == "queue":
        return _begun(live, store, served, trigger, run, raw)
    with _alone(store, f"hooks:{served.name}", live.me):
        if exists(store, run):
            return _duplicate(run)
        key = f"delivery/{sha256(run.encode()).hexdigest()[:16]}"
        if why := in_the_way(under_way(store, served.name), trigger.overlap):
            leave_out(store, served.name, key, run, why)
            return {"run": run, "status": "skipped", "why": why}
        answer = _begun(live, store, served, trigger, run, raw)
        taken_back(store, served.name, key)
        return answer


def _duplicate(run: str) -> dict[str, Any]:
    return {"run": run, "status": "duplicate", "duplicate_of": run}


def _begun(
    live: Live, store: Store, served: Served, trigger: Trigger, run: str, raw: bytes
) -> dict[str, Any]:
    """Puts down what came, then begins the run. The first payload of an event is the one that its run reads."""
    state = live.project / ".agent-state"
    create_state(state)
    folder = state / "artifacts" / run
    disk.make_dir(folder)
    disk.create(folder / PAYLOAD, raw)
    begun = starts.begin(
        store,
        served.assembled,
        run,
        project=live.project,
        environ=live.environ,
        origin=f"webhook {trigger.webhook}",
    )
    return {"run": run, "status": "started"} if begun else _duplicate(run)


@contextmanager
def _alone(store: Store, what: str, me: str) -> Iterator[None]:
    """Of several deliveries, in any thread or server, one at a time: each sees the run that the one before began."""
    end = time.monotonic() + PATIENCE_S
    while (lease := store.lease(what, me, LEASE_S)) is None:
        if time.monotonic() > end:
            raise StoreError(f"other deliveries ({what}) take too long")
        time.sleep(0.002)
    try:
        yield
    finally:
        lease.release()
