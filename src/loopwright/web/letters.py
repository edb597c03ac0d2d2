"""Links in mails: what lets a reader without a token at one request, and nowhere else.

Rules. Opening a link changes nothing: the ticket moves from the address into a cookie that goes with this one page. It
is checked anew each time, and a decision by it is one of the address that the link was sent to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, quote, unquote

from loopwright.cards import Answered, Told
from loopwright.serving import links
from loopwright.serving.live import Live

LONGEST_S: Final = 30 * 24 * 3600
LONGEST: Final = 1000  # characters
_PAGE: Final = re.compile(r"/runs/([^/]{1,200})/approvals/([^/]{1,64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What a link says: which request it opens, for whom, and the ticket."""

    run: str
    approval: str
    to: str
    key: str

    @property
    def page(self) -> str:
        """The one page that it opens."""
        return f"/runs/{self.run}/approvals/{self.approval}"

    @property
    def cookie(self) -> str:
        """The same as the value of a cookie of that page."""
        return f"{self.key}.{quote(self.to, safe='')}"


def in_address(path: str, query: str) -> Letter | None:
    """The letter in an address; `None` where there is none."""
    about = _PAGE.fullmatch(path)
    if about is None or len(query) > LONGEST:
        return None
    try:
        found = parse_qs(query, max_num_fields=5)
    except ValueError:
        return None
    to, key = found.get("to", []), found.get("k", [])
    if len(to) != 1 or len(key) != 1:
        return None
    return Letter(run=about[1], approval=about[2], to=to[0], key=key[0])


def in_cookies(path: str, values: Iterable[str]) -> Letter | None:
    """The letter of this page among the values of a cookie: the first, for the browser sends none of another page."""
    about, said = _PAGE.fullmatch(path), next(iter(values), "")
    key, _, to = said.partition(".")
    if about is None or not key or not to or len(said) > LONGEST:
        return None
    return Letter(run=about[1], approval=about[2], to=unquote(to), key=key)


def holds(live: Live, letter: Letter) -> bool:
    """Whether it is one of this server's, its request open or over; blocking."""
    return links.fits(live.source(), letter.run, letter.approval, letter.to, letter.key)


def decide(live: Live, said: Answered, key: str) -> Told:
    """What becomes of an answer on the page of a letter; blocking."""
    with live.stores() as store:
        told = links.decided(store, live.source(), said, key)
    live.nudge()
    return told
