"""aider: what its real output comes to, one row per sample, and what decides where the model's words stand beside it."""

import asyncio
import os
import shlex
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from test_agent_command import EXIT

from loopwright.agents._said import outcome
from loopwright.agents.aider import aider, asked, heard
from loopwright.core.values import Attempt, Feedback, Left, Session, Usage
from loopwright.errors import ConfigError, NotStartable
from loopwright.ports import Place

SAMPLES = Path(__file__).parents[1] / "cases" / "agent-samples" / "aider"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEAD = "Aider v0.86.2\nModel: openai/fake-model with diff edit format\nGit repo: .git with 1 files\nRepo-map: using 1024 tokens, auto refresh\n\n\n"
TOKENS = "\nTokens: 1.2k sent, 40 received.\n"
E401 = "litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key provided: sk-fake.\nThe API provider is not able to authenticate you. Check your API key.\n\n"
UNFIT = "The LLM did not conform to the edit format.\n<<<<<<< SEARCH\n{}=======\nx\n>>>>>>> REPLACE\n\nOnly 3 reflections allowed, stopping.\n"


def end_of(text, **fields):
    return replace(EXIT, stdout=text.encode(), stdout_bytes=len(text.encode()), **fields)


def comes_to(text, **fields):
    end = end_of(text, **fields)
    return outcome(end, heard(end), idle_s=None, now=NOW)


def test_the_cost_is_that_of_the_session_and_the_tokens_are_those_of_all_answers():
    first = "Tokens: 1.4k sent, 200 cache hit, 40 received. Cost: $0.0043 message, $0.0043 session.\n"
    second = "Tokens: 12k sent, 1.5k cache write, 2.0k cache hit, 1.1k received.\nCost: $0.03 message, $0.04 session.\n"
    usage = comes_to(f"{HEAD}one\n{first}two\n{second}").result.usage
    assert usage.cost_usd == 0.04
    parts = (usage.input_tokens, usage.cache_write_tokens, usage.cache_read_tokens, usage.output_tokens)
    assert parts == (1200 + 12000 - 2 * 1500 - 2000, 1500, 2200, 1140)
    assert (usage.turns, usage.model) == (2, "openai/fake-model")


def test_what_the_model_writes_is_never_an_error():
    """Its words come before the line of tokens, or are quoted where an edit did not fit."""
    assert comes_to(f"{HEAD}The log says:\n\n{E401}{TOKENS}").degraded is None
    unfit = comes_to(f"{HEAD}An edit{TOKENS}{UNFIT.format(E401)}")
    assert unfit.degraded == "it could not apply all its edits"
    full = "Model openai/x has hit a token limit!\n"
    assert comes_to(f"{HEAD}An edit{TOKENS}{UNFIT.format(full)}").degraded == unfit.degraded
    assert comes_to(f"{HEAD}An edit{TOKENS}Applied edit to x\n").degraded is None


def test_an_error_behind_an_answer_is_one():
    found = comes_to(f"{HEAD}An edit{TOKENS}The LLM did not conform to the edit format.\n\n{E401}")
    assert (found.kind, found.usage.turns, found.usage.tokens) == ("permanent", 1, 1240)
    full = f"{HEAD}\nTokens: 2.0k sent, 0 received.\n\n\nModel openai/x has hit a token limit!\nToken counts below are approximate.\n\nhttps://aider.chat/x\n"
    assert comes_to(full).kind == "context_overflow"


def test_what_was_cut_off_cost_nobody_knows_what():
    found = comes_to(f"{HEAD}An edit{TOKENS}next", code=None, signal=9, ended="timeout")
    assert found.timed_out
    assert found.result.usage == Usage(model="openai/fake-model")
    trying = comes_to(
        f"{HEAD}{E401.replace('Authentication', 'RateLimit')}", code=None, signal=9, ended="idle"
    )
    assert trying.kind == "rate_limited"  # it was trying again, and says why


