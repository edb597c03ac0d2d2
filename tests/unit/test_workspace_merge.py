"""Bringing changes into a tree that moved on: what is taken, joined, refused."""

import os

import pytest
from workspace_repo import git, new_repo, opened, write

from loopwright.workspace.merge import merge, written


@pytest.fixture
def tree(tmp_path):
    """The id of a tree with these files; a value that begins with `->` is a symlink, with `+x` executable."""
    repo = new_repo(tmp_path / "repo")
    snapshots = opened(repo)
    empty = snapshots._git("mktree").decode().strip()

    def of(**files):
        lines = []
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            mode = b"120000" if data[:2] == b"->" else b"100755" if data[:2] == b"+x" else b"100644"
            blob = snapshots._git("hash-object", "-w", "--stdin", stdin=data).strip()
            lines.append(b"%s %s\t%s\0" % (mode, blob, name.replace("__", "/").encode()))
        index = {**snapshots._git.env, "GIT_INDEX_FILE": str(tmp_path / "index")}
        call = type(snapshots._git)(program=snapshots._git.program, env=index, cwd=repo)
        call("read-tree", empty)
        call("update-index", "-z", "--index-info", stdin=b"".join(lines))
        return call("write-tree").decode().strip()

    of.git = snapshots._git
    return of


LINES = "".join(f"{n}\n" for n in range(9))
ROWS = {  # what it began from, what the run made of it, what the user has; what comes of it, or the conflicts
    "only the run": ({"f": "a"}, {"f": "b"}, {"f": "a"}, {"f": "b"}),
    "only the user": ({"f": "a"}, {"f": "a"}, {"f": "b"}, {"f": "b"}),
    "both the same": ({"f": "a"}, {"f": "b"}, {"f": "b"}, {"f": "b"}),
    "both otherwise": ({"f": "a\n"}, {"f": "b\n"}, {"f": "c\n"}, ["f"]),
    "other lines": ({"f": LINES}, {"f": LINES + "z\n"}, {"f": "a\n" + LINES}, {"f": "a\n" + LINES + "z\n"}),
    "another mode and other lines": (
        {"f": "+x" + LINES},
        {"f": "+x" + LINES + "z\n"},
        {"f": LINES},
        {"f": LINES + "z\n"},
    ),
    "binary": ({"f": b"\0a" * 9}, {"f": b"\0b" * 9}, {"f": b"\0c" * 9}, ["f"]),
    "new": ({"g": "g"}, {"g": "g", "d__f": "n"}, {"g": "g"}, {"g": "g", "d__f": "n"}),
    "new on both sides": ({}, {"f": "a\n"}, {"f": "b\n"}, ["f"]),
    "deleted": ({"f": "a", "g": "g"}, {"g": "g"}, {"f": "a", "g": "g"}, {"g": "g"}),
    "deleted by the run, edited by the user": ({"f": "a"}, {}, {"f": "b"}, ["f"]),
    "edited by the run, deleted by the user": ({"f": "a"}, {"f": "b"}, {}, ["f"]),
    "deleted by both": ({"f": "a"}, {}, {}, {}),
    "a link": ({"f": "->a"}, {"f": "->b"}, {"f": "->a"}, {"f": "->b"}),
    "a link on one side": ({"f": "a"}, {"f": "->b"}, {"f": "c"}, ["f"]),
    "a file where the user has a folder": ({}, {"f": "a"}, {"f__x": "x"}, ["f"]),
    "a folder where the user has a file": ({}, {"f__x": "x"}, {"f": "a"}, ["f/x"]),
    "a file becomes a folder": ({"f": "a"}, {"f__x": "x"}, {"f": "a"}, {"f__x": "x"}),
    "CRLF in the checkout": (
        {"f": "a\nb\n"},
        {"f": "a\nb\nz\n"},
        {"f": "a\r\nb\r\n"},
        {"f": "a\r\nb\r\nz\r\n"},
    ),
    "CRLF, and edited": (
        {"f": LINES},
        {"f": LINES + "z\n"},
        {"f": ("a\n" + LINES).replace("\n", "\r\n")},
        {"f": ("a\n" + LINES + "z\n").replace("\n", "\r\n")},
    ),
    "CRLF in the run": ({"f": "a\r\nb\r\n"}, {"f": "a\r\nz\r\n"}, {"f": "a\nb\n"}, {"f": "a\nz\n"}),
    "a pointer here, the large file there": (
        {"f": "pointer\n", "g": "a"},
        {"f": "pointer\n", "g": "b"},
        {"f": b"\0large", "g": "a"},
        {"f": b"\0large", "g": "b"},
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_three_ways(tree, name):
    old, new, mine, wanted = ROWS[name]
    trees = {"old": tree(**old), "new": tree(**new), "mine": tree(**mine)}
    found = merge(tree.git, **trees)
    if isinstance(wanted, list):
        assert [os.fsdecode(path) for path in found.conflicts] == wanted
        return
    assert not found.conflicts
    after = written(tree.git, trees["mine"], found.changes)
    assert after == tree(**wanted)
    again = merge(tree.git, old=trees["old"], new=trees["new"], mine=after)
    assert not again.conflicts
    assert not again.changes, "a second time there is nothing to do"


def test_below_a_folder(tree):
    found = merge(tree.git, old=tree(f="a"), new=tree(f="b"), mine=tree(f="a"))
    whole = tree(top="t", inner__f="a")
    assert written(tree.git, whole, found.changes, inner=b"inner/") == tree(top="t", inner__f="b")


def test_nobodys_merge_driver_takes_part(tmp_path):
    repo = new_repo(tmp_path / "repo")
    git(repo, "config", "merge.evil.driver", "touch evil; false")
    write(repo, {".gitattributes": "* merge=evil\n", "a.txt": LINES})
    snapshots = opened(repo)
    old = snapshots.now().tree
    write(repo, {"a.txt": LINES + "z\n"})
    new = snapshots.now().tree
    write(repo, {"a.txt": "a\n" + LINES})
    found = merge(snapshots._git, old=old, new=new, mine=snapshots.now().tree)
    assert not found.conflicts
    assert not (repo / "evil").exists()
