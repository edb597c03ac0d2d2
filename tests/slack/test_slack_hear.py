"""What comes back from Slack: signatures over raw bytes, clicks, forms, and what a person is told."""

import asyncio
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fake_slack import ENVIRON, SECRET, check_view, encoded, headers_of

from loopwright.cards import Incoming, Told
from loopwright.channels import _slack_hear as hearing
from loopwright.channels import slack as module
from loopwright.channels._slack_api import on_loopback, to_hooks
from loopwright.channels.slack import slack
from loopwright.errors import StoreError

VECTORS = json.loads((Path(__file__).parents[1] / "cases/approvals/slack_vectors.json").read_text())
NOW = 1_700_000_000


class People:
    """Those who record answers: what they were asked, and what they say."""

    def __init__(self, *told):
        self.asked, self.told = [], list(told)

    async def __call__(self, said):
        self.asked.append(said)
        word = self.told.pop(0) if self.told else Told(word="recorded", text="approved by U0MIRA (slack)")
        if isinstance(word, Exception):
            raise word
        return word


def hear(body, headers, people, *, now=NOW, environ=ENVIRON, url="https://slack.com/api/"):
    channel = slack(channel="#loops", url=url)
    incoming = Incoming(headers=headers, body=body, now=datetime.fromtimestamp(now, UTC))

    async def all_of_it():
        began = time.monotonic()
        reply = await channel.hear(incoming, environ, people)
        assert time.monotonic() - began < 1
        while hearing._TASKS:
            await asyncio.wait(list(hearing._TASKS))
        return reply

    return asyncio.run(all_of_it())


def sent(payload, people, **more):
    body = encoded(payload)
    return hear(body, headers_of(body, NOW), people, **more)


def whole(payload):
    """The click of a vector, with the run and the person that every click of ours has."""
    (action,) = payload["actions"]
    return {**payload, "actions": [{**action, "value": f"{action['value']}:r1"}], "user": {"id": "U1"}}


# Signatures


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda v: v["name"])
def test_the_vectors(vector):
    environ = {**ENVIRON, "SLACK_SIGNING_SECRET": VECTORS["signing_secret"]}
    headers = {name.lower(): value for name, value in vector["headers"].items()}
    people = People()
    reply = hear(bytes.fromhex(vector["body_hex"]), headers, people, now=vector["now"], environ=environ)
    wanted = vector["expected"]
    if wanted.startswith("401"):
        assert reply.status == 401
    elif wanted.startswith("200"):
        assert reply.status == 200
    else:
        assert reply.status == 400
    assert not people.asked, "it names no run and no person: nobody's answer"


def test_a_click_of_the_shape_of_the_vectors_is_an_answer_once():
    body = bytes.fromhex(VECTORS["vectors"][0]["body_hex"])
    payload = json.loads(hearing.parse_qs(body.decode())["payload"][0])
    people = People()
    assert sent(whole(payload), people).status == 200
    (said,) = people.asked
    assert (said.run, said.approval, said.answer, said.by) == ("r1", "AP1", "approve", "U1")


@pytest.mark.parametrize("secret", ["", None])
def test_without_the_secret_nothing_is_believed(secret):
    environ = {k: v for k, v in ENVIRON.items() if k != "SLACK_SIGNING_SECRET"}
    environ |= {} if secret is None else {"SLACK_SIGNING_SECRET": secret}
    body = encoded({"type": "block_actions"})
    assert hear(body, headers_of(body, NOW, secret or ""), People(), environ=environ).status == 401


@pytest.mark.parametrize(
    "stamp", ["1e9", "1_700_000_000", " 1700000000", "-1", "", "１７００００００００", "9" * 400]
)
def test_a_stamp_that_is_no_number_is_refused(stamp):
    body = encoded({"type": "block_actions"})
    headers = {**headers_of(body, stamp), "x-slack-signature": headers_of(body, stamp)["x-slack-signature"]}
    assert hear(body, headers, People()).status == 401


def test_a_signature_that_is_not_ascii_is_refused():
    body = encoded({"type": "block_actions"})
    assert hear(body, {**headers_of(body, NOW), "x-slack-signature": "v0=é\ud800"}, People()).status == 401


