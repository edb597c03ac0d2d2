"""The post: each message once, again until it is there, and never a silent failure."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import posting
import pytest
from posting import at_work, awaited, lines, looked, made, until

from loopwright import Loop, run
from loopwright.codec import decode_signal
from loopwright.core.events import Noticed
from loopwright.errors import StoreError
from loopwright.hosts import people
from loopwright.hosts.local import resume
from loopwright.hosts.people import Said
from loopwright.hosts.ways import Ways
from loopwright.journal import Journal, history
from loopwright.serving import delivered, due
from loopwright.serving.card import Source
from loopwright.serving.due import Desk
from loopwright.serving.post import Pace
from loopwright.stores.leases import SqliteLease
from loopwright.stores.opened import open_store


def agent(attempt):
    return "worked"


def falling(result, seen):
    return 0.8 - seen.iteration / 20


def fine(result):
    return True


def bad(attempt):
    raise TypeError("this cannot work")


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(project):
    store = open_store(posting.URL, project)
    yield store
    store.close()


def wired(project, *names):
    return [{"use": "posting:wire", "file": str(project / f"{name}.sent"), "name": name} for name in names]


def asking(project, run_id="r", channels=("a", "b"), agent=agent, notify=None, on=None, **options):
    """A run that waits for a person."""
    approval = {"when": "passed", "channels": wired(project, *channels), **options.pop("approval", {})}
    if notify:
        options["notify"] = {"to": wired(project, *notify), **({"on": on} if on else {})}
    loop = Loop("g", agent=agent, gates=[lambda _: True], approval=approval, store=posting.URL, **options)
    return run(loop, run_id)


def sent(project, name):
    return lines(project / f"{name}.sent")


def mode(project, name, text):
    (project / f"{name}.mode").write_text(text)


def answer(store, run_id, word, **said):
    said = Said(answer=word, by="mira", channel="cli", **said)
    return people.answer(store, run_id, said, now=datetime.now(UTC))


def noticed(store, run_id):
    found = [(key, decode_signal(run_id, key, record)) for key, record in store.signals(run_id)]
    return {key: event for key, event in found if isinstance(event, Noticed)}


# Requests


@awaited
async def test_an_open_request_is_shown_once_on_every_channel_whoever_sends(project, store):
    asking(project)
    for _ in range(2):  # the second is a server that is started later
        async with at_work(made(project)) as post:
            await until(lambda: post._leads and len(noticed(store, "r")) == 2)
            await looked(post)
    (a,), (b,) = sent(project, "a"), sent(project, "b")
    approval = Journal(store, "r").state.approval.id
    assert (a["approval"], a["about"], a["ref"], b["approval"]) == (approval, "needs_you", None, approval)
    assert "accept iteration 1" in a["title"]
    assert noticed(store, "r") == {
        f"noticed/{approval[:12]}/{name}": Noticed(approval=approval, channel=name, ref=f"ref-{name}")
        for name in "ab"
    }


@awaited
async def test_the_notices_get_into_the_journal_and_change_nothing(project, store):
    asking(project)
    async with at_work(made(project)):
        await until(lambda: len(noticed(store, "r")) == 2)
    assert Journal(store, "r").state.approval is not None
    answer(store, "r", "approve")
    assert asking(project).reason == "quality_reached"
    facts = [event for _, _, event, _ in history(store, "r") if isinstance(event, Noticed)]
    assert {fact.channel: fact.ref for fact in facts} == {"a": "ref-a", "b": "ref-b"}
    assert list(store.signals("r")) == []


@awaited
async def test_an_answer_is_shown_where_the_request_was_also_before_anybody_acts_on_it(project, store):
    asking(project)
    async with at_work(made(project)) as post:
        await until(lambda: len(noticed(store, "r")) == 2)
        answer(store, "r", "revise", note="shorter")
        await until(lambda: len(sent(project, "a")) == 2 and len(sent(project, "b")) == 2)
        await looked(post)
        asking(project, max_iterations=5)  # it goes on, and asks again
        await until(lambda: len(sent(project, "a")) == 3)
        await looked(post)
    first, over, second = sent(project, "a")
    assert (over["ref"], over["approval"]) == ("ref-a", first["approval"])
    assert (over["decided"]["answer"], over["decided"]["by"], over["decided"]["note"]) == (
        "revise",
        "mira",
        "shorter",
    )
    assert over["shown"]["question"] == first["shown"]["question"]
    assert second["approval"] != first["approval"]
    assert len(sent(project, "b")) == 3


@pytest.mark.parametrize("how", ["stopped", "expired", "while nobody sent"])
@awaited
async def test_a_request_that_ended_otherwise_is_brought_up_to_date(project, store, how):
    timeout = 0.3 if how == "expired" else "1h"
    asking(project, approval={"timeout": timeout})
    async with at_work(made(project)):
        await until(lambda: len(noticed(store, "r")) == 2)
        if how != "while nobody sent":
            if how == "stopped":
                from loopwright.codec import encode_signal
                from loopwright.core.events import StopRequested

                store.signal("r", "stop/1", encode_signal(StopRequested(now=False, key="stop/1"), None))
            else:
                await asyncio.sleep(0.35)
            asking(project, approval={"timeout": timeout})
            await until(lambda: len(sent(project, "a")) == 2)
    if how == "while nobody sent":
        answer(store, "r", "approve")
        asking(project)  # drives it to its end
        async with at_work(made(project)):
            await until(lambda: len(sent(project, "a")) == 2)
    over = sent(project, "a")[1]
    wanted = {"stopped": "withdrawn", "expired": "expired", "while nobody sent": "approve"}
    assert (over["decided"]["answer"], over["ref"]) == (wanted[how], "ref-a")


# Failures


@awaited
async def test_a_channel_that_is_down_is_tried_again_and_keeps_no_other_waiting(project, store):
    mode(project, "a", "down")
    asking(project)
    told, counted = [], []
    async with at_work(made(project, tell=told.append)) as post:
        post.count = lambda *said: counted.append(said)
        await until(lambda: len(lines(project / "a.tries")) >= 3)
        assert len(sent(project, "b")) == 1
        (pending,) = post.state().pending
        assert (pending.channel, pending.problem, pending.lost) == ("a", "it is down", False)
        assert pending.tries >= 2
        assert post.state().undelivered == 0  # somebody was reached
        mode(project, "a", "")
        await until(lambda: sent(project, "a"))
        await until(lambda: post.state().pending == ())
    assert [line for line in told if "is tried again in 0.0s: it is down" in line] == told[:1]
    assert len({line["key"] for line in lines(project / "a.tries")}) == 1  # the same message each time
    assert counted.count(("a", "failed")) == len(lines(project / "a.tries")) - 1
    assert (counted.count(("a", "sent")), counted.count(("b", "sent"))) == (1, 1)


@awaited
async def test_what_can_never_be_sent_is_given_up_and_the_next_that_works_says_so_once(project, store):
    mode(project, "b", "never")
    asking(project, channels=("a", "b", "c"))
    for _ in range(2):
        async with at_work(made(project)) as post:
            await until(lambda: post._leads and len(noticed(store, "r")) == 3)
            await until(lambda: [line for line in sent(project, "c") if line["unreached"] == ["b"]])
            await looked(post)
            assert [(p.channel, p.problem, p.lost) for p in post.state().pending] == [
                ("b", "no such channel", True)
            ]
    assert len(lines(project / "b.tries")) == 1
    assert [line["unreached"] for line in sent(project, "a")][1:] == []
    named = [line for line in sent(project, "c") if line["unreached"]]
    assert len(named) == 1
    problems = {event.channel: event.problem for event in noticed(store, "r").values()}
    assert problems == {"a": None, "b": "no such channel", "c": None}


@awaited
async def test_all_notification_channels_fail_and_it_is_seen(project, store):
    for name in "ab":
        mode(project, name, "never")
    asking(project)
    told = []
    for _ in range(2):  # a server that starts later says the same
        async with at_work(made(project, tell=told.append)) as post:
            await until(lambda: post.state().undelivered == 1 and len(post.state().pending) == 2)
    assert len([line for line in told if "could not be sent and is given up: no such channel" in line]) == 2
    assert {event.problem for event in noticed(store, "r").values()} == {"no such channel"}
    assert Journal(store, "r").state.approval is not None
    assert people.inbox(store)[0][0][0].run == "r"  # the page and the command line show it all the same


@awaited
async def test_a_channel_may_say_when_and_nothing_is_tried_beyond_the_deadline(project, store):
    mode(project, "a", "wait 0.5")
    mode(project, "b", "wait 60")
    asking(project, approval={"timeout": "10s"})
    async with at_work(made(project)) as post:
        await until(lambda: lines(project / "a.tries"))
        began = time.monotonic()
        await until(lambda: [e for e in noticed(store, "r").values() if e.problem == "not so fast"])
        await until(lambda: len(lines(project / "a.tries")) >= 2)
        assert time.monotonic() - began > 0.4
        assert post.state().lost == 1
    assert len(lines(project / "b.tries")) == 1


@awaited
async def test_a_request_that_was_answered_meanwhile_is_sent_no_more(project, store):
    mode(project, "a", "down")
    asking(project)
    async with at_work(made(project)) as post:
        await until(lambda: len(lines(project / "a.tries")) >= 2)
        answer(store, "r", "approve")
        await until(lambda: len(sent(project, "b")) == 2)
        await until(lambda: post.state().pending == ())
        mode(project, "a", "")
        await looked(post)
    assert sent(project, "a") == []


@awaited
async def test_a_channel_that_hangs_is_cut_and_one_that_is_broken_is_a_channel_that_is_down(
    project, store, monkeypatch
):
    monkeypatch.setenv("WIRE_TOKEN", "canary-7d1f0b5aa2")
    mode(project, "a", "hangs")
    mode(project, "b", "broken")
    asking(project)
    told = []
    pace = Pace(look_s=0.02, try_s=0.5, delays_s=(0.05,))
    async with at_work(made(project, tell=told.append, pace=pace)) as post:
        await until(lambda: len(told) == 2)
        problems = {p.channel: p.problem for p in post.state().pending}
        assert post.state().undelivered == 1
        for name in "ab":
            mode(project, name, "")
        await until(lambda: sent(project, "a") and sent(project, "b"))
    assert problems == {
        "a": "no answer within 0.5s",
        "b": "RuntimeError: a fault with [redacted:WIRE_TOKEN] in it",
    }
    assert "canary" not in "".join(told)


@awaited
async def test_a_run_whose_channels_mean_nothing_here_is_said_and_hides_no_other(project, store):
    asking(project)
    (project / "fading.py").write_text("from posting import wire")
    channels = [{"use": "fading:wire", "file": "x"}]
    gates = [lambda _: True]
    run(Loop("g", agent=agent, gates=gates, approval={"channels": channels}, store=posting.URL), "other")
    (project / "fading.py").unlink()
    del sys.modules["fading"]
    async with at_work(made(project)) as post:
        await until(lambda: len(noticed(store, "r")) == 2)
        assert "no module 'fading'" in post.state().problems["other"]


@awaited
async def test_a_run_that_cannot_be_read_just_now_is_read_again(project, store, monkeypatch):
    asking(project)
    broken, real = [True], due.Journal

    def journal(store, run_id):
        if broken:
            raise StoreError("the disk is busy")
        return real(store, run_id)

    monkeypatch.setattr(due, "Journal", journal)
    monkeypatch.setattr(due, "LATER", 2)
    async with at_work(made(project)) as post:
        await until(lambda: post.state().problems == {"r": "the disk is busy"})
        broken.clear()
        await until(lambda: len(noticed(store, "r")) == 2)
        assert post.state().problems == {}


# Several servers


def begun(project):
    env = {**os.environ, "PYTHONPATH": f"{Path(posting.__file__).parent}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.Popen([sys.executable, posting.__file__, str(project)], env=env)


@awaited
async def test_of_two_servers_one_sends_and_the_other_takes_over_when_it_is_killed(project, store):
    asking(project)
    first = begun(project)
    try:
        await until(lambda: len(noticed(store, "r")) == 2)
        async with at_work(made(project)) as post:
            asking(project, "second")
            await until(lambda: sum(key.endswith("/sent") for key in due.records(store, "second")) == 2)
            assert not post.state().leads
            first.kill()
            first.wait()
            killed = time.monotonic()
            asking(project, "third")
            await until(lambda: len(noticed(store, "third")) == 2)
            assert time.monotonic() - killed < 10
            answer(store, "r", "approve")
            await until(lambda: len(sent(project, "a")) == 4)
            await looked(post)
    finally:
        first.kill()
        first.wait()
    for name in "ab":
        pids = [(line["run"], line["pid"] == os.getpid()) for line in sent(project, name)]
        assert pids == [("r", False), ("second", False), ("third", True), ("r", True)]


@awaited
async def test_killed_between_sending_and_the_record_it_is_sent_again_as_the_same_message(project, store):
    mode(project, "a", "dies")
    asking(project, channels=("a",))
    first = begun(project)
    assert first.wait(20) == -signal.SIGKILL
    async with at_work(made(project)) as post:
        await until(lambda: noticed(store, "r"))
        await looked(post)
    once, again = sent(project, "a")
    assert once["key"] == again["key"]
    assert once["pid"] != again["pid"]


@awaited
async def test_who_has_lost_the_lease_stops(project, store):
    mode(project, "a", "down")
    asking(project)
    async with at_work(made(project)) as post:
        await until(lambda: len(lines(project / "a.tries")) >= 2)
        store._db.execute("UPDATE leases SET owner='1:1@elsewhere@x', until=9e12 WHERE run='post:'")
        await until(lambda: not post.state().leads)
        count = len(lines(project / "a.tries"))
        await asyncio.sleep(0.2)
        assert len(lines(project / "a.tries")) == count
        assert post.state().pending == ()


# News


@awaited
async def test_news_go_where_they_should_once_and_a_request_is_none_for_who_is_asked(project, store):
    asking(project, channels=("a",), notify=("a", "n"))
    loop = {"store": posting.URL, "notify": {"to": wired(project, "n"), "on": ["failed"]}}
    run(Loop("g", agent=bad, gates=[lambda _: True], **loop), "bad")
    run(Loop("g", agent=agent, gates=[lambda _: True], **loop), "good")
    for _ in range(2):
        async with at_work(made(project, public_url="https://loops.example.org")) as post:
            await until(lambda: post._leads and len(sent(project, "n")) >= 2)
            await looked(post)
    assert [line["about"] for line in sent(project, "a")] == ["needs_you"]
    assert {(line["run"], line["about"]) for line in sent(project, "n")} == {
        ("r", "needs_you"),
        ("bad", "failed"),
    }
    assert len(sent(project, "n")) == 2
    (news,) = [line for line in sent(project, "n") if line["run"] == "r"]
    assert (news["approval"], news["link"]) == (None, "https://loops.example.org/runs/r")
    (failed,) = [line for line in sent(project, "n") if line["run"] == "bad"]
    assert failed["title"] == "bad failed: permanent_error after 1 iteration"


@awaited
async def test_a_run_that_is_taken_up_again_and_fails_again_is_news_again(project, store):
    loop = Loop(
        "g",
        agent=bad,
        gates=[fine],
        store=posting.URL,
        notify={"to": wired(project, "n"), "on": ["finished", "failed", "alert"]},
    )
    run(loop, "bad")
    async with at_work(made(project)) as post:
        await until(lambda: len(sent(project, "n")) == 1)
        await looked(post)
        await resume("bad", Ways(project=project, store=posting.URL, environ=dict(os.environ)))
        await until(lambda: len(sent(project, "n")) == 2)
    assert len({line["key"] for line in sent(project, "n")}) == 2


@awaited
async def test_an_end_is_finished_or_failed_and_an_alert_is_news(project, store):
    told = {"notify": {"to": wired(project, "n")}, "store": posting.URL}
    run(Loop("g", agent=agent, gates=[lambda _: True], **told), "good")
    run(
        Loop(
            "g",
            agent=agent,
            gates=[falling],
            max_iterations=8,
            convergence=False,
            **told,
        ),
        "limits",
    )
    asking(project, "rejected", channels=("a",), notify=("n",), on=["finished", "failed"])
    answer(store, "rejected", "reject")
    asking(project, "rejected", channels=("a",), notify=("n",), on=["finished", "failed"])
    alerts = [f"alert {a.kind}" for a in Journal(store, "limits").state.alerts]
    assert alerts
    async with at_work(made(project)) as post:
        await until(lambda: len(sent(project, "n")) >= 3 + len(alerts))
        await looked(post)
    found = {(line["run"], line["about"]) for line in sent(project, "n")}
    assert {("good", "finished"), ("limits", "failed"), ("rejected", "finished")} <= found
    assert [line["about"] for line in sent(project, "n")].count("alert") == len(alerts)


def test_what_ended_more_than_a_day_ago_is_no_news(project, store):
    run(
        Loop("g", agent=agent, gates=[lambda _: True], store=posting.URL, notify={"to": wired(project, "n")}),
        "old",
    )
    source, now = Source(project=project, environ={}), datetime.now(UTC)
    assert Desk().look(store, source, now + timedelta(hours=25)) == []
    (found,) = Desk().look(store, source, now + timedelta(hours=23))
    assert (found.run, found.what.split("/")[:2]) == ("old", ["news", "finished"])


def test_a_look_at_what_did_not_change_reads_no_journal(project, store, monkeypatch):
    asking(project)
    asking(project, "s")
    desk, source = Desk(), Source(project=project, environ={})
    assert len(desk.look(store, source, datetime.now(UTC))) == 4
    monkeypatch.setattr(due, "Journal", None)
    monkeypatch.setattr(people, "history", None)
    assert desk.look(store, source, datetime.now(UTC)) == []


@pytest.mark.parametrize("url", ["files:state", "memory:"])
def test_every_store_keeps_what_was_sent(project, url):
    store = open_store(url, project)
    loop = Loop("g", agent=agent, gates=[lambda _: True], store=url)
    run(loop, "r")
    (found,) = [
        due.Due(
            run="r", what="news/finished/x", mark="ask", channel=posting.wire(file="x"), card=None, until=None
        )
    ]
    assert due.record(store, found, "sent", ref="1")
    assert not due.record(store, found, "sent", ref="2")
    assert due.records(store, "r")["news/finished/x/wire/sent"]["ref"] == "1"
    assert "post:r" not in [run for run, _ in store.heads()]
    store.close()


# Found by trying to break it


@awaited
async def test_killed_between_the_two_records_the_run_knows_of_its_notice(project, store, monkeypatch):
    asking(project, channels=("a",))
    kept = due.record

    def killed(store, each, end, **said):
        if end == "sent":
            raise SystemExit  # as a process that is gone by now
        return kept(store, each, end, **said)

    monkeypatch.setattr(due, "record", killed)
    (each,) = Desk().look(store, Source(project=project, environ={}), datetime.now(UTC))
    with pytest.raises(SystemExit):
        delivered.was_sent(store, each, "ref-a")
    (found,) = noticed(store, "r").values()
    assert (found.ref, found.problem) == ("ref-a", None)


@awaited
async def test_a_channel_that_asks_for_a_day_is_asked_again_within_the_hour(project, store):
    mode(project, "a", "wait 86400")
    asking(project, channels=("a",))  # without a timeout: it is worth sending for a day
    async with at_work(made(project)) as post:
        (pending,) = await until(lambda: post.state().pending)
        await until(lambda: post.state().pending[0].again_s is not None)
        assert not pending.lost
        assert 3500 < post.state().pending[0].again_s <= 3600
        assert post.state().undelivered == 1


@awaited
async def test_what_waits_behind_a_hanging_channel_is_seen_and_not_sent_once_it_is_answered(project, store):
    mode(project, "a", "hangs")
    runs = {"r", "second", "third"}
    for name in runs:
        asking(project, name, channels=("a",))
    async with at_work(made(project, pace=Pace(look_s=0.02, try_s=0.6, delays_s=(0.02,)))) as post:
        await until(lambda: post.state().undelivered == 3)
        tried = {line["run"] for line in lines(project / "a.tries")}
        assert len(tried) < 3  # and yet nobody is reached
        (last,) = runs - tried if len(tried) == 2 else sorted(runs - tried)[:1]
        answer(store, last, "approve")
        mode(project, "a", "")
        await until(lambda: not post._tasks and len(sent(project, "a")) == 2)
        await looked(post)
    assert {line["run"] for line in sent(project, "a")} == runs - {last}


@awaited
async def test_an_old_message_is_brought_up_to_date_by_a_server_that_starts_days_later(project, store):
    asking(project, channels=("a",), notify=("n",))
    async with at_work(made(project)):
        await until(lambda: len(sent(project, "a")) == len(sent(project, "n")) == 1)
    answer(store, "r", "approve")
    asking(project, channels=("a",), notify=("n",))
    later, source = datetime.now(UTC) + timedelta(days=4), Source(project=project, environ={})
    (each,) = Desk().look(store, source, later)  # and its end is no news by now
    assert (each.mark, each.channel.name, each.card.decided.answer) == ("over", "a", "approve")
    due.record(store, each, "over")
    assert Desk().look(store, source, later) == []


@awaited
async def test_an_outcome_that_cannot_be_shown_is_said(project, store):
    told = []
    asking(project, channels=("a",))
    async with at_work(made(project, tell=told.append)) as post:
        await until(lambda: sent(project, "a"))
        mode(project, "a", "never")
        answer(store, "r", "approve")
        await until(lambda: told)
        await looked(post)
    assert told == ["r: how the request ended by a could not be sent and is given up: no such channel"]


def test_a_look_makes_no_more_cards_than_there_is_room_for(project, store, monkeypatch):
    for n in range(4):
        asking(project, f"r{n}", channels=("a",))
    desk, source = Desk(), Source(project=project, environ={})
    looks = [
        [each.run for each in desk.look(store, source, datetime.now(UTC), room=room)] for room in (3, 0, 3, 3)
    ]
    assert [len(look) for look in looks] == [3, 0, 1, 0]
    assert sorted(looks[0] + looks[2]) == ["r0", "r1", "r2", "r3"]
    monkeypatch.setattr(due, "LOOK_S", 0.0)  # and its lease is not lost over it
    assert Desk().look(store, source, datetime.now(UTC)) == []


@awaited
async def test_while_the_store_takes_nothing_what_was_sent_is_not_sent_again(project, store, monkeypatch):
    told, full = [], [True]

    def failing(kind, name, fails=lambda *_: True):
        kept = getattr(kind, name)

        def called(self, *given):
            if full and fails(*given):
                raise StoreError("the disk is full")
            return kept(self, *given)

        monkeypatch.setattr(kind, name, called)

    asking(project, channels=("a",))
    async with at_work(made(project, tell=told.append, pace=Pace(look_s=0.02, lease_s=0.2))) as post:
        failing(type(store), "signal", lambda _, key, __: key.endswith("/sent"))
        await until(lambda: sent(project, "a") and told)
        failing(SqliteLease, "renew")
        await until(lambda: not post._leads)  # another may lead by now
        assert len(told) <= 3
        full.clear()
        await until(
            lambda: post._leads and f"ask/{approval_of(store)[:12]}/a/sent" in due.records(store, "r")
        )
        await looked(post)
    assert len(sent(project, "a")) == 1


def approval_of(store):
    return Journal(store, "r").state.approval.id
