"""Secrets out: exact values in every spelling, tokens of known makers, streams cut anywhere."""

import base64
import html
import json
import re
import time
import urllib.parse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright.core import events as ev
from loopwright.core.values import Score
from loopwright.evidence.files import redacted
from loopwright.redact import PLAIN, REACH, Redactor, looks_secret, redactor

SECRET = 'p4ss"W<o>rd/é+&\\x'
KEY = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n" + "MIIEow/bAg0+eQ==\n" * 40
KEY += "-----END RSA PRIVATE KEY-----"
ENV = {
    "DB_PASSWORD": SECRET,
    "GITHUB_TOKEN": "zq7Hk29dLLmWx0",
    "PASSPHRASE_SECRET": "two words and\nanother line",
    "DATABASE_URL": "postgres://app:c0ffee-Cup@db/app",
}
MINE = redactor(ENV)
KNOWN = {
    "aws-key": "AKIAIOSFODNN7EXAMPLE",
    "github-token": "ghp_" + "a1B2" * 9,
    "gitlab-token": "glpat-abcdefghij0123456789",
    "api-key": "sk-ant-api03-" + "Ab0_" * 20,
    "slack-token": "xoxb-123456789012-abcdefABCDEF",
    "google-key": "AIza" + "Sy0-_" * 7,
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.SflKxwRJSMeKKF2QT4",
    "private-key": KEY,
}


def spellings(value: str):
    """How a value may be written, each with a word for the test's name."""
    raw = value.encode()
    yield "plain", raw
    yield "json", json.dumps({"a": value}).encode()
    yield "json twice", json.dumps(json.dumps([value], ensure_ascii=False)).encode()
    yield "xml", html.escape(value).encode()
    yield "url", urllib.parse.quote_plus(value).encode()
    yield "url, small", re.sub(r"%..", lambda m: m[0].lower(), urllib.parse.quote(value, safe="")).encode()
    yield "base64", base64.b64encode(raw)
    yield "base64 url", base64.urlsafe_b64encode(raw).rstrip(b"=")


@pytest.mark.parametrize(("how", "text"), list(spellings(SECRET)), ids=[how for how, _ in spellings(SECRET)])
def test_a_value_is_found_however_it_is_written(how, text):
    clean = MINE.data(b"before " + text + b" after")
    assert b"[redacted:DB_PASSWORD]" in clean
    assert clean.startswith(b"before ")
    assert clean.endswith(b" after")
    assert text not in clean


@pytest.mark.parametrize("user", ["u", "us", "use", "user"])
def test_a_value_inside_a_longer_base64_text_is_found(user):
    text = base64.b64encode(f"{user}:{ENV['GITHUB_TOKEN']}".encode()).decode()
    assert "[redacted:GITHUB_TOKEN]" in MINE.text(f"basic {text}")
    assert base64.b64encode(ENV["GITHUB_TOKEN"].encode()).decode()[4:-4] not in MINE.text(text)


@pytest.mark.parametrize(("name", "token"), list(KNOWN.items()))
def test_tokens_of_known_makers_are_found_without_knowing_them(name, token):
    assert PLAIN.text(f"it is {token} .") == f"it is [redacted:{name}] ."
    inner = json.dumps({"said": f"is\n{token}\n", "n": 1})
    assert json.loads(PLAIN.text(inner)) == {"said": f"is\n[redacted:{name}]\n", "n": 1}


def test_credentials_in_urls_and_headers_leave_the_rest():
    cases = {
        "git clone https://me:t0psecret@host/x": "git clone https://me:[redacted:url-password]@host/x",
        "GET /a?access_token=abcd1234ef&b=1": "GET /a?access_token=[redacted:url-secret]&b=1",
        "Authorization: Bearer abcdefgh12345678": "Authorization: Bearer [redacted:authorization]",
        '{"Authorization": "Basic dXNlcjpwYXNzd29yZA=="}': '{"Authorization": "Basic [redacted:authorization]"}',
        "used bearer abcdefgh-12345678.x": "used bearer [redacted:bearer]",
    }
    for text, clean in cases.items():
        assert PLAIN.text(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "task-list-with-a-very-long-name-1234567890",
        "ssh://git@github.com/x http://localhost:8080/@x mailto:a@b.c",
        "the bearer authentication-mechanism-described",
        "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkq\n-----END PUBLIC KEY-----",
        "def key(token=None, secret=os.environ['X']): ...",
        "AKIA is what they begin with, eyJ too",
    ],
)
def test_ordinary_text_is_left_alone(text):
    assert PLAIN.text(text) is text


