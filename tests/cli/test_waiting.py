"""A run that waits for a person, answered from other terminals: real processes, whatever dies in between.

Rule: what is checked is what a person sees, and that an answer takes effect once.
"""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from stage import WORK, Ran, Stage, until

from loopwright import Loop, run
from loopwright.cli.app import run_app
from loopwright.codec import encode_signal
from loopwright.core import events as ev
from loopwright.drive import expire
from loopwright.hosts import people
from loopwright.journal import Journal
from loopwright.stores.sqlite import SqliteStore

PASSED = ("--approve", "passed")
HOLD = ("--set", "approval.timeout=300ms")


class Near(Stage):
    """A stage on which verbs are called in this process, which is quicker; what is started is a process of its own."""

    def __call__(self, *args: str, expect: int | None = None, **env: str) -> Ran:
        if env:
            return super().__call__(*args, expect=expect, **env)
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in "12")
        with chdir(self.folder), redirect_stdout(out), redirect_stderr(err):
            code = run_app(list(args))
        ran = Ran(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))
        assert "Traceback" not in ran.err, ran.err
        assert expect is None or code == expect, f"exit {code}\n{ran.err}\n{ran.out}"
        return ran


@pytest.fixture
def stage(tmp_path):
    return Near.made(tmp_path)


def asked(stage: Stage, number: int = 1) -> ev.ApprovalRequested:
    """The request with this number, once it is open."""
    return until(lambda: stage.of(ev.ApprovalRequested)[number - 1 :])[0]


def ended(process: subprocess.Popen[str]) -> Ran:
    out, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
    return Ran(process.returncode, out, err)


@contextmanager
def waiting(stage: Stage, *args: str, gate: str | None = "true"):
    """A run that waits for a person."""
    with stage.started(*stage.loop(*PASSED, *args, "--json", gate=gate)) as process:
        asked(stage)
        yield process


def answers(stage: Stage) -> list[str]:
    return [decided.answer for decided in stage.of(ev.ApprovalDecided)]


def test_two_terminals(tmp_path):
    stage = Stage.made(tmp_path)
    with waiting(stage) as process:
        said = stage("revise", "latest", "--note", "smaller diff", expect=0).err
        assert "the process that drives it goes on from here" in said
        second = asked(stage, 2)
        assert process.poll() is None
        assert "smaller diff" in stage("show", "r", "--prompt", "--iteration", "2", expect=0).out
        assert "smaller diff" not in stage("show", "r", "--prompt", "--iteration", "1", expect=0).out
        shown = stage("show", "r", expect=0).out
        assert f"(request {second.id}): accept iteration 2" in shown
        assert "loopwright approve r" in shown
        assert "23h59m left" in shown or "24h00m left" in shown  # it rounds
        assert stage("show", "r", "--json", expect=0).doc["next"] == "loopwright approve r"
        (row,) = stage("approvals", "--json", expect=0).doc
        assert (row["run"], row["approval"], row["about"]) == ("r", second.id, "accept")
        assert row["next"] in stage("approvals", expect=0).out
        stage("approve", "r", "--note", "good", expect=0)
        ran = ended(process)
    assert (ran.code, ran.doc["reason"], ran.doc["iterations"]) == (0, "quality_reached", 2)
    assert "waiting for an answer from another terminal" in ran.err
    assert answers(stage) == ["revise", "approve"]
    assert len(stage.calls) == 2
    assert stage("approvals", "--json", expect=0).doc == []
    rows = stage("approvals", "--all", "--json", expect=0).doc
    assert [(r["answer"], r["note"]) for r in rows] == [("approve", "good"), ("revise", "smaller diff")]


def test_reject_from_another_terminal(stage):
    with waiting(stage) as process:
        stage("reject", "r", "--note", "not like this", expect=0)
        ran = ended(process)
    assert (ran.code, ran.doc["reason"]) == (5, "rejected")
    assert "not like this" in ran.doc["explanation"]


@pytest.mark.parametrize(("verb", "code", "phase"), [("stop", 5, "stopped"), ("pause", 6, "human_review")])
def test_stop_and_pause_end_the_waiting(stage, verb, code, phase):
    with waiting(stage) as process:
        stage(verb, "r", "--now", expect=0)
        ran = ended(process)
    assert (ran.code, ran.doc["phase"]) == (code, phase)


