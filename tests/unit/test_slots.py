"""Slots: what is due, what becomes of it, and that no server, crash or clock makes a start of it twice or none."""

from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest
from a_server import LOOP, Server, cron, finish, utc
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from loopwright.core.events import PauseRequested
from loopwright.errors import StoreError
from loopwright.journal import Journal
from loopwright.serving import slots, starts, turns
from loopwright.serving.slot_records import KEEP
from loopwright.serving.slots_due import ALL, delay, due
from loopwright.stores.files import FilesStore
from loopwright.stores.memory import MemoryStore
from loopwright.stores.sqlite import SqliteStore
from loopwright.triggers import cron as crons
from loopwright.unattended import Trigger

DAY = timedelta(days=1)
QUICK = {"deadline": None, "derandomize": True, "phases": [Phase.explicit, Phase.generate]}


@pytest.fixture
def server(tmp_path):
    return served(tmp_path, cron("0 2 * * *"))


def served(folder, *triggers, **more):
    (folder / "nightly.toml").write_text(LOOP + "".join(triggers))
    return Server(folder, **more)


# pure: what is due

SCHEDULES = ("* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "0 9 * * 1-5", "0 0 1 * *", "* * * 1 *")


@settings(max_examples=60, **QUICK)
@given(
    expr=st.sampled_from(SCHEDULES),
    tz=st.sampled_from(("UTC", "Europe/Paris", "America/New_York")),
    since=st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31)),
    away=st.one_of(
        st.timedeltas(timedelta(), timedelta(hours=3)), st.timedeltas(timedelta(), timedelta(days=800))
    ),
    misfire=st.sampled_from(("skip", "run_once", "run_all")),
    grace=st.sampled_from((1.0, 60.0, 3600.0)),
    jitter=st.sampled_from((0.0, 30.0, 86_400.0)),
)
def test_whatever_was_missed_every_slot_comes_to_one_thing(expr, tz, since, away, misfire, grace, jitter):
    schedule = crons.schedule(expr, tz, local=None)
    trigger = Trigger(cron=expr, tz=tz, misfire=misfire, grace=grace, jitter=jitter)
    since = since.replace(second=0, microsecond=0, tzinfo=UTC)
    now = since + away
    found = due(schedule, trigger, "nightly", since=since, now=now)
    assert len(found) <= ALL + 1
    at = [one.slot for one in found]
    assert at == sorted(set(at))
    assert all(since < slot <= now for slot in at)
    if away <= timedelta(hours=3) and len(found) <= ALL:
        passed = list(takewhile(lambda slot: slot <= now, schedule.later(since)))
        over = [slot for slot in passed if slot + delay(schedule, trigger, "nightly", slot) <= now]
        shown = [one.slot for one in found if one.first is None]
        assert shown == over[len(over) - len(shown) :], "none is left out"
        assert len(shown) >= min(len(over), ALL - 1)
    started = [one for one in found if one.what == "started"]
    missed = [
        one
        for one in found
        if (now - one.slot - delay(schedule, trigger, "nightly", one.slot)).total_seconds() > grace
    ]
    late = [one for one in started if one in missed]
    assert all(one.reason for one in found if one in missed), "what is not as usual has its reason"
    assert all(one in started for one in found if one not in missed)
    if misfire == "skip":
        assert not late
    elif misfire == "run_once":
        assert len(late) <= 1
        assert bool(found) == bool(started), "something stands for what was missed"
    else:
        assert all(one in started for one in found if one.first is None)
    older = [one for one in found if one.first is not None]
    assert all(one.what == "skipped" and one.count >= 1 and since < one.first <= one.slot for one in older)


def counted(expr, since, now, misfire="skip"):
    schedule = crons.schedule(expr, "UTC", local=None)
    return due(schedule, Trigger(cron=expr, misfire=misfire), "x", since=utc(since), now=utc(now))


def test_thousands_that_were_missed_are_one_record():
    first, *rest = counted("* * * * *", "2026-01-01T00:00", "2026-01-02T00:00")
    assert len(rest) == ALL
    assert (first.first, first.slot) == (utc("2026-01-01T00:01"), utc("2026-01-01T22:20"))
    assert not first.whole  # a day of minutes is not counted one by one
    first, *_ = counted("* * * * *", "2026-01-01T00:00", "2026-01-01T03:00")
    assert (first.count, first.whole) == (80, True)
    assert "80 slots from 2026-01-01 00:01 to 2026-01-01 01:20 UTC skipped: missed by" in slots.told(
        slots.Slot(slot=first.slot, what="skipped", reason=first.reason, first=first.first, count=80)
    )


