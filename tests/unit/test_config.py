"""From a loop file and the command line to a `Loop`: what wins, where it was said, and every way to get it wrong."""

import os
import sys
import textwrap

import pytest

from loopwright.config import effective, load
from loopwright.errors import ConfigError
from loopwright.loop import Loop
from loopwright.places import lines

GOOD = """
    goal = "Make it so"
    agent = "sh -c 'cat'"
    gates = ["true"]
"""
NAMES = iter(range(10_000))


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / ".git").mkdir()

    def written(text, name="loop.toml"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    return written


@pytest.fixture
def loaded(tmp_path, write):
    def of(loopfile=None, folder=tmp_path, sets=(), **flags):
        return load(loopfile, folder=folder, path=os.environ["PATH"], sets=sets, flags=flags)

    return of


@pytest.fixture
def problems(loaded):
    def of(*args, **said):
        with pytest.raises(ConfigError) as error:
            loaded(*args, **said)
        return list(error.value.problems)

    return of


def test_a_loop_file(write, loaded, tmp_path):
    write("""
        name = "night"
        goal = "Make the test suite green"
        agent = { use = "command", run = "sh -c 'cat'", env = ["KEY"] }
        gates = ["pytest", "sh -c 'exit 0'"]
        protected = ["tests/**"]
        threshold = 0.9
        env = ["DATABASE_URL"]
        labels = { team = "core" }

        [limits]
        max_duration = "8h"
        budget = 5.00
        convergence = false
        backoff = { first = "1s" }

        [monitors]
        stall = "ask"
        oscillation = { window = 8, changes = 5 }
        critical = { alerts = 9 }

        [approval]
        timeout = "12h"

        [workspace]
        mode = "in_place"

        [store]
        url = "sqlite:///runs.db"

        [[gate]]
        use = "command"
        run = "true"
        required = false
    """)
    made = loaded()
    assert made.loop == Loop(
        "Make the test suite green",
        name="night",
        agent={"use": "command", "run": "sh -c 'cat'", "env": ["KEY"]},
        gates=["pytest", "sh -c 'exit 0'", {"use": "command", "run": "true", "required": False}],
        protected=["tests/**"],
        threshold=0.9,
        env=["DATABASE_URL"],
        labels={"team": "core"},
        max_duration="8h",
        budget=5,
        convergence=False,
        backoff={"first": 1},
        monitors={"stall": "ask", "oscillation": {"window": 8, "changes": 5}, "critical": {"alerts": 9}},
        approval={"timeout": "12h"},
        workspace="in_place",
        store="sqlite:///runs.db",
    )
    assert (made.project, made.file) == (tmp_path, tmp_path / "loop.toml")


BAD = [
    ('gaol = "x"', "loop.toml:5: gaol: unknown key; did you mean 'goal'?"),
    ("budget = 4", "loop.toml:5: budget: unknown key: it belongs in [limits]"),
    ("baseline = false", "loop.toml:5: baseline: unknown key: say --no-baseline, or baseline=False in Python"),
    ("threshold = 0", "loop.toml:5: threshold: 0 is not above 0"),
    ("threshold = nan", "loop.toml:5: threshold: nan is not a finite number"),
    ("threshold = 1979-05-27", "loop.toml:5: threshold: expected a number, got a date"),
    ("limits = 3", "loop.toml:5: limits: expected a table, got 3"),
    ("monitors = 3", "loop.toml:5: monitors: expected a table, got 3"),
    ("[limit]\nbudget = 3", "loop.toml:5: limit: unknown key; did you mean 'limits'?"),
    ("[limits]\nmax_iteration = 3", "loop.toml:6: limits.max_iteration: unknown key; did you mean 'max_iterations'?"),
    ("[limits]\n\n# a comment\nthreshold = 0.5", "loop.toml:8: limits.threshold: unknown key: it belongs above the first [table]"),
    ("limits.max_iterations = 0", "loop.toml:5: limits.max_iterations: 0 is below 1"),
    ("[limits]\nbudget = inf", "loop.toml:6: limits.budget: inf is not a finite number"),
    ("[limits]\nbudget = -1", "loop.toml:6: limits.budget: -1 is not above 0"),
    ("[limits]\nmax_duration = 30", ""),
    ("[limits]\nmax_duration = '30'", "loop.toml:6: limits.max_duration: '30' is not a duration; write \"90s\", \"30m\", \"1h30m\" or a number of seconds"),
    ("[limits]\nconvergence = { windw = 3 }", "loop.toml:6: limits.convergence.windw: unknown key; did you mean 'window'?"),
    ("[monitors]\nSTALL = 'off'", "loop.toml:6: monitors.STALL: unknown key; did you mean 'stall'?"),
    ("[monitors]\nstall = { window = 65 }", "loop.toml:6: monitors.stall.window: 65 is more than the 64 iterations a run remembers"),
    ("[monitors]\nlabels = { a = 'b' }", "loop.toml:6: monitors.labels: unknown key: it belongs above the first [table]"),
    ("[approval]\nwen = 'always'", "loop.toml:6: approval.wen: unknown key; did you mean 'when'?"),
    ("[approval]\nchannels = ['inbx']", "loop.toml:6: approval.channels[0]: no channel is called 'inbx'; did you mean 'inbox'?"),
    ("[approval]\nchannels = [{ channel = 'x' }]", "loop.toml:6: approval.channels[0].use: missing: it says what this is"),
    ("[workspace]\nremote = 'x'", "loop.toml:6: workspace.remote: not available in this version"),
    ("[workspace]\nsetup = 'a | b'", "loop.toml:6: workspace.setup: 'a | b' needs a shell for '|' and loopwright runs none: write sh -c 'a | b'"),
    ("[workspace]\nmode = 'folder'\nbase = 'main'", 'loop.toml:7: workspace.base: needs workspace.mode = "worktree"'),
    ("[workspace]\nlink = ['.venv']", 'loop.toml:6: workspace.link: needs workspace.mode = "worktree" or "folder": a folder of its own'),
    ("[workspace]\nlink = ['../up']", "loop.toml:6: workspace.link[0]: '../up' is not a path inside the project folder, such as 'node_modules'"),
    ("[deliver]\nto = 'pr'", "loop.toml:6: deliver.to: 'pr' is not available in this version; available: none, branch"),
    ("[deliver]\nbranch = 'x'", 'loop.toml:6: deliver.branch: needs deliver.to = "branch"'),
    ("[deliver]\nto = 'branch'\nbranch = 'a b'", "loop.toml:7: deliver.branch: 'a b' cannot name a branch, as 'loopwright/{run}' can"),
    ("[notify]\nto = [{ use = 'inbox', at = 3 }]", "loop.toml:6: notify.to[0].at: unknown option of inbox"),
    ("[store]\nurl = 's3://b'", "loop.toml:6: store.url: 's3://b' is not available in this version; available: memory:, files:, sqlite:"),
    ("[store]\nartifacts = 's3://b'", "loop.toml:6: store.artifacts: not available in this version"),
    ("[store]\nuri = 'x'", "loop.toml:6: store.uri: unknown key; did you mean 'url'?"),
    ("[server]\nprot = 80", "loop.toml:6: server.prot: unknown key; did you mean 'port'?"),
    ("[[trigger]]\ncron = 'x'\n[[trigger]]\ncrom = 'y'", "loop.toml:8: trigger[1].crom: unknown key; did you mean 'cron'?"),
    ("[[trigger]]\ncron = 'x'\nwebhook = 'y'", "loop.toml:5: trigger[0]: a trigger has exactly one of cron, webhook, watch"),
    ("[[trigger]]\ntz = 'UTC'", "loop.toml:5: trigger[0]: a trigger has exactly one of cron, webhook, watch"),
    ("[gate]\nuse = 'pytest'", "loop.toml:5: gate: write [[gate]], one table for each gate"),
    ("[[gate]]\nname = 'x'", 'loop.toml:5: gates[1].use: missing: it names the gate, such as use = "command"'),
    ("[[gate]]\nuse = 'pytest'\n[[gate]]\nuse = 'pytest'\nmin_test = 1", "loop.toml:9: gates[2].min_test: unknown option of pytest; did you mean 'min_tests'?"),
    ("[[gate]]\nuse = 'pytest'\nweight = -1", "loop.toml:7: gates[1].weight: -1 is below 0"),
    ("[[gate]]\nuse = 'pytest'\nprotected = ['x']", "loop.toml:7: gates[1].protected: unknown option of pytest: it belongs above the first [table]"),
    ("[[gate]]\nuse = 'pytest'\nafter = ['x']", "loop.toml:7: gates[1].after: no gate is called 'x'"),
    ("improve = 'nobody-at-all'", "loop.toml:5: improve: no agent is called 'nobody-at-all' and no program 'nobody-at-all' is on PATH"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD, ids=[text[:40] for text, _ in BAD])
def test_what_is_refused_names_its_line(write, problems, loaded, text, message):
    write(textwrap.dedent(GOOD) + text)
    if message:
        assert problems() == [message]
    else:
        assert loaded().loop.max_duration == 30.0


def test_every_error_of_a_file_and_a_command_line_at_once(write, problems):
    write("""\
        gaol = "x"
        agent = "comand"
        gates = [
          "true",  # fine
          "pytets",
          { use = "ruff", maxx = 3 },
        ]

        [limits]
        budget = 0
        threshold = 0.9
        max_wait = "1x"

        [[gate]]
        use = "pytest"
        weight = -1

        [[trigger]]
        at = "noon"
    """)
    assert problems(sets=["limits.grace=0", "limits.wait=3"], gate=("nope -x",), max_iterations="0") == [
        "loop.toml:1: gaol: unknown key; did you mean 'goal'?",
        "loop.toml:2: agent: no agent is called 'comand' and no program 'comand' is on PATH; did you mean 'command'?",
        "loop.toml:5: gates[1]: no gate is called 'pytets' and no program 'pytets' is on PATH; did you mean 'pytest'?",
        "loop.toml:6: gates[2].maxx: unknown option of ruff; did you mean 'max'?",
        "loop.toml:10: limits.budget: 0 is not above 0",
        "loop.toml:11: limits.threshold: unknown key: it belongs above the first [table]",
        'loop.toml:12: limits.max_wait: \'1x\' is not a duration; write "90s", "30m", "1h30m" or a number of seconds',
        "loop.toml:16: gates[3].weight: -1 is below 0",
        "loop.toml:19: trigger[0].at: unknown key; known here: cron, webhook, watch, tz, misfire, grace, overlap, jitter, secret, signature, key, filter",
        "--set limits.wait: unknown key; did you mean 'max_wait'?",
        "--max-iterations: 0 is below 1",
        "--set limits.grace: 0 is not above 0",
        "loop.toml: goal: missing: say what is wanted",
        "--gate: no gate is called 'nope' and no program 'nope' is on PATH",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("goal = ", "loop.toml:1:8: invalid value"),
        ('goal = "a"\nagent = "b', "loop.toml:2:11: unterminated string"),
        ("a = 1\na = 2", "loop.toml:2:6: cannot overwrite a value"),
        ("[limits]\n[limits]", "loop.toml:2:8: cannot declare ('limits',) twice"),
    ],
)  # fmt: skip
def test_toml_that_is_none(write, problems, text, message):
    write(text)
    assert problems() == [message]


def test_files_that_cannot_be_read(write, problems, tmp_path):
    assert problems("lop.toml") == ["lop.toml: there is no such loop file"]
    write(GOOD)
    assert problems("lop.toml") == ["lop.toml: there is no such loop file; did you mean 'loop.toml'?"]
    assert problems("night.py") == ["night.py: there is no such loop file"]
    assert problems("loop.yaml") == ["loop.yaml: a loop file is a .toml or .py file, or module:attr"]
    (tmp_path / "dir.toml").mkdir()
    assert problems("dir.toml") == ["dir.toml: cannot be read: Is a directory"]
    (tmp_path / "latin.toml").write_bytes(b'goal = "caf\xe9"')
    assert problems("latin.toml") == ["latin.toml: is not UTF-8 text (byte 11)"]
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbf" + textwrap.dedent(GOOD).encode())
    assert load("bom.toml", folder=tmp_path, path=os.environ["PATH"]).loop.goal == "Make it so"


def test_discovery(write, loaded, problems, tmp_path):
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert problems(folder=below) == [
        (
            f"there is no loop.toml and no [tool.loopwright] in {below} or above it up to {tmp_path}: "
            "name a loop file, or start one with run --goal and --agent"
        )
    ]
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    assert "no [tool.loopwright]" in problems(folder=below)[0]
    (tmp_path / "pyproject.toml").write_text(
        '[tool.ruff]\n[tool.loopwright]\ngoal = "from pyproject"\nagent = "sh x"\ngates = ["true"]\n'
    )
    found = loaded(folder=below)
    assert (found.loop.goal, found.project, found.file) == (
        "from pyproject",
        tmp_path,
        tmp_path / "pyproject.toml",
    )
    write(GOOD)
    found = loaded(folder=below)
    assert (found.loop.goal, found.project) == ("Make it so", tmp_path)
    write(GOOD.replace("so", "nearer"), "a/loop.toml")
    found = loaded(folder=below)
    assert (found.loop.goal, found.project) == ("Make it nearer", tmp_path / "a")
    # only without LOOPFILE and --goal
    alone = loaded(folder=below, goal="said", agent="sh x", gate=("true",))
    assert (alone.loop.goal, alone.project, alone.file, alone.loop.gates) == ("said", below, None, ("true",))
    named = loaded("../../loop.toml", folder=below)
    assert (named.loop.goal, named.project) == ("Make it so", below)


def test_discovery_ends_at_the_repository(write, problems, tmp_path):
    write(GOOD)
    inner = tmp_path / "inner"
    (inner / ".git").mkdir(parents=True)
    assert problems(folder=inner)[0].startswith(
        f"there is no loop.toml and no [tool.loopwright] in {inner}: "
    )


def test_pyproject_names_its_lines(write, problems):
    write('[project]\nname = "x"\n\n[tool.loopwright]\ngoal = "g"\nagent = "sh x"\ngates = ["true"]\n\n[tool.loopwright.limits]\nbudget = 0\n', "pyproject.toml")  # fmt: skip
    assert problems() == ["pyproject.toml:10: limits.budget: 0 is not above 0"]
    write("[tool.ruff]\n", "sub/pyproject.toml")
    assert problems("sub/pyproject.toml") == ["sub/pyproject.toml: there is no [tool.loopwright] in it"]


TASKS = (
    "Work through the open items of {} in their order, one in each go. Tick an item (`[x]`) when its work is done, and "
    "change nothing else in that list."
)


def checklist(file):
    return {"use": "checklist", "file": file}


def test_tasks_are_one_more_gate_and_the_goal(write, loaded, tmp_path):
    write("- [ ] a\n", "docs/PLAN.md")
    alone = loaded(tasks="docs/PLAN.md", agent="sh -c 'x'")
    assert (alone.loop.goal, list(alone.loop.gates)) == (
        TASKS.format("docs/PLAN.md"),
        [checklist("docs/PLAN.md")],
    )
    with_goal = loaded(tasks="docs/PLAN.md", agent="sh -c 'x'", goal="Be quick", gate=("true",))
    assert with_goal.loop.goal == "Be quick\n\n" + TASKS.format("docs/PLAN.md")
    assert list(with_goal.loop.gates) == ["true", checklist("docs/PLAN.md")]
    write(GOOD)
    from_inside = loaded(folder=tmp_path / "docs", tasks="PLAN.md", sets=["gates=['false']"])
    assert from_inside.project == tmp_path
    assert from_inside.loop.goal == "Make it so\n\n" + TASKS.format("docs/PLAN.md")
    assert list(from_inside.loop.gates) == ["false", checklist("docs/PLAN.md")]


def test_tasks_that_cannot_be(write, problems, tmp_path):
    write("- [ ] a\n", "PLAN.md")
    said = f"--tasks: there is no file plam.md in {tmp_path}"
    assert problems(tasks="plam.md", agent="sh -c 'x'") == [said]
    (tmp_path / "sub").mkdir()
    (outside,) = problems(tasks="../PLAN.md", folder=tmp_path / "sub", agent="sh -c 'x'")
    assert (
        outside
        == "--tasks: file: '../PLAN.md' is not a path inside the project folder, such as 'node_modules'"
    )


def test_flags_and_sets_win_and_gates_add(write, loaded):
    write(
        GOOD
        + "    env = ['A']\n    [limits]\n    budget = 1\n    max_iterations = 2\n    [monitors]\n    stall = 'off'\n"
    )
    found = loaded(
        "loop.toml",
        sets=[
            "threshold=0.5",
            "limits.max_wait=90s",
            "monitors.stall.window=4",
            "labels.team=core",
            "limits.budget=9",
        ],
        goal="other",
        agent="sh -c 'x'",
        gate=("sh -c 'y'", "pytest"),
        env=("B",),
        max_iterations="7",
        max_duration="1h",
        budget="3.5",
        approve="always",
        workspace="in_place",
        store="memory:",
        no_baseline=True,
    ).loop
    assert (found.goal, found.agent, found.gates) == ("other", "sh -c 'x'", ("true", "sh -c 'y'", "pytest"))
    assert (found.env, found.max_iterations, found.max_duration, found.budget) == (("A", "B"), 7, 3600.0, 9.0)
    assert (found.threshold, found.max_wait, found.labels) == (0.5, 90.0, {"team": "core"})
    assert found.monitors["stall"].window == 4
    assert (found.approval["when"], found.workspace["mode"]) == ("always", "in_place")
    assert (found.store, found.baseline) == ("memory:", False)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("budget=5", "--set budget: unknown key: it belongs in [limits]"),
        ("limits.treshold=5", "--set limits.treshold: unknown key; known here: "),
        ("limits.threshold=5", "--set limits.threshold: unknown key: it belongs above the first [table]"),
        ("threshold", "--set threshold: write --set KEY=VALUE, such as --set limits.budget=5"),
        ("=3", "--set =3: write --set KEY=VALUE, such as --set limits.budget=5"),
        ("a..b=3", "--set a..b=3: write --set KEY=VALUE, such as --set limits.budget=5"),
        ("baseline=false", "--set baseline: cannot be set so; write --no-baseline"),
        ("gate=pytest", "--set gate: cannot be set so; write --gate NAME, or --set gates=[…]"),
        ("threshold=high", "--set threshold: expected a number, got 'high'"),
        ("threshold=1\nlimits.budget = 2", "--set threshold: expected a number, got '1\\nlimits.budget = 2'"),
        ("limits.budget=nan", "--set limits.budget: nan is not a finite number"),
        ("gates=['pytets']", "--set gates[0]: no gate is called 'pytets' and no program 'pytets' is on PATH; did you mean 'pytest'?"),
        ("goal=@NONE.md", "--set goal: "),
    ],
)  # fmt: skip
def test_sets_that_are_refused(write, problems, setting, message):
    write(GOOD)
    (found,) = problems(sets=[setting])
    assert found == message or (message.endswith(": ") and found.startswith(message))


