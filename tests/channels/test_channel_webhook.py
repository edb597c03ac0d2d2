"""Webhooks: what goes out is what the standard's own library believes, where it may go, and what comes back in."""

import asyncio
import base64
import hashlib
import json
import os
import socket
import ssl
import threading
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import aiosmtpd.tests.certs
import pytest
from cards_of import APPROVED, card, news, shown
from standardwebhooks import Webhook, WebhookVerificationError

from loopwright.cards import Incoming, Told
from loopwright.channels import _outward
from loopwright.channels.webhook import STATUS, payload, webhook
from loopwright.core.values import Score, Scored
from loopwright.errors import ConfigError, Undelivered


def secret(seed):
    return "whsec_" + base64.b64encode(hashlib.sha256(seed.encode()).digest()).decode()


NEW, OLD = secret("new"), secret("old")
ENVIRON = {"HOOK_SECRET": NEW}
CERTS = Path(aiosmtpd.tests.certs.__file__).parent


class Receiver:
    """Answers with `head`; keeps the requests."""

    def __init__(self, head="HTTP/1.1 204 No Content"):
        self.head, self.seen = head, []

    async def took(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.seen.append((first, headers, body))
        if self.head is not None:
            writer.write(f"{self.head}\r\n\r\n".encode())
            await writer.drain()
        writer.close()


@asynccontextmanager
async def receiving(receiver, tls=None):
    server = await asyncio.start_server(receiver.took, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def sent(*cards, receiver=None, environ=ENVIRON, url="http://127.0.0.1:{}/hook?x=1", private=True):
    receiver = receiver or Receiver()

    async def show():
        async with receiving(receiver) as port:
            channel = webhook(url=url.format(port), secret="HOOK_SECRET", allow_private=private)
            line, refs = channel.open(environ), []
            for each in cards:
                refs.append(await line.show(each, refs[0] if refs else None))
            return refs

    return asyncio.run(show()), receiver.seen


def test_what_goes_out_is_believed_by_the_library_of_the_standard():
    refs, [(first, headers, body)] = sent(card())
    assert first == "POST /hook?x=1 HTTP/1.1"
    assert Webhook(NEW).verify(body, headers) == json.loads(body)
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(body.replace(b"fix", b"fox", 1), headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(body, headers)
    assert refs == [headers["webhook-id"]]
    assert headers["content-type"] == "application/json"


def test_while_secrets_change_both_sides_believe():
    _, [(_, headers, body)] = sent(card(), environ={"HOOK_SECRET": f"{NEW} {OLD}"})
    assert Webhook(NEW).verify(body, headers) == Webhook(OLD).verify(body, headers)


def test_each_try_is_the_same_message_and_each_update_another():
    ids = []
    for _ in range(2):
        cards = [card(), card(unreached=("slack",)), card(decided=APPROVED), card(superseded=True)]
        refs, _ = sent(*cards)
        ids.append(refs)
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 4
    assert sent(card(unreached=("x",)))[0] == [
        ids[0][0]
    ]  # a first message is one, whoever else was not reached


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (card(), "loopwright.approval.requested"),
        (card(decided=APPROVED), "loopwright.approval.decided"),
        (card(superseded=True, decided=APPROVED), "loopwright.approval.superseded"),
        (news(), "loopwright.run.failed"),
        (news(about="finished"), "loopwright.run.finished"),
        (news(about="alert"), "loopwright.run.alert"),
        (news(about="needs_you"), "loopwright.run.needs_you"),
    ],
)
def test_the_kinds_of_messages(made, kind):
    assert json.loads(payload(made))["type"] == kind


def test_the_payload_says_what_a_person_would_see():
    data = json.loads(payload(card(link="https://x.org/runs/r", decided=APPROVED)))["data"]
    assert (data["run"], data["approval"], data["link"]) == (
        "fix-abcd",
        "0123456789abcdef",
        "https://x.org/runs/r",
    )
    assert data["request"]["gates"] == [
        {"gate": "pytest", "status": "fail", "value": 0.5, "reason": "2 failed <script>"}
    ]
    assert data["request"]["trend"] == [0.2, None, 0.5]
    assert data["request"]["deadline"] == "2099-01-01T00:00:00+00:00"
    assert data["diff"] == {"files": 1, "added": 1, "removed": 1, "patch": card().patch, "cut": False}
    assert data["decided"]["answer"] == "approve"
    assert json.loads(payload(news()))["data"]["request"] is None


def test_it_is_always_smaller_than_20_kb():
    gates = tuple(Scored(gate=f"g{n}", score=Score(0, "é" * 4000, status="fail")) for n in range(100))
    big = card(patch="+x\n" * 13_000, shown=shown(goal="g" * 4000, gates=gates, alerts=("a" * 4000,) * 50))
    body = payload(big)
    assert len(body) < 20_000
    data = json.loads(body)["data"]
    assert data["diff"]["cut"]
    some = json.loads(payload(card(patch="+line\n" * 5000)))["data"]["diff"]
    assert some["cut"]
    assert set(some["patch"].splitlines()) == {"+line"}  # whole lines
    assert len(some["patch"]) > 5000


@pytest.mark.parametrize(
    ("head", "what", "wait", "final"),
    [
        ("HTTP/1.1 500 No", "127.0.0.1 answered 500", None, False),
        ("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/", "answered 302", None, False),
        ("HTTP/1.1 429 Slow\r\nRetry-After: 7", "answered 429", 7.0, False),
        ("HTTP/1.1 410 Gone", "answered 410", None, True),
        ("SSH-2.0-x", "does not answer in HTTP", None, False),
        (None, "0 bytes read", None, False),
        ("HTTP/1.1 200 OK\r\nx: " + "y" * 70_000, "127.0.0.1: ", None, False),
    ],
)
def test_everything_but_2xx_is_a_failure(head, what, wait, final):
    receiver = Receiver(head)
    with pytest.raises(Undelivered, match=what) as raised:
        sent(card(), receiver=receiver)
    assert (raised.value.retry_after_s, raised.value.final) == (wait, final)
    assert len(receiver.seen) == 1  # no redirect is followed


def test_a_wait_may_be_a_date():
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert _outward.seconds_of("Mon, 30 Nov 2026 12:00:30 GMT", now) == 30
    assert _outward.seconds_of("Mon, 30 Nov 2026 11:00:00 GMT", now) == 0
    assert _outward.seconds_of("soon", now) is None


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "169.254.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "2002:7f00:1::",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::7f00:1",
        "2001:db8::1",
        "2001:0:53aa:64c:0:0:80ff:fffe",
    ],
)
def test_what_is_not_on_the_public_net(address):
    assert not _outward.is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_what_is(address):
    assert _outward.is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "127.1", "0"]
)
def test_nothing_inside_is_posted_to_however_it_is_written(host):
    receiver = Receiver()
    with pytest.raises(Undelivered) as raised:
        sent(card(), receiver=receiver, url=f"http://{host}:{{}}/", private=False)
    assert receiver.seen == []
    assert raised.value.final or "cannot be found" in str(raised.value)


