"""What a loop file says for the time when nobody types: what starts it, where its page is, whom to tell.

Rule: the shapes of `[[trigger]]`, `[server]` and `[notify]`, and nothing that acts. Secrets are names of environment
variables, never values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from loopwright.readers import (
    Fault,
    Read,
    WrongError,
    count,
    length,
    list_of,
    one_of,
    plain,
    table,
    text,
    wrong,
)
from loopwright.units import shown

NEWS: Final = ("needs_you", "failed", "finished", "alert")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """What starts runs of a loop by itself: exactly one of `cron`, `webhook` and `watch` is said.

    `cron` is five fields, in the zone `tz` (`None`: this machine's). A start up to `grace` seconds late is on time;
    `misfire` says what becomes of those that were missed, `overlap` of one that comes while a run of the loop is under
    way (unsaid, what `webhook` and `watch` start is queued: `triggers_of`); `jitter` seconds at most delay a start. `webhook` names the path `/hooks/<name>`, `secret` the variable of its
    key, `signature` how it is signed; `key` are the paths in the payload that say which event it is, `filter` what must
    stand at which paths. `watch` are globs of files.
    """

    cron: str | None = None
    webhook: str | None = None
    watch: tuple[str, ...] = ()
    tz: str | None = None
    misfire: Literal["skip", "run_once", "run_all"] = "run_once"
    grace: float = 60.0
    overlap: Literal["skip", "queue"] = "skip"
    jitter: float = 0.0
    secret: str | None = None
    signature: Literal["standard", "github"] = "standard"
    key: tuple[str, ...] = ()
    filter: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where a server listens and who may use it.

    `public_url` is how people elsewhere reach it (`None`: not at all). `people` may decide, `viewers` only look; each
    gets a token of their own. `workers` is how many runs work at once.
    """

    host: str = "127.0.0.1"
    port: int = 7733
    public_url: str | None = None
    people: tuple[str, ...] = ()
    viewers: tuple[str, ...] = ()
    workers: int = 2


def fitting(pattern: str, what: str) -> Read:
    """A text of this shape; `what` it is not, where it is none."""
    shape = re.compile(pattern)

    def read(value: object) -> str:
        found = text(value)
        if not shape.fullmatch(found):
            raise wrong(f"{shown(found)} is not {what}")
        return found

    return read


variable: Final = fitting(
    r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable (names only, never values)"
)
_hook: Final = fitting(
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", "a name for /hooks/<name>: letters, digits, - and _, 64 at most"
)
_person: Final = fitting(
    r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}", "a person's name: letters, digits and . _ @ + -, 64 at most"
)
_path: Final = fitting(r"[^.\s]+(\.[^.\s]+)*", "a path in a payload, such as issue.number")


def _url(value: object) -> str:
    found = text(value).rstrip("/")
    parts = urlsplit(found)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise wrong(f"{shown(found)} is not the address of a server, such as https://loops.example.org")
    return found


def _one_or_more(read: Read) -> Read:
    return lambda value: list_of(read)([value] if isinstance(value, str) else value)


TRIGGER: Final[Mapping[str, Read]] = {
    "cron": text,
    "webhook": _hook,
    "watch": _one_or_more(text),
    "tz": text,
    "misfire": one_of("skip", "run_once", "run_all"),
    "grace": length,
    "overlap": one_of("skip", "queue"),
    "jitter": length,
    "secret": variable,
    "signature": one_of("standard", "github"),
    "key": _one_or_more(_path),
    "filter": table({}, rest=plain),
}
_OF: Final[Mapping[str, frozenset[str]]] = {  # what else may stand beside each kind
    "cron": frozenset({"tz", "misfire", "grace", "overlap", "jitter"}),
    "webhook": frozenset({"secret", "signature", "key", "filter", "overlap"}),
    "watch": frozenset({"overlap"}),
}


def trigger(value: object) -> Any:
    """A `[[trigger]]` table, read-only; its schedule is checked where schedules are known (`triggers.cron`)."""
    found = table(TRIGGER)(value)
    kinds = [word for word in _OF if word in found]
    if len(kinds) != 1:
        raise wrong("a trigger has exactly one of cron, webhook, watch")
    (kind,) = kinds
    faults: list[Fault] = [
        (word, f"says nothing beside {kind}") for word in found if word != kind and word not in _OF[kind]
    ]
    if kind == "webhook" and "secret" not in found:
        faults.append(("secret", "missing: it names the environment variable with the key that signs"))
    if faults:
        raise WrongError(*faults)
    return found


SERVER: Final[Mapping[str, Read]] = {
    "host": text,
    "port": count(0, 65535),
    "public_url": _url,
    "people": list_of(_person),
    "viewers": list_of(_person),
    "workers": count(1, 1000),
}
server: Final = table(SERVER)


def triggers_of(tables: Iterable[Mapping[str, Any]]) -> tuple[Trigger, ...]:
    """The triggers that checked tables say. An event comes once, so it waits where a time that comes again is left out."""
    return tuple(Trigger(**{"overlap": "skip" if "cron" in each else "queue", **each}) for each in tables)


def server_of(said: Mapping[str, Any] | None) -> Server:
    """The server that a checked table says, with its defaults."""
    known = {f.name for f in fields(Server)}
    return Server(**{word: value for word, value in (said or {}).items() if word in known})