def test_what_is_on_record_is_not_due():
    schedule, trigger = (
        crons.schedule("0 * * * *", "UTC", local=None),
        Trigger(cron="0 * * * *", misfire="run_all"),
    )
    since, eleven = utc("2026-01-01T10:00"), utc("2026-01-01T11:00")
    found = due(schedule, trigger, "x", since=since, now=since + DAY, decided=frozenset({eleven}))
    assert [one.slot for one in found] == [eleven + timedelta(hours=n) for n in range(1, 24)]


def test_years_of_minutes_are_worked_out_at_once():
    import time

    began = time.process_time()
    found = counted("* * * * *", "1970-01-01T00:00", "2026-01-01T00:00", "run_all")
    assert (len(found), time.process_time() - began < 1) == (ALL + 1, True)


@settings(max_examples=40, **QUICK)
@given(
    at=st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),
    jitter=st.floats(1, 1e6),
    expr=st.sampled_from(SCHEDULES),
)
def test_a_delay_only_delays_is_the_same_everywhere_and_ends_before_the_next_slot(at, jitter, expr):
    schedule = crons.schedule(expr, "Europe/Paris", local=None)
    slot = schedule.next(at.replace(tzinfo=UTC))
    drawn = [delay(schedule, Trigger(cron=expr, jitter=jitter), name, slot) for name in ("a", "a", "b")]
    assert drawn[0] == drawn[1] != drawn[2]
    assert timedelta() <= drawn[0] <= timedelta(seconds=jitter)
    assert slot + drawn[0] < schedule.next(slot)


# what becomes of it


def test_a_slot_starts_one_run_whose_id_is_the_slot(server):
    server.look()
    assert server.look("2026-12-01T01:59:59") == utc("2026-12-01T02:00:00")
    assert not server.active()
    server.look("2026-12-01T02:00:00")
    assert server.active() == ["nightly-20261201T0200Z"]
    state = Journal(server.store, "nightly-20261201T0200Z").state
    assert (state.origin, state.labels["slot"]) == ("cron", "2026-12-01T02:00Z")
    assert state.spec["if_passing"] == "finish"
    (slot,) = server.history()
    assert (slot.what, slot.run, slot.reason) == ("started", "nightly-20261201T0200Z", "")
    assert server.nudged == 1
    assert server.told == ["nightly: slot 2026-12-01 02:00 UTC started"]
    server.look(seconds=1)
    server.again().look()
    assert len(server.history()) == 1


def test_each_slot_is_counted_by_the_server_that_decided_it(tmp_path):
    server = served(tmp_path, cron("0 2 * * *", misfire="skip"))
    counted = []
    server.look()
    server.watch.count = lambda loop, what: counted.append((loop, what))
    server.look("2026-12-01T02:00:00")
    server.look("2026-12-02T09:00:00")
    server.look(seconds=1)
    assert counted == [("nightly", "started"), ("nightly", "skipped")]


def test_nothing_was_missed_before_a_schedule_was_first_seen(server):
    server.look()
    assert not server.history()
    again = server.again()
    again.look("2026-12-01T02:00:10")
    assert again.began() == ["01 02:00"]


def test_between_two_looks_nothing_is_read(server, monkeypatch):
    server.watch.mend_s = 60.0
    server.look()
    monkeypatch.setattr(server.store, "signals", lambda run: pytest.fail("read"))
    for _ in range(100):
        server.look(seconds=1)


@pytest.mark.parametrize(
    ("misfire", "began", "skipped"),
    [
        ("skip", [], ["01", "02", "03"]),
        ("run_once", ["03 02:00"], ["01", "02"]),
        ("run_all", ["01 02:00", "02 02:00", "03 02:00"], []),
    ],
)
def test_what_was_missed(tmp_path, misfire, began, skipped):
    server = served(tmp_path, cron("0 2 * * *", misfire=misfire, overlap="queue"))
    server.look()
    server = server.again()
    server.look("2026-12-03T09:00:00")
    assert server.began() == began
    assert [f"{each.slot:%d}" for each in server.history() if each.what == "skipped"] == skipped
    assert all("missed by" in each.reason for each in server.history())
    assert sorted(server.active()) == sorted(each.run for each in server.history() if each.run)
    server.look("2026-12-04T02:00:59")
    assert server.began() == [*began, "04 02:00"]


