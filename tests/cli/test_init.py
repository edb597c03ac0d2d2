"""`init`: a loop file of what the project uses, each gate tried once; nothing else is written."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from stage import tools

from loopwright.begin.loopfile import Draft, write
from loopwright.begin.project import look
from loopwright.begin.tools import TOOLS, Tool, detect
from loopwright.cli.app import run_app
from loopwright.config import load
from loopwright.errors import UsageError


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project; `bin` beside it is all of PATH."""
    monkeypatch.delenv("LOOPWRIGHT_RUN", raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.setenv("PATH", tools(tmp_path / "bin"))
    return folder


@pytest.fixture
def init(project, capsys):
    def call(*args, folder=project):
        code = run_app(["init", "-C", str(folder), *args])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def put(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if text.startswith("#!"):
            path.chmod(0o755)


def loaded(folder, name="loop.toml"):
    return load(name, folder=folder, path=os.environ["PATH"]).loop


SEEN = [
    ("pytest", {"pytest.ini": "[pytest]\n"}, "pytest"),
    ("pytest", {"tests/test_a.py": ""}, "pytest"),
    ("pytest", {"pyproject.toml": "[tool.pytest.ini_options]\n"}, "pytest"),
    ("pytest", {"requirements-dev.txt": "PyTest>=8  # tests\n"}, "pytest"),
    ("pytest", {"pyproject.toml": '[dependency-groups]\ndev = ["pytest ~= 8.0"]\n'}, "pytest"),
    ("ruff", {"pyproject.toml": "[tool.ruff]\nline-length = 100\n"}, "ruff check ."),
    ("ruff", {"pyproject.toml": '[project.optional-dependencies]\ndev = ["ruff"]\n'}, "ruff check ."),
    ("mypy", {"mypy.ini": "[mypy]\nstrict = true\n"}, "mypy ."),
    ("mypy", {"pyproject.toml": '[tool.mypy]\nfiles = ["src"]\n'}, "mypy"),
    ("eslint", {"eslint.config.mjs": ""}, "npx eslint ."),
    ("eslint", {"package.json": '{"scripts": {"lint": "eslint . --fix"}}'}, "npx eslint ."),
    ("tsc", {"tsconfig.json": "{}"}, "npx tsc --noEmit"),
    ("jest", {"package.json": '{"devDependencies": {"jest": "^30"}}'}, "npx jest"),
    ("vitest", {"vitest.config.ts": ""}, "npx vitest run"),
    ("go", {"go.mod": "module m\n"}, "go test ./..."),
    ("cargo", {"Cargo.toml": "[package]\n"}, "cargo test"),
    ("checklist", {"PLAN.md": "- [ ] one\n"}, "checklist:PLAN.md"),
]


@pytest.mark.parametrize(("tool", "files", "gate"), SEEN, ids=[f"{t}-{next(iter(f))}" for t, f, _ in SEEN])
def test_a_tool_is_seen_in_the_files_of_a_project(project, tool, files, gate):
    put(project, files)
    (found,) = detect(look(project, os.environ["PATH"]))
    assert (found.tool, found.gate) == (tool, gate)
    assert next(iter(files)) in found.why


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "pyproject.toml",
            '[tool.pytest.ini_options]\ntestpaths = ["src", "testing/", "../tests", "a/tests"]\n',
        ),
        ("tox.ini", "[pytest]\ntestpaths = src testing /tmp/tests\n  a/tests\n"),
    ],
)
def test_where_pytest_looks_for_tests_is_a_folder_of_tests_and_the_work_is_not(project, file, text):
    put(project, {file: text, "src/a.py": "", "testing/test_a.py": "", "a/tests/b.py": ""})
    assert look(project, os.environ["PATH"]).tests() == ("testing", "a/tests")


def test_every_tool_has_its_row_here():
    assert {tool.name for tool in TOOLS} - {"coverage"} == {tool for tool, _, _ in SEEN}