def test_flags_that_are_refused(write, problems):
    write(GOOD)
    said = {
        "agent": "",
        "env": ("A=1",),
        "approve": "pased",
        "workspace": "worktre",
        "store": "mysql:",
        "budget": "x",
    }
    assert problems(**said) == [
        "--agent: an empty text",
        "--env: 'A=1' is not the name of an environment variable (names only, never values)",
        "--approve: expected one of never, passed, always, alert, got 'pased'; did you mean 'passed'?",
        "--workspace: expected one of in_place, worktree, folder, none, got 'worktre'; did you mean 'worktree'?",
        "--store: 'mysql:' is not a store: memory:, files:DIR, sqlite:///PATH, postgresql://…, s3://…",
        "--budget: expected a number, got 'x'",
    ]


def test_a_goal_in_a_file_is_read_from_where_it_is_named(write, loaded, problems, tmp_path):
    write("Do this.\n", "loops/GOAL.md")
    write("Do that.\n", "THAT.md")
    write(GOOD.replace("Make it so", "@GOAL.md"), "loops/night.toml")
    assert loaded("loops/night.toml").loop.goal == "Do this."
    assert loaded("loops/night.toml", goal="@THAT.md").loop.goal == "Do that."
    assert loaded("loops/night.toml", sets=["goal=@THAT.md"]).loop.goal == "Do that."
    (tmp_path / "loops" / "GOAL.md").unlink()
    assert problems("loops/night.toml") == [
        f"loops/night.toml:2: goal: {tmp_path}/loops/GOAL.md: No such file or directory (a goal that begins with @ names a file)"
    ]


