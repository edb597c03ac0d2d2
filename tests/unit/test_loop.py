"""`Loop`: what may be said, what is refused and how, what becomes of it."""

import json
import pickle
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from loopwright import units
from loopwright.assembled import assemble
from loopwright.core.judge import Rule
from loopwright.core.limits import Backoff, Convergence
from loopwright.core.monitors import Stall
from loopwright.errors import ConfigError
from loopwright.gates.function import gate
from loopwright.loop import Loop
from loopwright.ports import Agent, Gate


def work(attempt):
    return attempt


def good(result):
    return True


@gate(required=False, weight=5.0)
def advisory(result):
    return True


async def _call(attempt, place):
    raise NotImplementedError


async def _check(seen, place):
    return True


def loop(**said):
    return Loop(**{"goal": "g", "agent": work, "gates": [good], **said})


def problems(call, *args, **said):
    with pytest.raises(ConfigError) as error:
        call(*args, **said)
    return list(error.value.problems)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (90, 90),
        (0.5, 0.5),
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1d", 86400),
        ("500ms", 0.5),
        ("1.5h", 5400),
        ("1m1s", 61),
        ("0s", 0),
    ],
)
def test_durations(text, seconds):
    assert units.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "90", "30 m", "m", "1x", "30m1h", "-5s", "1,5h", " 30m", "30M", "1e3s", "٣s", None, True, [], {}],
)
def test_texts_that_are_no_duration(text):
    with pytest.raises(ValueError, match=r"duration"):
        units.seconds(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 10**400])
def test_numbers_that_are_no_duration(value):
    with pytest.raises(ValueError, match="not a finite number"):
        units.seconds(value)


def test_durations_are_written_as_they_are_read():
    for value in (0.25, 1, 59.5, 60, 90, 1800, 5400, 86400, 3601):
        assert units.seconds(units.duration(value)) == value
    assert units.duration(1800) == "30m"
    assert units.duration(5400) == "1h30m"


def test_sizes():
    assert [units.size(t) for t in ("64MB", "1 KiB", "2GB", "7B", 5)] == [
        64_000_000,
        1024,
        2_000_000_000,
        7,
        5,
    ]
    for bad in ("64", "64mb", "MB", 1.5, True, None):
        with pytest.raises(ValueError, match="size"):
            units.size(bad)


