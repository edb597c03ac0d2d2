"""Real repositories for the workspace tests, and what must not change in them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from loopwright.workspace.git import Git, open_git

PATH = os.environ["PATH"]


def git(where, *args, home="/nonexistent", ok=(0,)):
    """The user's own git, with or without a configuration in its home."""
    env = {"PATH": PATH, "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *who, *args], cwd=where, env=env, capture_output=True, check=False, timeout=60
    )
    assert done.returncode in ok, done.stderr
    return done.stdout


def commit(repo, files=(), message="work"):
    write(repo, files)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "--allow-empty", "-m", message)


def write(root, files):
    for name, content in dict(files).items():
        path = Path(root, os.fsdecode(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def names(snapshots: Git, tree):
    listed = snapshots._git("ls-tree", "-r", "-z", "--name-only", tree)
    return sorted(os.fsdecode(name) for name in listed.split(b"\0") if name)


def content(snapshots: Git, tree, name):
    return snapshots._git("cat-file", "blob", f"{tree}:{name}")


def user_state(repo, home="/nonexistent"):
    """Everything of the user's that must stay as it is, byte for byte."""
    git_dir = repo / os.fsdecode(git(repo, "rev-parse", "--git-dir").strip())
    refs = git(repo, "for-each-ref", "--format=%(refname) %(objectname)", home=home).splitlines()
    index = git_dir / "index"
    return {
        "head": (git_dir / "HEAD").read_bytes(),
        "index": index.read_bytes() if index.exists() else None,
        "status": git(repo, "--no-optional-locks", "status", "--porcelain", home=home),
        "refs": [ref for ref in refs if not ref.startswith(b"refs/loopwright/")],
        "stash": git(repo, "stash", "list", home=home),
        "config": (git_dir / "config").read_bytes() if (git_dir / "config").exists() else None,
        "logs": sorted(str(path) for path in (git_dir / "logs").rglob("*")),
    }


def files_of(root):
    """Path → kind, mode and content of all files, without git's and ours."""
    found = {}
    for path in root.rglob("*"):
        if {".git", ".agent-state"} & set(path.relative_to(root).parts):
            continue
        if path.is_symlink():
            found[path] = ("link", path.readlink())
        elif path.is_file():
            found[path] = (oct(path.stat().st_mode), hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def new_repo(root):
    """A repository with one commit of three files."""
    root.mkdir()
    git(root, "init", "-q")
    commit(root, {"a.txt": "one\ntwo\n", "src/b.py": "print(1)\n", ".gitignore": "*.log\n/build/\n"})
    return root


def opened(root, run="r1", **options):
    return open_git(root, root / ".agent-state", run, **options)
