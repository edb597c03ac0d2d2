"""The page of words: every line of its table is real, and what exists has its place on it.

A command is parsed by the program itself (not run), TOML is loaded as part of a loop file, an import is made.
"""

import inspect
import re
import shlex
from pathlib import Path
from typing import get_args

import click
import pytest

from loopwright.cli.app import app
from loopwright.config import load
from loopwright.core.apply import apply
from loopwright.core.decide import decide
from loopwright.core.events import EVENTS
from loopwright.core.policy import Command
from loopwright.core.values import Outcome

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (.*) \| (.*) \| `([^`]+)` \|$", re.MULTILINE)
WORDS = ROW.findall(PAGE.partition("\n## ")[0])
# What people bring; the words of the mission among them.
BROUGHT = (
    "orchestrator", "workflow engine", "state manager", "checkpoint", "termination checker", "termination criteria",
    "quality pipeline", "quality gate", "health monitor", "human gate", "human-in-the-loop", "idempotent write",
    "best result", "scheduler", "retry policy", "circuit breaker", "budget guard", "rollback", "dry run", "what-if",
    "audit log", "event sourcing",
)  # fmt: skip


def spans(text):
    """The pieces of code in a text."""
    return re.findall(r"`([^`]+)`", text)


def section(heading):
    """The text under a heading."""
    return PAGE.partition(f"\n{heading}")[2].partition("\n## ")[0]


def parsed(line):
    """Has the program read a command line, as far as it goes without running it; raises UsageError."""
    group, words = app, shlex.split(line)[1:]
    while isinstance(group, click.Group):
        name, command, words = group.resolve_command(click.Context(group), words)
        assert command is not None, f"no verb {name}"
        group = command
    return group.make_context(line, list(words)).params


def test_every_row_has_a_line_and_every_word_one_row():
    table = PAGE.partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len(WORDS) == len(rows) - 2, "a row without one line of code"
    words = [word for row in WORDS for word in row[0].split(", ")]
    assert len(set(words)) == len(words)
    assert [word for word in BROUGHT if word not in words] == []


@pytest.mark.parametrize("line", [line for *_, line in WORDS])
def test_a_line_of_the_table_is_real(tmp_path, line):
    if line.startswith("loopwright "):
        (tmp_path / "loop.toml").touch()
        assert parsed(line)
    elif line.startswith("from loopwright import "):
        import loopwright

        names = line.removeprefix("from loopwright import ").split(", ")
        assert [
            name for name in names if name not in loopwright.__all__ or not hasattr(loopwright, name)
        ] == []
    else:
        for name in ("claude", "pytest", "ruff", "python"):
            (tmp_path / name).touch(mode=0o755)
        given = {"goal": 'goal = "x"', "agent": 'agent = "true"', "gates": 'gates = ["true"]'}
        given[line.partition(" = ")[0]] = line
        (tmp_path / "loop.toml").write_text("\n".join(given.values()), encoding="utf-8")
        assert load("loop.toml", folder=tmp_path, path=f"{tmp_path}:/usr/bin:/bin").loop


def test_the_commands_in_the_text_are_real():
    said = [code for code in spans(PAGE.partition("\n## ")[2]) if code.startswith("loopwright ")]
    assert len(said) >= 4
    assert all(parsed(line) for line in said)


def test_what_does_not_exist_is_found_out():
    for line in ("loopwright rewind RUN", "loopwright resume RUN --budget 5", "loopwright fork RUN"):
        with pytest.raises(click.UsageError):
            parsed(line)


def test_every_fact_has_its_place():
    facts = [
        name
        for row in re.findall(r"^\| .* \| (`.*`) \|$", section("## The one idea"), re.MULTILINE)
        for name in spans(row)
    ]
    assert sorted(facts) == sorted(event.__name__ for event in EVENTS)


def test_every_command_of_decide_has_its_place():
    paragraph = section("## The one idea").partition("**Decide.**")[2].partition("It is pure")[0]
    assert {*spans(paragraph)} == {
        "decide(policy, state, now)",
        *(each.__name__ for each in get_args(Command)),
    }


def test_the_functions_take_what_the_page_says():
    for function in (apply, decide):
        assert f"`{function.__name__}({', '.join(inspect.signature(function).parameters)})`" in PAGE


def test_every_outcome_has_its_row():
    rows = re.findall(r"^\| `(\w+)` \|", section("## How an iteration closes"), re.MULTILINE)
    assert rows == list(get_args(Outcome))


def test_the_page_is_short_enough_to_be_read():
    assert PAGE.count("\n") <= 120
