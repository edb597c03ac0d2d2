"""What real makers say: each text of `failure_texts.tsv` gets its kind, its reason and its time; false friends get none.

The wordings are those that Claude Code, Codex, Gemini, opencode, Copilot, litellm and the makers of models were seen to
use, from runs of the CLIs and from issues of their users; `who` is `when` where only the time is of interest.
"""

import csv
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loopwright.agents.failures import classify, of_exit
from loopwright.agents.patterns import RULES, own
from loopwright.errors import ConfigError

NOW = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday
UNITS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}


def rows():
    with (Path(__file__).parent / "failure_texts.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def seconds(wait):
    if wait == "-":
        return None
    return pytest.approx(sum(float(n) * UNITS[unit] for n, unit in re.findall(r"([\d.]+)([a-z])", wait)))


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['who']}: {row['text'][:60]}")
def test_what_makers_say(row):
    failure = classify(row["text"].replace("¶", "\n"), NOW)
    assert (failure.kind, failure.message.partition(":")[0]) == (row["kind"], row["why"])
    assert failure.retry_after_s == seconds(row["wait"])


def test_every_row_of_the_table_of_patterns_is_said_by_somebody():
    said = {(row["kind"], row["why"]) for row in rows()}
    assert {(rule.kind, rule.why) for rule in RULES} <= said


FALSE_FRIENDS = """
if response.status_code == 429: raise RateLimitError
    except RateLimitError as error:
assert client.status == 401, "should be unauthorised"
E       assert 429 == 200
E       AssertionError: expected 403, got 200
FAILED tests/test_api.py::test_returns_401_without_token - assert 200 == 401
tests/test_limits.py::test_rate_limit_resets PASSED
tests/test_billing.py::test_credit_balance PASSED
ok 12 - retries after 503
429 passed, 3 failed in 4.01s
collected 401 items
[429/500] Building CXX object src/limits.o
src/auth.rs:401:5: warning: unused variable `token`
--- a/src/rate_limiter.py
+    MAX_USAGE_LIMIT = 500
def retry_after(self, seconds=429):
127.0.0.1 - - [30/Nov/2026 10:00:00] "GET /limit HTTP/1.1" 200 401
INFO context window: 200000 tokens
INFO using model gpt-5.5 with context length 128000
loaded 403 rules in 1.2 s
Downloading model 500 MB
the quota module is imported lazily
line 429, in reset_limits
resets the counter at line 12
DEBUG usage limit is 500 requests per day
Compiling billing v0.1.0
Please run the tests again
wrote docs/rate-limits.md
api key rotation is documented in docs/auth.md
set the timeout option to 30
ValueError: invalid model state
KeyError: 'token'
warning: 402 lines are longer than 80 characters
the account page shows the plan
npm warn deprecated request@2.88.2
session limit = 5
SyntaxError: invalid token
unexpected EOF while looking for matching quote
test_token_expired PASSED
test_permission_error PASSED
DeprecationWarning: The model 'claude-3' is deprecated and will reach end of life
401
500
reset_usage() resets the usage of a counter
limits.py resets in teardown
""".strip().splitlines()


@pytest.mark.parametrize("text", FALSE_FRIENDS)
def test_code_tests_and_logs_are_no_limits(text):
    assert classify(text, NOW).kind == "unknown"
    assert of_exit(1, None, f"Traceback (most recent call last):\n{text}\n", NOW).kind == "unknown"


# --- the rules a user adds -------------------------------------------------------------------------


def rule(pattern, kind="rate_limited"):
    return {"kind": kind, "pattern": pattern}


def test_a_rule_of_the_users_comes_before_the_table_whatever_line_it_fits():
    mine = own([rule("Quota used up"), rule("no such option", "transient")])
    assert classify("quota USED up, try again in 5 minutes\nconnection closed", NOW).kind == "transient"
    failure = classify("quota USED up, try again in 5 minutes\nconnection closed", NOW, own=mine)
    assert (failure.kind, failure.retry_after_s) == ("rate_limited", 300)
    assert failure.message == "your rule: quota USED up, try again in 5 minutes"
    assert of_exit(2, None, "no such option --x", NOW, own=mine).kind == "transient"
    assert classify("HTTP 401", NOW, own=mine).kind == "permanent"  # the table still holds


def test_a_limit_of_the_users_is_no_billing_fault():
    text = "insufficient_quota: quota used up"
    assert classify(text, NOW).kind == "permanent"
    assert classify(text, NOW, own=own([rule("quota used up")])).kind == "rate_limited"


