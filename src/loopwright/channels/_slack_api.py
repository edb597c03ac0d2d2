"""Slack's Web API and Socket Mode: the only place that knows slack-sdk.

Rule: every call has a limit and is made in a thread that nobody waits for at the end. What cannot be delivered is
`Undelivered`, which says whether trying again can help, and what to do where it cannot.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from loopwright.calling import Late, Raised, Threads
from loopwright.channels._outward import seconds_of
from loopwright.errors import ConfigError, Undelivered

CALL_S: Final = 6.0  # what one exchange with Slack may take; a message with its file stays below 15 s
FORM_S: Final = 2.0  # Slack lets a form be opened for three seconds after a click
CLOSE_S: Final = 0.5
PING_S: Final = 5.0  # how often a connection is looked at; one that is gone is opened anew
FIRST_S: Final = 1.0  # between two attempts to connect, at first
LONGEST_S: Final = 60.0
LATEST_S: Final = 3600.0  # where Slack says when
HOOKS: Final = "hooks.slack.com"
_QUIET: Final = logging.getLogger(
    f"{__name__}.calls"
)  # what goes wrong is raised, and nothing sent is written down
_QUIET.setLevel(logging.CRITICAL)
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
# What may pass by itself; whatever else Slack refuses it would refuse again.
_PASSING: Final = frozenset(
    {"ratelimited", "rate_limited", "fatal_error", "internal_error", "service_unavailable", "request_timeout"}
)
_DO: Final[Mapping[str, str]] = {
    "invalid_auth": "the token is not valid: take it from Install App at api.slack.com/apps",
    "not_authed": "the token is not valid: take it from Install App at api.slack.com/apps",
    "account_inactive": "the app was removed from the workspace: install it again",
    "token_revoked": "the token was revoked: install the app again and take the new one",
    "token_expired": "the token has expired: turn token rotation off, or take a new one",
    "channel_not_found": "there is no such channel, or the app is not in it: /invite the app there, or give its ID",
    "not_in_channel": "invite the app to the channel: /invite @loopwright",
    "is_archived": "the channel is archived: name another one",
    "missing_scope": "add the scope under OAuth & Permissions and install the app again",
    "not_allowed_token_type": "this is a token of another kind: bot tokens begin with xoxb-, app tokens with xapp-",
}

Payload: TypeAlias = dict[str, Any]


def on_loopback(url: str) -> bool:
    """Whether this is an address on this machine itself, as a stand-in for Slack has it."""
    return _host(url, "http") in _LOOPBACK


def to_hooks(url: str) -> bool:
    """Whether this is one of Slack's own addresses for a late answer."""
    try:
        parts = urlsplit(url)
        return _host(url, "https") == HOOKS and parts.netloc.lower() in {HOOKS, f"{HOOKS}:443"}
    except ValueError:
        return False


def checked(url: str) -> str:
    """The address of the API with its last slash; `ValueError` for one that is no secret channel."""
    if not _host(url, "https") and not on_loopback(url):
        raise ValueError(f"url is {url!r}, not an https address (http only on this machine itself)")
    return url if url.endswith("/") else f"{url}/"


def _host(url: str, scheme: str) -> str:
    try:
        parts = urlsplit(url)
        return (parts.hostname or "") if parts.scheme == scheme and not parts.username else ""
    except ValueError:
        return ""


def installed() -> None:
    """`ConfigError` where slack-sdk is not there."""
    try:
        import slack_sdk  # noqa: F401
    except ImportError:
        raise ConfigError("slack: this channel needs slack-sdk: pip install 'loopwright[slack]'") from None


class Api:
    """Calls to Slack with one token."""

    def __init__(self, token: str, url: str) -> None:
        self.url = url
        self._token = token
        self._threads = Threads(self.made)

    async def call(self, method: str, timeout_s: float = CALL_S, **arguments: Any) -> Payload:
        """What Slack answered; `Undelivered` where it refused or could not be reached."""
        found = await self.ask(method, timeout_s, **arguments)
        if not found.get("ok"):
            raise refused(method, found)
        return found

    async def ask(self, method: str, timeout_s: float = CALL_S, **arguments: Any) -> Payload:
        """What Slack answered, a refusal as well (`ok`, `error`); `Undelivered` where it could not be reached."""
        got = await self._threads.call(method, arguments, timeout_s, timeout_s=timeout_s, grace_s=0)
        match got:
            case Late():
                raise Undelivered(f"slack: no answer to {method} within {timeout_s:g} s")
            case Raised(error=error):
                raise Undelivered(f"slack: {method} got through to nobody: {_brief(error)}") from None
            case _:
                return dict(got)

    async def tell(self, where: str, text: str) -> None:
        """Tells the one who clicked, and nobody else, through the address that came with the click."""
        if not to_hooks(where) and not (on_loopback(where) and on_loopback(self.url)):
            raise Undelivered(f"slack: {where[:100]!r} is no address of Slack's", final=True)
        body = {"response_type": "ephemeral", "replace_original": False, "text": text}
        await self.ask("response_url", where=where, body=body)

    def made(self, method: str, arguments: Mapping[str, Any], timeout_s: float) -> Payload:
        """The same call, made in this thread; whatever slack-sdk raises."""
        from slack_sdk.errors import SlackApiError

        if method == "response_url":
            return self._told(timeout_s, **arguments)
        try:
            data = getattr(self.client(timeout_s), method)(**arguments).data
            return data if isinstance(data, dict) else {"ok": False, "error": "no_json"}
        except SlackApiError as error:
            data = error.response.data if not isinstance(error.response, dict) else error.response
            status, headers = (
                getattr(error.response, "status_code", 200),
                getattr(error.response, "headers", {}),
            )
            told = data if isinstance(data, dict) else {}
            after = next((v for k, v in headers.items() if k.lower() == "retry-after"), None)
            return {"error": f"HTTP {status}", **told, "ok": False, "status": status, "retry_after": after}

    def _told(self, timeout_s: float, where: str, body: Payload) -> Payload:
        from slack_sdk.webhook import WebhookClient

        client = WebhookClient(where, timeout=max(1, int(timeout_s)), retry_handlers=[], logger=_QUIET)
        if on_loopback(where):
            client.proxy = None
        answer = client.send_dict(body)
        return {"ok": answer.status_code == 200, "error": f"HTTP {answer.status_code}"}

    def client(self, timeout_s: float = CALL_S) -> Any:
        """A client of slack-sdk that tries once: who calls knows when to try again."""
        from slack_sdk import WebClient

        made = WebClient(
            self._token,
            base_url=self.url,
            timeout=max(1, int(timeout_s)),
            retry_handlers=[],
            logger=_QUIET,
        )
        if on_loopback(self.url):
            made.proxy = None
        return made


