"""Schedules: five fields and a zone, as the instants at which they start a run.

Rule: what is wrong is said when it is configured, whatever day it is then: a field, a zone, a date that never comes. A
schedule is its instants in UTC and nothing else; who was late, and what becomes of it, is decided elsewhere.

The fields mean what they mean to Debian's cron. Day-of-month and day-of-week are joined by *or*, unless one of the two
begins with a star: then by *and* (`0 0 */2 * 1` is every Monday with an odd date). A time that the clock jumps over
starts right after the jump, one that comes twice starts the first time; where the minute or the hour begins with a star
the schedule is an interval, which follows the real hours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, available_timezones

from loopwright.errors import ConfigError
from loopwright.places import told
from loopwright.readers import Fault, WrongError, hint
from loopwright.unattended import Trigger
from loopwright.units import shown

if TYPE_CHECKING:
    from cronsim import CronSim

FIELDS: Final = ("minute", "hour", "day-of-month", "month", "day-of-week")
_TAKES: Final = {
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31, or L for the last",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT (0 and 7 are both Sunday, and a range goes upward)",
}
_SHORT: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LONGEST: Final = 200
_ANY_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC)  # whether a date ever comes does not depend on today
_LOCALTIME: Final = Path("/etc/localtime")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A cron expression in a zone. `name` is the zone's, `said` whether the loop file says it."""

    expr: str
    zone: ZoneInfo
    name: str
    said: bool

    def next(self, after: datetime) -> datetime | None:
        """The first instant after this one, in UTC; `None` where none comes for fifty years."""
        return _next(self, after)

    def later(self, after: datetime) -> Iterator[datetime]:
        """The instants after this one, in UTC and in their order."""
        sim, last = _simulated(self.expr, after.astimezone(self.zone)), after
        for local in sim:
            at = local.astimezone(UTC)
            if at > last:  # an hour that comes twice counts once, and never backwards
                last = at
                yield at

    @property
    def words(self) -> str:
        """The same, as a person would say it."""
        return _simulated(self.expr, _ANY_DAY).explain()

    def moved(self, at: datetime) -> bool:
        """Whether the clock jumped over the time that was meant, so that `at` stands for it."""
        sim, local = _simulated(self.expr, _ANY_DAY), at.astimezone(self.zone)
        return local.hour not in sim.hours or local.minute not in sim.minutes


@lru_cache(maxsize=1024)
def _next(schedule: Schedule, after: datetime) -> datetime | None:
    return next(schedule.later(after), None)


def _simulated(expr: str, start: datetime) -> CronSim:
    from cronsim import CronSim  # only who has a schedule needs it

    return CronSim(expr, start)


def schedules(
    triggers: Iterable[Trigger], *, local: str | None, places: Mapping[str, str] | None = None
) -> tuple[Schedule | None, ...]:
    """The schedule of each trigger, `None` for those that are none; `local` is the value of TZ here.

    `ConfigError` has everything that is wrong, where `places` says it was written.
    """
    found: list[Schedule | None] = []
    faults: list[Fault] = []
    for i, trigger in enumerate(triggers):
        try:
            found.append(None if trigger.cron is None else schedule(trigger.cron, trigger.tz, local=local))
        except WrongError as bad:
            faults += [(f"trigger[{i}].{key}", what) for key, what in bad.faults]
    if faults:
        raise ConfigError(*told(faults, places or {}))
    return tuple(found)


@lru_cache(maxsize=256)
def schedule(expr: str, tz: str | None, *, local: str | None) -> Schedule:
    """The schedule that `expr` means in the zone `tz`, else in this machine's; `local` is the value of TZ here.

    `WrongError` says what is wrong with `cron` and with `tz`; `ConfigError` where nothing reads schedules.
    """
    faults: list[Fault] = []
    fields = " ".join(expr.split()).upper()
    if what := _wrong(fields, expr):
        faults.append(("cron", what))
    try:
        name, zone = _local(local) if tz is None else (tz, _zone(tz))
    except ValueError as error:
        faults.append(("tz", str(error)))
    if faults:
        raise WrongError(*faults)
    made = Schedule(expr=fields, zone=zone, name=name, said=tz is not None)
    if made.next(_ANY_DAY) is None:
        raise WrongError(("cron", f"{shown(expr)} never comes: no date is like that"))
    return made


