"""The link in a mail, over HTTP: it opens one request to its reader, decides nothing by being opened, and nothing else."""

import contextlib
import json
import re
from html import unescape
from pathlib import Path

import httpx2
import pytest
from behind import behind

from loopwright.channels._tickets import with_ticket
from loopwright.errors import StoreError
from loopwright.hosts import people
from loopwright.serving import links
from loopwright.web.server import start

TO = "mira@example.org"
CASE = json.loads((Path(__file__).parents[1] / "cases/approvals/email_prefetch.json").read_text())


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with behind(tmp_path_factory.mktemp("letters"), public_url="http://loops.lan", viewers=("vic",)) as live:
        yield live


@pytest.fixture(scope="module")
def served(live):
    server = start(live, port=0)
    yield server
    server.stop()


@pytest.fixture
def url(served):
    return served.address.url


def browser(url):
    return httpx2.Client(base_url=url, timeout=20, follow_redirects=True)


def mailed(live, run, approval, to=TO):
    key = links.key_of(live.project / ".agent-state")
    return with_ticket(f"/runs/{run}/approvals/{approval}", key, run, approval, to)


def standing(live, run, approval):
    with live.stores() as store:
        return people.standing(store, run, approval)


SAME = {"sec-fetch-site": "same-origin"}
FROM_MAIL = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


def test_a_mail_opens_its_request_and_its_reader_decides_once(live, url):
    run, approval = live.asks()
    link, page = mailed(live, run, approval), f"/runs/{run}/approvals/{approval}"
    with browser(url) as client:
        for _ in range(3):  # the reader's mail program, a scanner, the reader
            opened = client.get(link, headers=FROM_MAIL)
            assert (opened.status_code, opened.url.path, opened.url.query) == (200, page, b"")
            assert "Approval needed" in opened.text
        assert client.head(link).status_code == 200
        assert standing(live, run, approval) is None
        for path in ("/", f"/runs/{run}", "/approvals", "/loops", f"/api/v1/runs/{run}", page + "x"):
            assert client.get(path).status_code == 401, path
        for path in (f"/runs/{run}/stop", f"/api/v1/runs/{run}/approvals/{approval}/decision"):
            assert client.post(path, headers=SAME, data={"now": "1"}).status_code == 401
        assert (
            client.post(
                page, headers={"sec-fetch-site": "cross-site"}, data={"answer": "approve"}
            ).status_code
            == 403
        )
        more = {"answer": "approve", "note": "n", "add_budget": "5"}
        assert client.post(page, headers=SAME, data=more).status_code == 422
        assert standing(live, run, approval) is None
        decided = client.post(page, headers=SAME, data={"answer": "approve"})
        assert (decided.status_code, decided.url.path) == (200, page)
        (decision, _) = standing(live, run, approval)
        assert (decision.answer, decision.by, decision.channel) == ("approve", TO, "email")
        other = client.post(page, headers=SAME, data={"answer": "reject"})
        assert other.status_code == 409
        assert f"already approved by {TO} (email)" in other.text
        assert client.get(link).status_code == 200  # it says how it ended


def test_no_other_link_opens_anything(live, url):
    run, approval = live.asks()
    other, other_approval = live.asks()
    link = mailed(live, run, approval)
    key = link.partition("&k=")[2]
    for wrong in (
        link[:-1],
        link.replace("mira", "eve"),
        f"/runs/{other}/approvals/{other_approval}?to={TO}&k={key}",
        f"/runs/{run}/approvals/{other_approval}?to={TO}&k={key}",
        f"{link}&k={key}",
        f"/runs/{run}/approvals/{approval}?to={TO}&k=",
        f"/runs/{run}?to={TO}&k={key}",
    ):
        with browser(url) as client:
            assert client.get(wrong).status_code in {401, 403}, wrong
            assert not client.cookies
            assert client.post(wrong, headers=SAME, data={"answer": "approve"}).status_code == 401
    with browser(url) as client:
        client.get(link)
        (cookie,) = client.cookies.jar
        assert (cookie.path, cookie.get_nonstandard_attr("SameSite")) == (
            f"/runs/{run}/approvals/{approval}",
            "lax",
        )
        stolen = {"cookie": f"{cookie.name}={cookie.value}", **SAME}
        there = f"/runs/{other}/approvals/{other_approval}"
        assert client.post(there, headers=stolen, data={"answer": "approve"}).status_code == 401
    assert standing(live, run, approval) is standing(live, other, other_approval) is None


