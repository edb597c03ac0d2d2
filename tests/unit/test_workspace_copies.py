"""The folder apart: what is in it, what it can reach, how it is found and removed."""

import json
import os

import pytest
from workspace_repo import commit, files_of, git, new_repo, user_state, write

from loopwright.errors import ConfigError, WorkspaceError
from loopwright.workspace import copies, place
from loopwright.workspace.git import open_git
from loopwright.workspace.installs import leading_back
from loopwright.workspace.opened import open_workspace
from loopwright.workspace.ours import open_ours


@pytest.fixture
def repo(tmp_path):
    return new_repo(tmp_path / "repo")


def made(repo, run="r1", *, mode="worktree", **options):
    state = repo / ".agent-state"
    return copies.settled(state, run, copies.make(repo, state, run, mode=mode, **options))


def opened_copy(copy, run="r1"):
    return open_git(copy.root, copy.project / ".agent-state", run, copy=copy)


def test_a_worktree_is_the_commit_and_clean(repo):
    (repo / "tool.sh").write_text("#!/bin/sh\n")
    (repo / "tool.sh").chmod(0o755)
    (repo / "link").symlink_to("a.txt")
    write(
        repo,
        {
            "dos.bat": b"a\r\nb\r\n",
            ".gitattributes": "*.bat text eol=crlf\n*.bin filter=lfs -text\n",
            "x.bin": "p\n",
        },
    )
    commit(repo)
    git(repo, "config", "filter.lfs.smudge", "touch smudged; cat")
    before, files = user_state(repo), files_of(repo)
    copy = made(repo)
    assert {p.relative_to(copy.root): f for p, f in files_of(copy.root).items()} == {
        p.relative_to(repo): f for p, f in files.items()
    }
    assert git(copy.root, "status", "--porcelain") == b""
    assert git(copy.root, "log", "--format=%s", "main") == git(repo, "log", "--format=%s")
    assert git(copy.root, "symbolic-ref", "HEAD") == b"refs/heads/loopwright/r1\n"
    assert not (repo / "smudged").exists()
    assert user_state(repo) == before
    assert not (repo / ".git/worktrees").exists()


def test_snapshots_of_a_copy_stand_in_the_users_objects(repo):
    copy = made(repo)
    write(copy.root, {"new.txt": "n\n", ".env": "secret\n", "build/x": "x\n"})
    snapshots = opened_copy(copy)
    tree = snapshots.snapshot(3).tree
    assert git(repo, "ls-tree", "--name-only", tree).split() == [b".gitignore", b"a.txt", b"new.txt", b"src"]
    copies.remove(repo / ".agent-state", "r1")
    assert open_git(repo, repo / ".agent-state", "r1").trees() == {3: tree}
    assert git(repo, "fsck", "--strict", "--no-dangling") == b""


def test_what_only_the_users_git_knows_of_ignoring_holds_in_a_copy(repo):
    (repo / ".git/info").mkdir(exist_ok=True)
    (repo / ".git/info/exclude").write_text("private/\n")
    write(repo, {"private/x": "x\n", "untracked": "u\n"})
    for mode in ("worktree", "folder"):
        copy = made(repo, mode, mode=mode)
        assert not (copy.root / "private").exists()
        write(copy.root, {"private/y": "y\n"})
        assert not opened_copy(copy, mode).diff(copy.tree).files


def test_too_much_is_not_copied(repo, monkeypatch):
    monkeypatch.setattr(copies, "MOST_BYTES", 20)
    with pytest.raises(ConfigError, match="3 files"):
        made(repo, mode="folder")
    assert not copies.home(repo / ".agent-state", "r1").exists()
    assert made(repo).ready


def test_links_lead_back_and_are_in_no_snapshot(repo):
    write(repo, {"node_modules/m.js": "m\n", ".gitignore": "node_modules/\n"})
    copy = made(repo, links=("node_modules",))
    assert (copy.root / "node_modules/m.js").read_text() == "m\n"
    assert opened_copy(copy).now().tree == copy.tree
    assert git(copy.root, "status", "--porcelain") == b""
    with pytest.raises(ConfigError, match=r"workspace.link: there is no \.venv"):
        copies.check(repo, "worktree", links=(".venv",))
    with pytest.raises(ConfigError, match="in the copy already"):
        made(repo, links=("src",))


