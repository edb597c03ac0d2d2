"""Links of mails, over HTTP: they open one request for their reader, and nothing that only looks decides."""

import json
import re
from html import unescape
from pathlib import Path

import pytest
from pages_seen import Written

from loopwright.channels._tickets import with_ticket
from loopwright.hosts import people
from loopwright.serving import links

TO = "mira+loops@example.org"
CASE = json.loads((Path(__file__).parents[1] / "cases/approvals/email_prefetch.json").read_text())
OURS = {"sec-fetch-site": "same-origin", "origin": "https://loops.example.org"}


@pytest.fixture
def sent(lived):
    """A run that waits, its request, and the link to it that a mail has."""
    run, approval = lived.asks()
    return run, approval, link_of(lived, run, approval)


def link_of(lived, run, approval, to=TO):
    secret = links.key_of(lived.project / ".agent-state")
    return with_ticket(f"/runs/{run}/approvals/{approval}", secret, run, approval, to)


def standing(lived, run, approval):
    with lived.stores() as store:
        return people.standing(store, run, approval)


def test_every_step_of_the_prefetched_mail(lived, ask, sent):
    run, approval, link = sent
    shown = set()
    for step in CASE["steps"]:
        verb = step["do"].partition(" ")[0]
        if verb != "POST":
            answer = ask(verb, link, None, headers={"user-agent": step["ua"]} if "ua" in step else {})
            assert answer.status_code == 200, step
            assert standing(lived, run, approval) is None
            if verb == "GET":
                shown.add(re.sub(r"<time.*?</time>", "", answer.text))
            continue
        word = "reject" if "reject" in step["do"] else "approve"
        answer = ask("POST", link, None, data={"answer": word}, headers=OURS, follow_redirects=True)
        assert answer.status_code == (409 if word == "reject" else 200), step
        if word == "approve":
            assert "approved by mira+loops@example.org (email)" in answer.text
        decision, _ = standing(lived, run, approval)
        assert (decision.answer, decision.by, decision.channel) == ("approve", TO, "email")
        assert ("already approved" in answer.text) == (step["t"] > 65), step
    assert len(shown) == 1 and "Approve" in shown.pop()
    lived.go(run)
    over = ask("GET", link, None)
    assert over.status_code == 200 and "mira+loops@example.org approved it (email)" in over.text
    assert "<form" not in over.text


def test_a_link_shows_its_request_and_leads_nowhere_else(lived, ask, sent):
    run, _, link = sent
    lived.asks()  # another one waits: its reader is not told
    text = ask("GET", link, None).text
    leads = {unescape(found) for found in re.findall(r'(?:href|action|hx-sse:connect)="([^"]*)"', text)}
    assert {each for each in leads if not each.startswith("/static/")} <= {link, "#main", "#diff"}
    assert "badge" not in text and "add_budget" not in text
    for path in ("/", "/approvals", f"/runs/{run}", "/events?page=runs", f"/api/v1/runs/{run}"):
        query = link.partition("?")[2]
        assert ask("GET", f"{path}{'&' if '?' in path else '?'}{query}", None).status_code == 401, path
    assert ask("POST", f"/runs/{run}/stop?{link.partition('?')[2]}", None, headers=OURS).status_code == 401
    assert ask("PUT", link, None, headers=OURS).status_code == 401


def test_what_is_not_whole_or_forged_opens_nothing(lived, ask, sent):
    run, approval, link = sent
    other, second = lived.asks()
    path, _, query = link.partition("?")
    to, _, key = query.partition("&k=")
    for each in (
        f"{path}?{to}&k=",
        f"{path}?k={key}",
        f"{path}?{to}&k={key[:-1]}",
        f"{path}?{to}&k={key}&k={key}",
        f"{path}?{to}&{to}&k={key}",
        f"{path}?to=bob@example.org&k={key}",
        f"{path}?{to}&k={'%C3%A9' * 43}",
        f"{path}?to=%ED%A0%80&k={key}",
        f"{path}?to=%00&k={key}",
        f"/runs/{other}/approvals/{second}?{query}",
        f"/runs/{run}/approvals/{second}?{query}",
        f"/runs/{other}/approvals/{approval}?{query}",
        f"/runs/%2e%2e/approvals/{approval}?{query}",
    ):
        for who in (None, "mira"):
            assert ask("GET", each, who).status_code == 403, each
            assert ask("POST", each, who, data={"answer": "approve"}, headers=OURS).status_code == 403, each
    assert standing(lived, run, approval) is None and standing(lived, other, second) is None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "origin": "https://loops.example.org"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
    ],
)
def test_who_is_not_our_own_page_posts_nothing(lived, ask, sent, headers):
    run, approval, link = sent
    assert ask("POST", link, None, data={"answer": "approve"}, headers=headers).status_code == 403
    assert standing(lived, run, approval) is None


def test_who_signed_in_and_opens_a_link_answers_as_its_reader(lived, ask, sent):
    """A link says who it was sent to; a viewer's cookie takes nothing from that, and adds nothing."""
    run, approval, link = sent
    for who in ("vic", "mira"):
        ask("POST", link, who, data={"answer": "revise", "note": "tidier"}, headers=OURS)
        decision, _ = standing(lived, run, approval)
        assert (decision.by, decision.channel) == (TO, "email")


def test_a_reader_raises_no_limits(lived, ask, sent):
    run, approval, link = sent
    given = {"answer": "approve", "add_budget": "1000"}
    assert ask("POST", link, None, data=given, headers=OURS).status_code == 303
    decision, _ = standing(lived, run, approval)
    assert not decision.edits


def test_without_an_address_that_links_lead_to_there_are_no_links(tmp_path):
    from behind import behind

    from loopwright.serving.links import fits

    with behind(tmp_path) as alone:
        assert not fits(alone.source(), "r", "a", TO, "k")
        assert not (tmp_path / ".agent-state/server/link.key").exists()


def test_a_link_of_a_store_that_cannot_be_read_says_so_and_not_that_it_is_forged(
    lived, store_gone, ask, sent
):
    _, _, link = sent
    with store_gone():
        assert ask("GET", link, None).status_code == 503


@pytest.fixture
def store_gone(lived, monkeypatch):
    """The store cannot be opened while this is open."""
    import contextlib

    from loopwright.errors import StoreError

    @contextlib.contextmanager
    def gone():
        with monkeypatch.context() as patched:

            def refuse(self):
                raise StoreError("the store cannot be read")

            patched.setattr(type(lived), "stores", refuse)
            yield

    return gone


def test_a_written_request_shows_the_whole_question(lived, ask):
    with lived.stores() as store:
        run = Written(store, "link-shown").work(1.0, 1.0, passed=True).ask()
        approval = run.state.approval.id
    assert "Why now" in ask("GET", link_of(lived, "link-shown", approval), None).text
