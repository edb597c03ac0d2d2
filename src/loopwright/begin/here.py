"""Probes of this place: folder, file system, disk, store, loop file, and what earlier runs left.

Rule: nothing is made, not even for a moment; locks are asked for, not taken.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from loopwright import ledger
from loopwright.assembled import assemble
from loopwright.begin.findings import Finding, Here, Status
from loopwright.config import Loaded
from loopwright.errors import ConfigError, NotStartable, StoreError
from loopwright.figures import brief, count, moment
from loopwright.hosts import apart, environment, take
from loopwright.hosts.ways import STATE, Ways
from loopwright.journal import Journal
from loopwright.stores.opened import open_store, store_exists, store_path
from loopwright.triggers.cron import schedules
from loopwright.unattended import triggers_of
from loopwright.workspace.copies import WHERE
from loopwright.workspace.lock import holders

LOW_BYTES: Final = 1 << 30  # a warning; a twentieth of it is a failure
LOW_FILES: Final = 1_000
SEVERAL: Final = 5
# File systems of other machines: locks and fsync may mean less there than here.
NETWORK: Final = re.compile(
    r"nfs\d*|cifs|smb\w*|afs|ceph|gluster\w*|lustre|beegfs|gpfs|9p|fuse\.(sshfs|gluster\w*|ceph\w*|s3fs|rclone)|vboxsf|drvfs"
)


def folder(here: Here) -> Iterator[Finding]:
    """Whether we may work in the project folder, and whether what is kept in it can be trusted."""
    project, state = here.project, here.project / STATE
    if not os.access(project, os.R_OK | os.W_OK | os.X_OK):
        do = "a run needs to read and write there"
        yield Finding(name="folder", status="fail", what=f"{project} is not ours to write", do=do)
        return
    try:
        seen = state.lstat()
    except FileNotFoundError:
        yield Finding(name="folder", status="ok", what=f"{project}; the first run makes {STATE}/")
        return
    if stat.S_ISLNK(seen.st_mode) or not stat.S_ISDIR(seen.st_mode):
        what = f"{state} is {'a symlink' if stat.S_ISLNK(seen.st_mode) else 'no folder'}"
        yield Finding(
            name="folder", status="fail", what=what, do="replace it by a folder: runs are kept there"
        )
    elif seen.st_mode & stat.S_IWOTH:
        what = f"{state} is writable by everybody, so what it says cannot be trusted"
        yield Finding(name="folder", status="fail", what=what, do=f"chmod 700 {state}")
    elif not os.access(state, os.R_OK | os.W_OK | os.X_OK):
        what = f"{state} is not ours to write"
        yield Finding(
            name="folder",
            status="fail",
            what=what,
            do=f"chown it, or remove it: it belongs to uid {seen.st_uid}",
        )
    else:
        yield Finding(name="folder", status="ok", what=f"{project}, with runs in {STATE}/")


def filesystem(here: Here) -> Iterator[Finding]:
    """Whether locks and fsync mean something where runs are kept."""
    where = _kept(here)
    kind = _kind(where)
    try:
        opened = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.fsync(opened)
        finally:
            os.close(opened)
    except BlockingIOError:
        pass  # somebody has it: locks work
    except OSError as error:
        what = (
            f"{where} ({kind or 'unknown file system'}): locks or fsync do not work there: {error.strerror}"
        )
        yield Finding(
            name="filesystem",
            status="fail",
            what=what,
            do="keep runs on a local disk: --store sqlite:///PATH",
        )
        return
    if NETWORK.fullmatch(kind):
        what = f"{where} is on {kind}, a network file system: locks and what is written may be lost"
        yield Finding(
            name="filesystem",
            status="warn",
            what=what,
            do="keep runs on a local disk: --store sqlite:///PATH",
        )
    else:
        yield Finding(name="filesystem", status="ok", what=f"{kind or 'unknown'}: locks and fsync work")


def _kept(here: Here) -> Path:
    """The folder, there already, in which runs are kept."""
    path = here.kept or here.project
    return next(place for place in (path, *path.parents) if place.is_dir())


def _kind(where: Path) -> str:
    """The type of the file system that a folder is on; nothing where the kernel does not say."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    best, kind = -1, ""
    real = where.resolve()
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), before.split(" ")[4])
        if real.is_relative_to(point) and len(point) >= best:  # a later mount hides an earlier one
            best, kind = len(point), after.split(" ")[0]
    return kind


def space(here: Here) -> Iterator[Finding]:
    """Room on the disk, for snapshots, logs and the journal."""
    free = shutil.disk_usage(here.project).free
    files = os.statvfs(here.project)
    room = f"{free / (1 << 30):.1f} GB free"
    if free < LOW_BYTES:
        bad: Status = "fail" if free < LOW_BYTES // 20 else "warn"
        yield Finding(name="space", status=bad, what=room, do="make room: a full disk stops a run")
    elif files.f_files and files.f_favail < LOW_FILES:
        what = f"{room}, but only {files.f_favail} more files"
        yield Finding(name="space", status="warn", what=what, do="remove files: snapshots need one each")
    else:
        yield Finding(name="space", status="ok", what=room)


