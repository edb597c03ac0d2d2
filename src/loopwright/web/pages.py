"""The pages for people: runs, one run, approvals, loops, and what their forms do.

Rule: a GET shows and changes nothing, a POST changes one thing and comes back to a page. Everything works without a
script; with one, parts of a page are brought up to date as there is news.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import Scope

from loopwright.cards import Told
from loopwright.errors import LoopwrightError
from loopwright.serving.live import Live
from loopwright.web import forms
from loopwright.web.drawing import HERE, draw
from loopwright.web.forms import Said
from loopwright.web.problems import Problem, Trouble, sign_in
from loopwright.web.showing import Showing
from loopwright.web.stream import SLOW_S, TICK_S, stream
from loopwright.web.words import ago

FILES: Final = {
    "style": ("style.css", "text/css; charset=utf-8"),
    "htmx": ("htmx.min.js", "text/javascript; charset=utf-8"),
    "sse": ("hx-sse.min.js", "text/javascript; charset=utf-8"),
    "live": ("live.js", "text/javascript; charset=utf-8"),
    "icon": ("icon.svg", "image/svg+xml"),
}
SHOWN: Final = ["GET", "HEAD"]
OPEN: Final = frozenset(
    f"/static/{name}" for name, _ in FILES.values()
)  # who has no token sees the same style
TEACH: Final[Mapping[int, tuple[str, tuple[str, ...]]]] = {
    401: ("Sign in", ("Open the address that loopwright serve printed, or paste the token from it here.",)),
    403: ("This is not yours to do", ("Viewers look; who may decide is named in [server] people.", "An agent, or anything that it started, decides nothing.")),
    404: ("There is nothing here", ("It may have been spelt otherwise; loopwright list --all shows every run.",)),
    405: ("That is not how this page is used", ("Pages are looked at with GET; only their own forms change anything.",)),
    409: ("Somebody was first", ("What stands is on record and is not changed by a second answer.",)),
    410: ("Too late", ("The request is over. Where nobody answered in time, it can be asked again.",)),
    421: ("Another name", ("The server answers only under the names it was told: [server] public_url adds one.",)),
    422: ("That could not be taken as it was", ("Go back, mend it and send it again; nothing was changed.",)),
    500: ("A fault of loopwright", ("Runs go on meanwhile: the page only reads. Trying again may help.",)),
    503: ("The store cannot be used", ("What was sent is not on record. Where it only was busy, trying again in a moment helps.",)),
}  # fmt: skip


@cache
def _files() -> Mapping[str, str]:
    """Where each file is found; its digest is in the address, so that it is kept for good."""
    return {
        key: f"/static/{name}?v={hashlib.sha256((HERE / 'static' / name).read_bytes()).hexdigest()[:10]}"
        for key, (name, _) in FILES.items()
    }


@dataclass(slots=True)
class Pages:
    """The pages of one server."""

    live: Live
    showing: Showing
    messages: forms.Messages

    def values(self, request: Request, here: str, *, events: str = "") -> dict[str, Any]:
        """What every page is given."""
        now = datetime.now(UTC)
        self.showing.anew()
        return {
            "here": here,
            "files": _files(),
            "who": request.state.who,
            "decides": request.state.role == "decide",
            "waiting": self.showing.waiting(),
            "events": events,
            "drawn": ago(now, now),
            "said": self.messages.of(request.query_params.get("said", "")),
        }

    def bare(self, request: Request) -> dict[str, Any]:
        """What the page of a letter is given: it leads nowhere, and tells of nothing else that waits."""
        return {
            "here": "",
            "files": _files(),
            "who": request.state.who,
            "decides": True,
            "letter": True,
            "waiting": 0,
            "events": "",
            "said": self.messages.of(request.query_params.get("said", "")),
        }

    def back(self, where: str, said: Said) -> Response:
        """On to a page that says what became of it."""
        path, mark, place = where.partition("#")
        word = self.messages.keep(said)
        return RedirectResponse(
            f"{path}{'&' if '?' in path else '?'}said={word}{mark}{place}", status_code=303
        )


def page(request: Request, template: str, values: Mapping[str, Any], *, status: int = 200) -> Response:
    """A page, packed where the browser can unpack it."""
    body = draw(template, values).encode()
    headers = {"vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", "") and len(body) > 1000:
        body = gzip.compress(body, 5, mtime=0)
        headers["content-encoding"] = "gzip"
    return HTMLResponse(body, status_code=status, headers=headers)


def draw_problem(told: Problem, scope: Scope) -> Response:
    """A problem as a page that says what to do."""
    heading, hints = TEACH.get(told.status, (told.title, ()))
    values = {
        "here": "",
        "files": _files(),
        "who": "",
        "decides": False,
        "waiting": 0,
        "events": "",
        "drawn": None,
        "said": None,
        "status": told.status,
        "heading": heading,
        "detail": told.detail,
        "hints": hints,
        "again": told.status == 401
        and Headers(scope=scope).get("sec-fetch-site") in {"cross-site", "same-site"},
        "sign_in": Markup(sign_in(scope)) if told.status == 401 else "",  # noqa: S704 - made and escaped there
    }
    return HTMLResponse(draw("error.html", values), status_code=told.status, headers=dict(told.headers))


def router(live: Live) -> APIRouter:
    """The pages of a server, and what their forms do."""
    pages = Pages(live, Showing(live), forms.Messages())
    made = APIRouter(include_in_schema=False)
    _looks(made, pages)
    _approvals(made, pages)
    _posts(made, pages)
    _streams(made, pages)
    for name, media in FILES.values():
        made.add_api_route(f"/static/{name}", _static(name, media), methods=SHOWN)
    return made


def _static(name: str, media: str) -> Callable[[Request], Response]:
    plain = (HERE / "static" / name).read_bytes()
    packed = gzip.compress(plain, 9, mtime=0)

    def static(request: Request) -> Response:
        headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(packed, media_type=media, headers={**headers, "content-encoding": "gzip"})
        return Response(plain, media_type=media, headers=headers)

    return static


def _looks(made: APIRouter, pages: Pages) -> None:
    showing = pages.showing

    @made.api_route("/", methods=SHOWN)
    def runs(request: Request) -> Response:
        asked = dict(request.query_params)
        events = f"/events?{urlencode({'page': 'runs', **_only(asked, 'all', 'since')})}"
        given = pages.values(request, "runs", events=events)
        return page(request, "runs.html", {**given, **showing.runs(asked)})

    @made.api_route("/runs/{run}", methods=SHOWN)
    def run(run: str, request: Request) -> Response:
        _check(run)
        asked = _only(dict(request.query_params), "i", "top", "against")
        found = showing.run(run, asked)
        events = f"/events?{urlencode({'page': 'run', 'run': run, 'n': found['n'], **asked})}"
        return page(request, "run.html", {**pages.values(request, "runs", events=events), **found})

    @made.api_route("/loops", methods=SHOWN)
    def loops(request: Request) -> Response:
        events = "/events?page=loops"
        return page(
            request, "loops.html", {**pages.values(request, "loops", events=events), **showing.loops()}
        )


def _approvals(made: APIRouter, pages: Pages) -> None:
    showing = pages.showing

    @made.api_route("/approvals", methods=SHOWN)
    def approvals(request: Request) -> Response:
        every = request.query_params.get("all") == "1"
        events = f"/events?page=approvals{'&all=1' if every else ''}"
        found = showing.inbox(every=every)
        return page(request, "approvals.html", {**pages.values(request, "approvals", events=events), **found})

    @made.api_route("/runs/{run}/approvals/{approval}", methods=SHOWN)
    def approval(run: str, approval: str, request: Request) -> Response:
        _check(run)
        found = showing.approval(run, approval)
        given = (
            pages.bare(request) if hasattr(request.state, "letter") else pages.values(request, "approvals")
        )
        return page(request, "approval.html", {**given, **found})

    @made.post("/runs/{run}/approvals/{approval}")
    async def decide(run: str, approval: str, request: Request) -> Response:
        _check(run)
        given = forms.fields_of(await request.body())
        letter: str | None = getattr(request.state, "letter", None)
        told: Told = await asyncio.to_thread(
            forms.decide, pages.live, run, approval, given, request.state.who, letter=letter
        )
        if told.word not in {"recorded", "again"}:
            raise Trouble(forms.STATUS[told.word], told.text)
        where = f"/runs/{run}" if letter is None else f"/runs/{run}/approvals/{approval}"
        return pages.back(where, Said(text=told.text))


def _posts(made: APIRouter, pages: Pages) -> None:
    live = pages.live

    def steering(verb: Literal["stop", "pause"]) -> None:
        @made.post(f"/runs/{{run}}/{verb}", name=verb)
        async def steer(run: str, request: Request) -> Response:
            given = forms.fields_of(await request.body())
            told = await asyncio.to_thread(forms.steer, live, _check(run), verb, given, request.state.who)
            return pages.back(f"/runs/{run}", told)

    steering("stop")
    steering("pause")

    @made.post("/runs/{run}/resume")
    async def resume(run: str, request: Request) -> Response:
        given = forms.fields_of(await request.body())
        return pages.back(
            f"/runs/{_check(run)}", await asyncio.to_thread(forms.go_on, live, run, given, request.state.who)
        )

    @made.post("/runs/{run}/ask-again")
    async def ask_again(run: str, request: Request) -> Response:
        return pages.back(
            f"/runs/{_check(run)}", await asyncio.to_thread(forms.ask_again, live, run, request.state.who)
        )

    @made.post("/loops/{name}/start")
    async def start(name: str, request: Request) -> Response:
        given = forms.fields_of(await request.body())
        if name not in live.book.loops:
            raise Trouble(404, "there is no such loop here; the loops page shows those that there are")
        run, said = await asyncio.to_thread(forms.start, live, name, given, request.state.who)
        return pages.back(f"/runs/{run}", said)


def _streams(made: APIRouter, pages: Pages) -> None:
    @made.get("/events")
    def events(request: Request) -> Response:
        asked = dict(request.query_params)
        kind = asked.get("page", "")
        if kind == "run":
            _check(asked.get("run", ""))
        elif kind not in {"runs", "approvals", "loops"}:
            raise Trouble(404, "a stream is of a page: runs, run, approvals or loops")
        peek, look = pages.showing.parts(asked, pages.values(request, kind))
        with suppress(
            LoopwrightError
        ):  # a store that cannot be read just now may be read later, a run that is none never
            peek()
        body = stream(
            peek,
            look,
            last=asked.get("n"),
            seen=request.headers.get("last-event-id"),
            late=("matrix",),  # a page that is loaded does not wait for all its diffs
            tick_s=TICK_S if kind == "run" else SLOW_S,
        )
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(body, media_type="text/event-stream", headers=headers)


def _only(asked: Mapping[str, str], *names: str) -> dict[str, str]:
    """Of what an address says, what the page understands, cut short."""
    return {name: asked[name][:20] for name in names if name in asked}


def _check(run: str) -> str:
    """The id, where it can be one: it never is a path."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", run) or ".." in run:
        raise Trouble(404, "no run can be called that")
    return run
