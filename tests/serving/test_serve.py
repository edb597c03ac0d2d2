"""A server as a process: it takes up what nobody drives, survives its own death, and hands over."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from stage import until

from loopwright.core import events as ev

SERVE = ("serve", "--port", "0")


def loop(stage, text="", name="nightly", gate="true", file="loop.toml"):
    """A loop file, put there whole: a server that reads it meanwhile would say what half of it lacks."""
    made = stage.write(
        f"{file}.new",
        f"name = '{name}'\ngoal = 'g'\nagent = '{stage.agent}'\ngates = [{json.dumps(gate)}]\nif_passing = 'run'\n{text}\n",
    )
    made.replace(stage.folder / file)
    return file


@contextmanager
def serving(stage, *args):
    with stage.started(*SERVE, *args) as process:
        yield process


def start(stage, *args, file="loop.toml"):
    return stage("start", file, *args, expect=0).out.strip()


def over(stage, run):
    return until(lambda: next(iter(stage.of(ev.RunFinished, run)), None))


def ended(process, number=signal.SIGTERM):
    process.send_signal(number)
    return process.wait(20)


def test_a_start_is_kept_until_a_server_comes_and_the_same_key_is_the_same_run(stage):
    loop(stage)
    run = start(stage, "--key", "monday")
    again = stage("start", "loop.toml", "--key", "monday", expect=0)
    assert again.out.strip() == run
    assert "was started before" in again.err
    assert start(stage, "--key", "tuesday") != run
    assert stage.calls == []
    with serving(stage) as process:
        assert over(stage, run).reason == "quality_reached"
        told = stage("start", "loop.toml", expect=0)
        assert "is begun: the server here works on it" in told.err
        later = told.out.strip()
        assert over(stage, later).reason == "quality_reached"
        assert ended(process) == 143
    started = stage.of(ev.RunStarted, run)[0]
    assert (started.origin, started.spec["workspace"]["mode"], started.spec["if_passing"]) == (
        "start",
        "worktree",
        "run",
    )
    assert (stage.folder / "work.txt").exists() is False  # the user's own files were not worked in


HANGS = """
import asyncio, time
from loopwright.cli import serve
serve.LONGEST_S = 0.2
async def main():
    hangs = asyncio.create_task(asyncio.to_thread(time.sleep, 60))
    await asyncio.sleep(0)
    serve._leaving(lambda: None)
    hangs.cancel()
