"""A user with uncommitted work runs, is cut off by kill -9, resumes, edits meanwhile, restores and applies.

At the end every byte of theirs is where they expect it, and of their repository nothing but our own refs has changed.
"""

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
sys.path.append(str(Path(__file__).parents[1] / "cli"))

from warm import begun
from workspace_repo import commit, git, user_state, write

AGENT = Path(__file__).parent / "half_then_whole.py"
LINES = "".join(f"{word}\n" for word in ("two", "three", "four", "five", "six", "seven", "eight"))
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"
COMMITTED = {
    "tracked.txt": "first\n",
    "edited.txt": f"one\n{LINES}",
    "staged.txt": "committed\n",
    "gone.txt": "to be deleted\n",
    "crlf.txt": b"a\r\nb\r\n",
    "tool.sh": "#!/bin/sh\n",
    "big.bin": POINTER,
    ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n",
    ".gitignore": "*.log\n",
}
ROWS = [
    ("in_place", "branch"),
    ("in_place", "detached"),
    ("in_place", "unborn"),
    ("worktree", "branch"),
    ("worktree", "detached"),
    ("folder", "branch"),
    ("folder", "unborn"),
    ("folder", "no repository"),
]


def users_folder(root, head):
    """A project with every kind of file there is, some of it committed, some staged, some only on disk."""
    root.mkdir()
    write(root, COMMITTED)
    (root / "tool.sh").chmod(0o755)
    (root / "link").symlink_to("tracked.txt")
    if head != "no repository":
        submodule = root / "sub"
        submodule.mkdir()
        git(submodule, "init", "-q")
        commit(submodule, {"inner.txt": "inner\n"})
        git(root, "init", "-q")
    if head in {"branch", "detached"}:
        commit(root)
        write(root, {"tracked.txt": "stashed\n"})
        git(root, "stash", "-q")
        git(root, "config", "user.note", "mine")
    if head == "detached":
        git(root, "checkout", "-q", "--detach")
    write(root, {"staged.txt": "staged\n"})
    if head != "no repository":
        git(root, "add", "staged.txt")
    write(
        root,
        {
            "edited.txt": f"ONE\n{LINES}",
            "untracked.txt": "mine\n",
            "ignored.log": "log\n",
            "dir/deep.txt": "d\n",
        },
    )
    return root


def everything(root):
    """All files of the user's folder with kind, mode and bytes; not git's and ours."""
    found = {}
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in {".git", ".agent-state"}]
        for path in (Path(folder, name) for name in names):
            name = str(path.relative_to(root))
            if path.is_symlink():
                found[name] = f"-> {path.readlink()}"
            else:
                found[name] = (bool(path.stat().st_mode & 0o100), path.read_bytes())
    return found


def with_the_work(before, **meanwhile):
    """What the user expects in the end: their files, what they edited meanwhile, and the agent's work."""
    after = {**before, **meanwhile}
    after |= {
        "tracked.txt": (False, b"agent\n"),
        "tool.sh": (True, b"#!/bin/sh\necho agent\n"),
        "link": "-> new.txt",
        "new.txt": (False, b"new\n"),
        "bin/new.sh": (True, b"#!/bin/sh\n"),
        "copy.bin": (False, POINTER.encode()),
        "edited.txt": (False, f"ONE, LATER\n{LINES}agent\n".encode()),
        "crlf.txt": (False, b"a\r\nb\r\nagent\r\n"),
    }
    del after["gone.txt"]
    return after


class Runner:
    """The program in the user's folder."""

    def __init__(self, root, marks, mode):
        self.root, self.marks = root, marks
        agent = f"{sys.executable} -I -S {AGENT} {marks}"
        self.start = [
            *("run", "--goal", "g", "--agent", agent, "--gate", "test -f new.txt", "--as", "r"),
            *("--workspace", mode, "--no-baseline"),
        ]
        self.env = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}

    def started(self, *args):
        return begun([*args], self.root, self.env)

    def __call__(self, *args):
        return self.ended(self.started(*args))

    def ended(self, process):
        said = "".join(process.communicate(timeout=60))
        assert process.returncode == 0, said
        return said

    def until(self, mark, process):
        end = time.monotonic() + 60
        while not (self.marks / mark).exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end, mark
            time.sleep(0.005)


def state(root, head):
    """What must not change of the repository; the status only where nobody works in the checkout."""
    if head == "no repository":
        return {}
    found = {k: v for k, v in user_state(root).items() if k != "status"}
    return found | {"worktrees": (root / ".git/worktrees").exists(), "sub": user_state(root / "sub")}


@pytest.mark.parametrize(("mode", "head"), ROWS, ids=[f"{mode}-{head}" for mode, head in ROWS])
def test_every_byte_is_where_the_user_expects_it(tmp_path, mode, head):
    marks = tmp_path / "marks"
    marks.mkdir()
    root = users_folder(tmp_path / "work", head)
    before, repository = everything(root), state(root, head)
    run = Runner(root, marks, mode)

    process = run.started(*run.start)
    run.until("half", process)
    process.kill()
    process.communicate()
    in_place = mode == "in_place"
    assert in_place or everything(root) == before

    process = run.started("resume", "r")
    run.until("whole", process)
    edited = (root / "edited.txt").read_text()
    (root / "edited.txt").write_text(edited.replace("ONE\n", "ONE, LATER\n"))
    write(root, {"later.txt": "made meanwhile\n"})
    (marks / "go").touch()
    run.ended(process)
    assert (marks / f"found-junk-{in_place}").exists(), (
        "a folder apart goes back to the start, the user's never does"
    )

    mine = {"later.txt": (False, b"made meanwhile\n")}
    wanted = with_the_work(before, **mine, **({"junk.txt": (False, b"half done\n")} if in_place else {}))
    if in_place:
        assert everything(root) == wanted
        run("restore", "r", "--iteration", "0")
        assert everything(root) == before, "as it was before the run"
        run("restore", "r", "--iteration", "1")
    else:
        untouched = before | mine | {"edited.txt": (False, f"ONE, LATER\n{LINES}".encode())}
        assert everything(root) == untouched
        run("restore", "r", "--iteration", "0")  # in the run's own folder
        assert everything(root) == untouched
    for _ in range(2):  # a second time changes nothing
        run("apply", "r")
        assert everything(root) == wanted
    assert state(root, head) == repository


def test_the_folder_of_a_run_may_be_thrown_away(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    (marks / "go").touch()
    root = users_folder(tmp_path / "work", "branch")
    run = Runner(root, marks, "worktree")
    run(*run.start)
    shutil.rmtree(root / ".agent-state/workspaces/r")
    run("apply", "r")
    assert (root / "new.txt").read_text() == "new\n"