def refused(method: str, found: Payload) -> Undelivered:
    """Why Slack did not do it, and what to do."""
    error, status = str(found.get("error") or "no reason"), found.get("status") or 200
    told = error.isidentifier() and error not in _PASSING  # a word of Slack's for what stays so
    if status == 429 or status >= 500 or not told:
        wait_s = seconds_of(str(found.get("retry_after") or ""))
        return Undelivered(f"slack: {method}: {error[:100]}", retry_after_s=wait_s)
    do = _DO.get(error, "")
    if error == "missing_scope" and (needed := found.get("needed")):
        do = f"{do} ({str(needed)[:100]})"
    return Undelivered(f"slack: {method}: {error[:100]}{do and ': '}{do}", final=True)


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]


async def socket(app_token: str, url: str, heard: Callable[[Payload], Awaitable[Payload | None]]) -> None:
    """Hears clicks through a connection that this side opens, until it is cancelled; `heard` says what is answered.

    It opens the connection again for as long as it takes; `Undelivered` where trying again cannot help.
    """
    wait_s = FIRST_S
    while True:
        line = _Socket(app_token, url, heard, asyncio.get_running_loop())
        try:
            got = await Threads(line.open).call(timeout_s=3 * CALL_S, grace_s=0)
            if got is None:
                await asyncio.Event().wait()  # until cancelled: what breaks is mended by slack-sdk
            if isinstance(got, Undelivered) and got.final:
                raise got
            after_s = getattr(got, "retry_after_s", None) or 0.0
        finally:
            await Threads(line.close).call(timeout_s=CLOSE_S, grace_s=0)
        await asyncio.sleep(max(wait_s, min(LATEST_S, after_s)))
        wait_s = min(LONGEST_S, 2 * wait_s)


class _Socket:
    """One Socket Mode client; everything but the answers happens in its threads."""

    def __init__(
        self,
        app_token: str,
        url: str,
        heard: Callable[[Payload], Awaitable[Payload | None]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._api = Api(app_token, url)
        self._app_token = app_token
        self._heard = heard
        self._loop = loop
        self._client: Any = None
        self._lock = threading.Lock()
        self._over = False

    def open(self) -> Undelivered | None:
        """Connects, or says why not; does nothing once it is closed."""
        from slack_sdk.socket_mode.builtin import SocketModeClient

        with self._lock:
            if self._over:
                return None
            found = self._api.made("apps_connections_open", {"app_token": self._app_token}, CALL_S)
            if not found.get("ok"):
                return refused("apps_connections_open", found)
            web = self._api.client()
            client: Any = SocketModeClient(
                self._app_token, web_client=web, ping_interval=PING_S, concurrency=4
            )
            self._client, connect = client, client.connect
            client.connect = lambda: _noticing(connect, client)  # each time it opens a new one
            if on_loopback(self._api.url):
                client.proxy = None
            client.socket_mode_request_listeners.append(self._received)
            client.wss_uri = str(found["url"])
            client.connect()
        return None

    def close(self) -> None:
        """Lets go of the connection and of all threads, also of one that is just being opened."""
        self._over = True
        with self._lock:
            if self._client is not None:
                self._client.close()

    def _received(self, client: Any, request: Any) -> None:
        """Answers one envelope in a thread of the client, within the three seconds that Slack waits."""
        from slack_sdk.socket_mode.response import SocketModeResponse

        body = None
        if request.type == "interactive" and isinstance(request.payload, dict):
            asked = asyncio.run_coroutine_threadsafe(_awaited(self._heard, request.payload), self._loop)
            try:
                body = asked.result(timeout=CALL_S)
            except Exception as error:  # noqa: BLE001 - one click does not end the listening
                logging.getLogger(__name__).warning("slack: a click could not be answered: %s", _brief(error))
        client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id, payload=body))


def _noticing(connect: Callable[[], None], client: Any) -> None:
    """Connects so that the end of the connection is noticed."""
    connect()
    session = client.current_session
    with session.sock_send_lock:  # nobody closes it meanwhile
        if session.sock is not None:
            session.sock = _Wire(session.sock)


class _Wire:
    """A socket that says that the other end is gone; slack-sdk would read nothing from it over and over."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def recv(self, size: int) -> bytes:
        data: bytes = self._sock.recv(size)
        if not data:
            raise ConnectionResetError("the other end hung up")
        return data

    def send(self, data: bytes) -> int:
        self._sock.sendall(data)
        return len(data)

    def close(self) -> None:
        self._sock.close()


async def _awaited(heard: Callable[[Payload], Awaitable[Payload | None]], payload: Payload) -> Payload | None:
    return await heard(payload)
