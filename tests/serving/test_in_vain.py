"""Answers that did not count are on the record of their run: once each, bounded, whether it goes on or is over."""

from datetime import UTC, datetime, timedelta

import pytest

from loopwright import Loop, run
from loopwright.codec import decode_signal
from loopwright.core.events import Noticed
from loopwright.errors import StoreError
from loopwright.hosts import attempts, people
from loopwright.journal import Journal, history
from loopwright.report.telling import told
from loopwright.stores.opened import open_store

URL = "sqlite:///s.db"


def agent(attempt):
    return "worked"


def gate(result):
    return True


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store(URL, tmp_path)
    yield store
    store.close()


def asking(**approval):
    run(
        Loop(
            "g",
            agent=agent,
            gates=[gate],
            store=URL,
            max_iterations=9,
            approval={"when": "passed", **approval},
        ),
        "r",
    )


def says(store, answer, by, channel="slack", now=None, **said):
    said = people.Said(answer=answer, by=by, channel=channel, **said)
    return people.answer(store, "r", said, now=now or datetime.now(UTC), approval=said_of(store))


def said_of(store):
    *_, last = people.requests(store, "r")
    return last.request.id


def waiting(store):
    found = (decode_signal("r", key, record) for key, record in store.signals("r"))
    return [event.problem for event in found if isinstance(event, Noticed)]


def kept(store):
    return [
        (event.channel, event.problem) for _, _, event, _ in history(store, "r") if isinstance(event, Noticed)
    ]


def test_who_comes_second_is_on_record_before_and_after_the_end(store):
    asking()
    says(store, "approve", "ann")
    assert isinstance(says(store, "reject", "bob", "page"), people.Conflict)
    assert isinstance(
        says(store, "approve", "ann"), people.Recorded
    )  # the same again is no attempt of its own
    assert waiting(store) == ["reject by bob came second: approve by ann (slack) stands"]
    asking()
    assert Journal(store, "r").state.finished.reason == "quality_reached"
    assert kept(store) == [("page", "reject by bob came second: approve by ann (slack) stands")]
    for _ in range(3):  # the run is over: nobody would take it in
        says(store, "revise", "cem", "webhook", note="more")
    assert kept(store)[1:] == [("webhook", "revise by cem came second: approve by ann (slack) stands")]
    assert not list(store.signals("r"))
    assert Journal(store, "r").state.finished.reason == "quality_reached"
    state = Journal(store, "r").state
    event = next(event for _, _, event, _ in history(store, "r") if isinstance(event, Noticed))
    assert told(state, event, state) == (
        "people",
        "page: reject by bob came second: approve by ann (slack) stands",
    )


def test_who_may_not_and_who_is_too_late_is_on_record(store):
    asking(approvers=["slack:ann"], timeout="1h")
    assert isinstance(says(store, "approve", "eve"), people.Refused)
    assert isinstance(says(store, "revise", "ann"), people.Refused)  # without a note: it can be given anew
    later = datetime.now(UTC) + timedelta(hours=2)
    assert isinstance(says(store, "approve", "ann", now=later), people.Late)
    assert waiting(store) == [
        "approve by eve was refused: not among approval.approvers",
        "approve by ann came too late: nobody answered in time",
    ]


def test_an_answer_to_an_old_request_is_on_record(store):
    asking()
    first = said_of(store)
    says(store, "revise", "ann", note="again")
    asking()
    said = people.Said(answer="approve", by="bob", channel="email")
    people.answer(store, "r", said, now=datetime.now(UTC), approval=first)
    assert waiting(store) == ["approve by bob came second: revise by ann (slack) stands"]


def test_no_more_than_so_many_of_one_request_are_kept(store, monkeypatch):
    monkeypatch.setattr(attempts, "MOST", 3)
    asking(approvers=["slack:ann"])
    for n in range(5):
        assert isinstance(says(store, "approve", f"eve{n}"), people.Refused)
    assert len(waiting(store)) == 3
    says(store, "revise", "ann", note="again")
    asking(approvers=["slack:ann"])  # they are facts now, and count all the same
    assert len(kept(store)) == 3
    asked = next(people.requests(store, "r")).request.id
    said = people.Said(answer="reject", by="eve9", channel="slack")
    assert isinstance(people.answer(store, "r", said, now=datetime.now(UTC), approval=asked), people.Conflict)
    assert (len(kept(store)), waiting(store)) == (3, [])


def test_a_name_is_one_line_and_a_store_that_keeps_nothing_more_keeps_nobody_from_being_told(
    store, monkeypatch
):
    asking(approvers=["slack:ann"])
    says(store, "approve", "eve\nreject by ann " + "x" * 500)
    (problem,) = waiting(store)
    assert problem == "approve by eve was refused: not among approval.approvers"

    def full(*_):
        raise StoreError("the disk is full")

    monkeypatch.setattr(type(store), "signal", full)
    assert isinstance(says(store, "approve", "mallory"), people.Refused)
