"""Channels that cannot work where a loop is to run are refused; those that only tell are named."""

import pytest

from loopwright import Loop
from loopwright.assembled import assemble
from loopwright.cards import Channel
from loopwright.serving.heard import only_told, server_alive, unheard
from loopwright.stores.opened import open_store, owner

MAIL = {"use": "email", "to": ["a@example.org"], "sender": "l@example.org"}
HOOK = {"use": "webhook", "url": "https://x.org/", "secret": "S_KEY"}


async def _heard(*_):
    raise AssertionError


def clicks() -> Channel:
    return Channel(name="clicks", open=None, linked=True, hear=_heard)


def socket() -> Channel:
    return Channel(name="socket", open=None, listen=_heard)


def made(tmp_path, *channels, notify=()):
    loop = Loop(
        "g",
        agent=lambda _: 1,
        gates=[lambda _: True],
        approval={"channels": list(channels)},
        notify={"to": list(notify)},
    )
    return assemble(loop, project=tmp_path, path="")


CLICKS, SOCKET = "test_heard:clicks", "test_heard:socket"


@pytest.mark.parametrize(
    ("channels", "alive", "url", "refused", "silent"),
    [
        (["inbox"], False, None, [], []),
        ([], False, None, [], []),
        ([MAIL], False, "https://x.org", ["email needs a server"], []),
        ([MAIL, HOOK], False, "https://x.org", ["email and webhook need a server"], []),
        ([MAIL], True, None, [], ["email: no answers there"]),
        ([MAIL], True, "https://x.org", [], []),
        ([HOOK, SOCKET], True, None, [], []),
        ([CLICKS], True, None, ["nobody could answer on clicks"], []),
        ([CLICKS], True, "https://x.org", [], []),
        (["discord://a/b", "inbox"], True, "https://x.org", [], ["apprise: no answers there"]),
    ],
)
def test_what_is_refused_and_what_is_said(tmp_path, channels, alive, url, refused, silent):
    assembled = made(tmp_path, *channels)
    told = unheard(assembled, server_alive=alive, public_url=url)
    assert len(told) == len(refused)
    assert all(part in line for part, line in zip(refused, told, strict=True))
    lines = only_told(assembled, server_alive=alive, public_url=url)
    assert len(lines) == len(silent)
    assert all(part in line for part, line in zip(silent, lines, strict=True))


def test_a_secret_that_agents_are_shown_is_refused(tmp_path):
    loop = Loop("g", agent="true", gates=["true"], env=["S_KEY"], approval={"channels": [HOOK]})
    assembled = assemble(loop, project=tmp_path, path="/usr/bin:/bin")
    (told,) = unheard(assembled, server_alive=True, public_url=None)
    assert told.startswith("approval.channels: S_KEY, the secret of webhook, is in env")


def test_news_wait_for_a_server_and_keep_no_run_from_beginning(tmp_path):
    assembled = made(tmp_path, notify=["discord://a/b", "inbox"])
    assert unheard(assembled, server_alive=False, public_url=None) == []
    (told,) = only_told(assembled, server_alive=False, public_url=None)
    assert told == "notify.to: nothing goes to apprise before a server runs here (loopwright serve)"
    assert only_told(assembled, server_alive=True, public_url=None) == []


@pytest.mark.parametrize("url", ["sqlite:///s.db", "files:s", "memory:"])
def test_the_leader_tells_whether_a_server_lives(tmp_path, url):
    store = open_store(url, tmp_path)
    assert not server_alive(store, owner())
    lease = store.lease("post:", owner(), 30)
    assert server_alive(store, owner())
    lease.release()
    assert not server_alive(store, owner())
    store.close()


def test_clicks_in_slack_need_an_address_unless_it_is_a_socket(tmp_path):
    for mode, count in (("http", 1), ("socket", 0)):
        assembled = made(tmp_path, {"use": "slack", "channel": "#l", "mode": mode})
        assert len(unheard(assembled, server_alive=True, public_url=None)) == count
        assert unheard(assembled, server_alive=True, public_url="https://x.org") == []
        assert only_told(assembled, server_alive=True, public_url=None) == []
