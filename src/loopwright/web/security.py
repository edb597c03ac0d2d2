"""The door in front of every page and every route: who asks, from where, and how much.

Rules. Whatever is not let in here is not reached: a route that is added is closed until somebody has a token. Names are
compared whole. A cookie alone decides nothing: a browser must say that our own page asked. What is open without a token
is listed in `OPEN` and is no more than that.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loopwright.web.address import Address
from loopwright.web.problems import Draw, Problem, Trouble, answer
from loopwright.web.tokens import Person, Tokens

OPEN: Final = (  # method and exact path
    ("GET", re.compile(r"/health")),
    ("HEAD", re.compile(r"/health")),
    (
        "POST",
        re.compile(r"/(hooks|channels)/[A-Za-z0-9][A-Za-z0-9_-]{0,63}"),
    ),  # let in by their signature alone
)
SAFE: Final = frozenset({"GET", "HEAD"})
_DRAINED: Final = 64_000_000  # bytes that are thrown away before a sender is cut off
HEADERS: Final = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; object-src 'none'; base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
_LOG: Final = logging.getLogger("loopwright.web")
Forbid: TypeAlias = Callable[
    [Scope, Person], str | None
]  # why this peer may not, though this person may; blocking


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much a server takes in: sizes in bytes, rates per minute."""

    body: int = 1_000_000
    headers: int = 32_768
    body_s: float = 20.0
    streams: int = 64
    wrong_tokens: int = 20  # of one address
    changes: int = 120  # of one person


class Rate:
    """At most `most` of each key in a minute; it remembers a bounded number of keys."""

    def __init__(self, most: int, *, now: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self._now = now
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, key: str) -> float:
        """Counts one more; 0.0, or the seconds after which it would be taken."""
        now = self._now()
        times = self._seen.setdefault(key, deque(maxlen=self.most))
        self._seen.move_to_end(key)
        while len(self._seen) > 4096:
            self._seen.popitem(last=False)
        if len(times) == self.most and now - times[0] < 60:
            return 60 - (now - times[0])
        times.append(now)
        return 0.0


class Streams:
    """The responses that stay open, `most` at once; `close` ends them all, from any thread."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open = 0
        self._closed = False
        self._waiting: set[asyncio.Future[None]] = set()

    def close(self) -> None:
        """Ends every stream that is open, and every one that begins from now on."""
        self._closed = True
        for over in tuple(self._waiting):
            with suppress(RuntimeError):  # its loop is closed: nothing is open there any more
                over.get_loop().call_soon_threadsafe(over.cancel)

    async def heard(self, receive: Receive) -> Message:
        """The next message of a client, or its good-bye once streams are closed."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(over)
        message: asyncio.Future[Message] = asyncio.ensure_future(receive())
        both: set[asyncio.Future[Any]] = {message, over}
        try:
            if not self._closed:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return message.result() if message.done() else {"type": "http.disconnect"}
        finally:
            self._waiting.discard(over)
            message.cancel()


