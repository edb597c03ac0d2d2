"""Two servers on one store, killed at random moments: every slot is decided once, and has its one run or a reason."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest
from slots_process import NOON

from loopwright.serving.slot_records import slot_of, time_of
from loopwright.stores import disk
from loopwright.stores.opened import open_store

LOOP = 'goal = "x"\nagent = "true"\ngates = ["true"]\n[[trigger]]\ntz = "UTC"\n'
SCRIPT = Path(__file__).with_name("slots_process.py")


def all_records(url, folder, store, loop):
    """Every slot on record with what became of it, settled or not."""
    run = f"trigger:{loop}"
    if url.startswith("sqlite"):
        rows = store._rows("SELECT key, body FROM signals WHERE run=?", run)
    else:
        files = (folder / "state/signals" / run).glob("*.signal")
        rows = [(unquote(path.stem), disk.framed(path)[1]) for path in files]
    return [slot_of(time_of(key[5:]), body) for key, body in rows if key.startswith("slot/")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "minutes", "seconds", "kills"), [("sqlite:///slots.db", 500, 4, 8), ("files:state", 60, 2, 3)]
)
def test_two_servers_that_are_killed_start_each_slot_once_or_say_why_not(
    tmp_path, url, minutes, seconds, kills
):
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "every.toml").write_text(
        LOOP + 'cron = "* * * * *"\nmisfire = "run_all"\noverlap = "queue"\n'
    )
    (tmp_path / "skips.toml").write_text(
        LOOP + 'cron = "*/5 * * * *"\nmisfire = "run_once"\njitter = "2m"\ngrace = "3m"\n'
    )
    env = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    command = [sys.executable, SCRIPT, tmp_path, url, str(minutes), str(seconds), str(kills)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert int(done.stdout.split()[-1]) >= kills
    store = open_store(url, tmp_path)
    runs = sorted(run for run, _ in store.heads(limit=10_000))
    started = []
    for loop, step in (("every", timedelta(minutes=1)), ("skips", timedelta(minutes=5))):
        found = all_records(url, tmp_path, store, loop)
        assert all(each.reason for each in found if each.what == "skipped")
        decided = sorted(at for each in found for at in _every(each.first or each.slot, each.slot, step))
        assert len(decided) == len(set(decided))
        assert all(
            each.count == len(_every(each.first or each.slot, each.slot, step))
            for each in found
            if each.whole
        )
        last = NOON + timedelta(minutes=minutes - 5)
        assert [at for at in decided if at <= last] == _every(NOON + step, last, step), "none was lost"
        started += [each.run for each in found if each.what == "started"]
    assert runs == sorted(started)
    store.close()


def _every(first, last, step):
    found = []
    while first <= last:
        found.append(first)
        first += step
    return found
