"""Evidence files: found by globs whatever git ignores, compared, and put back exactly."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from loopwright.errors import WorkspaceError
from loopwright.workspace import protect
from loopwright.workspace.evidence import Evidence
from loopwright.workspace.opened import open_workspace
from loopwright.workspace.protect import added, digest, keep_copies, protected, put_back, tampered


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "work"
    for name, text in {
        "tests/test_a.py": "assert 1\n",
        "tests/unit/test_b.py": "assert 2\n",
        "tests/run.sh": "#!/bin/sh\n",
        "tests/__pycache__/test_a.pyc": "bytecode",
        "conftest.py": "x = 1\n",
        "sub/conftest.py": "x = 2\n",
        "src/a.py": "a\n",
        "node_modules/m/conftest.py": "no\n",
        ".git/conftest.py": "no\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "tests/run.sh").chmod(0o750)
    (root / ".gitignore").write_text("*\n")
    return root


@pytest.mark.parametrize(
    ("globs", "found"),
    [
        (["tests/**"], ["tests/run.sh", "tests/test_a.py", "tests/unit/test_b.py"]),
        (["tests"], ["tests/run.sh", "tests/test_a.py", "tests/unit/test_b.py"]),
        (["tests/"], ["tests/run.sh", "tests/test_a.py", "tests/unit/test_b.py"]),
        (["tests/*.py"], ["tests/test_a.py"]),
        (["tests/**/*.py"], ["tests/test_a.py", "tests/unit/test_b.py"]),
        (["**/test_?.py"], ["tests/test_a.py", "tests/unit/test_b.py"]),
        (["test_[!a].py"], ["tests/unit/test_b.py"]),
        (["conftest.py"], ["conftest.py", "sub/conftest.py"]),
        (["/conftest.py"], ["conftest.py"]),
        (["./sub/conftest.py"], ["sub/conftest.py"]),
        (["node_modules/**"], ["node_modules/m/conftest.py"]),
        (["node_modules"], ["node_modules/m/conftest.py"]),
        (["nothing/**", "*.nothing"], []),
        ([], []),
        (["tests/*.py", "tests/unit/**", "tests/test_a.py"], ["tests/test_a.py", "tests/unit/test_b.py"]),
    ],
)
def test_what_a_glob_names(root, globs, found):
    assert list(protected(root, globs)) == found


def test_the_digest_is_the_sha256_of_the_bytes_and_the_executable_bit(root):
    seen = protected(root, ["tests/**"])
    assert seen["tests/test_a.py"] == hashlib.sha256(b"assert 1\n").hexdigest()
    assert seen["tests/run.sh"] == hashlib.sha256(b"#!/bin/sh\n").hexdigest() + "+x"
    assert digest(seen) == digest(dict(reversed(seen.items())))
    assert digest(seen) != digest({**seen, "tests/test_a.py": "0"})


def test_changed_deleted_and_replaced_files_are_tampering_and_new_ones_are_not(root, tmp_path):
    before = protected(root, ["tests/**"])
    (root / "tests/test_new.py").write_text("assert 3\n")
    assert tampered(before, protected(root, ["tests/**"])) == ()
    assert added(before, protected(root, ["tests/**"])) == ("tests/test_new.py",)
    (root / "tests/test_a.py").write_text("assert 0\n")
    (root / "tests/unit/test_b.py").unlink()
    (root / "tests/run.sh").chmod(0o640)
    assert tampered(before, protected(root, ["tests/**"])) == (
        "tests/run.sh",
        "tests/test_a.py",
        "tests/unit/test_b.py",
    )


def test_put_back_gives_the_exact_bytes_and_mode(root, tmp_path):
    copies = tmp_path / "state/evidence"
    (root / "tests/binary").write_bytes(b"\0\r\n\xff")
    (root / "tests/binary").chmod(0o640)
    before = protected(root, ["tests/**"])
    keep_copies(root, before, copies)
    keep_copies(root, before, copies)
    assert len(list(copies.iterdir())) == len(set(before.values()))
    shutil.rmtree(root / "tests")
    assert tampered(before, protected(root, ["tests/**"])) == tuple(before)
    assert put_back(root, copies, before, before) == tuple(before)
    assert protected(root, ["tests/**"]) == before
    assert (root / "tests/run.sh").stat().st_mode & 0o777 == 0o750
    assert (root / "tests/binary").stat().st_mode & 0o777 == 0o640
    assert (root / "tests/binary").read_bytes() == b"\0\r\n\xff"


def test_put_back_follows_no_link(root, tmp_path):
    outside = tmp_path / "outside"
    (outside / "unit").mkdir(parents=True)
    (outside / "test_a.py").write_text("not yours\n")
    before = protected(root, ["tests/**"])
    keep_copies(root, before, tmp_path / "copies")
    shutil.rmtree(root / "tests")
    (root / "tests").symlink_to(outside)
    put_back(root, tmp_path / "copies", before, before)
    assert (outside / "test_a.py").read_text() == "not yours\n"
    assert not (outside / "run.sh").exists()
    assert not (root / "tests").is_symlink()
    assert protected(root, ["tests/**"]) == before
    (root / "tests/test_a.py").unlink()
    (root / "tests/test_a.py").symlink_to(outside / "test_a.py")
    put_back(root, tmp_path / "copies", before, ["tests/test_a.py"])
    assert (outside / "test_a.py").read_text() == "not yours\n"
    assert (root / "tests/test_a.py").read_text() == "assert 1\n"


def test_a_folder_in_a_files_place_is_moved_aside_and_a_file_in_a_folders_place_goes(root, tmp_path):
    before = protected(root, ["tests/**"])
    keep_copies(root, before, tmp_path / "copies")
    shutil.rmtree(root / "tests")
    (root / "tests/test_a.py").mkdir(parents=True)
    (root / "tests/test_a.py/work").write_text("agent's\n")
    (root / "tests/unit").write_text("a file")
    put_back(root, tmp_path / "copies", before, before)
    assert tampered(before, protected(root, ["tests/**"])) == ()
    aside = list((root / "tests").glob("test_a.py.replaced-*/work"))
    assert [path.read_text() for path in aside] == ["agent's\n"]


def test_links_are_evidence_with_what_they_stand_for_inside_the_root(root, tmp_path):
    (root / "data").mkdir()
    (root / "data/golden.txt").write_text("g\n")
    (tmp_path / "secret.txt").write_text("s\n")
    (root / "real").mkdir()
    (root / "real/test_c.py").write_text("c\n")
    (root / "tests/golden.txt").symlink_to("../data/golden.txt")
    (root / "tests/outside").symlink_to(tmp_path / "secret.txt")
    (root / "tests/dangling").symlink_to("nowhere")
    (root / "tests/more").symlink_to("../real")
    (root / "tests/loop").symlink_to("..")
    before = protected(root, ["tests/**"])
    links = {name: value for name, value in before.items() if value.startswith("link:")}
    assert set(links) == {"tests/golden.txt", "tests/outside", "tests/dangling", "tests/more", "tests/loop"}
    assert {"data/golden.txt", "real/test_c.py"} <= before.keys()
    (tmp_path / "secret.txt").write_text("changed, not ours\n")
    assert protected(root, ["tests/**"]) == before
    (root / "data/golden.txt").write_text("h\n")
    (root / "real/test_c.py").write_text("d\n")
    (root / "tests/outside").unlink()
    (root / "tests/outside").symlink_to("/etc/passwd")
    assert tampered(before, protected(root, ["tests/**"])) == (
        "data/golden.txt",
        "real/test_c.py",
        "tests/outside",
    )


def test_a_link_to_a_folder_that_holds_it_brings_nothing(root):
    (root / "tests/unit/up").symlink_to("..")
    assert list(protected(root, ["tests/unit/**"])) == ["tests/unit/test_b.py", "tests/unit/up"]


def test_a_glob_below_a_linked_folder(root):
    (root / "tests").rename(root / "real")
    (root / "tests").symlink_to("real")
    seen = protected(root, ["tests/unit/**"])
    assert list(seen) == ["real/unit/test_b.py", "tests"]


def test_links_come_back_as_links(root, tmp_path):
    (root / "tests/link").symlink_to("test_a.py")
    before = protected(root, ["tests/**"])
    keep_copies(root, before, tmp_path / "copies")
    (root / "tests/link").unlink()
    (root / "tests/link").write_text("a file now")
    assert tampered(before, protected(root, ["tests/**"])) == ("tests/link",)
    put_back(root, tmp_path / "copies", before, ["tests/link"])
    assert (root / "tests/link").readlink() == Path("test_a.py")


def test_a_pipe_or_a_closed_file_in_the_place_of_evidence_does_not_hold_us(root):
    before = protected(root, ["tests/**"])
    (root / "tests/test_a.py").unlink()
    os.mkfifo(root / "tests/test_a.py")
    after = protected(root, ["tests/**"])
    assert after["tests/test_a.py"] == "unreadable"
    assert tampered(before, after) == ("tests/test_a.py",)


def test_missing_and_damaged_copies_are_said(root, tmp_path):
    copies = tmp_path / "copies"
    before = protected(root, ["tests/**"])
    with pytest.raises(WorkspaceError, match="there is no copy of it"):
        put_back(root, copies.parent, before, ["tests/test_a.py"])
    keep_copies(root, before, copies)
    copy = copies / before["tests/test_a.py"]
    copy.chmod(0o600)
    copy.write_text("forged\n")
    with pytest.raises(WorkspaceError, match="is damaged"):
        put_back(root, copies, before, ["tests/test_a.py"])
    with pytest.raises(WorkspaceError, match="there is no copy of it"):
        put_back(root, copies, before, ["src/a.py"])
    with pytest.raises(WorkspaceError, match="changed while it was copied"):
        keep_copies(root, {"src/a.py": "0" * 64}, copies)


def test_too_much_evidence_is_refused(root, monkeypatch):
    monkeypatch.setattr(protect, "MOST_FILES", 2)
    with pytest.raises(WorkspaceError, match="protect more than 2 files"):
        protected(root, ["tests/**"])


def test_the_record_of_protected_files_is_replaced_whole(root, tmp_path):
    kept = open_workspace(
        "in_place", root, tmp_path / ".agent-state", "r", evidence=Evidence(root, protected=("tests/**",))
    )
    record = tmp_path / ".agent-state/artifacts/r/protected" / f"{kept.trust()}.json"
    whole, before = record.read_bytes(), record.stat()
    assert kept.keep() == record.stem
    assert (record.stat().st_ino, record.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    record.write_bytes(b"damaged")
    os.link(record, tmp_path / "as it was")
    kept.keep()
    assert record.read_bytes() == whole
    assert (tmp_path / "as it was").read_bytes() == b"damaged", "not written in place"
    assert sorted(record.parent.glob("*.new")) == []


def test_copies_that_cannot_be_read_or_written_are_said(root, tmp_path):
    folder = tmp_path / ".agent-state/artifacts/r/protected"
    kept = open_workspace(
        "in_place", root, tmp_path / ".agent-state", "r", evidence=Evidence(root, protected=("tests/**",))
    )
    kept.trust()
    (root / "tests/run.sh").write_text("cheat\n")
    shutil.rmtree(folder.parent)
    with pytest.raises(WorkspaceError, match="there is no copy of it in"):
        kept.put_back(("tests/run.sh",))
    folder.parent.write_text("in the way\n")
    with pytest.raises(WorkspaceError, match="cannot be copied to"):
        kept.keep()
