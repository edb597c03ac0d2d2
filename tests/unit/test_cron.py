"""Schedules: every row of the table of expectations, what is refused, and a reference that tries every minute."""

import csv
import sys
import time
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from loopwright.errors import ConfigError
from loopwright.readers import WrongError
from loopwright.triggers import cron
from loopwright.unattended import Trigger

TABLE = Path(__file__).parents[1] / "cases/cron/cron_expectations.tsv"
ROWS = list(
    csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
)


def made(expr, tz="UTC"):
    return cron.schedule(expr, tz, local=None)


def utc(text):
    return datetime.fromisoformat(text).astimezone(UTC)


def refused(expr, tz="UTC", key="cron"):
    began = time.monotonic()
    with pytest.raises(WrongError) as bad:
        made(expr, tz)
    assert time.monotonic() - began < 1
    assert [where for where, _ in bad.value.faults] == [key]
    return bad.value.faults[0][1]


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r['expr']} {r['zone']}".replace("/", ":"))
def test_a_row_of_the_table(row):
    if row["strictness"] == "REJECT":
        refused(row["expr"], row["zone"], "tz" if row["zone"] == "Europe/Kyivv" else "cron")
    elif row["strictness"] == "DOCUMENT":
        mondays = islice(made(row["expr"], row["zone"]).later(utc("2026-01-01T00:00Z")), 24)
        assert all(at.weekday() == 0 and at.day % 2 for at in mondays)
        assert "Monday" in made(row["expr"]).words
    else:
        want = [utc(each) for each in row["expected_next_utc"].split()]
        schedule = made(row["expr"], row["zone"])
        assert list(islice(schedule.later(utc(row["after_utc"])), len(want))) == want
        at = utc(row["after_utc"])
        assert [at := schedule.next(at) for _ in want] == want, "each time anew is the same"


@pytest.mark.parametrize(
    ("expr", "told"),
    [
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 2,4,6 *", "never comes"),
        ("0 0 */15 * 1#2", "never comes"),
        ("60 * * * *", "'60' is no minute: 0-59"),
        ("* 24 * * *", "'24' is no hour: 0-23"),
        ("* * 0 * *", "'0' is no day-of-month"),
        ("* * * 13 *", "'13' is no month: 1-12 or JAN-DEC"),
        ("* * * * FRI-MON", "a range goes upward"),
        ("* * * *", "has 4 fields; five are wanted: minute hour"),
        ("*", "has 1 field;"),
        ("0 * * * * *", "leave out the seconds"),
        ("@reboot", "five fields are wanted"),
        ("@daily", "write '0 0 * * *'"),
        ("0 0 1 1 *" + "9" * 5000, "is too long"),
        ("1//2 * * * *", "'1//2' is no minute"),
        ("² * * * *", "is no minute"),
        ("*/0 * * * *", "is no minute"),
    ],
)
def test_what_is_refused_and_how(expr, told):
    assert told in refused(expr)


@pytest.mark.parametrize(
    "tz", ["Europe/Kyivv", "Europe", "../../etc/passwd", "/etc/localtime", "", "CET-1CEST"]
)
def test_a_zone_that_is_none(tz):
    assert "is no zone" in refused("0 2 * * *", tz, "tz")


def test_a_misspelt_zone_is_told_the_right_one():
    assert "did you mean 'Europe/Kyiv'" in refused("0 2 * * *", "Europe/Kyivv", "tz")


def test_everything_that_is_wrong_comes_at_once_with_its_place():
    bad = [
        Trigger(cron="0 2 * * *", tz="UTC"),
        Trigger(watch=("*",)),
        Trigger(cron="61 * * * *", tz="Nowhere"),
    ]
    with pytest.raises(ConfigError) as told:
        cron.schedules(
            bad, local=None, places={"trigger[2].cron": "loop.toml:9", "trigger[2].tz": "loop.toml:10"}
        )
    first, second = told.value.problems
    assert first.startswith("loop.toml:9: trigger[2].cron: '61 * * * *': '61' is no minute")
    assert second.startswith("loop.toml:10: trigger[2].tz: 'Nowhere' is no zone")


def test_only_crons_have_a_schedule_and_only_they_need_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "cronsim", None)
    cron.schedule.cache_clear()
    assert cron.schedules([Trigger(watch=("*",)), Trigger(webhook="x")], local=None) == (None, None)
    with pytest.raises(ConfigError, match=r'pip install "loopwright\[serve\]"'):
        cron.schedules([Trigger(cron="0 2 * * *")], local=None)


def test_the_zone_of_this_machine(tmp_path, monkeypatch):
    local = tmp_path / "localtime"
    monkeypatch.setattr(cron, "_LOCALTIME", local)

    def zone(tz=None):
        cron.schedule.cache_clear()
        found = cron.schedule("0 2 * * *", None, local=tz)
        assert not found.said
        return found.name, found.zone

    assert zone() == ("UTC", ZoneInfo("UTC"))  # a container without the file
    assert zone(":America/New_York") == ("America/New_York", ZoneInfo("America/New_York"))
    assert zone("")[0] == "UTC"
    data = next(
        Path(each) / "Asia/Kathmandu"
        for each in ("/usr/share/zoneinfo", *_packaged())
        if (Path(each) / "Asia/Kathmandu").exists()
    )
    local.symlink_to(data)
    assert zone()[0] == "Asia/Kathmandu"
    local.unlink()
    local.write_bytes(data.read_bytes())  # copied, not linked: the rules without the name
    name, found = zone()
    assert name == str(local)
    assert datetime(2026, 1, 1, tzinfo=found).utcoffset() == timedelta(hours=5, minutes=45)
    local.write_bytes(b"no zone")
    with pytest.raises(WrongError, match="says no zone"):
        zone()
    with pytest.raises(WrongError, match="TZ here is 'CET-1CEST', which names no zone"):
        zone("CET-1CEST")