class Door:
    """Lets a request through to `app`, with `who` and `role` in its state, or answers it itself."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        address: Address,
        tokens: Tokens,
        streams: Streams,
        bounds: Bounds,
        draw: Draw,
        forbid: Forbid,
        open_files: frozenset[str],
    ) -> None:
        self.app = app
        self.address, self.tokens, self.streams, self.bounds = address, tokens, streams, bounds
        self._draw, self._forbid, self._open_files = draw, forbid, open_files
        self._hosts, self._origins = address.hosts, address.origins
        self._wrong, self._changes = Rate(bounds.wrong_tokens), Rate(bounds.changes)
        # A page that is reached by plain http has no Sec-Fetch-Site: there its Origin must stay, or nobody could decide.
        plain = (address.public_url or "").startswith("http:")
        self._headers = {**HEADERS, "referrer-policy": "same-origin" if plain else "no-referrer"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "websocket":  # there are none
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        talk = _Talk(scope=scope, send=send, door=self)
        try:
            response = await self._let_in(scope, receive, talk)
        except Trouble as trouble:
            if trouble.problem.status == 413:
                await _drained(scope, receive)
            response = answer(trouble.problem, scope, self._draw)
        except Exception as error:
            if talk.full:
                told = Problem(
                    status=503, detail="too many live views are open", headers={"retry-after": "10"}
                )
            elif talk.begun:
                raise
            else:
                _LOG.error("%s %r failed", scope["method"], scope["path"], exc_info=error)
                told = Problem(status=500, detail="this is a fault of loopwright; the server's log says more")
            response = answer(told, scope, self._draw)
        finally:
            talk.done()
        if response is not None:
            await response(scope, receive, talk.say)

    def headers(self, headers: MutableHeaders) -> None:
        """Adds what every response says."""
        for name, value in self._headers.items():
            headers[name] = value
        headers.setdefault("cache-control", "no-store")

    async def _let_in(self, scope: Scope, receive: Receive, talk: _Talk) -> Response | None:
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        self._check_shape(scope, headers)
        if _open(method, path) or (method in SAFE and path in self._open_files):
            await self.app(scope, await self._whole(receive) if method not in SAFE else receive, talk.say)
            return None
        if (method, path) == ("POST", "/login"):
            return await self._login(scope, headers, receive)
        if method == "GET" and path == "/" and b"token=" in scope["query_string"]:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            return self._welcome(self._person(scope, given), "/")
        person, by_cookie = self._who(scope, headers)
        if by_cookie:
            self._check_origin(method, headers)
        scope.setdefault("state", {}).update(who=person.name, role=person.role)
        if method in SAFE:
            await self.app(scope, lambda: self.streams.heard(receive), talk.say)
            return None
        await self._check_change(scope, headers, person)
        await self.app(scope, await self._whole(receive), talk.say)
        return None

    def _check_shape(self, scope: Scope, headers: Headers) -> None:
        """Nothing is believed of a request that is not addressed to us, or that is too large to be one of ours."""
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self.bounds.headers:
            raise Trouble(431, f"more than {self.bounds.headers} bytes of headers")
        hosts = headers.getlist("host")
        if not scope["path"].startswith("/") or len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            raise Trouble(
                421,
                f"this server answers at {self.address.public_url or self.address.url} and under no other name",
            )
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length) > self.bounds.body:
            raise Trouble(413, f"more than {self.bounds.body} bytes are not taken")

    def _who(self, scope: Scope, headers: Headers) -> tuple[Person, bool]:
        """Who asks, and whether a cookie says so; `Trouble` for nobody."""
        said = headers.getlist("authorization")
        if said:
            scheme, _, given = said[0].partition(" ")
            if len(said) == 1 and scheme.lower() == "bearer":
                return self._person(scope, given.strip()), False
            raise Trouble(401, "say Authorization: Bearer TOKEN", headers={"www-authenticate": "Bearer"})
        for value in _cookies(headers, self.address.cookie):
            if (person := self.tokens.of_session(value)) is not None:
                return person, True
        raise Trouble(
            401,
            "this needs a token: open the address that loopwright serve printed, or say Authorization: Bearer TOKEN",
            headers={"www-authenticate": "Bearer"},
        )

    def _person(self, scope: Scope, token: str) -> Person:
        """Whose token it is; who tries many that are wrong waits. A right one is taken all the same: nobody is locked out."""
        person = self.tokens.person(token)
        if person is not None:
            return person
        wait_s = self._wrong.wait_s(str((scope.get("client") or ("?",))[0]))
        if wait_s:
            raise Trouble(
                429, "too many wrong tokens came from there", headers={"retry-after": str(int(wait_s) + 1)}
            )
        raise Trouble(
            401,
            "this token is not known (any more): tokens.json has those that are, and loopwright serve prints them",
            headers={"www-authenticate": "Bearer"},
        )

    def _welcome(self, person: Person, path: str) -> Response:
        """On to the page, with a cookie in the place of the token: it stays in no address."""
        response = RedirectResponse(path, status_code=303)
        response.set_cookie(
            self.address.cookie,
            self.tokens.session(person),
            max_age=30 * 24 * 3600,
            path="/",
            secure=self.address.secure,
            httponly=True,
            samesite="strict",
        )
        return response

    async def _login(self, scope: Scope, headers: Headers, receive: Receive) -> Response:
        """The form for who came without a cookie."""
        self._check_origin("POST", headers)
        form = parse_qs((await _body(receive, self.bounds)).decode("utf-8", "replace"))
        path = form.get("next", ["/"])[0]
        here = re.fullmatch(r"/(?![/\\])[A-Za-z0-9._~/?&=%-]*", path) is not None
        return self._welcome(self._person(scope, form.get("token", [""])[0].strip()), path if here else "/")

    def _check_origin(self, method: str, headers: Headers) -> None:
        """A browser with a cookie must say that our own page asks; another site's may only be left for ours by a link."""
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is not None:
            ours = site in {"same-origin", "none"}
        else:
            ours = origin in self._origins if origin is not None else method in SAFE
        link = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
        if not ours and not (method in SAFE and link):
            raise Trouble(
                403, "this came from another site, or from no page of ours: say Authorization: Bearer TOKEN"
            )

    async def _check_change(self, scope: Scope, headers: Headers, person: Person) -> None:
        """What changes something needs a person who may, who is no agent, and not too often."""
        if person.role != "decide":
            raise Trouble(403, f"{person.name} may look and not decide: [server] people names those who may")
        wait_s = self._changes.wait_s(person.name)
        if wait_s:
            raise Trouble(
                429,
                f"{person.name} changed too much in a minute",
                headers={"retry-after": str(int(wait_s) + 1)},
            )
        why = await asyncio.to_thread(self._forbid, scope, person)
        if why is not None:
            raise Trouble(403, why)
        if scope["path"].startswith("/api/"):
            _check_json(headers)

    async def _whole(self, receive: Receive) -> Receive:
        """The body, read to its end before anybody looks at it."""
        body: Message | None = {
            "type": "http.request",
            "body": await _body(receive, self.bounds),
            "more_body": False,
        }

        async def once() -> Message:
            nonlocal body
            if body is not None:
                first, body = body, None
                return first
            return await receive()

        return once


