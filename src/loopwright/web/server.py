"""The web server in a thread of its own, with an event loop of its own.

Rule: stopping takes less than a second, whatever is open: streams hear of it first, and nobody waits for the rest.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from dataclasses import dataclass
from typing import Final

import uvicorn
from fastapi import FastAPI

from loopwright.errors import ConfigError
from loopwright.serving.live import Live
from loopwright.web.address import Address, check_bind
from loopwright.web.app import create
from loopwright.web.bounds import Bounds

_LOG: Final = logging.getLogger("loopwright.web")
_WAIT_S: Final = 0.9
_BEGIN_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A web server that answers: where, and how it is stopped."""

    address: Address
    app: FastAPI
    _uvicorn: uvicorn.Server
    _thread: threading.Thread

    @property
    def port(self) -> int:
        """The port it is bound to."""
        return self.address.port

    @property
    def url(self) -> str:
        """The address as people reach it."""
        return self.address.public_url or self.address.url

    def links(self) -> dict[str, str]:
        """For each person the address that lets them in; whoever has it is them."""
        return {name: f"{self.url}/?token={token}" for name, token in self.app.state.tokens.current().items()}

    def stop(self) -> None:
        """Ends open streams and the server; returns within a second."""
        self._uvicorn.should_exit = True
        self.app.state.streams.close()
        self._thread.join(_WAIT_S)


def start(
    live: Live,
    *,
    host: str | None = None,
    port: int | None = None,
    sock: socket.socket | None = None,
    bounds: Bounds | None = None,
) -> Served:
    """A server that answers when this returns, at `host` and `port` or what `[server]` says (port 0: one that is free).

    `ConfigError` where it cannot listen there, or others could reach it and nobody said that they may.
    """
    said = live.server
    host = said.host if host is None else host
    check_bind(said, host)
    sock = sock or _bound(host, said.port if port is None else port)
    address = Address(host=host, port=sock.getsockname()[1], public_url=said.public_url)
    app = create(live, address=address, bounds=bounds)
    try:
        app.state.tokens.current()
    except ConfigError:  # a file that others can read
        sock.close()
        raise
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # nobody says for others where they come from
            server_header=False,
            h11_max_incomplete_event_size=32_768,
            limit_concurrency=512,
            timeout_graceful_shutdown=1,
        )
    )
    _log_as_ours()
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[sock])), name="loopwright-web", daemon=True
    )
    thread.start()
    _wait(server, thread)
    return Served(address=address, app=app, _uvicorn=server, _thread=thread)


class _Onward(logging.Handler):
    """Hands what uvicorn says to our own log, which knows no secrets and one line for each thing."""

    def emit(self, record: logging.LogRecord) -> None:
        """One thing that it said."""
        _LOG.handle(record)


def _log_as_ours() -> None:
    """What anybody on the network can make it say (a request that is none) is left out."""
    logging.getLogger(
        "uvicorn.access"
    ).disabled = True  # a token may stand in an address, whoever sets logs up
    found = logging.getLogger("uvicorn.error")
    found.handlers, found.propagate = [_Onward()], False
    found.setLevel(logging.ERROR)


def _wait(server: uvicorn.Server, thread: threading.Thread) -> None:
    """Until it answers."""
    begun = threading.Event()
    for _ in range(int(_BEGIN_S / 0.01)):
        if server.started:
            return
        if not thread.is_alive():
            break
        begun.wait(0.01)
    raise ConfigError("the web server did not start; the log says why")


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named TCP, or asyncio would not switch off the delay that makes every answer 40 ms late.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise ConfigError(f"server: cannot listen on {host}:{port}: {error.strerror or error}") from error
    sock.set_inheritable(False)
    return sock