def test_a_start_within_the_grace_is_on_time_and_stands_for_those_before(tmp_path):
    server = served(tmp_path, cron("0 * * * *", grace="10m", misfire="run_once"))
    server.look()
    server.look("2026-11-30T13:09:59")
    assert [(f"{each.slot:%H}", each.what) for each in server.history()] == [
        ("11", "skipped"), ("12", "skipped"), ("13", "started")
    ]  # fmt: skip
    assert "13:00 UTC stands for it" in server.history()[0].reason


def test_a_delay_is_no_lateness_and_a_restart_draws_it_again(tmp_path):
    server = served(tmp_path, cron("0 2 * * *", jitter="1h", grace="1s", misfire="skip"))
    start = server.look()
    assert utc("2026-12-01T02:00") < start < utc("2026-12-01T03:00")
    assert server.again().look() == start
    server.look(f"{start - timedelta(seconds=1):%Y-%m-%dT%H:%M:%S}")
    assert not server.history()
    server.again().look(f"{start + timedelta(milliseconds=900):%Y-%m-%dT%H:%M:%S.%f}")
    assert server.began() == ["01 02:00"], "the slot, not the delayed time"


def test_a_run_under_way_is_not_started_beside(server):
    server.look()
    server.look("2026-12-01T02:00:00")
    server.look("2026-12-02T02:00:00")
    assert server.history()[-1].reason == "nightly-20261201T0200Z is under way (planning); overlap = skip"
    assert server.active() == ["nightly-20261201T0200Z"]
    server.end()
    server.look("2026-12-03T02:00:00")
    assert server.active() == ["nightly-20261203T0200Z"]


def test_a_run_of_another_loop_is_not_in_the_way(server):
    (server.project / "nightly-too.toml").write_text(LOOP + cron("0 2 * * *"))
    server.read()
    server.look()
    server.look("2026-12-01T02:00:00")
    assert sorted(server.active()) == ["nightly-20261201T0200Z", "nightly-too-20261201T0200Z"]


def test_runs_that_follow_each_other_queue_up_to_a_bound(tmp_path):
    server = served(tmp_path, cron("* * * * *", overlap="queue"))
    server.look()
    for _ in range(102):
        server.look(minutes=1)
    assert len(server.active()) == turns.QUEUED
    assert server.history()[-1].reason == "100 runs of it are waiting already; overlap = queue"


def test_two_schedules_of_a_loop_share_a_slot(tmp_path):
    server = served(tmp_path, cron("0 * * * *", misfire="skip"), cron("0 2 * * *", misfire="run_once"))
    server.look()
    server.end()
    look = server.look("2026-12-01T02:00:30")
    assert [each.what for each in server.history()].count("started") == 1
    assert server.began() == ["01 02:00"]
    assert look == utc("2026-12-01T03:00")
    assert len({each.slot for each in server.history()}) == len(server.history())


# crashes, other servers


class Cut(Exception):
    pass


def test_a_record_whose_run_was_never_begun_is_mended_by_whoever_sees_it(server, monkeypatch):
    server.look()
    monkeypatch.setattr(starts, "begin", lambda *_, **__: (_ for _ in ()).throw(Cut))
    with pytest.raises(Cut):
        server.look("2026-12-01T02:00:00")
    monkeypatch.undo()
    assert not server.active()
    server.again().look()
    assert server.active() == ["nightly-20261201T0200Z"]
    assert len(server.history()) == 1


def test_a_run_that_was_begun_and_is_gone_is_not_begun_again(server):
    server.look()
    server.look("2026-12-01T02:00:00")
    server.store._commits.clear()  # as forgotten
    server.store._heads.clear()
    server.again().look()
    assert not server.active()


