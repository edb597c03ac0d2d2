"""Facts to strict JSON and back: schema version, hash link, cached folds.

Rules. The unit is the commit: facts written together under one number, linked to the bytes of the
commit before. A byte that changed anywhere breaks the link and is named; it is never parsed as
another history. What this version does not know is refused, not skipped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import msgspec

from loopwright.core import events as ev
from loopwright.core import state as st
from loopwright.core import values
from loopwright.errors import Corrupt, StoreError

SCHEMA: Final = 1
LINK: Final = 32  # hex characters of SHA-256 kept: 128 bits


class _Envelope(msgspec.Struct, frozen=True):
    t: str
    at: datetime
    e: msgspec.Raw


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    v: int
    n: int
    prev: str
    owner: str
    epoch: int
    nonce: str
    facts: list[_Envelope]


class _Fold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    v: int
    shape: str
    n: int
    link: str
    state: msgspec.Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Facts written together, each with when it happened; `link` is the hash of the bytes."""

    n: int
    prev: str
    owner: str
    epoch: int
    nonce: str
    facts: tuple[tuple[datetime, ev.Event], ...]
    link: str


_ENCODER: Final = msgspec.json.Encoder()
_LINES: Final = msgspec.json.Decoder(_Line)
_KEYS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_FOLDS: Final = msgspec.json.Decoder(_Fold)
_FACTS: Final[dict[str, Any]] = {cls.__name__: cls for cls in ev.EVENTS}


@cache
def _decoder(cls: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cls)


@cache
def _shape() -> str:
    """Changes whenever a class of the fold does, so that no old cache is read as a new one."""
    found = [c for module in (ev, st, values) for c in vars(module).values() if isinstance(c, type)]
    text = ";".join(
        f"{c.__name__}({','.join(f'{f.name}:{f.type}' for f in fields(c))})" for c in found if is_dataclass(c)
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def link_of(commit: bytes) -> str:
    """The hash by which the next commit names this one."""
    return hashlib.sha256(commit).hexdigest()[:LINK]


def encode(
    n: int, prev: str, owner: str, epoch: int, nonce: str, facts: tuple[tuple[datetime, ev.Event], ...]
) -> bytes:
    """One commit as one line of JSON, without the newline."""
    # The encoder asks what a value is, not what its field should hold.
    told = [_Envelope(type(event).__name__, at, event) for at, event in facts]  # type: ignore[arg-type]
    return _ENCODER.encode(_Line(SCHEMA, n, prev, owner, epoch, nonce, told))


def decode(run: str, n: int, prev: str, line: bytes) -> Commit:
    """The commit `n` of `run`; `Corrupt` when it is damaged or does not follow `prev`."""
    where = f"commit {n} of run {run}"
    try:
        raw = _LINES.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"{where} is damaged ({len(line)} bytes): {error}") from None
    if raw.v != SCHEMA:
        raise StoreError(
            f"{where} has schema {raw.v}; this loopwright reads {SCHEMA}: use the version that wrote it"
        )
    if raw.n != n or raw.prev != prev:
        raise Corrupt(
            f"{where} does not follow the commit before it (it says number {raw.n} after {raw.prev or 'nothing'})"
        )
    facts = tuple((_aware(where, f.at), _fact(where, f)) for f in raw.facts)
    return Commit(
        n=n, prev=prev, owner=raw.owner, epoch=raw.epoch, nonce=raw.nonce, facts=facts, link=link_of(line)
    )


def _aware(where: str, at: datetime) -> datetime:
    if at.tzinfo is None:
        raise Corrupt(f"{where} holds a time without a zone: {at.isoformat()}")
    return at


@cache
def _known(cls: type[ev.Event]) -> frozenset[str]:
    """The names of a fact's fields."""
    return frozenset(f.name for f in fields(cls))


def _fact(where: str, envelope: _Envelope) -> ev.Event:
    cls = _FACTS.get(envelope.t)
    if cls is None:
        raise StoreError(
            f"{where} holds the fact {envelope.t!r}, unknown to this loopwright: use the version that wrote it"
        )
    try:
        fact: ev.Event = _decoder(cls).decode(envelope.e)
        unknown = _KEYS.decode(envelope.e).keys() - _known(cls)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise Corrupt(f"{where} holds a damaged {envelope.t}: {error}") from None
    if unknown:
        what = f"{envelope.t} with {', '.join(sorted(unknown))}"
        raise StoreError(f"{where} holds {what}, unknown to this loopwright: use the version that wrote it")
    return fact


def commits(run: str, lines: Iterator[tuple[int, bytes]], after: int = 0, link: str = "") -> Iterator[Commit]:
    """The commits of `run` after number `after` (whose link is `link`), checked to be whole and gapless."""
    for n, line in lines:
        if n != after + 1:
            raise Corrupt(f"run {run} has no commit {after + 1} but has commit {n}")
        commit = decode(run, n, link, line)
        yield commit
        after, link = n, commit.link


def encode_fold(n: int, link: str, state: st.LoopState) -> bytes:
    """A fold to keep as a cache: it names the commit it reaches to."""
    return _ENCODER.encode({"v": SCHEMA, "shape": _shape(), "n": n, "link": link, "state": state})


def decode_fold(line: bytes) -> tuple[int, str, st.LoopState] | None:
    """The cached fold, or `None` when it is damaged or of another version: a cache costs time, never data."""
    try:
        raw = _FOLDS.decode(line)
        if raw.v != SCHEMA or raw.shape != _shape():
            return None
        return raw.n, raw.link, _decoder(st.LoopState).decode(raw.state)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return None


def plain(value: Any) -> Any:
    """Any of our values as plain JSON data."""
    return msgspec.to_builtins(value)


def dumps(value: Any, *, indent: int | None = None) -> bytes:
    """`value` as JSON; our values, times and tuples included."""
    encoded = _ENCODER.encode(value)
    return msgspec.json.format(encoded, indent=indent) if indent is not None else encoded


def loads(text: bytes) -> Any:
    """Plain data from JSON; `ValueError` when it is not."""
    return msgspec.json.decode(text)


def encode_signal(event: ev.Event, at: datetime | None = None) -> bytes:
    """A fact that somebody else wants on record, and when they said so."""
    return _ENCODER.encode({"t": type(event).__name__, "e": event, **({} if at is None else {"at": at})})


class _Signal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    t: str
    e: msgspec.Raw
    at: datetime | None = None


def said_at(record: bytes) -> datetime | None:
    """When a signal was left, where it says so."""
    return msgspec.json.decode(record, type=_Signal).at


def decode_signal(run: str, key: str, record: bytes) -> ev.Event:
    """The fact a signal asks for; `Corrupt` when it is damaged."""
    try:
        raw = msgspec.json.decode(record, type=_Signal)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"signal {key} of run {run} is damaged: {error}") from None
    return _fact(f"signal {key} of run {run}", _Envelope(t=raw.t, at=datetime.now(UTC), e=raw.e))