def test_where_every_value_was_said(write, loaded):
    write("""\
        goal = "g"
        agent = "sh -c 'x'"
        gates = ["true"]
        [limits]
        budget = 5
        convergence = { window = 4 }
        [monitors]
        stall = "ask"
        [approval]
        [[gate]]
        use = "command"
        run = "true"
    """)
    rows = effective(loaded(sets=["limits.grace=3"], gate=("pytest",), max_iterations=7))
    table = {key: (value, origin) for key, value, origin in rows}
    assert table["goal"] == ("g", "loop.toml:1")
    assert [table[f"gates[{i}]"] for i in range(3)] == [
        ("true", "loop.toml:3"),
        ({"use": "command", "run": "true"}, "loop.toml:10"),
        ("pytest", "--gate"),
    ]
    assert table["limits.budget"] == (5.0, "loop.toml:5")
    assert table["limits.max_iterations"] == (7, "--max-iterations")
    assert table["limits.grace"] == (3.0, "--set limits.grace")
    assert table["limits.attempts"] == (3, "default")
    assert table["limits.convergence.window"] == (4, "loop.toml:6")
    assert table["limits.convergence.patience"] == (2, "default")
    assert table["monitors.stall.action"] == ("ask", "loop.toml:8")
    assert table["monitors.stall.window"] == (3, "default")
    assert table["approval.when"] == ("passed", "loop.toml:9")
    assert table["approval.timeout"] == (86400.0, "default")
    assert table["workspace.mode"] == ("in_place", "default")
    assert table["baseline"] == (True, "default")
    assert "limits.max_tokens" not in table


