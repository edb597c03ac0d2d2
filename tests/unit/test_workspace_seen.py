"""What snapshots see, byte for byte, and what they leave out."""

from __future__ import annotations

import os

import pytest
from workspace_repo import commit, content, git, names, new_repo, opened, user_state, write

from loopwright.errors import WorkspaceError
from loopwright.workspace import index as index_module
from loopwright.workspace import plumbing


@pytest.fixture
def repo(tmp_path):
    return new_repo(tmp_path / "repo")


def test_bytes_are_kept_whatever_attributes_say(repo):
    attributes = "* text=auto eol=lf\n*.bin filter=lfs diff=lfs -text\n*.txt ident working-tree-encoding=UTF-16\n*.py -diff\n"
    crlf, pointer, ident = b"a\r\nb\r\n", b"version https://git-lfs\r\n", b"$Id: 1234 $ \xff\xfe\r\n"
    write(
        repo,
        {
            ".gitattributes": attributes,
            "c.csv": crlf,
            "p.bin": pointer,
            "i.txt": ident,
            "sub/.gitattributes": "* text\n",
        },
    )
    write(repo, {"sub/d.csv": crlf})
    snapshots = opened(repo)
    tree = snapshots.snapshot(0).tree
    assert content(snapshots, tree, "c.csv") == crlf
    assert content(snapshots, tree, "sub/d.csv") == crlf
    assert content(snapshots, tree, "p.bin") == pointer
    assert content(snapshots, tree, "i.txt") == ident
    write(repo, {"c.csv": "", "p.bin": "", "i.txt": "", "sub/d.csv": "", "src/b.py": "print(2)\n"})
    diff = snapshots.diff(tree)
    assert "+print(2)" in diff.text, "no attribute hides lines from the diff"
    snapshots.restore(tree)
    assert [(repo / name).read_bytes() for name in ("c.csv", "p.bin", "i.txt", "sub/d.csv")] == [
        crlf,
        pointer,
        ident,
        crlf,
    ]


def test_no_configuration_hook_or_filter_takes_part(repo, tmp_path, monkeypatch):
    marker = tmp_path / "ran"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\necho $0 >> {marker}\ncat\n")
    script.chmod(0o755)
    (tmp_path / "ignore").write_text("*.txt\n")
    (tmp_path / "attributes").write_text("* filter=evil text eol=crlf\n")
    settings = (
        f"[core]\nfsmonitor = {script}\nhooksPath = {repo}/.git/hooks\nexcludesFile = {tmp_path}/ignore\n"
        f"attributesFile = {tmp_path}/attributes\nautocrlf = true\nlogAllRefUpdates = always\nfileMode = false\npager = {script}\n"
        f'[filter "evil"]\nclean = {script}\nsmudge = {script}\nrequired = true\n[diff]\nexternal = {script}\n'
    )
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(settings)
    with (repo / ".git/config").open("a") as config:
        config.write(settings)
    hooks = (
        "reference-transaction",
        "post-index-change",
        "post-checkout",
        "pre-commit",
        "post-commit",
        "fsmonitor-watchman",
    )
    for hook in hooks:
        (repo / ".git/hooks").mkdir(exist_ok=True)
        (repo / ".git/hooks" / hook).write_text(script.read_text())
        (repo / ".git/hooks" / hook).chmod(0o755)
    write(repo, {".gitattributes": "* filter=evil\n", "new.txt": "n\r\n"})
    for name, value in {
        "HOME": home,
        "GIT_DIR": "/nowhere",
        "GIT_EXTERNAL_DIFF": script,
        "GIT_CONFIG_COUNT": "x",
    }.items():
        monkeypatch.setenv(name, str(value))

    snapshots = opened(repo)
    tree = snapshots.snapshot(0).tree
    write(repo, {"new.txt": "other\n", "src/b.py": "x\n"})
    snapshots.snapshot(1)
    assert snapshots.diff(tree).text
    snapshots.restore(tree)
    snapshots.forget()
    assert not marker.exists()
    assert (repo / "new.txt").read_bytes() == b"n\r\n"
    assert not (repo / ".git/logs/refs/loopwright").exists()


