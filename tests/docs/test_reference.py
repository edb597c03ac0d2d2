"""The reference pages are complete and true, by the code: every key, option, verb and default has its row.

A default in a table is read as TOML by the reader or factory that reads a loop file, so what is printed works as well.
"""

import inspect
import io
import json
import re
import subprocess
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import get_args

import click
import pytest

from loopwright import errors, unattended, units, vocabulary
from loopwright.agents.command import command as command_agent
from loopwright.cli.app import VERBS, app, run_app
from loopwright.cli.report import FORMATS
from loopwright.cli.steer import TOO_LATE
from loopwright.config import FLAGS, load
from loopwright.core import monitors
from loopwright.core.decide import ONCE_MORE
from loopwright.core.head import ENDINGS, WAITING_CODE, document
from loopwright.core.judge import Rule
from loopwright.core.limits import WAITING_KINDS, Limits
from loopwright.core.monitors import CALM, REPEAT, Monitors
from loopwright.core.policy import Asking, Policy
from loopwright.core.state import RECENT, LoopState
from loopwright.core.values import About, Answer, Cause, FailureKind, Phase, Status
from loopwright.core.working import FATAL
from loopwright.gates.function import gate as gate_function
from loopwright.gates.junit import junit
from loopwright.hosts.deliver import PATTERN
from loopwright.loop import Loop
from loopwright.names import BUILT_IN, builtin
from loopwright.options import converted, parameters
from loopwright.ports import Gate
from loopwright.process_tree import MARK
from loopwright.readers import thawed
from loopwright.registry import resolve_agent, resolve_gate
from loopwright.workspace.runners import KINDS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("configuration", "gates", "tools", "gates-work", "gates-judge", "cli", "approvals")
EVERY_PAGE = ("../README", *sorted(path.stem for path in DOCS.glob("*.md")))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REQUIRED = object()
GATE_PAGES = ("gates", "tools", "gates-work", "gates-judge")
GATES = tuple(BUILT_IN["gates"])
OFF_PAGE = {"after"}  # of a gate's own parameters: in the table of all gates


@cache
def text(page):
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def blocks(page, language):
    return [body for lang, body in FENCE.findall(text(page)) if lang == language]


def prose(page):
    return FENCE.sub("", text(page))


def spans(cell):
    """The pieces of code in a text."""
    return re.findall(r"`([^`]+)`", cell)


@cache
def tables(page):
    """Each table of a page with its heading: the cells of its rows."""
    found = []
    heading, rows = "", None
    for line in prose(page).splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("|"):
            rows = None
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if rows is None:
            rows = []
            found.append((heading, rows))
        rows.append(cells)
    return [(heading, rows[2:]) for heading, rows in found]


def table(page, heading):
    """The rows of the tables under a heading, by the code in their first cell."""
    rows = [row for title, each in tables(page) if title == heading for row in each]
    assert rows, f"{page} has no table under {heading!r}"
    assert all(len(row) == len(rows[0]) for row in rows), rows
    named = {name: row for row in rows for name in spans(row[0])}
    assert len(named) == sum(len(spans(row[0])) for row in rows), f"{heading}: a row stands twice"
    return named


def toml(written):
    return tomllib.loads(f"value = {written}")["value"]


def default(cell):
    """A printed default as a loop file would give it: `None` for –, REQUIRED for required."""
    if cell in {"–", "required"}:
        return None if cell == "–" else REQUIRED
    (written,) = spans(cell)
    return toml(written)


def missing_words(printed, real):
    """What the page lacks, and what it has too much."""
    return sorted(set(real) - set(printed)), sorted(set(printed) - set(real))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the Python that is shown, and a `claude` to be found on `path`."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "checks", raising=False)
    (checks,) = blocks("gates", "python")
    (tmp_path / "checks.py").write_text(checks, encoding="utf-8")
    (tmp_path / "prompt.md").write_text("{goal}\n{feedback}\n{notes}\n", encoding="utf-8")
    (tmp_path / "bin").mkdir()
    for program in ("claude", "uv", "npx"):
        (tmp_path / "bin" / program).touch(mode=0o755)
    yield tmp_path
    sys.modules.pop("checks", None)


def path(project):
    return f"{project / 'bin'}:/usr/bin:/bin"


# The loop file


