"""What an agent's error text means: one table of patterns, and the time it names.

Rule: pure, and fed from the error channel only (structured fields, exit status, the END of stderr), never from what
an agent wrote as prose. The last line that means something decides; within a line the first row of `RULES` that fits.
A pattern that ends a run (permanent) must be narrow, one that waits may be wide: a wrong wait costs a little time.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from email.utils import parsedate_to_datetime
from typing import Final
from zoneinfo import ZoneInfo

from loopwright.core.values import FailureKind
from loopwright.prompt import clean, fit

YEAR_S: Final = 365 * 86400.0
PAST_S: Final = 60.0  # a reset that has passed: soon, but not at once
NEAR_S: Final = 30.0  # clocks differ: a reset named to the minute may be this much later
TOLERANCE: Final = timedelta(minutes=15)  # a clock time so long ago is a late message, not tomorrow's time
TAIL_CHARS: Final = 8192
TAIL_LINES: Final = 60


@dataclass(frozen=True, slots=True)
class Failure:
    """What an error text means: the kind, the line that says so, and seconds not to try again before."""

    kind: FailureKind
    message: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table: lines that `pattern` finds something in are of that kind, for that reason."""

    kind: FailureKind
    why: str
    pattern: re.Pattern[str]


def _rule(kind: FailureKind, why: str, *patterns: str) -> Rule:
    return Rule(kind, why, re.compile("|".join(patterns), re.IGNORECASE))


def _http(codes: str) -> str:
    """A status code where it is one: after a word that announces it or in brackets, not any number."""
    return (
        r"\b(?:https?(?:/[\d.]+)?|status(?:[_ ]?code)?|code|error(?:[_ ]code)?)[\"']?\s?[:=(\[]?\s?[\"']?(?:status )?"
        rf"(?:{codes})\b(?!\s*(?:[!=]=|%|tests?\b|files?\b|lines?\b|ms\b))|\s\((?:{codes})\)(?!:)"
    )


_FILE: Final = (
    r"\w{0,60}\.(?:[jt]sx?|pyi?|go|rs|rb|java|cc?|cpp|h|txt|md|json|ya?ml|toml|log|sh)\b"  # no error, a name
)
_STATED: Final = r"(?:try again|retry|available|resets?|reset)\b.{0,20}?\b(?:in|after)\s+\d"
_LIMIT_WORDS: Final = (
    r"(?:usage|rate|session|hour(?:ly)?|daily|weekly|monthly|request|quota|spend(?:ing)?|plan)"
)