def test_what_is_ignored_is_decided_at_snapshot_0(repo):
    (repo / ".git/info/exclude").write_text("private/\n")
    write(
        repo,
        {
            "src/.gitignore": "/gen/\n!keep.log\n*.tmp\n",
            "src/gen/x": "",
            "src/keep.log": "",
            "src/deep/gen/y": "",
        },
    )
    write(repo, {"top.log": "", "build/out": "", "private/p": "", "src/build/kept": ""})
    write(repo, {"src/deep/x.tmp": "", "odd [x] \n/.gitignore": "/hidden\n", "odd [x] \n/hidden": ""})
    snapshots = opened(repo)
    first = snapshots.snapshot(0)
    seen = [
        "odd [x] \n/.gitignore",
        "a.txt",
        "src/b.py",
        ".gitignore",
        "src/.gitignore",
        "src/keep.log",
        "src/deep/gen/y",
        "src/build/kept",
    ]
    assert names(snapshots, first.tree) == sorted(seen)
    write(repo, {".gitignore": "*\n", "sneaked.py": "x", "late.log": "still ignored", "build/more": ""})
    (repo / ".git/info/exclude").write_text("*\n")
    second = opened(repo).snapshot(1)
    assert names(snapshots, second.tree) == sorted([*seen, "sneaked.py"])
    snapshots.restore(first.tree)
    assert not (repo / "sneaked.py").exists()
    assert (repo / "late.log").read_text() == "still ignored"
    assert (repo / "build/more").exists()


def test_tracked_files_win_over_patterns_and_litter(repo):
    write(repo, {"forced.log": "tracked\n", "__pycache__/t.pyc": "tracked"})
    git(repo, "add", "-f", "forced.log", "__pycache__/t.pyc")
    commit(repo)
    write(repo, {"forced.log": "changed\n", "other.log": "", "__pycache__/u.pyc": ""})
    snapshots = opened(repo)
    tree = snapshots.snapshot(0).tree
    assert content(snapshots, tree, "forced.log") == b"changed\n"
    assert {"other.log", "__pycache__/u.pyc"}.isdisjoint(names(snapshots, tree))
    assert "__pycache__/t.pyc" in names(snapshots, tree)


def test_litter_secrets_and_huge_files_are_left_out_and_never_touched(repo, monkeypatch):
    monkeypatch.setattr(index_module, "LARGEST_FILE", 1000)
    monkeypatch.setattr("loopwright.workspace.git.LARGEST_FILE", 1000)
    write(repo, {"fixture.pem": "as committed\n"})
    commit(repo)
    secret = {
        ".env": "K=1",
        "conf/.env.local": "K=1",
        "id_rsa": "k",
        "deploy/server.key": "k",
        "credentials.json": "{}",
        ".npmrc": "",
    }
    litter = {
        "__pycache__/a.pyc": "",
        "sub/.pytest_cache/v": "",
        ".coverage": "",
        ".coverage.host.1": "",
        "node_modules/m/i.js": "",
    }
    fine = {".env.example": "K=", "id_rsa.pub": "p", "credentials.py": "", ".coveragerc": "", "keys.txt": ""}
    write(repo, {**secret, **litter, **fine, "huge.dat": "x" * 1001, "fixture.pem": "changed\n"})
    snapshots = opened(repo)
    first = snapshots.snapshot(0)
    assert first.left_out == tuple(sorted([*secret, "huge.dat", "fixture.pem"]))
    assert set(names(snapshots, first.tree)) == {*fine, "a.txt", "src/b.py", ".gitignore", "fixture.pem"}
    assert content(snapshots, first.tree, "fixture.pem") == b"as committed\n"
    write(
        repo,
        {
            ".env": "K=2",
            "huge.dat": "y" * 1002,
            "__pycache__/a.pyc": "new",
            "keys.txt": "z" * 2000,
            "a.txt": "z",
        },
    )
    assert snapshots.restore(first.tree) == ("a.txt",)
    assert (repo / ".env").read_text() == "K=2"
    assert (repo / "huge.dat").stat().st_size == 1002
    assert (repo / "keys.txt").stat().st_size == 2000, "too large to be in a snapshot, so it would be lost"
    assert (repo / "fixture.pem").read_text() == "changed\n"


