"""Runs in a folder of their own, and the way their work gets out of it."""

import json
import shutil
import signal
import subprocess

import pytest
from stage import WORK, Stage, until

from loopwright.core import events as ev
from loopwright.errors import Conflict
from loopwright.hosts import deliver
from loopwright.stores.sqlite import SqliteStore

DONE = {"write": {"done.txt": "yes\n"}, "say": "done"}
GATE = "test -s done.txt"
APART = ("--workspace", "worktree", "--no-baseline")


@pytest.fixture
def stage(tmp_path):
    """A repository with one commit, and a file that is not in it."""
    stage = Stage.made(tmp_path, DONE)
    stage.write("a.txt", "".join(f"{n}\n" for n in range(1, 10)))
    stage.git("init", "-q", "-b", "main")
    stage.git("add", ".")
    stage.git("commit", "-qm", "first")
    stage.write("mine.txt", "not committed\n")
    return stage


def copy(stage, run="r"):
    return stage.folder / ".agent-state/workspaces" / run / stage.folder.name


def refs(stage):
    return stage.git("for-each-ref", "--format=%(refname)").split()


def text(path):
    return path.read_text() if path.exists() else None


# Where it works


def test_the_agent_works_apart_and_git_works_there(stage):
    stage.script({**DONE, "env": "env.json"})
    git = "sh -c 'test -s done.txt; git status --short > status.txt; git log --oneline main >> status.txt; git commit -qam x || :'"
    stage.write(".env", "TOKEN=x\n")
    ran = stage.run(*APART, gate=git, expect=0)
    assert "your uncommitted work is not in it: mine.txt" in ran.err
    assert ".env" not in ran.err  # whose advice is to commit what it names
    assert f"in {copy(stage)}" in ran.err
    assert ran.lines[2] == "  next: loopwright apply r"
    assert not (stage.folder / "done.txt").exists()
    assert not (copy(stage) / "mine.txt").exists()
    status = text(copy(stage) / "status.txt")
    assert "?? done.txt" in status
    assert status.endswith(" first\n")
    seen = json.loads(text(copy(stage) / "env.json"))
    assert seen["LOOPWRIGHT_WORKDIR"] == str(copy(stage))
    assert stage.git("status", "--short") == "?? .env\n?? mine.txt\n"
    assert "loopwright" not in stage.git("branch", "--list", "--all")


def test_what_the_agent_does_with_git_stays_apart(stage):
    stage.git("config", "user.note", "mine")
    before = stage.git("config", "--local", "--list"), stage.git("rev-parse", "HEAD", "main")
    edited = stage.write("a.txt", "edited\n")
    agent = stage.write(
        "agent.sh",
        "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m theirs; git config user.note theirs; "
        "git branch -f main; git stash -qu; git checkout -qb other; rm -rf .git; "
        "git reset -q --hard; git commit -qam stolen; git stash -q; echo > done.txt",
    )
    ran = stage(
        *["run", "--goal", "g", "--agent", f"sh {agent}", "--gate", GATE, "--as", "r", *APART], expect=0
    )
    assert ran.code == 0
    assert (stage.git("config", "--local", "--list"), stage.git("rev-parse", "HEAD", "main")) == before
    assert stage.git("stash", "list") == ""
    assert stage.git("status", "--short") == " M a.txt\n?? agent.sh\n?? mine.txt\n"
    assert text(edited) == "edited\n"
    stage("apply", "r", expect=0)
    assert text(stage.folder / "done.txt") == "\n"


def test_a_run_began_at_the_commit_that_was_said(stage):
    stage.write("a.txt", "second\n")
    stage.git("commit", "-qam", "second")
    stage.run(*APART, "--set", "workspace.base=HEAD~1", gate=GATE, expect=0)
    assert text(copy(stage) / "a.txt").startswith("1\n2\n")
    ran = stage.run("--as", "s", *APART, "--set", "workspace.base=nowhere", gate=GATE, expect=2)
    assert "workspace.base: the repository has no commit 'nowhere'" in ran.err
    assert not copy(stage, "s").parent.exists()


def test_nothing_committed_yet_is_said(tmp_path):
    stage = Stage.made(tmp_path, DONE)
    stage.git("init", "-q")
    ran = stage.run(*APART, gate=GATE, expect=2)
    assert "nothing is committed yet" in ran.err
    assert not (stage.folder / ".agent-state").exists()


