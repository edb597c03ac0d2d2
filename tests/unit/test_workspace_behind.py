"""What stands behind a gate's command: scripts, targets, modules, launchers, configurations, folders above."""

from __future__ import annotations

import pytest

from loopwright.workspace import behind
from loopwright.workspace.evidence import Evidence, touched

FILES = {
    "Makefile": "include rules.inc\nCHECK = sh ci/late.sh\n.PHONY: lint\nlint: deps\n\truff check .\n\ntest:\n\tsh scripts/test.sh\n"
    "\nout:\n\tcp a $@\n\ndeps:\n\t@$(MAKE) fetch\n\nfetch:\n\tcurl x\n",
    "rules.inc": "",
    "sub/Makefile": "test:\n\tpython -m pytest\n",
    "scripts/test.sh": "python3 app.py > tests/out.txt; diff tests/out.txt tests/right.txt\n. scripts/lib.sh\n",
    "scripts/lib.sh": "true\n",
    "ci/late.sh": "",
    "tests/out.txt": "x",
    "tests/right.txt": "x",
    "package.json": '{"scripts": {"test": "npm run unit", "unit": "node test.js", "posttest": "mychk", "lint": "eslint ."}}',
    "test.js": "x",
    "app.py": "x",
    "validate.py": "x",
    "jest.config.js": "module.exports = {setupFiles: ['<rootDir>/cfg/a.js', './cfg/b'], preset: 'cfg/c.js', roots: ['./src']}",
    "cfg/a.js": "x",
    "cfg/b.ts": "x",
    "cfg/c.js": "x",
    "ruff.toml": 'extend = "cfg/base.toml"\n',
    "cfg/base.toml": "x = 1",
    "tsconfig.json": '{"extends": "./cfg/ts.json", "files": ["./app.ts"], "x": {"extends": "/etc/passwd"}}',
    "cfg/ts.json": '{"extends": ["../cfg/deep.json"]}',
    "cfg/deep.json": "{}",
    "app.ts": "x",
    "checks.py": "x",
    "pkg/style.py": "x",
    "pkg/__init__.py": "",
    "tests/test_a.py": "x",
    "tox.ini": "[mine]\ncommands = true\n",
    "node_modules/.bin/mychk": "x",
    "node_modules/.bin/other": "x",
    "verify.sh": "python3 validate.py\n",
}


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "top" / "project"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("gate", "file", "counts"),
    [
        ("make test", "scripts/test.sh", True),
        ("make test", "scripts/lib.sh", True),
        ("make test", "rules.inc", True),
        ("make test", "tests/right.txt", True),
        ("make test", "tests/out.txt", False),
        ("make test", "app.py", False),
        ("make test", "test", True),
        ("make lint", "lint", False),
        ("make out", "out", False),
        ("make -C sub test", "conftest.py", True),
        ("make -Csub test", "sub/test", True),
        ("npm test", "test.js", True),
        ("npm test", "node_modules/.bin/mychk", True),
        ("npm test", "node_modules/.bin/other", False),
        ("npm test", "node_modules/.bin/cat", True),
        ("npm test", "app.py", False),
        ("sh verify.sh", "validate.py", False),
        ("sh -c 'cd sub/.. && cd ci; sh late.sh'", "ci/late.sh", True),
        ("npx jest", "cfg/a.js", True),
        ("npx jest", "cfg/b.ts", True),
        ("npx jest", "cfg/c.js", True),
        ("npx jest", "app.ts", False),
        ("npx tsc", "cfg/deep.json", True),
        ("npx tsc", "app.ts", False),
        ("ruff check .", "cfg/base.toml", True),
        ("mypy .", "app.pyi", True),
        ("mypy .", "stubs/other.pyi", False),
        ("ruff check .", "app.pyi", False),
        ("python3 -m checks", "checks/__init__.py", True),
        ("python3 -m pkg.style", "pkg/style/__init__.py", True),
        ("python3 -m pkg.style", "pkg/__init__.py", True),
        ("python3 -m pkg.new", "pkg/new.py", False),
        ("python3 -m unittest tests.test_a", "tests/test_a/__init__.py", True),
        ("python3 -m unittest tests.test_a", "tests/__init__.py", False),
        ("python3 -m flake8", "flake8.py", True),
        ("python3 app.py", "sitecustomize/__init__.py", True),
        ("hatch run test", "conftest.py", True),
        ("env A=1 poetry run check", "conftest.py", True),
        ("uv run mytool", ".venv/bin/mytool", False),
        ("timeout 5 grep x app.py", "conftest.py", False),
        ("tox", "tox.ini", True),
        ("cargo test", ".cargo/config.toml", True),
        ("pytest", "../conftest.py", True),
        ("pytest", "../README.md", False),
        ("ruff check .", "../../conftest.py", False),
    ],
)
def test_what_stands_behind_a_gate(root, gate, file, counts):
    (root.parent / ".git").mkdir()
    evidence = Evidence(root, gates=[gate])
    known = evidence.now()
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text("[another]\ncommands = false\n")
    shown = {path for path in touched(known, Evidence(root, gates=[gate]).now(known)).deciding if path}
    assert shown == ({file} if counts else set())


def test_tools_beside_a_copy_and_behind_a_link_are_evidence(root, tmp_path):
    project, linked = tmp_path / "user", tmp_path / "venv"
    (project / "node_modules/.bin").mkdir(parents=True)
    (linked / "bin").mkdir(parents=True)
    (root / ".venv").symlink_to(linked)
    evidence = Evidence(root, gates=["sh verify.sh"], project=project)
    known = evidence.now()
    (project / "node_modules/.bin/sh").write_text("")
    (linked / "bin/cat").write_text("")
    assert touched(known, evidence.now(known)).deciding == (
        ".venv/bin/cat",
        f"{project}/node_modules/.bin/sh",
    )


@pytest.mark.parametrize(
    ("command", "wanted", "not_wanted"),
    [
        (["/usr/bin/make", "lint"], {"ruff"}, {"curl "}),
        (["make", "test"], {"diff", "scripts/test.sh"}, {"ruff"}),
        (["npm", "t"], {"test.js", "mychk"}, {"eslint"}),
        (["sh", "-c", "npm run lint"], {"npm", "lint"}, {"mychk"}),
        (["sh", "scripts/test.sh"], {"app.py"}, {"eslint"}),
        (["sh", "/etc/passwd"], {"sh"}, {"root:x:0:0:root:/root:/bin/bash"}),
    ],
)
def test_the_words_behind_a_command(root, command, wanted, not_wanted):
    found = behind.words_behind(root, command)
    assert found >= wanted
    assert not found & not_wanted


def test_a_broken_package_json_says_nothing():
    assert behind.reached("package.json", "{", ["test"]) == ""
    assert behind.reached("justfile", "x", []) == "x"
