"""Restore: exactly the tree, atomically, never through a link, never over what snapshots leave out."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from loopwright.errors import WorkspaceError
from loopwright.workspace import place
from loopwright.workspace.git import open_git


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "work"
    root.mkdir()
    (root / "file").write_text("f\n")
    (root / "dir/inner").mkdir(parents=True)
    (root / "dir/inner/x").write_text("x\n")
    (root / "dir/y").write_text("y\n")
    (root / "link").symlink_to("file")
    for words in ("init -q", "add -A", "-c user.name=A -c user.email=a@b commit -q -m x"):
        env = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", *words.split()], cwd=root, check=True, env=env, timeout=60)
    return root


def snapshots_of(root):
    snapshots = open_git(root, root / ".agent-state", "r")
    return snapshots, snapshots.snapshot(0).tree


def kinds(root):
    return {
        str(path.relative_to(root)): f"link {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in sorted(root.rglob("*"))
        if (path.is_symlink() or path.is_file())
        and not {".git", ".agent-state"} & set(path.relative_to(root).parts)
    }


def file_becomes_dir(root):
    (root / "file").unlink()
    (root / "file/a/b").mkdir(parents=True)
    (root / "file/a/b/c").write_text("c")


def dir_becomes_file(root):
    shutil.rmtree(root / "dir")
    (root / "dir").write_text("now a file")


def file_becomes_link(root):
    (root / "file").unlink()
    (root / "file").symlink_to("dir/y")


def link_becomes_file(root):
    (root / "link").unlink()
    (root / "link").write_text("a file")


def link_becomes_dir(root):
    (root / "link").unlink()
    (root / "link").mkdir()
    (root / "link/z").write_text("z")


def dir_becomes_link_inside(root):
    (root / "dir").rename(root / "moved")
    (root / "dir").symlink_to("moved")


def file_becomes_empty_dirs(root):
    (root / "file").unlink()
    (root / "file/e/f").mkdir(parents=True)


def all_gone(root):
    for name in ("file", "link"):
        (root / name).unlink()
    shutil.rmtree(root / "dir")


def executable(root):
    (root / "file").chmod(0o755)


CHANGES = [
    file_becomes_dir,
    dir_becomes_file,
    file_becomes_link,
    link_becomes_file,
    link_becomes_dir,
    dir_becomes_link_inside,
    file_becomes_empty_dirs,
    all_gone,
    executable,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_there_and_back(root, change):
    snapshots, tree = snapshots_of(root)
    before = kinds(root)
    change(root)
    changed_tree = snapshots.snapshot(1).tree
    after = kinds(root)
    assert changed_tree != tree
    assert snapshots.restore(tree)
    assert kinds(root) == before
    assert snapshots.matches(tree)
    assert not os.access(root / "file", os.X_OK)
    snapshots.restore(changed_tree)
    assert kinds(root) == after
    assert snapshots.matches(changed_tree)
    assert snapshots.restore(changed_tree) == ()


def test_no_link_leads_out_of_the_root(root, tmp_path):
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "inner/x").write_text("not yours\n")
    (outside / "y").write_text("not yours\n")
    snapshots, tree = snapshots_of(root)
    shutil.rmtree(root / "dir")
    (root / "dir").symlink_to(outside)
    seen = snapshots.snapshot(1).tree
    listed = snapshots._git("ls-tree", "-r", "--name-only", seen).decode().split()
    assert listed == ["dir", "file", "link"], "what a link leads to is not in the workspace"
    snapshots.restore(tree)
    assert (outside / "inner/x").read_text() == "not yours\n"
    assert (outside / "y").read_text() == "not yours\n"
    assert (root / "dir/y").read_text() == "y\n"
    assert not (root / "dir").is_symlink()


def test_a_link_with_the_same_content_behind_it_is_a_change(root, tmp_path):
    snapshots, tree = snapshots_of(root)
    (root / "dir").rename(tmp_path / "dir")
    (root / "dir").symlink_to(tmp_path / "dir")
    assert not snapshots.matches(tree)


def test_only_the_paths_that_were_asked_for(root):
    snapshots, tree = snapshots_of(root)
    (root / "file").write_text("changed\n")
    (root / "dir/y").write_text("changed\n")
    (root / "dir/new").write_text("new\n")
    (root / "dirt").write_text("new\n")
    assert snapshots.restore(tree, paths=("dir/",)) == ("dir/new", "dir/y")
    assert (root / "file").read_text() == "changed\n"
    assert (root / "dirt").exists()
    assert snapshots.restore(tree, paths=("./file",)) == ("file",)
    assert snapshots.restore(tree, paths=(".",)) == ("dirt",)


def test_folders_go_only_when_the_removal_emptied_them(root):
    (root / "users-empty").mkdir()
    snapshots, tree = snapshots_of(root)
    (root / "new/deep").mkdir(parents=True)
    (root / "new/deep/f").write_text("f")
    (root / "kept").mkdir()
    (root / "kept/f").write_text("f")
    (root / "kept/.env").write_text("K=1")
    snapshots.restore(tree)
    assert not (root / "new").exists()
    assert (root / "users-empty").is_dir()
    assert (root / "kept/.env").read_text() == "K=1"
    assert not (root / "kept/f").exists()


def test_what_is_left_out_is_never_overwritten_and_named_when_in_the_way(root):
    snapshots, tree = snapshots_of(root)
    (root / "file").unlink()
    (root / "file").mkdir()
    (root / "file/.env").write_text("K=1")
    (root / "dir/y").write_text("changed\n")
    with pytest.raises(WorkspaceError, match="all is restored but 'file'"):
        snapshots.restore(tree)
    assert (root / "file/.env").read_text() == "K=1"
    assert (root / "dir/y").read_text() == "y\n"


def test_modes_are_kept_but_for_the_executable_bit(root):
    (root / "file").chmod(0o600)
    snapshots, tree = snapshots_of(root)
    (root / "file").write_text("changed\n")
    (root / "file").chmod(0o700)
    snapshots.restore(tree)
    assert (root / "file").stat().st_mode & 0o777 == 0o600


def test_a_failed_write_leaves_the_old_file_and_no_litter(root, monkeypatch):
    snapshots, tree = snapshots_of(root)
    (root / "file").write_text("agent\n")

    def broken(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(place.os, "fsync", broken)
    with pytest.raises(WorkspaceError, match=r"only partly restored .*No space left"):
        snapshots.restore(tree)
    monkeypatch.undo()
    assert (root / "file").read_text() == "agent\n"
    assert not list(root.glob(".loopwright-*"))


@pytest.mark.parametrize(
    "path", [b"../x", b"/x", b"a//b", b".git/config", b"a/../../x", b"sub/.git/hooks/x", b""]
)
def test_paths_that_lead_elsewhere_are_refused(tmp_path, path):
    with pytest.raises(PermissionError, match="does not name a file below"):
        place.put(tmp_path, path, b"", mode=0o600)
