"""What error texts mean: the kind, and when to try again."""

import csv
import re
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from loopwright.agents.failures import classify, of_exit
from loopwright.agents.patterns import RULES, Rule

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TABLE = Path(__file__).parents[1] / "cases" / "agents" / "rate_limit_texts.tsv"
HOUR = 3600.0

EXPECTED = {  # row → kind, earliest and latest second to try again; the words of the table as figures
    "r1": ("rate_limited", 4 * HOUR, 4 * HOUR),
    "r2": ("rate_limited", 1.5 * HOUR, 1.5 * HOUR),
    "r3": ("rate_limited", 3 * HOUR, 3 * HOUR),
    "r4": ("rate_limited", 30, 300),
    "r5": ("rate_limited", 30, 300),
    "r6": ("rate_limited", 7 * HOUR + 38 * 60 + 7, 7 * HOUR + 38 * 60 + 7),
    "r7": ("rate_limited", 120, 120),
    "r8": ("transient", 600, 600),
    "r9": ("permanent", None, None),
    "r10": ("permanent", None, None),
    "r11": ("rate_limited", None, None),
    "r12": ("rate_limited", HOUR, 1.5 * HOUR),
}


def rows():
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_every_row_of_the_table_is_expected():
    assert {row["id"] for row in rows()} == set(EXPECTED)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["id"])
def test_the_table_of_limit_texts(row):
    kind, earliest, latest = EXPECTED[row["id"]]
    failure = classify(row["output_line"], datetime.fromisoformat(row["now_utc"]))
    assert failure.kind == kind
    if earliest is None:
        assert failure.retry_after_s is None
    else:
        assert earliest <= failure.retry_after_s <= latest


def test_the_reason_is_named_and_an_unknown_zone_too():
    said = {row["id"]: classify(row["output_line"], NOW).message for row in rows()}
    assert said["r9"].startswith("billing: ")
    assert said["r10"] == "authentication: HTTP 401 invalid x-api-key"
    assert "unknown time zone Mars/Olympus" in said["r11"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Error: 401 invalid api key", "permanent"),
        ("Invalid API key · Fix external API key", "permanent"),
        ("Failed to authenticate. API Error: 403 Your account does not have access", "permanent"),
        ("OpenAIException - Incorrect API key provided: sk-fake.", "permanent"),
        ("Not logged in · Please run /login", "permanent"),
        ("{\n  status: 401\n}", "permanent"),
        ("Credit balance is too low", "permanent"),
        ('{"error": {"code": "insufficient_quota"}}', "permanent"),
        ("HTTP 402 Payment Required", "permanent"),
        ("There's an issue with the selected model (claude-x). It may not exist", "permanent"),
        ("NotFoundError: OpenAIException - model:\nfake-model not found", "permanent"),
        ("HTTP 404: no model gpt-9", "permanent"),
        ("error: unknown option '--frob'", "permanent"),
        ("x.py: error: unrecognized arguments: --frob", "permanent"),
        ("Prompt is too long · the request is ~250000 tokens (limit 200000)", "context_overflow"),
        ("400 Your input exceeds the context window of this model", "context_overflow"),
        ("error: context_length_exceeded", "context_overflow"),
        (
            'Error: turn/start failed: Input exceeds the maximum length of 1048576 characters. (code -32602), data: {"input_error_code":"input_too_large"}',
            "context_overflow",
        ),
        ("API Error: Request rejected (429) · slow down", "rate_limited"),
        ("You’ve hit your usage limit. Upgrade to Pro or try again at 3:37 PM.", "rate_limited"),
        ("litellm.RateLimitError: organization's rate limit", "rate_limited"),
        ('{"code": 429, "status": "RESOURCE_EXHAUSTED"}', "rate_limited"),
        ("API Error: 500 Internal server error. try again in a moment.", "transient"),
        ("API Error: 529 Overloaded", "transient"),
        ("Selected model is at capacity", "transient"),
        ("stream disconnected before completion", "transient"),
        ("Connection refused (ECONNREFUSED)", "transient"),
        ("read ECONNRESET", "transient"),
        ("upstream request timed out", "transient"),
        ("curl: (6) Could not resolve host: api.example.com", "transient"),
        ("HTTP/1.1 503 Service Unavailable", "transient"),
        ("sh: 1: cannot create /etc/x: Permission denied", "blocked"),
        ("The Write tool was denied", "blocked"),
        ("Bash requires approval", "blocked"),
        ("the prompt is too\nlong for this model", "context_overflow"),  # wrapped by the tool
        ("No conversation found with session ID: 1", "unknown"),
        ("", "unknown"),
    ],
)
def test_what_agents_were_seen_to_say(text, kind):
    assert classify(text, NOW).kind == kind


