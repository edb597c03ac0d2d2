"""A name in a loop to the agent or gate it means, and every way in which it may mean nothing."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from loopwright.core.judge import Rule
from loopwright.core.values import Worked
from loopwright.errors import ConfigError
from loopwright.options import converted, is_factory
from loopwright.ports import Gate
from loopwright.references import imported
from loopwright.registry import plugins, resolve, resolve_agent, resolve_gate

NAMES = iter(range(10_000))
MODULE = '''
from collections.abc import Callable, Sequence
from typing import Literal
from loopwright.core.judge import Rule
from loopwright.ports import Agent, Gate

async def check(seen, place): return True
async def call(attempt, place): raise NotImplementedError
made = Gate(rule=Rule(name="made"), check=check)
number = 7

def strict(*, level: int = 1, pause: float = 1.0, max_bytes: int = 10, mode: Literal["fast", "slow"] = "fast",
           names: Sequence[str] = (), after: tuple[str, ...] = ()) -> Gate:
    """A strict gate.

    More.
    """
    if level > 9:
        raise ValueError(f"level is {level}, 9 at most")
    evidence = (level, pause, max_bytes, mode, tuple(names), after)
    return Gate(rule=Rule(name=f"strict"), check=check, env=tuple(map(str, evidence)))

def percent(*, min: float | None = None) -> Gate:
    return Gate(rule=Rule(name="percent"), check=check, env=(str(min),))

def needy(*, run: str, model: str = "m") -> Agent:
    return Agent(name=f"{run} {model}", call=call)

def odd(*, level: int = 1): return "odd"
def untyped(*, anything: "Missing" = None) -> Gate: return made
def small(result): return True
def work(attempt): return "done"
'''


@dataclass(frozen=True)
class Project:
    """A folder with a module of gates and agents, under a name of its own."""

    root: Path
    module: str

    def gate(self, value):
        return resolve_gate(value, project=self.root, path=os.environ["PATH"])

    def agent(self, value):
        return resolve_agent(value, project=self.root, path=os.environ["PATH"])

    def resolve(self, agent, *gates):
        return resolve(agent, None, gates, project=self.root, path=os.environ["PATH"])

    def write(self, text, module=None):
        name = module or f"made_{next(NAMES)}"
        (self.root / f"{name}.py").write_text(text)
        return name


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    made = Project(tmp_path, f"mine_{next(NAMES)}")
    made.write(MODULE, made.module)
    return made


def problems(call, *args, **said):
    with pytest.raises(ConfigError) as error:
        call(*args, **said)
    return list(error.value.problems)


def test_a_builtin_by_its_name(project):
    assert project.gate("pytest").name == "pytest"
    assert project.gate({"use": "ruff", "max": 3}).name == "ruff"
    assert project.agent({"use": "command", "run": ["make", "it"]}).name


def test_nothing_is_imported_before_it_is_named(project):
    import subprocess

    code = "import sys, loopwright.registry as r; print([m for m in sys.modules if 'loopwright.gates.' in m or m == 'msgspec'])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


def test_a_command_is_the_fourth_rule(project):
    shell = project.gate("sh -c 'exit 3'")
    assert shell.name
    assert project.agent("sh -c 'cat'").in_folder
    script = project.root / "check.sh"
    script.write_text("#!/bin/sh\n")
    assert project.gate("./check.sh --fast")
    tools = project.root / ".venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "mytool").write_text("#!/bin/sh\n")
    (tools / "mytool").chmod(0o755)
    assert project.gate("mytool --all")
    modules = project.root / "node_modules" / ".bin"
    modules.mkdir(parents=True)
    (tools / "mytool").rename(modules / "nodetool")
    assert resolve_gate("nodetool x", project=project.root, path="")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("pytets", "no gate is called 'pytets' and no program 'pytets' is on PATH; did you mean 'pytest'?"),
        ("nothing-like-it -x", "no gate is called 'nothing-like-it' and no program 'nothing-like-it' is on PATH"),
        ("judge", "rubric: missing: judge needs it"),
        ("judge:x", "judge: say who judges: model = … or agent = … (a command), one of the two"),
        ("vitest --run", "no program 'vitest' is on PATH"),
        ("A=1 make", "'A=1' is no program; to set a variable for a command, write env A=1 make"),
        ("sh -c x && y", "'sh -c x && y' needs a shell for '&&' and loopwright runs none: write sh -c 'sh -c x && y'"),
        ("echo $(id)", "'echo $(id)' needs a shell for '$(' and loopwright runs none: write sh -c 'echo $(id)'"),
        ("sh -c 'x", "\"sh -c 'x\" is not a command: no closing quotation"),
        ({"use": "pytets"}, "use: no gate is called 'pytets'; did you mean 'pytest'?; use = takes a name or module:attr, a command is written use = \"command\", run = …"),
        ({"use": "ruff check ."}, "use: no gate is called 'ruff check .'; use = takes a name or module:attr, a command is written use = \"command\", run = …"),
        ("no_such_module_x:gate", "no module 'no_such_module_x' in {root} and none installed; if a script of yours defines it, run that script again"),
        ("{module}:smal", "module '{module}' has no 'smal'; did you mean 'small'?"),
        ("{module}:number", "'{module}:number' gives 7, not a gate"),
        ("{module}:odd", "'{module}:odd' gives 'odd', not a gate"),
        ("{module}:needy", "run: missing: {module}:needy needs it"),
        ({"use": "{module}:untyped"}, "the types of the options of {module}:untyped cannot be read: name 'Missing' is not defined"),
        ({"use": "pytest", "min_test": 3}, "min_test: unknown option of pytest; did you mean 'min_tests'?"),
        ({"use": "pytest", "weigth": 3}, "weigth: unknown option of pytest; did you mean 'weight'?"),
        ({"use": "pytest", "protected": []}, "protected: unknown option of pytest: it belongs above the first [table]"),
        ({"use": "pytest", "budget": 3}, "budget: unknown option of pytest: it belongs in [limits]"),
        ({"use": "pytest", "min": 2}, "min: 2 is above 1; a score is 0 to 1"),
        ({"use": "command"}, "run: missing: command needs it"),
        ({"use": "{module}:small", "level": 3}, "level: unknown option: {module}:small has none of its own"),
        ({"use": "{module}:made", "level": 3}, "level: unknown option: {module}:made has none of its own"),
        ({"use": "{module}:strict", "level": 10}, "{module}:strict: level is 10, 9 at most"),
        ({"use": "{module}:strict", "level": "high"}, "level: expected int, got str"),
        ({"use": "{module}:strict", "level": 1.5}, "level: expected int, got float"),
        ({"use": "{module}:strict", "level": True}, "level: expected int, got bool"),
        ({"use": "{module}:strict", "mode": "fats"}, "mode: expected one of fast, slow, got 'fats'; did you mean 'fast'?"),
        ({"use": "{module}:strict", "mode": 3}, "mode: expected str, got int"),
        ({"use": "{module}:strict", "names": ["a", 3]}, "names[1]: expected str, got int"),
        ({"use": "{module}:strict", "names": "a"}, "names: expected list, got str"),
        ({"use": "{module}:strict", "pause": "10x"}, "pause: '10x' is not a duration; write \"90s\", \"30m\", \"1h30m\" or a number of seconds"),
        ({"use": "{module}:strict", "max_bytes": "10s"}, "max_bytes: '10s' is not a size; write \"64MB\", \"512KiB\" or a number of bytes"),
        ({"use": "{module}:strict", "pause": float("nan")}, "pause: nan is not a finite number"),
        ({"use": "pytest:x", "args": ["y"]}, "pytest has no place for 'x'"),
    ],
)  # fmt: skip
def test_gates_that_mean_nothing(project, value, message):
    def filled(text):
        return text.replace("{module}", project.module).replace("{root}", str(project.root))

    value = filled(value) if isinstance(value, str) else {**value, "use": filled(value["use"])}
    assert problems(project.gate, value) == [filled(message)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("comand", "no agent is called 'comand' and no program 'comand' is on PATH; did you mean 'command'?"),
        ({"use": "claude", "trust": "some"}, "trust: expected one of edit, full, got 'some'"),
        ("command", "run: missing: command needs it"),
        ({"use": "command", "run": "x", "promt": "arg"}, "promt: unknown option of command; did you mean 'prompt'?"),
        ({"use": "command", "run": "sh", "prompt": "args"}, "prompt: expected one of stdin, file, arg, got 'args'; did you mean 'arg'?"),
    ],
)  # fmt: skip
def test_agents_that_mean_nothing(project, value, message):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/bin:/usr/bin")
        assert problems(project.agent, value) == [message]


def test_a_command_line_of_a_known_cli_is_its_adapter(project):
    tools = project.root / ".venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "claude").write_text("#!/bin/sh\n")
    (tools / "claude").chmod(0o755)
    assert project.agent("claude -p --model opus").login is not None
    assert project.agent("claude --version").login is None  # no work is asked of it
    (tools / "claude").rename(tools / "judge")
    assert problems(project.gate, "judge") == ["rubric: missing: judge needs it"]


def test_every_fault_of_every_option_at_once(project):
    table = {"use": f"{project.module}:strict", "levle": 3, "mode": "x", "names": [1], "pause": "1x"}
    assert problems(project.gate, table) == [
        f"levle: unknown option of {project.module}:strict; did you mean 'level'?",
        "mode: expected one of fast, slow, got 'x'",
        "names[0]: expected str, got int",
        'pause: \'1x\' is not a duration; write "90s", "30m", "1h30m" or a number of seconds',
    ]


def test_options_are_converted_by_the_signature(project):
    use = f"{project.module}:strict"
    made = project.gate({"use": use, "pause": "1h30m", "max_bytes": "64MB", "mode": "slow", "names": ["a"]})
    assert made.env == ("1", "5400.0", "64000000", "slow", "('a',)", "()")
    assert project.gate({"use": use, "pause": 3}).env[1] == "3.0"
    assert project.gate(f"{use}").env[0] == "1"
    assert (
        project.gate({"use": use, "after": ["b"]}).env[5] == "('b',)"
    )  # a factory that asks for it is told too
    assert project.agent({"use": f"{project.module}:needy", "run": "x"}).name == "x m"


def test_types_that_options_may_have():
    assert converted("x", ["a"], tuple[str, ...]) == ("a",)
    assert converted("x", ["a"], Sequence[str]) == ["a"]
    assert converted("x", {"a": 1}, Mapping[str, int]) == {"a": 1}
    assert converted("x", "a/b", Path) == Path("a/b")
    assert converted("x", "2h", float | None) == 7200.0
    assert converted("x", "2h", float | str) == "2h"
    assert converted("x", "2h", Any) == "2h"
    assert converted("x", "auto", Literal["auto"] | None) == "auto"
    assert converted("x_bytes", "1KiB", int | None) == 1024
    assert converted("x", "kept", Callable[[int], int]) == "kept"
    assert converted("x", [0, 1], tuple[float, float]) == (0.0, 1.0)


def test_the_options_every_gate_has(project):
    table = {
        "use": f"{project.module}:small", "name": "tiny", "required": False, "min": 0.5, "timeout": "90s",
        "cwd": "packages/a", "env": ["KEY"], "writes": True, "parallel": True, "after": ["b"],
        "objective": True, "min_gain": 0.1,
    }  # fmt: skip
    made = project.gate(table)
    assert made.rule == Rule(name="tiny", weight=1.0, required=False, min=0.5, objective=True, min_gain=0.1)
    assert (made.timeout, made.cwd, made.env, made.after) == (90.0, "packages/a", ("KEY",), ("b",))
    assert (made.writes, made.parallel) == (True, True)
    assert project.gate({"use": table["use"]}).rule == Rule(name="small", weight=2.0)
    assert project.gate({"use": table["use"], "required": False, "weight": 7}).rule.weight == 7.0
    percent = project.gate({"use": f"{project.module}:percent", "min": 80})
    assert (percent.env, percent.rule.min) == (("80.0",), None)


def test_functions_and_products_are_taken_as_they_are(project):
    module = imported(f"{project.module}:made", project.root)
    assert project.gate(module) is module
    assert project.gate(f"{project.module}:made") == module
    assert project.gate(lambda result: True).name == "function"
    assert project.gate({"use": f"{project.module}:made", "weight": 3}).rule.weight == 3.0
    agent = project.agent(f"{project.module}:work")
    assert (agent.name, agent.in_folder) == ("work", False)
    assert problems(project.agent, lambda: None) == ["<lambda> gives nothing, not an agent"]
    assert not is_factory(print)
    assert is_factory(lambda *, level=1: level)
    assert not is_factory(lambda result, *, level=1: level)


def test_the_argument_after_a_colon_is_the_first_option(project):
    assert project.gate("command:true").name == project.gate({"use": "command", "run": "true"}).name
    assert problems(project.gate, "command:") == [
        "no gate is called 'command:' and no program 'command:' is on PATH; did you mean 'command'?"
    ]


def test_all_names_of_a_loop_at_once(project):
    small = f"{project.module}:small"
    found = project.resolve(
        f"{project.module}:work",
        small,
        {"use": small, "after": ["small"]},
        {"use": small, "name": "x"},
        small,
    )
    assert [gate.name for gate in found.gates] == ["small", "small-2", "x", "small-3"]
    assert found.faults == ()
    found = project.resolve(
        "nobody-at-all", "nothing-at-all", small, {"use": "pytest", "min_test": 3, "weigth": 1}
    )
    assert found.faults == (
        ("agent", "no agent is called 'nobody-at-all' and no program 'nobody-at-all' is on PATH"),
        ("gates[0]", "no gate is called 'nothing-at-all' and no program 'nothing-at-all' is on PATH"),
        ("gates[2].min_test", "unknown option of pytest; did you mean 'min_tests'?"),
        ("gates[2].weigth", "unknown option of pytest; did you mean 'weight'?"),
    )
    assert (found.agent, [gate.name for gate in found.gates]) == (None, ["small"])


def test_the_order_of_gates_must_be_possible(project):
    def gates(*after):
        names = "abcdef"
        tables = [
            {"use": f"{project.module}:small", "name": names[i], "after": list(needs)}
            for i, needs in enumerate(after)
        ]
        return project.resolve(f"{project.module}:work", *tables).faults

    assert gates("", "a", "ab") == ()
    assert gates("b", "") == ()
    assert gates("x") == (("gates[0].after", "no gate is called 'x'"),)
    assert gates("", "b") == (("gates", "these wait for each other (after): b"),)
    assert gates("c", "", "a", "c") == (("gates", "these wait for each other (after): a, c, d"),)


def test_one_objective(project):
    table = {"use": f"{project.module}:small", "objective": True}
    assert project.resolve(f"{project.module}:work", table, table).faults == (
        ("gates[1].objective", "another gate is the objective already"),
    )


def test_modules_that_break(project):
    broken = project.write("import no_such_thing_at_all\n")
    raising = project.write("\n\nraise RuntimeError('no')\n")
    wrong = project.write("def f(:\n")
    leaving = project.write("raise SystemExit(3)\n")
    assert problems(project.gate, f"{broken}:x") == [
        f"module '{broken}' cannot be imported: ModuleNotFoundError: No module named 'no_such_thing_at_all' ({project.root}/{broken}.py:1)"
    ]
    assert problems(project.gate, f"{raising}:x") == [
        f"module '{raising}' cannot be imported: RuntimeError: no ({project.root}/{raising}.py:3)"
    ]
    assert problems(project.gate, f"{wrong}:x")[0].startswith(
        f"module '{wrong}' cannot be imported: SyntaxError: invalid syntax ({wrong}.py, line 1)"
    )
    assert problems(project.gate, f"{leaving}:x") == [
        f"module '{leaving}' cannot be imported: SystemExit: 3 ({project.root}/{leaving}.py:1)"
    ]


def test_the_project_folder_is_first_while_importing_and_last_afterwards(project):
    shadow = project.write("value = 1\n")
    imported(f"{shadow}:value", project.root)
    assert sys.path[-1] == str(project.root)
    assert str(project.root) not in sys.path[:-1]


def test_a_module_of_another_project_is_not_taken_for_this_ones(project, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / f"{project.module}.py").write_text("small = 3\n")
    project.gate(f"{project.module}:small")
    assert problems(imported, f"{project.module}:small", other) == [
        (
            f"module '{project.module}' is {project.root}/{project.module}.py, loaded earlier, and not "
            f"{other}/{project.module}.py: rename one of them"
        )
    ]


def plugged(folder, *lines):
    info = folder / f"plug_{next(NAMES)}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {info.name.split('-')[0]}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def test_plug_ins(project):
    sys.path.insert(0, str(project.root))
    mine = project.module
    plugged(
        project.root,
        "[loopwright.gates]", f"strict = {mine}:strict", "broken = no_such_module_y:x", f"pytest = {mine}:strict", f"twice = {mine}:strict",
        "[loopwright.agents]", f"needy = {mine}:needy",
        "[loopwright.stores]", f"number = {mine}:number",
    )  # fmt: skip
    plugged(project.root, "[loopwright.gates]", f"twice = {mine}:small")
    assert project.gate({"use": "strict", "level": 3}).env[0] == "3"
    assert project.gate("pytest").name == "pytest"  # the built-in
    assert project.agent("needy:x").name == "x m"
    assert problems(project.gate, "stric") == [
        "no gate is called 'stric' and no program 'stric' is on PATH; did you mean 'strict'?"
    ]
    assert problems(project.gate, "broken") == [
        "the plug-in 'broken' (no_such_module_y:x) cannot be loaded: ModuleNotFoundError: No module named 'no_such_module_y'"
    ]
    assert problems(project.gate, "twice") == [
        f"two plug-ins are called 'twice' ({mine}:small, {mine}:strict): write module:attr to say which"
    ]
    rows = {(row.kind, row.name, row.where): row for row in plugins()}
    strict = rows["gates", "strict", f"{mine}:strict"]
    assert strict.signature.startswith("(level: <class 'int'> = 1, pause: ")
    assert (strict.doc, strict.problem) == ("A strict gate.", "")
    assert rows["gates", "broken", "no_such_module_y:x"].problem.startswith("ModuleNotFoundError")
    assert rows["gates", "pytest", f"{mine}:strict"].problem == "the built-in of this name is used"
    assert rows["gates", "twice", f"{mine}:small"].problem == "another plug-in has this name"
    assert rows["stores", "number", f"{mine}:number"].problem == "a int, not a function"


def test_every_builtin_can_be_used():
    rows = [row for row in plugins() if row.where.startswith("loopwright.")]
    assert {(row.kind, row.name) for row in rows} >= {
        ("agents", "command"),
        *(("gates", name) for name in ("command", "junit", "pytest", "coverage", "lint", "ruff", "score")),
    }
    for row in rows:
        assert row.problem == "", row
        assert row.doc.endswith("."), row
        assert row.signature.startswith("(") and "*" not in row.signature, row


def test_a_function_agent_works(project):
    agent = project.agent(f"{project.module}:work")
    from loopwright.core.values import Attempt, Feedback, Left
    from loopwright.ports import Place

    attempt = Attempt(
        run="r", iteration=1, number=1, key="r/1", goal="g", feedback=Feedback(),
        left=Left(iterations=1, seconds=1.0, attempts=1), deadline_s=5.0,
    )  # fmt: skip
    place = Place(root=project.root, project=project.root, artifacts=project.root, env={}, timeout_s=5.0)
    got = asyncio.run(agent.call(attempt, place))
    assert isinstance(got, Worked)
    assert got.result.output == "done"


def test_a_gate_is_a_gate():
    assert isinstance(resolve_gate("command:true", project=Path(), path=os.environ["PATH"]), Gate)


def test_gates_run_in_file_order_each_after_those_it_comes_after():
    tables = [
        {"use": "command", "run": "true", "name": "reader", "after": ["writer"]},
        {"use": "command", "run": "true", "name": "first"},
        {"use": "command", "run": "true", "name": "writer"},
    ]
    found = resolve("true", None, tables, project=Path(), path=os.environ["PATH"])
    assert not found.faults
    assert [gate.name for gate in found.gates] == ["first", "writer", "reader"]