def test_waiting_is_not_idle_and_uses_nothing_up(stage):
    tight = ("--set", "limits.idle_timeout=100ms", "--set", "limits.max_wait=100ms")
    with waiting(stage, *tight) as process:
        begun = stage.state()["totals"]
        until(lambda: (datetime.now(UTC) - stage.timed()[-1][0]).total_seconds() > 0.5)
        assert process.poll() is None
        stage("approve", "r", expect=0)
        assert ended(process).code == 0
    assert stage.state()["totals"] == begun


def test_ctrl_c_leaves_at_once_and_the_request_stays_open(stage):
    for signal_, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        verb = ["resume", "r"] if stage.facts() else stage.loop(*PASSED, gate="true")
        with stage.started(*verb) as process:
            asked(stage)
            until(partial(_catches, process.pid, signal_))
            process.send_signal(signal_)
            assert ended(process).code == code
    assert stage.of(ev.PauseRequested) == []
    assert len(stage.of(ev.ApprovalRequested)) == 1
    assert "quality_reached" in stage("approve", "r", expect=0).err


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for this signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.partition("SigCgt:\t")[2].split()[0], 16)
    return bool(caught >> (number - 1) & 1)


def test_without_waiting_it_exits_6_at_once_and_so_does_python(stage, tmp_path):
    ran = stage.run(*PASSED, "--no-wait", gate="true", expect=6)
    assert ran.doc["reason"] == "approval_requested"
    assert ran.lines[2] == "  next: loopwright approve r"
    made = Loop("g", agent="sh -c 'echo worked'", gates=["true"], workspace="none", approval="passed")
    final = run(made, "p", folder=tmp_path)
    assert (final.exit_code, final.phase) == (6, "human_review")


def test_a_person_is_gate_enough(stage):
    ran = stage.run("--approve", "always", "--no-wait", gate=None, expect=6)
    assert "accept iteration 1" in ran.doc["explanation"]
    assert "quality_reached" in stage("approve", "r", expect=0).err


# Nobody answers


def test_silence_rests_the_run_and_a_late_tap_can_ask_again(stage):
    ran = stage.run(*PASSED, *HOLD, gate="true", expect=6)
    assert (ran.doc["phase"], ran.doc["reason"]) == ("paused", "approval_expired")
    assert ran.lines[2] == "  next: loopwright ask-again r"
    late = stage("approve", "r", expect=3).err
    assert "too late: nobody answered in time; loopwright ask-again r lets it ask anew" in late
    (row,) = stage("approvals", "--json", expect=0).doc
    assert (row["answer"], row["next"]) == ("expired", "loopwright ask-again r")
    asks = stage("ask-again", "r", expect=0).err
    first, second = stage.of(ev.ApprovalRequested)
    assert first.id != second.id
    assert second.id in asks
    # it is open again for as long, and over again for whoever comes then, with nobody driving it
    until(lambda: datetime.now(UTC) > second.deadline)
    assert "too late" in stage("approve", "r", expect=3).err
    assert stage("ask-again", "r", expect=0)
    assert answers(stage)[:2] == ["expired", "expired"]
    assert len(stage.of(ev.ApprovalRequested)) == 3
    assert len(stage.calls) == 1


@pytest.mark.parametrize(
    ("on_timeout", "code", "reason"), [("reject", 5, "rejected"), ("continue", 3, "max_iterations")]
)
def test_silence_stops_the_run_or_goes_on_and_never_completes(stage, on_timeout, code, reason):
    more = ("--set", f"approval.on_timeout={on_timeout}", "--max-iterations", "2")
    ran = stage.run(*PASSED, *HOLD, *more, gate="true", expect=code)
    assert (ran.doc["reason"], ran.doc["passed"]) == (reason, False)
    assert "is over" in stage("approve", "r", expect=3).err