def test_left_out_lines_leave_the_tokens_unknown():
    end = replace(
        end_of(f"{HEAD}x\nTokens: 1k sent, 9 received. Cost: $0.5 message, $0.5 session.\n"),
        stdout_bytes=10**6,
    )
    assert heard(end).usage == Usage(cost_usd=0.5, model="openai/fake-model")


def test_a_wrong_option_is_the_command_line_and_nothing_asked_is_nothing_done():
    usage = b"usage: aider [-h]\naider: error: unrecognized arguments: --frob\n"
    assert comes_to("", code=2, stderr=usage).message.startswith(
        "the command line: aider: error: unrecognized"
    )
    assert comes_to(HEAD).result.usage.turns == 0


# --- the command line ------------------------------------------------------------------------------

ATTEMPT = Attempt(
    run="r",
    iteration=1,
    number=1,
    key="r/1",
    goal="--yes is no option",
    feedback=Feedback(),
    left=Left(iterations=1, seconds=60, attempts=1),
    deadline_s=30.0,
)
PROGRAM = """#!/bin/sh
if [ "$1" = --version ]; then echo "aider $VERSION"; exit; fi
printf '%s\\n' "$@" >"$LOOPWRIGHT_WORKDIR/argv"
echo "$GIT_INDEX_FILE" >"$LOOPWRIGHT_WORKDIR/index"
mkdir -p .aider.tags.cache.v4 && touch .aider.tags.cache.v4/db
touch made.py && git add made.py
while [ $# -gt 0 ]; do case $1 in --chat-history-file) cat "$2" >"$LOOPWRIGHT_WORKDIR/earlier"; echo "said $VERSION" >>"$2";; esac; shift; done
echo "Model: openai/gpt-5.5 with diff edit format"
echo "Tokens: 1.5k sent, 70 received."
"""


@pytest.fixture
def place(tmp_path):
    root, tools, seen = tmp_path / "root", tmp_path / "tools", tmp_path / "seen"
    for folder in (root, tools, seen):
        folder.mkdir()
    (tools / "aider").write_text(PROGRAM)
    (tools / "aider").chmod(0o755)
    (root / "old.py").write_text("old\n")
    for words in ("init -q", "add .", "-c user.name=x -c user.email=x@x commit -qm 1"):
        subprocess.run(["git", *words.split()], cwd=root, check=True)
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "VERSION": "0.86.2", "LOOPWRIGHT_WORKDIR": str(seen)}
    return Place(
        root=root, project=root, artifacts=tmp_path / "artifacts", env=env, timeout_s=30, grace_s=0.3
    )


def call(place, attempt=ATTEMPT, **options):
    outcome = asyncio.run(aider(**options).call(attempt, place))
    return outcome, (Path(place.env["LOOPWRIGHT_WORKDIR"]) / "argv").read_text().splitlines()


def test_the_command_line_as_it_is_run(place):
    outcome, argv = call(place, model="openai/gpt-5.5", args=("--map-tokens", "0", "old.py"))
    folder = place.artifacts
    assert shlex.join(argv) == (
        f"--model openai/gpt-5.5 --message-file {folder}/prompt.md --chat-history-file {folder}/aider.chat.md"
        f" --input-history-file {folder}/aider.input --yes-always --no-pretty --no-stream --no-fancy-input"
        " --no-check-update --no-show-release-notes --no-show-model-warnings --no-analytics --no-detect-urls"
        " --no-notifications --disable-playwright --no-gitignore --no-auto-commits --no-dirty-commits"
        " --no-suggest-shell-commands --no-auto-lint --no-auto-test --load /dev/null --map-tokens 0 old.py"
    )
    assert "--yes is no option" in (folder / "prompt.md").read_text()
    assert outcome.result.usage.cost_usd == pytest.approx((1500 * 5 + 70 * 30) / 1e6)
    assert outcome.result.session is None