def test_restore_never_touches_what_is_left_out_now_whatever_the_tree_says(repo, monkeypatch):
    write(repo, {"fixture.pem": "1\n", "data.txt": "1\n", "log.txt": "1\n"})
    git(repo, "add", "fixture.pem")
    git(repo, "commit", "-q", "-m", "secret")
    old = opened(repo, "old").snapshot(0).tree
    write(repo, {"fixture.pem": "2\n"})
    git(repo, "commit", "-q", "-am", "secret")
    write(repo, {".gitignore": "data.txt\n", "data.txt": "2\n", "log.txt": "2\n", "a.txt": "2\n"})
    snapshots = opened(repo, "new")
    assert "data.txt" not in names(snapshots, snapshots.snapshot(0).tree)
    monkeypatch.setattr(index_module, "LARGEST_FILE", 1000)
    monkeypatch.setattr("loopwright.workspace.git.LARGEST_FILE", 1000)
    write(repo, {"log.txt": "3" * 1001})
    assert snapshots.restore(old) == (".gitignore", "a.txt")
    assert (repo / "fixture.pem").read_text() == "2\n"
    assert (repo / "data.txt").read_text() == "2\n"
    assert (repo / "log.txt").stat().st_size == 1001


def test_our_own_output_files_and_the_state_folder_are_in_no_snapshot(repo):
    write(repo, {"tracked.out": "old\n", ".agent-state/junk": "j", "nested/.agent-state/journal": "j"})
    git(repo, "add", "-f", "tracked.out", ".agent-state/junk")
    commit(repo)
    outputs = (repo / "run.out", repo / "tracked.out")
    write(repo, {"run.out": "1", "tracked.out": "now\n", ".agent-state/junk": "k"})
    snapshots = opened(repo, outputs=outputs)
    tree = snapshots.snapshot(0).tree
    write(
        repo,
        {
            "run.out": "22",
            "tracked.out": "later\n",
            ".agent-state/junk": "l",
            "nested/.agent-state/journal": "k",
        },
    )
    assert snapshots.matches(tree)
    assert snapshots.diff(tree).files == ()
    assert "run.out" not in names(snapshots, tree)
    assert snapshots.restore(tree) == ()
    assert (repo / "tracked.out").read_text() == "later\n"


def test_a_workspace_below_the_top_of_the_repository_is_all_that_is_seen(repo):
    inside = repo / "packages" / "web [1]"
    files = {
        "package.json": "{}\n",
        "dist/out.js": "",
        "cache/x": "",
        "note.log": "",
        "tmp/t": "",
        "src/index.js": "1",
    }
    write(inside, files)
    ignored = "*.log\n/packages/*/dist/\npackages/**/cache\n/packages/**\nweb*\n/packages/\n**/tmp/\n!/packages/web [[]1]/tmp/\n"
    write(repo, {".gitignore": ignored, "outside.txt": "o", "packages/.gitignore": "*\n"})
    write(inside, {"tracked.log": ""})
    git(repo, "add", "-f", "packages/web [1]/package.json", "packages/web [1]/tracked.log")
    git(repo, "commit", "-q", "-m", "web")
    before = user_state(repo)
    snapshots = opened(inside)
    first = snapshots.snapshot(0)
    assert names(snapshots, first.tree) == ["package.json", "src/index.js", "tmp/t", "tracked.log"]
    write(inside, {"package.json": "{1}\n"})
    write(repo, {"outside.txt": "changed"})
    assert snapshots.restore(first.tree) == ("package.json",)
    write(repo, {"outside.txt": "o"})
    assert user_state(repo) == before