BAD = [
    ({"max_iterations": 0}, "max_iterations: 0 is below 1"),
    ({"max_iterations": -1}, "max_iterations: -1 is below 1"),
    ({"max_iterations": 2.0}, "max_iterations: expected a whole number, got 2.0"),
    ({"max_iterations": True}, "max_iterations: expected a whole number, got true"),
    ({"max_iterations": "5"}, "max_iterations: expected a whole number, got '5'"),
    ({"max_iterations": 10**30}, "max_iterations: a number of many digits is above 1000000000000"),
    ({"attempts": 0}, "attempts: 0 is below 1"),
    ({"max_consecutive_errors": 0}, "max_consecutive_errors: 0 is below 1"),
    ({"max_tokens": 0}, "max_tokens: 0 is below 1"),
    ({"max_duration": 0}, "max_duration: 0 is not above 0"),
    ({"max_duration": "0s"}, "max_duration: '0s' is not above 0"),
    ({"max_duration": -1}, "max_duration: -1 is not above 0"),
    ({"max_duration": float("inf")}, "max_duration: inf is not a finite number of seconds"),
    ({"max_duration": float("nan")}, "max_duration: nan is not a finite number of seconds"),
    ({"max_duration": 10**400}, "max_duration: a number of many digits is not a finite number of seconds"),
    ({"max_duration": "4000d"}, "max_duration: '4000d' is more than ten years"),
    (
        {"attempt_timeout": "15"},
        "attempt_timeout: '15' is not a duration; write \"90s\", \"30m\", \"1h30m\" or a number of seconds",
    ),
    ({"idle_timeout": []}, "idle_timeout: expected a duration, got a list"),
    ({"gate_timeout": True}, "gate_timeout: expected a duration, got true"),
    ({"max_wait": 0}, "max_wait: 0 is not above 0"),
    ({"grace": 0}, "grace: 0 is not above 0"),
    ({"budget": 0}, "budget: 0 is not above 0"),
    ({"budget": float("nan")}, "budget: nan is not a finite number"),
    ({"budget": "5"}, "budget: expected a number, got '5'"),
    ({"reserve": float("inf")}, "reserve: inf is not a finite number"),
    ({"threshold": 0}, "threshold: 0 is not above 0"),
    ({"threshold": 1.5}, "threshold: 1.5 is above 1"),
    ({"convergence": True}, "convergence: expected a table or false, got true"),
    ({"convergence": {"window": 65}}, "convergence.window: 65 is more than the 64 iterations a run remembers"),
    (
        {"convergence": {"window": 33, "patience": 2}},
        "convergence: window × patience looks back 66 iterations and a run remembers 64",
    ),
    ({"convergence": {"windw": 3}}, "convergence.windw: unknown key; did you mean 'window'?"),
    ({"convergence": {"within": 0}}, "convergence.within: 0 is not above 0"),
    ({"backoff": {"first": 10, "max": 5}}, "backoff: max (5 s) is below first (10 s)"),
    ({"backoff": {"factor": 0.5}}, "backoff.factor: 0.5 is below 1"),
    ({"monitors": {"stal": "off"}}, "monitors.stal: unknown key; did you mean 'stall'?"),
    (
        {"monitors": {"stall": "halt"}},
        "monitors.stall: expected one of note, nudge, ask, stop, off, got 'halt'",
    ),
    (
        {"monitors": {"stall": False}},
        'monitors.stall: expected an action or a table, got false; "off" turns it off',
    ),
    (
        {"monitors": {"degradation": {"window": 65}}},
        "monitors.degradation.window: 65 is more than the 64 iterations a run remembers",
    ),
    (
        {"monitors": {"oscillation": {"window": 4}}},
        "monitors.oscillation: 4 scores change direction 2 times at most, not 4",
    ),
    ({"monitors": {"critical": {"alerts": 33}}}, "monitors.critical.alerts: 33 is above 32"),
    ({"approval": "pased"}, "approval.when: expected one of never, passed, always, alert, got 'pased'; did you mean 'passed'?"),
    ({"approval": {"timeout": 0}}, "approval.timeout: 0 is not above 0"),
    ({"until": "limit"}, "until: expected one of passed, limits, got 'limit'; did you mean 'limits'?"),
    ({"goal": " "}, "goal: an empty text"),
    ({"goal": None}, "goal: missing: say what is wanted"),
    ({"goal": "a\x00b"}, "goal: a text with a NUL character or bytes that are not UTF-8"),
    ({"goal": "ab\udcff"}, "goal: a text with a NUL character or bytes that are not UTF-8"),
    ({"agent": None}, "agent: missing: name one, such as agent = \"sh -c '…'\""),
    ({"agent": 7}, "agent: expected a name, a command, a table or a function, got 7"),
    ({"agent": {"run": "x"}}, "agent.use: missing: it says what this is"),
    ({"gates": "pytest"}, "gates: expected a list, got 'pytest'"),
    ({"gates": [good, 7]}, "gates[1]: expected a name, a command, a table or a function, got 7"),
    ({"gates": [{"run": "x"}]}, 'gates[0].use: missing: it names the gate, such as use = "command"'),
    ({"gates": [{"use": "x", "weight": -1}]}, "gates[0].weight: -1 is below 0"),
    ({"gates": [{"use": "x", "min": float("nan")}]}, "gates[0].min: nan is not a finite number"),
    ({"gates": [{"use": "x", "ok": [float("inf")]}]}, "gates[0].ok[0]: inf is not a finite number"),
    ({"gates": [{"use": "x", "timeout": 0}]}, "gates[0].timeout: 0 is not above 0"),
    ({"gates": [{"use": "x", "required": 1}]}, "gates[0].required: expected true or false, got 1"),
    ({"gates": [{"use": "x", "name": "a/b"}]}, "gates[0].name: 'a/b' is not a gate's name: one line without '/', 80 characters at most"),
    ({"gates": [{"use": "x", "cwd": "../up"}]}, "gates[0].cwd: '../up' is not a folder inside the workspace, such as 'packages/api'"),
    ({"name": "a..b"}, "name: 'a..b' is not a name: letters, digits, '.', '_' and '-', 59 at most"),
    ({"name": "../up"}, "name: '../up' is not a name: letters, digits, '.', '_' and '-', 59 at most"),
    ({"name": "x" * 60}, f"name: {'x' * 60!r}"[:63] + "… is not a name: letters, digits, '.', '_' and '-', 59 at most"),
    ({"env": ["A=b"]}, "env[0]: 'A=b' is not the name of an environment variable (names only, never values)"),
    ({"labels": {"team": 3}}, "labels.team: expected text, got 3"),
    ({"protected": "tests/**"}, "protected: expected a list, got 'tests/**'"),
    ({"workspace": "inplace"}, "workspace.mode: expected one of in_place, worktree, folder, none, got 'inplace'; did you mean 'in_place'?"),
    ({"protected": ["a", "[z-a]"]}, "protected[1]: '[z-a]' is no glob: bad character range z-a"),
    ({"may_change": ["[z-a]"]}, "may_change[0]: '[z-a]' is no glob: bad character range z-a"),
    ({"workspace": {"base": "--all"}}, "workspace.base: '--all' is no commit, branch or tag"),
    ({"workspace": {"link": ["/etc"]}}, "workspace.link[0]: '/etc' is not a path inside the project folder, such as 'node_modules'"),
    ({"workspace": {"setup": ["make", 3]}}, "workspace.setup[1]: expected text, got 3"),
    ({"deliver": {"branch": "x/../y"}}, "deliver.branch: 'x/../y' cannot name a branch, as 'loopwright/{run}' can"),
    ({"workspace": {"mod": "none"}}, "workspace.mod: unknown key; did you mean 'mode'?"),
    ({"notify": {"on": ["end"]}}, "notify.on[0]: expected one of needs_you, failed, finished, alert, got 'end'"),
    ({"trigger": [{"cron": "x", "filter": {}}]}, "trigger[0].filter: says nothing beside cron"),
    ({"trigger": [{"webhook": "ci"}]}, "trigger[0].secret: missing: it names the environment variable with the key that signs"),
    ({"trigger": [{"webhook": "a/b", "secret": "S"}]}, "trigger[0].webhook: 'a/b' is not a name for /hooks/<name>: letters, digits, - and _, 64 at most"),
    ({"server": {"public_url": "ftp://x"}}, "server.public_url: 'ftp://x' is not the address of a server, such as https://loops.example.org"),
    ({"server": {"people": ["a b"]}}, "server.people[0]: 'a b' is not a person's name: letters, digits and . _ @ + -, 64 at most"),
    ({"server": {"port": 70000}}, "server.port: 70000 is above 65535"),
    ({"store": "mysql://x"}, "store: 'mysql://x' is not a store: memory:, files:DIR, sqlite:///PATH, postgresql://…, s3://…"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "message"), BAD, ids=[m[:50] for _, m in BAD])