def test_a_copy_is_removed_whole_and_nothing_else(repo, tmp_path):
    outside = tmp_path / "outside"
    write(outside, {"keep.txt": "k\n"})
    copy = made(repo, links=())
    (copy.root / "out").symlink_to(outside)
    write(copy.root, {"closed/x": "x\n"})
    (copy.root / "closed").chmod(0)
    state = repo / ".agent-state"
    assert copies.find(state, "r1").root == copy.root
    copies.remove(state, "r1")
    assert copies.find(state, "r1") is None
    assert list((state / "workspaces").iterdir()) == []
    assert (outside / "keep.txt").exists()
    (state / "workspaces/r1").symlink_to(outside)
    with pytest.raises(WorkspaceError, match="not made by loopwright"):
        copies.remove(state, "r1")
    assert (outside / "keep.txt").exists()


def test_nothing_behind_a_link_is_removed(repo, tmp_path):
    copy = made(repo)
    kept = tmp_path / "kept"
    (repo / ".agent-state/workspaces").rename(kept)
    (repo / ".agent-state/workspaces").symlink_to(kept)
    for remove in (copies.remove, copies.set_aside):
        with pytest.raises(WorkspaceError, match=r"workspaces leads to .*kept: remove that link"):
            remove(repo / ".agent-state", "r1")
    with pytest.raises(WorkspaceError, match="remove that link"):
        copies.make(repo, repo / ".agent-state", "r2", mode="worktree")
    assert (kept / "r1" / copy.top.name / "a.txt").exists()
    assert not (kept / "r2").exists()


def test_a_copy_that_a_crash_left_half_made_is_none(repo):
    state = repo / ".agent-state"
    copies.make(repo, state, "r1", mode="folder")
    assert copies.find(state, "r1") is None
    assert made(repo).ready


def test_a_project_that_is_moved_keeps_its_copies(repo, tmp_path):
    write(repo, {"node_modules/m.js": "m\n", ".gitignore": "node_modules/\n"})
    copy = made(repo, links=("node_modules",))
    write(copy.root, {"mine.txt": "a person was here\n"})
    moved = repo.rename(tmp_path / "elsewhere")
    found = copies.find(moved / ".agent-state", "r1")
    assert found.root == moved / copy.root.relative_to(repo)
    assert found.project == moved
    assert (found.root / "mine.txt").exists()
    assert (found.root / "node_modules/m.js").read_text() == "m\n"
    assert b"?? mine.txt" in git(found.root, "status", "--porcelain")
    assert opened_copy(found).diff(found.tree).paths == ("mine.txt",)


def test_a_mark_names_nothing_outside(repo, tmp_path):
    made(repo)
    state = repo / ".agent-state"
    mark = copies.home(state, "r1") / "made.json"
    said = json.loads(mark.read_bytes())
    (copies.home(state, "r1") / "repo/out").symlink_to(tmp_path)
    for lie in (
        {"root": str(repo)},
        {"top": ".", "root": "../.."},
        {"root": "repo/out"},
        {"top": "../r1", "root": "../r1"},
        {"links": [1]},
        {"commit": "--output=x"},
        {"mode": "in_place"},
    ):
        mark.write_text(json.dumps(said | lie))
        assert copies.find(state, "r1") is None, lie
    mark.write_text(json.dumps(said))
    assert copies.find(state, "r1") is not None
    mark.unlink()
    os.mkfifo(mark)
    assert copies.find(state, "r1") is None


def test_a_restore_that_was_cut_off_is_finished_before_anybody_looks(repo, monkeypatch):
    copy = made(repo)

    def workspace():
        return open_workspace("worktree", copy.root, repo / ".agent-state", "r1", copy=copy)

    write(copy.root, {"a.txt": "agent\n", "new.txt": "n\n", "src/b.py": "agent\n"})
    left = workspace().look().tree
    puts, put = [], place.put

    def failing(root, path, *rest, **options):
        puts.append(path)
        if len(puts) > 1:
            raise OSError("killed here")
        return put(root, path, *rest, **options)

    monkeypatch.setattr(place, "put", failing)
    with pytest.raises(WorkspaceError, match="only partly restored"):
        workspace().restore(copy.tree)
    monkeypatch.undo()
    assert opened_copy(copy).now().tree not in {left, copy.tree}
    assert workspace().look().tree == copy.tree
    write(copy.root, {"later.txt": "l\n"})
    assert workspace().look().tree != copy.tree, "once"


