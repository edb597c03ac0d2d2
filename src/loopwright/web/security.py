"""The door in front of every page and every route: who asks, from where, and how much.

Rules. Whatever is not let in here is not reached: a route that is added is closed until somebody has a token. Names are
compared whole. A cookie alone decides nothing: a browser must say that our own page asked. What is open without a token
is listed in `OPEN` and is no more than that.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loopwright.web import letters
from loopwright.web.address import Address
from loopwright.web.bounds import Bounds, Rate, Streams, drained, whole_body
from loopwright.web.letters import Letter
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
LINKED: Final = re.compile(
    r"/runs/([^/]+)/approvals/([^/]+)"
)  # what a link of a mail opens, and nothing else
SAFE: Final = frozenset({"GET", "HEAD"})
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
        holds: Callable[[Letter], bool],
        open_files: frozenset[str],
    ) -> None:
        self.app = app
        self.address, self.tokens, self.streams, self.bounds = address, tokens, streams, bounds
        self._draw, self._forbid, self._holds, self._open_files = draw, forbid, holds, open_files
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
                await drained(scope, receive)
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
            await talk.done()
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
        if (
            method in SAFE
            and (letter := letters.in_address(path, scope["query_string"].decode("latin-1"))) is not None
        ):
            return await self._to_its_page(scope, letter)
        person, by_cookie = await self._whoever(scope, headers)
        if by_cookie:
            self._check_origin(method, headers)
        scope.setdefault("state", {}).update(who=person.name, role=person.role)
        if method in SAFE:
            receive, talk.hang_up = self.streams.hearing(receive)
            talk.still = lambda: self._is_still(headers, person)
            await self.app(scope, receive, talk.say)
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

    async def _whoever(self, scope: Scope, headers: Headers) -> tuple[Person, bool]:
        """The same, or the reader of a letter: of who only looks, too, for a mail asked them to decide."""
        try:
            person, by_cookie = self._who(scope, headers)
        except Trouble:
            if (reader := await self._reader(scope, headers)) is None:
                raise
            return reader, True
        if by_cookie and person.role == "read" and (reader := await self._reader(scope, headers)) is not None:
            return reader, True
        return person, by_cookie

    async def _to_its_page(self, scope: Scope, letter: Letter) -> Response:
        """On to the page of a letter, with a cookie for it alone; a link of another site may lead there."""
        if not await asyncio.to_thread(self._holds, letter):
            raise self._wrongly(
                scope, 403, "this link is none of this server's, or not whole: open it from the mail"
            )
        response = RedirectResponse(letter.page, status_code=303)
        response.set_cookie(
            f"{self.address.cookie}-letter",
            letter.cookie,
            max_age=letters.LONGEST_S,
            path=letter.page,
            secure=self.address.secure,
            httponly=True,
            samesite="lax",
        )
        return response

    async def _reader(self, scope: Scope, headers: Headers) -> Person | None:
        """The reader of a letter at its one page; `None` for nobody."""
        found = letters.in_cookies(scope["path"], _cookies(headers, f"{self.address.cookie}-letter"))
        if found is None or "authorization" in headers or not await asyncio.to_thread(self._holds, found):
            return None
        scope.setdefault("state", {})["letter"] = found.key
        return Person(name=found.to, role="decide")

    def _is_still(self, headers: Headers, person: Person) -> bool:
        """Whether what let this person in would let them in now."""
        if "authorization" in headers:
            return self.tokens.person(headers["authorization"].partition(" ")[2].strip()) == person
        return any(
            self.tokens.of_session(value) == person for value in _cookies(headers, self.address.cookie)
        )

    def _person(self, scope: Scope, token: str) -> Person:
        """Whose token it is; who tries many that are wrong waits. A right one is taken all the same: nobody is locked out."""
        person = self.tokens.person(token)
        if person is not None:
            return person
        raise self._wrongly(
            scope,
            401,
            "this token is not known (any more): tokens.json has those that are, and loopwright serve prints them",
        )

    def _wrongly(self, scope: Scope, status: int, detail: str) -> Trouble:
        """What is said to a wrong token or link, counted."""
        wait_s = self._wrong.wait_s(str((scope.get("client") or ("?",))[0]))
        if wait_s:
            later = {"retry-after": str(int(wait_s) + 1)}
            return Trouble(429, "too many wrong tokens came from there", headers=later)
        return Trouble(status, detail, headers={"www-authenticate": "Bearer"} if status == 401 else {})

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
        form = parse_qs(
            (await whole_body(self.streams.hearing(receive)[0], self.bounds)).decode("utf-8", "replace")
        )
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
            "body": await whole_body(self.streams.hearing(receive)[0], self.bounds),
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
    whole: bool = False
    still: Callable[[], bool] = lambda: True  # whether who asked may still see what comes
    hang_up: Callable[[], object] = lambda: None

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
        elif self.streams and not self.still():  # a new token ends what the old one let in
            self.hang_up()
            return
        else:
            self.whole = not message.get("more_body", False)
        await self.send(message)

    async def done(self) -> None:
        """Counts a stream that ended; one that we ended is told so, as what is whole."""
        if self.streams:
            self.streams = False
            self.door.streams.open -= 1
            if not self.whole:
                await self.send({"type": "http.response.body", "body": b"", "more_body": False})


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
