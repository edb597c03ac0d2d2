"""Snapshots: nothing of the user's is touched, in every kind of place, whatever breaks."""

from __future__ import annotations

import fcntl
import statistics
import time

import pytest
from workspace_repo import PATH, commit, content, files_of, git, names, new_repo, opened, user_state, write

from loopwright.errors import WorkspaceError
from loopwright.workspace import index as index_module
from loopwright.workspace import plumbing
from loopwright.workspace.git import fingerprint
from loopwright.workspace.none import Unrecorded


@pytest.fixture
def repo(tmp_path):
    return new_repo(tmp_path / "repo")


def test_snapshots_and_restores_leave_the_users_state_byte_for_byte(repo):
    write(repo, {"a.txt": "stashed\n"})
    git(repo, "stash", "-q")
    write(repo, {"staged.txt": "staged\n"})
    git(repo, "add", "staged.txt")
    write(
        repo,
        {"a.txt": "one\ntwo\nthree\n", "untracked.txt": "u\n", "x.log": "ignored\n", "run.sh": "#!/bin/sh\n"},
    )
    (repo / "run.sh").chmod(0o755)
    (repo / "link").symlink_to("src/b.py")
    before, files = user_state(repo), files_of(repo)

    snapshots = opened(repo)
    first = snapshots.snapshot(0)
    assert user_state(repo) == before
    write(repo, {"a.txt": "agent\n", "new/deep/file.txt": "n\n", "src/b.py": ""})
    (repo / "run.sh").chmod(0o644)
    (repo / "link").unlink()
    (repo / "link").symlink_to("elsewhere")
    (repo / "untracked.txt").unlink()
    second = snapshots.snapshot(1)
    assert second.tree != first.tree
    changed = snapshots.restore(first.tree)

    assert set(changed) == {"a.txt", "new/deep/file.txt", "src/b.py", "run.sh", "link", "untracked.txt"}
    assert files_of(repo) == files
    assert not (repo / "new").exists()
    assert user_state(repo) == before
    assert snapshots.matches(first.tree)
    assert snapshots.trees() == {0: first.tree, 1: second.tree}
    git(repo, "fsck", "--strict")


def test_equal_content_has_an_equal_id_and_survives_a_new_process(repo):
    tree = opened(repo).snapshot(0).tree
    again = opened(repo)
    assert again.snapshot(1).tree == tree
    write(repo, {"a.txt": "other\n"})
    assert opened(repo).snapshot(2).tree != tree
    write(repo, {"a.txt": "one\ntwo\n"})
    assert again.snapshot(3).tree == tree
    assert tree == git(repo, "rev-parse", "HEAD^{tree}").decode().strip()


def test_an_agent_that_commits_is_still_seen(repo):
    snapshots = opened(repo)
    first = snapshots.snapshot(0)
    commit(repo, {"a.txt": "agent\n", "new.txt": "n\n"}, "agent was here")
    git(repo, "checkout", "-q", "-b", "elsewhere")
    diff = snapshots.diff(first.tree)
    assert [(file.path, file.status, file.added, file.removed) for file in diff.files] == [
        ("a.txt", "M", 1, 2),
        ("new.txt", "A", 1, 0),
    ]
    assert (diff.added, diff.removed, diff.lines) == (2, 2, 4)
    head = git(repo, "rev-parse", "HEAD")
    snapshots.restore(first.tree)
    assert git(repo, "rev-parse", "HEAD") == head
    assert (repo / "a.txt").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("kind", ["unborn", "detached", "linked", "sha256", "no repository", "broken .git"])