# What is no click


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"ssl_check=1&token=t", 200, b""),
        (b"", 200, b""),
        (b'{"type": "url_verification", "challenge": "c1"}', 200, b'{"challenge": "c1"}'),
        (b"payload=nope", 400, None),
        (b"payload=" + b"[" * 100_000, 400, None),
        (b"{", 400, None),
        (b"&".join(b"a=1" for _ in range(1000)), 400, None),
        (b"payload=[1]", 200, b""),
        (b"payload=%22x%22", 200, b""),
    ],
)
def test_other_bodies(body, status, said):
    reply = hear(body, headers_of(body, NOW), People())
    assert reply.status == status
    assert said is None or reply.body == said


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "shortcut"},
        {"type": "block_actions"},
        {"type": "block_actions", "user": {"id": "U1"}, "actions": []},
        {"type": "block_actions", "user": {"id": "U1"}, "actions": [{"action_id": "loopwright-page"}]},
        {"type": "block_actions", "user": {"id": "U1"}, "actions": [{"value": "delete:a:r"}]},
        {"type": "block_actions", "user": {"id": "U1"}, "actions": [{"value": "approve::r"}]},
        {"type": "block_actions", "user": {"id": "U1"}, "actions": [{"value": "approve:a:"}]},
        {"type": "block_actions", "user": {"id": 7}, "actions": [{"value": "approve:a:r"}]},
        {"type": "block_actions", "user": {"name": "mira"}, "actions": [{"value": "approve:a:r"}]},
        {"type": "block_actions", "user": "U1", "actions": "approve:a:r"},
        {"type": "view_submission", "user": {"id": "U1"}, "view": {"private_metadata": "approve:a:r"}},
        {"type": "view_closed", "user": {"id": "U1"}, "view": {"callback_id": "loopwright"}},
    ],
)
def test_what_is_no_whole_answer_of_ours_is_passed_over(payload):
    people = People()
    reply = sent(payload, people)
    assert (reply.status, reply.body, people.asked) == (200, b"", [])


# Clicks and forms, from the message as Slack has it


@pytest.fixture
def posted(fake, card):
    """Posts a card; the message as Slack has it."""

    def post(**given):
        line = slack(channel="#loops", url=fake.url).open(ENVIRON)
        ref = asyncio.run(line.show(card(**given), None))
        return fake.messages[tuple(ref.split("/"))]

    return post


def test_a_press_is_recorded_before_it_is_acknowledged(fake, posted):
    message = posted()
    for word in ("approve", "reject"):
        people = People()
        reply = sent(fake.click(message, word), people, url=fake.url)
        assert (reply.status, reply.body) == (200, b"")
        (said,) = people.asked
        assert (said.run, said.approval, said.answer, said.by) == ("fix-abcd", "4f2a" * 16, word, "U0MIRA")
        assert (said.note, said.override) == ("", None)
    assert fake.told.empty(), "the message itself shows what was recorded"


@pytest.mark.parametrize("word", ["again", "conflict", "late", "stale", "nothing", "refused", "unknown"])
def test_who_was_not_the_first_is_told_and_nobody_else(fake, posted, word):
    text = "already approved by U0OTHER1 (slack) at <!channel>"
    reply = sent(fake.click(posted(), "approve"), People(Told(word=word, text=text)), url=fake.url)
    assert (reply.status, reply.body) == (200, b"")
    told = fake.told.get(timeout=5)
    assert told == {
        "response_type": "ephemeral",
        "replace_original": False,
        "text": "already approved by <@U0OTHER1> (slack) at &lt;!channel&gt;",
    }


def test_sending_back_opens_a_form_whose_note_is_the_answer(fake, posted):
    people = People()
    reply = sent(fake.click(posted(), "revise"), people, url=fake.url)
    assert (reply.status, reply.body, people.asked) == (200, b"", [])
    view = fake.views.get(timeout=5)
    reply = sent(fake.filled(view, "  keep the old API "), people, url=fake.url)
    assert (reply.status, reply.body) == (200, b"")
    (said,) = people.asked
    assert (said.run, said.approval, said.answer) == ("fix-abcd", "4f2a" * 16, "revise")
    assert (said.note, said.override, said.by) == ("keep the old API", None, "U0MIRA")


def test_approving_what_has_not_passed_takes_a_reason(fake, posted, shown):
    people = People()
    sent(fake.click(posted(shown=shown(blockers=("pytest",))), "override"), people, url=fake.url)
    assert not people.asked
    sent(fake.filled(fake.views.get(timeout=5), "known flake"), people, url=fake.url)
    (said,) = people.asked
    assert (said.answer, said.override, said.note) == ("approve", "known flake", "")