def test_an_answer_racing_the_expiry_has_one_winner_and_the_loser_is_told(tmp_path):
    path = tmp_path / "runs.db"
    SqliteStore(path).close()
    made = Loop("g", agent="sh -c 'echo x'", gates=["true"], workspace="none", approval="passed")
    spec = made.spec() | {"approval": {"when": "passed", "timeout": 60.0, "on_timeout": "hold"}}
    now = datetime.now(UTC)
    start, told, rounds = threading.Barrier(2), [], 200

    def requests() -> None:
        store = SqliteStore(path)
        for n in range(rounds):
            journal = Journal(store, f"r{n}")
            request = ev.ApprovalRequested(id=f"q{n}", number=1, iteration=0, about="alert", digest="d")
            journal.record(now, ev.RunStarted(run=f"r{n}", spec=spec, digest="d"), request)
            journal.flush()
        store.close()

    def expirer() -> None:
        store = SqliteStore(path)
        for n in range(rounds):
            start.wait(30)
            expire(store, f"r{n}", f"q{n}", now)
        store.close()

    requests()
    other = threading.Thread(target=expirer)
    other.start()
    store = SqliteStore(path)
    said = people.Said(answer="approve", by="ann", channel="cli")
    for n in range(rounds):
        start.wait(30)
        outcome = people.answer(store, f"r{n}", said, now=now)
        stands, _ = people.standing(store, f"r{n}", f"q{n}")
        told.append((type(outcome).__name__, stands.answer))
    other.join(30)
    for n in range(rounds):  # what stands is what it stays
        assert people.standing(store, f"r{n}", f"q{n}")[0].answer == told[n][1]
    store.close()
    assert Counter(told).keys() <= {("Recorded", "approve"), ("Late", "expired")}, Counter(told)
    assert len(told) == rounds


@pytest.mark.parametrize("second", ["approve", "reject"])
def test_two_answers_at_once(stage, second):
    """The same one twice: both are told so. Two different ones: one is on record, the other is told."""
    stage.run(*PASSED, "--no-wait", gate="true", expect=6)
    with stage.started("approve", "r") as one, stage.started(second, "r") as two:
        ran = [ended(one), ended(two)]
    assert len(answers(stage)) == 1
    codes = sorted(each.code for each in ran)
    if second == "approve":
        assert codes == [0, 0], [each.err for each in ran]
    else:
        assert codes == [0, 3], [each.err for each in ran]
        loser = next(each.err for each in ran if each.code == 3)
        assert f"already decided: {answers(stage)[0]} by" in loser
    assert len(stage.of(ev.RunFinished)) == 1


# Something dies


def test_a_decision_made_while_nothing_runs_counts_once_the_run_goes_on(stage):
    with waiting(stage) as process:
        (request,) = stage.of(ev.ApprovalRequested)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert stage("show", "r", "--json").doc["reason"] == "approval_requested"
    decision = ev.ApprovalDecided(id=request.id, answer="revise", by="ann", note="smaller diff")
    stage.signal(f"decision/{request.id}", decision)
    ran = stage("resume", "r", "--no-wait", "--json", expect=6)
    assert ran.doc["iterations"] == 2
    assert "smaller diff" in stage("show", "r", "--prompt", "--iteration", "2", expect=0).out
    assert answers(stage) == ["revise"]


def test_killed_while_waiting_it_is_answered_with_nobody_driving(stage):
    with waiting(stage) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    said = stage("approve", "r", expect=0).err
    assert "r: quality_reached" in said
    assert (answers(stage), len(stage.calls), len(stage.of(ev.ApprovalRequested))) == (["approve"], 1, 1)


DIES = """
import os, signal, sys
from loopwright.cli.app import run_app
from loopwright.codec import encode_signal
from loopwright.core import events as ev
from loopwright.hosts import local
from loopwright.hosts.door import alone
from loopwright.hosts.ways import Ways
from loopwright.stores.sqlite import SqliteStore
from pathlib import Path

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

moment = sys.argv[1]
if moment == "decision":   # it is on record, nothing has come of it
    see = lambda event: die() if isinstance(event, ev.ApprovalDecided) else None
else:                      # it is on record, and its signal still looks unread
    see = lambda event: None
    SqliteStore.settle = die
alone(lambda: local.settle("r", Ways(project=Path.cwd(), environ=dict(os.environ), observe=(see,))))
"""