def test_a_folder_has_what_is_there_now_and_no_secrets(stage):
    stage.write("a.txt", "edited\n")
    stage.write(".env", "KEY=1\n")
    stage.run("--workspace", "folder", "--no-baseline", gate=GATE, expect=0)
    assert text(copy(stage) / "a.txt") == "edited\n"
    assert text(copy(stage) / "mine.txt") == "not committed\n"
    assert not (copy(stage) / ".env").exists()


def test_runs_of_one_project_work_side_by_side(stage):
    stage.script({**DONE, "hold": True})
    with stage.started(*stage.loop(*APART, gate=GATE)) as first:
        stage.held(first)
        with stage.started(*stage.loop("--as", "s", *APART, gate=GATE)) as second:
            stage.held(second)
            assert stage("apply", "r").code == 2  # nothing to apply yet, and nothing is locked
            assert stage.run(*APART, gate=GATE).code == 8
            stage.go()
            assert (first.wait(30), second.wait(30)) == (0, 0)


# Getting it ready


def test_it_is_set_up_before_anything_is_judged(stage):
    (stage.folder / "node_modules/.bin").mkdir(parents=True)
    stage.write("node_modules/x.js", "x\n")
    stage.write(".gitignore", "built.txt\nnode_modules/\n")
    stage.git("add", ".gitignore")
    stage.git("commit", "-qm", "ignore")
    stage.file(
        "gates = [\"sh -c 'test -s built.txt && test -s node_modules/x.js && test -s done.txt'\"]\n"
        "[workspace]\nmode = 'worktree'\nlink = ['node_modules']\n"
        "setup = [\"sh -c 'echo built; pwd > built.txt'\", 'test -s built.txt']"
    )
    stage("run", "--as", "r", expect=0)
    assert text(copy(stage) / "built.txt") == f"{copy(stage)}\n"
    assert text(stage.folder / ".agent-state/artifacts/r/setup-1.log") == "built\n"
    assert (copy(stage) / "node_modules").is_symlink()
    stage("apply", "r", expect=0)
    assert not (stage.folder / "node_modules").is_symlink()
    assert (stage.folder / "done.txt").exists()


def test_a_setup_that_fails_leaves_nothing(stage):
    setup = "workspace.setup=[\"sh -c 'echo no such package >&2; exit 3'\"]"
    ran = stage.run(*APART, "--set", setup, gate=GATE, expect=2)
    assert "workspace.setup: sh -c" in ran.err
    assert "exit 3" in ran.err
    assert "no such package" in ran.err
    assert not copy(stage).parent.exists()
    assert not [ref for ref in refs(stage) if "/r/" in ref]
    assert stage.facts() == []


def test_what_a_setup_says_is_kept_without_secrets(stage):
    stage.write("says", "go with p4ss-w0rd-of-ours\n")
    stage.env["DB_PASSWORD"] = "p4ss-w0rd-of-ours"
    stage.git("add", "says")
    stage.git("commit", "-qm", "says")
    setup = "workspace.setup=[\"sh -c 'cat says; exit 3'\"]"
    ran = stage.run(*APART, "--set", setup, gate=GATE, expect=2)
    log = text(stage.folder / ".agent-state/artifacts/r/setup-1.log")
    assert log.startswith("go with ") and "go with " in ran.err
    assert "p4ss" not in log + ran.err + ran.out


def test_a_setup_that_was_killed_is_done_anew(stage):
    mark = stage.folder.parent / "begun"
    setup = f"workspace.setup=[\"sh -c 'test -e {mark} && exit 0; touch {mark} half.txt; sleep 60'\"]"
    with stage.started(*stage.loop(*APART, "--set", setup, gate=GATE)) as process:
        until(mark.exists)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert copy(stage).exists()
    stage.run(*APART, "--set", setup, gate=GATE, expect=0)
    assert not (copy(stage) / "half.txt").exists()


def test_what_is_not_ours_is_never_removed(stage):
    theirs = copy(stage).parent / "theirs.txt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs\n")
    (stage.folder / ".agent-state").chmod(0o700)
    ran = stage.run(*APART, gate=GATE, expect=2)
    assert "was not made by loopwright" in ran.err
    assert theirs.exists()


# Going on


def test_a_failed_attempt_is_repeated_from_the_start(stage):
    failing = {"write": {"junk.txt": "half\n"}, "stderr": "HTTP 529 overloaded", "exit": 1}
    stage.script(failing, DONE)
    stage.run(*APART, "--set", "limits.backoff.first=0.01", gate=GATE, expect=0)
    assert not (copy(stage) / "junk.txt").exists()
    restored = [fact for fact in stage.of(ev.WorkspaceChanged) if fact.cause == "restored"]
    (failed,) = stage.of(ev.AttemptFailed)
    assert len(restored) == 1
    assert failed.snapshot not in {None, restored[0].snapshot}  # what it left is kept