def test_a_run_that_cannot_be_begun_keeps_no_other_from_its_slot(tmp_path, monkeypatch):
    server = served(tmp_path, cron("0 * * * *", overlap="queue"))
    real, broken = starts.begin, [True]

    def begin(store, assembled, run, **more):
        if broken and run.endswith("T1100Z"):
            raise StoreError("the disk is full")
        return real(store, assembled, run, **more)

    monkeypatch.setattr(starts, "begin", begin)
    server.look()
    server.look("2026-11-30T11:00:00")
    server.look("2026-11-30T12:00:00")
    assert server.active() == ["nightly-20261130T1200Z"]
    assert server.told.count("nightly-20261130T1100Z cannot be begun: the disk is full") == 1
    broken.clear()
    server.look(seconds=1)
    assert "nightly-20261130T1100Z" in server.active()


def test_a_store_that_cannot_be_read_is_told_once_and_tried_again(server, monkeypatch):
    server.look()

    def broken(run):
        raise StoreError("gone")

    monkeypatch.setattr(server.store, "signals", broken)
    server.look("2026-12-01T02:00:00")
    server.look(seconds=1)
    assert server.told == ["nightly: its schedule cannot be kept: gone"]
    monkeypatch.undo()
    server.look(seconds=1)
    assert server.began() == ["01 02:00"]


def test_a_record_that_another_made_meanwhile_stands(server, monkeypatch):
    server.look()
    other = server.again()
    stale = list(server.store.signals("trigger:nightly"))
    starts.begin(  # what made the other leave the slot out
        server.store, server.served().assembled, "by-hand", project=server.project, environ={}, origin="hand"
    )
    server.look("2026-12-01T02:00:00")
    server.end("by-hand")
    monkeypatch.setattr(server.store, "signals", lambda run: stale)
    other.look("2026-12-01T02:00:00")
    monkeypatch.undo()
    assert not server.active()
    assert [each.what for each in server.history()] == ["skipped"]
    assert len(server.told) == 1
    assert not other.told


def test_a_time_that_was_missed_is_gone_through_by_one_server_at_a_time(server):
    server.look()
    lease = server.store.lease("trigger:nightly", "another", 60)
    server.look("2026-12-03T12:00:00")
    assert not server.history()
    lease.release()
    server.look(seconds=1)
    assert server.began() == ["03 02:00"]
    assert server.store.lease("trigger:nightly", "another", 60), "and given back"


@settings(max_examples=12, **QUICK)
@given(
    looks=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), min_size=10, max_size=25),
    misfire=st.sampled_from(("skip", "run_once", "run_all")),
    jitter=st.sampled_from(("1s", "20m")),
)
def test_three_servers_whose_clocks_differ_decide_each_slot_once(tmp_path_factory, looks, misfire, jitter):
    folder = tmp_path_factory.mktemp("three")
    first = served(folder, cron("*/10 * * * *", misfire=misfire, jitter=jitter, overlap="queue"))
    servers = [first, first.again(), first.again()]
    for each in servers:
        each.look()
    for which, minutes in looks:
        if minutes > 50:
            servers[which] = servers[which].again()
        servers[which].look(minutes=minutes)
    for each in servers:
        each.look()  # what another left behind is mended
    found = first.history()
    assert len({each.slot for each in found}) == len(found)
    assert sorted(first.active()) == sorted(each.run for each in found if each.what == "started")
    schedule, (trigger,) = first.served().schedules[0], first.served().triggers
    end = max(each.at for each in servers)
    passed = takewhile(lambda slot: slot <= end, schedule.later(utc("2026-11-30T10:00:30")))
    over = [slot for slot in passed if slot + delay(schedule, trigger, "nightly", slot) <= end]
    assert sorted(each.slot for each in found) == over, "none is left out"


# the clock


def test_a_clock_that_is_set_back_a_day_starts_nothing_twice_and_strands_nothing(tmp_path):
    server = served(tmp_path, cron("0 * * * *", overlap="queue"))
    server.look()
    for _ in range(30):
        server.look(hours=1)
    ran = server.began()
    assert len(ran) == 30
    server.at -= DAY
    for _ in range(24):
        server.look(hours=1)
    assert server.began() == ran
    server.again().look()
    assert server.began() == ran
    server.look(hours=1)
    assert len(server.began()) == 31, "and it goes on where it was"


def test_a_clock_that_is_set_back_is_noticed_at_once(tmp_path):
    server = served(tmp_path, cron("0 * * * *"), mend_s=3600.0)
    server.look()
    server.look("2026-11-30T06:00:30")
    server.look("2026-11-30T07:00:00")
    assert server.began() == ["30 07:00"]