KEYS = {
    *vocabulary.TOP,
    *(f"limits.{name}" for name in vocabulary.LIMITS),
    *(f"monitors.{name}" for name in vocabulary.MONITORS),
    *(f"approval.{name}" for name in vocabulary.APPROVAL),
    *(f"workspace.{name}" for name in vocabulary.WORKSPACE),
    *(f"deliver.{name}" for name in vocabulary.DELIVER),
    *(f"notify.{name}" for name in vocabulary.NOTIFY),
    *(f"store.{name}" for name in vocabulary.STORE),
    *(f"server.{name}" for name in unattended.SERVER),
    *(f"trigger.{name}" for name in unattended.TRIGGER),
}
SERVED = ("`[[trigger]]`", "`[server]`", "`[notify]` and `[approval]`")
TABLES = "`[approval]`, `[workspace]`, `[deliver]`, `[store]`"


def available():
    """The keys with a row of their own, and it."""
    page = "configuration"
    return {
        **table(page, "Top level"),
        **{f"limits.{name}": row for name, row in table(page, "`[limits]`").items()},
        **{f"monitors.{name}": row for name, row in table(page, "`[monitors]`").items()},
        **table(page, TABLES),
        **{key: row for heading in SERVED for key, row in table("configuration-serve", heading).items()},
    }


def test_the_keys_of_the_code_are_all_here():
    heads = {key.partition(".")[0] for key in KEYS}
    assert heads | {"baseline"} == {key.partition(".")[0] for key in vocabulary.KEYS}
    assert "`baseline=False`" in text("configuration")


def test_every_key_has_its_row_and_every_row_a_key():
    later = table("configuration", "Not available in this version")
    assert missing_words({*available(), *later}, KEYS) == ([], [])


def test_what_is_not_available_and_what_works_meanwhile():
    later = table("configuration", "Not available in this version")
    works = {
        key: () if row[1] == "nothing" else tuple(toml(code) for code in spans(row[1]))
        for key, row in later.items()
    }
    assert works == dict(vocabulary.LATER)
    assert all("not available" in vocabulary.refused(key, "something else") for key in works)


def whole():
    """A loop with every default written out."""
    agent = resolve_agent({"use": "command", "run": "true"}, project=Path(), path="")
    return Loop("x", agent=agent, gates=["true"]).resolved(agent)


@pytest.mark.parametrize("key", sorted(vocabulary.TOP.keys() - vocabulary.LATER.keys()))
def test_a_default_of_the_top_level(key):
    printed = default(table("configuration", "Top level")[key][1])
    if key in {"goal", "agent"}:
        assert printed is REQUIRED
    else:
        value = Loop("x", agent="a", until="limits").gates if key == "gates" else getattr(whole(), key)
        assert printed == thawed(value)


@pytest.mark.parametrize("name", sorted(vocabulary.LIMITS))
def test_a_default_of_a_limit(name):
    printed = default(table("configuration", "`[limits]`")[name][1])
    assert (None if printed is None else vocabulary.LIMITS[name](printed)) == getattr(Limits(), name)


@pytest.mark.parametrize("name", vocabulary.MONITORS)
def test_the_numbers_and_the_action_of_a_monitor(name):
    _, numbers, action, _ = table("configuration", "`[monitors]`")[name]
    said = {**default(numbers), **({} if action == "–" else {"action": spans(action)[0]})}
    rule = getattr(Monitors(), name)
    assert vocabulary.MONITORS[name](said) == rule
    assert said.keys() == thawed(rule).keys(), "every number is printed"


def test_the_actions_and_the_figures_of_monitors():
    section = prose("configuration").partition("## `[monitors]`")[2].partition("\n## ")[0]
    sentence = section.partition("An alert is on record")[2].partition("Windows are")[0]
    assert set(spans(sentence)) - {"health"} == set(get_args(_action()))
    assert f"{RECENT} iterations at most" in section
    assert {3: "once in three iterations"}[REPEAT] in section


def test_every_monitor_has_its_row_and_every_alert_its_kind():
    rows = table("configuration", "`[monitors]`")
    assert list(rows) == [each.name for each in fields(Monitors)]
    rules = [(each.name, getattr(Monitors(), each.name)) for each in fields(Monitors)]
    kinds = set(re.findall(r'found\.append\(\("(\w+)"', inspect.getsource(monitors)))
    assert kinds == {name.upper() for name, rule in rules if hasattr(rule, "action")}
    others = {kind for kind in CALM if kind.lower() not in rows}
    said = prose("configuration").partition("## `[monitors]`")[2].partition("\n|")[0]
    assert {name for name in spans(said) if name.isupper()} == others


