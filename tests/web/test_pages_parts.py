"""What the pages are made of: runs that are followed, lists, streams, where a run lands."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from pages_seen import T0, Written

from loopwright.core import events as ev
from loopwright.errors import Corrupt, StoreError, UsageError
from loopwright.journal import history
from loopwright.report.gather import gather
from loopwright.report.landing import landing
from loopwright.report.values import Changes
from loopwright.stores.memory import MemoryStore
from loopwright.web import list_page, stream
from loopwright.web.followed import RUNS, Followed, Shelf
from loopwright.web.problems import Trouble
from loopwright.web.run_parts import patch
from loopwright.web.showing import Showing
from loopwright.web.words import cost, lasting, word

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def long(n):
    store = MemoryStore()
    run = Written(store, "long", limits={"max_iterations": 10_000})
    for i in range(1, n + 1):
        run.work((i % 10) / 10, 0.5, summary=f"did {i}").close()
    return store, run


def test_a_run_that_is_followed_is_what_it_is_when_read_at_once():
    store, run = long(30)
    place = Followed("long")
    place.catch_up(store)
    n = place.n
    for i in range(31, 131):
        run.work((i % 10) / 10, 0.5, summary=f"did {i}").close()
        if i % 7 == 0:
            place.catch_up(store)
            assert place.report.state == run.state
    run.begin()
    place.catch_up(store)
    assert place.n > n and place.report == gather(history(store, "long"))


def test_the_middle_of_a_run_is_read_from_a_mark_and_is_the_same():
    store, _ = long(200)
    place = Followed("long")
    place.catch_up(store)
    every = {}
    for low in range(1, 200, 17):
        rows, moments = place.rows(store, low, low + 16)
        assert [row.number for row in rows] == list(range(low, min(low + 17, 201)))
        assert {m.iteration for m in moments} <= {row.number for row in rows}
        every.update({row.number: row for row in rows})
    facts = list(history(store, "long"))
    for number in (1, 20, 47, 99, 140, 141, 200):
        upto = [fact for fact in facts if fact[3].iteration <= number]
        assert every[number] == gather(upto).rows[-1], number
    reads = []
    read = store.read
    store.read = lambda run, after=0: reads.append(after) or read(run, after)
    place.rows(store, 100, 102)
    assert reads and min(reads) > 300, "not from the beginning"


def test_what_is_kept_of_runs_is_bounded():
    store, _ = long(1)
    shelf = Shelf()
    for i in range(3 * RUNS):
        shelf.get(f"r{i}")
    assert len(shelf._runs) == RUNS and shelf.get(f"r{3 * RUNS - 1}") is shelf.get(f"r{3 * RUNS - 1}")
    with pytest.raises(UsageError):
        Followed("nobody").catch_up(store)


def heads(n, **more):
    usual = {"phase": "complete", "reason": "quality_reached", "next": "x", "approval": None, "wake": None, "exit_code": 0, "iterations": 3, "trend": [0.1, None, 0.9], "score": 0.9}  # fmt: skip
    return [
        {**usual, "run": f"r{i}", "updated_at": (NOW - timedelta(minutes=i)).isoformat(), **more}
        for i in range(n)
    ]


def test_who_needs_a_person_is_first_then_what_failed_then_what_goes_on():
    mixed = [
        *heads(1, run="good"),
        *heads(1, run="busy", phase="executing", reason=None, exit_code=None),
        *heads(1, run="bad", phase="failed", reason="budget"),
        *heads(1, run="rests", phase="paused", reason="paused"),
        *heads(1, run="asks", phase="human_review", reason="approval_requested"),
        *heads(1, run="gone", phase="executing", reason=None, exit_code=None),
    ]
    view = list_page.listed(mixed, now=NOW, every=True, stands=lambda shown: {"gone": "gone"})
    assert [row.run for row in view.rows] == ["asks", "bad", "gone", "busy", "rests", "good"]
    assert (view.waits, view.failed, view.under_way, view.passed) == (1, 1, 3, 1)
    assert view.rows[2].next == "loopwright resume gone" and view.rows[2].word.text == "its process is gone"


def test_a_thousand_runs_are_pages_and_a_morning_is_what_is_new():
    view = list_page.listed(heads(1000), now=NOW, every=True, page=3)
    assert (len(view.rows), view.page, view.pages, view.total) == (100, 3, 10, 1000)
    assert view.rows[0].run == "r200"
    assert list_page.listed(heads(5), now=NOW, page=99).page == 1
    old = [*heads(300), *heads(1, run="asks", phase="human_review", reason="approval_requested")]
    assert list_page.listed(old, now=NOW, every=True).rows[0].run == "asks", "however old it is"
    assert [r.run for r in list_page.listed(heads(300), now=NOW, since="90m").rows] == [
        f"r{i}" for i in range(91)
    ]
    odd = list_page.listed(heads(3), now=NOW, since="<x>")
    assert "write a length" in odd.problem and len(odd.rows) == 3


def test_words_and_lengths():
    assert [lasting(s) for s in (-5, 0, 59, 60, 119, 3599, 3600, 5400, 86400, 3 * 86400)] == [
        "0 s", "0 s", "59 s", "1 min", "1 min", "59 min", "1 h", "1 h 30 min", "24 h", "3 d",
    ]  # fmt: skip
    asks = word({"reason": "approval_requested", "wake": NOW + timedelta(minutes=41)}, NOW)
    assert (asks.text, asks.mark) == ("waits for you · 41 min left", "!")
    assert word({"phase": "stopped", "reason": "health"}, NOW).text == "stopped: health"
    assert cost({"iterations": 0}) == "-" and cost({"iterations": 2, "cost_usd": None}) == "unknown"
    assert cost({"plan": True, "tokens": 1200, "iterations": 1, "cost_usd": 3}) == "1.2k tokens (plan)"
    assert list_page.sparkline([0.5]) == "" and list_page.sparkline([0.0, 1.0]) == "2.0,18.0 78.0,2.0"


def test_where_a_run_lands():
    def of(limits, n=4, **more):
        run = Written(MemoryStore(), limits=limits)
        for _ in range(n):
            run.work(0.5, 0.5, **more).close()
        return landing(run.state)

    assert of({"max_iterations": 20}, n=0) is None
    found = of({"max_iterations": 20, "budget": 2.0})
    assert (found.iteration, found.bound, found.per_usd, found.usd) == (8, "budget", 0.25, 2.0)
    slow = of({"max_iterations": 20, "max_duration": 20.0})  # 3 s an iteration: the seventh is cut
    assert (slow.iteration, slow.bound) == (7, "max_duration")
    free = of({"max_iterations": 6}, cost=None)
    assert (free.iteration, free.usd, free.per_usd) == (6, None, None)
    assert of({"max_iterations": 20, "max_tokens": 1000}).bound == "max_tokens"


def test_a_patch_is_split_by_file_and_bounded():
    text = "".join(
        f"diff --git a/f{i} x.py b/f{i} x.py\nindex 1..2 100644\n--- a/f{i} x.py\n+++ b/f{i} x.py\n@@ -1 +1 @@\n-old\n+++ new {i}\n"
        for i in range(3)
    )
    seen = patch(Changes(files=3, added=3, removed=3, paths=tuple(("M", f"f{i} x.py", 1, 1) for i in range(3)), patch=text))  # fmt: skip
    assert [part.lines for part in seen.parts][2] == (
        ("hunk", "@@ -1 +1 @@"),
        ("del", "-old"),
        ("add", "+++ new 2"),
    )
    huge = text.partition("@@")[0] + "@@ -1 +9999 @@\n" + "+x\n" * 9999
    seen = patch(Changes(files=1, added=9999, removed=0, paths=(("M", "f0 x.py", 9999, 0),), patch=huge))
    assert len(seen.parts[0].lines) == 1500 and seen.parts[0].left_out == 8500


def said(chunks):
    return [chunk.decode() for chunk in chunks if b"data:" in chunk]


def followed(looks, *, stop, **more):
    """What a stream says, that finds these one after another."""

    async def run():
        at = {"i": 0}

        def peek():
            if isinstance(found := looks[min(at["i"], len(looks) - 1)], Exception):
                at["i"] += 1
                raise found
            return found.id

        def look():
            found = looks[min(at["i"], len(looks) - 1)]
            at["i"] += 1
            return found

        got = []
        async for chunk in stream.stream(peek, look, **more):
            got.append(chunk)
            if len(got) >= stop:
                break
        return got

    return asyncio.run(run())


def at(n, **parts):
    return stream.Looked(id=str(n), parts=parts)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(stream, "POLL_S", 0.001)
    monkeypatch.setattr(stream, "AGAIN_S", 0.001)


def test_a_stream_says_what_has_changed_and_no_more(quick):
    got = followed(
        [at(1, a="<p>1</p>", b="x"), at(2, a="<p>2\n2</p>", b="x"), at(3, a="<p>3</p>", b="y")],
        stop=3,
        last="1",
    )
    assert got[0].startswith(b"retry: ")
    assert said(got) == [
        'id: 2\ndata: <hx-partial hx-target="#a" hx-swap="outerMorph"><p>2\ndata: 2</p></hx-partial>\n\n',
        'id: 3\ndata: <hx-partial hx-target="#a" hx-swap="outerMorph"><p>3</p></hx-partial><hx-partial hx-target="#b" hx-swap="outerMorph">y</hx-partial>\n\n',
    ]


def test_a_stream_of_what_is_not_there_is_none_and_ends_with_it(quick, ask):
    assert ask("GET", "/events?page=run&run=nobody").status_code == 404
    gone = Trouble(404, "there is no such run")
    assert len(followed([at(1, a="x"), gone], stop=9, last="1")) == 1


def test_who_comes_back_gets_what_was_missed(quick):
    (first,) = said(followed([at(5, a="now")], stop=2, last="1", seen="4"))
    assert first.startswith("id: 5\n") and "now" in first
    assert not said(followed([at(5, a="now")], stop=1, last="1", seen="5"))
    quiet = followed([at(5, a="now"), at(5, a="now"), at(6, a="then")], stop=2, last="1", seen="5")
    assert "then" in said(quiet)[0]
    late = said(followed([at(5, a="now", m="more")], stop=2, last="5", late=("m",)))
    assert "more" in late[0] and "now" not in late[0]


def test_a_stream_lives_through_a_store_that_cannot_be_read(quick):
    got = said(followed([at(1, a="1"), StoreError("busy"), at(2, a="2")], stop=2, last="1"))
    assert got and "2</hx-partial>" in got[0]


def test_silence_is_broken_by_a_ping(quick, monkeypatch):
    monkeypatch.setattr(stream, "PING_S", 0.01)
    assert followed([at(1, a="1")], stop=2, last="1")[1] == b": ping\n\n"


def test_a_stream_of_a_real_run_brings_its_new_parts(live, monkeypatch):
    with live.stores() as store:
        run = Written(store, "streamed").work(0.5, 0.5).close()
        values = {"decides": True, "waiting": 0, "said": None}
        peek, look = Showing(live).parts({"page": "run", "run": "streamed"}, values)
        before, sign = look(), peek()
        run.work(0.9, 0.9, passed=True)
        assert peek() != sign
        after = look()
    other = {part for part in after.parts if after.parts[part] != before.parts[part]}
    assert {"chart", "matrix", "head", "burn"} <= other and "audit" not in other
    assert int(after.id) > int(before.id)
    for kind in ("runs", "approvals", "loops"):
        peek, look = Showing(live).parts({"page": kind}, values)
        assert peek() == peek() and look().parts
    monkeypatch.setattr(type(live), "working", frozenset({"streamed"}))
    peek, _ = Showing(live).parts({"page": "runs"}, values)
    taken = peek()
    monkeypatch.setattr(type(live), "working", frozenset())
    assert Showing(live).parts({"page": "runs"}, values)[0]() != taken, "a run that was taken up is news"


def test_a_broken_loop_file_is_shown_with_what_is_wrong(live):
    showing = Showing(live)
    assert showing.loops()["broken"] == ()
    (live.project / "tidy.toml").write_text("goal = 'x'\nagnet = 'y'\n")
    live.book.refresh()
    (loop,) = showing.loops()["loops"]
    assert "agnet" in loop.problem and loop.goal == "Make it tidy"
    assert loop.limits[0] == "3 iterations" and loop.asks == "before good work is accepted"


def test_a_limit_that_was_raised_is_what_the_page_counts_with():
    store = MemoryStore()
    run = Written(store, limits={"max_iterations": 2, "budget": 1.0}).work(0.5, 0.5).close()
    run.say(ev.LimitsChanged(limits={"max_iterations": 8, "budget": 9.0}, by="ann", key="limits/1"))
    assert landing(run.state).iteration == 8 and run.at > T0


def test_what_is_open_is_shown_though_many_runs_have_later_news(lived, ask, monkeypatch):
    with lived.stores() as store:
        asked = Written(store, "old-and-open").work(1.0, 1.0, passed=True).ask()
        Written(store, "newer").work(1.0, 1.0).close()
    monkeypatch.setattr("loopwright.web.showing.INBOX", 1)
    text = ask("GET", "/approvals?all=1").text
    assert asked.state.approval.id in text
    assert "in the 1 runs with the latest news" in text
    monkeypatch.setattr("loopwright.web.showing.people.inbox", lambda store, **more: ([], []))
    assert "Nothing was asked lately" in ask("GET", "/approvals?all=1").text


def test_a_damaged_run_says_what_is_wrong_and_promises_no_better(lived, ask, monkeypatch):
    damaged = Corrupt("commit 2 of run old is not as it was written")

    def refuse(self, run):
        raise damaged

    monkeypatch.setattr("loopwright.web.looking.Looking.run", refuse)
    answer = ask("GET", "/runs/old")
    assert answer.status_code == 503 and "commit 2 of run old" in answer.text
    assert "retry-after" not in answer.headers
    damaged = StoreError("the database is locked")
    assert ask("GET", "/runs/old").headers["retry-after"] == "5"


def test_what_cannot_be_read_is_told_of_old_runs_as_of_new_ones(lived, ask, monkeypatch):
    def inbox(store, *, every=False, limit=0):
        return [], ["run new is damaged" if every else "run old is damaged"]

    monkeypatch.setattr("loopwright.web.showing.people.inbox", inbox)
    text = ask("GET", "/approvals?all=1").text
    assert "run old is damaged" in text and "run new is damaged" in text
