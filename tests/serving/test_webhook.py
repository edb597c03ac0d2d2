"""Signatures and events of deliveries: the standardwebhooks library and GitHub's documented example are the peers."""

import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta

import pytest
import standardwebhooks
from a_hook import WHSEC

from loopwright.triggers import webhook
from loopwright.triggers.webhook import Event, Ignored, Refused, keys_of, read
from loopwright.unattended import Trigger

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
JSON = {"content-type": "application/json"}
BODY = b'{"action": "labeled", "n": 1, "deep": {"on": true}}'


def standard(**said):
    return Trigger(webhook="ci", secret="HOOK_SECRET", **said)


def github(**said):
    return Trigger(webhook="ci", secret="HOOK_SECRET", signature="github", **said)


def signed(body=BODY, secret=WHSEC, at=NOW, name="msg_1"):
    """A delivery as the library of the format signs it."""
    signature = standardwebhooks.Webhook(secret).sign(msg_id=name, timestamp=at, data=body.decode())
    return {
        **JSON,
        "webhook-id": name,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature,
    }


def by_github(body, secret=b"It's a Secret to Everybody", **headers):
    digest = hmac.new(secret, body, hashlib.sha256).hexdigest()
    return {**JSON, "x-hub-signature-256": f"sha256={digest}", **headers}


def got(trigger, headers, body=BODY, *, secret=WHSEC, now=NOW):
    return read(trigger, headers, body, keys=keys_of(secret, trigger.signature), now=now)


def of_github(payload, event="issues", delivery="d-1", **said):
    body = json.dumps(payload).encode()
    headers = by_github(body, **{"x-github-event": event, "x-github-delivery": delivery})
    return read(github(**said), headers, body, keys=[b"It's a Secret to Everybody"], now=NOW)


# Signatures


def test_what_the_library_signs_is_right_here():
    assert got(standard(), signed()) == Event(key=("delivery", "msg_1"))
    umlauts = '{"name": "Zoë 🎉"}'.encode()
    assert isinstance(got(standard(), signed(umlauts), umlauts), Event)


def test_what_is_right_here_is_right_to_the_library():
    at = datetime.now(UTC)
    headers = signed(at=at)
    (key,) = keys_of(WHSEC, "standard")
    text = f"msg_1.{headers['webhook-timestamp']}.".encode() + BODY
    ours = hmac.new(key, text, hashlib.sha256).digest()
    import base64

    headers["webhook-signature"] = f"v1,{base64.b64encode(ours).decode()}"
    assert isinstance(got(standard(), headers, now=at), Event)
    assert standardwebhooks.Webhook(WHSEC).verify(BODY, headers) == json.loads(BODY)


def test_the_example_that_github_documents():
    """https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries, with its published digest."""
    digest = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {**JSON, "x-hub-signature-256": f"sha256={digest}"}
    keys = [b"It's a Secret to Everybody"]
    said = read(github(), headers, b"Hello, World!", keys=keys, now=NOW)
    assert said == Refused(status=400, why="the body is not one JSON value in UTF-8, each key once")
    assert read(github(), headers, b"Hello, World?", keys=keys, now=NOW).status == 401


TAMPERED = {
    "body": lambda h, b: (h, b.replace(b"1", b"2")),
    "a space in the body": lambda h, b: (h, b + b" "),
    "id": lambda h, b: ({**h, "webhook-id": "msg_2"}, b),
    "time": lambda h, b: ({**h, "webhook-timestamp": str(int(h["webhook-timestamp"]) + 1)}, b),
    "signature": lambda h, b: ({**h, "webhook-signature": "v1," + "A" * 43 + "="}, b),
    "other version": lambda h, b: (
        {**h, "webhook-signature": h["webhook-signature"].replace("v1", "v1a")},
        b,
    ),
    "no version": lambda h, b: ({**h, "webhook-signature": h["webhook-signature"][3:]}, b),
    "signature cut": lambda h, b: ({**h, "webhook-signature": h["webhook-signature"][:-4]}, b),
    "not ASCII": lambda h, b: ({**h, "webhook-signature": "v1,\xff\ud800"}, b),
    "commas": lambda h, b: ({**h, "webhook-signature": "v1,a,b v1 , ,,"}, b),
    "very long": lambda h, b: ({**h, "webhook-signature": h["webhook-signature"] + " v1,A" * 2000}, b),
    "time that is none": lambda h, b: ({**h, "webhook-timestamp": "nan"}, b),
    "time with a sign": lambda h, b: ({**h, "webhook-timestamp": "-" + h["webhook-timestamp"]}, b),
    "time in other digits": lambda h, b: ({**h, "webhook-timestamp": "١٢٣"}, b),
    **{
        f"no {name}": lambda h, b, name=name: ({k: v for k, v in h.items() if k != name}, b)
        for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
    },
}