def test_limits_that_an_agent_brings_say_so(write, loaded):
    name = f"agents_{next(NAMES)}"
    write(
        """
        from loopwright.ports import Agent
        async def call(attempt, place): raise NotImplementedError
        slow = Agent(name="slow", call=call, limits={"max_duration": 14400.0, "idle_timeout": 900.0})
        """,
        f"{name}.py",
    )
    write(GOOD.replace("sh -c 'cat'", f"{name}:slow") + "    [limits]\n    idle_timeout = 60\n")
    table = {key: (value, origin) for key, value, origin in effective(loaded())}
    assert table["limits.max_duration"] == (14400.0, "agent slow")
    assert table["limits.idle_timeout"] == (60.0, "loop.toml:6")


MODULE = """
    from loopwright import Loop
    def work(attempt): return 1
    def check(result): return True
    loop = Loop("from python", agent=work, gates=[check], budget=3, monitors={"stall": {"window": 9}})
"""


def test_a_python_loop_file(write, loaded, problems, tmp_path):
    name = f"night_{next(NAMES)}"
    write(MODULE, f"{name}.py")
    for loopfile in (f"{name}.py", f"{name}.py:loop", f"{name}:loop"):
        found = loaded(loopfile, max_iterations="3", gate=("true",), sets=["monitors.stall.action=off"])
        assert found.loop.spec() == {
            "goal": "from python",
            "agent": f"{name}:work",
            "gates": [f"{name}:check", "true"],
            "limits": {"max_iterations": 3, "budget": 3.0},
            "monitors": {"stall": {"action": "off", "window": 9}},
        }
    table = {key: origin for key, _, origin in effective(found)}
    assert (table["limits.budget"], table["limits.attempts"]) == (name, "default")
    assert problems(f"{name}.py", max_iterations="0") == ["--max-iterations: 0 is below 1"]
    assert problems(f"{name}.py:lop") == [
        f"{name}.py: there is no Loop called 'lop' in it; did you mean 'loop'?"
    ]


