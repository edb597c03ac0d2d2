"""What an agent or a crash leaves of the user's repository: never in the way for nothing, never written through."""

import shutil

import pytest
from workspace_repo import commit, git, new_repo, opened, user_state, write

from loopwright.errors import ConfigError, WorkspaceError
from loopwright.workspace import copies
from loopwright.workspace.opened import open_workspace


@pytest.fixture
def repo(tmp_path):
    return new_repo(tmp_path / "repo")


def test_locks_that_crashes_left_are_in_nobodys_way_and_theirs_stay(repo):
    snapshots = opened(repo)
    first = snapshots.snapshot(0)
    theirs = [repo / ".git" / name for name in ("index.lock", "HEAD.lock", "config.lock", "packed-refs.lock")]
    ours = repo / ".git/refs/loopwright/r1/1.lock"  # of a git that was killed as it wrote the ref
    for lock in (*theirs, ours):
        lock.write_text("x")
    before = user_state(repo)
    write(repo, {"a.txt": "2\n"})
    assert opened(repo).snapshot(1).tree != first.tree
    assert opened(repo).restore(first.tree) == ("a.txt",)
    assert user_state(repo) == before
    assert all(lock.read_text() == "x" for lock in theirs)


def head_gone(repo):
    (repo / ".git/HEAD").unlink()


def head_garbage(repo):
    (repo / ".git/HEAD").write_text("\0\0\0")


def config_garbage(repo):
    (repo / ".git/config").write_text("[[[")


def config_of_the_future(repo):
    with (repo / ".git/config").open("a") as config:
        config.write("[core]\nrepositoryformatversion = 99\nworktree = /etc\n[include]\npath = /nowhere\n")


def index_garbage(repo):
    (repo / ".git/index").write_text("x")


def refs_gone(repo):
    shutil.rmtree(repo / ".git/refs")


DAMAGE = (head_gone, head_garbage, config_garbage, config_of_the_future, index_garbage, refs_gone)


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_run_under_way_goes_on_with_a_damaged_repository(repo, damage):
    snapshots = opened(repo)
    first = snapshots.snapshot(0)
    damage(repo)
    write(repo, {"n.txt": "n\n"})
    second = snapshots.snapshot(1)
    assert [file.path for file in snapshots.diff(first.tree, second.tree).files] == ["n.txt"]
    assert snapshots.restore(first.tree) == ("n.txt",)
    shown = (repo / ".git/refs/loopwright/r1/1").read_text()
    assert len(shown.strip()) == 40
    if damage in {head_gone, head_garbage}:  # git too says that this is no repository
        with pytest.raises(WorkspaceError, match="its HEAD is gone or says nothing"):
            opened(repo)
        with pytest.raises(WorkspaceError, match="HEAD"):  # and it is not said that there are no snapshots
            open_workspace("in_place", repo, repo / ".agent-state", "r1")
        (repo / ".git/HEAD").write_text("ref: refs/heads/main\n")
    assert opened(repo).now() == first
    assert len(opened(repo).diff(first.tree, second.tree).files) == 1


def moved_away(repo, tmp_path):
    (repo / ".git").rename(tmp_path / "moved")


def a_file(repo, tmp_path):
    moved_away(repo, tmp_path)
    (repo / ".git").write_text("gitdir: /nowhere\n")


def a_link(repo, tmp_path):
    moved_away(repo, tmp_path)
    (repo / ".git").symlink_to(new_repo(tmp_path / "other") / ".git")


def linked_objects(repo, tmp_path):
    moved_away(repo, tmp_path)
    shutil.copytree(tmp_path / "moved", repo / ".git")
    shutil.rmtree(repo / ".git/objects")
    (tmp_path / "other").mkdir()
    (repo / ".git/objects").symlink_to(tmp_path / "other")


def made_anew(repo, tmp_path):
    moved_away(repo, tmp_path)
    git(repo, "init", "-q")