@pytest.mark.parametrize("moment", ["decision", "settle"])
@pytest.mark.parametrize("answer", ["approve", "revise"])
def test_killed_between_decision_and_effect_it_applies_once(stage, moment, answer):
    stage.run(*PASSED, "--no-wait", gate="true", expect=6)
    (request,) = stage.of(ev.ApprovalRequested)
    stage.signal(f"decision/{request.id}", ev.ApprovalDecided(id=request.id, answer=answer, note="n"))
    died = subprocess.run(
        [sys.executable, "-c", DIES, moment], cwd=stage.folder, env=stage.env, timeout=60, check=False
    )
    assert died.returncode == -signal.SIGKILL
    assert answers(stage) == [answer]
    assert stage.of(ev.IterationClosed)[1:] == []  # iteration 0 alone: nothing came of it yet
    if answer == "approve":
        assert stage("resume", "r", "--json", expect=0).doc["iterations"] == 1
    else:
        assert stage("resume", "r", "--no-wait", "--json", expect=6).doc["iterations"] == 2
    assert answers(stage) == [answer]
    assert len(stage.calls) == (1 if answer == "approve" else 2)


def test_an_answer_that_cannot_be_acted_on_yet_stays_on_record(stage):
    tool = stage.folder.parent / "bin/my-check"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    path = {"PATH": f"{tool.parent}:{stage.env['PATH']}"}
    stage(*stage.loop(*PASSED, "--no-wait", gate="my-check"), expect=6, **path)
    said = stage("approve", "r", expect=0).err  # where the tool is not found
    assert "approve by" in said
    assert "loopwright resume r takes it in; for now: " in said
    assert stage("show", "r", "--json").doc["reason"] == "approval_requested"
    assert stage("resume", "r", "--json", expect=0, **path).doc["reason"] == "quality_reached"
    assert (answers(stage), len(stage.calls)) == (["approve"], 1)


# The work is what was shown


def test_a_tree_that_moved_is_judged_and_asked_about_again(stage):
    stage.git("init", "-q")
    with waiting(stage) as process:
        stage.write("work.txt", "edited by hand\n")
        stage("approve", "r", expect=0)
        second = asked(stage, 2)
        assert process.poll() is None
        (first, *_) = stage.of(ev.ApprovalRequested)
        stale = stage("approve", "r", "--approval", first.id, expect=3).err
        assert f"that request is no longer open; {second.id} is" in stale
        stage("approve", "r", expect=0)
        ran = ended(process)
    assert ran.code == 0
    assert "the files changed since a person was asked" in ran.err
    moved = [fact for fact in stage.of(ev.WorkspaceChanged) if fact.cause == "user"]
    assert len(moved) == 1
    assert len(stage.of(ev.GateScored)) == 3  # before the work, after it, after the edit
    assert len(stage.calls) == 1


def test_a_tree_that_moved_while_nothing_ran_is_not_accepted(stage):
    stage.git("init", "-q")
    stage.run(*PASSED, "--no-wait", gate="true", expect=6)
    stage.write("new.txt", "by hand\n")
    said = stage("approve", "r", expect=3).err
    assert "that answer is not for this work" in said
    assert "next: loopwright resume r" in said
    assert "judged again first" in stage("approve", "r", expect=3).err
    assert stage("resume", "r", "--no-wait", "--json", expect=6).doc["iterations"] == 1
    assert "quality_reached" in stage("approve", "r", expect=0).err
    assert len(stage.calls) == 1


@pytest.mark.parametrize("options", ["", "writes = true"])
def test_what_gates_write_is_no_change_by_a_person(stage, options):
    stage.git("init", "-q")
    stage.write("report.txt" if options else "x.txt", "old\n")
    stage.write("work.txt", "")
    gate = "sh -c 'cat work.txt > report.txt'"
    stage.file(f'approval.when = "passed"\n[[gate]]\nuse = "command"\nrun = "{gate}"\n{options}')
    stage("run", "loop.toml", "--as", "r", "--no-wait", expect=6)
    assert "quality_reached" in stage("approve", "r", expect=0).err
    assert len(stage.of(ev.ApprovalRequested)) == 1


# Protected files


