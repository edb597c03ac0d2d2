"""What a server hears through channels: the right channel, about its own runs, and listeners that are kept alive."""

import asyncio
import base64
import hmac
import json
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from posting import awaited, until
from standardwebhooks import Webhook

from loopwright import Loop, run
from loopwright.cards import Answered, Channel, Incoming, Reply
from loopwright.hosts import people
from loopwright.journal import Journal
from loopwright.serving.ears import Ears
from loopwright.stores.opened import open_store

ONE, TWO = ("whsec_" + base64.b64encode(word * 8).decode() for word in (b"one!", b"two!"))
ENVIRON = {"ONE_SECRET": ONE, "TWO_SECRET": TWO}
URL = "sqlite:///s.db"
HEARD: list = []


def agent(attempt):
    return "worked"


def gate(result):
    return True


def hook(secret, url="https://x.org/"):
    return {"use": "webhook", "url": url, "secret": secret}


def radio(*, secret: str | None = None) -> Channel:
    """Listens: what is in the queue it is given is answered, or raised."""

    async def listen(environ, answer):
        HEARD.append("listens")
        try:
            while True:
                said = await QUEUE.get()
                if isinstance(said, Exception):
                    raise said
                HEARD.append(await answer(said))
        finally:
            HEARD.append("rests")

    return Channel(name="radio", open=None, secrets=(secret,) if secret else (), listen=listen)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    HEARD.clear()
    return tmp_path


@pytest.fixture
def store(project):
    store = open_store(URL, project)
    yield store
    store.close()


def loop(*channels):
    return Loop("g", agent=agent, gates=[gate], approval={"when": "passed", "channels": channels}, store=URL)


def ears(project, *loops, told=print):
    @contextmanager
    def stores():
        store = open_store(URL, project)
        yield store
        store.close()

    book = SimpleNamespace(loops={str(n): SimpleNamespace(loop=each) for n, each in enumerate(loops)})
    return Ears(
        project=project,
        environ=ENVIRON,
        book=book,
        stores=stores,
        nudge=lambda: None,
        tell=told,
        again_s=0.01,
    )


def signed(secret, run_id, approval, answer="approve"):
    body = json.dumps({"run": run_id, "approval": approval, "answer": answer, "by": "bot"}).encode()
    now = datetime.now(UTC)
    signature = Webhook(secret).sign("m", now, body.decode())
    headers = {
        "webhook-id": "m",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signature,
    }
    return Incoming(headers=headers, body=body, now=now)


def word(reply):
    return reply.status, json.loads(reply.body or b"{}").get("outcome")


@awaited
async def test_a_channel_decides_about_the_runs_that_ask_through_its_secret_and_no_other(project, store):
    loops = {
        "one": loop(hook("ONE_SECRET")),
        "two": loop(hook("ONE_SECRET", "https://y.org"), hook("TWO_SECRET")),
    }
    for name, each in loops.items():
        run(each, name)
    third = loop("inbox")
    run(third, "third")
    ids = {name: Journal(store, name).state.approval.id for name in ("one", "two", "third")}
    heard = ears(project)  # all of them were started by hand
    assert word(await heard.hear("webhook", signed(TWO, "one", ids["one"]))) == (404, "unknown")
    assert word(await heard.hear("webhook", signed(ONE, "third", ids["third"]))) == (404, "unknown")
    assert word(await heard.hear("webhook", signed(ONE, "../one", ids["one"]))) == (404, "unknown")
    assert word(await heard.hear("webhook", signed(ONE, "nobody", ids["one"]))) == (404, "unknown")
    forged = signed("whsec_" + base64.b64encode(b"x" * 24).decode(), "one", ids["one"])
    assert (await heard.hear("webhook", forged)).status == 401
    assert (await heard.hear("slack", signed(ONE, "one", ids["one"]))).status == 404
    assert [people.standing(store, name, ids[name]) for name in ids] == [None] * 3
    assert word(await heard.hear("webhook", signed(ONE, "one", ids["one"]))) == (200, "recorded")
    assert word(await heard.hear("webhook", signed(ONE, "one", ids["one"]))) == (200, "again")
    assert word(await heard.hear("webhook", signed(ONE, "one", ids["one"], "reject"))) == (409, "conflict")
    assert word(await heard.hear("webhook", signed(TWO, "two", ids["two"], "reject"))) == (200, "recorded")
    decision, _ = people.standing(store, "two", ids["two"])
    assert (decision.answer, decision.by, decision.channel) == ("reject", "bot", "webhook")