def test_every_kind_of_failure_has_its_row():
    rows = table("endings", "When an attempt fails")
    assert list(rows) == list(get_args(FailureKind))
    once = {kind for kind, row in rows.items() if row[2].startswith("one more")}
    assert once == ONCE_MORE
    assert {kind for kind, row in rows.items() if row[2].startswith("the next attempt")} == WAITING_KINDS
    assert {kind for kind, row in rows.items() if row[2].startswith("the run ends")} == FATAL
    assert all(set(spans(rows[kind][2])) <= ENDINGS.keys() for kind in FATAL)


def test_every_question_has_its_row_and_every_answer_its_column():
    rows = [rows for heading, rows in tables("approvals") if heading == "When you are asked"]
    assert [row[0] for row in rows[0]] == list(get_args(About))
    (header,) = re.findall(r"^\| about \| because \| (.*) \|$", text("approvals"), re.MULTILINE)
    assert [*header.split(" | "), "expired"] == list(get_args(Answer))


def test_what_silence_means_has_all_its_words():
    row = table("configuration", TABLES)["approval.on_timeout"]
    said = {toml(code) for cell in row[1:] for code in spans(cell) if code.startswith('"')}
    assert said == set(get_args(inspect.get_annotations(Asking, eval_str=True)["on_timeout"]))
    when = {
        toml(code)
        for cell in table("configuration", TABLES)["approval.when"][1:]
        for code in spans(cell)
        if code.startswith('"')
    }
    assert when == set(get_args(inspect.get_annotations(Asking, eval_str=True)["when"]))


def test_every_status_and_cause_of_a_score_has_its_place():
    section = prose("gates").partition("## Options of every gate")[0]
    assert set(get_args(Status)) <= set(spans(section))
    assert {f"*{cause}*" for cause in get_args(Cause)} <= set(re.findall(r"\*\w+\*", section))


def test_every_format_of_a_report_has_its_row():
    assert list(table("reports", "Reports")) == list(FORMATS)


def _action():
    return inspect.get_annotations(type(Monitors().stall), eval_str=True)["action"]


def test_the_defaults_of_the_other_tables():
    printed = {key: default(row[1]) for key, row in table("configuration", TABLES).items()}
    asking, loop = Asking(), whole()
    assert printed.pop("approval.when") == asking.when
    assert units.seconds(printed.pop("approval.timeout")) == asking.timeout
    assert printed.pop("approval.on_timeout") == asking.on_timeout
    assert printed.pop("workspace.mode") == loop.workspace["mode"]
    for many in ("watch", "setup", "link"):
        assert printed.pop(f"workspace.{many}") == list(loop.workspace.get(many, []))
    assert printed.pop("workspace.base") == loop.workspace.get("base")
    assert printed.pop("deliver.to") == Policy().deliver
    assert printed.pop("deliver.branch") is None
    assert PATTERN in spans(table("configuration", TABLES)["deliver.branch"][2])
    assert printed.pop("store.url") == loop.store
    assert not printed, "a key whose default this test does not know"
    without_when = Loop("x", agent="true", gates=["true"], approval={"timeout": "1h"})
    row = table("configuration", TABLES)["approval.when"][2]
    assert f'`"{without_when.approval["when"]}"` (when all gates pass; the default of a table' in row


def test_the_defaults_of_a_server():
    trigger, server = unattended.Trigger(), unattended.Server()
    printed = {
        key: default(row[1])
        for heading in SERVED
        for key, row in table("configuration-serve", heading).items()
    }
    for key, value in printed.items():
        room, _, name = key.partition(".")
        if room in {"trigger", "server"}:
            assert value == thawed(getattr({"trigger": trigger, "server": server}[room], name)), key
        else:
            assert value == []
    assert set(spans(table("configuration-serve", SERVED[2])["notify.on"][2])) == {
        f'"{n}"' for n in unattended.NEWS
    }


def test_the_example_of_a_server_loads(loaded):
    made = loaded(blocks("configuration-serve", "toml")[0]).loop
    assert [dict(each) for each in made.trigger] == [{"cron": "0 2 * * 1-5", "tz": "Europe/Paris"}]