@pytest.mark.parametrize(
    "text",
    [
        "processed 500 files, 401 of them twice",
        "AssertionError: 401 != 200",
        "assert response.status_code == 403",
        "expected 200, got 401",
        "foo.c(403): error C2065: undeclared identifier",
        "test_rate_limiter failed",
        "Iteration limit reached",
        "TypeError: f() got an unexpected keyword argument 'x'",
        "mv: cannot move a: Invalid argument",
        "took 503 ms",
        "error: 401 != 200",
        "error 500 tests failed",
    ],
)
def test_what_only_looks_like_it_is_unknown(text):
    assert classify(text, NOW).kind == "unknown"


def test_the_last_line_that_means_something_decides():
    assert (
        classify("Error: 429 too many requests\nretrying\nError: 401 invalid api key\nbye", NOW).kind
        == "permanent"
    )
    assert classify("Error: 401 invalid api key\nError: 500 oops", NOW).kind == "transient"


def test_only_the_end_counts():
    assert classify("Error: 401 invalid api key\n" + "all is well, really\n" * 1000, NOW).kind == "unknown"
    assert classify("Error: 401 invalid api key" + ", really" * 2000, NOW).kind == "unknown"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("botocore: ThrottlingException: Rate exceeded", "rate_limited"),
        ("Too many tokens, please wait before trying again.", "rate_limited"),
        ("ServiceQuotaExceededException", "rate_limited"),
        ("litellm.RateLimitError: no more", "rate_limited"),
        ("429 try again in 20ms", "rate_limited"),
        ("src/ratelimiter.py:429: error", "unknown"),
        ("tests/test_rate_limit.py::test_429 FAILED", "unknown"),
        ("cannot read rate_limit.txt", "unknown"),
        ("Your account is not active, please check your billing details", "permanent"),
        ("This organization has been disabled.", "permanent"),
        ("input length and `max_tokens` exceed context limit", "context_overflow"),
        ("413 request_too_large", "context_overflow"),
    ],
)
def test_words_of_the_makers(text, kind):
    assert classify(text, NOW).kind == kind


def test_billing_beside_a_429_is_not_waited_for():
    failure = classify('{"code": "insufficient_quota"}\nHTTP 429 Too Many Requests; Retry-After: 5', NOW)
    assert (failure.kind, failure.retry_after_s) == ("permanent", None)


