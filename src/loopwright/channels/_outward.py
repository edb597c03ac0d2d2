"""One POST to an address that somebody wrote down, without becoming their way into this network.

Rules. The name is resolved once and the connection goes to what it gave; what is not on the public net is refused
unless it is let to be. No redirect is followed, no proxy is asked, no more of an answer is read than its head.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from socket import SOCK_STREAM, getaddrinfo
from typing import Final
from urllib.parse import SplitResult, urlsplit

from loopwright.calling import Late, Raised, Threads
from loopwright.errors import ConfigError, Undelivered
from loopwright.figures import brief

HEAD_BYTES: Final = 32 << 10
NAME_S: Final = 10.0  # until a name is found
_NAT64: Final = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the other side said: its status, and how long it wants to be left alone."""

    status: int
    retry_after_s: float | None = None


def address(url: str) -> SplitResult:
    """The parts of an address that can be posted to; `ConfigError` for another."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError("url: this is not an address, such as https://example.org/hook") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ConfigError("url: this is not an address, such as https://example.org/hook")
    if parts.username or parts.password:
        raise ConfigError("url: it holds a password: what is sent is signed, the address needs none")
    if not url.isascii() or any(c <= " " or c == "\x7f" for c in url):
        raise ConfigError("url: only ASCII without blanks: write others as %XX, names as xn--…")
    return parts


def is_public(text: str) -> bool:
    """Whether an IP address is one of the public net: no loopback, link-local, private, metadata or multicast one."""
    found = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if inner is None and found.teredo is not None:
            return False
        if inner is None and any(found in net for net in _NAT64):
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)


async def resolved(host: str, port: int, *, private: bool) -> str:
    """The address to connect to; `Undelivered`, for good, where one of those that `host` has must not be reached."""
    # In a thread that nobody waits for at the end: a net without names would keep the server from leaving.
    match await Threads(getaddrinfo).call(host, port, 0, SOCK_STREAM, timeout_s=NAME_S, grace_s=0):
        case Late():
            raise Undelivered(f"{brief(host)} cannot be found within {NAME_S:g} s")
        case Raised(error=OSError() | UnicodeError()):
            raise Undelivered(f"{brief(host)} cannot be found")
        case Raised(error=error):
            raise error
        case found:
            addresses = [str(each[4][0]) for each in found]
    if not private and (inside := [each for each in addresses if not is_public(each)]):
        raise Undelivered(
            f"{brief(host)} is {inside[0]}, which is not on the public net: allow_private = true lets it be",
            final=True,
        )
    if not addresses:
        raise Undelivered(f"{brief(host)} cannot be found")
    return addresses[0]


async def post(parts: SplitResult, headers: Mapping[str, str], body: bytes, *, private: bool) -> Answer:
    """What the other side answers to this POST; `Undelivered` where there is no answer."""
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    there = await resolved(host, port, private=private)
    writer = None
    try:
        reader, writer = await asyncio.open_connection(
            there,
            port,
            ssl=ssl.create_default_context() if secure else None,
            server_hostname=host if secure else None,
            limit=HEAD_BYTES,
        )
        writer.write(_request(parts, headers, body))
        await writer.drain()
        return _answer(await reader.readuntil(b"\r\n\r\n"))
    except ssl.SSLError as error:
        raise Undelivered(f"{brief(host)}: {error.reason or 'TLS failed'}") from None
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise Undelivered(f"{brief(host)}: {brief(str(error)) or type(error).__name__}") from None
    finally:
        if writer is not None:
            writer.close()
            with suppress(OSError, asyncio.CancelledError, ssl.SSLError):
                writer.transport.abort()


def _request(parts: SplitResult, headers: Mapping[str, str], body: bytes) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    said = {
        "Host": parts.netloc,
        "User-Agent": "loopwright",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **headers,
    }
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items()), "", ""]
    return "\r\n".join(lines).encode("ascii") + body


def _answer(head: bytes) -> Answer:
    """The status and the wait in the head of an answer; `ValueError` where it is none."""
    first, *lines = head.decode("latin-1").split("\r\n")
    protocol, _, rest = first.partition(" ")
    if not protocol.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise ValueError("it does not answer in HTTP/1.1")
    wait = next(
        (
            value
            for name, _, value in (line.partition(":") for line in lines)
            if name.lower() == "retry-after"
        ),
        "",
    )
    return Answer(status=int(rest[:3]), retry_after_s=seconds_of(wait.strip()))


def seconds_of(text: str, now: datetime | None = None) -> float | None:
    """The seconds that a Retry-After says, as a number or as a date; `None` where it says nothing."""
    if text.isascii() and text.isdigit():
        return float(text[:9])
    with suppress(ValueError, TypeError):
        at = parsedate_to_datetime(text)
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return max(0.0, (at - (now or datetime.now(UTC))).total_seconds())
    return None
