"""Where a server listens, and by which names it lets itself be called.

Rule: names are compared whole, never by how they begin or end; who listens for others than this machine says so twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from loopwright.errors import ConfigError
from loopwright.unattended import Server

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An open server: the address it is bound to, and how people elsewhere reach it."""

    host: str
    port: int
    public_url: str | None = None

    @property
    def url(self) -> str:
        """Where it is reached from this machine."""
        host = "127.0.0.1" if _everywhere(self.host) else self.host
        return f"http://{_bracketed(host)}:{self.port}"

    @property
    def secure(self) -> bool:
        """Whether people reach it through TLS."""
        return (self.public_url or "").startswith("https:")

    @property
    def cookie(self) -> str:
        """The name of its cookie: cookies know no ports, so the name does."""
        return f"loopwright-{self.port}"

    @property
    def hosts(self) -> frozenset[str]:
        """Every Host header it answers to, in lower case."""
        known = _names(self.host, self.port, "http")
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            port = parts.port or DEFAULT_PORTS[parts.scheme]
            known |= _named(str(parts.hostname), port, parts.scheme)
        return known

    @property
    def origins(self) -> frozenset[str]:
        """Every Origin that is its own."""
        own = {f"http://{name}" for name in _names(self.host, self.port, "http")}
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            port = parts.port or DEFAULT_PORTS[parts.scheme]
            own |= {f"{parts.scheme}://{name}" for name in _named(str(parts.hostname), port, parts.scheme)}
        return frozenset(own)


def check_bind(server: Server, host: str) -> None:
    """`ConfigError` for a server that others than this machine could reach without having been told to let them.

    Also for a `public_url` with a path: it answers at the top of its name, where its cookie is its own.
    """
    if server.public_url is not None and urlsplit(server.public_url).path:
        raise ConfigError(
            f"server.public_url: {server.public_url} has a path; give the server a name (or a port) of its own"
        )
    if is_loopback(host):
        return
    missing = [
        what
        for what, there in (
            ("[server] people (who may decide, each gets a token)", bool(server.people)),
            (
                "[server] public_url (how they reach it, such as https://loops.example.org)",
                bool(server.public_url),
            ),
        )
        if not there
    ]
    if missing:
        raise ConfigError(
            f"server.host: {host} can be reached from other machines; that needs {' and '.join(missing)}. "
            "Without them it listens on 127.0.0.1 alone"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _everywhere(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def _names(host: str, port: int, scheme: str) -> frozenset[str]:
    """What a server bound to `host` is called on this machine, and by its own address."""
    names: frozenset[str] = frozenset()
    if _everywhere(host) or is_loopback(host):
        names |= _named("localhost", port, scheme)
    if _everywhere(host):
        return names | _named("127.0.0.1", port, scheme)
    if host != "localhost":
        return names | _named(host, port, scheme)
    return names | _named("127.0.0.1", port, scheme)


def _named(host: str, port: int, scheme: str) -> frozenset[str]:
    name = _bracketed(host).lower()
    bare = {name} if DEFAULT_PORTS[scheme] == port else set()
    return frozenset({f"{name}:{port}", *bare})


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
