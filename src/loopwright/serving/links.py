"""Links in mails: what makes one open a request for its reader, who has no token of this server.

Rules. A link shows one request and lets its one decision be made, by the address it was sent to; opening it changes
nothing. It lasts as long as the request is open; after that it says how that ended, and no more. Who has the link is
taken for its reader, as with every mail of that kind.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path
from typing import Final, Literal

from loopwright.cards import Answered, Told
from loopwright.channels._tickets import ticket
from loopwright.errors import WorkspaceError
from loopwright.hosts.ways import STATE
from loopwright.ports import Store
from loopwright.serving.answers import answered
from loopwright.serving.card import Source
from loopwright.serving.due import is_open
from loopwright.state_folder import create_state

CHANNEL: Final = "email"  # through which an answer by a link came, for the record


def key_of(state: Path) -> bytes:
    """The secret that this server's links are made with; made once, for its owner only. `WorkspaceError` where it cannot be."""
    folder = state / "server"
    path = folder / "link.key"
    try:
        if not path.exists():
            create_state(state)
            folder.mkdir(mode=0o700, exist_ok=True)
            made = folder / f".link.{secrets.token_hex(8)}"
            fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(secrets.token_hex(32).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(made, path)  # whoever is first: both then read the same
            except FileExistsError:
                pass
            finally:
                made.unlink()
        found = path.read_bytes().strip()
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be used: {error.strerror or error}") from error
    if len(found) < 32:
        raise WorkspaceError(f"{path} holds no key: remove it, and a new one is made (links sent so far end)")
    return found


def fits(source: Source, run: str, approval: str, to: str, key: str) -> bool:
    """Whether a link is one that this server made; never where it has no address that links could lead to."""
    if source.public_url is None:
        return False
    try:
        wanted = ticket(key_of(source.project / STATE), run, approval, to)
    except (WorkspaceError, UnicodeError):
        return False
    return hmac.compare_digest(wanted.encode(), key.encode("utf-8", "replace"))


def opened(
    store: Store, source: Source, run: str, approval: str, to: str, key: str
) -> Literal["open", "over"] | None:
    """Whether a link opens this request: `open` to be decided, `over` to be told how it ended; `None` for no link of ours."""
    if not fits(source, run, approval, to, key):
        return None
    return "open" if is_open(store, run, approval) else "over"


def decided(store: Store, source: Source, said: Answered, key: str) -> Told:
    """What becomes of an answer given on the page of a link; `said.by` is the address that the link is for."""
    if opened(store, source, said.run, said.approval, said.by, key) is None:
        return Told(word="refused", text="this link is not one of this server's")
    return answered(store, said, CHANNEL, environ=source.environ)