def test_values_are_written_as_the_page_says():
    rows = {
        row[0]: spans(row[1]) for row in next(rows for h, rows in tables("configuration") if h == "Values")
    }
    assert all(units.seconds(toml(each)) > 0 for each in rows["duration"])
    assert all(units.size(toml(each)) > 0 for each in rows["size"])
    assert all(vocabulary.LIMITS["budget"](toml(each)) > 0 for each in rows["money"])


def test_the_names_that_can_be_said():
    section = text("configuration").partition("## What names an agent or a gate")[2].partition("\n## ")[0]
    built_in = next(line for line in section.splitlines() if line.startswith("| `pytest` |"))
    agents, _, gates = built_in.partition("agents ")[2].partition("; gates ")
    assert set(spans(agents)) == set(BUILT_IN["agents"])
    assert set(spans(gates.partition(";")[0])) == set(BUILT_IN["gates"])


def test_what_a_text_means(project):
    rows = next(rows for heading, rows in tables("configuration") if heading.startswith("What names"))
    *said, rest = [row[0] for row in rows]
    made = [made_by(spans(cell)[0], project) for cell in said]
    assert made == ["pytest", "ruff", "function", "pytest", "command"]
    assert rest == "anything else"
    with pytest.raises(errors.ConfigError, match="did you mean 'pytest'"):
        made_by("pytset", project)


def test_a_known_tool_with_arguments_is_its_gate(project):
    (project / "bin/pytest").touch(mode=0o755)
    said = {"pytest -x": "pytest", "pytest:-x": "pytest", "pytest --collect-only": "command"}
    assert {line: made_by(line, project) for line in said} == said
    assert said.keys() <= set(spans(prose("configuration")))


def made_by(said, project):
    """The module of the gate that a text means."""
    return resolve_gate(said, project=project, path=path(project)).check.__module__.rpartition(".")[2]


# Options of agents and gates


def check_options(rows, label, factory):
    """The rows of a factory's options against its signature: names, which are required, defaults."""
    own = parameters(label, factory)
    assert missing_words(rows, own.keys() - OFF_PAGE) == ([], [])
    for name, row in rows.items():
        printed, real = default(row[1]), own[name].default
        if real is inspect.Parameter.empty:
            assert printed is REQUIRED, name
        else:
            value = None if printed is None else converted(name, printed, own[name].annotation)
            assert thawed(value) == thawed(real), name


def test_the_options_of_the_command_agent():
    check_options(table("configuration", "The command agent"), "command", command_agent)


ADAPTERS = sorted(BUILT_IN["agents"].keys() - {"command"})


def test_every_adapter_has_its_section():
    found = set(re.findall(r"^## (\w+)$", prose("agents"), re.MULTILINE))
    assert set(ADAPTERS) == found - {"Options", "Trust", "Money"}


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_options_of_an_adapter(name):
    rows = table("agents", "Options")
    own = parameters(name, builtin(BUILT_IN["agents"][name]))
    without = {option for option, row in rows.items() if f"({name} has no" in row[2]}
    assert own.keys() == rows.keys() - without
    assert own.pop("run").default in {name, None}
    for option in own:
        assert thawed(default(rows[option][1]) or None) == (thawed(own[option].default) or None), option


def test_every_gate_has_its_section():
    assert sorted(name for page in GATE_PAGES for name in sections(page)) == sorted(GATES)


def sections(page):
    """The gates that a page describes."""
    return re.findall(r"^## `(\w+)`$", prose(page), re.MULTILINE)


@pytest.mark.parametrize("name", GATES)
def test_the_options_of_a_gate(name):
    page = next(page for page in GATE_PAGES if name in sections(page))
    check_options(table(page, f"`{name}`"), name, builtin(BUILT_IN["gates"][name]))


def common():
    """The defaults that every gate has."""
    rule = Rule(name="x")
    made = Gate(rule=rule, check=None)
    given = {"use": REQUIRED, "name": None}
    for name in vocabulary.GATE.keys() - given.keys():
        given[name] = thawed(getattr(rule, name) if hasattr(rule, name) else getattr(made, name))
    return given


def test_the_options_of_every_gate():
    rows = table("gates", "Options of every gate")
    assert {name: default(row[1]) for name, row in rows.items()} == common()


