"""Messages that go to Slack, through the real slack-sdk, to a stand-in that refuses what Slack refuses."""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fake_slack import ENVIRON

from loopwright.cards import Decided
from loopwright.channels import _slack_api
from loopwright.channels.slack import slack
from loopwright.errors import ConfigError, Undelivered
from loopwright.registry import resolve_channels

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def show(fake):
    """Shows a card; where it stands."""
    line = slack(channel="#loops", url=fake.url).open(ENVIRON)
    return lambda card, ref=None: asyncio.run(line.show(card, ref))


def test_a_request_is_a_message_with_its_diff_in_the_thread(fake, show, card):
    channel, ts = show(card(cut=True)).split("/")
    assert channel == "C1"
    assert fake.messages[channel, ts]["channel"] == "#loops"
    (file,) = fake.files
    assert (file["title"], file["thread"]) == ("fix-abcd.diff", ts)
    assert file["data"] == (card().patch + "\n(cut here: loopwright diff fix-abcd shows it all)\n").encode()


def test_no_diff_is_sent_where_there_is_a_page_or_nothing_changed(fake, show, card):
    show(card(link="https://x.example/r"))
    show(card(patch=""))
    show(card(about="finished", shown=None, approval=None))
    assert not fake.files
    assert len(fake.messages) == 3


def test_the_message_shows_the_outcome_in_its_place(fake, show, card):
    ref = show(card())
    ended = card(decided=Decided(answer="approve", by="U0MIRA", channel="slack", at=NOON))
    assert show(ended, ref) == ref
    (message,) = fake.messages.values()
    assert "*Approved* by <@U0MIRA>" in str(message["blocks"])
    assert "actions" not in str(message["blocks"])
    assert len(fake.files) == 1


def test_a_message_that_somebody_deleted_is_sent_anew(fake, show, card):
    ref = show(card())
    fake.messages.clear()
    again = show(card(superseded=True), ref)
    assert again != ref
    assert list(fake.messages) == [tuple(again.split("/"))]


def test_a_diff_that_cannot_be_sent_is_said_and_the_request_stands(fake, show, card):
    fake.canned["files.getUploadURLExternal"].append(
        {"ok": False, "error": "missing_scope", "needed": "files:write"}
    )
    ref = show(card())
    said = [m for m in fake.messages.values() if m.get("thread_ts") == ref.partition("/")[2]]
    assert "missing_scope" in said[0]["text"]
    assert "files:write" in said[0]["text"]
    assert "loopwright diff fix-abcd" in said[0]["text"]
    fake.canned["files.getUploadURLExternal"].append("hang up")
    fake.canned["chat.postMessage"] += [{"ok": True, "channel": "C1", "ts": "7.1"}, "hang up"]
    assert show(card()) == "C1/7.1", "one message, whatever becomes of the file"


@pytest.mark.parametrize(
    ("answer", "final", "after", "piece"),
    [
        ((429, {"Retry-After": "7"}, b'{"ok": false, "error": "ratelimited"}'), False, 7.0, "ratelimited"),
        (
            (429, {"Retry-After": "soon"}, b'{"ok": false, "error": "ratelimited"}'),
            False,
            None,
            "ratelimited",
        ),
        ((429, {"Retry-After": "99999999"}, b"slow down"), False, 99999999.0, "non-JSON"),
        ((503, {}, b"<html>down</html>"), False, None, "non-JSON"),
        ((500, {}, b'{"ok": false, "error": "fatal_error"}'), False, None, "fatal_error"),
        ((502, {}, b'{"ok": false, "error": "odd_gateway"}'), False, None, "odd_gateway"),
        ("hang up", False, None, "got through to nobody"),
        ({"ok": False, "error": "internal_error"}, False, None, "internal_error"),
        ((200, {}, b"<html>a login page</html>"), False, None, "non-JSON"),
        ({"ok": False, "error": "invalid_auth"}, True, None, "api.slack.com/apps"),
        ({"ok": False, "error": "channel_not_found"}, True, None, "/invite"),
        ({"ok": False, "error": "not_in_channel"}, True, None, "/invite"),
        ({"ok": False, "error": "missing_scope", "needed": "chat:write"}, True, None, "(chat:write)"),
        ({"ok": False, "error": "invalid_blocks"}, True, None, "invalid_blocks"),
        ({"ok": False}, False, None, "HTTP 200"),
    ],
)
def test_what_could_not_be_delivered_says_whether_to_try_again(fake, show, card, answer, final, after, piece):
    fake.canned["chat.postMessage"].append(answer)
    with pytest.raises(Undelivered) as caught:
        show(card())
    assert (caught.value.final, caught.value.retry_after_s) == (final, after)
    assert piece in str(caught.value)
    assert "xoxb" not in str(caught.value)
    assert [method for method, _ in fake.calls] == ["chat.postMessage"], "who calls knows when to try again"
    show(card())


