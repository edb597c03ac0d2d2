"""The files store through the program itself: named by an option, a variable or a loop file; killed and resumed."""

from __future__ import annotations

import json
import signal

from stage import WORK, Stage

FILES = "files:.agent-state"
HOLD = {**WORK, "hold": True}


def test_a_run_on_files_is_read_stopped_killed_and_resumed(tmp_path):
    stage = Stage.made(tmp_path, WORK, HOLD, WORK)
    stage.git("init", "-q")
    stage.env["LOOPWRIGHT_STORE"] = FILES
    state = stage.folder / ".agent-state"
    with stage.started(*stage.loop("--max-iterations", "3", "--store", FILES)) as process:
        stage.held(process)
        assert [row["run"] for row in stage("list", "--json", expect=0).doc] == ["r"]
        assert stage("resume", "r").code == 8
        now = json.loads((state / "r.json").read_text())
        assert (now["loop_id"], now["phase"], now["iteration"]) == ("r", "executing", 2)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert "is gone" in stage("why", "r", expect=0).out
    assert stage("stop", "r", expect=0).err
    assert stage("resume", "r", "--add-iterations", "1", expect=3).err
    assert stage("show", "r", "--json", expect=0).doc["iterations"] >= 2
    assert stage("show", "r", "--diff", expect=0).out  # snapshots are found from this store too
    assert (state / "checkpoints/r-0001.json").exists()
    assert not (state / "loopwright.db").exists()
    del stage.env["LOOPWRIGHT_STORE"]
    assert "say --store files:.agent-state" in stage("show", "r", expect=2).err
    (stage.folder / "loop.toml").write_text(f'[store]\nurl = "{FILES}"\n')
    assert stage("show", "r", "--json", expect=0).doc["run"] == "r"
