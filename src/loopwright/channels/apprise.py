"""Apprise: news and requests to any of its some hundred services, by an address. It tells only; nobody answers there.

Rule: an address often holds a secret, so no message of ours repeats more of it than its scheme.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from loopwright.calling import Late, Raised, Threads
from loopwright.cards import Card, Channel
from loopwright.channels import _words
from loopwright.errors import ConfigError, Undelivered
from loopwright.redact import SECRET_URL

if TYPE_CHECKING:
    from apprise import Apprise

TIMEOUT_S: Final = 12.0
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_VARIABLE: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class _Line:
    def __init__(self, service: Apprise, scheme: str) -> None:
        self._service = service
        self._scheme = scheme
        # Not an executor: of one of those the end of the server would wait for a service that hangs.
        self._threads = Threads(self._send)
        self._busy = threading.Lock()

    async def show(self, card: Card, ref: str | None) -> str:  # noqa: ARG002 - nothing that was sent can be changed
        """Sends the card as text."""
        title, _, body = _words.text(card).partition("\n")
        if self._busy.locked():
            raise Undelivered(f"{self._scheme}: it has not answered to the message before")
        sent = await self._threads.call(
            f"[{card.loop}] {title}", body.strip(), timeout_s=TIMEOUT_S, grace_s=0
        )
        match sent:
            case Late():
                raise Undelivered(f"{self._scheme}: no answer within {TIMEOUT_S:g} s")
            case Raised(error=error):  # other people's plug-ins; their texts may hold the address
                raise Undelivered(f"{self._scheme}: {type(error).__name__} in its plug-in of apprise")
            case _:
                pass
        if not sent:
            raise Undelivered(f"{self._scheme}: apprise could not deliver it")
        return f"{self._scheme}:{_words.key_of(card)[:12]}"

    def _send(self, title: str, body: str) -> bool:
        with self._busy:
            return bool(self._service.notify(body=body or title, title=title, body_format="text"))


def apprise(*, url: str) -> Channel:
    """News by an Apprise address (`scheme://…`), or by the one in an environment variable (`env:NAME`)."""
    scheme = _SCHEME.match(url)
    if scheme is None and not _VARIABLE.fullmatch(url):
        raise ConfigError(
            'url: write an address of Apprise ("scheme://…"), or "env:NAME" for one in a variable'
        )
    if scheme is not None and SECRET_URL.search(url):
        raise ConfigError(
            f'url: the {scheme[1]} address holds a password: put it in an environment variable, say url = "env:NAME"'
        )
    secrets = () if scheme is not None else (url.removeprefix("env:"),)

    def opened(environ: Mapping[str, str]) -> _Line:
        try:
            from apprise import Apprise
        except ImportError as error:
            raise ConfigError('apprise is not installed: pip install "loopwright[notify]"') from error
        address = _words.of_env(url, environ, "apprise")
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # it logs addresses
        service, found = Apprise(), _SCHEME.match(address)
        if found is None or not service.add(address):
            raise ConfigError(
                f"apprise knows no service of this address ({found[1] if found else 'no'} scheme)"
            )
        return _Line(service, found[1])

    return Channel(name="apprise", open=opened, secrets=secrets)
