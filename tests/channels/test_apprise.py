"""Apprise: an address in, a message out, and none of the address anywhere else."""

import asyncio
import importlib
import logging
import threading

import pytest
from cards_of import APPROVED, card, news

from loopwright.channels.apprise import apprise
from loopwright.errors import ConfigError, Undelivered
from loopwright.registry import resolve_channels

module = importlib.import_module("loopwright.channels.apprise")
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is:DeprecationWarning")  # apprise imports it


class Took:
    """An HTTP server that keeps what it is sent."""

    def __init__(self, status="200 OK"):
        self.status, self.bodies = status, []

    async def took(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length")
        )
        self.bodies.append((await reader.readexactly(length)).decode())
        writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


def shows(*cards, server, url="json://127.0.0.1:{}/token-of-mine"):
    async def show():
        listener = await asyncio.start_server(server.took, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        line = apprise(url="env:WHERE").open({"WHERE": url.format(port)})
        try:
            return [await line.show(each, None) for each in cards]
        finally:
            listener.close()
            await listener.wait_closed()

    return asyncio.run(show())


def test_a_card_is_sent_as_text():
    import json

    server = Took()
    refs = shows(card(), card(decided=APPROVED), news(), server=server)
    assert [ref.partition(":")[0] for ref in refs] == ["json"] * 3
    asked, over, failed = (json.loads(body) for body in server.bodies)
    assert asked["title"] == "[fix] fix-abcd: accept iteration 3?"
    assert "loopwright approve fix-abcd --approval 0123456789ab" in asked["message"]
    assert over["message"].startswith("approved by mira (slack)")
    assert failed["title"] == "[fix] fix-abcd failed: budget"
    assert "loopwright resume fix-abcd --add-budget 5" in failed["message"]


def test_a_failure_names_the_scheme_alone(caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Undelivered, match=r"^json: apprise could not deliver it$") as raised:
        shows(news(), server=Took("500 no"))
    assert not raised.value.final
    said = [record.getMessage() for record in caplog.records if record.name.startswith("apprise")]
    assert not [text for text in said if "token-of-mine" in text]


def test_what_is_no_address_of_a_service_is_refused_without_repeating_it():
    for bad in ("json", "mailto://me:password-1@example.org", "env:", "env:a b"):
        with pytest.raises(ConfigError) as raised:
            apprise(url=bad)
        assert "password-1" not in str(raised.value)
    for environ in ({"WHERE": "nosuch://token-of-mine"}, {"WHERE": "token-of-mine"}, {}):
        with pytest.raises(ConfigError) as raised:
            apprise(url="env:WHERE").open(environ)
        assert "token-of-mine" not in str(raised.value)
    assert apprise(url="env:WHERE").secrets == ("WHERE",)


def test_an_address_in_a_list_of_channels_is_one(tmp_path):
    found, faults = resolve_channels(["discord://a/b", "apprise:env:WHERE"], project=tmp_path, path="")
    assert faults == []
    assert [(c.name, c.secrets, c.hear) for c in found] == [
        ("apprise", (), None),
        ("apprise-2", ("WHERE",), None),
    ]


def test_a_service_that_hangs_is_left_alone_and_keeps_no_server_from_leaving(monkeypatch):
    from apprise import Apprise

    goes_on = threading.Event()
    asked = []

    def hangs(self, **said):
        asked.append(said["title"])
        return goes_on.wait(60)

    monkeypatch.setattr(Apprise, "notify", hangs)
    monkeypatch.setattr(module, "TIMEOUT_S", 0.05)
    line = apprise(url="env:WHERE").open({"WHERE": "json://127.0.0.1:9/token-of-mine"})
    for why in (r"no answer within 0\.05 s", "has not answered to the message before"):
        with pytest.raises(Undelivered, match=why):
            asyncio.run(line.show(news(), None))
    assert len(asked) == 1
    thread = next(each for each in threading.enumerate() if each.name == "loopwright call")
    assert thread.daemon
    goes_on.set()
