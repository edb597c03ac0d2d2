"""Standard Webhooks 1.0.0: how a message is signed, and how one that came is believed.

Source: https://github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md: HMAC-SHA256 over
`id.timestamp.body`, in base64, `v1,` before it; a secret is `whsec_` and base64; several signatures are several secrets.

Rule: over the bytes as they came, before anything is read of them; compared in constant time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from loopwright.errors import ConfigError

TOLERANCE_S: Final = 300.0
SHORTEST: Final = 16  # bytes of a secret; the standard says 24 to 64
_MOST: Final = 32  # signatures looked at


def secrets_in(value: str, name: str) -> tuple[bytes, ...]:
    """The secrets in an environment variable, with blanks between them, the newest first; ConfigError for none."""
    found = []
    for word in value.split():
        try:
            raw = word.removeprefix("whsec_")
            secret = base64.b64decode(raw + "=" * (-len(raw) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(f"{name} holds a secret that is not whsec_ and base64") from None
        if len(secret) < SHORTEST:
            raise ConfigError(f"{name} holds a secret of {len(secret)} bytes: it takes {SHORTEST} or more")
        found.append(secret)
    if not found:
        raise ConfigError(
            f"the environment variable {name} is not set: it holds the secret that signs (whsec_…)"
        )
    return tuple(found)


def signed(secrets: Sequence[bytes], message: str, at: datetime, body: bytes) -> dict[str, str]:
    """The headers of a message, signed with each secret."""
    stamp = str(int(at.timestamp()))
    return {
        "webhook-id": message,
        "webhook-timestamp": stamp,
        "webhook-signature": " ".join(f"v1,{_made(secret, message, stamp, body)}" for secret in secrets),
    }


def verified(secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes, now: datetime) -> bool:
    """Whether one of the secrets signed this, within five minutes of `now`."""
    message, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not message or not stamp.isascii() or not stamp.isdigit() or len(stamp) > 12:
        return False
    if abs(now.timestamp() - int(stamp)) > TOLERANCE_S:
        return False
    given = [
        word[3:] for word in headers.get("webhook-signature", "").split()[:_MOST] if word.startswith("v1,")
    ]
    wanted = [_made(secret, message, stamp, body) for secret in secrets]
    return any([hmac.compare_digest(a.encode(), b.encode()) for a in given for b in wanted])  # noqa: C419 - all of them


def _made(secret: bytes, message: str, stamp: str, body: bytes) -> str:
    text = f"{message}.{stamp}.".encode() + body
    return base64.b64encode(hmac.new(secret, text, hashlib.sha256).digest()).decode()