def test_a_net_without_names_keeps_nobody_waiting(monkeypatch):
    asked = threading.Event()
    monkeypatch.setattr(_outward, "getaddrinfo", lambda *_: asked.wait(60))
    monkeypatch.setattr(_outward, "NAME_S", 0.05)
    began = time.monotonic()
    with pytest.raises(Undelivered, match=r"cannot be found within 0\.05 s"):
        asyncio.run(_outward.resolved("hangs.example.org", 443, private=False))  # and the loop ends at once
    assert time.monotonic() - began < 10
    asked.set()


def test_a_name_is_resolved_once_and_one_bad_address_is_enough(monkeypatch):
    """DNS rebinding: a name that is public when it is looked at and private when it is used."""
    asked = []

    def resolved(host, port, *said):
        asked.append(host)
        answers = [["93.184.216.34"], ["127.0.0.1"]]
        return [(socket.AF_INET, 1, 6, "", (each, port)) for each in answers[min(len(asked), 2) - 1]]

    went = []

    async def connected(host, port, **said):
        went.append(host)
        raise OSError("no net here")

    monkeypatch.setattr(_outward, "getaddrinfo", resolved)
    monkeypatch.setattr(asyncio, "open_connection", connected)
    parts = _outward.address("https://rebinds.example.org/")
    with pytest.raises(Undelivered, match="no net here"):
        asyncio.run(_outward.post(parts, {}, b"", private=False))
    assert (asked, went) == (["rebinds.example.org"], ["93.184.216.34"])
    with pytest.raises(Undelivered, match="is 127.0.0.1, which is not on the public net") as raised:
        asyncio.run(_outward.post(parts, {}, b"", private=False))
    assert raised.value.final
    assert len(went) == 1

    def mixed(host, port, *said):
        return [(socket.AF_INET, 1, 6, "", (each, port)) for each in ("93.184.216.34", "10.0.0.1")]

    monkeypatch.setattr(_outward, "getaddrinfo", mixed)
    with pytest.raises(Undelivered, match=r"10\.0\.0\.1"):
        asyncio.run(_outward.post(parts, {}, b"", private=False))