def _wrong(fields: str, said: str) -> str:
    """What is wrong with an expression, or nothing."""
    try:
        import cronsim
    except ImportError:
        raise ConfigError('schedules need more than the base: pip install "loopwright[serve]"') from None
    if said.lstrip().startswith("@"):
        same = _SHORT.get(said.strip().lower())
        instead = f"write {same!r}" if same else f"five fields are wanted: {' '.join(FIELDS)}"
        return f"{shown(said)} is not taken: {instead}"
    parts = fields.split()
    if len(parts) != len(FIELDS) or len(fields) > _LONGEST:
        seconds = (
            " (a run starts on a minute: leave out the seconds)" if len(parts) == len(FIELDS) + 1 else ""
        )
        many = (
            f"has {len(parts)} field{'s' * (len(parts) != 1)}" if len(fields) <= _LONGEST else "is too long"
        )
        return f"{shown(said)} {many}; five are wanted: {' '.join(FIELDS)}{seconds}"
    for i, (field, part) in enumerate(zip(FIELDS, parts, strict=True)):
        alone = " ".join(part if i == j else "*" for j in range(len(FIELDS)))
        try:
            _simulated(alone, _ANY_DAY)
        except cronsim.CronSimError:
            return f"{shown(said)}: {part!r} is no {field}: {_TAKES[field]}"
    try:
        _simulated(fields, _ANY_DAY)
    except cronsim.CronSimError:
        return f"{shown(said)} never comes: none of its months has such a day"
    return ""


def _zone(name: str) -> ZoneInfo:
    """The zone of this name; `ValueError` with the nearest where there is none."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # not found, a folder, a path out of the database
        known = available_timezones()
        if not known:
            raise ValueError(
                f"{shown(name)}: this machine has no database of zones: install tzdata (pip install tzdata)"
            ) from None
        near = hint(name, sorted(known))
        raise ValueError(
            f"{shown(name)} is no zone{near or '; write one like Europe/Paris, or UTC'}"
        ) from None


def _local(said: str | None) -> tuple[str, ZoneInfo]:
    """This machine's zone with its name: what TZ says, else /etc/localtime, else UTC."""
    if said is not None:
        name = said.removeprefix(":") or "UTC"
        if not name.startswith("/"):
            try:
                return name, _zone(name)
            except ValueError:
                raise ValueError(
                    f'TZ here is {shown(said)}, which names no zone: say tz = "Europe/Paris" or the like'
                ) from None
        file = Path(name)
    else:
        file = _LOCALTIME
    if not file.exists():
        return "UTC", ZoneInfo("UTC")
    found = re.search(r"/zoneinfo/(?:posix/|right/)?(.+)$", os.path.realpath(file))
    if found is not None:
        return found[1], _zone(found[1])
    try:
        with file.open("rb") as data:
            return str(file), ZoneInfo.from_file(data, key=str(file))
    except (ValueError, OSError):
        raise ValueError(f'{file} says no zone: say tz = "Europe/Paris" or the like') from None


def remarks(schedule: Schedule, at: datetime, before: datetime) -> list[str]:
    """What is unusual about the clock at `at`, seen from the instant `before`."""
    local, earlier = at.astimezone(schedule.zone), before.astimezone(schedule.zone)
    found = []
    if local.utcoffset() != earlier.utcoffset():
        found.append(f"the clock has moved from {offset(earlier)} to {offset(local)}")
    if schedule.moved(at):
        found.append("the clock jumps over the time that was meant; this is right after it")
    elif _twice(local):
        found.append(f"{local:%H:%M} comes twice; this is the {'second' if local.fold else 'first'}")
    return found


def offset(local: datetime) -> str:
    """How far a local time is from UTC: `UTC+02:00`."""
    said = f"{local:%z}"
    return f"UTC{said[:3]}:{said[3:5]}"


def _twice(local: datetime) -> bool:
    first, second = local.replace(fold=0), local.replace(fold=1)
    return (first.utcoffset() or timedelta()) > (second.utcoffset() or timedelta())
