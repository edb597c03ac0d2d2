"""Which run a process belongs to, and which process is at the other end of a connection.

Rule: it looks at /proc and asks nobody, so what a process says of itself does not matter: unsetting a variable is no way
out. What cannot be seen (another user's, another machine's, no /proc) is `None`, not a guess.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

MARK: Final = b"LOOPWRIGHT_RUN="
_DEEP: Final = 64  # no tree of processes is deeper, and a loop in it would have no end


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


def run_of_peer(here: tuple[str, int], peer: tuple[str, int], *, within_s: float = 0.5) -> str | None:
    """The run that holds the other end of a TCP connection on this machine, looked for no longer than `within_s`.

    `here` is our end, `peer` the other: address and port.
    """
    until = time.monotonic() + within_s
    inode = _inode(here, peer)
    if inode is None:
        return None
    for pid in _holders(f"socket:[{inode}]", until):
        if (run := run_of(pid)) is not None:
            return run
    return None


def _inode(here: tuple[str, int], peer: tuple[str, int]) -> int | None:
    """The inode of the socket that is bound to `peer` and connected to `here`."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except (OSError, ValueError):
            continue
        for line in lines:
            fields = line.split()
            if _end(fields[1]) == _plain(peer) and _end(fields[2]) == _plain(here) and fields[9] != "0":
                return int(fields[9])
    return None


def _end(text: str) -> tuple[str, int]:
    """One end as the kernel writes it: 32-bit words of the address, each in the machine's order, and a port."""
    address, _, port = text.partition(":")
    words = (bytes.fromhex(address[at : at + 8]) for at in range(0, len(address), 8))
    raw = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return _plain((str(ip_address(raw)), int(port, 16)))


def _plain(end: tuple[str, int]) -> tuple[str, int]:
    """An end with an IPv4 address written as such, also where IPv6 carries it."""
    address = ip_address(end[0].partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), end[1]


def _holders(link: str, until: float) -> Iterator[int]:
    """The processes of ours that have this socket open; the newest first, who connected just now is among them."""
    for pid in sorted(
        (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()), reverse=True
    ):
        if time.monotonic() > until:
            return
        if pid != os.getpid() and _holds(pid, link):
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
