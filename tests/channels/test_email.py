"""Mail, against a real SMTP server: what arrives, in which thread, and what happens when it does not."""

import asyncio
import ssl
from contextlib import asynccontextmanager
from email import message_from_bytes
from email.policy import default
from html.parser import HTMLParser
from pathlib import Path

import aiosmtpd.tests.certs
import pytest
from aiosmtpd.smtp import SMTP, AuthResult
from cards_of import APPROVED, card, news

from loopwright.channels import _tickets
from loopwright.channels.email import email
from loopwright.errors import ConfigError, Undelivered

CERTS = Path(aiosmtpd.tests.certs.__file__).parent
KEY = "k" * 64
LINK = "https://loops.example.org/runs/fix-abcd/approvals/0123456789abcdef"
TO = ["mira@example.org", "sam@example.org"]


class Server:
    """Takes mail; `refuses` are answers to RCPT by address, `says` is the answer to DATA."""

    def __init__(self):
        self.mails, self.refuses, self.says, self.secure, self.users = [], {}, "250 OK", [], []

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address in self.refuses:
            return self.refuses[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        if self.says.startswith("250"):
            self.mails.append((envelope.rcpt_tos, message_from_bytes(envelope.content, policy=default)))
            self.secure.append(session.ssl is not None)
            self.raw = envelope.content
        return self.says

    def authenticated(self, server, session, envelope, mechanism, data):
        self.users.append((data.login, data.password))
        return AuthResult(success=data.password == b"pass-word-1", handled=False)


@asynccontextmanager
async def listening(server, **options):
    made = []

    def protocol():
        made.append(SMTP(server, loop=loop, **options))
        return made[-1]

    loop = asyncio.get_running_loop()
    listener = await loop.create_server(protocol, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        for each in made:
            if each.transport is not None:
                each.transport.close()
        await listener.wait_closed()
        await asyncio.sleep(0)


def line(port, environ=None, **said):
    options = {"to": TO, "sender": "Loops <loops@example.org>", "host": "127.0.0.1", "tls": "none", **said}
    return email(port=port, **options).open({_tickets.LINK_KEY: KEY, **(environ or {})})


def shows(*cards, server=None, **said):
    """The mails that come of showing these cards, one after the other, each after the first as an update."""
    server = server or Server()

    async def show():
        async with listening(server) as port:
            opened, ref = line(port, **said), None
            for each in cards:
                ref = await opened.show(each, ref)
            return ref

    return server, asyncio.run(show())


def parts(mail):
    return {part.get_content_type(): part for part in mail.walk() if not part.is_multipart()}


def test_a_request_is_one_mail_per_reader_with_text_and_html_of_the_same_facts():
    server, ref = shows(card(link=LINK))
    assert [to for to, _ in server.mails] == [["mira@example.org"], ["sam@example.org"]]
    mail = server.mails[0][1]
    assert (mail["From"], mail["To"]) == ("Loops <loops@example.org>", "mira@example.org")
    assert mail["Subject"] == "[fix] fix-abcd: accept iteration 3?"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["List-Id"] == "<fix.loopwright.example.org>"
    assert mail["Message-ID"] == ref
    found = parts(mail)
    assert list(found) == ["text/plain", "text/html"]
    text, html = found["text/plain"].get_content(), found["text/html"].get_content()
    for fact in (
        "Make it <green>",
        "pytest ✗ 0.50",
        "2 failed <script>",
        "$1.50",
        "1 file, +1 −1",
        "I did it",
    ):
        assert fact in text
        assert fact.replace("<", "&lt;").replace(">", "&gt;") in html
    assert "and more" not in text  # an agent's claim is one line
    assert "+&lt;b&gt;new&lt;/b&gt;" in html
    assert all(len(row) <= 998 for row in server.raw.split(b"\r\n"))


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def test_the_html_holds_nothing_that_acts_or_loads_and_one_link_that_opens_the_page():
    hostile = '"><img src=x onerror=alert(1)><a href="javascript:1">'
    server, _ = shows(
        card(link=LINK, title=hostile, patch=hostile, shown=None, head={"explanation": hostile})
    )
    tags = Tags()
    tags.feed(parts(server.mails[0][1])["text/html"].get_content())
    names = {tag for tag, _ in tags.seen}
    assert names <= {
        "html",
        "head",
        "meta",
        "body",
        "table",
        "tr",
        "td",
        "h2",
        "p",
        "b",
        "a",
        "pre",
        "br",
        "code",
    }
    assert not [name for _, attrs in tags.seen for name in attrs if name.startswith("on") or name == "src"]
    (link,) = [attrs["href"] for tag, attrs in tags.seen if tag == "a"]
    assert link.startswith(f"{LINK}?to=mira%40example.org&k=")


def test_each_reader_has_an_own_ticket_for_this_request_alone():
    server, _ = shows(card(link=LINK))
    links = [parts(mail)["text/plain"].get_content().split()[-1] for _, mail in server.mails]
    keys = [_tickets.ticket(KEY.encode(), "fix-abcd", "0123456789abcdef", to) for to in TO]
    assert [link.partition("&k=")[2] for link in links] == keys
    assert keys[0] != keys[1]
    assert "k=" not in parts(shows(news(link=LINK))[0].mails[0][1])["text/plain"].get_content()


def test_without_a_page_there_are_commands_and_the_patch_is_a_file():
    server, _ = shows(card())
    mail = server.mails[0][1]
    text = parts(mail)["text/plain"].get_content().replace("\r\n", "\n")
    assert "loopwright approve fix-abcd --approval 0123456789ab\n" in text
    assert 'loopwright revise fix-abcd --approval 0123456789ab --note "…"' in text
    assert "http" not in text + parts(mail)["text/html"].get_content()
    (file,) = mail.iter_attachments()
    assert file.get_filename() == "fix-abcd.diff"
    assert file.get_content() == card().patch


def test_one_thread_per_run_and_the_outcome_is_a_short_reply_to_the_request():
    server, _ = shows(card(link=LINK), card(link=LINK, decided=APPROVED))
    first, reply = (mail for to, mail in server.mails if to == ["sam@example.org"])
    assert reply["Subject"] == "Re: [fix] fix-abcd: accept iteration 3?"
    assert reply["In-Reply-To"] == first["Message-ID"]
    root = first["References"]
    assert reply["References"] == f"{root} {first['Message-ID']}"
    other = shows(news())[0].mails[1][1]
    assert other["References"] == root  # news of the same run
    assert reply.get_content_type() == "text/plain"
    assert "approved by mira (slack) at 2026-11-30 10:02:00 UTC: good" in reply.get_content()
    assert "app.py" not in reply.get_content()


def test_each_message_has_its_own_id_and_every_try_the_same():
    cards = [card(), card(approval="f" * 16), news(), news(title="x"), card(run="b")]
    ids = [str(mail["Message-ID"]) for each in cards for _, mail in shows(each)[0].mails]
    assert len(set(ids)) == len(ids)
    assert ids == [str(mail["Message-ID"]) for each in cards for _, mail in shows(each)[0].mails]
    updates = [card(decided=APPROVED), card(unreached=("slack",)), card(superseded=True)]
    server, _ = shows(card(), *updates)
    assert len({str(mail["Message-ID"]) for _, mail in server.mails}) == 2 * 4


def test_no_header_can_be_injected():
    evil = "x\r\nBcc: evil@example.org\r\n\r\nbody"
    server, _ = shows(card(title=evil, loop=evil, run="r\nBcc: e@x.org"))
    mail = server.mails[0][1]
    assert mail["Bcc"] is None
    assert str(mail["Subject"]) == "[x Bcc: evil@example.org body] x Bcc: evil@example.org body"
    for field in ("to", "sender"):
        said = {"to": TO, "sender": "a@b.org", field: ["a@b.org\nBcc: c@d.org"] if field == "to" else evil}
        with pytest.raises(ConfigError, match=field):
            email(**said)


def test_a_second_try_leaves_out_who_has_the_mail():
    server = Server()
    server.refuses["sam@example.org"] = "451 later"

    async def show():
        async with listening(server) as port:
            opened = line(port)
            with pytest.raises(Undelivered, match=r"sam@example.org: 451 later") as raised:
                await opened.show(card(), None)
            assert not raised.value.final
            server.refuses.clear()
            await opened.show(card(), None)

    asyncio.run(show())
    assert [to for to, _ in server.mails] == [["mira@example.org"], ["sam@example.org"]]


@pytest.mark.parametrize(
    ("refuses", "says", "final", "what"),
    [
        ({}, "554 spam", True, "554 spam"),
        ({}, "452 full", False, "452 full"),
        (dict.fromkeys(TO, "550 who?"), "250 OK", True, "mira@example.org: 550 who\\?; sam@example.org: 550"),
    ],
)
def test_what_the_server_refuses_for_ever_is_final(refuses, says, final, what):
    server = Server()
    server.refuses, server.says = refuses, says
    with pytest.raises(Undelivered, match=what) as raised:
        shows(card(), server=server)
    assert raised.value.final == final


def test_one_reader_refused_for_ever_keeps_the_others_from_nothing_and_is_named():
    server = Server()
    server.refuses["mira@example.org"] = "550 gone"
    _, ref = shows(card(), server=server)
    assert ref.endswith("(not to mira@example.org: 550 gone)")


def test_a_server_that_is_not_there_may_come_back():
    async def show():
        async with listening(Server()) as port:
            pass
        with pytest.raises(Undelivered) as raised:
            await line(port).show(card(), None)
        assert not raised.value.final

    asyncio.run(show())


def secured(server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTS / "server.crt", CERTS / "server.key")
    return listening(
        server,
        tls_context=context,
        require_starttls=True,
        auth_required=True,
        authenticator=server.authenticated,
    )


LOGIN = {"user": "MAIL_USER", "password": "MAIL_PASSWORD", "tls": "starttls"}
ENVIRON = {"MAIL_USER": "loops", "MAIL_PASSWORD": "pass-word-1"}


def test_with_starttls_nothing_goes_out_before_the_server_is_known():
    server = Server()

    async def show():
        async with secured(server) as port:
            with pytest.raises(Undelivered):  # nobody vouches for this certificate
                await line(port, ENVIRON, **LOGIN).show(card(), None)

    asyncio.run(show())
    assert (server.mails, server.users) == ([], [])


class Trusting(ssl.SSLContext):
    """For a certificate that names nobody."""

    check_hostname = False


def test_it_logs_in_over_tls(monkeypatch):
    server = Server()
    trusting = Trusting(ssl.PROTOCOL_TLS_CLIENT)
    ssl.SSLContext.check_hostname.__set__(trusting, False)
    trusting.load_verify_locations(CERTS / "server.crt")
    monkeypatch.setattr(ssl, "create_default_context", lambda *_, **__: trusting)

    async def show():
        async with secured(server) as port:
            await line(port, ENVIRON, **LOGIN).show(card(), None)
            with pytest.raises(Undelivered, match="535") as raised:
                await line(port, {**ENVIRON, "MAIL_PASSWORD": "wrong-pass"}, **LOGIN).show(news(), None)
            assert raised.value.final
            assert "wrong-pass" not in str(raised.value)

    asyncio.run(show())
    assert server.secure == [True, True]
    assert server.users[0] == (b"loops", b"pass-word-1")


def test_a_missing_secret_refuses_to_open_and_a_password_does_not_go_in_the_clear():
    channel = email(to=TO, sender="a@b.org", **LOGIN)
    assert (channel.secrets, channel.linked, channel.remote) == (("MAIL_USER", "MAIL_PASSWORD"), True, True)
    with pytest.raises(ConfigError, match="MAIL_PASSWORD is not set"):
        channel.open({"MAIL_USER": "x"})
    with pytest.raises(ConfigError, match="in the clear"):
        email(to=TO, sender="a@b.org", host="mail.example.org", **{**LOGIN, "tls": "none"})
    with pytest.raises(ConfigError, match="go together"):
        email(to=TO, sender="a@b.org", user="X")
