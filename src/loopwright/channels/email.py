"""Mail: one message per reader, in one thread per run; its link opens a page, and the page decides.

Rules. No address in a mail decides anything: scanners open them all. Everything foreign is escaped in HTML and on one
line in headers. A message's id is made of what it says and to whom, so a second try is the same message.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from email.utils import formataddr, parseaddr
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

from loopwright.cards import Card, Channel
from loopwright.channels import _mail
from loopwright.channels._tickets import LINK_KEY
from loopwright.errors import ConfigError, Undelivered
from loopwright.figures import brief

if TYPE_CHECKING:
    import aiosmtplib

Tls = Literal["starttls", "tls", "none"]
PORTS: Final[Mapping[str, int]] = {"starttls": 587, "tls": 465, "none": 25}
TIMEOUT_S: Final = 10.0
SENT: Final = 2000  # ids remembered, so that a second try leaves out who has the mail
_ADDRESS: Final = re.compile(r"[^\s@<>()\[\],;:\\\"]{1,64}@[A-Za-z0-9.-]{1,253}", re.ASCII)


class _Line:
    def __init__(self, *, server: Mapping[str, Any], to: tuple[str, ...], sender: str, key: bytes) -> None:
        self._server = server
        self._to = to
        self._sender = sender
        self._key = key
        self._sent: dict[str, None] = {}

    async def show(self, card: Card, ref: str | None) -> str:
        """Sends what of the card this thread does not have yet, to every reader who was not sent it."""
        import aiosmtplib

        address = parseaddr(self._sender)[1]
        mails = [
            (to, _mail.mail(card, to, self._sender, self._key, again=ref is not None)) for to in self._to
        ]
        refused: dict[str, aiosmtplib.SMTPResponseException] = {}
        left = [(to, mail) for to, mail in mails if str(mail["Message-ID"]) not in self._sent]
        if left:
            try:
                async with aiosmtplib.SMTP(**self._server) as server:
                    for to, mail in left:
                        try:
                            await server.sendmail(address, [to], mail.as_bytes(policy=_mail.WIRE))
                        except aiosmtplib.SMTPRecipientsRefused as error:
                            refused[to] = error.recipients[0]
                            continue
                        self._sent[str(mail["Message-ID"])] = None
            except aiosmtplib.SMTPException as error:
                raise _undelivered(error) from None
            except OSError as error:
                raise Undelivered(f"the mail server cannot be reached: {brief(str(error))}") from None
        while len(self._sent) > SENT:
            del self._sent[next(iter(self._sent))]
        if refused and (len(refused) == len(mails) or any(e.code < 500 for e in refused.values())):
            why = "; ".join(f"{to}: {error.code} {brief(error.message)}" for to, error in refused.items())
            raise Undelivered(f"refused by the mail server: {why}", final=_all_final(refused.values()))
        return str(mails[0][1]["Message-ID"]) + "".join(
            f" (not to {to}: {error.code} {brief(error.message)})" for to, error in refused.items()
        )


def _all_final(errors: Any) -> bool:
    return all(error.code >= 500 for error in errors)


def _undelivered(error: Exception) -> Undelivered:
    """What went wrong with the mail server; final where it said that it never will."""
    import aiosmtplib

    code = error.code if isinstance(error, aiosmtplib.SMTPResponseException) else 0
    final = code >= 500 or isinstance(error, aiosmtplib.SMTPNotSupported)
    what = f"the mail server said: {code}" if code else "the mail server cannot be used:"
    return Undelivered(f"{what} {brief(str(getattr(error, 'message', error)))}", final=final)


def email(
    *,
    to: list[str],
    sender: str,
    host: str = "localhost",
    port: int | None = None,
    user: str | None = None,
    password: str | None = None,
    tls: Tls = "starttls",
) -> Channel:
    """Mails to these people. `user` and `password` name environment variables; without `port`, that of the `tls`."""
    problems = [f"to: {each!r} is not a mail address" for each in to if not _ADDRESS.fullmatch(each)]
    name, address = parseaddr(sender)
    if not _ADDRESS.fullmatch(address) or not sender.isprintable():
        problems.append(f"sender: {sender!r} is not a mail address, such as Loops <loops@example.org>")
    if not to:
        problems.append("to: nobody is named")
    if (user is None) != (password is None):
        problems.append("user and password go together: each names an environment variable")
    if password is not None and tls == "none" and host not in {"localhost", "127.0.0.1", "::1"}:
        problems.append('tls = "none" would send the password in the clear; say "starttls" or "tls"')
    if problems:
        raise ConfigError(*problems)
    secrets = tuple(name for name in (user, password) if name is not None)

    def opened(environ: Mapping[str, str]) -> _Line:
        missing = [name for name in secrets if not environ.get(name)]
        if missing:
            raise ConfigError(f"email: the environment variable {' and '.join(missing)} is not set")
        if find_spec("aiosmtplib") is None:
            raise ConfigError('aiosmtplib is not installed: pip install "loopwright[email]"')
        server = {
            "hostname": host,
            "port": port or PORTS[tls],
            "username": environ[user] if user else None,
            "password": environ[password] if password else None,
            "use_tls": tls == "tls",
            "start_tls": tls == "starttls",
            "timeout": TIMEOUT_S,
            "local_hostname": socket.gethostname(),  # the full name would ask the net, and wait for it
        }
        key = environ.get(LINK_KEY, "").encode()
        return _Line(server=server, to=tuple(dict.fromkeys(to)), sender=formataddr((name, address)), key=key)

    return Channel(name="email", open=opened, secrets=secrets, linked=True)
