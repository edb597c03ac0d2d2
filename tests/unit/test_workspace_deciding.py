"""Which files decide what gates see: by the commands of the gates, by name, by table of a shared file."""

from __future__ import annotations

import os
import time

import pytest

from loopwright.workspace import deciding
from loopwright.workspace.evidence import Evidence, touched
from loopwright.workspace.sections import deciding as digest_of_tables

FILES = {
    "check.sh": "python3 -m pytest && npx jest\n",
    "run.py": "",
    "app.py": "",
    "data.json": "{}",
    "pkg/__init__.py": "",
    "pkg/checks.py": "",
    "pkg/__main__.py": "",
    "src/tool.py": "",
    "tests/test_a.py": "",
    "tests/data/x.txt": "",
    "lib/test_lib.py": "",
    "lib/lib.py": "",
    "sub/check.sh": "",
    "strict.toml": "",
}


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def paths(evidence):
    """The files of it."""
    return {path for path in evidence if path}


def new(root, gates, *files, text="", **more):
    """Which of these files count as changes when they are new."""
    evidence = Evidence(root, gates=gates, **more)
    known = evidence.now()
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return set(touched(known, evidence.now(known)).deciding)


@pytest.mark.parametrize(
    ("gate", "found"),
    [
        ("sh check.sh", {"check.sh"}),
        ("./check.sh --fast", {"check.sh"}),
        ("bash -eu check.sh data.json", {"check.sh", "data.json"}),
        ("python3 run.py --data=data.json", {"run.py", "data.json"}),
        ("python3 -X dev run.py", {"run.py"}),
        ("python3 -m pkg.checks", {"pkg/checks.py", "pkg/__init__.py"}),
        ("python3 -m pkg", {"pkg/__main__.py", "pkg/__init__.py"}),
        ("python3 pkg", {"pkg/__main__.py"}),
        ("python3 -m tool", {"src/tool.py"}),
        ("python3 -c 'import app'", set()),
        ("python3 -m py_compile app.py", set()),
        ("pytest", set()),
        ("pytest tests", {"tests/test_a.py", "tests/data/x.txt"}),
        ("pytest lib", {"lib/test_lib.py"}),
        ("pytest tests/test_a.py::test_x -q", {"tests/test_a.py"}),
        ("uv run --with x pytest tests/test_a.py", {"tests/test_a.py"}),
        ("env A=1 timeout 9 python3 -m pytest tests/test_a.py", {"tests/test_a.py"}),
        ("coverage run -m pytest tests/test_a.py", {"tests/test_a.py"}),
        ("python3 -m unittest tests.test_a", {"tests/test_a.py"}),
        ("ruff check app.py", set()),
        ("ruff check --config strict.toml app.py", {"strict.toml"}),
        ("ruff check --config=strict.toml .", {"strict.toml"}),
        ("grep -q done app.py", set()),
        ("sh -c 'test -s app.py && grep -q x data.json'", set()),
        ("sh -c 'cat app.py | python3 run.py > out.txt'", {"run.py"}),
        ("sh -c 'X=1 . ./check.sh; if true; then python3 run.py < data.json; fi'", {"check.sh", "run.py"}),
        ("sh -c 'test $(sh check.sh) = 1'", {"check.sh"}),
        ("sh -c 'if'", set()),
        ('sh -c "it\'s"', set()),
        ("sh -c 'sh -c \"sh check.sh\"'", {"check.sh"}),
        ("sh -c 'sh \"$1\"' x check.sh", {"check.sh"}),
        ("sh", set()),
        ("env A=1", set()),
        ("timeout 5 ./check.sh", {"check.sh"}),
        ("npx something data.json", {"data.json"}),
        ("diff data.json strict.toml", {"data.json", "strict.toml"}),
        ("unknown data.json ../outside /etc/passwd .", {"data.json"}),
        ("pkg.checks:gate", {"pkg/checks.py", "pkg/__init__.py"}),
        ("script:ROOT/run.py#gate", {"run.py"}),
        ({"use": "pytest", "args": ["tests/test_a.py"]}, {"tests/test_a.py"}),
        ({"use": "command", "run": ["sh", "check.sh"]}, {"check.sh"}),
        ({"use": "command", "run": "sh check.sh", "cwd": "sub"}, {"sub/check.sh"}),
        ({"use": "junit", "report": "data.json", "run": "sh check.sh"}, {"check.sh"}),
        ({"use": "junit", "report": "data.json", "after": ["x"]}, set()),
        ({"use": "score", "run": "python3 run.py"}, {"run.py"}),
        ({"use": "types", "tool": "mypy"}, set()),
        ("checklist:app.py", set()),
        ("sh 'un closed", set()),
    ],
)
def test_what_a_gate_names(root, gate, found):
    if isinstance(gate, str):
        gate = gate.replace("ROOT", str(root))
    assert paths(Evidence(root, gates=[gate]).now()) == found


