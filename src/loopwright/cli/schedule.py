"""The verb schedule preview.

Rule: it reads the loop file and the clock; nothing is started and no store is opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from loopwright.cli.read import emit
from loopwright.cli.where import as_json, enter
from loopwright.unattended import Trigger
from loopwright.units import duration

SCHEMA: Final = "loopwright/schedule/v1"
MOST: Final = 1000


@click.group("schedule")
def schedule_() -> None:
    """Look at the schedules of a loop."""


@schedule_.command("preview")
@click.argument("loopfile")
@click.option(
    "--count", metavar="N", type=click.IntRange(1, MOST), default=5, help="So many starts of each; else 5."
)
@click.option("-C", "folder", metavar="DIR", default=".", help="Work as if started in DIR.")
@as_json
def preview(loopfile: str, count: int, folder: str, json_: bool) -> None:
    """Show when the schedules of LOOPFILE would start it, here and in UTC."""
    from loopwright.config import load
    from loopwright.serving.book import called
    from loopwright.triggers.cron import schedules
    from loopwright.unattended import triggers_of

    environ = dict(os.environ)
    loaded = load(loopfile, folder=enter(folder), path=environ.get("PATH", ""))
    name = loaded.loop.name or (called(loaded.file) if loaded.file is not None else "loop")
    triggers = triggers_of(loaded.loop.trigger)
    found = schedules(triggers, local=environ.get("TZ"), places=loaded.places)
    now = datetime.now(UTC)
    said = [_said(each, schedule, name, count, now) for each, schedule in zip(triggers, found, strict=True)]
    if json_:
        emit({"schema": SCHEMA, "loop": name, "now": now, "triggers": said})
        return
    click.echo(
        "\n\n".join("\n".join(_lines(each)) for each in said)
        or f"{name} has no [[trigger]]: it starts by hand"
    )


def _said(trigger: Trigger, schedule: Any, name: str, count: int, now: datetime) -> dict[str, Any]:
    """A trigger, and when it starts what."""
    if trigger.webhook is not None:
        return {
            "kind": "webhook",
            "path": f"/hooks/{trigger.webhook}",
            "signature": trigger.signature,
            "overlap": trigger.overlap,
        }
    if trigger.cron is None:
        return {"kind": "watch", "watch": trigger.watch, "overlap": trigger.overlap}
    from loopwright.serving.slots_due import delay
    from loopwright.triggers.cron import remarks

    coming, before = [], now
    for at in schedule.later(now):
        start = at + delay(schedule, trigger, name, at)
        local = at.astimezone(schedule.zone)
        row = {
            "local": local.isoformat(),
            "utc": at,
            "start": start,
            "remarks": remarks(schedule, at, before),
        }
        coming.append({**row, "zone": f"{local:%Z}"})
        before = at
        if len(coming) == count:
            break
    return {
        "kind": "cron",
        "cron": trigger.cron,
        "words": schedule.words,
        "tz": schedule.name,
        "tz_said": schedule.said,
        "misfire": trigger.misfire,
        "grace_s": trigger.grace,
        "overlap": trigger.overlap,
        "jitter_s": trigger.jitter,
        "next": coming,
    }


_MISSED: Final = {
    "skip": "a missed start is skipped",
    "run_once": "one start stands for all that were missed",
    "run_all": "every missed start is made up for, 100 at most",
}
_OVERLAP: Final = {
    "skip": "skipped while a run of it is under way",
    "queue": "runs follow each other",
}


def _lines(said: Mapping[str, Any]) -> Iterable[str]:
    """A trigger for people."""
    if said["kind"] == "webhook":
        yield f"webhook  {said['path']}, signed ({said['signature']}); {_OVERLAP[said['overlap']]}"
        return
    if said["kind"] == "watch":
        yield f"watch  {', '.join(said['watch'])}; {_OVERLAP[said['overlap']]}"
        return
    yield f"cron  {said['cron']}"
    yield f"  {said['words'][:1].lower()}{said['words'][1:]}"
    yield (
        f"  {said['tz']}"
        if said["tz_said"]
        else f"  this machine's zone: {said['tz']} (say tz to make it sure)"
    )
    delayed = f"; up to {duration(said['jitter_s'])} later than its time" if said["jitter_s"] else ""
    yield f"  {_OVERLAP[said['overlap']]}; {_MISSED[said['misfire']]} (missed: more than {duration(said['grace_s'])} late){delayed}"
    for row in said["next"]:
        local = datetime.fromisoformat(row["local"])
        late: timedelta = row["start"] - row["utc"]
        start = f"  +{duration(round(late.total_seconds()))}" if late.total_seconds() >= 1 else ""
        odd = "".join(f"  ({each})" for each in row["remarks"])
        yield f"  {local:%a %Y-%m-%d %H:%M} {row['zone']:<5} = {row['utc']:%Y-%m-%d %H:%M} UTC{start}{odd}"
    if not said["next"]:
        yield "  not within fifty years"
