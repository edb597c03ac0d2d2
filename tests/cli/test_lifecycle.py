"""The life of a run from outside: the same id again, resume, two runners, keys, stop and pause.

Rule: every process is a real one, and what is checked is what a person or a script could see.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from stage import WORK, Ran, Stage, until

from loopwright.core import events as ev
from loopwright.errors import Locked
from loopwright.hosts.door import run as start
from loopwright.journal import history
from loopwright.loop import Loop
from loopwright.ports import Kept
from loopwright.stores.memory import MemoryStore

HELD = {**WORK, "hold": True}
DONE = {**WORK, "write": {"done": "yes"}}


def ended(process: subprocess.Popen[str]) -> Ran:
    out, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
    return Ran(process.returncode, out, err)


def dead(stage: Stage) -> None:
    until(lambda: not stage.processes(), 5)


# The same id again


def test_of_a_finished_run_prints_its_result_and_runs_nothing(stage):
    first = stage.run("--max-iterations", "1", expect=3)
    for other in (("--max-iterations", "9"), ("--goal", "another")):  # whatever else is asked
        again = stage.run(*other, expect=3)
        assert again.doc == first.doc
        assert again.lines == first.lines
    assert "goal: 'g' then, 'another' now" in again.err
    assert "what follows is its result, not this loop's" in again.err
    assert len(stage.calls) == 1


def paused(stage: Stage, *args: str) -> Ran:
    """A run that rests after its first iteration."""
    stage.script(HELD, WORK)
    with stage.started(*stage.loop(*args, "--json")) as process:
        stage.held(process)
        stage("pause", "r", expect=0)
        stage.go()
        return ended(process)


def test_of_an_active_run_resumes_it_with_other_limits(stage):
    ran = paused(stage, "--max-iterations", "5")
    assert (ran.code, ran.doc["phase"], ran.doc["reason"]) == (6, "paused", "paused")
    assert ran.lines[2] == "  next: loopwright resume r"
    ran = stage.run("--max-iterations", "2", expect=3)
    assert (ran.doc["reason"], ran.doc["iterations"]) == ("max_iterations", 2)
    assert len(stage.calls) == 2


def test_with_another_goal_agent_or_gate_is_refused_with_the_differences(stage):
    paused(stage)
    before = stage.facts()
    refused = stage.run("--goal", "another", gate="test -e x", expect=2)
    assert "goal: 'g' then, 'another' now" in refused.err
    assert "gates: ['false'] then, ['test -e x'] now" in refused.err
    assert "agent:" not in refused.err
    assert "--accept-changes" in refused.err
    assert stage.facts() == before
    ran = stage.run("--goal", "another", "--accept-changes", "--max-iterations", "2", expect=3)
    assert ran.doc["goal"] == "another"
    assert len(stage.of(ev.PolicyChanged)) == 1
    assert "another" in stage("show", "r", "--prompt", "--iteration", "2", expect=0).out


# resume


def test_of_a_complete_run_starts_nothing(stage):
    stage.run(gate="true", expect=0)
    again = stage("resume", "r", "--json", expect=0)
    assert again.doc["reason"] == "quality_reached"
    refused = stage("resume", "r", "--add-iterations", "2", expect=2).err
    assert "never reopened; loopwright fork r --from 1 goes on" in refused
    assert len(stage.calls) == 1
    assert len(stage.of(ev.Claimed)) == 1


def test_at_a_limit_names_the_flag_and_with_it_goes_exactly_so_far(stage):
    stage.run("--max-iterations", "2", expect=3)
    before = stage.facts()
    assert "add to it with --add-iterations" in stage("resume", "r", expect=2).err
    assert stage.facts() == before
    ran = stage("resume", "r", "--add-iterations", "2", "--note", "mind the gap", "--json", expect=3)
    assert (ran.doc["reason"], ran.doc["iterations"]) == ("max_iterations", 4)
    assert len(stage.calls) == 4
    assert len(stage.of(ev.RunReopened)) == 1
    assert "mind the gap" in stage("show", "r", "--prompt", "--iteration", "3", expect=0).out
    for iteration in ("1", "4"):
        assert "mind the gap" not in stage("show", "r", "--prompt", "--iteration", iteration, expect=0).out


def test_at_a_limit_no_flag_adds_to_says_which_setting(stage):
    stage.run("--budget", "1", expect=3)
    refused = stage("resume", "r", expect=2).err
    assert "cost_unknown" in refused
    assert "start a new run with --set limits.reserve=" in refused


@pytest.mark.parametrize(
    ("flag", "bad"), [("iterations", "0"), ("budget", "nan"), ("budget", "inf"), ("duration", "-1s")]
)
def test_bad_additions_are_refused(stage, flag, bad):
    assert f"--add-{flag}" in stage("resume", "r", f"--add-{flag}", bad, expect=2).err


def test_a_stopped_run_goes_on_and_errors_count_anew(stage):
    stage.script({"stderr": "odd", "exit": 1})
    stage.run(expect=3)
    stage.script(DONE)
    # the gate passes now, but the errors before it do not end the run again
    ran = stage("resume", "r", "--json", expect=3)
    assert ran.doc["reason"] == "max_iterations"
    assert ran.doc["iterations"] == 20


def test_prefix_and_latest(stage):
    stage(*stage.loop("--max-iterations", "1", "--as", "alpha-one"), expect=3)
    stage(*stage.loop("--max-iterations", "1", "--as", "alpha"), expect=3)
    stage(*stage.loop("--max-iterations", "1", "--as", "beta"), expect=3)
    for name, run in (("alpha", "alpha"), ("alpha-", "alpha-one"), ("b", "beta"), ("latest", "beta")):
        assert stage("show", name, "--json", expect=0).doc["run"] == run
    ambiguous = stage("show", "al", expect=2).err
    assert "alpha, alpha-one" in ambiguous or "alpha-one, alpha" in ambiguous


# Two runners at once


def test_two_runners_on_one_run_or_one_workspace(stage):
    stage.script(HELD, DONE)
    with stage.started(*stage.loop(gate="test -e done")) as process:
        stage.held(process)
        before = stage.facts()
        for again in (stage("resume", "r"), stage.run(gate="test -e done")):
            assert again.code == 8
            assert f"run r is driven by process {process.pid}" in again.err
        other = stage(*stage.loop("--as", "other"))
        assert other.code == 8
        assert f"run r (process {process.pid}" in other.err
        assert stage("restore", "r", "--iteration", "0").code == 8
        assert stage.facts() == before
        assert [h["run"] for h in stage("list", "--all", "--json").doc] == ["r"]
        stage.go()
        assert ended(process).code == 0


class Overtaken(MemoryStore):
    """A store in which another process runs the same loop to its end between our look and our lease."""

    def lease(self, run: str, owner: str, ttl: float):
        if not self.heads():
            another = MemoryStore()
            assert start(LOOP, run, folder=self.folder, store=another).passed
            for n, body in another.read(run):
                self.append_with(run, n, body, Kept(head=b"{}", active=False))
        return super().lease(run, owner, ttl)


LOOP = Loop("g", agent="sh -c 'echo worked'", gates=["true"], workspace="none")


def test_who_comes_second_to_a_new_id_says_so_and_starts_nothing(tmp_path):
    store = Overtaken()
    store.folder = tmp_path
    with pytest.raises(Locked, match="run r was driven by another process meanwhile"):
        start(LOOP, "r", folder=tmp_path, store=store)
    assert start(LOOP, "r", folder=tmp_path, store=store).passed
    assert sum(isinstance(event, ev.AttemptStarted) for _, _, event, _ in history(store, "r")) == 1


# Keys and signals


def test_ctrl_c_once_finishes_the_iteration_and_pauses(stage):
    stage.script(HELD, DONE)
    with stage.started(*stage.loop("--json", gate="test -e done")) as process:
        stage.held(process)
        process.send_signal(signal.SIGINT)
        until(lambda: stage.of(ev.PauseRequested))
        assert stage.processes()  # the agent works on
        stage.go()
        ran = ended(process)
    assert (ran.code, ran.doc["reason"], ran.doc["iterations"]) == (6, "paused", 1)
    assert "pausing after this iteration" in ran.err
    assert stage.of(ev.AttemptInterrupted) == []
    assert stage("resume", "r", "--json", expect=0).doc["iterations"] == 2


def test_ctrl_c_twice_pauses_at_once(stage):
    stage.script(HELD, DONE)
    with stage.started(*stage.loop("--json", gate="test -e done")) as process:
        stage.held(process)
        process.send_signal(signal.SIGINT)
        until(lambda: stage.of(ev.PauseRequested))
        process.send_signal(signal.SIGINT)
        ran = ended(process)
        assert stage.processes() == []
    assert (ran.code, ran.doc["phase"]) == (130, "paused")
    (cut,) = stage.of(ev.AttemptInterrupted)
    assert cut.cause == "pause"
    assert stage("resume", "r", "--json", expect=0).doc["iterations"] == 1


def test_sigterm_hands_over_and_is_no_crash(stage):
    stage.script(HELD)
    verb = stage.loop("--json")
    for _ in range(4):  # more often than crashes may be
        with stage.started(*verb) as process:
            stage.held(process)
            process.send_signal(signal.SIGTERM)
            ran = ended(process)
        assert (ran.code, ran.doc["phase"]) == (143, "planning")
        assert stage.processes() == []
        verb = ["resume", "r", "--json"]
    assert [c.cause for c in stage.of(ev.AttemptInterrupted)] == ["handover"] * 4
    stage.script(DONE)
    assert stage(*verb, "--note", "x").doc["iterations"] == 20


def test_ctrl_c_works_where_sigint_was_ignored_at_the_start(stage):
    stage.script(HELD)
    ignoring = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    line = [sys.executable, "-c", ignoring, *stage.command(*stage.loop())]
    with subprocess.Popen(
        line, cwd=stage.folder, env=stage.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        stage.held(process)
        process.send_signal(signal.SIGINT)
        until(lambda: stage.of(ev.PauseRequested))
        stage.go()
        assert ended(process).code == 6


def test_the_runs_own_end_comes_before_the_signal(stage):
    stage.script({**DONE, "hold": True})
    with stage.started(*stage.loop(gate="test -e done")) as process:
        stage.held(process)
        process.send_signal(signal.SIGINT)
        until(lambda: stage.of(ev.PauseRequested))
        stage.go()
        assert ended(process).code == 0


# stop and pause from beside


def test_stop_now_cuts_the_agent(stage):
    stage.script(HELD)
    with stage.started(*stage.loop("--json")) as process:
        stage.held(process)
        said = stage("stop", "r", "--now", expect=0).err
        assert "r will stop now" in said or "stopped_by_user" in said  # it may be quicker than we are
        ran = ended(process)
        assert stage.processes() == []
    assert (ran.code, ran.doc["reason"]) == (5, "stopped_by_user")
    assert [c.cause for c in stage.of(ev.AttemptInterrupted)] == ["stop"]
    assert "is over already: stopped_by_user" in stage("stop", "r", expect=3).err
    assert "is over already" in stage("pause", "r", expect=3).err


def test_pause_now_cuts_the_agent_and_resume_goes_on(stage):
    stage.script(HELD, DONE)
    with stage.started(*stage.loop("--json", gate="test -e done")) as process:
        stage.held(process)
        stage("pause", "r", "--now", expect=0)
        ran = ended(process)
    assert (ran.code, ran.doc["phase"], ran.doc["iterations"]) == (6, "paused", 1)
    assert stage("resume", "r", "--json", expect=0).doc["iterations"] == 1


def crashed(stage: Stage) -> None:
    stage.script(HELD, WORK, DONE)
    with stage.started(*stage.loop(gate="test -e done")) as process:
        stage.held(process)
        process.send_signal(signal.SIGKILL)
    dead(stage)


@pytest.mark.parametrize("now", [(), ("--now",)])
def test_stop_of_an_idle_run_ends_it(stage, now):
    crashed(stage)
    assert "stopped" in stage("stop", "r", *now, expect=0).err
    ran = stage("show", "r", "--json", expect=0)
    assert (ran.doc["phase"], ran.doc["reason"], ran.doc["exit_code"]) == ("stopped", "stopped_by_user", 5)
    assert len(stage.calls) == 1
    assert stage("list", "--json", expect=0).doc == []


@pytest.mark.parametrize("now", [(), ("--now",)])
def test_pause_of_an_idle_run_starts_nothing_and_resume_goes_on(stage, now):
    crashed(stage)
    assert "next: loopwright resume r" in stage("pause", "r", *now, expect=0).err
    assert len(stage.calls) == 1
    ran = stage("resume", "r", "--json", expect=0)  # not one iteration and then a pause again
    assert (ran.doc["reason"], ran.doc["iterations"]) == ("quality_reached", 2)


def test_stop_while_a_person_is_asked(stage):
    stage.run("--approve", "passed", "--no-wait", gate="true", expect=6)
    assert stage("stop", "r", expect=0).code == 0
    assert stage("show", "r", "--json").doc["reason"] == "stopped_by_user"


# Inside a run


@pytest.mark.parametrize("verb", ["resume", "stop", "pause", "restore"])
def test_steering_is_refused_inside_a_run(stage, verb):
    ran = stage(verb, "r", LOOPWRIGHT_RUN="outer")
    assert ran.code == 2
    assert f"loopwright {verb} is refused inside run outer" in ran.err


def test_loops_nest(stage):
    ran = stage(*stage.loop("--max-iterations", "1", "--json"), LOOPWRIGHT_RUN="outer", expect=3)
    assert ran.doc["run"] == "r"
