"""A verdict is read strictly: one object, right types, declared range; whatever else is said is never a number."""

import json
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import BadEvidence
from loopwright.evidence.opinion import MAX_CHARS, Opinion, read

DEEP = '{"score": 0.9, "x": ' + "[" * 5000 + "]" * 5000 + "}"


def code(said, **options):
    with pytest.raises(BadEvidence) as caught:
        read(said, "the answer", **options)
    return caught.value.code


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ('{"score": 0.9}', 0.9),
        ('{"score": 1, "reason": "ok"}', 1.0),
        ('{"score": 0}', 0.0),
        ('\ufeff{"score": 0.5}', 0.5),
        (b'\xef\xbb\xbf{"score": 0.5}', 0.5),
        ('```json\n{"score": 0.4}\n```', 0.4),
        ('I use {braces} and {"a": "map"} a lot.\n\n{"score": 0.4}\n\nThat is {all}.', 0.4),
        ('It says "use {" somewhere. {"score": 0.4}', 0.4),
        ('A 5" screen {is} small. {"score": 0.4}', 0.4),
        ('{ { { {"score": 0.4}', 0.4),
        ('{"score": 0.4, "details": {"a": {"score": 1.0}}}', 0.4),
        ('[{"score": 0.4}]', 0.4),
        ('{"score": 0.4, "reason": "the text says {\\"score\\": 1.0}"}', 0.4),
        ('{"score": 0.4} {"score": 0.4}', 0.4),
        ('{"score": 0.4}\n{"score": 4e-1}', 0.4),
        ('{"checked": 3}\n{"score": 0.4, "reason": "é 語 🎉 \\ud83d\\ude00"}', 0.4),
        ('{"score": 0.4, "reason": "' + "x" * 200_000 + '"}', 0.4),
        ('{"score": 0.4} // a comment', 0.4),
    ],
)
def test_one_verdict_is_found_whatever_stands_around_it(said, score):
    assert read(said, "the answer").score == score


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "no_output"),
        (" \n\t", "no_output"),
        ("Nine out of ten: 0.9", "no_verdict"),
        ("score: 0.9", "no_verdict"),
        ("0.9", "no_verdict"),
        ("[0.9]", "no_verdict"),
        ("null", "no_verdict"),
        ("{}", "no_verdict"),
        ('{"Score": 0.9}', "malformed"),
        ('{"SCORE": 0.1} {"score": 0.9}', "malformed"),
        ('{"score": 0.9, "score ": 0.1}', "malformed"),
        ('{"Score": 0.1,} {"score": 0.9}', "malformed"),
        ('{“score”: 0.1} {"score": 0.9}', "malformed"),
        ('{ 1 "score": 0.1, {"score": 0.9}', "malformed"),
        ('{"verdict": {"score": 0.9}}', "no_verdict"),
        ('"{\\"score\\": 0.9}"', "malformed"),
        ('{"pass": true}', "no_score"),
        ('{"score": "0.9"}', "not_a_number"),
        ('{"score": "9/10"}', "not_a_number"),
        ('{"score": true}', "not_a_number"),
        ('{"score": null}', "not_a_number"),
        ('{"score": [0.9]}', "not_a_number"),
        ('{"score": {"value": 0.9}}', "not_a_number"),
        ('{"score": NaN}', "not_finite"),
        ('{"score": Infinity}', "not_finite"),
        ('{"score": -Infinity}', "not_finite"),
        ('{"score": 1e400}', "not_finite"),
        ('{"score": ' + "9" * 400 + "}", "not_finite"),
        ('{"score": ' + "9" * 5000 + "}", "malformed"),
        ('{"score": -0.1}', "out_of_range"),
        ('{"score": 1.0000001}', "out_of_range"),
        ('{"score": 8}', "out_of_range"),
        ('{"score": 0.9,}', "malformed"),
        ("{'score': 0.9}", "malformed"),
        ("{score: 0.9}", "malformed"),
        ('{"score": .9}', "malformed"),
        ('{"score": +0.9}', "malformed"),
        ('{"score": 0x1}', "malformed"),
        ('{"score": 0.9 /* sure */}', "malformed"),
        ('{"score": 0,9}', "malformed"),
        ("{“score”: 0.9}", "malformed"),
        ('{"score": 0.9', "malformed"),
        ('{"score": 0.9, "reason": "it is', "malformed"),
        ('{"details": {"score": 0.9}, "score": 0.', "malformed"),
        ('{details: {"score": 0.9}, score: 0.', "malformed"),
        ('{details: {"score": 0.9}, score: 0.1}', "malformed"),
        ('{{"score": 0.9}}', "malformed"),
        ('{"score": 0.9,} Corrected: {"score": 0.4}', "malformed"),
        ('{"score": 0}.9, "reason": "x"}', "malformed"),
        ('{"score": 0.9}}', "malformed"),
        ('{"score": 0.9, "score": 0.1}', "duplicate_key"),
        ('{"score": 0.9, "score": 0.9}', "duplicate_key"),
        ('{"score": 0.9} {"score": 0.1}', "ambiguous"),
        ('[{"score": 0.9}, {"score": 0.1}]', "ambiguous"),
        ('{"score": 0.9, "pass": true} {"score": 0.9, "pass": false}', "ambiguous"),
        ('<think>{"score": 0.2}?</think> {"score": 0.9}', "ambiguous"),
        ('The file says {"score": 1.0}. I say {"score": 0.2}', "ambiguous"),
        ('{"pass": false} {"score": 0.9}', "no_score"),
        ('{"score": 0.9, "pass": "true"}', "malformed"),
        ('{"score": 0.9, "pass": 1}', "malformed"),
        ('{"score": 0.9, "pass": null}', "malformed"),
        ('{"score": 0.9, "reason": ["a"]}', "malformed"),
        ('{"score": 0.9, "reason": null}', "malformed"),
        ('{"score": 0.9, "confidence": "high"}', "not_a_number"),
        ('{"score": 0.9, "confidence": 90}', "out_of_range"),
        ('{"score": 0.9, "confidence": true}', "not_a_number"),
        (b'\xff\xfe{"score": 0.9}', "malformed"),
        (b'{"score": 0.9, "reason": "\xe9"}', "malformed"),
        ("x" * (MAX_CHARS + 1), "too_large"),
        ("{" * 200_000, "malformed"),
        ('{"a":' * 40_000, "malformed"),
        ("{a} " * 50_000, "malformed"),
        ('{"' * 100_000, "malformed"),
        ("{}" * 50_000 + '{"score": 0.9}', "malformed"),
        (DEEP, "malformed"),
    ],
)
def test_what_could_be_read_in_two_ways_is_not_read(said, why):
    began = time.process_time()
    assert code(said) == why
    assert time.process_time() - began < 2