@pytest.mark.parametrize(
    "swap", [moved_away, a_file, a_link, linked_objects, made_anew], ids=lambda s: s.__name__
)
def test_a_repository_that_is_gone_or_another_is_said(repo, tmp_path, swap):
    snapshots = opened(repo)
    first = snapshots.snapshot(0)
    write(repo, {"n.txt": "n\n"})
    snapshots.snapshot(1)
    swap(repo, tmp_path)
    before = sorted((tmp_path / "other").rglob("*"))
    write(repo, {"m.txt": "m\n"})
    with pytest.raises(WorkspaceError, match=r"bring it back as it was, or start a new run"):
        snapshots.snapshot(2)
    with pytest.raises(WorkspaceError, match=r"bring it back as it was, or start a new run"):
        opened(repo).diff(first.tree)
    assert sorted((tmp_path / "other").rglob("*")) == before
    assert opened(repo, run="r2").snapshot(0).tree, "a new run takes what there is"
    if (repo / ".git").is_symlink() or not (repo / ".git").is_dir():
        (repo / ".git").unlink(missing_ok=True)
    else:
        shutil.rmtree(repo / ".git")
    (tmp_path / "moved").rename(repo / ".git")
    assert [file.path for file in opened(repo).diff(first.tree).files] == ["m.txt", "n.txt"]


def test_a_folder_that_becomes_a_repository_is_no_damage(tmp_path):
    write(tmp_path, {"a.txt": "1\n"})
    opened(tmp_path).now()
    git(tmp_path, "init", "-q")
    assert opened(tmp_path).snapshot(0).tree


def test_refs_of_ours_are_not_written_through_links(repo, tmp_path):
    snapshots = opened(repo)
    snapshots.now()
    (tmp_path / "out").mkdir()
    (repo / ".git/refs/loopwright").symlink_to(tmp_path / "out")
    with pytest.raises(WorkspaceError, match="cannot be written"):
        snapshots.snapshot(0)
    assert list((tmp_path / "out").iterdir()) == []


def test_git_is_never_sent_for_an_object(repo, tmp_path):
    """A remote that a planted configuration names would be asked by any command."""
    opened(repo).snapshot(0)
    with (repo / ".git/config").open("a") as config:
        config.write(
            "[core]\nrepositoryformatversion = 1\n[extensions]\npartialClone = evil\n[protocol]\nallow = always\n"
            f'[remote "evil"]\npromisor = true\nurl = ext::sh -c touch% {tmp_path}/ran\n[protocol "ext"]\nallow = always\n'
        )
    (repo / ".git/refs/heads/main").write_text("1" * 40 + "\n")
    opened(repo, run="r2").snapshot(0)
    with pytest.raises(ConfigError):
        copies.check(repo, "worktree")
    copies.uncommitted(opened(repo).ours)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["sparse", "shallow", "alternates", "shared"])
def test_more_kinds_of_repositories(tmp_path, kind):
    source, root = new_repo(tmp_path / "source"), tmp_path / "repo"
    commit(source, {"big/a": "1\n", "other/b": "2\n"})
    options = {"shallow": ("--depth=1", f"file://{source}"), "alternates": ("--shared", str(source))}
    git(tmp_path, "clone", "-q", *options.get(kind, (str(source),)), str(root))
    if kind == "sparse":
        git(root, "sparse-checkout", "set", "--cone", "other")
    if kind == "shared":
        git(root, "config", "core.sharedRepository", "group")
    before = user_state(root)
    snapshots = opened(root)
    first = snapshots.snapshot(0)
    write(root, {"other/b": "3\n", "n.txt": "n\n"})
    second = snapshots.snapshot(1)
    assert [file.path for file in snapshots.diff(first.tree, second.tree).files] == ["n.txt", "other/b"]
    assert snapshots.restore(first.tree) == ("n.txt", "other/b")
    assert opened(root).trees() == {0: first.tree, 1: second.tree}
    assert (root / "big/a").exists() is (kind != "sparse")
    assert user_state(root) == before
    if kind == "shared":
        assert (root / ".git/refs/loopwright/r1").stat().st_mode & 0o020
