"""Cards: what is sent of a request or as news, made of the store and the run's snapshots.

Rule: no secret, no character that drives a terminal, no more than so much of anything: what is foreign is cut and
cleaned here, once, for every channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from loopwright.cards import Card, Decided
from loopwright.codec import dumps, loads, plain
from loopwright.core import events as ev
from loopwright.core.head import document, exit_code, reason
from loopwright.core.state import LoopState
from loopwright.errors import ConfigError, WorkspaceError
from loopwright.figures import brief, count, safe, score
from loopwright.hosts import people
from loopwright.hosts.ways import STATE
from loopwright.journal import Journal, history
from loopwright.ports import Store
from loopwright.redact import Redactor, redactor
from loopwright.registry import resolve
from loopwright.workspace.opened import open_workspace

PATCH_BYTES: Final = 40_000
TEXT: Final = 4_000  # characters of one text
ITEMS: Final = 100  # of one list
T = TypeVar("T")
News = Literal["needs_you", "failed", "finished", "alert"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where cards are made of: the project, the environment whose secrets are taken out, the page's address."""

    project: Path
    environ: Mapping[str, str]
    public_url: str | None = None


def of_request(store: Store, run: str, approval: str, source: Source) -> Card | None:
    """The card of a request, open or over; `None` where there was none of this id."""
    state = Journal(store, run).state
    if state.approval is not None and state.approval.id == approval:
        decision = people.standing(store, run, approval)
        card = _request(state, state, source)
        return card if decision is None else ended(card, state, _decided(*decision), source)
    then = next(
        (
            after
            for _, _, event, after in history(store, run)
            if isinstance(event, ev.ApprovalRequested) and event.id == approval
        ),
        None,
    )
    if then is None:
        return None
    decided, superseded = how_it_ended(store, run, approval, state)
    return ended(_request(then, state, source), state, decided, source, superseded=superseded)


def how_it_ended(store: Store, run: str, approval: str, state: LoopState) -> tuple[Decided | None, bool]:
    """How a request that is not open any more ended, and whether something newer is asked in its place."""
    asked = list(people.requests(store, run))
    found = next((each for each in asked if each.request.id == approval), None)
    if found is None or found.decision is None:
        later = found is not None and found.request.number < state.requests
        return (None, True) if later else (Decided(answer="withdrawn"), False)
    return _decided(found.decision, found.decided_at), found.void


def ended(
    card: Card, state: LoopState, decided: Decided | None, source: Source, *, superseded: bool = False
) -> Card:
    """The same card once its request is over."""
    secrets = secrets_of(state.spec, source.environ)
    return replace(
        card,
        head=clean(plain(document(state)), secrets),
        decided=None if decided is None else clean(decided, secrets),
        superseded=superseded,
    )


def _decided(decision: ev.ApprovalDecided, at: Any) -> Decided:
    return Decided(
        answer=decision.answer,
        by=decision.by,
        channel=decision.channel,
        at=at,
        note=decision.note,
        why=decision.override,
    )


def of_news(store: Store, run: str, about: News, source: Source, *, key: str) -> Card | None:
    """The card of news of a run; `None` where it is not so any more. `key` says which of them: see `news`."""
    state = Journal(store, run).state
    if (title := dict(news(state)).get((about, key))) is None:
        return None
    return _card(state, about, title, source)


def news(state: LoopState) -> list[tuple[tuple[News, str], str]]:
    """All that a run has to tell just now, each with its key and its title, which say the same thing but once."""
    told: list[tuple[tuple[News, str], str]] = []
    for alert in state.alerts:
        title = f"{state.run}: {alert.kind} in iteration {alert.iteration}: {brief(alert.message)}"
        told.append((("alert", f"{alert.kind}-{alert.iteration}"), title))
    if state.approval is not None:
        title = f"{state.run} asks: {brief(state.approval.question)}"
        told.append((("needs_you", state.approval.id[:12]), title))
    if state.finished is not None:
        # Nobody is told as of a failure of what a person did: a stop, a rejection.
        failed = exit_code(state) not in {0, 5}
        word = "failed" if failed else "is done" if state.finished.phase == "complete" else "was ended"
        best = "" if state.best is None else f", best score {score(state.best.score)}"
        title = f"{state.run} {word}: {reason(state)} after {count(state.iteration, 'iteration')}{best}"
        key = f"{reason(state)}-{state.iteration}-{state.totals.attempts}"
        told.append((("failed" if failed else "finished", key), title))
    return told


