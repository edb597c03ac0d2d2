"""Whether all is well here: every probe that is made, each with what to do about what it finds.

Rule: it reads only. Every probe has a limit; one that breaks or hangs is a finding like another.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from loopwright.begin import here, machine
from loopwright.begin.findings import Finding, Here, Probe
from loopwright.errors import LoopwrightError

LIMIT_S: Final = 15.0  # for one probe
PROBES: Final[tuple[tuple[str, Probe], ...]] = (
    ("python", machine.python),
    ("git", machine.git),
    ("folder", here.folder),
    ("filesystem", here.filesystem),
    ("space", here.space),
    ("clock", machine.clock),
    ("store", here.store),
    ("logins", here.logins),
    ("loop file", here.loop_file),
    ("names", here.named),
    ("agents", machine.coders),
    ("sandbox", machine.sandbox),
    ("leftovers", here.leftovers),
    ("environment", machine.environment),
    ("terminal", machine.terminal),
)


def examine(folder: Path, environ: dict[str, str], store: str | None) -> list[Finding]:
    """Everything that was found, in the order of `PROBES`, which are made at the same time."""
    place = Here(folder=folder, environ=environ, named_store=store)
    found: dict[str, list[Finding]] = {}
    reading = threading.Thread(
        target=lambda: place.loaded, daemon=True
    )  # once, for all: it may run a user's code
    reading.start()
    reading.join(LIMIT_S)
    _ = place.at_work  # before the probes start programs of their own here
    threads = [
        threading.Thread(target=_make, args=(name, probe, place, found), daemon=True)
        for name, probe in PROBES
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    silent = f"no answer within {LIMIT_S:.0f} s"
    return [
        each
        for name, _ in PROBES
        for each in found.get(
            name, [Finding(name=name, status="fail", what=silent, do="look at what it waits for")]
        )
    ]


def _make(name: str, probe: Probe, place: Here, found: dict[str, list[Finding]]) -> None:
    try:
        found[name] = list(_told(name, probe, place))
    except Exception as error:  # noqa: BLE001 - a probe of a broken machine may break
        found[name] = [Finding(name=name, status="fail", what=f"{type(error).__name__}: {error}")]


def _told(name: str, probe: Probe, place: Here) -> Iterable[Finding]:
    try:
        yield from probe(place)
    except LoopwrightError as error:
        yield Finding(name=name, status="fail", what=str(error))