def test_a_refused_update_is_undelivered(fake, show, card):
    ref = show(card())
    fake.canned["chat.update"].append({"ok": False, "error": "ratelimited"})
    with pytest.raises(Undelivered):
        show(card(), ref)
    assert len(fake.messages) == 1


def test_a_slack_that_is_silent_or_away_may_be_tried_again(fake, show, card, monkeypatch):
    line = slack(channel="#loops", url=fake.url).open(ENVIRON)
    fake.canned["auth.test"].append(30)
    with pytest.raises(Undelivered, match="no answer to auth_test within 0.1 s") as caught:
        asyncio.run(line.api.call("auth_test", 0.1))
    assert not caught.value.final
    away = slack(channel="#loops", url="http://127.0.0.1:1/api").open(ENVIRON)
    with pytest.raises(Undelivered, match="got through to nobody") as caught:
        asyncio.run(away.show(card(), None))
    assert not caught.value.final


# Before it opens


@pytest.mark.parametrize(
    ("mode", "environ", "problems"),
    [
        ("http", {}, ["SLACK_BOT_TOKEN is not set", "SLACK_SIGNING_SECRET is not set"]),
        ("socket", {}, ["SLACK_BOT_TOKEN is not set", "SLACK_APP_TOKEN is not set"]),
        ("http", {**ENVIRON, "SLACK_SIGNING_SECRET": " "}, ["SLACK_SIGNING_SECRET is not set"]),
        ("http", {**ENVIRON, "SLACK_BOT_TOKEN": "xapp-1"}, ["SLACK_BOT_TOKEN holds something else"]),
        ("socket", {**ENVIRON, "SLACK_APP_TOKEN": "xoxb-1"}, ["SLACK_APP_TOKEN holds something else"]),
    ],
)
def test_without_its_secrets_it_does_not_open(mode, environ, problems):
    channel = slack(channel="#loops", mode=mode)
    with pytest.raises(ConfigError) as caught:
        channel.open(environ)
    assert [any(p in said for p in problems) for said in caught.value.problems] == [True] * len(problems)
    assert "doctor slack" in str(caught.value) or "it is for" in str(caught.value)
    assert "xapp-1" not in str(caught.value)


def test_each_mode_needs_and_hears_what_it_says():
    http, socket = slack(channel="#l"), slack(channel="#l", mode="socket", token="A", app_token="B")
    assert http.secrets == ("SLACK_SIGNING_SECRET", "SLACK_BOT_TOKEN")
    assert (http.hear is not None, http.listen) == (True, None)
    assert socket.secrets == ("B", "A")
    assert (socket.hear, socket.listen is not None) == (None, True)
    assert (http.linked, socket.linked) == (True, False), "Slack must reach the server, or is reached by it"
    assert http.remote
    assert socket.remote
    socket.open({"A": "xoxb-1", "B": "xapp-1"})


def test_without_slack_sdk_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "slack_sdk", None)
    with pytest.raises(ConfigError, match=r"pip install 'loopwright\[slack\]'"):
        slack(channel="#loops").open(ENVIRON)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("slack:#loops", None),
        ({"use": "slack", "channel": "C0123"}, None),
        ({"use": "slack:#a"}, None),
        ("slack", "channel: missing: slack needs it"),
        ({"use": "slack", "channel": "#two words"}, "not the name of a channel"),
        ({"use": "slack", "channel": "<!channel>"}, "not the name of a channel"),
        ({"use": "slack", "channel": "#l", "mode": "sockets"}, "expected one of http, socket"),
        ({"use": "slack", "channel": "#l", "url": "http://slack.example/api/"}, "not an https address"),
        ({"use": "slack", "channel": "#l", "url": "http://localhost@x.example/"}, "not an https address"),
        ({"use": "slack", "channel": "#l", "url": "ftp://localhost/"}, "not an https address"),
    ],
)
def test_it_is_named_in_a_loop(value, problem):
    found, faults = resolve_channels([value], project=Path.cwd(), path="")
    if problem is None:
        assert ([c.name for c in found], faults) == (["slack"], [])
    else:
        assert problem in ": ".join(faults[0])


def test_an_address_ends_as_slack_sdk_wants_it():
    assert _slack_api.checked("https://slack-gov.com/api") == "https://slack-gov.com/api/"