RULES: Final[tuple[Rule, ...]] = (
    _rule(
        "permanent",
        "billing",
        r"insufficient[_ ]quota",
        r"billing_error|billing_hard_limit",
        r"credit balance is too low|out of credits?\b|insufficient (?:credits?|funds|balance)",
        r"payment required",
        _http("402"),
        # Gemini says the same of a limit per minute, but then with a time.
        rf"(?<!\w)exceeded your current quota(?!.*{_STATED})|check your (?:plan and )?billing(?!.*{_STATED})",
    ),
    _rule(
        "context_overflow",
        "the context is full",
        r"prompt(?: is|_)?[ _]?too[ _]long|input is too long",
        r"context[_ ]length|context[_ ]?overflow|maximum context|context window|exceeds? (?:the )?context limit",
        r"request[_ ](?:entity[_ ])?too[_ ]large",
        _http("413"),
    ),
    _rule(
        "rate_limited",
        "rate limited",
        _http("429"),
        r"too many requests|too many tokens, please wait|\b429\b.{0,40}\b(?:try again|retry)",
        rf"(?:\brate[ _-]?|(?-i:Rate))limit(?!ers?(?![a-z])|{_FILE})|\bthrottl(?:ed|ing)(?:exception|error)?\b|usage_limit_reached",
        rf"\b{_LIMIT_WORDS}[ -]limits? (?:has been |was )?(?:reached|exceeded|hit)",
        r"\bhit your (?:[\w-]+ ){0,3}limit",
        r"resource_exhausted|exhausted your capacity|quota(?: will reset| ?exceeded| has been exceeded)",
        r"exceeded your current quota|\blimit reached\b.*\bresets?\b",
        r"\bresets?(?: at)? (?:[A-Z][a-z]{2,8}\.? \d{1,2},? (?:at )?)?\d{1,2}(?::\d\d)?\s*[ap]\.?m\b",
    ),
    _rule(
        "permanent",
        "model",
        r"model_not_found|(?:unknown|invalid|unsupported|no such) model\b",
        r"\bmodel\b:?\s+\S{1,100}\s+(?:was |is )?not (?:found|supported|available)\b|\bmodel not found",
        r"\bmodel\b.{0,100}\bdoes not exist|(?:issue|problem) with the selected model",
        rf"(?:{_http('404')}).{{0,100}}\bmodel\b",
    ),
    _rule(
        "permanent",
        "authentication",
        _http("401|403"),
        r"(?:invalid|incorrect|missing|expired|revoked|malformed)[ _](?:x-)?api[ _-]?key|api key (?:not|is not) (?:valid|found|set)",
        r"authentication[_ ](?:error|failed)|AuthenticationError|failed to authenticate|\bunauthorized\b",
        r"\b(?:account|organi[sz]ation|workspace|user) (?:has been |is |was )?(?:disabled|suspended|deactivated|terminated)",
        r"missing environment variable: `?\w{0,60}(?:key|token)\b",
        r"not logged in|please (?:run /?log ?in|log ?in|sign in)|login required|(?:token|credentials) (?:has |have )?expired",
    ),
    _rule(
        "permanent",
        "the command line",
        r"(?:unknown|unrecogni[sz]ed|no such|unexpected) (?:command.line )?(?:option|argument|flag|(?:sub)?command)s?\b",
        r"(?:invalid|illegal) (?:option|flag)\b",
        r"the following arguments are required|requires an argument\b|missing (?:argument|option|parameter) ['\"]",
        r"\busage error\b|cannot be used with\b",
    ),
    _rule(
        "blocked",
        "not allowed",
        r"permission denied|operation not permitted|permission_denied",
        r"(?:needs|requires|require|awaiting|waiting for) (?:your |user |human |manual )?(?:approval|permission)",
        r"(?:tool|command|action)\b.{0,60}\b(?:was|is|were) (?:denied|refused|rejected|not allowed|not permitted)",
        r"\b(?:denied|refused) (?:the )?(?:use of|permission|access to (?:the )?tool)",
    ),
    _rule(
        "transient",
        "a passing fault",
        _http("408|500|502|503|504|520|522|524|529"),
        r"overloaded|at capacity|experiencing high demand|internal server error|bad gateway|service unavailable|gateway time-?out",
        r"temporarily unavailable|temporary failure|try again (?:later|in a moment)",
        r"timed out|\btime-?out\b|deadline exceeded",
        r"connection (?:was |is )?(?:reset|refused|aborted|closed|dropped|error|lost|failed|terminated)",
        r"\bE(?:CONNRESET|CONNREFUSED|CONNABORTED|TIMEDOUT|HOSTUNREACH|NETUNREACH|NOTFOUND|AI_AGAIN|PIPE)\b",
        r"could not resolve host|name resolution|network (?:is unreachable|error)|socket hang ?up|fetch failed",
        r"stream disconnected|broken pipe|waiting for network|remote end closed",
    ),
)