@pytest.mark.parametrize(
    ("files", "mark"),
    [
        ({"pyproject.toml": "[tool.coverage.report]\nfail_under = 87.5\n"}, {"min": 87.5}),
        ({".coveragerc": "[report]\nfail_under = 60\n"}, {"min": 60.0}),
        ({".coveragerc": "[report]\nfail_under = much\n"}, {"no_drop": True}),
        ({"setup.cfg": "[coverage:run]\nbranch = True\n"}, {"no_drop": True}),
    ],
)
def test_coverage_keeps_the_mark_of_the_project(project, files, mark):
    put(project, files)
    (found,) = detect(look(project, ""))
    assert {key: found.gate.get(key) for key in mark} == mark
    assert "--fail-under=0" in found.gate["run"], (
        "the mark is the gate's: an exit for it would hide the figures"
    )
    assert "program 'coverage'" in found.problem


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": "[tool.ruff\n", "package.json": "[1]", "setup.cfg": "no section\n"},
        {
            "pyproject.toml": 'tool = "x"\nproject = 3\ndependency-groups = []\n',
            "package.json": '{"scripts": 1}',
        },
        {
            "package.json": "[" * 100_000,
            ".coveragerc.x": "",
            "requirements.txt": "-r other.txt\n\n# pytest\n",
        },
    ],
)
def test_what_is_broken_says_nothing(project, files):
    put(project, files)
    assert detect(look(project, "")) == []


def own(name):
    """A tool that nobody has a gate for, seen by a file of its name."""
    return Tool(name=name, seen=lambda at: at.first(f"{name}.cfg"), gate=lambda _: f"{name} .", program=name)


@pytest.fixture
def others(monkeypatch):
    monkeypatch.setattr("loopwright.begin.tools.TOOLS", (TOOLS[0], own("alpha"), own("beta"), own("gamma")))


def test_each_gate_is_written_with_how_it_stands_today(project, init, others):
    put(project, {"alpha.cfg": "", "beta.cfg": "", "gamma.cfg": "", "tests/a.txt": ""})
    bad = '#!/bin/sh\necho "error: bad \033[1m"; echo "Found 3 errors"; exit 1\n'
    put(project.parent / "bin", {"alpha": "#!/bin/sh\n", "beta": bad, "claude": "#!/bin/sh\n"})
    code, out, _ = init()
    assert code == 0
    assert "✓ alpha" in out and "✗ beta       fails, exit 1: Found 3 errors" in out and "- gamma" in out
    text = (project / "loop.toml").read_text()
    assert '"beta .",  # today: fails, exit 1: Found 3 errors (seen in beta.cfg)' in text
    assert "# \"gamma .\",  # seen in gamma.cfg, but there is no program 'gamma'" in text
    loop = loaded(project)
    assert loop.gates == ("alpha .", "beta .")
    assert loop.protected == ("tests/**",)
    assert loop.agent == "claude"
    made = sorted(path.name for path in project.iterdir())
    assert made == ["alpha.cfg", "beta.cfg", "gamma.cfg", "loop.toml", "tests"]


def test_what_is_written_can_be_changed_by_taking_a_mark_away(project, init):
    assert init()[0] == 0
    text = (project / "loop.toml").read_text()
    before, _, rest = text.partition("# [limits]")
    (project / "all.toml").write_text(before + "[limits]" + re.sub("(?m)^# ", "", rest))
    loop = loaded(project, "all.toml")
    assert (loop.max_iterations, loop.budget, loop.approval["when"]) == (20, 5.0, "never")


def test_an_empty_folder_gets_a_file_that_says_what_to_write(project, init):
    code, out, _ = init("--json")
    said = json.loads(out)
    assert (code, said["schema"], said["gates"]) == (0, "loopwright/init/v1", [])
    assert "nothing that it knows" in said["notes"][1]
    assert (loaded(project).agent, loaded(project).gates) == ("./agent.sh", ("./check.sh",))
    code = run_app(["run", "-C", str(project)])
    assert code == 2, "a run must not begin with what nobody wrote"
    assert not (project / ".agent-state").exists()


