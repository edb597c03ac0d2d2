"""Socket Mode from end to end: the real client of slack-sdk, a real web socket, real clicks."""

import asyncio
import threading
import time

import pytest
from fake_slack import ENVIRON
from test_slack_hear import People

from loopwright.cards import Told
from loopwright.channels import _slack_api
from loopwright.channels.slack import slack
from loopwright.errors import ConfigError, Undelivered


async def got(queue):
    """The next of a queue that threads fill."""
    return await asyncio.to_thread(queue.get, True, 10)


def listening(fake, people, use):
    """Listens while `use(channel)` runs; then every thread of slack-sdk is gone."""
    before = set(threading.enumerate())

    async def both():
        channel = slack(channel="#loops", mode="socket", url=fake.url)
        task = asyncio.create_task(channel.listen(ENVIRON, people))
        try:
            await use(channel)
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(both())
    fake.hang_up()  # else slack-sdk waits three seconds for the next word
    ours = [t for t in set(threading.enumerate()) - before if "(_run)" in t.name or "PoolExecutor" in t.name]
    for thread in ours:
        thread.join(10)
    assert not [t for t in ours if t.is_alive()]


def test_clicks_and_forms_come_through_the_socket(fake, card):
    people = People()

    async def use(channel):
        ref = await channel.open(ENVIRON).show(card(), None)
        message = fake.messages[tuple(ref.split("/"))]
        sock = await got(fake.sockets)
        fake.envelope(sock, fake.click(message, "approve"), "e1")
        assert await got(fake.acked) == {"envelope_id": "e1"}
        assert [said.answer for said in people.asked] == ["approve"]
        fake.envelope(sock, fake.click(message, "revise"), "e2")
        assert await got(fake.acked) == {"envelope_id": "e2"}
        people.told.append(Told(word="refused", text="not you"))
        fake.envelope(sock, fake.filled(await got(fake.views), "again"), "e3")
        answer = await got(fake.acked)
        assert answer["payload"] == {"response_action": "errors", "errors": {"said": "not you"}}
        assert people.asked[-1].note == "again"
        people.told.append(RuntimeError("a fault of ours"))
        fake.envelope(sock, fake.click(message, "approve"), "e4")
        assert await got(fake.acked) == {"envelope_id": "e4"}
        fake.envelope(sock, fake.click(message, "reject"), "e5")
        assert await got(fake.acked) == {"envelope_id": "e5"}
        assert people.asked[-1].answer == "reject"

    listening(fake, people, use)


def test_a_slack_that_is_away_at_first_is_tried_again(fake, card, monkeypatch):
    monkeypatch.setattr(_slack_api, "FIRST_S", 0.01)
    fake.canned["apps.connections.open"] += [(503, {}, b"down"), {"ok": False, "error": "internal_error"}]

    async def use(_channel):
        await got(fake.sockets)

    listening(fake, People(), use)
    assert [m for m, _ in fake.calls] == ["apps.connections.open"] * 3


def test_a_connection_that_breaks_is_opened_anew_at_no_cost(fake, card, monkeypatch):
    monkeypatch.setattr(_slack_api, "PING_S", 0.25)
    people = People()

    async def use(channel):
        ref = await channel.open(ENVIRON).show(card(), None)
        await got(fake.sockets)
        began = time.process_time()
        fake.hang_up()
        sock = await got(fake.sockets)
        assert time.process_time() - began < 0.3
        fake.envelope(sock, fake.click(fake.messages[tuple(ref.split("/"))], "approve"), "e1")
        assert await got(fake.acked) == {"envelope_id": "e1"}

    listening(fake, people, use)
    assert [said.answer for said in people.asked] == ["approve"]


def test_a_token_that_is_not_good_ends_the_listening(fake):
    channel = slack(channel="#loops", mode="socket", url=fake.url)
    with pytest.raises(Undelivered, match="invalid_auth") as caught:
        asyncio.run(channel.listen({**ENVIRON, "SLACK_APP_TOKEN": "xapp-other"}, People()))
    assert caught.value.final
    with pytest.raises(ConfigError, match="SLACK_APP_TOKEN"):
        asyncio.run(channel.listen({"SLACK_BOT_TOKEN": "xoxb-1"}, People()))


def test_what_was_closed_before_it_opened_opens_nothing(fake):
    async def early():
        line = _slack_api._Socket("xapp-good-1", fake.url, People(), asyncio.get_running_loop())
        line.close()
        assert line.open() is None

    asyncio.run(early())
    assert not fake.calls
