"""A delivery to `/hooks/<name>`: whether it is signed as it should be, what it says, and which event it tells of.

Rule: pure, over the bytes as they came. Nothing of a delivery is read before its signature is right; without a secret
none is. What is refused is never repeated in the answer.

Formats: Standard Webhooks (`loopwright.signatures`), and GitHub's `X-Hub-Signature-256`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any, Final

from loopwright import signatures
from loopwright.errors import BadEvidence
from loopwright.evidence.strict_json import of_line
from loopwright.redact import looks_secret
from loopwright.unattended import Trigger

MOST_BYTES: Final = 1 << 20
DEPTH: Final = 64
EVENT: Final = (
    "x-github-event"  # GitHub says the event's type in a header; filter and key know it by that name
)
# What a GitHub event is about, the innermost first: two comments on one issue are two events.
_ABOUT: Final = ("comment", "review", "issue", "pull_request", "discussion", "workflow_run")
_WITH: Final = ("label", "assignee", "requested_reviewer", "requested_team", "milestone")
_MISSING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A delivery that starts nothing and should not have come: the HTTP status and why."""

    status: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """A delivery that is right and starts nothing: it does not match the filter, or only tries whether we are here."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A delivery that starts a run; `key` says which event it is: the same words, the same event."""

    key: tuple[str, ...]


def read(
    trigger: Trigger, headers: Mapping[str, str], raw: bytes, *, keys: Iterable[bytes], now: datetime
) -> Event | Ignored | Refused:
    """What a delivery is, by the trigger it came to and any of its `keys`; `headers` by lower-case name."""
    if len(raw) > MOST_BYTES:
        return Refused(status=413, why=f"the body is above {MOST_BYTES >> 20} MB")
    if not _is_json(headers.get("content-type", "")):
        return Refused(status=415, why="the body must be JSON: Content-Type: application/json")
    check = _github if trigger.signature == "github" else signatures.unsigned
    if why := check(tuple(keys), headers, raw, now):
        return Refused(status=401, why=why)
    if trigger.signature == "github" and headers.get(EVENT) == "ping":
        return Ignored(why="ping")
    try:
        payload = _payload(raw)
    except ValueError as error:
        return Refused(status=400, why=str(error))
    if not all(_stands(payload, headers, path, values) for path, values in wanted(trigger.filter)):
        return Ignored(why="filter")
    return Event(key=_key(trigger, headers, raw, payload))


def keys_of(secret: str, signature: str) -> tuple[bytes, ...]:
    """The keys in the variable that holds them, separated by spaces: any may sign, so that they can be changed.

    `ValueError` for one that cannot be used; it does not repeat it.
    """
    if signature == "standard":
        return signatures.keys_in(secret)
    return signatures.checked(word.encode() for word in secret.split())


def problems(trigger: Trigger, environ: Mapping[str, str], shown_to: Iterable[str] = ()) -> list[str]:
    """Why a webhook trigger must not be served in this environment; `shown_to` are the names that agents see."""
    name = trigger.secret or ""
    where = f"trigger {trigger.webhook}: the secret {name}"
    found = []
    if name not in environ:
        return [f"{where} is not set: without it nobody could tell who sent a delivery"]
    try:
        keys_of(environ[name], trigger.signature)
    except ValueError as error:
        found.append(f"{where} {error}")
    if not looks_secret(name, ""):
        found.append(
            f"{where} would be shown to agents under this name: let it end in _SECRET, _KEY or _TOKEN"
        )
    if name in shown_to:
        found.append(f"{where} is in env, which shows it to agents")
    for path, values in wanted(trigger.filter):
        if not values or not all(isinstance(value, str | int | float) for value in values):
            found.append(
                f"trigger {trigger.webhook}: filter {path}: a text, a number, true or false, or a list of these"
            )
    return found