_NOT_FOUND: Final = re.compile(r":? (?:command )?not found\s*$", re.IGNORECASE)
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_AFTER: Final = re.compile(
    r"retry[-_ ]?after(?P<ms>[-_ ]?ms)?[\"']?\s*[:=]\s*[\"']?(?:(?P<n>\d+(?:\.\d+)?)|(?P<date>[A-Z][a-z]{2,8},? [^\"';\n]{10,40}))",
    re.IGNORECASE,
)
_EPOCH: Final = re.compile(
    r"(?:\||reset[a-z_-]{0,40}(?: at)?[\"']?\s*[:=]\s*[\"']?)(?P<n>\d{10}(?:\d{3})?)\b", re.IGNORECASE
)
_ISO: Final = re.compile(
    r"(?:reset[a-z_-]{0,40}|\b(?:try again|retry|available))(?:\s(?:at|on|time|after))*[\"']?\s*[:=]?\s*[\"']?"
    r"(?P<date>20\d\d-\d\d-\d\d[T ][\d:.]{5,16}(?:Z|[+-]\d\d:\d\d)?)",
    re.IGNORECASE,
)
_UNIT: Final = (
    r"(?:ms|milli[a-z]*|s(?:ec[a-z]*)?|m(?:in[a-z]*)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?)(?![a-z])"
)
_LENGTH: Final = re.compile(
    r"(?:\bwait\s+(?:for\s+)?(?:at least\s+)?|\b(?:try again|retry|wait|available|resets?)\b[^.;\n\d]{0,24}?(?:\b(?:in|after|for)\s+|\bwait\s+)"
    r"|(?:retry_?delay|resets?_in_seconds|retry_in|ratelimit-reset[a-z-]{0,40})[\"']?\s*[:=]\s*[\"']?)"
    r"(?!20\d\d-\d\d-)(?P<parts>\d+(?:\.\d+)?"
    rf"(?:\s*{_UNIT})?(?:(?:,?\s+|,?\s+and\s+)?\d+(?:\.\d+)?\s*{_UNIT})*)",
    re.IGNORECASE,
)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_CLOCK: Final = re.compile(
    r"\b(?:resets?|try again)(?: (?:at|on))?[:\s]+(?:(?P<word>[A-Z][a-z]{2,8})\.?,?\s+"
    r"(?:(?P<day>\d{1,2})(?:st|nd|rd|th)?\b,?\s*(?:(?P<year>20\d\d)\b,?\s*)?)?(?:at\s+)?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>[ap])?\.?(?(half)m\b)\.?"
    r"(?:\s*\((?P<zone>[^()\n]{1,64})\)|\s+(?P<bare>[A-Z][a-z]+(?:/[A-Za-z_+-]+){1,2}|(?-i:[A-Z]{2,4}T|UTC)\b))?",
    re.IGNORECASE,
)


def classify(text: str, now: datetime, *, rules: tuple[Rule, ...] = RULES) -> Failure:
    """What the end of an error text means at `now`; `unknown` with the end of the text where no rule fits.

    `retry_after_s` is a lower bound, 0 to a year, and only there when waiting can help. A clock time
    without a zone is read in the zone of `now`; a `now` without a zone is UTC.
    """
    now = now if now.tzinfo else now.replace(tzinfo=UTC)
    lines = [line.strip() for line in clean(text[-TAIL_CHARS:]).splitlines() if line.strip()][-TAIL_LINES:]
    joined = " ".join(lines)  # some tools wrap their messages
    for line in (*reversed(lines), joined):
        rule = next((rule for rule in rules if rule.pattern.search(line)), None)
        if rule is None:
            continue
        if rule.kind == "rate_limited" and (lasting := _lasting(lines, rules)):
            return lasting
        if rule.kind not in {"rate_limited", "transient"}:
            return Failure(rule.kind, f"{rule.why}: {fit(line, 500)}")
        seconds, note = _wait(line, now)
        if seconds is None and not note:
            seconds, note = _wait(joined, now)
        return Failure(rule.kind, f"{rule.why}: {fit(line, 500)}{note}", seconds)
    return Failure("unknown", fit("\n".join(lines), 2000))