def test_over_tls_the_certificate_is_that_of_the_name_and_not_of_the_address():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTS / "server.crt", CERTS / "server.key")
    named = []
    context.sni_callback = lambda _, name, __: named.append(name)
    receiver = Receiver()

    async def show():
        async with receiving(receiver, tls=context) as port:
            parts = urlsplit(f"https://localhost:{port}/")
            with pytest.raises(Undelivered, match=r"CERTIFICATE_VERIFY_FAILED|certificate"):
                await _outward.post(parts, {}, b"", private=True)

    asyncio.run(show())
    assert (named, receiver.seen) == (["localhost"], [])


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x.org/",
        "https:///x",
        "https://u:p@x.org/",
        "https://x.org/\r\nX: y",
        "https://x.org:0/",
        "x",
        "https://é.org",
    ],
)
def test_what_is_no_address_is_refused_where_it_is_written(url):
    with pytest.raises(ConfigError):
        webhook(url=url, secret="HOOK_SECRET")


def test_a_secret_that_agents_would_be_shown_is_refused_by_its_name():
    with pytest.raises(ConfigError, match="agents would be shown HOOK under this name"):
        webhook(url="https://x.org/", secret="HOOK")


def test_a_missing_or_weak_secret_refuses_to_open():
    channel = webhook(url="env:WHERE", secret="HOOK_SECRET")
    assert channel.secrets == ("HOOK_SECRET", "WHERE")
    where = {"WHERE": "https://x.org/"}
    for environ, why in (
        (where, "HOOK_SECRET is not set"),
        ({**where, "HOOK_SECRET": "whsec_!"}, "not whsec_ and base64"),
        ({**where, "HOOK_SECRET": "whsec_YQ=="}, "less than 16 bytes"),
        ({"HOOK_SECRET": NEW}, "WHERE is not set"),
    ):
        with pytest.raises(ConfigError, match=why):
            channel.open(environ)
    channel.open({**where, "HOOK_SECRET": NEW})


# What comes in

SAID = {"run": "r", "approval": "0123456789abcdef", "answer": "approve", "by": "ci-bot"}


def heard(body, *, key=NEW, late_s=0, headers=None, told="recorded", environ=ENVIRON):
    """The reply to a decision, and what was answered."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    now = datetime.now(UTC)
    stamp = now - timedelta(seconds=late_s)
    signature = Webhook(key).sign("msg_1", stamp, body.decode("utf-8", "replace"))
    given = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(stamp.timestamp())),
        "webhook-signature": signature,
    }
    answers = []

    async def answer(said):
        answers.append(said)
        return Told(word=told, text=f"it is {told}")

    channel = webhook(url="https://x.org/", secret="HOOK_SECRET")
    incoming = Incoming(headers={**given, **(headers or {})}, body=body, now=now)
    return asyncio.run(channel.hear(incoming, environ, answer)), answers


@pytest.mark.parametrize(("word", "status"), STATUS.items())
def test_a_signed_decision_is_answered_by_what_became_of_it(word, status):
    reply, (said,) = heard({**SAID, "note": "good"}, told=word)
    assert (reply.status, json.loads(reply.body)["outcome"]) == (status, word)
    assert (said.run, said.approval, said.answer, said.by, said.note) == (*SAID.values(), "good")


def test_with_several_secrets_each_is_believed():
    for key in (NEW, OLD):
        assert heard(SAID, key=key, environ={"HOOK_SECRET": f"{NEW} {OLD}"})[0].status == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": OLD},
        {"late_s": 302},
        {"late_s": -302},
        {"headers": {"webhook-id": "msg_2"}},
        {"headers": {"webhook-signature": ""}},
        {"headers": {"webhook-signature": "v1," + "é" * 10}},
        {"headers": {"webhook-timestamp": "NaN"}},
        {"headers": {"webhook-timestamp": "9" * 30}},
        {"environ": {}},
    ],
)
def test_what_is_not_signed_as_it_should_be_is_not_read(wrong):
    reply, answers = heard(SAID, **wrong)
    assert (reply.status, answers) == (401, [])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 100_000,
        b'{"run":"r","approval":"0123456789abcdef","answer":"approve","by":"x","run":"s"}',
        {},
        {**SAID, "more": 1},
        {**SAID, "answer": "yes"},
        {**SAID, "by": ""},
        {**SAID, "by": "a\nb"},
        {**SAID, "by": None},
        {**SAID, "note": 5},
        {**SAID, "note": "\ud800"},
        {**SAID, "run": ["r"]},
    ],
)
def test_a_decision_is_read_strictly(body):
    reply, answers = heard(body)
    assert (reply.status in {401, 422}, answers) == (True, [])
    if len(body) < 1000:
        assert reply.status == 422


def test_nothing_of_the_secret_is_in_what_is_said(monkeypatch):
    assert os.environ.get("HOOK_SECRET") is None
    with pytest.raises(Undelivered) as raised:
        sent(card(), receiver=Receiver("HTTP/1.1 500 x"))
    assert NEW not in str(raised.value)