def test_a_clock_that_was_ahead_for_a_while_takes_nothing_from_the_time_to_come(tmp_path):
    server = served(tmp_path, cron("0 * * * *", misfire="run_once", overlap="queue"))
    server.look()
    server.look("2027-11-30T10:00:00")
    ahead = server.history()
    assert [each.what for each in ahead].count("started") == 1
    assert ahead[0].count > 1000 or not ahead[0].whole
    server.look("2026-11-30T10:30:00")
    assert server.history() == ahead
    for at in ("2026-11-30T11:00:00", "2026-11-30T12:00:00"):
        server.again().look(at)
    assert [each.run for each in server.history()[-2:]] == [
        "nightly-20261130T1100Z",
        "nightly-20261130T1200Z",
    ]


@settings(max_examples=10, **QUICK)
@given(
    st.lists(
        st.one_of(st.integers(1, 90), st.sampled_from((-1440, -60, 300, 1500))), min_size=20, max_size=60
    )
)
def test_a_day_of_looks_with_a_clock_that_jumps(tmp_path_factory, minutes):
    server = served(tmp_path_factory.mktemp("day"), cron("15 * * * *", misfire="run_all", overlap="queue"))
    server.look()
    shown = set()
    low = high = server.at
    for step in minutes:
        server.look(minutes=step)
        if step < 0:  # what is then the past may come again: nothing of it starts twice
            server.look()
        low, high = min(low, server.at), max(high, server.at)
        shown.update(server.active())
        if len(server.active()) > 60:
            server.end()
    started = [each.run for each in server.history() if each.what == "started"]
    assert len(started) == len(set(started))
    assert set(started) <= shown
    assert all(each.count == 1 for each in server.history())
    before = set(server.began())
    server.at = high
    server.end()
    server.look(minutes=60)
    assert set(server.began()) - before, "the hour after is started"


# what a file says changes


def test_a_schedule_that_comes_back_missed_nothing_meanwhile(server):
    server.look()
    file = server.project / "nightly.toml"
    said = file.read_text()
    file.write_text(LOOP)
    server.read()
    server.look("2026-12-01T12:00:00")
    file.write_text(said)
    server.read()
    server.look("2026-12-05T12:00:00")
    assert not server.history()
    server.look("2026-12-06T02:00:00")
    assert server.began() == ["06 02:00"]


def test_other_rules_for_the_same_schedule_go_on_from_where_it_was(server):
    server.look()
    (server.project / "nightly.toml").write_text(LOOP + cron("0  2 * * *", misfire="run_all"))
    again = server.again()
    again.look("2026-12-01T12:00:00")
    assert again.began() == ["01 02:00"]


def test_a_loop_that_is_gone_is_forgotten(server):
    server.look()
    (server.project / "other.toml").write_text(LOOP)
    (server.project / "nightly.toml").rename(server.project / "away")
    server.read()
    server.look("2026-12-01T02:00:00")
    (server.project / "away").rename(server.project / "nightly.toml")
    server.read()
    server.look("2026-12-05T12:00:00")
    assert not server.history()


# stores


@pytest.mark.parametrize("kind", ["memory", "files", "sqlite"])
def test_every_store_keeps_slots_and_few_of_them(tmp_path, kind):
    state = tmp_path / ".agent-state"
    state.mkdir(mode=0o700)
    store = {
        "memory": MemoryStore,
        "files": lambda: FilesStore(state),
        "sqlite": lambda: SqliteStore(state / "l.db"),
    }[kind]()
    server = served(tmp_path, cron("* * * * *", misfire="run_all"), store=store)
    server.look()
    for _ in range(3):
        server.look(minutes=70)
        server.end()
    server.look()
    rest = list(store.signals("trigger:nightly"))
    assert KEEP <= len(server.history()) < KEEP + KEEP // 2
    assert len(rest) < 2 * KEEP
    assert len({each.slot for each in server.history()}) == len(server.history())
    assert not store.signal("trigger:nightly", "slot/20261130T1001Z", b"{}"), (
        "and what is not read stays decided"
    )
    assert "trigger:nightly" not in server.active()
    store.close()


def test_a_record_that_cannot_be_read_is_shown_as_such(server):
    server.look()
    server.store.signal("trigger:nightly", "slot/20261201T0200Z", b"\xff not json")
    server.look("2026-12-01T02:00:00")
    (slot,) = server.history()
    assert (slot.what, slot.reason) == ("skipped", "its record cannot be read")