def test_an_advisory_gate_weighs_what_the_page_says():
    weighs = resolve_gate({"use": "ruff", "required": False}, project=Path(), path="").rule.weight
    assert f"an advisory gate weighs {weighs:g}." in table("gates", "Options of every gate")["weight"][2]


def test_the_options_of_a_function_gate():
    said = prose("gates").partition("`@gate`, as above:")[2].partition(". A function")[0]
    real = {
        name: parameter.default
        for name, parameter in inspect.signature(gate_function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert missing_words(spans(said), real) == ([], [])
    assert all(value is None or thawed(value) == common()[name] for name, value in real.items())


def test_where_evidence_comes_from():
    rows = [spans(row[0]) for row in next(rows for h, rows in tables("gates") if h == "Fresh evidence")]
    *ways, without = rows
    assert ways == [["run", "report"], ["run"], ["report", "after"]]
    for way in ways:
        junit(**{name: ("pytest",) if name == "after" else "x" for name in way})
    for nothing in ({"report": "x"}, {"after": ("pytest",)}, {}):
        with pytest.raises(errors.ConfigError):
            junit(**nothing)
    own = {name for name in GATES if "args" in parameters(name, builtin(BUILT_IN["gates"][name]))}
    assert set(without) == {"run", *own}


# What is shown as TOML


@pytest.fixture
def loaded(project):
    """Loads a text as the loop file of the project."""

    def of(body):
        (project / "loop.toml").write_text(body, encoding="utf-8")
        return load("loop.toml", folder=project, path=path(project))

    return of


def dotted(document, holder=""):
    for key, value in document.items():
        name = f"{holder}{key}"
        if isinstance(value, dict) and not holder and name not in KEYS:
            yield from dotted(value, f"{name}.")
        else:
            yield name


def test_the_complete_file_loads_and_is_complete(loaded):
    (complete,) = blocks("configuration", "toml")
    said = set(dotted(tomllib.loads(complete)))
    served = {
        key
        for key in available()
        if key.startswith(("trigger.", "server.", "notify.", "approval.ch", "approval.approvers"))
    }
    assert missing_words(said, {*available(), "gate"} - served) == ([], [])
    loop = loaded(complete).loop
    assert loop.budget == 5.0
    assert [gate["use"] if not isinstance(gate, str) else gate for gate in loop.gates] == [
        "pytest",
        "ruff",
        "command",
    ]


FRAGMENTS = [fragment for page in GATE_PAGES for fragment in blocks(page, "toml")]


@pytest.mark.parametrize("number", range(len(FRAGMENTS)))
def test_a_fragment_loads(loaded, number):
    fragment = FRAGMENTS[number]
    loop = loaded(f'goal = "x"\nagent = "claude -p"\n{fragment}').loop
    assert loop.gates


# The command line


def verbs():
    """Every verb by the words that call it."""
    found = {}
    for name in VERBS:
        command = app.get_command(click.Context(app), name)
        subs = command.commands if isinstance(command, click.Group) else {"": command}
        found |= {f"{name} {sub}".strip(): each for sub, each in subs.items()}
    return found


def options(command):
    return {param.opts[0]: param for param in command.params if isinstance(param, click.Option)}


def synopses():
    """What is shown at the top of the page, a line for each verb."""
    shown = re.sub(r"\n +", " ", blocks("cli", "")[0])
    return {verb: line for line in shown.splitlines() for verb in verbs() if _calls(line, verb)}


def _calls(line, verb):
    return f"{line} ".startswith(f"loopwright {verb} ")


def test_every_verb_is_shown():
    assert synopses().keys() == verbs().keys()
    assert len(blocks("cli", "")[0].split("loopwright ")[1:]) == len(verbs())


@pytest.mark.parametrize("verb", verbs())
def test_a_verb_is_shown_with_all_it_takes(verb):
    rest = synopses()[verb].removeprefix(f"loopwright {verb}").strip()
    shown = {}
    for inside, more in re.findall(r"\[(-[^\]]+)\](…?)", rest):
        flag, _, metavar = inside.partition(" ")
        shown[flag] = (metavar or None, bool(more))
    real = {
        flag: (None if o.is_flag else o.metavar, o.multiple) for flag, o in options(verbs()[verb]).items()
    }
    for flag, option in options(verbs()[verb]).items():
        if option.required and f"{verb} {rest}".count(f" {flag} {option.metavar}"):
            shown[flag] = (option.metavar, option.multiple)
    assert shown == real
    arguments = [a for a in verbs()[verb].params if isinstance(a, click.Argument)]
    wanted = [a.name.upper() if a.required else f"[{a.name.upper()}]" for a in arguments]
    assert re.findall(r"^\[?[A-Z]+\]?", rest) == wanted


def section_rows(verb):
    """The options that the section of a verb explains, with what it says of them."""
    heading = (
        next(h for h, _ in tables("cli") if verb in spans(h)) if verb != "why" else "`list` `show` `why`"
    )
    return table("cli", heading)


@pytest.mark.parametrize("verb", verbs())
def test_the_options_of_a_verb_are_explained(verb):
    everywhere = table("cli", "The command line")
    rows = {**everywhere, **section_rows(verb)}
    for flag, option in options(verbs()[verb]).items():
        assert flag in rows, f"{verb} {flag} has no row"
        if isinstance(option.default, str):
            assert option.default in spans(rows[flag][1]), f"the default of {verb} {flag}"


def test_every_row_of_an_option_is_one():
    for heading, rows in tables("cli"):
        flags = [name for row in rows for name in spans(row[0]) if name.startswith("-")]
        mine = [each for verb, each in verbs().items() if verb in spans(heading)] or list(verbs().values())
        assert not set(flags) - {flag for each in mine for flag in options(each)}, heading


def test_the_flags_of_run_say_which_key_they_set():
    rows = table("cli", "`run`")
    for flag, key in FLAGS.values():
        row = rows.get(flag) or table("cli", "The command line")[flag]
        assert key in spans(row[1]), flag


def test_every_command_on_the_pages_can_be_typed():
    every = verbs()
    for page in EVERY_PAGE:
        code = [re.sub(r"\\\n *", "", body) for _, body in FENCE.findall(text(page))]
        for line in (*(line for body in code for line in body.splitlines()), *spans(prose(page))):
            if not line.startswith("loopwright "):
                continue
            verb = next((verb for verb in every if _calls(line, verb)), None)
            known = {"--help", "-h"} | (set(options(every[verb])) if verb else {"--version"})
            unquoted = re.sub(r"\"[^\"]*\"|'[^']*'|#.*", "", line)
            used = re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", unquoted)
            assert verb or used, f"{page}: no verb in {line!r}"
            assert {flag for flag in used if not _begins(flag, known)} <= known, f"{page}: {line}"


def _begins(flag, known):
    """`--add-…` stands for several."""
    return flag.endswith("-") and any(each.startswith(flag) for each in known)


def test_what_is_refused_inside_a_run(monkeypatch, tmp_path):
    monkeypatch.setenv("LOOPWRIGHT_RUN", "outer")
    said = re.search(r"Inside a run .*? exit 2: (.*)\.", prose("cli"))[1]
    refused = set()
    for verb, command in verbs().items():
        if verb == "serve" or any(
            isinstance(param, click.Argument) and param.required for param in command.params
        ):
            needed = [word for flag, o in options(command).items() if o.required for word in (flag, "1")]
            code, _, err = typed(verb, "x", *needed, "-C", str(tmp_path))
            assert code == 2
            refused |= {verb} if "inside run outer" in err else set()
    assert set(spans(said)) == refused


def test_the_exit_codes():
    rows = next(rows for heading, rows in tables("cli") if heading == "Exit codes")
    printed = {int(code): {name for name in spans(when) if name in ENDINGS} for code, when in rows}
    real = {code: set() for code in (WAITING_CODE, TOO_LATE, 130, 143)}
    real |= {error.exit_code: set() for error in every_error(errors.LoopwrightError)}
    for reason, ending in ENDINGS.items():
        real.setdefault(ending.exit_code, set()).add(reason)
    assert printed == real


def every_error(kind):
    return [kind, *(each for sub in kind.__subclasses__() for each in every_error(sub))]


def test_the_run_document():
    rows = table("json", "The run document")
    real = document(LoopState())
    assert list(rows) == list(real)
    assert spans(rows["schema"][1]) == [real["schema"]]
    assert spans(rows["phase"][1]) == list(get_args(Phase))
    assert set(spans(rows["reason"][1])) == {"paused", "approval_requested", "approval_expired"}


# One real run


def typed(*argv):
    """The exit code, stdout and stderr of a command line."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in "12")
    with redirect_stdout(out), redirect_stderr(err):
        code = run_app(list(argv))
    return code, *(stream.buffer.getvalue().decode() for stream in (out, err))


@pytest.fixture(scope="module")
def real_run(tmp_path_factory):
    """A finished run `r1` in a git repository; its agent and its gate have written their environments down."""
    folder, seen = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("seen")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    (folder / "loop.toml").write_text(
        f"""goal = "x"
agent = "sh -c 'env > {seen}/agent; echo made | tee made.txt'"
gates = ["sh -c 'env > {seen}/gate; test -f made.txt'"]
"""
    )
    code, _, err = typed("run", "--as", "r1", "--approve", "passed", "--no-wait", "-C", str(folder))
    assert code == 6, err
    code, _, err = typed("approve", "r1", "-C", str(folder))
    assert code == 0, err
    return folder, seen


def in_project(folder, *argv):
    return typed(*argv, *([] if argv[0] == "plugins" else ["-C", str(folder)]))


def test_the_other_json(real_run, tmp_path):
    for command, (_, said) in table("json", "Other JSON").items():
        argv, printed = command.replace("RUN", "r1").split(), spans(said)
        place = tmp_path if argv[0] == "init" else real_run[0]
        code, out, err = in_project(place, *argv, *(["--all"] if argv[0] == "list" else []))
        assert code == 0, err
        found = json.loads(out)
        assert isinstance(found, list) == said.startswith("a list"), command
        keys = list(found[0] if isinstance(found, list) else found)
        if argv[0] == "list":
            assert keys == list(document(LoopState()))
        else:
            assert printed == (keys[: len(printed)] if "--events" in argv else keys), command


def test_all_other_json_has_its_row(real_run):
    rows = table("json", "Other JSON")
    documents = set(re.findall(r"`(\w+) --json`", prose("json").partition("## The run document")[2][:200]))
    able = {verb for verb, command in verbs().items() if "--json" in options(command)}
    shown = {verb for verb in able for row in rows if f"{row} ".startswith(f"{verb} ")}
    assert shown | documents == able
    views = {flag for flag, o in options(verbs()["show"]).items() if isinstance(o.flag_value, str)}
    answers = {flag: in_project(real_run[0], "show", "r1", flag, "--json")[1] for flag in views}
    listed = {word for row in rows for word in row.split() if word in views}
    assert listed == {flag for flag, answer in answers.items() if answer[:1] in {"[", "{"}}


@pytest.mark.parametrize(
    ("who", "page", "begin"),
    [("agent", "configuration", "It finds"), ("gate", "gates", "Commands run without a shell")],
)
def test_the_variables_that_are_found(real_run, who, page, begin):
    environment = dict(
        line.split("=", 1) for line in (real_run[1] / who).read_text().splitlines() if "=" in line
    )
    paragraph = prose(page).partition(begin)[2].partition("\n\n")[0]
    said = {name for name in spans(paragraph) if name.startswith("LOOPWRIGHT_")}
    real = {name for name in environment if name.startswith("LOOPWRIGHT_")} - {MARK}
    assert missing_words(said, real) == ([], [])
    assert who == "agent" or f"`CI={environment['CI']}`" in paragraph


def test_the_pages_are_short_enough_to_be_read():
    assert all(text(page).count("\n") <= 260 for page in PAGES)


def test_the_page_of_evidence_names_every_kind_of_tool_and_what_it_reads():
    rows = re.findall(r"^\| (`\w[^|]*) \| (.*?) \| .*? \|$", text("evidence"), re.MULTILINE)
    named = {word: files for tools, files in rows for word in re.findall(r"`([\w-]+)`", tools)}
    assert KINDS.keys() - named.keys() == set()
    for kind, table in KINDS.items():
        shown = tuple(word.rstrip("*").lower() for word in re.findall(r"`([^`]+)`", named[kind]))
        unsaid = [name for name in table.names if not name.lower().startswith(shown)]
        assert "…" in named[kind] or not unsaid, unsaid


def test_the_example_of_the_evidence_page_is_a_loop(loaded):
    (example,) = blocks("evidence", "toml")
    assert vocabulary.read(vocabulary.flat(tomllib.loads(example))[0])[1] == []