def test_what_is_refused(said, message):
    assert problems(loop, **said) == [message]


LATER = [
    ({"workspace": {"path": "sub"}}, "workspace.path: 'sub' is not available in this version; available: ."),
    ({"workspace": {"remote": "origin"}}, "workspace.remote: not available in this version"),
    ({"deliver": "pr"}, "deliver.to: 'pr' is not available in this version; available: none, branch"),
    ({"store": "postgresql://x"}, "store: 'postgresql://x' is not available in this version; available: memory:, files:, sqlite:"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "message"), LATER, ids=[m[:40] for _, m in LATER])
def test_what_comes_later_is_refused_and_not_ignored(said, message):
    assert problems(loop, **said) == [message]


def test_what_asks_for_nothing_is_fine():
    assert loop(
        on_tamper="restore",
        start_from="last",
        sandbox="none",
        approval={"channels": []},
        workspace={"mode": "in_place", "path": ".", "link": []},
        deliver="none",
        gates=[{"use": "x", "clean": False}],
        store="sqlite:///runs.db",
    )


def test_every_problem_at_once():
    assert problems(
        Loop, "", agent=3, gates=[{"use": "x", "weight": -1, "min": 0}], budget=0, notes="/n"
    ) == [
        "goal: an empty text",
        "agent: expected a name, a command, a table or a function, got 3",
        "gates[0].weight: -1 is below 0",
        "gates[0].min: 0 is not above 0",
        "notes: '/n' is not a file inside the workspace, such as 'progress.txt'; true keeps one outside it",
        "budget: 0 is not above 0",
    ]


