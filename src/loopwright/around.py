"""Which run a process belongs to, and which process is at the other end of a connection.

Rule: it looks at /proc and asks nobody, so what a process says of itself does not matter: unsetting a variable is no way
out. What cannot be seen (another user's, another machine's, no /proc) is `None`, not a guess; a connection of our own
user that no process can be found for hides something, and is `UnseenError`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

MARK: Final = b"LOOPWRIGHT_RUN="
_DEEP: Final = 64  # no tree of processes is deeper, and a loop in it would have no end


class UnseenError(Exception):
    """A process of our own user has the other end of a connection and is not to be found."""


def run_of(pid: int) -> str | None:
    """The run that a process, or one above it, was started in."""
    for _ in range(_DEEP):
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            above = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        except OSError:
            return None
        for entry in environ:
            if entry.startswith(MARK) and entry != MARK:
                return entry.partition(b"=")[2].decode(errors="replace")
        pid = int(above.split()[1])
        if pid <= 1:
            return None
    return None


def run_of_peer(here: tuple[str, int], peer: tuple[str, int], *, within_s: float = 2.0) -> str | None:
    """The run that holds the other end of a TCP connection on this machine, looked for no longer than `within_s`.

    `here` is our end, `peer` the other: address and port. `UnseenError` where it is our own user's and nobody holds it
    (it is on its way from one process to another, or closed), or there are more files open than can be looked at.
    """
    until = time.monotonic() + within_s
    found = _socket(here, peer)
    if found is None:
        return None
    uid, inode = found
    seen = False
    for pid in _holders(f"socket:[{inode}]", until):
        if (run := run_of(pid)) is not None:
            return run
        seen = True
    if not seen and (uid == str(os.geteuid()) or inode == "0"):
        raise UnseenError
    return None


def _socket(here: tuple[str, int], peer: tuple[str, int]) -> tuple[str, str] | None:
    """The user and the inode of the socket that is bound to `peer` and connected to `here`."""
    ends = [
        (_ends_v4(peer), _ends_v4(here), "/proc/net/tcp"),
        (_ends_v6(peer), _ends_v6(here), "/proc/net/tcp6"),
    ]
    for theirs, ours, table in ends:
        try:
            text = Path(table).read_text(encoding="ascii")
        except (OSError, ValueError):
            continue
        at = text.find(f" {theirs} {ours} ") if theirs and ours else -1
        if at >= 0:
            fields = text[at : text.find("\n", at)].split()
            return fields[6], fields[8]
    return None


def _ends_v4(end: tuple[str, int]) -> str:
    """An end as the kernel writes it in its table of IPv4; empty for one that cannot stand there."""
    address = _address(end[0])
    return _written(address.packed, end[1]) if isinstance(address, IPv4Address) else ""


def _ends_v6(end: tuple[str, int]) -> str:
    """An end as the kernel writes it in its table of IPv6, which holds IPv4 as well."""
    address = _address(end[0])
    whole = IPv6Address(f"::ffff:{address}") if isinstance(address, IPv4Address) else address
    return "" if whole is None else _written(whole.packed, end[1])


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _written(packed: bytes, port: int) -> str:
    """32-bit words of the address in the machine's order, and a port."""
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    ordered = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return f"{ordered.hex().upper()}:{port:04X}"


def _holders(link: str, until: float) -> Iterator[int]:
    """The processes of ours that have this socket open; the newest first, who connected just now is among them."""
    for pid in sorted(
        (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()), reverse=True
    ):
        if time.monotonic() > until:
            return
        if _holds(pid, link):
            yield pid


def _holds(pid: int, link: str) -> bool:
    try:
        fds = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - a name for each, and no more
    except OSError:  # another user's, or gone
        return False
    for fd in fds:
        with suppress(OSError):  # closed meanwhile
            if os.readlink(f"/proc/{pid}/fd/{fd}") == link:  # noqa: PTH115 - as above
                return True
    return False
