"""Faults a review found, each by the shortest way that showed it."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cli"))

from warm import called

from loopwright import Loop, Result, Score, Usage, run
from loopwright.clock import Clock
from loopwright.codec import encode_signal
from loopwright.core import events as ev
from loopwright.errors import BadEvidence, Locked, StoreError, UsageError
from loopwright.gates.measure import as_score
from loopwright.hosts.local import resume
from loopwright.hosts.ways import Ways
from loopwright.journal import Journal, history
from loopwright.stores.memory import MemoryStore
from loopwright.stores.opened import owner, owner_alive
from loopwright.stores.sqlite import SqliteStore

TICK = "sh -c 'date +%s%N > made; echo hi'"


def cli(*words, cwd, env=None):
    return subprocess.CompletedProcess(words, *called([*words], cwd, {**os.environ, **(env or {})}))


def begin(*words, cwd):
    command = [sys.executable, "-m", "loopwright", *words]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def until(holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def facts(store, name):
    return [event for _, _, event, _ in history(store, name)]


def journal_of(folder, name):
    return Journal(SqliteStore(folder / ".agent-state" / "loopwright.db", alive=owner_alive), name)


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    git = ("git", "-c", "user.email=a@b", "-c", "user.name=a")
    subprocess.run([*git, "init", "-q"], cwd=folder, check=True)
    (folder / "a").write_text("1\n")
    subprocess.run([*git, "add", "-A"], cwd=folder, check=True)
    subprocess.run([*git, "commit", "-qm", "x"], cwd=folder, check=True)
    return folder


def test_code_that_a_gate_runs_cannot_make_its_protected_tests_pass(project):
    (project / "tests").mkdir()
    (project / "tests" / "check.sh").write_text("sh work.sh; exit 1\n")
    # What the agent wrote runs inside the gate, and rewrites the test for the next time.
    agent = """sh -c 'echo "echo exit 0 > tests/check.sh # $LOOPWRIGHT_ITERATION" > work.sh; echo hi'"""
    loop = Loop(
        "g",
        agent=agent,
        gates=["sh tests/check.sh"],
        protected=["tests/**"],
        max_iterations=3,
        baseline=False,
    )
    final = run(loop, "cheat", folder=project)
    assert (final.passed, final.reason) == (False, "max_iterations")
    assert (project / "tests" / "check.sh").read_text() == "sh work.sh; exit 1\n"
    scores = [
        e.score for e in facts(journal_of(project, "cheat").store, "cheat") if isinstance(e, ev.GateScored)
    ]
    assert {s.status for s in scores} == {"error"}
    assert "put back: tests/check.sh" in scores[0].reason


@pytest.mark.parametrize("ignored", [False, True])
def test_a_gate_cut_off_leaves_protected_files_as_they_were(project, ignored):
    if ignored:
        (project / ".gitignore").write_text("secret.txt\n")
    (project / "secret.txt").write_text("42\n")
    gate = "sh -c 'echo 0 > secret.txt; touch ../gate; sleep 30'"
    loop = (
        "--goal",
        "g",
        "--agent",
        TICK,
        "--gate",
        gate,
        "--set",
        'protected=["secret.txt"]',
        "--no-baseline",
    )
    running = begin("run", *loop, "--as", "cut", cwd=project)
    until((project.parent / "gate").exists)
    assert cli("stop", "cut", "--now", cwd=project).returncode == 0
    assert running.wait(20) == 5
    assert (project / "secret.txt").read_text() == "42\n"


def test_nobody_reading_stderr_does_not_end_a_run_as_passed(project):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "loopwright", "run", "--goal", "g", "--agent", TICK, "--gate", "false", "--max-iterations", "2", "--as", "p"],
        cwd=project, stdout=write, stderr=write, timeout=60, check=False,
    )  # fmt: skip
    os.close(write)
    assert done.returncode == 3
    assert journal_of(project, "p").state.finished.reason == "max_iterations"


ODD_SCORES = {
    "half a character": lambda: Score(0.5, "bad \ud800 \0", failing=("\udcff",)),
    "no JSON": lambda: Score(0.5, "x", evidence={"a": object()}),
    "no number": lambda: Score(0.5, "x", evidence={"a": float("nan")}),
    "bytes of a name": lambda: Score(0.5, "x", evidence={"a": "\udcff"}),
    "bad cause": lambda: Score(0.0, "x", status="error", cause="network"),
    "much": lambda: Score(0.5, "y" * 3_000_000, failing=["z" * 1000] * 9000),
    "much evidence": lambda: Score(0.5, "x", evidence={"a": "z" * 3_000_000}),
}


@pytest.mark.parametrize("make", ODD_SCORES.values(), ids=ODD_SCORES)
def test_whatever_a_gate_function_returns_the_journal_can_be_read_again(tmp_path, make):
    loop = Loop("g", agent=lambda attempt: "x", gates=[lambda result: make()], max_iterations=1)
    assert run(loop, "r", folder=tmp_path).reason in {"max_iterations", "gate_error"}
    journal = journal_of(tmp_path, "r")
    assert journal.state.finished is not None
    assert sum(len(body) for _, body in journal.store.read("r")) < 12_000_000


def test_evidence_that_is_no_json_is_no_evidence():
    with pytest.raises(BadEvidence, match="not JSON"):
        as_score(Score(1.0, status="pass", evidence={"a": Path()}))
    assert as_score(Score(1.0, status="pass", evidence={"a": (1, 2)})).evidence == {"a": [1, 2]}


@pytest.mark.parametrize(
    "result",
    [
        lambda: Result("a", usage=Usage(tokens=1500.0, turns=2.0)),
        lambda: Result("a", usage=Usage(tokens=1500.5)),
        lambda: Result("a", claims_done="yes"),
    ],
)
def test_whatever_an_agent_function_returns_the_journal_can_be_read_again(tmp_path, result):
    run(
        Loop("g", agent=lambda attempt: result(), gates=[lambda r: True], max_iterations=1),
        "r",
        folder=tmp_path,
    )
    assert journal_of(tmp_path, "r").state.finished is not None


def test_protected_files_with_any_name_are_put_back_and_recorded(project):
    name = os.fsdecode(b"test\xff.txt")
    (project / name).write_text("42\n")
    agent = "sh -c 'for f in *.txt; do echo 0 > \"$f\"; done; date +%s%N > made; echo hi'"
    loop = Loop("g", agent=agent, gates=["false"], protected=["*.txt"], max_iterations=2)
    assert run(loop, "r", folder=project).reason == "max_iterations"
    assert (project / name).read_text() == "42\n"
    changed = [e for e in facts(journal_of(project, "r").store, "r") if isinstance(e, ev.EvidenceChanged)]
    assert [e.paths for e in changed] == [("test\ufffd.txt",)] * 2


def test_a_gate_that_changes_a_file_with_any_name_is_an_error(project):
    (project / os.fsdecode(b"a\xff.txt")).write_text("42\n")
    gate = "sh -c 'for f in *.txt; do echo 0 >> \"$f\"; done'"
    run(Loop("g", agent=TICK, gates=[gate], max_iterations=1), "r", folder=project)
    assert "\ufffd" in journal_of(project, "r").state.last.reasons[0]
    assert cli("diff", "r", "--json", cwd=project).returncode == 0


def test_words_of_people_with_any_bytes_are_recorded(project):
    assert cli("run", "--goal", "g", "--agent", TICK, "--gate", "false", "--max-iterations", "1", "--as", "n", cwd=project).returncode == 3  # fmt: skip
    note = os.fsdecode(b"try \xff")
    done = cli(
        "resume",
        "n",
        "--note",
        note,
        "--add-iterations",
        "1",
        cwd=project,
        env={"LOGNAME": os.fsdecode(b"\xff")},
    )
    assert done.returncode == 3, done.stderr


def test_a_project_folder_with_a_name_that_is_not_utf8_is_refused_whole(tmp_path):
    folder = tmp_path / os.fsdecode(b"p\xffq")
    folder.mkdir()
    done = cli("run", "--goal", "g", "--agent", "true", "--gate", "true", cwd=folder)
    assert (done.returncode, list(folder.iterdir())) == (2, [])
    assert "UTF-8" in done.stderr


def test_a_run_is_not_resumed_in_another_folder(tmp_path, project):
    store = f"sqlite:///{tmp_path}/shared.db"
    loop = ("--goal", "g", "--agent", TICK, "--gate", "false", "--max-iterations", "1", "--store", store)
    assert cli("run", *loop, "--as", "nightly", cwd=project).returncode == 3
    other = tmp_path / "other"
    other.mkdir()
    (other / "a").write_text("mine\n")
    for verb in (
        ("run", *loop, "--as", "nightly"),
        ("resume", "nightly", "--add-iterations", "1", "--store", store),
        ("restore", "nightly", "--iteration", "0", "--force", "--store", store),
    ):
        done = cli(*verb, cwd=other)
        assert (done.returncode, str(project) in done.stderr) == (2, True), done.stderr
    assert (other / "a").read_text() == "mine\n"
    assert not (other / "made").exists()


@pytest.mark.parametrize("kept", ["git", "plain"])
def test_a_moved_project_keeps_its_run_and_its_snapshots(tmp_path, project, kept):
    if kept == "plain":
        subprocess.run(["rm", "-rf", project / ".git"], check=True)
    assert run(
        Loop("g", agent="sh -c 'echo 2 > a; echo hi'", gates=["false"], max_iterations=1), "m", folder=project
    )
    moved = project.rename(tmp_path / "moved")
    assert "+2" in cli("diff", "m", cwd=moved).stdout
    assert cli("restore", "m", "--iteration", "0", cwd=moved).returncode == 0
    assert (moved / "a").read_text() == "1\n"
    assert cli("resume", "m", "--add-iterations", "1", cwd=moved).returncode == 3


def test_a_store_that_is_removed_while_it_is_in_use_is_said(project):
    done = cli("run", "--goal", "g", "--agent", "sh -c 'rm -f .agent-state/*.db*; echo hi > b'", "--gate", "true",
               "--as", "r", "--no-baseline", cwd=project)  # fmt: skip
    assert (done.returncode, "removed" in done.stderr) == (9, True), done.stderr


def test_a_store_that_is_replaced_is_not_written(tmp_path):
    store = SqliteStore(tmp_path / "s.db")
    (tmp_path / "s.db").unlink()
    with pytest.raises(StoreError, match="removed"):
        store.append("r", 1, b"x")
    sqlite3.connect(tmp_path / "s.db").close()
    with pytest.raises(StoreError, match="removed"):
        store.append("r", 1, b"x")


@pytest.mark.parametrize("what", ["git", "artifacts"])
def test_an_agent_that_removes_our_folders_is_no_fault_of_ours(project, what):
    agent = f"sh -c 'rm -rf .agent-state/{what}; touch .agent-state/{what}; echo hi'"
    done = cli("run", "--goal", "g", "--agent", agent, "--gate", "true", "--as", "r", cwd=project)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_wait_is_not_longer_for_a_clock_set_back():
    clock, later = Clock(), datetime.now(UTC) + timedelta(hours=1)
    clock.after(later)
    assert later <= clock.now() < later + timedelta(seconds=5)
    clock.after(later - timedelta(hours=2))
    clock.after(None)
    assert later <= clock.now() < later + timedelta(seconds=5)


def test_a_clock_set_back_between_two_runners_does_not_lengthen_a_wait(project):
    (project / "agent.sh").write_text(
        "[ -e second ] && { echo hi > made; exit 0; }; touch second; echo rate limit 429 Retry-After: 3 >&2; exit 1\n"
    )
    running = begin(
        "run",
        "--goal",
        "g",
        "--agent",
        "sh agent.sh",
        "--gate",
        "true",
        "--as",
        "w",
        "--no-baseline",
        cwd=project,
    )
    until(lambda: (project / "second").exists() and journal_of(project, "w").state.wait_until)
    running.kill()
    running.wait()
    skewed = (
        "import sys, datetime, loopwright.clock as c\n"
        "class Back(datetime.datetime):\n"
        "    @classmethod\n"
        "    def now(cls, tz=None): return datetime.datetime.now(tz) - datetime.timedelta(hours=1)\n"
        "    @classmethod\n"
        "    def fromtimestamp(cls, at, tz): return datetime.datetime.fromtimestamp(at, tz)\n"
        "c.datetime = Back\n"
        "from loopwright.cli.app import run_app\n"
        "sys.exit(run_app(sys.argv[1:]))\n"
    )
    subprocess.run(
        [sys.executable, "-c", skewed, "resume", "w"],
        cwd=project,
        timeout=30,
        check=True,
        capture_output=True,
    )


def test_a_new_run_ends_no_processes_of_another_store(project):
    def loop(agent, db):
        return ("run", "--goal", "g", "--agent", agent, "--gate", "true", "--workspace", "none", "--store", f"sqlite:///{project}/{db}", "--as", "X")  # fmt: skip

    first = begin(*loop("sh -c 'touch begun; sleep 2; echo done'", "a.db"), cwd=project)
    until((project / "begun").exists)
    assert cli(*loop("sh -c 'echo hi'", "b.db"), cwd=project).returncode == 0
    assert first.wait(30) == 0
    journal = Journal(SqliteStore(project / "a.db"), "X")
    assert not [e for e in facts(journal.store, "X") if isinstance(e, ev.AttemptFailed)]


def test_secrets_go_to_whom_they_are_for(project):
    (project / "loop.toml").write_text(
        'goal = "g"\nenv = ["ALL_TOKEN"]\n'
        'agent = { use = "command", run = "sh -c \'echo a $ALL_TOKEN $AGENT_KEY $GATE_KEY > ../agent; echo hi > b\'", env = ["AGENT_KEY"] }\n'
        '[[gate]]\nuse = "command"\nrun = "sh -c \'echo 1 $ALL_TOKEN $AGENT_KEY $GATE_KEY > ../one\'"\nname = "one"\n'
        '[[gate]]\nuse = "command"\nrun = "sh -c \'echo 2 $ALL_TOKEN $AGENT_KEY $GATE_KEY > ../two\'"\nname = "two"\nenv = ["GATE_KEY"]\n'
    )
    secrets = {"ALL_TOKEN": "all", "AGENT_KEY": "agents", "GATE_KEY": "gates", "OTHER_KEY": "x"}
    done = cli("run", "--as", "r", cwd=project, env=secrets)
    assert done.returncode == 0, done.stderr
    seen = [(project.parent / name).read_text().split() for name in ("agent", "one", "two")]
    assert seen == [["a", "all", "agents"], ["1", "all"], ["2", "all", "gates"]]
    assert "withheld from agent and gates: OTHER_KEY" in done.stderr.replace("LOOPWRIGHT_STORE, ", "")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_one_process_holds_a_run_once(tmp_path, kind):
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "s.db", alive=owner_alive)
    held = store.lease("r", owner(), 30)
    assert store.lease("r", owner(), 30) is None
    held.release()
    assert store.lease("r", owner(), 30) is not None


def test_the_same_run_in_two_threads_is_driven_once(tmp_path):
    calls, begun, go_on = [], threading.Event(), threading.Event()

    def agent(attempt):
        calls.append(attempt.key)
        begun.set()
        go_on.wait(20)
        return 1

    loop = Loop("g", agent=agent, gates=[lambda result: True])
    first = threading.Thread(target=run, args=(loop, "same"), kwargs={"folder": tmp_path})
    first.start()
    begun.wait(20)
    with pytest.raises(Locked):
        run(loop, "same", folder=tmp_path)
    go_on.set()
    first.join(20)
    assert calls == ["same/1"]
    assert journal_of(tmp_path, "same").state.finished.reason == "quality_reached"


def test_ctrl_c_ends_a_run_that_was_called_from_a_running_loop(tmp_path):
    script = tmp_path / "s.py"
    script.write_text(
        "import asyncio, os, signal, threading, time\n"
        "from loopwright import Loop, run\n"
        "async def agent(attempt):\n"
        "    print('attempt', attempt.iteration, flush=True)\n"
        "    await asyncio.sleep(0.5)\n"
        "    return attempt.iteration\n"
        "def gate(result): return False\n"
        "async def main():\n"
        "    run(Loop('g', agent=agent, gates=[gate], max_iterations=20, convergence=False), 'k', folder='.')\n"
        "def press():\n"
        "    for _ in range(2):\n"
        "        time.sleep(0.7)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=press, daemon=True).start()\n"
        "try: asyncio.run(main())\n"
        "except KeyboardInterrupt: time.sleep(0.1); print('left', [t.name for t in threading.enumerate() if t.name == 'loopwright'])\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.splitlines()[-1] == "left []", done.stderr
    last = facts(journal_of(tmp_path, "k").store, "k")[-1]
    assert isinstance(last, ev.AttemptInterrupted)
    assert last.cause == "handover"


def test_ctrl_c_charges_what_the_attempt_took(tmp_path):
    async def agent(attempt):
        await asyncio.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(20)

    with pytest.raises(KeyboardInterrupt):
        run(Loop("g", agent=agent, gates=[lambda r: True]), "k", folder=tmp_path)
    assert 0.3 <= journal_of(tmp_path, "k").state.totals.seconds < 10


def test_a_stop_that_came_with_the_end_does_not_end_the_reopened_run(tmp_path):
    store = MemoryStore()

    def late(event):
        if isinstance(event, ev.RunFinished) and not list(store.signals("r")):
            for one in (ev.StopRequested(now=True, key="stop/x"), ev.PauseRequested(now=True, key="pause/x")):
                store.signal("r", one.key, encode_signal(one))

    loop = Loop("g", agent="sh -c 'echo hi'", gates=["false"], max_iterations=1, workspace="none")
    assert run(loop, "r", folder=tmp_path, store=store, observe=late).reason == "max_iterations"
    ways = Ways(project=tmp_path, store=store, environ=dict(os.environ), add={"max_iterations": 1})
    assert asyncio.run(resume("r", ways)).state.finished.reason == "max_iterations"


def test_a_score_does_not_wait_for_a_slow_neighbour(project):
    slow = "sh -c 'touch ../slow; sleep 20; exit 1'"
    running = begin(
        "run",
        "--goal",
        "g",
        "--agent",
        TICK,
        "--gate",
        "true",
        "--gate",
        slow,
        "--as",
        "s",
        "--no-baseline",
        cwd=project,
    )
    try:
        until((project.parent / "slow").exists)
        until(
            lambda: any(isinstance(e, ev.GateScored) for e in facts(journal_of(project, "s").store, "s")), 1.5
        )
    finally:
        running.terminate()
        running.wait(20)


def test_a_crashed_attempt_can_be_undone(project):
    running = begin("run", "--goal", "g", "--agent", "sh -c 'echo 2 > a; touch ../on; sleep 60'", "--gate", "false", "--as", "r", cwd=project)  # fmt: skip
    until((project.parent / "on").exists)
    running.kill()
    running.wait()
    done = cli("restore", "r", "--iteration", "0", "--force", cwd=project)
    assert (done.returncode, (project / "a").read_text()) == (0, "1\n"), done.stderr
    state = journal_of(project, "r").state
    assert (state.current.open, state.interruptions) == (None, 1)


def test_a_record_of_protected_files_that_was_changed_is_not_trusted(project):
    (project / "t.txt").write_text("42\n")
    loop = Loop("g", agent=TICK, gates=["false"], protected=["t.txt"], max_iterations=1)
    run(loop, "r", folder=project)
    (record,) = (project / ".agent-state/artifacts/r/protected").glob("*.json")
    record.write_text("{}")
    done = cli("resume", "r", "--add-iterations", "1", cwd=project)
    assert (done.returncode, "protected" in done.stderr) == (2, True), done.stderr


def test_what_cannot_be_snapshotted_is_said_before_there_is_a_run(tmp_path, monkeypatch):
    from loopwright.errors import WorkspaceError
    from loopwright.workspace import index

    monkeypatch.setattr(index, "MOST_FILES", 3)
    for name in "abcde":
        (tmp_path / name).write_text(name)
    with pytest.raises(WorkspaceError, match="git init"):
        run(Loop("g", agent=TICK, gates=["false"]), "r", folder=tmp_path)
    assert not journal_of(tmp_path, "r").exists


def test_a_stop_is_recorded_also_where_the_run_cannot_be_driven(tmp_path):
    script = tmp_path / "s.py"
    script.write_text(
        "import time\nfrom loopwright import Loop, run\n"
        "def agent(attempt): open('on', 'w').close(); time.sleep(60)\n"
        "def gate(result): return False\n"
        "run(Loop('g', agent=agent, gates=[gate]), 'n', folder='.')\n"
    )
    running = subprocess.Popen([sys.executable, script], cwd=tmp_path)
    until((tmp_path / "on").exists)
    running.kill()
    running.wait()
    script.unlink()
    done = cli("stop", "n", cwd=tmp_path)
    assert (done.returncode, "resumed" in done.stderr) == (0, True), done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_a_store_of_another_user_is_said(project):
    assert (
        cli("run", "--goal", "g", "--agent", TICK, "--gate", "true", "--as", "r", cwd=project).returncode == 0
    )
    reading = (
        "import os, sys, loopwright.cli.read, loopwright.stores.sqlite\n"
        "from loopwright.cli.app import run_app\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(run_app(sys.argv[1:]))\n"
    )
    for folder in (project, *project.parents[:-2]):
        folder.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", reading, "list"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, "Permission denied" in done.stderr) == (9, True), done.stderr


def test_a_wrong_place_is_named():
    from loopwright.core.state import LoopState
    from loopwright.hosts.take import check_place

    with pytest.raises(UsageError, match="-C /tmp"):
        check_place("r", LoopState(workspace="/tmp"), Path("/"))
    check_place("r", LoopState(workspace="/not/there/any/more"), Path("/"))


def test_what_a_gate_did_to_protected_files_before_a_crash_is_nobodys_edit(project):
    (project / "check.sh").write_text("sh work.sh; exit 1\n")
    (project / "agent.sh").write_text(
        "[ -e ../once ] && { date +%s%N > made; echo hi; exit 0; }\n"
        "touch ../once; echo 'echo exit 0 > check.sh; kill -9 $(cat ../pid)' > work.sh; echo hi\n"
    )
    loop = (
        "--goal",
        "g",
        "--agent",
        "sh agent.sh",
        "--gate",
        "sh check.sh",
        "--set",
        'protected=["check.sh"]',
    )
    shell = 'echo $$ > ../pid; exec "$0" -m loopwright "$@"'
    line = [
        "sh",
        "-c",
        shell,
        sys.executable,
        "run",
        *loop,
        "--max-iterations",
        "2",
        "--as",
        "r",
        "--no-baseline",
    ]
    assert subprocess.run(line, cwd=project, timeout=60, check=False).returncode == -signal.SIGKILL
    (project / "work.sh").write_text("")
    assert cli("resume", "r", cwd=project).returncode == 3
    assert (project / "check.sh").read_text() == "sh work.sh; exit 1\n"
    assert [e.paths for e in facts(journal_of(project, "r").store, "r") if isinstance(e, ev.EvidenceChanged)]


def test_what_a_person_changed_while_the_run_rested_is_theirs(project):
    (project / "check.sh").write_text("touch ../gate; sleep 20; exit 1\n")
    loop = ("--goal", "g", "--agent", TICK, "--gate", "sh check.sh", "--set", 'protected=["check.sh"]')
    running = begin("run", *loop, "--as", "r", "--no-baseline", cwd=project)
    until((project.parent / "gate").exists)
    assert cli("pause", "r", "--now", cwd=project).returncode == 0
    assert running.wait(20) == 6
    (project / "check.sh").write_text("exit 0\n")
    assert cli("resume", "r", cwd=project).returncode == 0


def test_a_gate_sees_the_output_before_the_one_it_judges(tmp_path):
    seen_ = []

    def judged(result, seen):
        seen_.append((result, seen.previous))
        return False

    run(Loop("g", agent=lambda a: a.iteration, gates=[judged], max_iterations=3), "r", folder=tmp_path)
    assert seen_ == [(1, None), (2, 1), (3, 2)]


def test_a_state_folder_made_for_an_agents_files_alone_is_private(project):
    store = f"sqlite:///{project.parent}/s.db"
    words = ("run", "--goal", "g", "--agent", TICK, "--gate", "true", "--workspace", "none", "--store", store)
    assert cli(*words, cwd=project).returncode == 0
    assert (project / ".agent-state").stat().st_mode & 0o777 == 0o700
    assert (project / ".agent-state" / ".gitignore").read_text() == "*\n"