def test_files_that_gates_left_are_nobodys_edit(repo):
    copy = made(repo)
    workspace = open_workspace("worktree", copy.root, repo / ".agent-state", "r1", copy=copy)
    before = workspace.look().tree
    write(copy.root, {"report.xml": "r\n"})
    _, after = workspace.after_gate(before)
    assert not workspace.edited(before, after)
    write(copy.root, {"report.xml": "again\n", "a.txt": "a person\n"})
    assert workspace.edited(before, workspace.look().tree)


def test_the_same_origin_after_the_user_moved_on(repo):
    first = made(repo)
    commit(repo, {"a.txt": "later\n"})
    copies.remove(repo / ".agent-state", "r1")
    assert made(repo, again=True).commit == first.commit
    assert made(repo).commit != first.commit
    assert (
        copies.origin(open_ours(repo, repo / ".agent-state"), "r1")
        == git(repo, "rev-parse", "HEAD").decode().strip()
    )


def test_uncommitted_work_is_named_as_git_names_it(repo):
    ours = open_ours(repo, repo / ".agent-state")
    assert copies.uncommitted(ours) == ()
    write(repo, {"a.txt": "edited\n", "new.txt": "n\n", "x.log": "ignored\n", "staged.txt": "s\n"})
    git(repo, "add", "staged.txt")
    index = (repo / ".git/index").read_bytes()
    assert copies.uncommitted(ours) == ("a.txt", "new.txt", "staged.txt")
    (repo / ".git/index").write_bytes(b"damaged")
    assert copies.uncommitted(ours) is None
    (repo / ".git/index").write_bytes(index)
    os.utime(repo / "src/b.py", (1, 1))
    assert "src/b.py" not in copies.uncommitted(ours)


def test_a_sha256_repository(tmp_path):
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "--object-format=sha256")
    commit(repo, {"a.txt": "a\n"})
    copy = made(repo)
    assert git(copy.root, "status", "--porcelain") == b""
    assert opened_copy(copy).now().tree == copy.tree


def environment(folder, *, own=True):
    """A virtual environment as far as files go; `own`: of a venv, and not of the system."""
    site = folder / "lib/python3.12/site-packages"
    site.mkdir(parents=True)
    write(folder, {"bin/python": "", **({"pyvenv.cfg": ""} if own else {})})
    return site


def led(path, checkout, root, python_path=""):
    return [
        each.split(" (")[0] for each in leading_back(str(path), python_path, checkout=checkout, root=root)
    ]


def test_editable_installs_that_lead_to_the_checkout_are_named(repo, tmp_path):
    copy = copies.make(repo, repo / ".agent-state", "r1", mode="worktree")
    site = environment(repo / ".venv")
    path = repo / ".venv/bin"
    assert led(path, repo, copy.top) == []
    editable = {"dir_info": {"editable": True}}
    urls = {
        "mine-1.0": {"url": f"file://{repo}", **editable},
        "plain-1.0": {"url": f"file://{repo}", "dir_info": {}},
        "sibling-2": {"url": f"file://{tmp_path}/elsewhere", **editable},
        "odd-1": ["no", "record"],
    }
    write(site, {f"{name}.dist-info/direct_url.json": json.dumps(said) for name, said in urls.items()})
    write(
        site,
        {
            "__editable__.other-1.pth": f"# mine\n{repo}/src\n",
            "easy-install.pth": "../../../../src\n",
            "mine.egg-link": f"{repo}/src\n../",
            "hooks.pth": f"import os; os.x = '{repo}'\n",
            "inside.pth": ".\nsub\n",
            "broken.pth": b"\xff\xfe\x00",
            "copys.pth": f"{copy.top}/src\n",
        },
    )
    assert led(path, repo, copy.top) == [
        "mine",
        "__editable__.other-1.pth",
        "easy-install.pth",
        "mine.egg-link",
    ]
    assert led(f"{tmp_path}/none:{path}", repo, copy.top)
    environment(copy.root / ".venv")
    assert led(f"{copy.root}/.venv/bin:{path}", repo, copy.top) == []
    assert led("", repo, copy.top, f"{tmp_path}:{repo}/src") == ["PYTHONPATH"]
    assert led("", repo, copy.top, f"src:{copy.top}") == []
    (tmp_path / "shown").symlink_to(repo)
    assert led("", repo, copy.top, f"{tmp_path}/shown/src") == ["PYTHONPATH"]
