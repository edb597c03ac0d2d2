"""`doctor`: what it finds, how it exits, and that it leaves everything as it was."""

import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from stage import files, tools, until

from loopwright.agents.aider import GET as AIDER
from loopwright.agents.codex import GET as CODEX
from loopwright.agents.opencode import GET as OPENCODE
from loopwright.begin import doctor as begin
from loopwright.begin import here, machine
from loopwright.cli.app import run_app
from loopwright.stores.sqlite import SqliteStore

GOOD = "goal = 'g'\nagent = 'true'\ngates = ['true']\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a good loop file; `bin` is all of PATH."""
    for name in [name for name in os.environ if name.startswith("LOOPWRIGHT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", tools(tmp_path / "bin"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "loop.toml").write_text(GOOD)
    return folder


@pytest.fixture
def doctor(project, capsys):
    """Calls `doctor --json`; the exit code and the findings by name."""

    def call(*args):
        before = files(project)
        code = run_app(["doctor", "-C", str(project), "--json", *args])
        said = json.loads(capsys.readouterr().out)
        assert files(project) == before, "it reads only"
        assert (said["schema"], said["exit_code"], said["healthy"]) == (
            "loopwright/doctor/v1",
            code,
            code == 0,
        )
        found = {}
        for each in said["checks"]:
            found.setdefault(each["name"], []).append((each["status"], each["what"], each["do"]))
        assert code == (2 if any(s == "fail" for each in found.values() for s, _, _ in each) else 0)
        return code, found

    return call


def program(folder, name, body):
    path = folder.parent / "bin" / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_all_is_well(project, doctor, capsys):
    path = program(project, "claude", "echo '2.9.1 (Claude Code)'")
    code, found = doctor()
    assert code == 0
    names = {name for name, _ in begin.PROBES} - {"names", "logins"}  # nothing is on hold
    assert set(found) == {*names, "agent true", "gate true"}
    assert found["agents"][0] == ("ok", f"claude 2.9.1 ({path})", "")
    others = {what.partition(" is not here; to get it: ")[::2] for _, what, _ in found["agents"][1:]}
    assert {("codex", CODEX), ("aider", AIDER), ("opencode", OPENCODE)} == others
    assert found["leftovers"] == [("ok", "nothing is left behind", "")]
    assert run_app(["doctor", "-C", str(project)]) == 0
    assert f"✓ loop file    {project / 'loop.toml'}" in capsys.readouterr().out


def test_what_is_wrong_with_a_loop_file_fails(project, doctor):
    (project / "loop.toml").write_text(GOOD + "gate_timeout = 3\nbudgget = 1\n")
    code, found = doctor()
    assert code == 2
    assert ["loop.toml:4" in what for _, what, _ in found["loop file"]] == [True, False]
    assert not any(name.startswith(("gate ", "agent ")) for name in found)


def test_a_schedule_is_said_in_words_or_what_is_wrong_with_it(project, doctor):
    (project / "loop.toml").write_text(f"{GOOD}[[trigger]]\ncron = '0 2 * * *'\ntz = 'Europe/Paris'\n")
    code, found = doctor()
    assert (code, found["schedule"]) == (0, [("ok", "At 02:00 every day, Europe/Paris", "")])
    (project / "loop.toml").write_text(f"{GOOD}[[trigger]]\ncron = '0 2 * * 8'\ntz = 'Europe/Paris'\n")
    code, found = doctor()
    assert code == 2
    assert found["schedule"][0][1].startswith(
        "loop.toml:5: trigger[0].cron: '0 2 * * 8': '8' is no day-of-week"
    )


def test_a_gate_that_cannot_start_fails_beside_one_that_can(project, doctor):
    (project / "loop.toml").write_text(GOOD.replace("['true']", "['true', './check.sh']"))
    code, found = doctor()
    assert code == 2
    assert found["gate true"][0][0] == "ok" and found["gate check.sh"][0][0] == "fail"


def test_nothing_to_begin_with_is_a_warning(project, doctor):
    (project / "loop.toml").unlink()
    code, found = doctor()
    assert code == 0
    assert found["loop file"][0][0] == "warn" and "loopwright init" in found["loop file"][0][2]
    assert found["agents"][0][0] == "warn"


def test_programs_that_are_broken_or_silent_are_named(project, doctor, monkeypatch):
    monkeypatch.setattr(machine, "ASK_S", 0.2)
    program(project, "codex", "echo broken >&2; exit 3")
    program(project, "aider", "exec sleep 60")
    found = doctor()[1]["agents"]
    assert [status for status, _, _ in found[:2]] == ["warn", "warn"]
    assert "does not say its version: broken" in found[0][1] and "no answer within" in found[1][1]


def test_a_version_too_old_for_its_adapter_is_a_warning_with_how_to_get_a_newer_one(project, doctor):
    program(project, "claude", "echo '1.9.9 (Claude Code)'")
    program(project, "aider", "echo 'aider 0.9.0'")
    program(project, "codex", "echo 'codex-cli 0.100.0-alpha.2'")
    found = {what.partition(" ")[0]: (status, what, do) for status, what, do in doctor()[1]["agents"]}
    assert found["claude"][0] == "warn" and "is older than 2.0, the oldest" in found["claude"][1]
    assert found["claude"][2].startswith("npm install -g @anthropic-ai/claude-code")
    assert found["aider"][0] == "warn" and "older than 0.86" in found["aider"][1]
    assert found["codex"][0] == "ok"


def test_a_login_on_hold_is_named_with_what_lifts_it(project, doctor):
    assert "logins" not in doctor()[1]
    (project / ".agent-state").mkdir(0o700)
    with closing(SqliteStore(project / ".agent-state" / "loopwright.db")) as store:
        store.hold("claude/1a2b", None, "authentication: not logged in\nmore")
        store.hold("codex/3c4d", datetime(2090, 1, 2, 3, 4, tzinfo=UTC), "usage limit")
        (lost, limit) = doctor()[1]["logins"]
        assert lost[:2] == ("warn", "claude/1a2b is on hold: authentication: not logged in")
        assert "start a run" in lost[2]
        assert limit[:2] == ("warn", "codex/3c4d is on hold: usage limit, until 2090-01-02 03:04:00 UTC")
        store.lift("claude/1a2b")
        store.lift("codex/3c4d")
        assert "logins" not in doctor()[1]


@pytest.mark.parametrize(("wanted", "status"), [("", "warn"), ("sandbox = 'bwrap'\n", "fail")])
def test_a_sandbox_that_does_not_work(project, doctor, monkeypatch, wanted, status):
    program(project, "bwrap", "echo 'no user namespaces' >&2; exit 1")
    monkeypatch.setattr("loopwright.vocabulary.LATER", {})
    (project / "loop.toml").write_text(GOOD + wanted)
    (found,) = doctor()[1]["sandbox"]
    assert found[0] == status and "no user namespaces" in found[1]


def test_a_store_and_a_folder_that_cannot_be_trusted_fail(project, doctor):
    state = project / ".agent-state"
    state.mkdir(mode=0o700)
    (state / "loopwright.db").write_bytes(b"no database at all" * 100)
    code, found = doctor()
    assert (code, found["folder"][0][0], found["store"][0][0]) == (2, "ok", "fail")
    state.chmod(0o777)
    (status, _, do) = doctor()[1]["folder"][0]
    assert (status, do) == ("fail", f"chmod 700 {state}")
    shutil.rmtree(state)
    state.symlink_to(project.parent)
    assert doctor()[1]["folder"][0][0] == "fail"


def test_a_disk_of_another_machine_and_a_full_one(project, doctor, monkeypatch):
    monkeypatch.setattr(here, "_kind", lambda _: "nfs4")
    monkeypatch.setattr(here.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 29))
    code, found = doctor()
    assert (code, found["filesystem"][0][0], found["space"][0][0]) == (0, "warn", "warn")
    monkeypatch.setattr(here.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    assert doctor()[1]["space"][0][0] == "fail"


def test_the_file_system_of_a_folder_is_known(tmp_path):
    assert here._kind(here.Path("/proc")) == "proc"
    assert here._kind(tmp_path) not in {"", "proc"}


def test_a_probe_that_hangs_or_breaks_is_a_finding(project, monkeypatch):
    never = threading.Event()
    probes = (
        ("one", lambda _: iter(never.wait, None)),
        ("two", lambda _: [1 / 0]),
        ("python", machine.python),
    )
    monkeypatch.setattr(begin, "LIMIT_S", 0.1)
    monkeypatch.setattr(begin, "PROBES", probes)
    one, two, three = begin.examine(project, {}, None)
    assert (one.status, two.status, three.status) == ("fail", "fail", "ok")
    assert "no answer" in one.what and "ZeroDivisionError" in two.what


def test_a_run_at_work_then_left_behind_and_its_processes(stage, monkeypatch, capsys):
    monkeypatch.delenv("LOOPWRIGHT_RUN", raising=False)

    def leftovers():
        run_app(["doctor", "-C", str(stage.folder), "--json"])
        checks = json.loads(capsys.readouterr().out)["checks"]
        return [(each["status"], each["what"]) for each in checks if each["name"] == "leftovers"]

    stage.script({"hold": True})
    with stage.started(*stage.loop()) as process:
        stage.held(process)
        ((status, what),) = leftovers()
        assert status == "ok" and what.startswith("at work: run r")
    until(lambda: not stage.processes())  # its agent dies with it, a moment later
    env = {"LOOPWRIGHT_RUN": "ghost", "LOOPWRIGHT_WORKDIR": str(stage.folder)}
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "print(1, flush=True); input()"], env=env, stdin=-1, stdout=-1
    ) as ghost:
        ghost.stdout.readline()
        found = leftovers()
        ghost.stdin.close()
    assert found[0] == ("warn", "the process that drove run r is gone")
    assert found[1] == ("warn", "1 process of run ghost, which nobody drives")


def test_inside_a_run_it_says_so(project, doctor, monkeypatch):
    monkeypatch.setenv("LOOPWRIGHT_RUN", "outer")
    monkeypatch.setenv("MY_API_KEY", "abcdefgh")
    (inside, withheld) = doctor()[1]["environment"]
    assert inside[:2] == ("warn", "this is inside run outer") and "MY_API_KEY" in withheld[1]


def test_what_doctor_starts_itself_is_not_left_behind(project, doctor):
    program(
        project, "python", f'sleep 1\nexec {sys.executable} "$@"'
    )  # asked by the probe of the gate meanwhile
    (project / "loop.toml").write_text(GOOD.replace("['true']", "['pytest']"))
    _, found = doctor()
    assert [status for status, *_ in found["leftovers"]] == ["ok"]