@pytest.mark.parametrize(
    "value", ["", "true", "12345", "20260101123456", "failure", "Password", "xxxxxxxx", "/tmp"]
)
def test_values_that_would_eat_the_text_are_left_alone(value):
    assert redactor({"MY_SECRET": value}).literals == {}


def test_whose_values_are_secret(tmp_path):
    file = tmp_path / "key"
    file.touch()
    env = {
        "KEYBOARD": "dvorak-layout",
        "MAX_TOKENS": "123456",
        "CERT_KEY": str(file),
        "LOOPWRIGHT_KEY": "green/12",
    }
    assert redactor(env).literals == {}
    assert set(
        redactor(
            {"LICENCE": "abcdef-xyz", "HOME": "/nowhere", "USER": "builder"}, allowed=["LICENCE", "USER"]
        ).literals.values()
    ) == {"LICENCE"}
    assert MINE.text("psql says c0ffee-Cup is wrong") == "psql says [redacted:DATABASE_URL] is wrong"


def test_a_key_shown_in_part_is_a_key():
    clean = PLAIN.text(KEY[:200].replace("Proc-Type: 4,ENCRYPTED\n\n", "") + "\nand so on")
    assert clean.startswith("[redacted:private-key]")
    assert clean.endswith("\nand so on")


PIECES = st.sampled_from(
    [
        *ENV.values(),
        *KNOWN.values(),
        *(text.decode() for _, text in spellings(SECRET)),
        "://",
        "me:pa55@",
        "?token=",
        "Authorization: Bearer ",
        "bearer ",
        "-----BEGIN RSA PRIVATE KEY-----",
        "-----END CERTIFICATE-----",
        "[redacted:x]",
        " ",
        "\n",
        "\r",
        "  two ",
        '"',
        "\\n",
        "a",
        "]",
        "0123456789abcdef",
        "eyJ",
        "sk-",
        "two words",
        "x" * 300,
    ]
)
TEXTS = st.lists(PIECES, max_size=14).map(lambda parts: "".join(parts).encode())


@settings(max_examples=120, deadline=None)
@given(TEXTS)
def test_redacting_twice_changes_nothing(text):
    clean = MINE.data(text)
    assert MINE.data(clean) == clean
    for value in ENV.values():
        assert value.encode() not in clean