@pytest.mark.parametrize("how", TAMPERED)
def test_what_was_changed_on_the_way_is_refused(how):
    headers, body = TAMPERED[how](signed(), BODY)
    assert got(standard(), headers, body) == Refused(status=401, why="it is not signed as it should be")


@pytest.mark.parametrize("at", range(0, len(BODY), 7))
def test_no_byte_of_a_body_can_be_changed(at):
    body = BODY[:at] + bytes([BODY[at] ^ 1]) + BODY[at + 1 :]
    assert got(standard(), signed(), body).status == 401


@pytest.mark.parametrize(("off_s", "right"), [(-301, False), (-300, True), (300, True), (301, False)])
def test_five_minutes_either_way(off_s, right):
    said = got(standard(), signed(at=NOW + timedelta(seconds=off_s)))
    assert isinstance(said, Event) is right
    assert right or (said.status == 401 and "five minutes" in said.why)


def test_each_of_several_secrets_may_sign_while_they_are_changed():
    both = f" {OTHER}  {WHSEC} "
    assert isinstance(got(standard(), signed(), secret=both), Event)
    assert isinstance(got(standard(), signed(secret=OTHER), secret=both), Event)
    assert got(standard(), signed(secret=OTHER)).status == 401
    two = signed(secret=OTHER)
    two["webhook-signature"] += " v1a,xyz " + signed()["webhook-signature"]
    assert isinstance(got(standard(), two), Event), "the sender may sign with several"


def test_without_a_key_nothing_is_right():
    empty = hmac.new(b"", BODY, hashlib.sha256).hexdigest()
    assert read(standard(), signed(), BODY, keys=[], now=NOW).status == 401
    headers = {**JSON, "x-hub-signature-256": f"sha256={empty}"}
    assert read(github(), headers, BODY, keys=[], now=NOW).status == 401


@pytest.mark.parametrize("said", ["sha1=", "SHA256=", "sha256:", ""])
def test_github_signs_in_one_way(said):
    headers = by_github(BODY)
    headers["x-hub-signature-256"] = headers["x-hub-signature-256"].replace("sha256=", said)
    assert read(github(), headers, BODY, keys=[b"It's a Secret to Everybody"], now=NOW).status == 401


@pytest.mark.parametrize(
    "media", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"]
)
def test_what_is_not_json_by_its_own_word(media):
    assert got(standard(), {**signed(), "content-type": media}).status == 415


@pytest.mark.parametrize("media", ["Application/JSON; charset=utf-8", "application/cloudevents+json"])
def test_what_is_json_by_its_own_word(media):
    assert isinstance(got(standard(), {**signed(), "content-type": media}), Event)


def test_what_is_too_large_is_not_even_hashed(monkeypatch):
    monkeypatch.setattr(webhook.hmac, "digest", None)
    assert got(standard(), signed(), b" " * (webhook.MOST_BYTES + 1)).status == 413