def _request(then: LoopState, now: LoopState, source: Source) -> Card:
    asked = then.approval
    assert asked is not None
    title = f"{now.run}: {brief(asked.question, 300)}"
    return _card(now, "needs_you", title, source, then=then)


def _card(
    state: LoopState, about: News, title: str, source: Source, *, then: LoopState | None = None
) -> Card:
    """A card, cleaned; `then` is the run when it asked, for a request."""
    secrets = secrets_of(state.spec, source.environ)
    shown = None if then is None else people.view(then)
    asked = None if then is None else then.approval
    before, after = (shown.before, shown.after) if shown is not None else (state.base, state.snapshot)
    page = f"/approvals/{asked.id}" if asked is not None else ""
    card = Card(
        run=state.run,
        loop=str(state.spec.get("name") or "loop"),
        about=about,
        title=clean(title, secrets),
        head=clean(plain(document(state)), secrets),
        shown=None if shown is None else clean(shown, secrets),
        approval=None if asked is None else asked.id,
        required=None if asked is None else _required(state.spec, source),
        link=None if source.public_url is None else f"{source.public_url}/runs/{state.run}{page}",
    )
    if about == "alert" or before is None or after is None:
        return card
    folder = Path(state.workspace) if state.workspace is not None else source.project
    return _with_diff(card, folder, before, after, secrets)


def _required(spec: Mapping[str, Any], source: Source) -> tuple[str, ...] | None:
    """The gates that must pass, by name; `None` where they mean nothing here."""
    return _required_of(dumps(spec.get("gates", ())), source.project, source.environ.get("PATH", ""))


@lru_cache(maxsize=64)  # finding out what a gate's name means reads what is installed
def _required_of(gates: bytes, project: Path, path: str) -> tuple[str, ...] | None:
    try:
        found = resolve(None, None, loads(gates), project=project, path=path)
    except ConfigError:
        return None
    return None if found.faults else tuple(gate.name for gate in found.gates if gate.rule.required)


def _with_diff(card: Card, folder: Path, before: str, after: str, secrets: Redactor) -> Card:
    """With what changed between two trees, where that can be known."""
    try:
        diff = open_workspace("in_place", folder, folder / STATE, card.run).diff(before, after)
    except WorkspaceError:  # no git here, or a snapshot that git has cleaned up
        return card
    if diff is None:
        return card
    patch, cut = _whole_lines(safe(secrets.text(diff.text)))
    return replace(card, files=len(diff.files), added=diff.added, removed=diff.removed, patch=patch, cut=cut)


def _whole_lines(text: str) -> tuple[str, bool]:
    """As many whole lines as may be sent, and whether some were left out."""
    data = text.encode("utf-8", "replace")
    if len(data) <= PATCH_BYTES:
        return data.decode(), False
    return data[: data.rfind(b"\n", 0, PATCH_BYTES) + 1].decode("utf-8", "ignore"), True


def secrets_of(spec: Mapping[str, Any], environ: Mapping[str, str]) -> Redactor:
    """What takes the secrets out that this environment and the loop's own words name."""
    told = [*(spec.get("approval") or {}).get("channels", ()), *(spec.get("notify") or {}).get("to", ())]
    parts = [spec.get("agent"), spec.get("improve"), *spec.get("gates", ()), spec]
    named = {name for part in parts if isinstance(part, Mapping) for name in part.get("env", ())}
    for each in told:  # every variable that a channel is told the name of
        if isinstance(each, Mapping):
            words = [value.removeprefix("env:") for value in each.values() if isinstance(value, str)]
            named |= {word for word in words if word in environ}
    return redactor(environ, allowed=named)


def clean(value: T, secrets: Redactor) -> T:
    """The value with every text in it clean and bounded."""
    return _clean(value, secrets)  # type: ignore[no-any-return]


def _clean(value: Any, secrets: Redactor) -> Any:
    if isinstance(value, str):
        text = safe(secrets.text(value))
        return text if len(text) <= TEXT else f"{text[: TEXT - 1]}…"
    if is_dataclass(value) and not isinstance(value, type):
        found = {f.name: _clean(getattr(value, f.name), secrets) for f in fields(value) if f.init}
        return replace(value, **found)
    if isinstance(value, Mapping):
        return {str(key): _clean(item, secrets) for key, item in list(value.items())[:ITEMS]}
    if isinstance(value, list | tuple):
        return type(value)(_clean(item, secrets) for item in value[:ITEMS])
    return value