def test_a_python_loop_file_in_a_folder_and_one_that_is_no_module(write, loaded):
    number = next(NAMES)
    write(MODULE, f"loops_{number}/night.py")
    assert loaded(f"loops_{number}/night.py").loop.spec()["agent"] == f"loops_{number}.night:work"
    file = write(MODULE, f"my-night-{number}.py")
    assert loaded(f"my-night-{number}.py").loop.spec()["agent"] == f"script:{file}#work"


def test_python_loop_files_that_hold_none_many_or_break(write, problems, tmp_path):
    numbers = [next(NAMES) for _ in range(4)]
    write("x = 1\n", f"none_{numbers[0]}.py")
    assert problems(f"none_{numbers[0]}.py") == [f"none_{numbers[0]}.py: there is no Loop in it"]
    write(MODULE.replace("loop =", "a = b ="), f"many_{numbers[1]}.py")
    many = f"many_{numbers[1]}.py"
    assert problems(many) == [f"{many}: there are several loops in it, name one: {many}:a, {many}:b"]
    write("from loopwright import Loop\nLoop('', budget=0)\n", f"bad_{numbers[2]}.py")
    assert problems(f"bad_{numbers[2]}.py")[0].startswith(
        f"module 'bad_{numbers[2]}' cannot be imported: ConfigError: goal: an empty text\n"
    )
    write("raise ValueError('no')\n", f"bad-{numbers[3]}.py")
    assert problems(f"bad-{numbers[3]}.py") == [
        f"bad-{numbers[3]}.py: cannot be imported: ValueError: no ({tmp_path}/bad-{numbers[3]}.py:1)"
    ]