HOPELESS = 'gates: nothing can make this loop pass: add a required gate, or say approval.when = "always" or until = "limits"'


def test_a_loop_that_nothing_can_make_pass():
    nothing = {"goal": "g", "agent": work}
    assert problems(Loop, **nothing) == [HOPELESS]
    assert problems(Loop, **nothing, gates=[{"use": "x", "required": False}], approval="passed") == [HOPELESS]
    soft = Gate(rule=Rule(name="soft", required=False), check=_check)
    assert problems(Loop, **nothing, gates=[soft]) == [HOPELESS]
    assert Loop(**nothing, approval="always")
    assert Loop(**nothing, until="limits")
    assert Loop(**nothing, gates=[soft, good])
    # what only the resolved gate knows is refused when it is known
    assert problems(assemble, Loop(**nothing, gates=[advisory]), project=Path(), path="") == [HOPELESS]


def test_it_is_inert_and_immutable():
    made = loop(labels={"team": "a"}, monitors={"stall": "off"}, gates=[{"use": "x", "ok": [0]}])
    with pytest.raises(AttributeError):
        made.goal = "other"
    with pytest.raises(TypeError):
        made.labels["team"] = "b"
    with pytest.raises(TypeError):
        made.gates[0].update(use="y")
    assert isinstance(made.gates, tuple)
    assert replace(made, budget=3).budget == 3.0
    assert problems(replace, made, budget=-3) == ["budget: -3 is not above 0"]
    assert json.dumps(made.labels) == '{"team": "a"}'
    assert type(pickle.loads(pickle.dumps(made.labels))) is type(made.labels)
    with pytest.raises(TypeError):
        Loop("g", "claude")


def test_values_in_usable_form():
    made = loop(
        max_duration="1h30m",
        budget=5,
        convergence={"window": 5},
        backoff={"max": "2m"},
        monitors={"stall": "ask"},
    )
    assert (made.max_duration, made.budget) == (5400.0, 5.0)
    assert (made.convergence, made.backoff) == (Convergence(window=5), Backoff(max=120.0))
    assert made.monitors == {"stall": Stall(action="ask")}
    assert loop(convergence=False).convergence is False
    assert loop(approval={}).approval == {"when": "passed"}
    assert (loop().approval, loop().env, loop().labels) == (None, (), {})


FULL = {
    "name": "night",
    "agent": {"use": "command", "run": ["make", "it"], "env": ["KEY"]},
    "improve": "sh -c 'echo $X'",
    "gates": ["pytest", {"use": "command", "run": "true", "timeout": "90s", "required": False}],
    "threshold": 0.9,
    "until": "limits",
    "if_passing": "finish",
    "baseline": False,
    "protected": ["tests/**"],
    "env": ["DATABASE_URL"],
    "labels": {"team": "core"},
    "max_duration": "8h",
    "convergence": False,
    "backoff": {"first": 1},
    "monitors": {"stall": "ask", "critical": {"alerts": 9}},
    "approval": {"timeout": "12h"},
    "workspace": "in_place",
    "store": "memory:",
}


def test_spec_is_json_in_the_shape_of_a_loop_file_and_reads_back():
    made = loop(**FULL)
    spec = made.spec()
    assert json.loads(json.dumps(spec)) == spec
    assert Loop.from_spec(spec) == made
    assert spec["limits"] == {
        "max_duration": 28800.0,
        "convergence": False,
        "backoff": {"first": 1.0, "factor": 2.0, "max": 300.0},
    }
    assert spec["gates"][1] == {"use": "command", "run": "true", "timeout": 90.0, "required": False}
    assert spec["store"] == {"url": "memory:"}
    assert loop().spec() == {"goal": "g", "agent": f"{__name__}:work", "gates": [f"{__name__}:good"]}


def test_a_spec_of_another_version_is_refused():
    assert problems(Loop.from_spec, {**loop().spec(), "limits": {"fun": 3}, "speed": 1}) == [
        "limits.fun: unknown key; known here: " + ", ".join(_limits()),
        "speed: unknown key; known here: " + ", ".join(_tops()),
    ]