def tampered(stage: Stage, *calls: dict) -> ev.ApprovalRequested:
    """A run that asks about the protected file its agent changed."""
    stage.git("init", "-q")
    stage.write("tests/test.txt", "strict\n")
    cheats = {"write": {"tests/test.txt": "lax\n", "work.txt": "x"}, "say": "worked"}
    stage.script(*(calls or (cheats, WORK)))
    stage.file('gates = ["test -e work.txt"]\nprotected = ["tests/**"]\non_tamper = "ask"')
    ran = stage("run", "loop.toml", "--as", "r", "--no-wait", "--json", expect=6)
    (request,) = stage.of(ev.ApprovalRequested)
    assert request.about == "evidence"
    assert "tests/test.txt" in ran.doc["explanation"]
    assert (stage.folder / "tests/test.txt").read_text() == "lax\n"
    assert [fact.action for fact in stage.of(ev.EvidenceChanged)] == ["asked"]
    return request


def test_a_change_of_evidence_that_a_person_approves_is_the_new_baseline(stage):
    tampered(stage)
    assert "next: loopwright resume r" in stage("approve", "r", expect=0).err
    ran = stage("resume", "r", "--json", expect=0)
    assert (ran.doc["reason"], ran.doc["iterations"]) == ("quality_reached", 1)
    assert (stage.folder / "tests/test.txt").read_text() == "lax\n"


def test_a_change_of_evidence_that_is_to_be_revised_is_put_back_and_the_agent_is_told(stage):
    cheats = {"write": {"tests/test.txt": "lax\n"}, "say": "worked"}
    tampered(stage, cheats, {"write": {"work.txt": "x"}, "say": "worked"})
    said = stage("revise", "r", "--note", "leave the tests", expect=0).err
    assert (stage.folder / "tests/test.txt").read_text() == "strict\n"
    assert "resume r" in said
    ran = stage("resume", "r", "--json", expect=0)
    assert (ran.doc["reason"], ran.doc["iterations"]) == ("quality_reached", 2)
    prompt = stage("show", "r", "--prompt", "--iteration", "2", expect=0).out
    assert "leave the tests" in prompt
    assert "protected files were changed and put back, leave them: tests/test.txt" in prompt


def test_a_change_of_evidence_that_is_rejected_stops_the_run(stage):
    tampered(stage)
    assert "r: rejected" in stage("reject", "r", expect=0).err


def test_a_revision_of_evidence_is_carried_out_after_a_crash(stage):
    tampered(stage)
    (request,) = stage.of(ev.ApprovalRequested)
    stage.signal(f"decision/{request.id}", ev.ApprovalDecided(id=request.id, answer="revise", note="n"))
    died = subprocess.run(
        [sys.executable, "-c", DIES, "decision"], cwd=stage.folder, env=stage.env, timeout=60, check=False
    )
    assert died.returncode == -signal.SIGKILL
    assert (stage.folder / "tests/test.txt").read_text() == "lax\n"
    stage("resume", "r", expect=0)
    assert (stage.folder / "tests/test.txt").read_text() == "strict\n"


def test_silence_about_evidence_never_passes_it(stage):
    stage.git("init", "-q")
    stage.write("tests/test.txt", "strict\n")
    lax, strict = ({"write": {"tests/test.txt": f"{text}\n"}, "say": "worked"} for text in ("lax", "strict"))
    stage.script(lax, WORK, strict, lax)
    stage.file(
        'gates = ["true"]\nprotected = ["tests/**"]\non_tamper = "ask"\nlimits.max_iterations = 2\n'
        '[approval]\nwhen = "never"\ntimeout = "100ms"\non_timeout = "continue"'
    )
    ran = stage("run", "loop.toml", "--as", "r", "--json", expect=3)
    assert (ran.doc["reason"], ran.doc["passed"]) == ("max_iterations", False)
    assert (stage.folder / "tests/test.txt").read_text() == "lax\n"
    assert len(stage.of(ev.ApprovalRequested)) == 2
    # an agent that undoes it is fine again, and the true file is still the first one
    assert stage("resume", "r", "--add-iterations", "1", "--json", expect=0).doc["iterations"] == 3
    assert [fact.action for fact in stage.of(ev.EvidenceChanged)] == ["asked", "restored"]
    assert stage.state()["evidence"] == stage.of(ev.WorkspaceChanged)[0].evidence