@pytest.mark.parametrize(
    ("gate", "file", "counts"),
    [
        ("pytest", "conftest.py", True),
        ("pytest", "a/b/conftest.py", True),
        ("pytest", "tests/pytest.ini", True),
        ("pytest", "Makefile", False),
        ("pytest", "tests/test_new.py", False),
        ("pytest", "sub/sitecustomize.py", True),
        ("pytest", "json.py", True),
        ("pytest", "pytest/__init__.py", True),
        ("pytest", "tests/random.py", True),
        ("pytest", "pkg/random.py", False),
        ("pytest", "json/data.txt", False),
        ("pytest", ".venv/bin/python", True),
        ("pytest", ".venv/bin/other", False),
        ("pytest", ".venv/lib/python3.11/site-packages/sitecustomize.py", True),
        ("pytest", ".venv/lib/python3.11/site-packages/conftest.py", False),
        ("uv run pytest", ".venv/bin/pytest", False),
        ("ruff check .", "sub/.ruff.toml", True),
        ("ruff check .", "conftest.py", False),
        ("mypy app.py", "mypy.ini", True),
        ("sh check.sh", "conftest.py", True),
        ("make test", "GNUmakefile", True),
        ("make test", "sub/rules.mk", True),
        ("npm test", "jest.config.mjs", False),
        ("npm test", "vitest.config.mjs", False),
        ("python3 run.py", "conftest.py", False),
        ("python3 run.py", "sitecustomize.py", True),
        ("./run.py", "Makefile", False),
        ("sh check.sh", "Makefile", False),
        ("python3 -m pkg.checks", "conftest.py", False),
        ("elsewhere --all", "conftest.py", True),
        ("npx jest", "jest.config.mjs", True),
        ("npx eslint .", ".eslintignore", True),
        ("tsc", "tsconfig.build.json", True),
        ("true", "conftest.py", False),
        ("true", "sub/.gitignore", True),
        ("true", "htmlcov/.gitignore", False),
        ("true", "sub/.some_cache/v1/.gitignore", False),
        ("true", ".github/workflows/deep/ci.yml", True),
        ("true", "node_modules/.bin/true", True),
        ("true", ".git/conftest.py", False),
        ("pytest", "node_modules/x/conftest.py", False),
        ("pytest", "__pycache__/conftest.py", False),
    ],
)
def test_which_new_files_count(root, gate, file, counts):
    assert new(root, [gate], file) == ({file} if counts else set())


TABLES = {
    "pyproject.toml": ('[project]\nname = "x"\n', '[tool.pytest]\naddopts = "-x"\n'),
    "package.json": ('{"dependencies": {}}', '{"jest": {}, "scripts": {"test": "jest"}}'),
    "setup.cfg": ("[metadata]\nname = x\n", "[tool:pytest]\naddopts = -x\n"),
    "tox.ini": ("[other]\nx = 1\n", "[coverage:run]\nbranch = 1\n"),
    "x.egg-info/entry_points.txt": ("[console_scripts]\nx = y:z\n", "[pytest11]\nx = y\n"),
}


@pytest.mark.parametrize("name", TABLES)
def test_of_shared_files_only_the_tables_that_decide_count(root, name):
    idle, deciding_ = TABLES[name]
    assert new(root, ["sh check.sh"], name, text=idle) == set()
    assert new(root, ["sh check.sh"], name, text=deciding_) == {name}
    assert new(root, ["ruff check ."], name, text=idle) == {name} - TABLES.keys()
    broken = "[[" if name != "package.json" else "{"
    assert new(root, ["sh check.sh"], name, text=broken) == {name}


def test_how_a_table_is_written_decides_nothing():
    tables = ("tool.x", "tool.y")
    first = digest_of_tables("a.toml", b"[tool.x]\na = 1\nb = 2\n", tables)
    assert first == digest_of_tables("a.toml", b"# said\ntool = {x = {b = 2, a = 1}}\n[project]\n", tables)
    assert first != digest_of_tables("a.toml", b"[tool.x]\na = 1\nb = 3\n", tables)
    assert digest_of_tables("a.toml", b"tool = 3\n", tables) is None
    assert digest_of_tables("a.toml", b"[tool.x]\n", tables) is None
    assert digest_of_tables("a.toml", b"\xff", tables) != first
    assert digest_of_tables("a.cfg", b"[x]\na = %(b)s\n", ("x",)) is not None


def test_a_module_that_stood_there_before_may_change_and_go(root):
    (root / "queue.py").write_text("")
    evidence = Evidence(root, gates=["pytest"])
    known = evidence.now()
    (root / "queue.py").write_text("changed")
    assert not touched(known, evidence.now(known))
    (root / "queue.py").unlink()
    assert not touched(known, evidence.now(known))


