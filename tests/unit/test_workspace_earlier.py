"""Which tests are old ones: by name, by what the user did, and what is linked beside them."""

from __future__ import annotations

import shlex

import pytest

from loopwright.workspace.earlier import index_lines, is_test, link_left_out, old_tests
from loopwright.workspace.named import starts_tests

BASE = {b"tests/a.py": b"100644 1", b"tests/b.py": b"100644 1", b"app.py": b"100644 1"}
GONE = b"000000 0"


def old(now, *edits, base=BASE, stay=()):
    trees = {"base": base, "now": now, **{str(n): tree for n, tree in enumerate(edits)}}

    def differ(first, second):
        one, two = trees.get(first, {}), trees[second]
        for path in sorted({*one, *two}):
            if one.get(path) != two.get(path):
                yield path, one.get(path, GONE), two.get(path, GONE)

    steps = [(str(n), str(n + 1)) for n in range(0, len(edits), 2)]
    found = old_tests(differ, "base", "now", steps, is_test, stay)
    return None if found is None else dict(found.entries)


def test_changed_and_deleted_tests_come_back_and_new_ones_go():
    now = {b"tests/a.py": b"100644 2", b"app.py": b"100644 2", b"tests/c.py": b"100644 3"}
    there = {b"tests/a.py": b"100644 1", b"tests/b.py": b"100644 1"}
    assert old(now) == {**there, b"tests/c.py": GONE}
    assert old(now, stay=[b"tests/c.py"]) == there
    assert old({**BASE, b"tests/c.py": b"100644 3"}) == {b"tests/c.py": GONE}
    assert old({**BASE, b"app.py": b"100644 2"}) is None


def test_where_nothing_was_a_test_there_is_no_old_one():
    assert old({b"tests/c.py": b"100644 3"}, base={b"app.py": b"100644 1"}) is None


def test_what_the_user_edited_is_old_as_they_left_it():
    edited = {**BASE, b"tests/a.py": b"100644 7"}
    assert old(edited, BASE, edited) is None
    assert old(BASE, BASE, edited) == {b"tests/a.py": b"100644 7"}
    dropped = {path: entry for path, entry in BASE.items() if path != b"tests/a.py"}
    assert old(BASE, BASE, dropped) == {b"tests/a.py": GONE}


def test_removals_are_first_so_that_a_file_can_take_a_folders_place():
    found = old_tests(
        lambda first, _: (
            [(b"tests/a", GONE, b"100644 1"), (b"tests/a/b.py", b"100644 2", GONE)] if first == "now" else []
        ),
        "base",
        "now",
        [],
        is_test,
    )
    assert index_lines(found) == b"000000 0\ttests/a/b.py\x00100644 1\ttests/a\x00"


def test_only_what_lies_beside_is_linked(tmp_path):
    root, folder = tmp_path / "root", tmp_path / "folder"
    for path in ("build/x", "module/m", "a/node_modules/y", "tests/z.log", "out/w"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    for path in ("a", "module"):
        (folder / path).mkdir(parents=True)
    (tmp_path / "elsewhere/empty").mkdir(parents=True)
    (root / "out/empty").mkdir()
    (folder / "out").symlink_to(tmp_path / "elsewhere")
    listed = [
        "build/",
        "module",
        "a/node_modules/",
        "a/__pycache__/",
        ".agent-state/",
        ".git/",
        "tests/z.log",
        "out/w",
        "out/empty/",
    ]
    link_left_out([path.encode() for path in listed], root, folder, is_test)
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")) == [
        "a", "a/node_modules", "build", "module", "out",
    ]  # fmt: skip
    assert (folder / "build/x").exists()
    assert (folder / "module/m").exists()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["empty"]
    assert not (tmp_path / "elsewhere/empty").is_symlink()


@pytest.mark.parametrize("path", ["tests/a.py", "src/test_a.py", "a_test.go", "x/conftest.py", "a/b.spec.ts"])
def test_what_is_called_like_a_test(path):
    assert is_test(path.encode())


@pytest.mark.parametrize("path", ["app.py", "testing.py", "package.json", "contest/a.py"])
def test_what_is_not(path):
    assert not is_test(path.encode())


RUNNERS = """python3 -m unittest discover -s tests
/usr/bin/python3 -m pytest -q
timeout 60 uv run pytest
go test ./...
make test
npm run test:unit
tox
sh -c 'cd a && ./run-tests.sh'
sh tests/run
python3 tests/all.py
env A=b nox""".splitlines()
OTHERS = """grep -q x tests/test_a.py
/usr/bin/test -s out.txt
ruff check tests
sh -c 'test $(cat work.txt) = done'
make lint
python3 app.py
sh /t/check.sh
npm run build
python3 -m mypy tests""".splitlines()


@pytest.mark.parametrize("command", RUNNERS)
def test_a_command_that_runs_tests(command):
    assert starts_tests(shlex.split(command))


@pytest.mark.parametrize("command", OTHERS)
def test_a_command_that_does_not(command):
    assert not starts_tests(shlex.split(command))