def test_every_kind_of_place(tmp_path, kind):
    main, root = tmp_path / "main", tmp_path / "main"
    main.mkdir()
    if kind == "broken .git":
        (main / ".git").mkdir()
    elif kind != "no repository":
        git(main, "init", "-q", *(["--object-format=sha256"] if kind == "sha256" else []))
    if kind in {"detached", "linked", "sha256"}:
        commit(main, {"a.txt": "1\n"})
    if kind == "detached":
        git(main, "checkout", "-q", "--detach")
    if kind == "linked":
        root = tmp_path / "linked"
        git(main, "worktree", "add", "-q", str(root))
    has_git = kind not in {"no repository", "broken .git"}
    write(root, {"a.txt": "1\n", "b/c.txt": "2\n", ".gitignore": "ignored\n", "ignored": ""})
    before = user_state(root) if has_git else None
    snapshots = opened(root)
    first = snapshots.snapshot(0)
    assert names(snapshots, first.tree) == [".gitignore", "a.txt", "b/c.txt"]
    assert len(first.tree) == (64 if kind == "sha256" else 40)
    write(root, {"a.txt": "9\n", "d": ""})
    second = snapshots.snapshot(1)
    assert [file.path for file in snapshots.diff(first.tree, second.tree).files] == ["a.txt", "d"]
    assert snapshots.restore(first.tree) == ("a.txt", "d")
    assert opened(root).trees() == {0: first.tree, 1: second.tree}
    if has_git:
        assert user_state(root) == before
        listed = git(main, "for-each-ref", "--format=%(refname)", "refs/loopwright").decode().split()
        assert listed == ["refs/loopwright/r1/0", "refs/loopwright/r1/1"]
        git(main, "gc", "-q", "--prune=now")
        assert content(snapshots, second.tree, "a.txt") == b"9\n", "the refs keep what a clean-up would take"
    snapshots.forget()
    assert snapshots.trees() == {}


def test_an_empty_folder_and_an_empty_repository(tmp_path):
    git(tmp_path, "init", "-q")
    snapshots = opened(tmp_path)
    empty = snapshots.snapshot(0)
    assert names(snapshots, empty.tree) == []
    write(tmp_path, {"one": "1"})
    assert snapshots.restore(empty.tree) == ("one",)


def test_too_much_outside_a_repository_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(index_module, "MOST_FILES", 3)
    write(tmp_path, {f"f{i}": "x" for i in range(4)})
    with pytest.raises(WorkspaceError, match=r"holds 4 files .* outside a repository at most 3 files"):
        opened(tmp_path).snapshot(0)
    git(tmp_path, "init", "-q")
    opened(tmp_path).snapshot(0)


def test_a_lost_index_a_stale_lock_and_pruned_objects_cost_time_only(repo):
    write(repo, {"untracked.txt": "u\n"})
    snapshots = opened(repo)
    tree = snapshots.snapshot(0).tree
    snapshots._index._index.with_name("index.lock").touch()
    write(repo, {"untracked.txt": "v\n"})
    changed = snapshots.snapshot(1).tree
    assert changed != tree
    snapshots._index._index.write_bytes(b"garbage")
    assert snapshots.snapshot(2).tree == changed
    snapshots._index._index.unlink()
    assert opened(repo).snapshot(3).tree == changed
    snapshots._users(
        "update-ref", "--stdin", stdin="".join(f"delete refs/loopwright/r1/{n}\n" for n in range(4)).encode()
    )
    git(repo, "gc", "-q", "--prune=now")
    assert opened(repo).snapshot(4).tree == changed
    assert content(snapshots, changed, "untracked.txt") == b"v\n"


def test_many_new_files_at_once(tmp_path):
    git(tmp_path, "init", "-q")
    write(tmp_path, {f"d{i % 7}/f{i}": f"{i}" for i in range(400)})
    snapshots = opened(tmp_path)
    assert len(names(snapshots, snapshots.snapshot(0).tree)) == 400


def test_a_large_diff_is_cut_and_says_so(repo):
    snapshots = opened(repo)
    first = snapshots.snapshot(0).tree
    write(repo, {"big.txt": "line of text\n" * 200_000, "binary": b"\0" * 100})
    diff = snapshots.diff(first)
    assert diff.added == 200_000
    assert len(diff.text) < 1_100_000
    assert diff.text.endswith("[cut after 1,048,576 bytes; 2 files changed in all]\n")


@pytest.mark.parametrize("run", ["", "../x", "a..b", "a.lock", "a.", "-a", "a b", "a/b", "x" * 65])
def test_names_that_cannot_be_a_run(tmp_path, run):
    with pytest.raises(WorkspaceError, match="cannot name a run"):
        opened(tmp_path, run)