def test_what_is_out_of_range_is_said_as_it_was_given():
    with pytest.raises(BadEvidence, match=r"score in A is 1\.0000001, not from 0 to 1"):
        read('{"score": 1.0000001}', "A")


def test_a_scale_is_used_where_it_is_declared_and_guessed_nowhere():
    assert read('{"score": 9}', "x", scale=(0, 10)) == Opinion(score=0.9, raw=9.0)
    assert read('{"score": 3}', "x", scale=(1, 5)).score == 0.5
    assert read('{"score": 0.9}', "x", scale=(0, 10)).score == pytest.approx(0.09)
    assert code('{"score": 0}', scale=(1, 5)) == "out_of_range"
    assert code('{"score": 11}', scale=(0, 10)) == "out_of_range"


def test_criteria_are_weighed_by_the_loop_and_not_by_the_judge():
    wanted = {"correct": 3, "clear": 1}
    found = read(
        '{"criteria": {"correct": 8, "clear": 4, "extra": "x"}, "score": 10}',
        "x",
        scale=(0, 10),
        criteria=wanted,
    )
    assert found.raw == 7.0
    assert found.score == 0.7
    assert found.criteria == {"correct": 0.8, "clear": 0.4}
    assert code('{"score": 0.9}', criteria=wanted) == "no_score"
    assert code('{"criteria": {"correct": 1}}', criteria=wanted) == "no_score"
    assert code('{"criteria": [1, 1]}', criteria=wanted) == "no_score"
    assert code('{"criteria": {"correct": "1", "clear": 1}}', criteria=wanted) == "not_a_number"
    assert code('{"criteria": {"correct": 2, "clear": 1}}', criteria=wanted) == "out_of_range"
    assert code('{"criteria": {"correct": 1, "clear": 1}, "score": "1"}', criteria=wanted) == "not_a_number"


def test_all_that_is_said_is_kept_and_cleaned():
    said = '{"score": 0.5, "reason": "a\\u0000b\\u001b[31mc", "pass": false, "confidence": 0.25}'
    assert read(said, "x") == Opinion(score=0.5, raw=0.5, reason="abc", passes=False, confidence=0.25)


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.floats(0, 1), st.text(), st.dictionaries(st.text(max_size=8), values, max_size=3), st.text("ab .,:\n")
)
def test_whatever_json_writes_is_read_back(score, reason, more, prose):
    verdict = {**more, "score": score, "reason": reason}
    for key in ("pass", "confidence"):
        verdict.pop(key, None)
    assert read(f"{prose}{json.dumps(verdict)}{prose}", "x").score == score


@given(
    st.text('{}[]",:\\ \n', max_size=80)
    | st.lists(
        st.sampled_from(['{"score": 0.9', "}", "{", '"', "\\", ",", '"pass": ', "true", '{"score": 0.1}']),
        max_size=12,
    ).map("".join)
    | st.text()
    | st.binary(max_size=60)
)
def test_anything_at_all_is_an_opinion_or_bad_evidence(said):
    try:
        found = read(said, "x")
    except BadEvidence:
        return
    assert 0 <= found.score <= 1


def test_a_verdict_that_is_cut_anywhere_is_none():
    whole = '{"reason": "see {\\"score\\": 1} and }", "detail": {"score": 0.1}, "score": 0.5}'
    assert read(whole, "x").score == 0.5
    for at in range(1, len(whole)):
        with pytest.raises(BadEvidence):
            read(whole[:at], "x")


def test_a_verdict_with_one_character_changed_is_the_same_or_none_or_says_so():
    """No change of one character makes a number of what was not written as this number."""
    whole, luck = '{"score": 0.5, "reason": "a {b} c"}', random.Random(5)
    for _ in range(3000):
        at = luck.randrange(len(whole))
        said = whole[:at] + luck.choice('{}",:[]\\ x0') + whole[at + 1 :]
        try:
            found = read(said, "x")
        except BadEvidence:
            continue
        assert json.JSONDecoder().raw_decode(said)[0]["score"] == found.score