@settings(max_examples=120, deadline=None)
@given(TEXTS, st.data())
def test_a_stream_cut_anywhere_comes_out_like_the_whole(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    stream = MINE.stream()
    parts = [stream.add(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert b"".join([*parts, stream.close()]) == MINE.data(text)


def test_a_stream_byte_by_byte_and_without_any_line_end():
    text = (b"x" * 3000 + KEY.encode() + SECRET.encode() + b"ghp_" + b"a1B2" * 9 + b"y z") * 12
    assert len(text) > REACH * 2
    stream = MINE.stream()
    parts = [stream.add(text[i : i + 1]) for i in range(len(text))]
    assert b"".join([*parts, stream.close()]) == MINE.data(text)
    assert max(map(len, parts)) < REACH, "it comes out as it goes in"


@pytest.mark.parametrize(
    "piece",
    [
        "eyJ",
        "eyJ.",
        "sk-",
        "\\nsk-",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY----- -",
        "://a:",
        "bearer ",
        "AKIA",
        "github_pat_",
        "ghp_",
        "uthorization=",
        "?a_token=",
        "-----BEGIN PRIVATE KEY-----" + " " * 4900,
        'p4ss"',
        "two ",
    ],
)
def test_no_text_takes_long(piece):
    text = (piece * (400_000 // len(piece))).encode()
    began = time.process_time()
    MINE.data(text)
    stream = MINE.stream()
    for at in range(0, len(text), 8192):
        stream.add(text[at : at + 8192])
    assert time.process_time() - began < 3, "some 50 MB/s is usual, 0.2 MB/s is an attack"


def test_a_complete_line_is_given_out_at_once():
    stream = MINE.stream()
    assert stream.add(b"working on it\n") == b"working on it\n"
    assert stream.add(b"step one of many more done: 50 %\r") == b"step one of many more done: 50 %\r"
    assert stream.add(b"one two three four") == b"one "
    assert stream.close() == b"two three four"


def test_facts_lose_what_was_said_and_keep_the_rest():
    said = f"used {ENV['GITHUB_TOKEN']} for it"
    clean = "used [redacted:GITHUB_TOKEN] for it"
    score = Score(0.5, said, status="fail", failing=(said,), evidence={"argv": [said], said: 1})
    facts = [
        (
            ev.AttemptSucceeded(result={"a": [said, 1, None]}, seconds=1, summary=said, degraded=said),
            ev.AttemptSucceeded(result={"a": [clean, 1, None]}, seconds=1, summary=clean, degraded=clean),
        ),
        (
            ev.AttemptFailed(kind="unknown", message=said, seconds=1),
            ev.AttemptFailed(kind="unknown", message=clean, seconds=1),
        ),
        (
            ev.GateScored(gate="g", score=score, seconds=0),
            ev.GateScored(
                gate="g",
                seconds=0,
                score=Score(
                    0.5, clean, status="fail", failing=(clean,), evidence={"argv": [clean], clean: 1}
                ),
            ),
        ),
        (ev.NoteAdded(text=said, by="me"), ev.NoteAdded(text=clean, by="me")),
        (
            ev.ApprovalDecided(id="1", answer="approve", note=said, override=said),
            ev.ApprovalDecided(id="1", answer="approve", note=clean, override=clean),
        ),
        (ev.Delivered(to="pr", problem=said), ev.Delivered(to="pr", problem=clean)),
        (
            ev.Noticed(approval="1", channel="c", ref=said, problem=said),
            ev.Noticed(approval="1", channel="c", ref=clean, problem=clean),
        ),
    ]
    for fact, expected in facts:
        assert MINE.event(fact) == expected
        assert MINE.event(expected) == expected


def test_a_fact_without_a_secret_is_the_same_object():
    for fact in (
        ev.AttemptSucceeded(result=[1, "two"], seconds=1),
        ev.GateScored(gate="g", score=Score(1.0, status="pass"), seconds=0),
        ev.Resumed(),
    ):
        assert MINE.event(fact) is fact


def test_a_report_is_written_again_without_its_secrets_and_only_then(tmp_path):
    report, other = tmp_path / "r.xml", tmp_path / "o.xml"
    report.write_text(f"<failure>{html.escape(SECRET)}</failure>")
    other.write_text("<ok/>")
    before = other.stat().st_ino
    (tmp_path / "link").symlink_to(report)
    for path in (other, tmp_path / "link", tmp_path / "missing", tmp_path):
        redacted(path, MINE)
    assert SECRET[:4] in report.read_text()
    redacted(report, MINE)
    assert report.read_text() == "<failure>[redacted:DB_PASSWORD]</failure>"
    assert other.stat().st_ino == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "o.xml", "r.xml"]


def test_without_values_only_known_makers_are_found():
    assert Redactor() == PLAIN
    assert PLAIN.text(ENV["GITHUB_TOKEN"]) == ENV["GITHUB_TOKEN"]


def test_the_headers_of_an_exporter_count_as_a_secret():
    assert looks_secret("OTEL_EXPORTER_OTLP_HEADERS", "api-key=abc")
    assert looks_secret("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "api-key=abc")
    assert not looks_secret("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
