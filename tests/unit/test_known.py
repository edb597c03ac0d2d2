"""Command lines of known tools become their gates, as they were written; all others stay plain commands."""

import json
import shlex
import sys

import pytest
from a_place import place, score, write

from loopwright.errors import ConfigError, NotStartable
from loopwright.gates.known import known
from loopwright.gates.suites import gotest, jest
from loopwright.gates.types import types
from loopwright.names import gate_of_command
from loopwright.registry import resolve_gate

KNOWN = {
    "pytest -x tests": ("pytest", "pytest"),
    "python -m pytest": ("pytest", "python -m pytest"),
    ".venv/bin/python3.12 -m pytest -q": ("pytest", ".venv/bin/python3.12 -m pytest"),
    "uv run pytest -q": ("pytest", "uv run pytest"),
    "uv run --frozen --extra dev -p 3.12 pytest -q": ("pytest", "uv run --frozen --extra dev -p 3.12 pytest"),
    "uv run -m pytest": ("pytest", "uv run -m pytest"),
    "uv run -- python -m pytest": ("pytest", "uv run -- python -m pytest"),
    "poetry run pytest": ("pytest", "poetry run pytest"),
    "env PYTHONPATH=src pytest": ("pytest", "env PYTHONPATH=src pytest"),
    "ruff check . --select E": ("ruff", "ruff check"),
    "uvx ruff check": ("ruff", "uvx ruff check"),
    "mypy src": ("mypy", "mypy"),
    "python -m mypy --strict src": ("mypy", "python -m mypy"),
    "npx pyright": ("pyright", "npx pyright"),
    "npx tsc --noEmit": ("tsc", "npx tsc"),
    "tsc -b": ("tsc", "tsc"),
    "npx --no-install eslint . --max-warnings 0": ("eslint", "npx --no-install eslint"),
    "node_modules/.bin/jest --ci": ("jest", "node_modules/.bin/jest"),
    "npx jest --watch=false": ("jest", "npx jest"),
    "pnpm exec vitest run": ("vitest", "pnpm exec vitest run"),
    "pnpm vitest run --coverage": ("vitest", "pnpm vitest run"),
    "yarn jest": ("jest", "yarn jest"),
    "yarn run jest": ("jest", "yarn run jest"),
    "bunx vitest": ("vitest", "bunx vitest"),
    "go test ./... -race": ("go", "go test"),
    "go test . -args -list": ("go", "go test"),
    "cargo test --workspace -- --nocapture": ("cargo", "cargo test"),
    "cargo +nightly t": ("cargo", "cargo +nightly t"),
}
PLAIN = [
    "true",
    "make test",
    "npm test",
    "pnpm test",
    "python -m unittest",
    "python manage.py test",
    "python",
    "env",
    "env -i pytest",
    "uv run",
    "uv sync",
    "uv run --unheard-of pytest",
    "uv run script.py",
    "npx",
    "npx -c jest",
    "poetry run",
    "pytest --junitxml=x.xml",
    "pytest --collect-only",
    "pytest -p no:junitxml",
    "pytest --version",
    "ruff format --check",
    "ruff check --fix",
    "ruff check --output-format=github",
    "ruff check --exit-zero",
    "ruff",
    "mypy --install-types --non-interactive src",
    "mypy --output json src",
    "dmypy run",
    "pyright --watch",
    "tsc --watch",
    "tsc -noCheck",
    "tsc --showConfig",
    "eslint --fix .",
    "eslint -f stylish .",
    "eslint --print-config a.js",
    "jest --watch",
    "jest --json",
    "jest --output-file x",
    "jest --listTests",
    "vitest --reporter=junit",
    "vitest watch",
    "vitest bench",
    "go vet ./...",
    "go test -c",
    "go test --list .",
    "go build",
    "cargo clippy",
    "cargo build",
    "cargo nextest run",
    "cargo test --no-run",
    "cargo test -- --format json",
]


@pytest.mark.parametrize("line", KNOWN)
def test_a_known_tool(line):
    found = known(shlex.split(line))
    tool, start = KNOWN[line]
    assert (found.tool, shlex.join(found.start)) == (tool, start)
    assert shlex.join([*found.start, *found.args]) == line
    assert gate_of_command(tuple(shlex.split(line))).name == {"go": "gotest"}.get(tool, tool)


@pytest.mark.parametrize("line", PLAIN)
def test_what_stays_a_plain_command(line):
    assert known(shlex.split(line)) is None
    assert gate_of_command(tuple(shlex.split(line))) is None


def tool(root, name, body):
    """A program in the folder's own tools that writes its arguments down and does `body`."""
    path = root / "node_modules" / ".bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!{sys.executable}\nimport json, sys\nargs = sys.argv[1:]\njson.dump(args, open('args', 'w'))\n{body}"
    )
    path.chmod(0o755)


def judged(line, where):
    """The score of a gate given as a string, and the arguments that its program got."""
    gate = resolve_gate(line, project=where.project, path=where.env["PATH"])
    found = score(gate, where)
    return gate, found, json.loads((where.root / "args").read_text())


