"""When an error text says to try again: seconds, dates and clock times, in the words of many makers.

Rule: pure. What a text names is a lower bound, 0 to a year; a time that has passed is a short wait, never none and
never a day; clocks differ, so a near time is a little later. A time that cannot be read is none, and nothing raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from email.utils import parsedate_to_datetime
from typing import Final
from zoneinfo import ZoneInfo

YEAR_S: Final = 365 * 86400.0
PAST_S: Final = 60.0  # a reset that has passed: soon, but not at once
NEAR_S: Final = 30.0  # clocks differ: a reset named to the minute may be this much later
TOLERANCE: Final = timedelta(minutes=15)  # a clock time so long ago is a late message, not tomorrow's time

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# Hours from UTC, as makers mean these letters.
_WEST: Final = {"PST": -8, "PDT": -7, "MST": -7, "MDT": -6, "CST": -6, "CDT": -5, "EST": -5, "EDT": -4}
_EAST: Final = {"BST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "IST": 5.5, "SGT": 8, "JST": 9, "KST": 9}
_ZONES: Final = _WEST | _EAST
_COAST: Final = "America/Los_Angeles"
_PLACES: Final = {"PT": _COAST, "PACIFIC": _COAST, "ET": "America/New_York", "EASTERN": "America/New_York"}
_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d\d))?")

_AGAIN: Final = (  # what announces a time: what comes back then
    r"\b(?:resets?|renews?|refresh(?:es)?|(?:try|available|back|retry)(?: it)?(?: again)?|wait|until|regain(?: \w+)? access|restored|lifted|refills?|allowed|unlocks?)"
)
_AFTER: Final = re.compile(
    r"retry[-_ ]?after(?P<ms>[-_ ]?(?:ms|milliseconds))?(?:[-_ ]?s(?:ec(?:ond)?s?)?)?[\"']?\s*"
    r"(?:[:=]\s*[\"']?(?P<n>\d+(?:\.\d+)?)(?![\d.,]*(?:\s*[hmd:-]|[a-rt-z]|,\d))"
    r"|[:=]?\s*[\"']?(?P<date>(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6},? [^\"';\n]{10,40}))",
    re.IGNORECASE,
)
_FIELD: Final = re.compile(  # a length in seconds, as a field: of the two that some send, the one no clock can spoil
    r"\b(?:x-[a-z-]{0,30})?resets?[-_ ]?(?:in|after)[-_ ]?(?P<ms>ms|milliseconds)?(?:s|sec(?:ond)?s?)?[\"']?\s*[:=]\s*[\"']?"
    r"(?P<n>\d+(?:\.\d+)?)\b(?![.:-])|\bretry_?delay[\"']?\s*:?\s*\{\s*[\"']?seconds[\"']?\s*:\s*[\"']?(?P<delay>\d+)",
    re.IGNORECASE,
)
_EPOCH: Final = re.compile(
    r"(?:\||(?:reset|retry|available|until|lifted|allowed)[a-z_-]{0,40}(?:\s(?:at|on))?[\"']?\s*[:=\s]\s*[\"']?)(?P<n>\d{10}(?:\d{3})?)(?:\.\d+)?\b",
    re.IGNORECASE,
)
_ISO: Final = re.compile(
    rf"(?:retry[-_ ]?after|reset[a-z_-]{{0,40}}|{_AGAIN})(?:\s(?:at|on|time|after|access|will|be|is))*[\"']?\s*[:=]?\s*[\"']?"
    r"(?P<date>20\d\d[-/]\d\d[-/]\d\d)(?:(?:[T,]\s?|\s(?:at\s)?)(?P<clock>\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?))?"
    r"(?:\s?(?P<zone>Z\b|[+-]\d\d:?\d\d\b|(?-i:[A-Z]{2,4}T|UTC|GMT)\b))?",
    re.IGNORECASE,
)
_UNIT: Final = (
    r"(?:ms|milli[a-z]*|s(?:ec[a-z]*)?|m(?:in[a-z]*)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?)(?![a-z])"
)
_WORDS: Final = re.compile(  # a number as a word
    r"\b(?P<half>half (?:an? )?)?(?P<word>(?:an? )?(?:couple of|few)|an?|one|two|three|four|five|six|seven|eight|nine|ten)(?=\s+(?:more )?(?:sec|min|hour|day|week))"
    r"|\bhalf an(?= hour)",
    re.IGNORECASE,
)
_NUMBERS: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_LENGTH: Final = re.compile(
    r"(?:\bwait\s+(?:for\s+)?(?:at least\s+)?|\b(?:try again|retry|wait|available|resets?|back|allowed)\b[^.;\n\d]{0,24}?(?:\b(?:in|after|for)\s+|\bwait\s+)"
    r"|(?:retry_?delay|retry_in|retry[-_ ]?after|ratelimit-reset[a-z-]{0,40})[\"']?\s*[:=]\s*[\"']?)(?:about\s+|approximately\s+|~\s?)?"
    r"(?!20\d\d-\d\d-)(?P<parts>\d+(?:\.\d+)?(?!\d*(?:[:/]|[.,]\d))"
    rf"(?:\s*{_UNIT}|(?!\w)(?!\s+(?!(?:and|or|then|before)\b)[^\W\d_]{{2}}))(?:(?:,?\s+|,?\s+and\s+)?\d+(?:\.\d+)?\s*{_UNIT})*)(?!\s*[ap]\.?m\b)",
    re.IGNORECASE,
)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_CLOCK: Final = re.compile(
    rf"{_AGAIN}(?: (?:at|on|next|will be|access))*[:\s]+"
    r"(?:(?:on )?(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?,? (?=[A-Z]{3,9}\.? \d{1,2}\b|\d{1,2} [A-Z]{3}))?(?:(?P<day1>\d{1,2})(?:st|nd|rd|th)?\s+(?:de |of )?(?=[A-Z]{3}))?"
    r"(?:(?P<word>[A-Z][a-z]{2,8})\.?,?\s*"
    r"(?:(?<=\s)(?P<day>\d{1,2})(?!\d|:|\s*[ap]\.?m\b)(?:st|nd|rd|th)?\b,?\s*)?(?:(?:de )?(?P<year>20\d\d)\b,?\s*)?(?:at\s+)?)?"
    r"(?:(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?(?::\d\d)?\s*(?:(?P<half>[ap])\.?m\b)?\.?)?"
    r"(?:\s*\((?P<zone>[^()\n]{1,64})\)|\s*(?P<bare>(?:UTC|GMT)[+-]\d{1,2}(?::?\d\d)?|[A-Z][a-z]+(?:/[A-Za-z_+-]+){1,2}"
    r"|(?-i:[A-Z]{1,4}T|UTC|PACIFIC|Pacific|Eastern)\b))?",
    re.IGNORECASE,
)


def wait(line: str, now: datetime) -> tuple[float | None, str]:
    """Seconds from `now` until the time this line names, and a note when it names one that cannot be read.

    A clock time without a zone is read in the zone of `now`, a date without one in UTC.
    """
    if found := _AFTER.search(line):
        if found["date"]:
            at = _date_of(found["date"], parsedate_to_datetime)
            return (None if at is None else _until(at, now)), ""
        return bounded(float(found["n"]) / (1000 if found["ms"] else 1)), ""
    if found := _FIELD.search(line):
        return bounded(float(found["n"] or found["delay"]) / (1000 if found["ms"] else 1)), ""
    if found := _EPOCH.search(line):
        number = found["n"]
        ahead = int(number) / (1000 if len(number) == 13 else 1) - now.timestamp()
        return (PAST_S if ahead <= 0 else bounded(max(NEAR_S, ahead))), ""
    if found := _ISO.search(line):
        return _iso(found, now)
    if found := _LENGTH.search(_WORDS.sub(_figure, line)):
        return bounded(_length(found["parts"])), ""
    for found in _CLOCK.finditer(_named(line)):
        word = (found["word"] or "").lower()[:3]
        dated = word in {*_DAYS, "tom"} or (word in _MONTHS and (found["day"] or found["day1"]))
        if found["half"] or found["minute"] or (dated and not found["hour"]):
            return _clock(found, now)
    return None, ""


def bounded(seconds: float) -> float:
    """A wait as it may be: 0 to a year."""
    return min(YEAR_S, max(0.0, seconds))


def _until(at: datetime, now: datetime) -> float:
    ahead = (at - now).total_seconds()
    return PAST_S if ahead <= 0 else bounded(max(NEAR_S, ahead))


def _date_of(text: str, read: Callable[[str], datetime]) -> datetime | None:
    """The instant `text` names, UTC where it names no zone; `None` when it cannot be read."""
    try:
        at = read(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _iso(found: re.Match[str], now: datetime) -> tuple[float | None, str]:
    at = _date_of(f"{found['date'].replace('/', '-')}T{found['clock'] or '00:00'}", datetime.fromisoformat)
    zone = _zone(found["zone"] or "UTC", now)
    if at is None or zone is None:
        return None, "" if at is None else _unread(found["zone"])
    return _until(at.replace(tzinfo=zone), now), ""


def _unread(zone: str) -> str:
    return f" (unknown time zone {zone}, so the usual back-off holds)"


def _figure(found: re.Match[str]) -> str:
    """A number word as a figure: `an hour` is 1 hour, `half an hour` 0.5."""
    word = (found["word"] or "an").lower()
    several = 2 if "couple" in word else 3 if "few" in word else 1
    number = float(_NUMBERS.index(word) + 1 if word in _NUMBERS else several)
    return f"{number / 2 if found[0].lower().startswith('half') else number:g}"


def _named(line: str) -> str:
    """The line with `noon` and `midnight` as times."""
    line = re.sub(r"\bmidnight\b", "12:00am", line, flags=re.IGNORECASE)
    return re.sub(r"\bnoon\b", "12:00pm", line, flags=re.IGNORECASE)


def _length(parts: str) -> float:
    """Seconds of a length such as `7h38m7s`, `3 days 4 hours 9 minutes` or a bare number of seconds."""
    units = {"ms": 0.001, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "w": 604800.0}
    total = 0.0
    for number, unit in _PART.findall(parts):
        word = unit.lower()
        total += float(number) * units.get(
            word if word == "ms" or word.startswith("millis") else word[:1], 1.0
        )
    return total


def _clock(found: re.Match[str], now: datetime) -> tuple[float | None, str]:
    """Seconds until the next time the clock of the named zone shows this, and a note if it cannot be read."""
    named = found["zone"] or found["bare"]
    zone = _zone(named, now)
    if zone is None:
        return None, _unread(named)
    hour, minute = int(found["hour"] or 0), int(found["minute"] or 0)
    half = (found["half"] or "").lower()
    if minute > 59 or hour > 23 or (half and not 1 <= hour <= 12):
        return None, ""
    hour = hour % 12 + (12 if half == "p" else 0) if half else hour
    today = now.astimezone(zone).replace(
        hour=hour, minute=minute, second=0, microsecond=0, tzinfo=None, fold=0
    )
    days, late = _days(found, today)
    times = sorted(time for day in days for time in _instants(day, zone))
    due = [time for time in times if time >= now - late]
    return (_until(due[0], now) if due else PAST_S), ""


def _zone(name: str | None, now: datetime) -> tzinfo | None:
    """The zone of that name: a place, an abbreviation as makers mean it, or a distance from UTC."""
    if name is None:
        return now.tzinfo
    word = name.strip().upper().removesuffix(" TIME")
    if word in {"UTC", "GMT", "Z"}:
        return UTC  # there may be no time zone database
    if word in _ZONES:
        return timezone(timedelta(hours=_ZONES[word]))
    if distance := _OFFSET.fullmatch(word):
        hours, minutes = int(distance[2]), int(distance[3] or 0)
        if hours > 14 or minutes > 59:
            return None
        return timezone((1 if distance[1] == "+" else -1) * timedelta(hours=hours, minutes=minutes))
    try:
        return ZoneInfo(_PLACES.get(word, name.strip()))
    except (KeyError, ValueError, OSError):
        return None


def _days(found: re.Match[str], today: datetime) -> tuple[list[datetime], timedelta]:
    """The days a clock time may be about, and how long past it is a late message, not the next one."""
    word = (found["word"] or "").lower()[:3]
    day = found["day"] or found["day1"]
    if word == "tom":  # tomorrow
        return [today + timedelta(days=1)], timedelta()
    if day and word in _MONTHS:
        years = [int(found["year"])] if found["year"] else [today.year - 1, today.year, today.year + 1]
        dates = (_date(today, year, _MONTHS.index(word) + 1, int(day)) for year in years)
        return [date for date in dates if date], timedelta(days=30)
    if word in _DAYS:
        ahead = (_DAYS.index(word) - today.weekday()) % 7
        return [today + timedelta(days=ahead + days) for days in (-7, 0, 7)], timedelta(days=1)
    return [today + timedelta(days=days) for days in (-1, 0, 1)], TOLERANCE


def _date(today: datetime, year: int, month: int, day: int) -> datetime | None:
    try:
        return today.replace(year=year, month=month, day=day)
    except ValueError:
        return None


def _instants(wall: datetime, zone: tzinfo) -> list[datetime]:
    """When the clock shows this: twice when clocks are set back, moved forward where it is skipped."""
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    twice = second > first and second.astimezone(zone).replace(tzinfo=None, fold=0) == wall
    return [first, second] if twice else [first]