MALFORMED = {
    "nothing": b"",
    "broken off": b'{"a": 1',
    "two": b"{} {}",
    "a key twice": b'{"a": 1, "a": 2}',
    "a list": b"[1]",
    "a text": b'"x"',
    "NaN": b'{"a": [NaN]}',
    "infinite": b'{"a": 1e999}',
    "not UTF-8": b'{"a": "\xff"}',
    "a mark before it": b'\xef\xbb\xbf{"a": 1}',
    "deep": b'{"a":' * 65 + b"1" + b"}" * 65,
    "very deep": b"[" * 100_000,
    "a number of 10,000 digits": b'{"a": ' + b"9" * 10_000 + b"}",
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_can_be_read_in_two_ways_is_refused_and_not_repeated(what):
    body = MALFORMED[what]
    said = read(github(), by_github(body), body, keys=[b"It's a Secret to Everybody"], now=NOW)
    assert isinstance(said, Refused)
    assert said.status == 400
    assert said.why.startswith("the body ")
    assert "'a'" not in said.why


def test_what_is_just_deep_enough():
    body = b'{"a":' * 64 + b"1" + b"}" * 64
    assert isinstance(got(standard(), signed(body), body), Event)


# Filters and events


@pytest.mark.parametrize(
    ("wanted", "right"),
    [
        ({"action": "labeled"}, True),
        ({"action": ["opened", "labeled"]}, True),
        ({"action": "opened"}, False),
        ({"action": "labeled", "n": 2}, False),
        ({"n": 1.0}, True),
        ({"n": True}, False),
        ({"n": "1"}, False),
        ({"deep.on": True}, True),
        ({"deep": {"on": True}}, True),
        ({"deep.on": 1}, False),
        ({"deep.off": False}, False),
        ({"n.n": 1}, False),
        ({"deep": "on"}, False),
    ],
)
def test_a_filter(wanted, right):
    said = got(standard(filter=wanted), signed())
    assert isinstance(said, Event) if right else said == Ignored(why="filter")


def test_a_filter_of_the_type_of_a_github_event():
    wanted = {"x-github-event": ["issues", "push"]}
    assert isinstance(of_github({}, "issues", filter=wanted), Event)
    assert of_github({}, "star", filter=wanted) == Ignored(why="filter")
    assert got(standard(filter=wanted), {**signed()}) == Ignored(why="filter")


def test_a_filter_is_not_asked_about_what_is_not_signed():
    assert got(standard(filter={"action": "opened"}), signed(), BODY + b" ").status == 401


def test_a_ping_starts_nothing():
    assert of_github({"zen": "x"}, "ping") == Ignored(why="ping")


ISSUE = {"action": "labeled", "issue": {"number": 5, "updated_at": "T1"}, "repository": {"full_name": "a/b"}}


def test_one_event_of_github_is_one_whoever_it_was_sent_for():
    one = of_github(ISSUE, delivery="d-1")
    assert of_github({**ISSUE, "installation": {"id": 3}}, delivery="d-2") == one


@pytest.mark.parametrize(
    "other",
    [
        {**ISSUE, "action": "unlabeled"},
        {**ISSUE, "issue": {"number": 6, "updated_at": "T1"}},
        {**ISSUE, "issue": {"number": 5, "updated_at": "T2"}},
        {**ISSUE, "repository": {"full_name": "a/c"}},
        {**ISSUE, "label": {"name": "loop"}},
        {**ISSUE, "comment": {"id": 1, "updated_at": "T1"}},
        {**ISSUE, "comment": {"id": 2, "updated_at": "T1"}},
        {**ISSUE, "review": {"id": 2, "submitted_at": "T1"}},
        {"action": "labeled", "pull_request": ISSUE["issue"], "repository": {"full_name": "a/b"}},
    ],
)
def test_two_events_of_github_are_two(other):
    assert of_github(other) != of_github(ISSUE)
    if "comment" in other:
        assert of_github(other) != of_github({**other, "comment": {"id": 9, "updated_at": "T1"}})


@pytest.mark.parametrize(
    "payload", [{}, {"issue": 5}, {"issue": {"number": 5}}, {"comment": {"updated_at": "T"}}]
)
def test_what_cannot_be_told_apart_goes_by_its_delivery(payload):
    assert of_github(payload, delivery="d-9") == Event(key=("delivery", "d-9"))


def test_the_paths_of_a_key():
    trigger = standard(key=("action", "deep.on"))
    assert (
        got(trigger, signed())
        == got(trigger, signed(name="msg_2"))
        == Event(key=("key", '"labeled"', "true"))
    )


def test_where_a_path_of_a_key_is_not_there_each_delivery_is_an_event():
    trigger = standard(key=("action", "issue.number"))
    assert got(trigger, signed(name="msg_2")) == Event(key=("delivery", "msg_2"))
    assert of_github(ISSUE, key=("nothing",)) == Event(key=("delivery", "d-1"))


def test_texts_and_numbers_are_other_events():
    assert len({of_github({"k": value}, key=("k",)).key for value in (1, "1", True, None, "null", [1])}) == 6


# Secrets


@pytest.mark.parametrize(
    ("secret", "signature", "why"),
    [
        ("", "standard", "is empty"),
        ("  ", "github", "is empty"),
        ("whsec_", "standard", "less than 16 bytes"),
        ("whsec_c2hvcnQ=", "standard", "less than 16 bytes"),
        ("whsec_!!!!", "standard", "not whsec_ and base64"),
        ("hunter2", "github", "less than 16 bytes"),
        (f"{WHSEC} hunter2!", "standard", "not whsec_ and base64"),
    ],
)
def test_a_secret_that_cannot_be_used_is_named_and_not_repeated(secret, signature, why):
    trigger = Trigger(webhook="ci", secret="HOOK_SECRET", signature=signature)
    (problem,) = webhook.problems(trigger, {"HOOK_SECRET": secret})
    assert problem.startswith("trigger ci: the secret HOOK_SECRET ")
    assert why in problem
    assert "hunter2" not in problem


def test_a_missing_secret_is_a_problem():
    (problem,) = webhook.problems(standard(), {})
    assert "HOOK_SECRET is not set" in problem


def test_a_secret_that_agents_would_see_is_a_problem():
    assert webhook.problems(standard(), {"HOOK_SECRET": WHSEC}) == []
    (shown,) = webhook.problems(standard(), {"HOOK_SECRET": WHSEC}, ["HOOK_SECRET"])
    assert "in env" in shown
    (named,) = webhook.problems(Trigger(webhook="ci", secret="HOOK"), {"HOOK": WHSEC})
    assert "_SECRET" in named


def test_a_filter_that_nothing_can_match_is_a_problem():
    for value in ([], [[1]], None):
        (problem,) = webhook.problems(standard(filter={"a": {"b": value}}), {"HOOK_SECRET": WHSEC})
        assert "filter a.b" in problem