@awaited
async def test_two_apps_of_slack_are_told_apart_by_the_secret_that_signs(project, store):
    environ = {"SLACK_BOT_TOKEN": "xoxb-1", "ONE_SECRET": "1" * 32, "TWO_SECRET": "2" * 32}
    for n, name in enumerate(("one", "two")):
        use = {"use": "slack", "channel": "#c", "secret": f"{name.upper()}_SECRET"}
        run(loop("inbox", use) if n else loop(use), name)
    heard = ears(project)
    heard.environ = environ

    def click(secret, name):
        value = f"approve:{Journal(store, name).state.approval.id}:{name}"
        payload = {"type": "block_actions", "user": {"id": "U0MIRA"}, "actions": [{"value": value}]}
        body, now = urlencode({"payload": json.dumps(payload)}).encode(), datetime.now(UTC)
        stamp = str(int(now.timestamp()))
        made = hmac.digest(environ[secret].encode(), b"v0:" + stamp.encode() + b":" + body, "sha256").hex()
        headers = {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={made}"}
        return Incoming(headers=headers, body=body, now=now)

    def decided(name):
        return people.standing(store, name, Journal(store, name).state.approval.id) is not None

    assert (
        await heard.hear("slack", click("ONE_SECRET", "two"))
    ).status == 200  # by the other app: told, not taken
    assert not decided("two")
    for name in ("one", "two"):
        assert (await heard.hear("slack", click(f"{name.upper()}_SECRET", name))).status == 200
        assert decided(name)


@awaited
async def test_who_knows_no_secret_makes_nobody_read_the_store(project, store, monkeypatch):
    heard, read = ears(project), []
    refresh = Ears._refresh
    monkeypatch.setattr(Ears, "_refresh", lambda self: read.append(refresh(self)))
    for _ in range(3):
        assert (await heard.hear("webhook", signed(ONE, "r", "f" * 16))).status == 404
    assert len(read) == 1


@awaited
async def test_a_channel_that_breaks_is_said_and_is_no_fault_of_the_server(project, monkeypatch):
    async def breaks(*_):
        raise RuntimeError("no\nway")

    async def fine(*_):
        return Reply(status=200)

    told = []
    heard = ears(project, told=told.append)
    heard._looked, heard._known = (
        True,
        {
            ("x", "1"): Channel(name="x", open=None, hear=breaks),
            ("y", "1"): Channel(name="y-2", open=None, hear=fine),
        },
    )
    incoming = Incoming(headers={}, body=b"", now=datetime.now(UTC))
    assert (await heard.hear("x", incoming)).status == 400
    assert (await heard.hear("y", incoming)).status == 200
    assert told == ["x could not read a request: RuntimeError: no"]


@awaited
async def test_who_listens_is_kept_listening_once_per_secret_as_long_as_somebody_asks(
    project, store, monkeypatch
):
    global QUEUE  # noqa: PLW0603 - made in the loop that reads it
    QUEUE = asyncio.Queue()
    monkeypatch.setattr("loopwright.serving.ears.REFRESH_S", 0.02)
    radios = [{"use": "test_ears:radio", "secret": "ONE_SECRET"}]
    served = loop(radios[0])
    run(loop(radios[0]), "r")
    approval = Journal(store, "r").state.approval.id
    told = []
    heard = ears(project, served, loop("inbox", radios[0]), told=told.append)
    task = asyncio.create_task(heard.work())
    await until(lambda: HEARD == ["listens"])
    QUEUE.put_nowait(RuntimeError("the line is cut"))
    QUEUE.put_nowait(RuntimeError("the line is cut"))
    QUEUE.put_nowait(Answered(run="r", approval=approval, answer="approve", by="U1"))
    await until(lambda: HEARD[-1] not in {"listens", "rests"})
    assert HEARD[:-1] == ["listens", "rests", "listens", "rests", "listens"]
    assert HEARD[-1].word == "recorded"
    assert told == ["radio does not listen, and is begun again: RuntimeError: the line is cut"]
    assert people.standing(store, "r", approval)[0].channel == "radio"
    run(served, "r")  # it is over
    heard.book.loops.clear()
    await until(lambda: HEARD[-1] == "rests")
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def test_what_a_run_asks_through_is_read_once_also_where_that_is_nothing(project, store, monkeypatch):
    read = []
    monkeypatch.setattr("loopwright.serving.ears._values", lambda store, run: read.append(run) or ())
    run(Loop("g", agent=agent, gates=[gate], approval={"when": "always"}, store=URL), "r")
    listening = ears(project)
    listening._refresh()
    listening._refresh()
    assert read == ["r"]