def test_a_quota_that_names_its_time_is_waited_for():
    text = "429 You exceeded your current quota, please check your plan and billing details. Please retry in 36.5s."
    failure = classify(text, NOW)
    assert (failure.kind, failure.retry_after_s) == ("rate_limited", 36.5)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("HTTP 429; Retry-After: 4", 4),
        ('HTTP 429 {"retry-after": "17"}', 17),
        ("HTTP 429 retry-after-ms: 1500", 1.5),
        ("HTTP 429\nretry-after: 90", 90),
        ("HTTP 429; Retry-After: 0", 0),
        ("HTTP 429; Retry-After: " + "9" * 400, 365 * 86400),
        ("HTTP 429; Retry-After: Wed, 31 Dec 2025 00:00:00 GMT", 60),
        ("HTTP 429; Retry-After: Xyz, 99 Foo 2025 77:00:00 GMT", None),
        ("HTTP 429; Retry-After: -5", None),
        ("usage limit reached|1767225610", 30),  # ten seconds ahead: clocks differ
        ("usage limit reached|1767229200000", HOUR),  # milliseconds
        ("usage limit reached|9999999999", 365 * 86400),
        ('usage_limit_reached {"resets_at": 1767229200}', HOUR),
        ('usage_limit_reached {"resets_in_seconds": 77}', 77),
        ("HTTP 429 reset at 2026-01-01T02:00:00Z", 2 * HOUR),
        ("usage limit reached. Try again in 3 days 4 hours 9 minutes.", 3 * 86400 + 4 * HOUR + 540),
        ('HTTP 429 {"retryDelay": "36s"}', 36),
        ("HTTP 429 retry in 250ms", 0.25),
        ("HTTP 429: Retrying <unknown> in 60 seconds", None),  # what the agent itself did
        ("usage limit reached · resets 11pm", 23 * HOUR),
        ("usage limit reached · resets 14:30", 14.5 * HOUR),
        ("usage limit reached · resets 12am (UTC)", 60),
        ("usage limit reached · resets 12pm (UTC)", 12 * HOUR),
        ("usage limit reached · resets 13pm (UTC)", None),
        ("usage limit reached · resets 25:00 (UTC)", None),
        ("usage limit reached · resets Jan 3, 1am (UTC)", 49 * HOUR),
        ("usage limit reached · resets Dec 31, 11pm (UTC)", 60),  # an hour ago, not in a year
        ("usage limit reached · resets Feb 30, 1am (UTC)", 60),
        ("usage limit reached · resets Fri 1am (UTC)", 25 * HOUR),
        ("usage limit reached, try again at Jan 2nd, 2026 3:37 PM.", 39 * HOUR + 37 * 60),
        ("usage limit reached · resets 3pm (../../etc/passwd)", None),
        ("usage limit reached · resets 3pm (America)", None),
        ("usage limit reached · resets 3 times", None),
        ("HTTP 429; Retry-After: Thursday, 01-Jan-26 00:10:00 GMT", 600),
        ("HTTP 429; Retry-After: Thu Jan  1 00:10:00 2026", 600),
        ("HTTP 429; Retry-After: Thu, 1 Jan 2026 02:10:00 +0200", 600),
        ("quota exceeded, retry after 2026-01-01T00:30:00Z", 1800),  # not 2,026 seconds
        ("HTTP 429 try again at 2026-01-01 00:30:00", 1800),
        ("HTTP 429\nanthropic-ratelimit-unified-reset: 1767229200", HOUR),
        ("HTTP 429\nx-ratelimit-reset-requests: 6m0s", 360),
        ("HTTP 429\nratelimit-reset: 30", 30),
        ("HTTP 429 retry in 30 hopes", None),  # no hours
        ("HTTP 429 retry in 30 and then give up", 30),
        ("usage limit reached · resets in 2 Stunden", None),
        ("usage limit reached · resets in 2 months", None),
        ("usage limit reached; try again in 5 requests", None),
        ("usage limit reached; retry after 1,500 seconds", None),
        ("usage limit reached; retry after 1.500 Sekunden", None),
        ("HTTP 429; Retry-After: 1e9", None),
        ("HTTP 429; Retry-After: 1,500", None),
        ("Individual quota reached. Contact your administrator. Resets in 166h40m19s", 166 * HOUR + 2419),
        ("limit reached, available again in about an hour", HOUR),
        ("limit reached, wait half an hour", HOUR / 2),
        ("rate limit: please wait 5 minutes before trying again", 300),
        ("limit reached ∙ resets at 3PM Europe/Paris", 14 * HOUR),
        ("limit reached ∙ resets 3 PM EST", 20 * HOUR),
        ("limit reached ∙ resets 3 PM PST and not before", 23 * HOUR),
        ("limit reached ∙ resets 3 PM XQST and not before", None),
        ("limit reached ∙ resets at 3PM Please upgrade", 15 * HOUR),
        ("limit reached, resets tomorrow at 3am (UTC)", 27 * HOUR),
    ],
)
def test_when_to_try_again(text, seconds):
    failure = classify(text, NOW)
    assert failure.kind == "rate_limited"
    assert failure.retry_after_s == (None if seconds is None else pytest.approx(seconds))