def store(here: Here) -> Iterator[Finding]:
    """Whether the store can be read, and no run in it comes from the future."""
    path = store_path(here.store, here.project)
    if path is None:
        yield Finding(name="store", status="ok", what="memory: nothing is kept")
        return
    if not store_exists(path):
        yield Finding(name="store", status="ok", what=f"{path} is made by the first run")
        return
    with closing(open_store(here.store, here.project)) as runs:
        heads = list(runs.heads(limit=10_000))
    yield Finding(name="store", status="ok", what=f"{path}: {count(len(heads), 'run')}")
    soon = datetime.now(UTC) + timedelta(minutes=1)
    if heads and (news := _news(heads[0][1])) is not None and news > soon:
        what = f"run {heads[0][0]} has news of {news:%Y-%m-%d %H:%M:%S} UTC, which is to come"
        yield Finding(
            name="store", status="warn", what=what, do="set the clock: it was put back, or is wrong"
        )


def logins(here: Here) -> Iterator[Finding]:
    """The logins that are on hold for all runs of the store; nothing is said where there are none."""
    if here.kept is None or not store_exists(here.kept):
        return
    with closing(open_store(here.store, here.project)) as runs:
        held = runs.holds() if ledger.kept(runs) else ()
    for hold in held:
        why = f"{hold.login} is on hold: {brief(hold.why)}"
        if hold.until is None:
            what, do = why, "log in again, or mend what it says, then start a run: it tries the login anew"
        else:
            what, do = f"{why}, until {moment(hold.until)}", "it passes then by itself"
        yield Finding(name="logins", status="warn", what=what, do=do)


def _news(head: bytes) -> datetime | None:
    try:
        return datetime.fromisoformat(json.loads(head)["updated_at"])
    except (ValueError, KeyError, TypeError):
        return None


def loop_file(here: Here) -> Iterator[Finding]:
    """Whether the loop file is valid."""
    if here.file is None:
        what = f"no loop.toml and no [tool.loopwright] in {here.folder} or above"
        yield Finding(name="loop file", status="warn", what=what, do="loopwright init writes one")
    elif isinstance(here.loaded, ConfigError):
        for problem in here.loaded.problems:
            yield Finding(name="loop file", status="fail", what=problem, do=f"edit {here.file.name}")
    elif here.loaded is not None:
        yield Finding(name="loop file", status="ok", what=str(here.file))
        yield from _scheduled(here, here.loaded)


def _scheduled(here: Here, loaded: Loaded) -> Iterator[Finding]:
    """Whether the loop's schedules can be kept, where it has some."""
    triggers = triggers_of(loaded.loop.trigger)
    try:
        found = schedules(triggers, local=here.environ.get("TZ"), places=loaded.places)
    except ConfigError as error:
        for problem in error.problems:
            yield Finding(name="schedule", status="fail", what=problem, do="loopwright serve needs it right")
        return
    for each in filter(None, found):
        yield Finding(name="schedule", status="ok", what=f"{each.words}, {each.name}")


def named(here: Here) -> Iterator[Finding]:
    """Whether each agent and gate of the loop file can start."""
    if not isinstance(loaded := here.loaded, Loaded):
        return
    ways = Ways(project=loaded.project, environ=here.environ)
    whole = assemble(loaded.loop, project=loaded.project, path=here.path)
    later = apart.is_apart(whole.mode)  # setup may bring it
    for who, found in environment.looked_up(whole, ways, loaded.project):
        if isinstance(found, NotStartable):
            do = "workspace.setup must bring it" if later else "install it, or name another in the loop file"
            yield Finding(name=who, status="warn" if later else "fail", what=str(found), do=do)
        else:
            yield Finding(name=who, status="ok", what=found or "a function")


def leftovers(here: Here) -> Iterator[Finding]:
    """What runs hold, and what those that are gone have left behind."""
    found = [*_held(here), *_left(here)]
    yield from found or [Finding(name="leftovers", status="ok", what="nothing is left behind")]


def _held(here: Here) -> Iterator[Finding]:
    state = here.project / STATE
    for holder in holders(state):
        yield Finding(name="leftovers", status="ok", what=f"at work: {holder}")
    copies = sorted(place.name for place in (state / WHERE).glob("*") if place.is_dir())
    if copies:
        names = ", ".join(copies[:SEVERAL]) + (" …" if len(copies) > SEVERAL else "")
        what = f"{count(len(copies), 'folder')} apart in {STATE}/{WHERE}: {names}"
        yield Finding(name="leftovers", status="ok", what=what, do="delete those whose work you have")


def _left(here: Here) -> Iterator[Finding]:
    alone, driven = _runs(here)
    for run in alone[:SEVERAL]:
        what = f"the process that drove run {run} is gone"
        do = f"loopwright resume {run}, or loopwright stop {run}"
        yield Finding(name="leftovers", status="warn", what=what, do=do)
    for run, pids in here.at_work.items():
        if run not in driven:
            many = f"{len(pids)} process{'' if len(pids) == 1 else 'es'}"
            do = f"kill {' '.join(map(str, pids[:SEVERAL]))}, when they are of no use"
            what = f"{many} of run {run}, which nobody drives"
            yield Finding(name="leftovers", status="warn", what=what, do=do)


def _runs(here: Here) -> tuple[list[str], set[str]]:
    """The runs on record that are under way though nobody drives them, and those that somebody does."""
    alone, driven = list[str](), set[str]()
    try:
        if here.kept is None or not store_exists(here.kept):
            return alone, driven
        with closing(open_store(here.store, here.project)) as runs:
            for run, _ in runs.heads(active=True, limit=1000):
                try:
                    state = Journal(runs, run).state
                except StoreError:
                    continue  # `list` says which
                if take.left(state):
                    alone.append(run)
                else:
                    driven.add(run)
    except StoreError:
        pass  # the probe of the store says so
    return alone, driven