def test_in_place_nothing_moves_backwards(stage):
    failing = {"write": {"junk.txt": "half\n"}, "stderr": "HTTP 529 overloaded", "exit": 1}
    stage.script(failing, DONE)
    stage.run("--no-baseline", "--set", "limits.backoff.first=0.01", gate=GATE, expect=0)
    assert text(stage.folder / "junk.txt") == "half\n"


def test_what_a_person_changed_there_is_kept(stage):
    stage.script({"write": {"junk.txt": "half\n"}, "hold": True}, DONE)
    with stage.started(*stage.loop(*APART, gate=GATE)) as process:
        stage.held(process)
        stage("pause", "r", "--now", expect=0)
        assert process.wait(30) == 6
    (copy(stage) / "hint.txt").write_text("a person was here\n")
    stage("resume", "r", expect=0)
    assert text(copy(stage) / "hint.txt") == "a person was here\n"
    assert text(copy(stage) / "junk.txt") == "half\n"  # they saw it and let it be


def test_every_iteration_starts_from_the_best(stage):
    calls = [{"write": {"n.txt": f"{n}\n", f"{n}.txt": "x\n"}, "say": "w"} for n in (5, 2, 9)]
    stage.script(*calls)
    gate = "use = 'score'\nrun = 'cat n.txt'\nregex = '(.+)'\nmark = 9\nwrites = true"
    stage.file(f"start_from = 'best'\n[workspace]\nmode = 'worktree'\n[[gate]]\n{gate}")
    stage("run", "--as", "r", "--no-baseline", expect=0)
    assert {f.name for f in copy(stage).glob("?.txt")} == {"a.txt", "n.txt", "5.txt", "9.txt"}


def test_a_copy_that_is_gone_is_made_again(stage):
    stage.script(WORK, {**WORK, "hold": True}, DONE)
    with stage.started(*stage.loop(*APART, gate=GATE)) as process:
        stage.held(process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    shutil.rmtree(copy(stage).parent)
    stage.git("commit", "-qm", "moved on", "--allow-empty")
    stage("resume", "r", expect=0)
    assert text(copy(stage) / "work.txt") == "1\n"
    assert text(copy(stage) / "done.txt") == "yes\n"


def test_the_work_in_a_copy_that_is_not_as_it_was_made_is_moved_aside(stage):
    stage.script(WORK, {**WORK, "hold": True}, DONE)
    with stage.started(*stage.loop(*APART, gate=GATE)) as process:
        stage.held(process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    mark = copy(stage).parent / "made.json"
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "root": str(stage.folder)}))
    (copy(stage) / "hint.txt").write_text("a person was here\n")
    stage.write("only.txt", "the user's\n")
    ran = stage("resume", "r", expect=0)
    (aside,) = copy(stage).parent.parent.glob("r~*")
    assert f"moved to {aside}" in ran.err
    assert text(aside / copy(stage).name / "hint.txt") == "a person was here\n"
    assert text(copy(stage) / "work.txt") == "1\n"
    assert text(copy(stage) / "done.txt") == "yes\n"
    assert not (stage.folder / "done.txt").exists()
    assert text(stage.folder / "only.txt") == "the user's\n"


def test_a_project_that_was_moved_goes_on_in_its_copy(stage):
    stage.script({**WORK, "hold": True}, DONE)
    with stage.started(*stage.loop(*APART, gate=GATE)) as process:
        stage.held(process)
        stage("pause", "r", "--now", expect=0)
        assert process.wait(30) == 6
    (copy(stage) / "hint.txt").write_text("a person was here\n")
    stage.folder = stage.folder.rename(stage.folder.with_name("moved"))
    stage("resume", "r", expect=0)
    root = stage.folder / ".agent-state/workspaces/r/work"
    assert text(root / "hint.txt") == "a person was here\n"
    assert text(root / "done.txt") == "yes\n"