def test_a_clock_without_a_zone_is_the_one_of_now():
    now = datetime(2026, 1, 1, 10, tzinfo=timezone(timedelta(hours=5)))
    assert classify("usage limit reached · resets 3pm", now).retry_after_s == 5 * HOUR
    assert classify("usage limit reached · resets 3pm", NOW.replace(tzinfo=None)).retry_after_s == 15 * HOUR


@pytest.mark.parametrize(("minutes", "seconds"), [(14, 60), (16, 86400 - 16 * 60)])
def test_a_time_just_past_is_a_late_message(minutes, seconds):
    now = datetime(2026, 1, 1, 15, minutes, tzinfo=UTC)
    assert classify("usage limit reached · resets 3pm (UTC)", now).retry_after_s == seconds


def test_an_hour_that_comes_twice_is_the_next_one():
    text = "usage limit reached · resets 1:30am (America/New_York)"
    first = datetime(2026, 11, 1, 5, tzinfo=UTC)  # 1:00 EDT; 1:30 comes at 5:30Z and at 6:30Z
    assert classify(text, first).retry_after_s == 1800
    assert classify(text, first + timedelta(hours=1)).retry_after_s == 1800


def test_a_permanent_failure_has_no_time():
    assert classify("Error: 401 invalid api key; Retry-After: 5", NOW).retry_after_s is None


def test_own_rules_replace_the_table():
    rule = Rule("rate_limited", "ours", re.compile("come back later"))
    assert classify("come back later", NOW).kind == "unknown"
    assert classify("come back later", NOW, rules=(rule, *RULES)).kind == "rate_limited"


def test_messages_are_clean_and_bounded():
    failure = classify("\x1b[31mError: 401\x1b[0m " + "x" * 7000, NOW)
    assert "\x1b" not in failure.message
    assert len(failure.message) < 600
    assert len(classify("y" * 100_000, NOW).message.encode()) <= 2000


@pytest.mark.parametrize(
    "text",
    [
        "reset" * 1600,
        "ratelimit-reset" * 500,
        "rate_limit" * 800,
        "try again in " + "1a" * 4000,
        "model " * 1400,
        "resets " * 1200,
        "try again at " * 600,
        "resets Jan 1 " * 600,
        "retry-after: mon, " * 450,
        "exceeded your a a a a " * 400,
        "account a " * 800,
        "A_" * 4000,
        "model: x " * 900,
        "if " * 2700,
        "1 if " * 1600,
        "429 " * 2000,
        "2026-01-01 until " * 480,
        "\x1b]" * 4000,
    ],
)
def test_no_text_takes_long(text):
    began = time.perf_counter()
    classify(text, NOW)
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize(
    ("code", "stderr", "kind", "message"),
    [
        (
            127,
            "sh: 1: claudee: not found",
            "permanent",
            "command not found (exit 127): sh: 1: claudee: not found",
        ),
        (127, "", "permanent", "command not found (exit 127)"),
        (1, "tool.sh: line 3: foo: command not found", "permanent", "command not found"),
        (126, "sh: ./x: Permission denied", "permanent", "not executable"),
        (2, "usage: x [-h]\nx: error: argument -n: invalid int value: 'y'", "permanent", "invalid int value"),
        (1, "usage: x [-h]\nx: something else", "unknown", "something else"),
        (1, "Error: 401 invalid api key", "permanent", "authentication: Error: 401 invalid api key (exit 1)"),
        (1, "boom\nit broke", "unknown", "exit 1: boom\nit broke"),
        (3, "", "unknown", "exit 3"),
        (137, "", "unknown", "exit 137, killed by SIGKILL inside"),
    ],
)
def test_exit_statuses(code, stderr, kind, message):
    failure = of_exit(code, None, stderr, NOW)
    assert failure.kind == kind
    assert message in failure.message


def test_a_signal_is_unknown_whatever_was_said():
    failure = of_exit(None, 9, "Error: 401 invalid api key", NOW)
    assert failure.kind == "unknown"
    assert failure.message.startswith("killed by SIGKILL; out of memory?: Error")
    assert of_exit(None, 11, "", NOW).message == "killed by SIGSEGV"