def _limits():
    from loopwright.vocabulary import LIMITS

    return LIMITS


def _tops():
    from loopwright.vocabulary import TOP

    tables = [
        "monitors",
        "approval",
        "workspace",
        "deliver",
        "notify",
        "server",
        "trigger",
        "limits",
        "store",
        "gate",
    ]
    return [*TOP, *tables]


def test_functions_by_reference(monkeypatch):
    here = str(Path(__file__).absolute())

    def inner(result):
        return True

    assert loop(gates=[good, inner, advisory, partial(good)]).spec()["gates"] == [
        f"{__name__}:good",
        f"script:{here}#test_functions_by_reference.<locals>.inner",
        {"use": f"{__name__}:advisory", "required": False, "weight": 5.0},
        f"script:{here}#good",
    ]
    main = ModuleType("__main__")
    main.__file__ = "/somewhere/script.py"
    monkeypatch.setitem(sys.modules, "__main__", main)
    made = Gate(rule=Rule(name="made"), check=_check)
    assert loop(agent=lambda attempt: None, gates=[made]).spec() == {
        "goal": "g",
        "agent": f"script:{here}#test_functions_by_reference.<locals>.<lambda>",
        "gates": [f"script:{here}#made"],
    }
    exec("def scripted(attempt): pass", vars(main))
    assert loop(agent=main.scripted).spec()["agent"].endswith("#scripted")
    assert loop(agent=main.scripted).spec()["agent"].startswith("script:")


def test_a_function_of_a_script_says_to_run_it_again():
    spec = {
        "goal": "g",
        "agent": "script:/a/b.py#work",
        "gates": [{"use": "script:/a/b.py#check", "weight": 3}],
    }
    assert problems(assemble, Loop.from_spec(spec), project=Path(), path="") == [
        "agent: work is defined in /a/b.py, which cannot be imported: run that script again",
        "gates[0]: check is defined in /a/b.py, which cannot be imported: run that script again",
    ]


def test_the_digest_is_of_what_may_not_change():
    made = loop(gates=["pytest", {"use": "ruff", "weight": 3}])
    same = [
        {"budget": 3},
        {"max_iterations": 5},
        {"approval": "always"},
        {"threshold": 0.5},
        {"labels": {"a": "b"}},
        {"gates": [{"use": "pytest"}, {"use": "ruff", "weight": 3.0}]},
        {
            "gates": [
                {"use": "pytest", "required": True, "weight": 2},
                {"use": "ruff", "weight": 3, "timeout": 5},
            ]
        },
    ]
    other = [
        {"goal": "h"},
        {"agent": "make"},
        {"improve": work},
        {"gates": ["pytest"]},
        {"gates": [{"use": "ruff", "weight": 3}, "pytest"]},
        {"gates": ["pytest", {"use": "ruff", "weight": 4}]},
        {"gates": ["pytest", {"use": "ruff", "weight": 3, "required": False}]},
        {"gates": ["pytest", {"use": "ruff", "weight": 3, "max": 1}]},
    ]
    assert {replace(made, **said).digest() for said in same} == {made.digest()}
    assert len({made.digest(), *(replace(made, **said).digest() for said in other)}) == len(other) + 1
    assert Loop.from_spec(made.spec()).digest() == made.digest()
    weighed = loop(gates=[good, advisory])
    assert Loop.from_spec(weighed.spec()).digest() == weighed.digest()
    moved = [loop(agent=f"script:{place}/x.py#work").digest() for place in ("/a", "/b/c")]
    assert moved[0] == moved[1]