def test_a_form_whose_answer_is_not_taken_says_why_in_the_form(fake):
    view = {"callback_id": "loopwright", "private_metadata": "revise:a:r"}
    reply = sent(fake.filled(view, "n"), People(Told(word="refused", text="U1 is not among the approvers")))
    assert json.loads(reply.body) == {
        "response_action": "errors",
        "errors": {"said": "U1 is not among the approvers"},
    }
    for word in ("conflict", "late", "stale", "nothing", "unknown"):
        reply = sent(fake.filled(view, "n"), People(Told(word=word, text="too late: it expired")))
        said = json.loads(reply.body)
        assert said["response_action"] == "update"
        check_view(said["view"])
        assert "too late: it expired" in str(said["view"])
    again = sent(fake.filled(view, "n"), People(Told(word="again", text="already")))
    assert (again.status, again.body) == (200, b"")


def test_a_form_that_cannot_be_opened_is_said(fake, posted):
    fake.canned["views.open"].append({"ok": False, "error": "expired_trigger_id"})
    sent(fake.click(posted(), "revise"), People(), url=fake.url)
    told = fake.told.get(timeout=5)["text"]
    assert "expired_trigger_id" in told
    assert "loopwright revise fix-abcd" in told


def test_a_slow_slack_keeps_no_acknowledgement_waiting(fake, posted, monkeypatch):
    monkeypatch.setattr(hearing, "FORM_S", 1.1)
    fake.canned["views.open"].append(30)
    reply = sent(fake.click(posted(), "revise"), People(), url=fake.url)  # `hear` holds it to a second
    assert reply.status == 200
    assert "could not be opened" in fake.told.get(timeout=5)["text"]


def test_a_slow_record_is_acknowledged_and_what_became_of_it_told(fake, posted, monkeypatch):
    monkeypatch.setattr(hearing, "ACK_S", 0.05)

    async def slow(said):
        await asyncio.sleep(0.2)
        return Told(word="recorded", text="approved by U0MIRA (slack)")

    assert sent(fake.click(posted(), "approve"), slow, url=fake.url).status == 200
    assert fake.told.get(timeout=5)["text"].startswith("approved")


def test_what_could_not_be_recorded_is_not_said_to_be(fake, posted):
    broken = People(StoreError("disk full"))
    assert sent(fake.click(posted(), "approve"), broken, url=fake.url).status == 200
    assert "could not be recorded (StoreError)" in fake.told.get(timeout=5)["text"]


@pytest.mark.parametrize(
    ("where", "good"),
    [
        ("https://hooks.slack.com/actions/T1/2/x", True),
        ("https://hooks.slack.com:443/actions/T1", True),
        ("http://hooks.slack.com/actions/T1", False),
        ("https://hooks.slack.com.evil.example/x", False),
        ("https://hooks.slack.com@evil.example/x", False),
        ("https://evil.example\\@hooks.slack.com/x", False),
        ("https://hooks.slack.com:8080/x", False),
        ("https://169.254.169.254/latest", False),
        ("file:///etc/passwd", False),
        ("https://[", False),
        ("", False),
    ],
)
def test_what_a_click_says_of_where_to_answer_is_not_believed(where, good):
    assert to_hooks(where) == good


def test_an_answer_goes_nowhere_else(fake, posted):
    click = fake.click(posted(), "approve")
    late = Told(word="late", text="too late")
    sent(click, People(late), url="https://slack.com/api/")  # loopback is for a stand-in on loopback alone
    sent({**click, "response_url": "http://127.0.0.1.nip.io/x"}, People(late), url=fake.url)
    assert fake.told.empty()
    assert not on_loopback("http://user@127.0.0.1/")


def test_more_than_can_be_told_is_not_kept(monkeypatch, fake, posted):
    monkeypatch.setattr(hearing, "LATER", 0)
    assert (
        sent(fake.click(posted(), "approve"), People(Told(word="late", text="x")), url=fake.url).status == 200
    )
    assert fake.told.empty()


def test_the_secret_is_read_by_the_name_that_was_said(fake, posted):
    channel = slack(channel="#loops", secret="OTHER", url=fake.url)
    body = encoded({"type": "block_actions"})
    incoming = Incoming(headers=headers_of(body, NOW, "s2"), body=body, now=datetime.fromtimestamp(NOW, UTC))
    for environ, status in (({"OTHER": "s2"}, 200), ({"OTHER": SECRET}, 401), (ENVIRON, 401)):
        assert asyncio.run(channel.hear(incoming, environ, People())).status == status
    assert module.slack is slack
