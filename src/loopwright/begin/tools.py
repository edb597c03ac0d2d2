"""The tools a project may be judged by, as data: how one is seen in its files, and the gate it becomes.

Rule: to know another tool is one more row here. A gate is written as people would type it; what this version has
no gate of its own for is run as that command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from loopwright.begin.project import Project
from loopwright.names import BUILT_IN

GateText: TypeAlias = str | Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool: what says that a project uses it (`seen`, empty when nothing does), and its gate there.

    `program` is what must be found, as installed by npm when `node`. `built_in` names a gate that this version
    must have.
    """

    name: str
    seen: Callable[[Project], str]
    gate: Callable[[Project], GateText]
    program: str = ""
    node: bool = False
    built_in: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A tool that the project uses: why we think so, its gate, and why that cannot be a gate (`problem`)."""

    tool: str
    why: str
    gate: GateText
    problem: str = ""


def detect(project: Project) -> list[Found]:
    """The tools that this project uses, in the order they are best run."""
    seen = [(tool, why) for tool in TOOLS if (why := tool.seen(project))]
    return [
        Found(tool=tool.name, why=why, gate=tool.gate(project), problem=_lack(tool, project))
        for tool, why in seen
    ]


def _lack(tool: Tool, project: Project) -> str:
    """What is missing to run it, without running anything."""
    if tool.built_in and tool.built_in not in BUILT_IN["gates"]:
        return f"this version has no gate {tool.built_in!r}"
    if tool.node and not project.node_tool(tool.program):
        return f"{tool.program} is not installed here: npm install"
    program = "npx" if tool.node else tool.program
    if program and project.program(program) is None:
        return f"there is no program {program!r} in .venv or on PATH"
    return ""


def _python(
    name: str, files: tuple[str, ...], sections: Mapping[str, str], packages: tuple[str, ...]
) -> Callable[[Project], str]:
    """How a tool of Python is seen: a file of its own, a section in a shared one, a requirement."""

    def seen(project: Project) -> str:
        if own := project.first(*files):
            return own
        if project.tool(name) is not None:
            return f"pyproject.toml: [tool.{name}]"
        for file, section in sections.items():
            if project.section(file, section) is not None:
                return f"{file}: [{section}]"
        where = next((package for package in packages if package in project.required), "")
        return f"{project.required[where]}: {where}" if where else ""

    return seen


def _node(name: str, files: str, key: str = "", package: str = "") -> Callable[[Project], str]:
    """How a tool of npm is seen: a file of its own, a key of package.json, a dependency, a script."""

    def seen(project: Project) -> str:
        if own := project.like(files):
            return own
        if key and key in project.package:
            return f"package.json: {key}"
        return project.wants(package or name) or project.script(name)

    return seen


_CONFIGURED_PYTEST: Final = _python(
    "pytest",
    ("pytest.ini", ".pytest.ini", "pytest.toml", "conftest.py"),
    {"tox.ini": "pytest", "setup.cfg": "tool:pytest"},
    ("pytest",),
)


def _pytest(project: Project) -> str:
    return _CONFIGURED_PYTEST(project) or project.python_tests()


def _mypy(project: Project) -> str:
    """Its settings may say what it looks at."""
    said = project.tool("mypy") or project.section("mypy.ini", "mypy") or project.section("setup.cfg", "mypy")
    return "mypy" if {"files", "packages", "modules"} & set(said or ()) else "mypy ."


def _coverage(project: Project) -> GateText:
    """Measured with the tests run once more, kept out of the project; the mark is the project's own, if it has one."""
    shared = (project.tool("coverage") or {}).get("report")
    marks = [
        shared.get("fail_under") if isinstance(shared, Mapping) else None,
        (project.section(".coveragerc", "report") or {}).get("fail_under"),
        (project.section("setup.cfg", "coverage:report") or {}).get("fail_under"),
    ]
    run = (
        "COVERAGE_FILE=$LOOPWRIGHT_ARTIFACTS/coverage; export COVERAGE_FILE; "
        "coverage run -m pytest -q -p no:cacheprovider >&2; coverage json -q --fail-under=0 -o -"
    )
    mark = next((found for found in map(_percent, marks) if found is not None), None)
    return {
        "use": "coverage",
        "run": f"sh -c '{run}'",
        **({"no_drop": True} if mark is None else {"min": mark}),
    }


def _percent(value: object) -> float | None:
    try:
        found = float(str(value))
    except ValueError:
        return None
    return found if 0 < found <= 100 else None


def _said(gate: str) -> Callable[[Project], str]:
    return lambda _: gate


TOOLS: Final = (
    Tool(name="pytest", seen=_pytest, gate=_said("pytest")),
    Tool(
        name="ruff",
        seen=_python("ruff", ("ruff.toml", ".ruff.toml"), {}, ("ruff",)),
        gate=_said("ruff check ."),
        program="ruff",
    ),
    Tool(
        name="mypy",
        seen=_python("mypy", ("mypy.ini", ".mypy.ini"), {"setup.cfg": "mypy"}, ("mypy",)),
        gate=_mypy,
        program="mypy",
    ),
    Tool(
        name="coverage",
        seen=_python(
            "coverage",
            (".coveragerc",),
            {"setup.cfg": "coverage:run", "tox.ini": "coverage:run"},
            ("coverage", "pytest-cov"),
        ),
        gate=_coverage,
        program="coverage",
    ),
    Tool(
        name="eslint",
        seen=_node("eslint", r"eslint\.config\.[cm]?[jt]s|\.eslintrc(\..+)?", "eslintConfig"),
        gate=_said("npx eslint ."),
        program="eslint",
        node=True,
    ),
    Tool(
        name="tsc",
        seen=_node("tsc", r"tsconfig\.json", package="typescript"),
        gate=_said("npx tsc --noEmit"),
        program="tsc",
        node=True,
    ),
    Tool(
        name="jest",
        seen=_node("jest", r"jest\.config\.([cm]?[jt]s|json)", "jest"),
        gate=_said("npx jest"),
        program="jest",
        node=True,
    ),
    Tool(
        name="vitest",
        seen=_node("vitest", r"vitest\.config\.[cm]?[jt]s"),
        gate=_said("npx vitest run"),
        program="vitest",
        node=True,
    ),
    Tool(name="go", seen=lambda at: at.first("go.mod"), gate=_said("go test ./..."), program="go"),
    Tool(name="cargo", seen=lambda at: at.first("Cargo.toml"), gate=_said("cargo test"), program="cargo"),
    Tool(
        name="checklist",
        seen=lambda at: at.first("PLAN.md"),
        gate=_said("checklist:PLAN.md"),
        built_in="checklist",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coder:
    """A coding agent: its program, and how it is called as a command while there is no adapter for it."""

    name: str
    command: GateText


CODERS: Final = (
    Coder(name="claude", command="claude -p --permission-mode acceptEdits"),
    Coder(name="codex", command="codex exec -s workspace-write -"),
    Coder(name="opencode", command="opencode"),
    Coder(
        name="aider",
        command={
            "use": "command",
            "run": "aider --yes-always --no-auto-commits --message-file {prompt_file}",
            "prompt": "file",
        },
    ),
)


def coder(project: Project) -> Coder | None:
    """The first known coding agent that this machine has."""
    return next((each for each in CODERS if project.program(each.name) is not None), None)


def called(each: Coder) -> GateText:
    """How a loop names this agent: by its adapter where this version has one."""
    return each.name if each.name in BUILT_IN["agents"] else each.command
