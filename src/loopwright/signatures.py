"""Standard Webhooks 1.0: how a message is signed, and how one that came is believed.

Source: https://github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md: HMAC-SHA256 over
`id.timestamp.body`, in base64, `v1,` before it; a secret is `whsec_` and base64; several signatures are several secrets.
Their library reads the clock itself, knows one secret and answers a bad header with errors of its own, so the few
lines are here and it is the peer of the tests.

Rule: over the bytes as they came, before anything is read of them; compared in constant time; nothing repeats a secret.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

TOLERANCE_S: Final = 300  # of the sender's clock, as the format says
SHORTEST: Final = 16  # bytes of a secret: what is shorter can be guessed; the standard says 24 to 64
HEADER: Final = 4096  # characters of a header: room for many keys
UNSIGNED: Final = "it is not signed as it should be"


def keys_in(secret: str) -> tuple[bytes, ...]:
    """The keys in a variable that holds `whsec_…` secrets with blanks between them; `ValueError` for none that can be used."""
    return checked(_bytes_of(word) for word in secret.split())


def checked(keys: Iterable[bytes]) -> tuple[bytes, ...]:
    """The same keys; `ValueError`, which goes after the name of their variable, where there is none or one is too short."""
    found = tuple(keys)
    if not found:
        raise ValueError("is empty")
    if any(len(key) < SHORTEST for key in found):
        raise ValueError(f"holds a secret of less than {SHORTEST} bytes, which can be guessed")
    return found


def signed(keys: Iterable[bytes], message: str, at: datetime, body: bytes) -> dict[str, str]:
    """The headers of a message, signed with each key."""
    stamp = str(int(at.timestamp()))
    made = (_made(key, message, stamp, body).decode() for key in keys)
    return {
        "webhook-id": message,
        "webhook-timestamp": stamp,
        "webhook-signature": " ".join(f"v1,{each}" for each in made),
    }


def unsigned(keys: Iterable[bytes], headers: Mapping[str, str], body: bytes, now: datetime) -> str:
    """Why none of the keys signed this within five minutes of `now`; nothing where one did. `headers` by lower-case name."""
    message, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    said = headers.get("webhook-signature", "")
    if not message or not re.fullmatch(r"[0-9]{1,12}", stamp) or max(len(said), len(message)) > HEADER:
        return UNSIGNED
    given = [ascii_of(word.removeprefix("v1,")) for word in said.split(" ") if word.startswith("v1,")]
    if not any_same([_made(key, message, stamp, body) for key in keys], given):
        return UNSIGNED
    if abs(now.timestamp() - int(stamp)) > TOLERANCE_S:
        return "it was sent more than five minutes ago, or the clocks differ by so much"
    return ""


def any_same(ours: list[bytes], given: list[bytes]) -> bool:
    """Whether one is the same as one of the others; it takes as long whichever it is."""
    return any([hmac.compare_digest(one, other) for one in ours for other in given])  # noqa: C419 - all of them


def ascii_of(text: str) -> bytes:
    """What came in a header, which is ASCII wherever it is right."""
    return text.encode("ascii", "backslashreplace")


def _made(key: bytes, message: str, stamp: str, body: bytes) -> bytes:
    return base64.b64encode(hmac.digest(key, ascii_of(f"{message}.{stamp}.") + body, "sha256"))


def _bytes_of(secret: str) -> bytes:
    """The key of a `whsec_…` secret."""
    text = secret.removeprefix("whsec_")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("holds a secret that is not whsec_ and base64") from None