asyncio.run(main())
"""


def test_a_thread_that_hangs_does_not_keep_a_server_from_ending():
    began = time.monotonic()
    assert subprocess.run([sys.executable, "-c", HANGS], check=False).returncode == 143
    assert time.monotonic() - began < 30


def test_a_start_that_no_server_could_find_is_refused(stage):
    loop(stage)
    assert "name a store that lasts" in stage("start", "loop.toml", "--store", "memory:", expect=2).err


def test_a_server_that_is_killed_loses_nothing_and_the_next_goes_on(stage):
    stage.script({"hold": True, "append": {"work.txt": "half\n"}}, {"append": {"work.txt": "whole\n"}})
    loop(stage)
    run = start(stage)
    with serving(stage) as process:
        stage.held(process)
        process.kill()
        process.wait()
        until(lambda: not stage.processes(), 5)
    with serving(stage):
        assert over(stage, run).reason == "quality_reached"
    assert [e.cause for e in stage.of(ev.AttemptInterrupted, run)] == ["crash"]
    assert stage.calls == [f"{run}/1 1", f"{run}/1 2"]


def test_term_hands_the_run_over_and_kills_its_agent(stage):
    stage.script({"hold": True}, {"append": {"work.txt": "done\n"}})
    loop(stage)
    run = start(stage)
    with serving(stage) as process:
        stage.held(process)
        assert ended(process) == 143
        assert stage.processes() == []
    assert [e.cause for e in stage.of(ev.AttemptInterrupted, run)] == ["handover"]
    with serving(stage):
        assert over(stage, run).reason == "quality_reached"


def test_an_answer_given_while_no_server_lives_is_applied_once(stage):
    loop(stage, "[approval]\nwhen = 'passed'")
    run = start(stage)
    with serving(stage) as process:
        (asked,) = until(lambda: stage.of(ev.ApprovalRequested, run))
        assert process.poll() is None
        process.kill()
        process.wait()
    decided = ev.ApprovalDecided(id=asked.id, answer="approve", by="mira", channel="page")
    stage.signal(f"decision/{asked.id}", decided, run)
    with serving(stage) as process:
        assert over(stage, run).reason == "quality_reached"
        assert ended(process) == 143
    assert [e.by for e in stage.of(ev.ApprovalDecided, run)] == ["mira"]
    assert len(stage.calls) == 1


@pytest.mark.slow
def test_killed_between_decision_and_effect_it_is_applied_once(stage):
    """The server is killed at once after the decision is written, again and again."""
    loop(stage, "[approval]\nwhen = 'always'\n[limits]\nmax_iterations = 9", gate="true")
    run, notes = start(stage), []
    for number in range(3):
        with serving(stage) as process:
            asked = until(lambda n=number: stage.of(ev.ApprovalRequested, run)[n : n + 1])[0]
            note = f"again {number}"
            decided = ev.ApprovalDecided(id=asked.id, answer="revise", by="jo", channel="page", note=note)
            stage.signal(f"decision/{asked.id}", decided, run)
            process.kill()
            process.wait()
        notes.append(note)
    with serving(stage):
        until(lambda: len(stage.of(ev.ApprovalRequested, run)) == 4)
    assert [e.note for e in stage.of(ev.ApprovalDecided, run)] == notes
    assert [e.outcome for e in stage.of(ev.IterationClosed, run)].count("revised") == 3


def test_silence_ends_a_request_although_nobody_looks(stage):
    loop(stage, "[approval]\ntimeout = 0.7\non_timeout = 'reject'")
    run = start(stage)
    with serving(stage):
        assert over(stage, run).reason == "rejected"
    assert [e.answer for e in stage.of(ev.ApprovalDecided, run)] == ["expired"]


def test_a_place_is_not_kept_by_who_waits_for_a_person_or_a_time(stage):
    """One worker: two that wait, one for a person, one for its rate limit, let a third one work."""
    stage.script({"stderr": "429 too many requests. Retry-After: 3600", "exit": 1})
    loop(stage, file="limited.toml", name="limited")
    limited = start(stage, file="limited.toml")
    with serving(stage, "--workers", "1", "limited.toml"):
        until(lambda: stage.of(ev.WaitStarted, limited))
    stage.script({"append": {"work.txt": "x\n"}})
    loop(stage, "[approval]\nwhen = 'always'", file="asking.toml", name="asking")
    loop(stage, file="quick.toml", name="quick")
    asking, quick = start(stage, file="asking.toml"), start(stage, file="quick.toml")
    with serving(stage, "--workers", "1", "limited.toml", "asking.toml", "quick.toml"):
        assert over(stage, quick).reason == "quality_reached"
        assert stage.of(ev.ApprovalRequested, asking)
        assert not stage.of(ev.RunFinished, limited)


def test_two_servers_share_the_runs_of_a_store(stage):
    stage.script({"append": {"work.txt": "x\n"}, "sleep": 0.05})
    loop(stage)
    runs = [start(stage) for _ in range(8)]
    with serving(stage) as one, serving(stage) as two:
        for run in runs:
            assert over(stage, run).reason == "quality_reached"
        assert {one.poll(), two.poll()} == {None}
    assert sorted(stage.calls) == sorted(f"{run}/1 1" for run in runs)


def test_a_loop_file_that_is_broken_meanwhile_keeps_the_loop_that_was_read(stage):
    loop(stage)
    with serving(stage) as process:
        _line(process, "serving nightly")
        loop(stage, "[limits]\nmax_iterations = 0")
        told = _line(process, "cannot be used")
        assert "limits.max_iterations: 0 is below 1" in told
        loop(stage, "[limits]\nmax_iterations = 4")
        assert "was read again: nightly" in _line(process, "was read again")


def _line(process, words):
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"no line says {words!r}")


def test_a_server_with_nothing_to_serve_or_a_bad_file_says_so(stage):
    assert "no loop" in stage(*SERVE, expect=2).err
    loop(stage, "[limits]\nmax_iterations = 0")
    told = stage(*SERVE, expect=2).err
    assert "loop.toml:7: limits.max_iterations: 0 is below 1" in told
    assert "there is no loop file" in stage(*SERVE, "nowhere.toml", expect=2).err
    assert not (stage.folder / ".agent-state").exists()


def test_a_loop_file_that_can_no_longer_be_served_keeps_the_loop_too(stage):
    loop(stage)
    with serving(stage) as process:
        _line(process, "serving nightly")
        loop(stage, "[[trigger]]\nwebhook = 'deps'\nsecret = 'DEPS_SECRET'")
        assert "the secret DEPS_SECRET is not set" in _line(process, "loop.toml ")


def test_a_run_that_cannot_start_is_said_and_tried_again(stage):
    script = stage.write("agent.sh", "exit 0\n")
    stage.write(
        "loop.toml", f"name='n'\ngoal='g'\nagent='sh {script}'\ngates=['./tool']\n[workspace]\nmode='none'\n"
    )
    tool = stage.write("tool", "#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    run = start(stage)
    tool.rename(stage.folder / "gone")
    with serving(stage) as process:
        assert "cannot be taken up" in _line(process, run)
        (stage.folder / "gone").rename(tool)
        assert over(stage, run).phase in {"complete", "failed"}


def test_what_a_server_hands_on_of_its_environment(stage):
    seen = stage.folder.parent / "seen.json"
    stage.script({"env": str(seen), "append": {"work.txt": "x\n"}})
    stage.env |= {"MY_SETTING": "1", "WANTED": "2", "SLACK_BOT_TOKEN": "xoxb-1"}
    loop(stage, "env = ['WANTED']")
    with serving(stage):
        over(stage, start(stage))
    names = json.loads(seen.read_text())
    assert names["WANTED"] == "2"
    assert {"MY_SETTING", "SLACK_BOT_TOKEN"}.isdisjoint(names)


REMOTE = "[approval]\nchannels = ['inbox', { use = 'email', to = ['mira@example.org'], sender = 'loop@example.org' }]"


def test_by_hand_a_channel_that_nobody_serves_is_refused_and_a_server_is_enough(stage):
    loop(stage, REMOTE)
    told = stage("run", "loop.toml", expect=2).err
    assert "approval.channels: email needs a server that sends, and none runs here" in told
    assert not (stage.folder / ".agent-state").exists()
    with serving(stage) as process:
        _line(process, "serving nightly")
        until((stage.folder / ".agent-state/loopwright.db").exists)
        until(lambda: stage("run", "loop.toml", "--as", "r", "--no-wait", "--no-input").code == 6)
    assert stage.of(ev.ApprovalRequested)


def test_what_would_fail_in_the_night_is_refused_in_the_evening(stage):
    loop(
        stage,
        "[[trigger]]\nwebhook = 'deps'\nsecret = 'DEPS_SECRET'\n[approval]\nchannels = ['slack:#loops']",
    )
    told = stage(*SERVE, expect=2).err
    assert "loop.toml: trigger deps: the secret DEPS_SECRET is not set" in told
    assert "loop.toml: approval.channels: nobody could answer on slack" in told
    assert "channel slack" in told
    assert not (stage.folder / ".agent-state").exists()