def test_defaults_that_depend_on_the_agent():
    coder = Agent(name="coder", call=_call, limits={"max_duration": 14400.0, "attempt_timeout": 2700.0})
    helper = Agent(
        name="fn", call=_call, in_folder=False, limits={"max_duration": 60.0, "idle_timeout": 900.0}
    )
    alone = loop().policy(agent=helper, gates=[])
    assert (alone.baseline, alone.limits.max_duration, alone.limits.idle_timeout) == (False, 60.0, 900.0)
    both = loop(idle_timeout=5).policy(agent=coder, improve=helper, gates=[])
    assert (both.baseline, both.limits.max_duration, both.limits.attempt_timeout) == (True, 14400.0, 2700.0)
    assert (both.limits.idle_timeout, both.limits.max_iterations) == (5.0, 20)
    improving = loop().policy(agent=helper, improve=coder, gates=[])
    assert (improving.baseline, improving.limits.attempt_timeout) == (True, 2700.0)
    assert loop().mode(helper) == "none"
    assert loop().mode(helper, coder) == "in_place"
    assert loop(workspace="none").mode(coder) == "none"
    assert loop(baseline=True).policy(agent=helper, gates=[]).baseline
    assert not loop(baseline=False).policy(agent=coder, gates=[]).baseline
    odd = Agent(name="odd", call=_call, limits={"max_duraton": 3, "attempts": 0, "convergence": False})
    assert problems(loop().policy, agent=odd, gates=[]) == [
        "agent odd brings limits.max_duraton: unknown key; did you mean 'max_duration'?",
        "agent odd brings limits.attempts: 0 is below 1",
    ]


def test_the_policy_has_what_was_said():
    helper = Agent(name="fn", call=_call, in_folder=False)
    gates = [Gate(rule=Rule(name="a"), check=_check)]
    plain = loop().policy(agent=helper, gates=gates)
    assert (plain.goal, plain.gates, plain.threshold, plain.until) == ("g", (Rule(name="a"),), 0.85, "passed")
    assert (plain.approval.when, plain.limits.convergence, plain.deliver) == ("never", Convergence(), "none")
    full = loop(**FULL).policy(agent=helper, gates=gates)
    assert (full.threshold, full.until, full.if_passing) == (0.9, "limits", "finish")
    assert (full.limits.max_duration, full.limits.convergence) == (28800.0, None)
    assert (full.approval.when, full.approval.timeout) == ("passed", 43200.0)
    assert (full.monitors.stall.action, full.monitors.critical.alerts) == ("ask", 9)


def test_the_loop_on_record_has_every_default_written_out(tmp_path):
    (tmp_path / "GOAL.md").write_text("Make it so\n")
    made = assemble(loop(goal="@GOAL.md", budget=3), project=tmp_path, path="")
    assert (made.loop.goal, made.policy.goal, made.mode, made.agent.name) == (
        "Make it so",
        "Make it so",
        "none",
        "work",
    )
    spec = made.loop.spec()
    assert spec["limits"]["max_iterations"] == 20
    assert spec["limits"]["convergence"] == {"window": 3, "within": 0.01, "patience": 2}
    assert spec["monitors"]["stall"] == {"action": "stop", "window": 3}
    assert spec["approval"] == {"when": "never", "timeout": 86400.0, "on_timeout": "hold"}
    assert (spec["name"], spec["baseline"], spec["workspace"]) == ("loop", False, {"mode": "none"})
    again = assemble(Loop.from_spec(json.loads(json.dumps(spec))), project=tmp_path, path="")
    assert (again.loop.spec(), again.policy) == (spec, made.policy)


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ("@NONE.md", "goal: {}/NONE.md: No such file or directory (a goal that begins with @ names a file)"),
        ("@EMPTY.md", "goal: {}/EMPTY.md is empty or no text (a goal that begins with @ names a file)"),
        ("@LATIN.md", "goal: {}/LATIN.md is not UTF-8 text (a goal that begins with @ names a file)"),
        ("@.", "goal: {}: Is a directory (a goal that begins with @ names a file)"),
    ],
)
def test_a_goal_file_that_says_nothing(tmp_path, goal, message):
    (tmp_path / "EMPTY.md").write_text("\n")
    (tmp_path / "LATIN.md").write_bytes(b"caf\xe9")
    assert problems(assemble, loop(goal=goal), project=tmp_path, path="") == [message.format(tmp_path)]


def test_protected_files_need_a_workspace():
    assert problems(assemble, loop(protected=["tests/**"]), project=Path(), path="") == [
        'protected: needs a workspace and this loop has none; say workspace.mode = "in_place"'
    ]
    assert assemble(loop(protected=["t"], workspace="in_place"), project=Path(), path="").mode == "in_place"