def test_the_index_of_the_user_and_the_folder_stay_clean(place):
    call(place)
    status = subprocess.run(
        ["git", "status", "--short"], cwd=place.root, capture_output=True, text=True, check=True
    )
    assert status.stdout == "?? made.py\n"  # made, not staged, and no cache beside it


def test_full_trust_follows_its_own_configuration_and_the_real_index(place):
    _, argv = call(place, trust="full")
    assert not {"--load", "--no-auto-test", "--no-auto-lint"} & set(argv)
    assert (Path(place.env["LOOPWRIGHT_WORKDIR"]) / "index").read_text() == "\n"


def test_no_repository_is_made_where_there_is_none(place, tmp_path):
    root = tmp_path / "bare"
    root.mkdir()
    _, argv = call(replace(place, root=root))
    assert argv[-1] == "--no-git"


def test_continue_gives_it_the_chat_of_the_attempt_before(place, tmp_path):
    first, argv = call(place, session="continue")
    assert first.result.session == str(place.artifacts / "aider.chat.md")
    assert "--restore-chat-history" not in argv
    again = replace(ATTEMPT, session=Session(id=first.result.session))
    later = replace(place, artifacts=tmp_path / "later")
    second, argv = call(later, again, session="continue")
    assert "--restore-chat-history" in argv
    assert (Path(place.env["LOOPWRIGHT_WORKDIR"]) / "earlier").read_text() == "said 0.86.2\n"
    assert second.result.session == str(tmp_path / "later" / "aider.chat.md")
    call(replace(place, artifacts=tmp_path / "fresh"), again)
    assert (Path(place.env["LOOPWRIGHT_WORKDIR"]) / "earlier").read_text() == ""


def test_what_will_run_and_how_to_get_it(place):
    assert aider().probe(place).endswith("/aider (0.86.2)")
    assert "it may do whatever you may" in aider(trust="full").probe(place)
    with pytest.raises(NotStartable, match="version 0.50.1, and 0.86 is the oldest"):
        aider().probe(replace(place, env={**place.env, "VERSION": "0.50.1"}))
    with pytest.raises(NotStartable, match="python -m pip install aider-chat"):
        aider(run="nowhere-aider").probe(place)


def test_the_login_is_the_key_of_the_models_maker(place):
    env = {"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b"}
    names = [aider(model=model).login(replace(place, env=env)) for model in ("anthropic/x", "openai/x", None)]
    assert [name.partition("-")[0] for name in names] == [
        "aider/ANTHROPIC_API_KEY",
        *["aider/OPENAI_API_KEY"] * 2,
    ]
    assert not any(name.endswith(("-a", "-b")) for name in names)


def test_the_users_rules_are_read(place):
    with pytest.raises(ConfigError, match=r"errors\[0\]"):
        aider(errors=({"kind": "rate_limited", "pattern": "("},))


@pytest.mark.parametrize(
    ("argv", "left"),
    [
        ("--model x --yes-always --no-stream a.py", "--model x a.py"),
        ("", ""),
        ("--message fix", None),
        ("-f task.md", None),
        ("--message=fix", None),
        ("--version", None),
        ("--load x", None),
    ],
)
def test_a_command_line_somebody_typed(argv, left):
    found = asked(tuple(argv.split()))
    assert found == (None if left is None else tuple(left.split()))


@pytest.mark.parametrize(
    "line",
    [
        f"Tokens: {'9' * 400}k sent, 1 received.",
        "Tokens: 2.1.1k sent, 1 received. Cost: $. message, $. session.",
        "Tokens: . sent, .k received.",
    ],
)
def test_a_line_that_only_looks_like_a_count_is_none(line):
    said = heard(end_of(f"{HEAD}{line}\nTokens: 1k sent, 9 received. Cost: $0.5 message, $0.5 session.\n"))
    assert (said.usage.cost_usd, said.usage.tokens, said.usage.turns) == (0.5, 1009, 1)