def test_names_of_any_bytes(repo):
    odd = [
        b"new\nline",
        b'tab\t quote"',
        b"latin-\xe9",
        "umläut".encode(),
        b"-dash",
        b":colon",
        b"git~1",
        b"back\\slash",
        b"sp ace/x",
    ]
    write(repo, dict.fromkeys(odd, b"1\n"))
    snapshots = opened(repo)
    first = snapshots.snapshot(0).tree
    assert {os.fsencode(name) for name in names(snapshots, first)} >= set(odd)
    write(repo, dict.fromkeys(odd, b"2\n"))
    diff = snapshots.diff(first)
    assert {os.fsencode(file.path) for file in diff.files} == set(odd)
    assert {(file.status, file.added, file.removed) for file in diff.files} == {("M", 1, 1)}
    assert {os.fsencode(name) for name in snapshots.restore(first)} == set(odd)
    assert snapshots.matches(first)


def test_an_edit_of_the_same_size_in_the_same_instant_is_seen(repo):
    snapshots = opened(repo)
    write(repo, {"racy.txt": "0000"})
    last = snapshots.snapshot(0).tree
    for n in range(1, 25):
        write(repo, {"racy.txt": f"{n:04}"})
        tree = snapshots.snapshot(n).tree
        assert tree != last, n
        assert content(snapshots, tree, "racy.txt") == f"{n:04}".encode()
        last = tree


def test_files_that_are_none_do_not_stop_a_snapshot(repo):
    os.mkfifo(repo / "pipe")
    (repo / "a.txt").unlink()
    os.mkfifo(repo / "a.txt")
    (repo / "dangling").symlink_to("nowhere")
    (repo / "outside").symlink_to("/etc")
    snapshots = opened(repo)
    tree = snapshots.snapshot(0).tree
    assert names(snapshots, tree) == [".gitignore", "dangling", "outside", "src/b.py"]
    assert content(snapshots, tree, "outside") == b"/etc"


def test_a_pipe_that_git_would_wait_for_is_said(repo, monkeypatch):
    monkeypatch.setattr(plumbing, "TIMEOUT_S", 0.5)
    snapshots = opened(repo)
    first = snapshots.snapshot(0)
    os.mkfifo(repo / "src/.gitattributes")
    os.mkfifo(repo / "src/.gitignore")
    write(repo, {"src/new.py": "x"})
    with pytest.raises(
        WorkspaceError, match=r"src/\.gitattributes is no file, and git would wait for it: remove it"
    ):
        snapshots.now()
    (repo / "src/.gitattributes").unlink()
    assert snapshots.now() != first
    (repo / ".git/HEAD").unlink()
    os.mkfifo(repo / ".git/HEAD")  # no repository any more, as git has it
    with pytest.raises(WorkspaceError, match="its HEAD is gone"):
        opened(repo)


def test_an_unreadable_file_is_left_out_and_named(repo, monkeypatch):
    write(repo, {"closed": "x"})
    (repo / "closed").chmod(0)
    # The tests may run as root, who can read everything.
    monkeypatch.setattr(index_module.os, "access", lambda path, mode: "closed" not in str(path))
    assert opened(repo).snapshot(0).left_out == ("closed",)