@pytest.mark.parametrize("name", ["loop.toml", "pyproject.toml"])
def test_a_loop_file_is_never_replaced(project, init, name):
    put(project, {name: '[tool.loopwright]\ngoal = "mine"\n'})
    code, _, err = init()
    assert code == 2 and str(project / name) in err
    assert [path.name for path in project.iterdir()] == [name]


def test_a_loop_file_that_came_meanwhile_is_not_replaced(project):
    made = Draft(file=project / "loop.toml", text="new", agent="x", tried=(), protected=(), notes=())
    put(project, {"loop.toml": "mine"})
    with pytest.raises(UsageError, match="never replaced"):
        write(made)
    assert made.file.read_text() == "mine"
    made.file.unlink()
    made.file.symlink_to(project / "elsewhere.toml")
    with pytest.raises(UsageError, match="never replaced"):
        write(made)
    assert not (project / "elsewhere.toml").exists()


def test_a_folder_below_another_loop_file_gets_its_own(project, init, others):
    put(project, {"loop.toml": "goal = 'above'\n", "web/alpha.cfg": ""})
    put(project.parent / "bin", {"alpha": "#!/bin/sh\n"})
    assert init(folder=project / "web")[0] == 0
    assert loaded(project / "web").gates == ("alpha .",)
    assert (project / "loop.toml").read_text() == "goal = 'above'\n"


def test_what_npm_installed_above_is_found_from_a_folder_below(project):
    put(project, {"node_modules/.bin/vitest": "#!/bin/sh\n", "web/vitest.config.ts": ""})
    put(project.parent / "bin", {"npx": "#!/bin/sh\n"})
    assert [found.problem for found in detect(look(project / "web", os.environ["PATH"]))] == [""]
    (project / "web/.git").mkdir()
    (found,) = detect(look(project / "web", os.environ["PATH"]))
    assert "npm install" in found.problem


def test_a_gate_that_breaks_before_it_judged_is_left_out(project, init, others):
    put(project, {"tests/test_a.py": "def test_a(): pass\n", "alpha.cfg": ""})
    put(project.parent / "bin", {"python": "#!/bin/sh\nexit 3\n", "alpha": "#!/bin/sh\n"})
    code, out, _ = init("--agent", "true", "--json")
    broken, alpha = json.loads(out)["gates"]
    assert code == 0 and not broken["written"] and "has no pytest" in broken["reason"]
    assert alpha["written"] and loaded(project).gates == ("alpha .",) and loaded(project).agent == "true"


def test_coverage_that_cannot_be_measured_so_is_left_out(project, init):
    put(project, {".coveragerc": ""})
    put(project.parent / "bin", {"coverage": "#!/bin/sh\necho nothing to see >&2; exit 1\n"})
    code, _, _ = init("--agent", "true")
    text = (project / "loop.toml").read_text()
    assert code == 0 and "# [[gate]]  # seen in .coveragerc, but" in text
    assert loaded(project).gates == ("./check.sh",)


def test_an_agent_that_is_none_leaves_no_file(project, init):
    code, _, err = init("--agent", "no-such-agent-here")
    assert code == 2 and "no-such-agent-here" in err
    assert not (project / "loop.toml").exists()


def test_real_pytest_is_run_and_leaves_nothing(project, init):
    put(project, {"test_a.py": "def test_a(): pass\ndef test_b(): assert 0\n"})
    (project / ".venv/bin").mkdir(parents=True)
    (project / ".venv/bin/python").symlink_to(Path(sys.executable))
    (project / ".venv/pyvenv.cfg").write_text((Path(sys.prefix) / "pyvenv.cfg").read_text())
    (project / ".venv/lib").symlink_to(Path(sys.prefix) / "lib")
    assert init()[0] == 0
    assert (
        '"pytest",  # today: fails, 1 of 2 tests fail (seen in test_a.py)'
        in (project / "loop.toml").read_text()
    )
    assert sorted(path.name for path in project.iterdir()) == [".venv", "loop.toml", "test_a.py"]