def wanted(filters: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Each path of a filter with the values that may stand there; a table inside is a longer path."""
    for word, value in filters.items():
        path = f"{above}{word}"
        if isinstance(value, Mapping):
            yield from wanted(value, f"{path}.")
        else:
            yield path, tuple(value) if isinstance(value, list | tuple) else (value,)


def _is_json(media: str) -> bool:
    word = media.partition(";")[0].strip().lower()
    return word == "application/json" or (word.startswith("application/") and word.endswith("+json"))


def _github(keys: Iterable[bytes], headers: Mapping[str, str], raw: bytes, now: datetime) -> str:  # noqa: ARG001 - it says no time
    """Why this is not signed as GitHub does, or nothing."""
    said = headers.get("x-hub-signature-256", "")
    given = [signatures.ascii_of(said.removeprefix("sha256="))] if said.startswith("sha256=") else []
    ours = [hmac.digest(key, raw, "sha256").hex().encode() for key in keys]
    return "" if signatures.any_same(ours, given) else signatures.UNSIGNED


def _payload(raw: bytes) -> dict[str, Any]:
    """The object that a body is; `ValueError`, which repeats nothing of it, for anything that can be read in two ways."""
    try:
        found = of_line(raw.decode(), "the body")
    except (UnicodeDecodeError, BadEvidence):
        raise ValueError("the body is not one JSON value in UTF-8, each key once") from None
    if not isinstance(found, dict):
        raise ValueError("the body is not a JSON object")  # noqa: TRY004 - of a value, not of a caller
    level: list[Any] = [found]
    for _ in range(DEPTH + 1):
        level = [item for each in level for item in _inside(each)]
        if not level:
            return found
    raise ValueError(f"the body is nested deeper than {DEPTH}")


def _inside(value: Any) -> Iterable[Any]:
    """What a value holds; `ValueError` for a number that is none (NaN, or beyond what a float can hold)."""
    if isinstance(value, float) and not isfinite(value):
        raise ValueError("the body holds a number that is not finite")
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _at(payload: Mapping[str, Any], headers: Mapping[str, str], path: str) -> Any:
    """What stands at a path, or `_MISSING`."""
    if path == EVENT:
        return headers.get(EVENT, _MISSING)
    found: Any = payload
    for word in path.split("."):
        if not isinstance(found, Mapping) or word not in found:
            return _MISSING
        found = found[word]
    return found


def _stands(
    payload: Mapping[str, Any], headers: Mapping[str, str], path: str, values: tuple[Any, ...]
) -> bool:
    """Whether one of these values stands at a path; `true` is not `1`."""
    found = _at(payload, headers, path)
    return any(isinstance(found, bool) is isinstance(value, bool) and found == value for value in values)


def _key(
    trigger: Trigger, headers: Mapping[str, str], raw: bytes, payload: Mapping[str, Any]
) -> tuple[str, ...]:
    """Which event a delivery tells of: what the loop says, what GitHub's events are known by, else the delivery's id.

    Where a path is not there no event can be told from another, and each delivery is one: none is lost.
    """
    said = [_at(payload, headers, path) for path in trigger.key]
    if said and _MISSING not in said:
        return ("key", *(_written(value) for value in said))
    if not trigger.key and trigger.signature == "github" and (known := _known(headers, payload)):
        return ("event", *known)
    word = "x-github-delivery" if trigger.signature == "github" else "webhook-id"
    return (
        "delivery",
        signatures.ascii_of(headers.get(word, "")).decode() or hashlib.sha256(raw).hexdigest(),
    )


def _known(headers: Mapping[str, str], payload: Mapping[str, Any]) -> tuple[str, ...]:
    """What tells GitHub's event from all others, whoever it was sent for; nothing where that is not known."""
    about = next((word for word in _ABOUT if isinstance(payload.get(word), dict)), None)
    if about is None:
        return ()
    it = payload[about]
    number, at = it.get("id") if about in {"comment", "review"} else None, it.get("updated_at")
    number, at = number or it.get("number") or it.get("id"), at or it.get("submitted_at")
    if not number or not at:
        return ()
    paths = ("repository.full_name", EVENT, "action")
    told = [None if (found := _at(payload, headers, path)) is _MISSING else found for path in paths]
    return tuple(
        _written(value)
        for value in (*told, about, number, at, *(_named(payload.get(word)) for word in _WITH))
    )


def _named(value: Any) -> Any:
    """The name of a label, a person, a team; `None` where there is none."""
    return (
        next((value[w] for w in ("name", "login", "title") if w in value), None)
        if isinstance(value, dict)
        else None
    )


def _written(value: Any) -> str:
    """A value as one text: no two values have the same."""
    return json.dumps(value, sort_keys=True)
