"""Webhooks: each card as a signed POST to an address, and decisions as signed POSTs to `/channels/webhook`.

Rules. Signed as `loopwright.signatures` says, both ways. A try again has the id of the try before. What comes in is
not read before its signature is; what is decided there is by whom the sender says, so only who may decide gets the secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import SplitResult

from loopwright.cards import Answer, Answered, Card, Channel, Incoming, Reply, Told
from loopwright.channels import _outward, _words
from loopwright.errors import ConfigError, Undelivered
from loopwright.redact import looks_secret
from loopwright.signatures import keys_in, signed, unsigned

PAYLOAD_BYTES: Final = 20_000 - 500  # the standard asks for less than 20 kB
BODY_BYTES: Final = 64 << 10  # of a decision
STATUS: Final[Mapping[str, int]] = {
    "recorded": 200,
    "again": 200,
    "conflict": 409,
    "stale": 409,
    "nothing": 409,
    "late": 410,
    "unknown": 404,
    "refused": 422,
}
_NEEDS: Final = {"run": str, "approval": str, "answer": str, "by": str}
_MAY: Final = {"note": str, "override": str}


class _Line:
    def __init__(self, to: SplitResult, secrets: tuple[bytes, ...], *, private: bool) -> None:
        self._to = to
        self._secrets = secrets
        self._private = private

    async def show(self, card: Card, ref: str | None) -> str:
        """Posts the card; the message's id."""
        body, message = payload(card), f"msg_{_words.key_of(card, again=ref is not None)}"
        headers = signed(self._secrets, message, datetime.now(UTC), body)
        answer = await _outward.post(self._to, headers, body, private=self._private)
        if 200 <= answer.status < 300:
            return message
        raise Undelivered(
            f"{self._to.hostname} answered {answer.status}",
            retry_after_s=answer.retry_after_s,
            final=answer.status == 410,  # gone: the standard's word for "never again"
        )


def kind(card: Card) -> str:
    """The `type` of the message."""
    if not card.approval:
        return f"loopwright.run.{card.about}"
    if card.superseded:
        return "loopwright.approval.superseded"
    return "loopwright.approval.decided" if card.decided else "loopwright.approval.requested"


def payload(card: Card) -> bytes:
    """The message: what the card says as JSON, the patch and long texts cut until it is small enough."""
    patch, most, cut = card.patch, 4000, card.cut
    while True:
        body = json.dumps(_document(card, patch, most, cut=cut), ensure_ascii=False, default=str).encode(
            "utf-8", "replace"
        )
        if len(body) <= PAYLOAD_BYTES or most < 20:
            return body
        if patch:
            lines = patch.splitlines(keepends=True)
            patch, cut = "".join(lines[: len(lines) // 2]), True
        else:
            most //= 2


def _document(card: Card, patch: str, most: int, *, cut: bool) -> dict[str, Any]:
    shown = card.shown
    said = None
    if shown is not None:
        said = {
            **{k: v for k, v in asdict(shown).items() if k not in {"gates", "run", "before", "after"}},
            "gates": [
                {"gate": g.gate, "status": g.score.status, "value": g.score.value, "reason": g.score.reason}
                for g in shown.gates[:50]
            ],
        }
    document = {
        "run": card.run,
        "loop": card.loop,
        "about": card.about,
        "title": card.title,
        "approval": card.approval,
        "request": said,
        "diff": None
        if card.files is None
        else {"files": card.files, "added": card.added, "removed": card.removed, "patch": patch, "cut": cut},
        "link": card.link,
        "decided": None if card.decided is None else asdict(card.decided),
        "superseded": card.superseded,
        "unreached": list(card.unreached),
        "state": dict(card.head),
    }
    data = {key: value if key == "diff" else _bounded(value, most) for key, value in document.items()}
    return {"type": kind(card), "timestamp": datetime.now(UTC).isoformat(timespec="seconds"), "data": data}


def _bounded(value: Any, most: int) -> Any:
    """A value with its texts cut to `most` characters, its lists to 100 items."""
    match value:
        case str():
            return value if len(value) <= most else value[: most - 1] + "…"
        case Mapping():
            return {str(key): _bounded(item, most) for key, item in value.items()}
        case list() | tuple():
            return [_bounded(item, most) for item in value[: max(1, min(100, most // 10))]]
        case datetime():
            return value.astimezone(UTC).isoformat()
        case _:
            return value


def _said(body: bytes) -> Answered | str:
    """The decision in a body, or what is wrong with it."""
    try:
        found = json.loads(body, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return "the body is not a JSON object whose names stand once"
    if not isinstance(found, dict):
        return "the body is not a JSON object"
    if unknown := sorted(found.keys() - _NEEDS.keys() - _MAY.keys()):
        return f"unknown: {', '.join(unknown)[:200]}"
    wrong = [name for name in _NEEDS if not isinstance(found.get(name), str) or not found[name].strip()]
    wrong += [name for name in _MAY if found.get(name) is not None and not isinstance(found[name], str)]
    if wrong:
        return f"missing or not a text: {', '.join(wrong)}"
    if found["answer"] not in {"approve", "revise", "reject"}:
        return "answer is one of approve, revise, reject"
    if len(found["by"]) > 200 or not found["by"].isprintable():
        return "by is a name on one line"
    if any("\ud800" <= c <= "\udfff" for text in found.values() if text for c in text):
        return "half a character (a lone surrogate)"
    return Answered(
        run=found["run"],
        approval=found["approval"],
        answer=found["answer"],
        by=found["by"],
        note=found.get("note") or "",
        override=found.get("override"),
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _reply(status: int, told: Told | str) -> Reply:
    word, text = ("invalid", told) if isinstance(told, str) else (told.word, told.text)
    return Reply(status=status, body=json.dumps({"outcome": word, "text": text}).encode())


def webhook(*, url: str, secret: str, allow_private: bool = False) -> Channel:
    """Signed POSTs to `url` (or `env:NAME`), decisions by signed POSTs here. `secret` names an environment variable."""
    if not url.startswith("env:"):
        _outward.address(url)
    if not looks_secret(
        secret, ""
    ):  # else a run that is started by hand shows it to its agent, which could decide
        raise ConfigError(
            f"secret: agents would be shown {secret} under this name: let it end in _SECRET, _KEY or _TOKEN"
        )
    secrets = (secret, *([url.removeprefix("env:")] if url.startswith("env:") else []))

    def keys(environ: Mapping[str, str]) -> tuple[bytes, ...]:
        if not environ.get(secret, "").strip():
            raise ConfigError(
                f"the environment variable {secret} is not set: it holds the secret that signs (whsec_…)"
            )
        try:
            return keys_in(environ[secret])
        except ValueError as error:
            raise ConfigError(f"{secret} {error}") from None

    def opened(environ: Mapping[str, str]) -> _Line:
        to = _outward.address(_words.of_env(url, environ, "webhook"))
        return _Line(to, keys(environ), private=allow_private)

    async def hear(incoming: Incoming, environ: Mapping[str, str], answer: Answer) -> Reply:
        try:
            known = keys(environ)
        except ConfigError:
            return _reply(401, "there is no secret to know you by")
        if len(incoming.body) > BODY_BYTES or unsigned(known, incoming.headers, incoming.body, incoming.now):
            return _reply(401, "it is not signed as it should be")
        said = _said(incoming.body)
        if isinstance(said, str):
            return _reply(422, said)
        told = await answer(said)
        return _reply(STATUS[told.word], told)

    return Channel(name="webhook", open=opened, secrets=secrets, hear=hear)