def test_every_step_of_the_prefetched_mail(live, url):
    run, approval = live.asks()
    link, seen = mailed(live, run, approval), set()
    reader = browser(url)
    for step in CASE["steps"]:
        verb = step["do"].partition(" ")[0]
        if verb == "POST":
            word = "reject" if "reject" in step["do"] else "approve"
            page = link.partition("?")[0]
            answer = reader.post(page, headers=SAME, data={"answer": word})
            assert answer.status_code == (409 if word == "reject" else 200), step
            assert f"approved by {TO} (email)" in answer.text
            assert ("already approved" in answer.text) == (step["t"] > 65), step
            decision, _ = standing(live, run, approval)
            assert (decision.answer, decision.by, decision.channel) == ("approve", TO, "email")
            continue
        human = "human" in step.get("ua", "")
        with contextlib.nullcontext(reader) if human else browser(url) as client:
            found = client.request(verb, link, headers=FROM_MAIL)
            assert found.status_code == 200, step
            if verb == "GET":
                seen.add(re.sub(r"<time.*?</time>", "", found.text))
        assert standing(live, run, approval) is None
    assert len(seen) == 1 and "Approve" in seen.pop()
    live.go(run)
    over = reader.get(link)
    assert over.status_code == 200 and f"{TO} approved it (email)" in over.text
    assert "<form" not in over.text
    reader.close()


def test_its_page_leads_nowhere_else_and_tells_of_nothing_else(live, url):
    run, approval = live.asks()
    live.asks()  # another one waits: its reader is not told
    with browser(url) as client:
        text = client.get(mailed(live, run, approval)).text
    leads = {unescape(found) for found in re.findall(r'(?:href|action|hx-sse:connect)="([^"]*)"', text)}
    page = f"/runs/{run}/approvals/{approval}"
    assert {each for each in leads if not each.startswith("/static/")} <= {page, "#main", "#diff"}
    assert "badge" not in text and "add_budget" not in text


def test_who_only_looks_decides_what_a_mail_asks_of_them(live, served, url):
    run, approval = live.asks()
    token = served.app.state.tokens.current()["vic"]
    page = f"/runs/{run}/approvals/{approval}"
    with browser(url) as client:
        client.get(f"/?token={token}")
        assert client.post(page, headers=SAME, data={"answer": "approve"}).status_code == 403
        client.get(mailed(live, run, approval))
        assert client.post(page, headers=SAME, data={"answer": "approve"}).status_code == 200
        assert client.post(f"/runs/{run}/stop", headers=SAME).status_code == 403
    decision, _ = standing(live, run, approval)
    assert (decision.by, decision.channel) == (TO, "email")


@pytest.mark.parametrize("headers", [{}, {"origin": "https://evil.example"}, {"origin": "null"}, FROM_MAIL])
def test_who_is_not_our_own_page_posts_nothing(live, url, headers):
    run, approval = live.asks()
    with browser(url) as client:
        client.get(mailed(live, run, approval))
        page = f"/runs/{run}/approvals/{approval}"
        assert client.post(page, data={"answer": "approve"}, headers=headers).status_code == 403
    assert standing(live, run, approval) is None


def test_a_store_that_cannot_be_read_is_told_and_not_a_forged_link(live, url, monkeypatch):
    run, approval = live.asks()

    def refuse(self):
        raise StoreError("the store cannot be read")

    with browser(url) as client, monkeypatch.context() as patched:
        patched.setattr(type(live), "stores", refuse)
        assert client.get(mailed(live, run, approval)).status_code == 503


def test_without_an_address_that_links_lead_to_there_are_none(tmp_path):
    with behind(tmp_path) as alone:
        assert not links.fits(alone.source(), "r", "a", TO, "k")
        assert not (tmp_path / ".agent-state/server/link.key").exists()