def test_the_first_of_the_users_rules_that_fits_decides():
    mine = own([rule("limit", "permanent"), rule("limit hit")])
    assert classify("limit hit", NOW, own=mine).kind == "permanent"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (rule("("), "errors[0].pattern '(' is not a regular expression: missing ), unterminated subpattern"),
        (rule(""), "is no text to look for"),
        (rule(5), "is no text to look for"),
        (rule(".*"), "fits every line"),
        (rule("(a+)+b"), "takes for ever"),
        (rule("(?:x|y+)*z"), "takes for ever"),
        (rule(r"(?:\d+,?)+ left"), "takes for ever"),
        (rule("((ab?)c)*d"), "takes for ever"),
        (rule(".*a.*b.*c"), "write .{0,80}"),
        (rule(r"[^x]*a\w+b\S*c"), "write .{0,80}"),
        (rule("a{99999999999999999999}"), "is not a regular expression"),
        (rule("x", "no_op"), "errors[0].kind 'no_op', not one of rate_limited, transient"),
        (rule("x", "rate_limit"), "did you mean 'rate_limited'?"),
        (rule("x", None), "not one of"),
        ({"pattern": "x"}, "write { kind ="),
        ("x", "write { kind ="),
    ],
)
def test_a_rule_that_cannot_be_used_is_named(row, problem):
    with pytest.raises(ConfigError) as caught:
        own([row])
    assert problem.replace("kind 'no_op'", "kind is 'no_op'") in str(caught.value)


def test_all_wrong_rules_are_named_at_once():
    with pytest.raises(ConfigError) as caught:
        own([rule("("), rule("fine"), rule("x", "none")])
    assert [problem[:9] for problem in caught.value.problems] == ["errors[0]", "errors[2]"]


@pytest.mark.parametrize(
    "pattern",
    [
        r"quota\s+used\s+up",
        r"limit .* until (\d+):(\d+)",
        r"(?:hour|day|week)ly cap",
        r"(?:\w{1,8} ){0,4}cap",
        r"a.{0,80}b.{0,80}c",
        r"code=(?:429|430)\b(?!\d)",
        r"[Rr]etry[- ]?in \d+s",
        r"(?P<x>a)(?P=x)",
    ],
)
def test_what_people_write_is_taken_and_is_quick(pattern):
    mine = own([rule(pattern)])
    began = time.perf_counter()
    for text in ("limit until 1:2 " * 500, "abac " * 1600):
        classify(text, NOW, own=mine)
    assert time.perf_counter() - began < 2


# --- clocks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "said", "wait"),
    [
        ("2026-03-29T00:30:00Z", "2:30am (Europe/Paris)", "1h"),  # 2:30 is skipped: 3:30 on the clock
        ("2026-10-25T00:10:00Z", "2:30am (Europe/Paris)", "20m"),  # it comes twice: the first time
        ("2026-10-25T00:50:00Z", "2:30am (Europe/Paris)", "40m"),  # and the second
        ("2026-03-08T09:59:00Z", "3am (America/Los_Angeles)", "60s"),  # the first moment after the gap
        ("2026-01-01T02:59:55Z", "3am (UTC)", "30s"),  # clocks differ
        ("2026-01-01T03:00:00Z", "3am (UTC)", "60s"),
        ("2026-01-01T03:14:00Z", "3am (UTC)", "60s"),
        ("2026-01-01T03:16:00Z", "3am (UTC)", "23h44m"),
        ("2025-12-31T23:59:50Z", "12am (UTC)", "30s"),
        ("2026-01-01T08:00:00Z", "12:50am (America/Los_Angeles)", "50m"),
        ("2026-02-28T12:00:00Z", "Mar 1, 12am (UTC)", "12h"),
        ("2027-12-31T12:00:00Z", "Jan 1, 12am (UTC)", "12h"),
        ("2026-01-02T12:00:00Z", "Jan 1, 12am (UTC)", "60s"),
        ("2026-01-08T00:30:00Z", "Thu 12am (UTC)", "60s"),
    ],
)
def test_clocks_days_and_years_that_turn(now, said, wait):
    at = datetime.fromisoformat(now)
    found = classify(f"usage limit reached · resets {said}", at).retry_after_s
    assert found == seconds(wait)
    assert found <= (at + timedelta(days=366) - at).total_seconds()
