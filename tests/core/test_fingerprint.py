"""The same failure is recognised whatever a machine makes up anew each time; another failure is not taken for it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim import PASS, REQUIRED, Sim, script, worked

from loopwright.core.fingerprint import KEPT, fingerprint, steadied
from loopwright.core.limits import Limits
from loopwright.core.policy import Policy
from loopwright.core.values import Score

FAST = settings(derandomize=True, deadline=None, database=None, max_examples=100)

SAME = [
    ("/home/ann/proj/src/app.py:12: boom", "/builds/7/x/src/app.py:12: boom"),
    ("~/a/app.py:12: boom", r"C:\work\app.py:12: boom"),
    ("cannot open '/tmp/tmpab12cd34/out.txt'", "cannot open '/tmp/tmpzz99xx11/out.txt'"),
    ("in /tmp/pytest-of-ann/pytest-3/test_a0/db", "in /tmp/pytest-of-bob/pytest-41/test_a0/db"),
    ("tmpab12cd3_ is gone", "tmpz_99xx11 is gone"),
    ("<Thing object at 0x7f3a2b1c>", "<Thing object at 0x55d0c0ffee00>"),
    ("2 failed in 0.31s", "2 failed in 12.07s"),
    ("took 3 seconds", "took 14 seconds"),
    ("1m03s and 250 ms", "2m10s and 9 ms"),
    ("2026-11-29T21:37:04Z error", "2026-11-30T01:02:03.123Z error"),
    ("Sun Nov 29 2026 21:37:04 error", "Mon Nov 30 2026 01:02:03 error"),
    ("11/29/2026 9:37:04 PM error", "11/30/2026 10:01:59 AM error"),
    ("refused: 127.0.0.1:43121", "refused: 127.0.0.1:50900"),
    ("listens on port 81, pid 7", "listens on port 8081, pid 31007"),
    ("pid=12 seed 3", "pid=99812 seed 12345"),
    ("[gw0] thread-1", "[gw3] thread-14"),
    ("request 3f2504e0-4f89-11d3-9a0c-0305e82c3301", "request 7c9e6679-7425-40de-944b-e07fc1f90ae7"),
    ("commit 1a2b3c4 is bad", "commit ffe0019 is bad"),
    ("id Ab3dEf6hIj9lMn2p", "id Zz9yXx8wVv7uTt6s"),
    ("17,032 bytes left of 1048576", "9,101 bytes left of 2097152"),
]
OTHER = [
    ("assert 2 == 3", "assert 2 == 4"),
    ("app.py:12: boom", "app.py:14: boom"),
    ("/srv/a/app.py:12: boom", "/srv/a/main.py:12: boom"),
    ("expected 'red'", "expected 'blue'"),
    ('expected "1234567"', 'expected "7654321"'),
    ("KeyError: '/etc/hosts'", "KeyError: '/etc/passwd'"),
    ("got `2 s`", "got `3 s`"),
    ("0.8123 is below 0.85", "0.8124 is below 0.85"),
    ("3 of 8 fail", "2 of 8 fail"),
    ("don't 5", "don't 6"),
    ("exit 1", "exit 2"),
    ("needs version 3.11.7", "needs version 3.12.7"),
    ("test_a_long_name_of_a_case_1", "test_a_long_name_of_a_case_2"),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_what_a_machine_makes_up_is_taken_out(one, two):
    assert steadied(one) == steadied(two) != one


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_what_was_asserted_is_kept(one, two):
    assert steadied(one) != steadied(two)


def test_a_text_without_noise_stays_as_it_is():
    for text in ("", "it is red", "expected 'a' in [1, 2, 999], see tests: 'b'", "don't; won't do 3 of 4"):
        assert steadied(text) == text


noise = st.tuples(
    st.integers(0, 2**40).map(lambda n: f"0x{n + 0x10000:x}"),
    st.floats(0, 1e4, allow_nan=False).map(lambda s: f"{s:.2f}s"),
    st.datetimes().map(lambda at: f"{at:%H:%M:%S}"),
    st.integers(1024, 65535),
    st.uuids(),
    st.text("abcdefghijklmnopqrstuvwxyz0123456789_", min_size=8, max_size=8).map(lambda t: f"/tmp/tmp{t}/"),
    st.integers(1000, 10**12),
)
kept = st.tuples(
    st.integers(0, 999), st.text("abcXYZ0189 ./:-", max_size=12).map(lambda t: f"'{t}'"), st.integers(0, 999)
)


def told(values, made_up):
    address, lasted, clock, port, request, folder, size = made_up
    line, quoted, got = values
    return (
        f"{clock} tests/test_a.py:{line}: assert {got} == {quoted} in {lasted} <X at {address}>\n"
        f"{folder}out.log on localhost:{port}, request {request}, {size} bytes"
    )


def as_one(message, failing=("a", "b"), gate="tests fail"):
    return fingerprint([(gate, failing, message)])


@FAST
@given(kept, noise, noise)
def test_noise_never_makes_another_failure(values, one, two):
    assert as_one(told(values, one)) == as_one(told(values, two), failing=("b", "a"))


@FAST
@given(kept, kept, noise, noise)
def test_other_numbers_and_quoted_values_always_do(values, others, one, two):
    same = values == others
    assert (as_one(told(values, one)) == as_one(told(others, two))) == same


@FAST
@given(st.text(max_size=300))
def test_any_text_has_a_fingerprint_that_is_its_own_each_time(text):
    assert steadied(text) == steadied(text)
    assert len(as_one(text)) == 16


def test_gates_statuses_and_items_count_and_what_follows_a_long_message_does_not():
    assert as_one("x") != as_one("x", gate="lint fail") != as_one("x", gate="lint error")
    assert as_one("x") != as_one("x", failing=("a",))
    assert as_one("y" * KEPT + "1") == as_one("y" * KEPT + "2")


def red(message):
    return Score(0.0, message, status="fail")


def ended(scores, trees):
    policy = Policy(gates=REQUIRED, limits=Limits(max_iterations=len(trees), convergence=None))
    return Sim(policy, gates=script(*scores), agent=script(*map(worked, trees))).run().end[0]


@pytest.mark.parametrize(
    ("messages", "end"),
    [
        (("boom in 0.1s at 0x7fffaa", "boom in 0.2s at 0x7fffbb", "boom in 3.0s at 0x7fffcc"), "health"),
        (("2 rows left", "1 rows left", "0 rows left"), "max_iterations"),  # it works on what is in no tree
    ],
)
def test_a_stall_is_the_same_failure_however_it_is_told(messages, end):
    assert ended(map(red, messages), "aaa") == end


def test_a_commit_of_work_is_progress_and_three_tasks_with_one_failure_are_no_stall():
    assert ended([red("the same"), red("the same"), PASS], "abc") == "quality_reached"