def _packaged():
    try:
        import tzdata
    except ImportError:
        return []
    return [Path(tzdata.__file__).parent / "zoneinfo"]


def test_leap_days_are_found_across_2100():
    found = islice(made("0 0 29 2 *").later(utc("2095-01-01T00:00Z")), 3)
    assert [at.year for at in found] == [2096, 2104, 2108]
    assert [at.year for at in islice(made("0 0 29 2 */7").later(utc("2080-01-01T00:00Z")), 2)] == [2088, 2128]


def test_after_the_first_of_an_hour_that_comes_twice_is_the_next_day():
    schedule = made("30 1 * * *", "America/New_York")
    assert schedule.next(utc("2026-11-01T06:15Z")) == utc("2026-11-02T06:30Z")  # 01:15, the second time


def test_words_and_what_is_odd_about_an_hour():
    schedule = made("30 2 * * *", "Europe/Paris")
    assert schedule.words == "At 02:30 every day"
    before = utc("2026-03-28T12:00Z")
    at = schedule.next(before)
    assert at == utc("2026-03-29T01:00Z")
    assert cron.remarks(schedule, at, before) == [
        "the clock has moved from UTC+01:00 to UTC+02:00",
        "the clock jumps over the time that was meant; this is right after it",
    ]
    after = schedule.next(at)
    assert cron.remarks(schedule, after, at) == []
    at = schedule.next(utc("2026-10-24T12:00Z"))
    assert cron.remarks(schedule, at, at) == ["02:30 comes twice; this is the first"]
    hourly = made("0 * * * *", "Europe/Paris")
    two = list(islice(hourly.later(utc("2026-10-24T23:30Z")), 2))
    assert [cron.remarks(hourly, at, two[0])[-1][-10:] for at in two] == [" the first", "the second"]


# a reference that tries every minute

ZONES = (
    "UTC",
    "Europe/Paris",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "Asia/Kathmandu",
    "America/Havana",
)
CHANGES = (
    "2026-03-08",
    "2026-03-29",
    "2026-11-01",
    "2026-10-25",
    "2026-04-05",
    "2026-10-04",
    "2026-04-24",
    "2026-10-30",
    "2026-01-31",
)


def _field(low, high):
    number = st.integers(low, high)
    steps = st.integers(2, 20).map(lambda n: (f"*/{n}", set(range(low, high + 1)[::n])))
    ranges = (
        st.tuples(number, number).map(sorted).map(lambda r: (f"{r[0]}-{r[1]}", set(range(r[0], r[1] + 1))))
    )
    lists = st.lists(number, min_size=1, max_size=3).map(lambda ns: (",".join(map(str, ns)), set(ns)))
    return st.one_of(st.just(("*", set(range(low, high + 1)))), steps, ranges, lists)


def reference(fields, zone, start, days):
    """The instants by trying every minute: intervals by the real hours, set times by the wall's."""
    (mt, minutes), (ht, hours), (dt, dom), (_, months), (wt, dow) = fields

    def day(local):
        a, b = local.day in dom, (local.isoweekday() % 7 in dow or local.isoweekday() in dow)
        return local.month in months and ((a and b) if dt[0] == "*" or wt[0] == "*" else (a or b))

    def fits(local):
        return local.minute in minutes and local.hour in hours and day(local)

    if mt[0] == "*" or ht[0] == "*":
        every = (start + timedelta(minutes=n) for n in range(1, days * 1440))
        return [at for at in every if fits(at.astimezone(zone))]
    wall = start.astimezone(zone).replace(tzinfo=None) - timedelta(hours=3)
    found = set()
    for n in range(days * 1440):
        local = wall + timedelta(minutes=n)
        if fits(local):
            at = local.replace(tzinfo=zone).astimezone(UTC)
            while local != at.astimezone(zone).replace(tzinfo=None):  # jumped over
                local += timedelta(minutes=1)
                at = local.replace(tzinfo=zone).astimezone(UTC)
            found.add(at)
    return sorted(at for at in found if at > start)


@settings(max_examples=60, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(
    fields=st.tuples(_field(0, 59), _field(0, 23), _field(1, 31), _field(1, 12), _field(0, 7)),
    zone=st.sampled_from(ZONES),
    date=st.sampled_from(CHANGES),
    back=st.integers(0, 2 * 1440),
)
def test_the_instants_are_those_of_trying_every_minute(fields, zone, date, back):
    start = utc(f"{date}T12:00Z") - timedelta(minutes=back)
    try:
        schedule = made(" ".join(text for text, _ in fields), zone)
    except WrongError:
        return  # no date is like that: the table has those
    want = reference(fields, ZoneInfo(zone), start, 3)
    if want:
        want = [at for at in want if at < start + timedelta(days=2)]
        assert list(islice(schedule.later(start), len(want))) == want
        at = start
        assert [at := schedule.next(at) for _ in want[:20]] == want[:20]