def test_a_new_protected_file_is_no_tampering_and_no_obstacle(stage):
    stage.git("init", "-q")
    stage.write("tests/test.txt", "strict\n")
    stage.script({"append": {"tests/new.txt": "x\n"}, "say": "worked"})
    stage.file('gates = ["false"]\nprotected = ["tests/**"]\nlimits.max_iterations = 2')
    stage("run", "loop.toml", "--as", "r", expect=3)
    assert stage.of(ev.EvidenceChanged) == []
    assert stage("resume", "r", "--add-iterations", "1", "--json", expect=3).doc["iterations"] == 3


# Agents do not decide


def test_an_agent_cannot_answer_and_has_nothing_to_answer_with(stage):
    inside = " ".join(stage.command("approve", "latest"))
    stage.write("agent.sh", f"env > seen.txt\n{inside} 2> said.txt\necho $? > code.txt\necho worked\n")
    stage(
        *("run", "--goal", "g", "--agent", "sh agent.sh", "--gate", "true", "--as", "r"), *PASSED, "--no-wait"
    )
    assert (stage.folder / "code.txt").read_text() == "2\n"
    assert "loopwright approve is refused inside run r" in (stage.folder / "said.txt").read_text()
    names = [line.partition("=")[0] for line in (stage.folder / "seen.txt").read_text().splitlines()]
    assert not [name for name in names if "TOKEN" in name or "APPROV" in name or "DECISION" in name]
    assert answers(stage) == []


# A terminal


CONTROLLING = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class Screen:
    """A pseudo-terminal with a program on it: what is shown, and what is typed."""

    def __init__(self, stage: Stage, *args: str, **env: str) -> None:
        self.ours, theirs = pty.openpty()
        line = [sys.executable, "-c", CONTROLLING, *stage.command(*args)]
        self.process = subprocess.Popen(
            line,
            cwd=stage.folder,
            env={**stage.env, "TERM": "xterm", **env},
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
        )
        os.close(theirs)
        os.set_blocking(self.ours, False)
        self.text = ""

    def read(self) -> str:
        with suppress(OSError):  # nothing yet, or all is said
            self.text += os.read(self.ours, 65536).decode(errors="replace")
        return self.text

    def shows(self, words: str, times: int = 1) -> None:
        until(
            lambda: self.read().count(words) >= times or (self.process.poll() is not None and not self.read())
        )
        assert self.text.count(words) >= times, self.text

    def type(self, line: str) -> None:
        os.write(self.ours, line.encode())

    def close(self) -> int:
        code = self.process.wait(60)
        self.read()
        self.process.stdout.close()
        os.close(self.ours)
        return code


@pytest.fixture
def screen(stage):
    shown: list[Screen] = []

    def start(*args: str, **env: str) -> Screen:
        shown.append(Screen(stage, *args, **env))
        return shown[-1]

    yield start
    for each in shown:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


@pytest.mark.parametrize("drawn", [{}, {"NO_COLOR": "1"}])
def test_an_answer_typed_where_it_runs(stage, screen, drawn):
    terminal = screen(*stage.loop(*PASSED, gate="true"), **drawn)
    terminal.shows("asks a person")
    terminal.shows("> ")
    terminal.type("what?\n")
    terminal.shows("answer with one of: approve [NOTE]")
    terminal.type("revise\n")
    terminal.shows("revise needs words behind it")
    terminal.type("revise smaller diff\n")
    terminal.shows("accept iteration 2")
    assert "smaller diff" in stage("show", "r", "--prompt", "--iteration", "2", expect=0).out
    terminal.shows("> ", 4)
    terminal.type("approve good\n")
    terminal.shows("quality_reached")
    assert terminal.close() == 0
    assert [(d.answer, d.note, d.channel) for d in stage.of(ev.ApprovalDecided)] == [
        ("revise", "smaller diff", "terminal"),
        ("approve", "good", "terminal"),
    ]


def test_an_answer_from_elsewhere_ends_the_question_here(stage, screen):
    terminal = screen(*stage.loop(*PASSED, gate="true"))
    terminal.shows("> ")
    terminal.type("appro")  # not yet
    stage("revise", "r", "--note", "smaller diff", expect=0)
    terminal.shows("revise by")
    terminal.shows("> ", 2)
    terminal.type("\n")
    terminal.type("override\n")
    terminal.shows("override needs words behind it")
    terminal.type("reject no\n")
    terminal.shows("rejected by")
    assert terminal.close() == 5
    assert answers(stage) == ["revise", "reject"]


