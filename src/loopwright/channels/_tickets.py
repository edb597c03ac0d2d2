"""Tickets: what makes a link in a mail open one request for one reader, who has no token of the server.

Rule: made of a secret of the server, and of who may do what with it; kept nowhere. Whoever has the link is the reader,
so it opens one request, lets its one decision be made, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final
from urllib.parse import urlencode

LINK_KEY: Final = (
    "LOOPWRIGHT_LINK_KEY"  # the secret, for channels that make links; never in an agent's environment
)


def ticket(secret: bytes, run: str, approval: str, to: str) -> str:
    """The ticket of one reader for one request: 43 letters that only who has the secret can make."""
    said = f"loopwright/link/v1\x00{run}\x00{approval}\x00{to.lower()}".encode()
    return base64.urlsafe_b64encode(hmac.new(secret, said, hashlib.sha256).digest()).rstrip(b"=").decode()


def with_ticket(link: str, secret: bytes, run: str, approval: str, to: str) -> str:
    """The page's address with the ticket of one reader on it."""
    return f"{link}?{urlencode({'to': to, 'k': ticket(secret, run, approval, to)})}"