# who looks ahead, and whose turn it is


def test_what_comes_next(tmp_path):
    server = served(
        tmp_path, cron("0 * * * *", jitter="10m"), cron("30 2 * * *"), '[[trigger]]\nwatch = ["*.py"]\n'
    )
    coming = slots.upcoming(server.served(), 4, utc("2026-12-01T01:30"))
    assert [f"{each.slot:%H:%M}" for each in coming] == ["02:00", "02:30", "03:00", "04:00"]
    assert all(timedelta() <= each.at - each.slot < timedelta(minutes=10) for each in coming)
    during = coming[0].slot + (coming[0].at - coming[0].slot) / 2
    assert slots.upcoming(server.served(), 1, during)[0].slot == coming[0].slot, "its delay is not over"
    (tmp_path / "nightly.toml").write_text(LOOP)
    assert slots.upcoming(Server(tmp_path).served(), 5, utc("2026-12-01T01:30")) == []


def test_runs_take_their_turns(tmp_path):
    server = served(tmp_path, cron("* * * * *", overlap="queue"))
    its_turn = turns.turn(server)
    server.look()
    runs = []
    for _ in range(3):
        server.look(minutes=1)
        runs.append(f"nightly-{server.at:%Y%m%dT%H%MZ}")

    def whose(in_hand=()):
        turns_ = []
        for run in runs:
            state = Journal(server.store, run).state
            held = {each: Journal(server.store, each).state for each in in_hand}
            if state.finished is None and its_turn(state, held):
                turns_.append(run)
        return turns_

    assert whose() == [runs[0]]
    assert whose(in_hand=[runs[0]]) == [runs[0]]
    assert whose(in_hand=[runs[2]]) == [runs[2]] or not whose(in_hand=[runs[2]])
    finish(server.store, runs[0], server.at)
    its_turn = turns.turn(server)
    assert whose() == [runs[1]]


def test_what_rests_before_others_is_told_with_what_to_do_once(tmp_path):
    server = served(tmp_path, cron("* * * * *", overlap="queue"))
    server.look()
    runs = []
    for _ in range(3):
        server.look(minutes=1)
        runs.append(f"nightly-{server.at:%Y%m%dT%H%MZ}")
    first = Journal(server.store, runs[0])
    first.record(server.at, PauseRequested(now=True, by="mira"))
    first.flush()
    server.told.clear()
    its_turn = turns.turn(server)
    for run in runs[1:]:
        assert not its_turn(Journal(server.store, run).state, {})
    assert server.told == [
        f"{runs[1]} waits for its turn: {runs[0]} is before it (paused); answer, resume or stop that one"
    ]


def test_a_run_whose_head_is_lost_is_under_way_all_the_same(tmp_path):
    server = served(tmp_path, cron("* * * * *"))
    server.look()
    server.look(minutes=1)
    (run,) = server.active()
    server.store._heads[run] = (True, b"")
    assert [(each.run, each.begun) for each in turns.under_way(server.store, "nightly")] == [(run, True)]
    assert turns.under_way(server.store, "another") == []


def test_whose_turn_it_is_does_not_hang_on_clocks():
    def active(run, since, begun=False):
        return turns.Active(run=run, since=since, begun=begun)

    early, late = active("a", "2026-01-01T00:00:00Z"), active("b", "2026-01-02T00:00:00Z")
    assert turns.may_begin("a", [late, early])
    assert not turns.may_begin("b", [late, early])
    begun = active("b", "2026-01-02T00:00:00Z", begun=True)  # the clock was set back since
    assert not turns.may_begin("a", [begun, early])
    assert turns.may_begin("b", [begun, early])
    assert not turns.may_begin("c", [early])
    assert not turns.may_begin("c", [])


def test_a_bad_schedule_is_a_fault_of_the_loop_file_and_the_old_one_stands(server):
    server.look()
    (server.project / "nightly.toml").write_text(LOOP + cron("61 2 * * *"))
    server.book.refresh()
    assert "trigger[0].cron: '61 2 * * *': '61' is no minute" in server.served().problem
    assert "nightly.toml:5: " in server.served().problem
    server.look("2026-12-01T02:00:00")
    assert server.began() == ["01 02:00"]