def test_what_was_typed_before_a_request_was_shown_is_no_answer_to_it(stage, screen):
    stage.script(WORK, {**WORK, "hold": True})
    terminal = screen(*stage.loop(*PASSED, gate="true"))
    terminal.shows("> ")
    terminal.type("revise again\n")
    stage.held(terminal.process)
    terminal.type("approve\n")
    stage.go()
    terminal.shows("accept iteration 2")
    terminal.shows("> ", 2)
    terminal.type("reject no\n")
    assert terminal.close() == 5
    assert answers(stage) == ["revise", "reject"]


def test_ctrl_c_and_ctrl_d_at_the_question(stage, screen):
    terminal = screen(*stage.loop(*PASSED, gate="true"))
    terminal.shows("> ")
    terminal.type("\x04")
    terminal.shows("nothing more is read here: answer from another terminal")
    terminal.type("\x03")
    terminal.shows("the request stays open")
    assert terminal.close() == 130
    assert "human_review" in stage("show", "r", "--json").out


def test_no_input_asks_nothing_on_the_terminal(stage, screen):
    terminal = screen(*stage.loop(*PASSED, "--no-input", gate="true"))
    terminal.shows("waiting for an answer from another terminal")
    terminal.type("approve\n")
    stage("reject", "r", expect=0)
    assert terminal.close() == 5


def test_a_signal_says_when_it_was_left(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    at = datetime(2026, 3, 1, 10, 2, tzinfo=UTC)
    store.signal("r", "decision/q", encode_signal(ev.ApprovalDecided(id="q", answer="approve"), at))
    store.signal("r", "decision/p", encode_signal(ev.ApprovalDecided(id="p", answer="approve")))
    assert people.standing(store, "r", "q")[1] == at
    assert people.standing(store, "r", "p")[1] is None
    assert people.standing(store, "r", "none") is None
    store.close()


# A wait for a time


def test_a_wait_of_an_hour_is_seen_here_and_from_elsewhere_and_ctrl_c_pauses_it_at_once(stage, screen):
    stage.script({"exit": 1, "stderr": "HTTP 429 Too Many Requests; retry after 3600 seconds"}, WORK)
    terminal = screen(*stage.loop())
    terminal.shows("waiting: rate limited, until ")
    terminal.shows("waits 1h00m more: rate limited")
    row = stage("list", expect=0).out.splitlines()[1]
    assert "waiting" in row and row.endswith(
        ("it goes on by itself in 1h00m", "it goes on by itself in 59m59s")
    )
    assert stage("list", "--json", expect=0).doc[0]["next"] == "loopwright show r"
    shown, why = stage("show", "r", expect=0).out, stage("why", "r", expect=0).out
    for out in (shown, why):
        assert "why:  rate limited, until " in out
        assert re.search(r"next: it goes on by itself in \S+; loopwright stop r ends it", out)
    assert "The last attempt: rate limited: HTTP 429 Too Many Requests" in why
    terminal.type("\x03")
    terminal.shows("pausing now")
    assert terminal.close() == 6
    with stage.started("resume", "r") as process:  # the reset is an hour away as before
        until(lambda: len(stage.of(ev.Resumed)) == 1 and stage.state()["claim"]["epoch"] == 2)
        until(lambda: not stage.state()["paused"])
        said = stage("pause", "r", expect=0).err
        assert re.search("will pause now|⏸ r: paused", said)  # it may have paused before that could be said
        assert ended(process).code == 6
    assert len(stage.calls) == 1


def test_a_wait_over_max_wait_is_not_begun_and_says_the_figures(stage):
    stage.script({"exit": 1, "stderr": "HTTP 429 Too Many Requests; retry after 3600 seconds"})
    ran = stage.run("--set", "limits.max_wait=30m", expect=3)
    assert ran.doc["reason"] == "max_wait"
    assert "asked to wait 3600 s more, 0 s of 1800 s of waiting are used" in ran.doc["explanation"]
    assert "next: loopwright resume r once the limit is lifted" in ran.lines[2]
