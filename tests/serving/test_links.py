"""Links in mails, and the races of answers: `cases/approvals`, as far as no HTTP is needed."""

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import pytest

from loopwright import Loop, run
from loopwright.cards import Answered
from loopwright.channels._tickets import LINK_KEY, ticket, with_ticket
from loopwright.errors import WorkspaceError
from loopwright.hosts import people
from loopwright.journal import Journal
from loopwright.redact import looks_secret
from loopwright.serving import links
from loopwright.serving.answers import answered
from loopwright.serving.card import Source
from loopwright.stores.opened import open_store

TESTS = Path(__file__).parents[1]
CASES = TESTS / "cases" / "approvals"
TO = "mira@example.org"
# Where each scenario of double_click_and_race.json is tried.
RACES = {
    "two approves, two processes, same ms": "cli/test_waiting.py::test_two_answers_at_once",
    "approve and reject together": "cli/test_waiting.py::test_two_answers_at_once",
    "approve arrives as the timeout fires": (
        "cli/test_waiting.py::test_an_answer_racing_the_expiry_has_one_winner_and_the_loser_is_told"
    ),
    "approved but resume raises": (
        "cli/test_waiting.py::test_an_answer_that_cannot_be_acted_on_yet_stays_on_record"
    ),
    "loop killed -9 while pending, restarted": (
        "cli/test_waiting.py::test_killed_while_waiting_it_is_answered_with_nobody_driving"
    ),
    "approval for iteration 4 clicked when loop is at 6 or the diff hash changed": (
        "serving/test_links.py::test_an_answer_to_an_old_request_is_not_one_to_the_new"
    ),
    "stall detector / max idle / reaper while waiting": (
        "cli/test_waiting.py::test_waiting_is_not_idle_and_uses_nothing_up"
    ),
    "all notification channels fail": (
        "serving/test_post.py::test_all_notification_channels_fail_and_it_is_seen"
    ),
}


def agent(attempt):
    return "worked"


def gate(result):
    return True


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(project):
    store = open_store("sqlite:///s.db", project)
    yield store
    store.close()


def asking(**options):
    options = {"approval": {"when": "passed"}, **options}
    run(Loop("g", agent=agent, gates=[gate], store="sqlite:///s.db", max_iterations=9, **options), "r")


def source_of(project):
    return Source(project=project, environ={}, public_url="https://x.org")


def linked(project, store, to=TO):
    """The open request, and the key of the link to it that `to` was sent."""
    approval = Journal(store, "r").state.approval.id
    secret = links.key_of(project / ".agent-state")
    address = with_ticket(f"https://x.org/runs/r/approvals/{approval}", secret, "r", approval, to)
    return approval, address.partition("&k=")[2]


def test_every_step_of_the_prefetched_mail(project, store):
    asking()
    source = source_of(project)
    approval, key = linked(project, store)
    told = []
    for step in json.loads((CASES / "email_prefetch.json").read_text())["steps"]:
        verb, word = re.match(r"(\w+) .*?(approve|reject|confirm)", step["do"]).groups()
        opened = links.opened(store, source, "r", approval, TO, key)
        if verb != "POST":
            assert opened == "open", step  # the same page each time, and nothing comes of it
            assert Journal(store, "r").state.approval is not None
            assert people.standing(store, "r", approval) is None
            continue
        answer = "reject" if word == "reject" else "approve"
        said = Answered(run="r", approval=approval, answer=answer, by=TO)
        told.append(links.decided(store, source, said, key).word)
        (decision, _) = people.standing(store, "r", approval)
        assert (decision.answer, decision.by, decision.channel) == ("approve", TO, "email")
    assert told == ["recorded", "again", "conflict"]
    assert links.opened(store, source, "r", approval, TO, key) == "over"
    asking()
    assert Journal(store, "r").state.finished.reason == "quality_reached"
    assert links.opened(store, source, "r", approval, TO, key) == "over"
    again = Answered(run="r", approval=approval, answer="approve", by=TO)
    assert links.decided(store, source, again, key).word == "again"


def test_a_link_opens_its_own_request_for_its_own_reader_and_nothing_else(project, store):
    asking()
    source = source_of(project)
    approval, key = linked(project, store)
    assert links.opened(store, source, "r", approval, TO.upper(), key) == "open"  # mail programs do that
    for run_id, which, to, given in (
        ("r", approval, "sam@example.org", key),
        ("r", "f" * 16, TO, key),
        ("other", approval, TO, key),
        ("r", approval, TO, ""),
        ("r", approval, TO, key[:-1]),
        ("r", approval, TO, key + "="),
        ("r", approval, TO, "é" * 43),
        ("r", approval, "\ud800", key),
        ("../r", approval, TO, key),
    ):
        assert links.opened(store, source, run_id, which, to, given) is None
        said = Answered(run=run_id, approval=which, answer="approve", by=to)
        assert links.decided(store, source, said, given).word == "refused"
    assert people.standing(store, "r", approval) is None
    assert ticket(b"a" * 32, "r", approval, TO) != ticket(b"b" * 32, "r", approval, TO)
    # The parts cannot be shifted into each other.
    assert ticket(b"a" * 32, "ra", "b", "c") != ticket(b"a" * 32, "r", "ab", "c")


def test_who_may_decide_holds_for_links_too(project, store):
    asking(approval={"when": "passed", "approvers": ["email:sam@example.org"]})
    source = source_of(project)
    for to, word in ((TO, "refused"), ("sam@example.org", "recorded")):
        approval, key = linked(project, store, to)
        said = Answered(run="r", approval=approval, answer="approve", by=to)
        assert links.decided(store, source, said, key).word == word


def test_the_secret_of_links_is_made_once_for_its_owner_alone(project):
    state = project / ".agent-state"
    found = []
    threads = [Thread(target=lambda: found.append(links.key_of(state))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert links.key_of(state) == found[0]  # a server that is started again makes the same links
    path = state / "server" / "link.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]
    assert looks_secret(LINK_KEY, found[0].decode())  # no agent gets it
    assert LINK_KEY not in os.environ
    path.write_text("x")
    with pytest.raises(WorkspaceError, match="holds no key"):
        links.key_of(state)


def test_an_answer_to_an_old_request_is_not_one_to_the_new(project, store):
    asking()
    first, key = linked(project, store)
    said = people.Said(answer="revise", by="ann", channel="cli", note="again")
    people.answer(store, "r", said, now=datetime.now(UTC))
    asking()
    second, _ = linked(project, store)
    assert second != first
    source = source_of(project)
    late = Answered(run="r", approval=first, answer="approve", by=TO)
    told = links.decided(store, source, late, key)
    assert (told.word, "sent back by ann (cli)" in told.text) == ("conflict", True)
    assert people.standing(store, "r", second) is None
    assert Journal(store, "r").state.approval.id == second
    for begins in (second[:1], second[:11]):  # could be anything
        vague = Answered(run="r", approval=begins, answer="approve", by="ann")
        assert answered(store, vague, "webhook", environ={}).word == "unknown"
    assert people.standing(store, "r", second) is None
    short = answered(
        store, Answered(run="r", approval=second[:12], answer="approve", by="ann"), "cli", environ={}
    )
    assert short.word == "recorded"


def test_every_race_is_tried_somewhere():
    named = [case["name"] for case in json.loads((CASES / "double_click_and_race.json").read_text())["cases"]]
    assert named == list(RACES)
    for place in RACES.values():
        file, _, test = place.partition("::")
        assert re.search(rf"^(async )?def {test}\(", (TESTS / file).read_text(), re.MULTILINE), place
