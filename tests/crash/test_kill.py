"""kill -9 of loopwright at any moment: `resume` ends the run, nothing recorded is repeated, nothing is left running."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cli"))

from warm import Begun, begun, called

from loopwright.core import events as ev
from loopwright.journal import history
from loopwright.stores.sqlite import SqliteStore

HERE = Path(__file__).parent
EACH = int(os.environ.get("LOOPWRIGHT_KILLS", "10"))  # times four moments
MOMENTS = ("start", "attempt", "gates", "close")
WORK_S, GATE_S = 0.12, 0.12


def git(folder: Path, *args: str) -> str:
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=u", "-c", "user.email=u@example.invalid")
    done = subprocess.run(
        ["git", *identity, *args], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


def repository(folder: Path) -> Path:
    """A repository with committed, staged, edited and untracked files of the user's."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for name in ("committed", "staged", "edited"):
        (folder / name).write_text(f"{name}\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / "staged").write_text("staged, changed\n")
    git(folder, "add", "staged")
    (folder / "edited").write_text("edited, not staged\n")
    (folder / "untracked").write_text("mine\n")
    (folder / "work.txt").write_text("")
    return folder


def theirs(folder: Path) -> tuple[str, bytes, str, dict[str, str]]:
    """The user's branch, index, stash and files."""
    files = {f.name: f.read_text() for f in folder.iterdir() if f.is_file() and f.name != "work.txt"}
    return (
        git(folder, "rev-parse", "HEAD", "main"),
        (folder / ".git/index").read_bytes(),
        git(folder, "stash", "list"),
        files,
    )


def marked(tag: str) -> list[int]:
    """The processes whose environment holds this run's tag."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if f"KILLTAG={tag}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
    return [pid for pid in found if pid != os.getpid()]


def until(holds, seconds: float):
    """Waits for a condition, looking often; its value, or the last false one when time is up."""
    end = time.monotonic() + seconds
    while not (value := holds()) and time.monotonic() < end:
        time.sleep(0.002)
    return value


def facts(folder: Path) -> list[ev.Event]:
    path = folder / ".agent-state/loopwright.db"
    if not path.exists():
        return []
    store = SqliteStore(path)
    try:
        return [event for _, _, event, _ in history(store, "killed")]
    finally:
        store.close()


def moment(found: list[ev.Event]) -> str:
    """At which moment the kill struck, as the journal shows it."""
    for event in reversed(found):
        match event:
            case ev.AttemptStarted():
                return "attempt"
            case ev.AttemptSucceeded():
                return "gates"
            case ev.GateScored() | ev.Judged() | ev.IterationClosed() | ev.RunFinished():
                return "close"  # every gate has spoken; what follows is not on record, or is the end itself
            case _:
                pass
    return "start"


def strike(aim: str, folder: Path, marks: Path, process: Begun, dice: random.Random) -> None:
    """Waits for the moment aimed at, then kills."""
    n = dice.choice((1, 2))
    match aim:
        case "start":
            time.sleep(dice.uniform(0, 0.08))
        case "attempt":
            until(lambda: (marks / f"call-killed-{n}.1").exists() or process.poll() is not None, 30)
            time.sleep(dice.uniform(0, WORK_S * 0.8))
        case "gates":
            until(lambda: (marks / f"gate-{n}").exists() or process.poll() is not None, 30)
            time.sleep(dice.uniform(0, GATE_S * 0.8))
        case "close":
            n = dice.choice((1, 3, 3))
            until(lambda: (marks / f"gate-{n}").exists() or process.poll() is not None, 30)
            until(lambda: process.poll() is not None or scored(folder) >= n, 30)
            time.sleep(dice.uniform(0, 0.004))
    process.kill()
    process.communicate()


def scored(folder: Path) -> int:
    """How many scores are on record."""
    return sum(isinstance(event, ev.GateScored) for event in facts(folder))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("aim", MOMENTS)
def test_kills_aimed_at(aim, tmp_path, record_property):
    dice, struck = random.Random(f"2026-11-29 {aim}"), Counter()
    for number in range(3 * EACH):
        if struck[aim] >= EACH:
            break
        struck[one_kill(tmp_path / str(number), aim, dice)] += 1
    told = ", ".join(f"{n} in {moment}" for moment, n in struck.items())
    record_property("measured", f"kill -9 aimed at {aim}: {sum(struck.values())} runs, struck {told}")
    assert struck[aim] >= EACH, struck


def one_kill(place: Path, aim: str, dice: random.Random) -> str:
    place.mkdir()
    folder, marks, tag = repository(place / "repo"), place / "marks", f"{os.getpid()}-{place.name}"
    marks.mkdir()
    before = theirs(folder)
    env = {**os.environ, "MARKS": str(marks), "KILLTAG": tag}
    agent = f"{sys.executable} -I -S {HERE / 'leaves_children.py'} {WORK_S}"
    gate = f"{sys.executable} -I -S {HERE / 'counting_gate.py'} {GATE_S}"
    run = ["run", "--goal", "three lines", "--agent", agent, "--gate", gate, "--as", "killed"]
    run += ["--json", "--no-baseline"]
    process = begun(run, folder, env)
    strike(aim, folder, marks, process, dice)
    left = until(lambda: not marked(tag), 2.0)
    assert left, f"alive 2 s after the kill ({aim}): {marked(tag)}"
    recorded = facts(folder)
    struck = moment(recorded)
    done = {
        e.iteration
        for e, after in pairwise(recorded)
        if isinstance(e, ev.AttemptStarted) and isinstance(after, ev.AttemptSucceeded)
    }
    calls_before = sorted(f.name for f in marks.glob("call-*"))
    code, out, err = called(["resume", "killed", "--json"] if recorded else run, folder, env)
    assert code == 0, err
    assert json.loads(out)["reason"] == "quality_reached"
    calls = sorted(f.name for f in marks.glob("call-*"))
    for iteration in done:  # what is recorded is never repeated
        mine = [c for c in calls if c.startswith(f"call-killed-{iteration}.")]
        assert mine == [c for c in calls_before if c in mine], (aim, mine)
    succeeded = sum(isinstance(e, ev.AttemptSucceeded) for e in facts(folder))
    assert len(calls) - succeeded in {0, 1}, (aim, calls)
    assert until(lambda: not marked(tag), 2.0), f"alive 2 s after the end: {marked(tag)}"
    assert theirs(folder) == before
    return struck