def of_exit(code: int | None, signal: int | None, stderr: str, now: datetime) -> Failure:
    """What an exit status (or the signal that ended it) with the end of stderr means; the status comes first."""
    if signal is not None:
        memory = "; out of memory?" if signal == signals.SIGKILL else ""
        said = classify(stderr, now, rules=()).message
        return Failure("unknown", _with(f"{status(code, signal)}{memory}", said))
    failure = classify(stderr, now)
    last = (clean(stderr[-TAIL_CHARS:]).strip().splitlines() or [""])[-1].strip()
    if code == 127 or (failure.kind == "unknown" and _NOT_FOUND.search(last) and "sh:" in last):
        return Failure("permanent", _with(f"command not found (exit {code})", last))
    if code == 126:
        return Failure("permanent", _with("the command is not executable (exit 126)", last))
    if (
        failure.kind == "unknown"
        and code == 2
        and re.search(r"^usage:", stderr[-TAIL_CHARS:], re.IGNORECASE | re.MULTILINE)
    ):
        return Failure("permanent", _with("the command line (exit 2)", fit(last, 500)))
    if failure.kind == "unknown":
        inner = f", killed by {_signal_name(code - 128)} inside" if code and 128 < code < 160 else ""
        return Failure("unknown", _with(f"exit {code}{inner}", failure.message))
    return Failure(failure.kind, f"{failure.message} (exit {code})", failure.retry_after_s)


def status(code: int | None, signal: int | None) -> str:
    """An exit status in words: `exit 1`, `killed by SIGKILL`."""
    return f"exit {code}" if signal is None else f"killed by {_signal_name(signal)}"


def _with(what: str, detail: str) -> str:
    return f"{what}: {detail}" if detail else what


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _lasting(lines: list[str], rules: tuple[Rule, ...]) -> Failure | None:
    """The billing fault that a 429 stands beside: waiting does not fill an account."""
    for line in reversed(lines):
        for rule in rules:
            if rule.why == "billing" and rule.pattern.search(line):
                return Failure(rule.kind, f"{rule.why}: {fit(line, 500)}")
    return None


def _wait(line: str, now: datetime) -> tuple[float | None, str]:
    """Seconds from `now` until the time this line names, and a note when it names one that cannot be read."""
    if found := _AFTER.search(line):
        if found["date"]:
            at = _date_of(found["date"], parsedate_to_datetime)
            return (None if at is None else _until(at, now)), ""
        return _bounded(float(found["n"]) / (1000 if found["ms"] else 1)), ""
    if found := _EPOCH.search(line):
        number = found["n"]
        ahead = int(number) / (1000 if len(number) == 13 else 1) - now.timestamp()
        return (PAST_S if ahead <= 0 else _bounded(max(NEAR_S, ahead))), ""
    if found := _ISO.search(line):
        at = _date_of(found["date"], datetime.fromisoformat)
        return (None if at is None else _until(at, now)), ""
    if found := _LENGTH.search(line):
        return _bounded(_length(found["parts"])), ""
    for found in _CLOCK.finditer(line):
        if found["half"] or found["minute"]:
            return _clock(found, now)
    return None, ""


def _bounded(seconds: float) -> float:
    return min(YEAR_S, max(0.0, seconds))


def _until(at: datetime, now: datetime) -> float:
    ahead = (at - now).total_seconds()
    return PAST_S if ahead <= 0 else _bounded(max(NEAR_S, ahead))


def _date_of(text: str, read: Callable[[str], datetime]) -> datetime | None:
    """The instant `text` names, UTC where it names no zone; `None` when it cannot be read."""
    try:
        at = read(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


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
        return None, f" (unknown time zone {named}, so the usual back-off holds)"
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
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
    if name is None:
        return now.tzinfo
    if name.strip().upper() in {"UTC", "GMT", "Z"}:
        return UTC  # there may be no time zone database
    try:
        return ZoneInfo(name.strip())
    except (KeyError, ValueError, OSError):
        return None


def _days(found: re.Match[str], today: datetime) -> tuple[list[datetime], timedelta]:
    """The days a clock time may be about, and how long past it is a late message, not the next one."""
    word = (found["word"] or "").lower()[:3]
    if word == "tom":  # tomorrow
        return [today + timedelta(days=1)], timedelta()
    if found["day"] and word in _MONTHS:
        years = [int(found["year"])] if found["year"] else [today.year - 1, today.year, today.year + 1]
        dates = (_date(today, year, _MONTHS.index(word) + 1, int(found["day"])) for year in years)
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