@dataclass(slots=True, kw_only=True)
class _Talk:
    """What was said to one client so far."""

    scope: Scope
    send: Send
    door: Door
    begun: bool = False
    streams: bool = False
    full: bool = False

    async def say(self, message: Message) -> None:
        """Sends, with the headers that every response has."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            self.door.headers(headers)
            if headers.get("content-type", "").startswith("text/event-stream"):
                if self.door.streams.open >= self.door.streams.most:
                    self.full = True
                    raise RuntimeError("too many streams")
                self.door.streams.open += 1
                self.streams = True
            self.begun = True
        await self.send(message)

    def done(self) -> None:
        """Counts a stream that ended."""
        if self.streams:
            self.streams = False
            self.door.streams.open -= 1


def _open(method: str, path: str) -> bool:
    return any(method == known and pattern.fullmatch(path) for known, pattern in OPEN)


def _cookies(headers: Headers, name: str) -> list[str]:
    """Every value of a cookie: another server on this host may have left one of the same name."""
    pairs = (pair.strip().partition("=") for line in headers.getlist("cookie") for pair in line.split(";"))
    return [value for found, _, value in pairs if found == name][:8]


def _check_json(headers: Headers) -> None:
    """A body must say that it is JSON: no form of another page can."""
    said = headers.get("content-type")
    empty = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
    if said is None and empty:
        return
    if (said or "").partition(";")[0].strip().lower() != "application/json":
        raise Trouble(415, "say Content-Type: application/json")


async def _body(receive: Receive, bounds: Bounds) -> bytes:
    """The whole body of a request; `Trouble` as soon as it is larger than it may be, or too slow."""
    body = bytearray()

    async def read() -> None:
        while True:
            message: dict[str, Any] = dict(await receive())
            if message["type"] == "http.disconnect":
                raise Trouble(400, "the request broke off")
            body.extend(message.get("body", b""))
            if len(body) > bounds.body:
                raise Trouble(413, f"more than {bounds.body} bytes are not taken")
            if not message.get("more_body", False):
                return

    try:
        await asyncio.wait_for(read(), bounds.body_s)
    except TimeoutError:
        raise Trouble(408, f"the request was not whole within {bounds.body_s:g} s") from None
    return bytes(body)


async def _drained(scope: Scope, receive: Receive) -> None:
    """Throws away what still comes, for a moment: who is cut off while sending never reads why."""
    if any(name == b"expect" for name, _ in scope["headers"]):  # it waits for our word before it sends
        return
    left = _DRAINED
    with suppress(TimeoutError):
        async with asyncio.timeout(2.0):
            while left > 0:
                message = await asyncio.wait_for(receive(), 0.2)
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return
