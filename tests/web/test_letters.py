"""The link in a mail, over HTTP: it opens one request to its reader, decides nothing by being opened, and nothing else."""

import httpx2
import pytest
from behind import behind

from loopwright.channels._tickets import with_ticket
from loopwright.hosts import people
from loopwright.serving import links
from loopwright.web.server import start

TO = "mira@example.org"


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with behind(tmp_path_factory.mktemp("letters")) as live:
        yield live


@pytest.fixture(scope="module")
def url(live):
    server = start(live, port=0)
    yield server.address.url
    server.stop()


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
        client.head(link)
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
            assert client.get(wrong).status_code == 401, wrong
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