def test_errors_say_what_is_wrong(tmp_path, repo, monkeypatch):
    with pytest.raises(WorkspaceError, match="is not a folder"):
        opened(tmp_path / "missing")
    snapshots = opened(repo)
    with pytest.raises(WorkspaceError, match="is not the id of a snapshot"):
        snapshots.diff("--output=x")
    with pytest.raises(WorkspaceError, match=r"snapshot 0{12} is not in .* any more"):
        snapshots.diff("0" * 40)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkspaceError, match="git is not on PATH"):
        opened(repo)
    fake = tmp_path / "git"
    fake.write_text("#!/bin/sh\necho git version 2.29.9\n")
    fake.chmod(0o755)
    with pytest.raises(WorkspaceError, match=r"git version 2\.29\.9 .* too old"):
        opened(repo)


def test_a_git_that_hangs_is_given_up(repo, tmp_path, monkeypatch):
    snapshots = opened(repo)
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(plumbing, "TIMEOUT_S", 0.2)
    monkeypatch.setenv("PATH", f"{tmp_path}:{PATH}")
    with pytest.raises(WorkspaceError, match="took longer than"):
        opened(repo)
    assert snapshots is not None


def test_a_lock_that_is_never_given_back_is_given_up(repo, monkeypatch):
    monkeypatch.setattr(index_module, "LOCK_WAIT_S", 0.05)
    snapshots = opened(repo)
    tree = snapshots.now().tree
    (file,) = (repo / ".agent-state/git").glob("*/runs/r1/lock")
    with file.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(WorkspaceError, match="runs/r1/lock is held by another process"):
            snapshots.now()
    assert snapshots.now().tree == tree


def test_the_fingerprint_changes_with_the_work_and_not_with_litter(repo):
    before = fingerprint(repo)
    write(repo, {"__pycache__/x.pyc": "", ".agent-state/y": ""})
    assert fingerprint(repo) == (before[0], fingerprint(repo)[1])
    now = fingerprint(repo)
    write(repo, {"src/c.py": ""})
    assert fingerprint(repo) != now
    assert fingerprint(repo, most=1)[0] < fingerprint(repo)[0]


def test_without_snapshots_nothing_is_pretended(tmp_path):
    plain = Unrecorded(tmp_path)
    assert plain.snapshot(0) is None
    assert plain.diff(None) is None
    assert plain.matches(None)
    assert not plain.matches("0" * 40)
    assert plain.trees() == {}
    with pytest.raises(WorkspaceError, match="no snapshots"):
        plain.restore(None)


def test_a_snapshot_of_2000_files_reads_only_what_changed(tmp_path, monkeypatch):
    write(tmp_path, {f"d{i % 40}/s{i % 5}/f{i}.py": f"x = {i}\n" * 20 for i in range(2000)})
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    snapshots = opened(tmp_path)
    started = time.perf_counter()
    snapshots.snapshot(0)
    first = time.perf_counter() - started
    calls, seconds = [], []
    run = plumbing.subprocess.run
    monkeypatch.setattr(
        plumbing.subprocess, "run", lambda argv, **options: calls.append(argv) or run(argv, **options)
    )
    for n in range(1, 16):
        write(tmp_path, {"d1/new.py": "y" * n})
        started = time.perf_counter()
        snapshots.snapshot(n)
        seconds.append(time.perf_counter() - started)
    assert len(calls) == 15 * 3
    opened(tmp_path).now()
    assert len(calls) == 15 * 3 + 4, "a new process reads no file again"
    floor = []
    for _ in range(15):
        started = time.perf_counter()
        snapshots._git("version")
        floor.append(time.perf_counter() - started)
    starts = statistics.median(seconds) / statistics.median(floor)
    print(
        f"first {first * 1e3:.1f} ms, then {statistics.median(seconds) * 1e3:.1f} ms = {starts:.1f} git starts"
    )
    assert statistics.median(seconds) < 1.0, "far from the target of 0.02 s, for machines under load"
