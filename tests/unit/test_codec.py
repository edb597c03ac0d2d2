"""Facts to JSON and back: nothing lost, nothing damaged taken for another history."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import codec
from loopwright.core import events as ev
from loopwright.core.values import Score, Usage, Verdict
from loopwright.errors import Corrupt, StoreError

AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)

FACTS = (
    ev.RunStarted(run="r", spec={"goal": "g", "gates": ["pytest"]}, digest="d", labels={"a": "b"}),
    ev.Claimed(epoch=1, owner="1:2@h@b", host="h", boot="b", outputs=("log.txt",)),
    ev.AttemptStarted(iteration=1, attempt=1, key="r/1", allowance_s=60.0, snapshot="abc", reserve_usd=0.5),
    ev.AttemptSucceeded(
        result={"deep": [1, 2.5, None, "ü\u0000"]}, seconds=1.25, usage=Usage(cost_usd=0.1, tokens=3)
    ),
    ev.AttemptFailed(kind="rate_limited", message="429", seconds=0.5, retry_after=30.0, dice=0.25),
    ev.AttemptInterrupted(cause="crash", seconds=2.0),
    ev.WaitStarted(until=AT, seconds=30.0, why="rate limited"),
    ev.DaySpent(day="2026-03-01", cost_usd=1.5),
    ev.WorkspaceChanged(snapshot="abc", cause="baseline"),
    ev.EvidenceChanged(paths=("tests/t.py",), action="restored"),
    ev.GateScored(
        gate="pytest",
        score=Score(0.5, "1 failed", status="fail", raw=1.0, unit="tests", graded=True, failing=("t::a",)),
        seconds=0.1,
        snapshot="abc",
    ),
    ev.Judged(verdict=Verdict(score=0.5, passed=False, blockers=("pytest",), reasons=("pytest: 1 failed",))),
    ev.AlertRaised(kind="STALL", iteration=3, action="stop", message="nothing changed"),
    ev.ApprovalRequested(id="x", number=1, iteration=1, about="accept", digest="d", deadline=AT),
    ev.ApprovalDecided(id="x", answer="approve", by="ada", edits={"budget": 5}),
    ev.Noticed(approval="x", channel="inbox"),
    ev.IterationClosed(outcome="accepted"),
    ev.Delivered(to="branch", ref="b"),
    ev.StopRequested(now=True, key="stop/1"),
    ev.PauseRequested(key="pause/1"),
    ev.Resumed(by="ada"),
    ev.NoteAdded(text="smaller", key="note/1"),
    ev.LimitsChanged(limits={"max_iterations": 25}),
    ev.PolicyChanged(spec={"goal": "h"}, digest="e"),
    ev.RunReopened(by="ada"),
    ev.RunFinished(phase="complete", reason="quality_reached", explanation="all passed"),
)


def test_every_kind_of_fact_is_in_the_table():
    assert {type(f) for f in FACTS} == set(ev.EVENTS)


@pytest.mark.parametrize("fact", FACTS, ids=lambda f: type(f).__name__)
def test_a_fact_survives_the_round_trip(fact):
    line = codec.encode(1, "", "me", 1, "n", ((AT, fact),))
    assert codec.decode("r", 1, "", line).facts == ((AT, fact),)


@pytest.mark.parametrize("fact", FACTS, ids=lambda f: type(f).__name__)
def test_a_commit_is_strict_json(fact):
    line = codec.encode(1, "", "me", 1, "n", ((AT, fact),))
    refused = json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert refused["facts"][0]["t"] == type(fact).__name__


def lines(n=3):
    link, made = "", []
    for i in range(1, n + 1):
        made.append(codec.encode(i, link, "me", 1, f"nonce{i}", ((AT, ev.Resumed(by=f"person {i}")),)))
        link = codec.link_of(made[-1])
    return made


def read(found):
    return list(codec.commits("r", iter(enumerate(found, 1))))


def test_a_whole_journal_reads_back():
    assert [c.n for c in read(lines())] == [1, 2, 3]


@given(st.data())
def test_no_changed_byte_is_read_as_another_history(data):
    found = lines()
    which = data.draw(st.integers(0, len(found) - 2))  # the last one has no successor to name it
    where = data.draw(st.integers(0, len(found[which]) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != found[which][where]))
    found[which] = found[which][:where] + bytes([byte]) + found[which][where + 1 :]
    with pytest.raises(StoreError):
        read(found)


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: [f[0], f[2]],
        lambda f: [f[0], f[2], f[1]],
        lambda f: [f[0], f[1][: len(f[1]) // 2], f[2]],
        lambda f: [f[0], b"", f[2]],
        lambda f: [f[0], b"\0" * len(f[1]), f[2]],
        lambda f: [f[0], f[1] + f[2]],
        lambda f: [f[0], f[0], f[2]],
        lambda f: [b"{}", f[1], f[2]],
    ],
    ids=["lost", "swapped", "truncated", "empty", "zeros", "spliced", "doubled", "emptied"],
)
def test_damage_is_named_with_its_commit(damage):
    with pytest.raises(Corrupt, match=r"commit \d|has no commit"):
        read(damage(lines()))


def test_a_gap_is_damage():
    with pytest.raises(Corrupt, match="has no commit 2"):
        list(codec.commits("r", iter([(1, lines()[0]), (3, lines()[2])])))


def test_a_schema_of_the_future_is_refused_with_what_to_do():
    line = lines()[0].replace(b'"v":1', b'"v":2')
    with pytest.raises(StoreError, match="use the version that wrote it"):
        codec.decode("r", 1, "", line)


def test_an_unknown_fact_is_refused():
    line = lines()[0].replace(b'"t":"Resumed"', b'"t":"Dreamt"')
    with pytest.raises(StoreError, match="Dreamt"):
        codec.decode("r", 1, "", line)


def test_an_unknown_field_of_a_fact_is_refused():
    line = lines()[0].replace(b'"by":"person 1"', b'"by":"person 1","why":"later"')
    with pytest.raises(StoreError, match="Resumed with why, unknown"):
        codec.decode("r", 1, "", line)


def test_a_naive_time_is_refused():
    line = lines()[0].replace(b"2026-11-29T12:00:00Z", b"2026-11-29T12:00:00")
    with pytest.raises(Corrupt, match="without a zone"):
        codec.decode("r", 1, "", line)


def test_a_score_that_is_not_a_number_is_refused():
    fact = next(f for f in FACTS if isinstance(f, ev.GateScored))
    line = codec.encode(1, "", "me", 1, "n", ((AT, fact),)).replace(b'"value":0.5', b'"value":1.5')
    with pytest.raises(Corrupt, match="GateScored"):
        codec.decode("r", 1, "", line)


def test_a_damaged_or_foreign_fold_is_no_fold():
    from loopwright.core.state import LoopState

    line = codec.encode_fold(7, "link", LoopState(run="r"))
    assert codec.decode_fold(line) == (7, "link", LoopState(run="r"))
    assert codec.decode_fold(line[:-5]) is None
    assert codec.decode_fold(line.replace(b'"shape":"', b'"shape":"0')) is None