def test_what_is_too_deep_or_behind_a_closed_folder_is_named_and_kept(repo, monkeypatch):
    snapshots = opened(repo)
    first = snapshots.snapshot(0)
    here = os.open(repo, os.O_RDONLY)
    inner = here
    for _ in range(300):  # 6,000 characters: no name for the system, but a place for an agent
        os.mkdir("d" * 20, dir_fd=inner)
        below = os.open("d" * 20, os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = below
    os.close(os.open("f", os.O_CREAT, dir_fd=inner))
    os.close(inner)
    left_out = snapshots.now().left_out
    assert len(left_out) == 1
    assert left_out[0].endswith("d/.../")
    assert len(left_out[0]) < 210
    write(repo, {"src/b.py": "changed\n"})
    lstat = os.lstat

    def closed(path, **options):  # as for the owner of a folder without x; the tests may run as root
        if os.fsencode(path).endswith(b"src/b.py"):
            raise PermissionError(13, "Permission denied")
        return lstat(path, **options)

    monkeypatch.setattr(index_module.os, "lstat", closed)
    assert snapshots.now().tree == first.tree
    assert snapshots.now().left_out[1:] == ("src/b.py",)


def test_a_submodule_is_recorded_and_never_written(repo, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    commit(other, {"lib.c": "1\n"})
    git(repo, "clone", "-q", str(other), "sub")  # `git submodule` is a script that needs sed
    (repo / ".gitmodules").write_text(f'[submodule "sub"]\n\tpath = sub\n\turl = {other}\n')
    head = git(repo / "sub", "rev-parse", "HEAD").strip().decode()
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{head},sub")
    git(repo, "add", ".gitmodules")
    commit(repo)
    snapshots = opened(repo)
    first = snapshots.snapshot(0)
    commit(repo / "sub", {"lib.c": "2\n"})
    second = snapshots.snapshot(1)
    assert [(file.path, file.status) for file in snapshots.diff(first.tree, second.tree).files] == [
        ("sub", "M")
    ]
    assert snapshots.restore(first.tree) == ()
    assert (repo / "sub/lib.c").read_text() == "2\n"


def nest(repo, *names):
    for name in names:
        (repo / name).mkdir(parents=True, exist_ok=True)
        git(repo / name, "init", "-q")


def test_the_files_of_repositories_inside_are_kept_like_all_files(repo):
    nest(repo, "old", "empty", "unborn")
    write(
        repo,
        {"old/f": "1", "old/.gitignore": "*.log\n", "old/x.log": "x", "old/inner/g": "1", "unborn/h": "1"},
    )
    write(repo, {"old/.git/info/exclude": "local\n", "old/local": "x", "old/.env": "KEY=1"})
    commit(repo / "old")
    nest(repo, "old/inner")
    heads = [(repo / "old/.git" / name).read_bytes() for name in ("HEAD", "index")]
    snapshots = opened(repo)
    first = snapshots.snapshot(0)
    assert first.left_out == ("old/.env",)
    inside = ["old/.gitignore", "old/f", "old/inner/g", "unborn/h"]
    assert [
        name for name in names(snapshots, first.tree) if name.startswith(("old", "unborn", "empty"))
    ] == inside
    write(repo, {"old/f": "2", "old/inner/new": "1", "old/x.log": "y", "old/local": "y", "empty/late": "1"})
    (repo / "unborn/h").unlink()
    nest(repo, "cloned")
    write(repo, {"cloned/k": "1", "cloned/.gitignore": "hidden\n", "cloned/hidden": "x"})  # by the agent
    second = opened(repo).snapshot(1)
    diff = snapshots.diff(first.tree, second.tree)
    assert [(file.path, file.status) for file in diff.files] == [
        *((f"cloned/{name}", "A") for name in (".gitignore", "hidden", "k")),
        ("empty/late", "A"),
        ("old/f", "M"),
        ("old/inner/new", "A"),
        ("unborn/h", "D"),
    ]
    snapshots.restore(first.tree)
    assert snapshots.now().tree == first.tree
    assert [(repo / "old" / name).read_text() for name in ("f", "x.log", "local", ".env")] == [
        "1",
        "y",
        "y",
        "KEY=1",
    ]
    assert [(repo / "old/.git" / name).read_bytes() for name in ("HEAD", "index")] == heads
    assert (repo / "cloned/.git/HEAD").exists()
    snapshots.restore(second.tree)
    assert snapshots.now().tree == second.tree
    assert not [path for path in repo.rglob("*") if "seed" in path.name]


def test_a_repository_inside_that_is_too_large_or_too_deep_is_named(repo, monkeypatch):
    monkeypatch.setattr(index_module, "MOST_FILES", 3)
    nest(repo, "large", "small", *("/".join("abcdef"[:n]) for n in range(1, 7)), "/".join("x" * 33))
    write(repo, {f"large/{n}": "x" for n in range(5)})
    write(repo, {"small/f": "x", "a/b/c/d/e/f/deep": "x", "/".join("x" * 33) + "/f": "x", "a/b/f": "x"})
    snapshots = opened(repo)
    first = snapshots.snapshot(0)
    assert first.left_out == ("large/", "x/" * 33)
    assert {"small/f", "a/b/f", "a/b/c/d/e/f/deep"} < set(names(snapshots, first.tree))
    assert snapshots.now() == first
    write(repo, {"large/1": "y"})
    assert opened(repo).now() == first