def test_an_environment_by_another_name_is_not_looked_at_and_no_test_folder_is_one(root):
    for folder in ("venv", "tests"):
        (root / folder).mkdir(exist_ok=True)
        (root / folder / "pyvenv.cfg").write_text("")
    assert new(root, ["pytest"], "venv/conftest.py", "tests/conftest.py") == {"tests/conftest.py"}


def test_links_to_folders_are_followed_once(root):
    outside = root.parent / f"{root.name}-outside"
    (outside / "in").mkdir(parents=True)
    evidence = Evidence(root, gates=["pytest"])
    known = evidence.now()
    (outside / "conftest.py").write_text("x")
    (root / "tests/link").symlink_to(outside)
    (outside / "in/again").symlink_to(outside)
    (root / "gone").symlink_to("nowhere")
    assert touched(known, evidence.now(known)).deciding == ("tests/link/conftest.py",)


def test_a_list_of_names_is_remembered_only_once_its_folder_has_rested(root, monkeypatch):
    evidence = Evidence(root, gates=["pytest"])
    known = evidence.now()
    (root / "lib/conftest.py").write_text("")
    assert touched(known, evidence.now(known)).deciding == ("lib/conftest.py",)
    (root / "lib/conftest.py").unlink()
    monkeypatch.setattr(deciding, "_RACY_NS", -(10**12))
    evidence.now(known)
    looked = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looked.append(os.fsdecode(path)) or real(path))
    evidence.now(known)
    assert [path for path in looked if path.endswith("lib/")] == []
    before = os.stat(root / "lib").st_ctime_ns
    while os.stat(root / "lib").st_ctime_ns == before:
        (root / "lib/conftest.py").write_text("")
        (root / "lib/x").write_text("")
        (root / "lib/x").unlink()
    os.utime(root / "lib", (1, 1))
    assert touched(known, evidence.now(known)).deciding == ("lib/conftest.py",)
    assert time.time() > 0


def test_too_many_folders_are_said(root, monkeypatch):
    monkeypatch.setattr(deciding, "MOST_FOLDERS", 3)
    with pytest.raises(deciding.WorkspaceError, match="more than 3 folders"):
        Evidence(root, gates=["true"]).now()


def test_where_the_loop_is_written_is_evidence_and_stays_so(root):
    evidence = Evidence(root, gates=["true"], defined_in=("strict.toml",))
    known = evidence.now()
    assert paths(known) == {"strict.toml"}
    (root / "strict.toml").write_text("gates = []")
    assert touched(known, Evidence(root, gates=["true"]).now(known)).deciding == ("strict.toml",)


def test_what_may_change_is_out_of_a_record_too(root):
    known = Evidence(root, gates=["sh check.sh"], protected=["*.json"]).now()
    free = Evidence(root, gates=["sh check.sh"], protected=["*.json"], may_change=["check.sh", "data.json"])
    assert paths(known) == {"check.sh", "data.json"}
    assert paths(free.of(known)) == paths(free.now()) == set()


def test_what_a_script_ran_when_the_run_began_counts_whatever_it_says_now(root):
    (root / "Makefile").write_text("test:\n\tsh inner.sh\n\ttox\n")
    (root / "tox.ini").write_text("[testenv]\ncommands = pytest\n")
    (root / "check.sh").write_text("make test\n")
    known = Evidence(root, gates=["sh check.sh"]).now()
    assert paths(known) == {"check.sh", "Makefile", "tox.ini"}
    for name in ("check.sh", "Makefile", "tox.ini"):
        (root / name).write_text("")
    (root / "conftest.py").write_text("")
    later = Evidence(root, gates=["sh check.sh"])
    assert touched(known, later.now(known)).deciding == ("Makefile", "check.sh", "conftest.py", "tox.ini")


def test_of_the_exclude_file_what_it_hides_counts(root):
    (root / ".git/info").mkdir(parents=True)
    exclude = root / ".git/info/exclude"
    exclude.write_text("# as git makes it\n")
    evidence = Evidence(root, gates=["true"])
    known = evidence.now()
    exclude.unlink()
    assert not touched(known, evidence.now(known))
    exclude.write_text("conftest.py\n")
    assert touched(known, evidence.now(known)).deciding == (".git/info/exclude",)


def test_a_tool_is_read_again_only_once_it_is_another(root, monkeypatch):
    (root / ".venv/bin").mkdir(parents=True)
    (root / ".venv/bin/ruff").write_text("a large one")
    monkeypatch.setattr(deciding, "_RACY_NS", -(10**12))
    evidence = Evidence(root, gates=["ruff check ."])
    known = evidence.now()
    read = []
    real = deciding.protect.digest_of
    monkeypatch.setattr(deciding.protect, "digest_of", lambda *of: read.append(of[1]) or real(*of))
    assert not touched(known, evidence.now(known))
    assert read == []
    (root / ".venv/bin/ruff").unlink()
    (root / ".venv/bin/ruff").symlink_to("/bin/true")
    assert touched(known, evidence.now(known)).deciding == (".venv/bin/ruff",)
    assert read == [b"ruff"]