JEST = """
out = next(a for a in args if a.startswith("--outputFile="))[13:]
test = {"fullName": "t", "status": "passed"}
json.dump({"success": True, "testResults": [{"name": "a.js", "assertionResults": [test]}]}, open(out, "w"))
"""


def test_a_command_line_is_run_as_written_with_a_report(tmp_path):
    where = place(tmp_path)
    tool(where.root, "npx", JEST)
    gate, found, args = judged("npx jest --ci", where)
    assert args == ["jest", "--json", f"--outputFile={where.artifacts}/jest.json", "--ci"]
    assert (gate.name, found.status, found.reason) == ("jest", "pass", "1 passed")
    assert gate.probe(where) == f"{where.root}/node_modules/.bin/npx jest --ci (as the gate jest)"
    tool(where.root, "npx", "")
    _, found, _ = judged("npx jest --ci", where)
    assert found.evidence["code"] == "missing_report"  # the one of before does not count


@pytest.mark.parametrize(
    ("line", "args"),
    {
        "vitest run --coverage": ["run", "--reporter=default", "--reporter=json", "--outputFile.json={}/vitest.json", "--coverage"],
        "eslint src": ["--format", "json", "--output-file", "{}/eslint.json", "src"],
        "pyright --outputjson": ["--outputjson"],
        "pyright src": ["--outputjson", "src"],
        "tsc --noEmit": ["--noEmit", "--pretty", "false", "--diagnostics"],
        "tsc -b": ["-b", "--force", "--pretty", "false", "--diagnostics"],
        "go test ./...": ["test", "-json", "-count=1", "./..."],
        "go test -count=3 .": ["test", "-json", "-count=3", "."],
        "cargo test --lib": ["test", "--lib"],
    }.items(),
)  # fmt: skip
def test_how_each_tool_is_asked(line, args, tmp_path):
    where = place(tmp_path)
    tool(where.root, line.split()[0], "")
    _, found, got = judged(line, where)
    assert got == [arg.format(where.artifacts) for arg in args]
    assert found.status == "error"  # it said nothing


def test_mypy_keeps_its_arguments(tmp_path):
    where = place(tmp_path)
    tool(where.root, "mypy", "print('Success: no issues found in 1 source file')")
    gate, found, args = judged("mypy --pretty --no-error-summary -- a.py", where)
    assert (gate.name, found.reason) == ("mypy", "0 findings")
    ours = [
        "--no-pretty",
        "--no-color-output",
        "--show-error-codes",
        "--hide-error-context",
        "--error-summary",
    ]
    assert args == ["--pretty", "--no-error-summary", *ours, "--", "a.py"]
    score(types(), where)
    assert json.loads((where.root / "args").read_text()) == [".", *ours]


def test_pytest_keeps_its_launcher(tmp_path):
    where = place(tmp_path)
    write(where.root, test_a="def test_a():\n    assert 0\n")
    gate = resolve_gate("env A=1 python -m pytest -q", project=where.project, path=where.env["PATH"])
    found = score(gate, where)
    assert (gate.name, found.failing) == ("pytest", ("test_a.py::test_a",))
    assert found.evidence["command"][1:5] == ["A=1", "python", "-m", "pytest"]
    assert gate.probe(where).endswith("env A=1 python -m pytest -q (as the gate pytest)")


def test_a_tsc_that_says_nothing_of_its_files_has_not_run(tmp_path):
    where = place(tmp_path)
    tool(where.root, "tsc", "print('')")
    assert score(types(tool="tsc"), where).evidence["code"] == "no_output"
    tool(where.root, "tsc", "print('Files: 3')")
    assert score(types(tool="tsc"), where).status == "pass"


def test_options_of_a_table(tmp_path):
    where = place(tmp_path)
    tool(where.root, "go", "print('')")
    assert score(gotest(), where).evidence["command"][1:] == ["test", "-json", "-count=1", "./..."]
    assert score(gotest(args="-race ."), where).evidence["command"][1:] == [
        "test",
        "-json",
        "-count=1",
        "-race",
        ".",
    ]
    tool(where.root, "jest", JEST)
    assert score(jest(run="jest", args=["--ci"]), where).status == "pass"
    written = score(jest(run=["cp", "/dev/null", "r.json"], report="r.json"), where)
    assert written.evidence["code"] == "no_output"
    with pytest.raises(ConfigError, match="no room"):
        jest(args="--json")
    with pytest.raises(ConfigError, match="belong to a command"):
        jest(args="--ci", report="r.json", after=("x",))
    with pytest.raises(ConfigError, match="starts tsc"):
        types(tool="mypy", run="npx tsc")
    with pytest.raises(NotStartable, match="'vitest'"):
        resolve_gate({"use": "vitest"}, project=where.project, path="").probe(where)
    assert (
        resolve_gate({"use": "types", "run": "npx tsc --noEmit"}, project=where.project, path="").name
        == "tsc"
    )
    assert resolve_gate("types:pyright", project=where.project, path="").name == "pyright"
    assert resolve_gate("jest:--ci src", project=where.project, path="").name == "jest"
    assert resolve_gate("cargo", project=where.project, path="").name == "cargo"