def test_lines_of_toml():
    text = textwrap.dedent('''\
        a = 1
        "b c".d = 2
        text = """
        [not]
        a = table
        """
        list = [ # [x]
          "one",
          { x = 1, y = ["]"] },

          'three', [1,
          2],
        ]
        [t]  # =
        k.x = "=#["
        [[m]]
        n = 1
        [m.inner]
        o = 1
        [[m]]
        n = """a"b"""
        p = \'\'\'
        '\'\'\'
        q = 2020-01-01 10:00:00
        [m.inner]
        r = 1
    ''')
    assert lines(text) == {
        "a": 1,
        "b c.d": 2,
        "text": 3,
        "list": 7,
        "list[0]": 8,
        "list[1]": 9,
        "list[2]": 11,
        "list[3]": 11,
        "t": 14,
        "t.k.x": 15,
        "m": 16,
        "m[0]": 16,
        "m[0].n": 17,
        "m[0].inner": 18,
        "m[0].inner.o": 19,
        "m[1]": 20,
        "m[1].n": 21,
        "m[1].p": 22,
        "m[1].q": 24,
        "m[1].inner": 25,
        "m[1].inner.r": 26,
    }


def test_an_empty_table_of_what_comes_later_is_no_error(tmp_path):
    (tmp_path / "loop.toml").write_text(
        'goal = "g"\nagent = "true"\ngates = ["true"]\ntrigger = []\n[server]\n'
    )
    assert load("loop.toml", folder=tmp_path, path=os.environ["PATH"]).loop.goal == "g"