def test_a_run_stays_where_it_began(stage):
    stage.script(WORK)
    stage.run("--max-iterations", "1", "--no-baseline", expect=3)
    stage.script({**WORK, "hold": True})
    with stage.started("resume", "r", "--add-iterations", "1") as process:
        stage.held(process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    ran = stage.run("--max-iterations", "2", *APART, expect=2)
    assert "workspace.mode: 'in_place' then, 'worktree' now" in ran.err


# Getting it out


def test_edits_of_both_are_joined_or_nothing_is_applied(stage):
    change = {"write": {"a.txt": "".join(f"{n}\n" for n in (*range(1, 9), "nine")), "done.txt": "y\n"}}
    stage.script(change)
    stage.run(*APART, gate=GATE, expect=0)
    theirs = stage.write("a.txt", "".join(f"{n}\n" for n in (*range(1, 9), "NEUN")))
    before = text(theirs)
    ran = stage("apply", "r", expect=3)
    assert ran.err.splitlines()[1:] == ["  a.txt"]
    assert text(theirs) == before
    assert not (stage.folder / "done.txt").exists()
    theirs.write_text("".join(f"{n}\n" for n in ("one", *range(2, 10))))
    assert stage("apply", "r", expect=0).out == "a.txt\ndone.txt\n"
    assert text(theirs) == "".join(f"{n}\n" for n in ("one", *range(2, 9), "nine"))
    assert "applied already" in stage("apply", "r", expect=0).err


def test_what_git_ignores_is_never_overwritten(stage):
    stage.run(*APART, gate=GATE, expect=0)
    (stage.folder / ".git/info/exclude").write_text("done.txt\n")
    stage.write("done.txt", "mine\n")
    assert "done.txt" in stage("apply", "r", expect=3).err
    assert text(stage.folder / "done.txt") == "mine\n"
    stage.write("done.txt", "yes\n")
    assert "applied already" in stage("apply", "r", expect=0).err
    (stage.folder / "done.txt").chmod(0o755)
    assert "done.txt" in stage("apply", "r", expect=3).err


def test_what_is_saved_while_work_is_applied_is_not_overwritten(stage, monkeypatch):
    stage.script({"write": {"a.txt": "of the run\n", "done.txt": "yes\n"}})
    stage.run(*APART, gate=GATE, expect=0)
    real = deliver.written

    def saved(*given, **named):
        stage.write("a.txt", "saved meanwhile\n")
        return real(*given, **named)

    monkeypatch.setattr(deliver, "written", saved)
    store = SqliteStore(stage.folder / ".agent-state/loopwright.db")
    try:
        with pytest.raises(Conflict, match=r"'a\.txt' changed in .* meanwhile"):
            deliver.apply(stage.folder, store, "r", deliver.work_of(store, "r", None))
    finally:
        store.close()
    assert text(stage.folder / "a.txt") == "saved meanwhile\n"
    assert not (stage.folder / "done.txt").exists()


@pytest.mark.parametrize("error", [subprocess.TimeoutExpired("git", 10), PermissionError(13, "no")])
def test_a_git_that_says_no_name_stops_no_delivery(tmp_path, monkeypatch, error):
    def failing(*_, **__):
        raise error

    monkeypatch.setattr(subprocess, "run", failing)
    assert deliver.identity(tmp_path, {}) == ("loopwright", "loopwright@localhost")
    ours = {"GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@example.org"}
    assert deliver.identity(tmp_path, ours) == ("Ann", "ann@example.org")


def test_a_branch_has_one_commit_and_is_never_moved(stage):
    stage.git("config", "user.name", "Ann")
    stage.git("config", "user.email", "ann@example.org")
    stage.run(*APART, gate=GATE, expect=0)
    before = stage.git("rev-parse", "HEAD"), stage.git("status", "--short")
    assert stage("apply", "r", "--branch", "topic", expect=0).out == "topic\n"
    assert stage.git("log", "--format=%an <%ae> %s", "main..topic") == "Ann <ann@example.org> g\n"
    assert "Loopwright-Run: r\n" in stage.git("log", "-1", "--format=%b", "topic")
    assert stage.git("diff", "--name-status", "main", "topic") == "A\tdone.txt\n"
    tip = stage.git("rev-parse", "topic")
    assert "there already" in stage("apply", "r", "--branch", "topic", expect=0).err
    assert "with other commits" in stage("apply", "r", "--branch", "main", expect=2).err
    assert stage.git("rev-parse", "topic") == tip
    assert (stage.git("rev-parse", "HEAD"), stage.git("status", "--short")) == before


def test_a_branch_of_work_done_in_place_has_only_the_work(stage):
    stage.run("--no-baseline", gate=GATE, expect=0)
    stage("apply", "r", "--branch", "topic", expect=0)
    assert stage.git("diff", "--name-status", "main", "topic") == "A\tdone.txt\n"
    assert "applied already" in stage("apply", "r", expect=0).err
    ran = stage("apply", "r", "--iteration", "7", expect=2)
    assert "no snapshot of an iteration 7" in ran.err


def test_a_project_in_a_folder_of_its_repository(stage):
    stage.write("packages/api/x.txt", "x\n")
    stage.git("add", "packages")
    stage.git("commit", "-qm", "api")
    inner = stage.folder / "packages/api"
    (inner / "loop.toml").write_text(
        f"goal = 'g'\nagent = '{stage.agent}'\ngates = ['{GATE}']\n[workspace]\nmode = 'worktree'\n"
        "[deliver]\nto = 'branch'\n"
    )
    ran = stage("run", "--as", "r", "-C", "packages/api", expect=0)
    assert "delivered: branch loopwright/r" in ran.err
    assert ran.lines[2] == "  next: git -C packages/api merge loopwright/r"
    assert (inner / ".agent-state/workspaces/r/work/a.txt").exists()
    assert stage.git("diff", "--name-only", "main", "loopwright/r") == "packages/api/done.txt\n"
    stage("apply", "r", "-C", "packages/api", expect=0)
    assert (inner / "done.txt").exists()


# Delivery


def test_accepted_work_is_delivered_once(stage):
    stage.script({**DONE, "hold": True}, DONE)
    database = stage.folder / ".agent-state"
    deliver = ("--set", "deliver.to=branch", "--set", "deliver.branch=bot/{run}")
    with stage.started(*stage.loop(*APART, *deliver, gate=GATE)) as process:
        stage.held(process)
        saved = {file: file.read_bytes() for file in database.glob("loopwright.db*")}
        stage.go()
        assert process.wait(30) == 0
    (delivered,) = stage.of(ev.Delivered)
    assert (delivered.to, delivered.ref, delivered.problem) == ("branch", "bot/r", None)
    assert "next: git merge bot/r" in stage("show", "r", expect=0).out
    tip = stage.git("rev-parse", "bot/r")
    for file in database.glob("loopwright.db*"):  # as if it had been killed before the fact was on record
        file.unlink()
    for file, content in saved.items():
        file.write_bytes(content)
    stage("resume", "r", expect=0)
    (delivered,) = stage.of(ev.Delivered)
    assert (delivered.ref, delivered.problem) == ("bot/r", None)
    assert stage.git("rev-parse", "bot/r") == tip


def test_an_approval_delivers_where_nobody_drives_the_run(stage):
    stage.run(*APART, "--set", "deliver.to=branch", "--approve", "passed", "--no-wait", gate=GATE, expect=6)
    stage("approve", "r", expect=0)
    (delivered,) = stage.of(ev.Delivered)
    assert (delivered.ref, delivered.problem) == ("loopwright/r", None)
    assert stage.of(ev.RunFinished)[-1].reason == "quality_reached"


def test_what_stands_in_the_way_of_delivery_is_on_record(stage):
    ran = stage.run(*APART, "--set", "deliver.to=branch", "--set", "deliver.branch=main", gate=GATE, expect=0)
    assert "not delivered: there is a branch main with other commits" in ran.err
    (delivered,) = stage.of(ev.Delivered)
    assert delivered.problem
    assert ran.doc["next"] == "loopwright apply r"


def test_an_install_that_leads_to_the_checkout_is_refused_before_the_start(stage):
    site = stage.folder / ".venv/lib/python3.12/site-packages"
    site.mkdir(parents=True)
    stage.write(".venv/pyvenv.cfg", "")
    stage.write(".venv/bin/python", "").chmod(0o755)
    (site / "__editable__.mine-1.0.pth").write_text(f"{stage.folder}/src\n")
    ran = stage.run(*APART, gate=GATE, expect=2)
    assert (
        f"would import your own files and not those the agent works on: __editable__.mine-1.0.pth ({stage.folder}"
        in ran.err
    )
    assert 'setup = ["python -m venv .venv", "pip install -e ."]' in ran.err
    assert not copy(stage).parent.exists()
    assert stage.facts() == []
    setup = (
        "workspace.setup=['mkdir -p .venv/bin', 'cp pyvenv .venv/pyvenv.cfg', 'cp pyvenv .venv/bin/python']"
    )
    stage.write("pyvenv", "")
    stage.git("add", "pyvenv")
    stage.git("commit", "-qm", "pyvenv")
    stage.run(*APART, "--set", setup, gate=GATE, expect=0)
