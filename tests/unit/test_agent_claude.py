"""Claude Code: what is run, what its events tell, and what it used. Its recorded output: test_agent_samples.py."""

from __future__ import annotations

import stat
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from test_agent_command import ATTEMPT, EXIT

from loopwright.agents._cli import explained
from loopwright.agents._said import outcome
from loopwright.agents.claude import Heard, asked, claude
from loopwright.core.values import Failed, Session, Usage
from loopwright.errors import NotStartable
from loopwright.ports import Place

NOW = datetime(2026, 11, 29, 13, 37, tzinfo=UTC)


@pytest.fixture
def place(tmp_path):
    env = {"PATH": f"{tmp_path}/bin:/bin:/usr/bin", "HOME": str(tmp_path)}
    (tmp_path / "bin").mkdir()
    return Place(root=tmp_path, project=tmp_path, artifacts=tmp_path / "a", env=env, timeout_s=9)


def line(agent, place, **attempt):
    """The command line that an attempt runs."""
    cli = agent.call.args[0]
    return list(cli.argv(replace(ATTEMPT, **attempt), place))


def told(*events, before=None):
    heard = Heard(before=before)
    for event in events:
        heard.hear(event)
    return heard


def result(**fields):
    usage = {"input_tokens": 1, "output_tokens": 2}
    return {"type": "result", "subtype": "success", "is_error": False, "result": "done", "num_turns": 1,
            "total_cost_usd": 0.5, "usage": usage, "session_id": "s1", **fields}  # fmt: skip


# ── what is run ─────────────────────────────────────────────────────────────────────────────────────────────────────


BASE = ["-p", "--output-format", "stream-json", "--verbose"]
EDIT = ["--permission-mode", "acceptEdits"]


def test_what_is_run_by_default(place):
    assert line(claude(), place) == [*BASE, *EDIT]


def test_what_the_gates_run_and_what_is_allowed_besides_may_be_run(place):
    gates = replace(place, commands=(("pytest",), ("sh", "-c", "make x"), ("pytest",)))
    allowed = ["--allowedTools", "Bash(pytest)", "Bash(sh -c 'make x')", "WebFetch"]
    assert line(claude(allow=("WebFetch",)), gates)[len(BASE) :] == [*EDIT, *allowed]


def test_full_trust_and_what_the_users_own_arguments_say(place):
    assert line(claude(trust="full"), place)[len(BASE) :] == ["--permission-mode", "bypassPermissions"]
    for own in (
        ("--permission-mode", "plan"),
        ("--permission-mode=plan",),
        ("--dangerously-skip-permissions",),
    ):
        assert line(claude(trust="full", args=own), place)[len(BASE) :] == list(own)


def test_model_session_and_the_money_that_is_left(place):
    left = replace(ATTEMPT.left, budget_usd=1.25)
    session = Session(id="s1")
    words = line(claude(model="opus", session="continue"), place, session=session, left=left)
    assert words[len(BASE) : -2] == ["--model", "opus", "--resume", "s1", "--max-budget-usd", "1.2500"]
    assert "--resume" not in line(claude(), place, session=session)
    assert "--resume" not in line(claude(session="continue"), place)


def test_walls_let_it_run_as_root(place):
    cli = claude().call.args[0]
    assert cli.env(place)["CLAUDE_CODE_MAX_RETRIES"] == "1"
    assert "IS_SANDBOX" not in cli.env(place)
    assert cli.env(replace(place, sandbox=("bwrap",)))["IS_SANDBOX"] == "1"


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("", ""),
        ("-p --model opus", "--model opus"),
        ("--print --output-format json --verbose --max-turns 3", "--max-turns 3"),
        ("--output-format=json --model x", "--model x"),
        ("--version", None),
        ("mcp list", None),
        ("-h", None),
    ],
)
def test_the_arguments_of_a_typed_command_line(typed, kept):
    assert asked(tuple(typed.split())) == (None if kept is None else tuple(kept.split()))


def test_a_login_is_named_by_a_digest_of_its_key_or_home(place):
    login = claude().login
    keyed = [
        login(replace(place, env={**place.env, "ANTHROPIC_API_KEY": key})) for key in ("sk-1", "sk-2", "sk-1")
    ]
    assert keyed[0] == keyed[2] != keyed[1]
    assert "sk-1" not in keyed[0]
    assert login(place) not in keyed


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "npm install -g @anthropic-ai/claude-code"),
        ("echo '1.0.9 (Claude Code)'", "1.0.9, and 2.0 is the oldest that is known"),
        ("echo broken >&2; exit 3", "ended with 3: broken"),
    ],
)
def test_a_cli_that_is_missing_or_too_old_says_how_to_get_it(place, script, message):
    program(place, script)
    with pytest.raises(NotStartable, match=message):
        claude().probe(place)


def test_a_cli_is_told_with_its_version_and_how_far_it_is_trusted(place):
    program(place, "echo '2.1.332 (Claude Code)'")
    assert claude().probe(place) == f"{place.root}/bin/claude (2.1.332)"
    assert 'trust = "full"' in claude(trust="full").probe(place)
    program(place, "echo Claude")
    assert "of an unknown version" in claude().probe(place)


def program(place, script):
    file = place.root / "bin" / "claude"
    if script is not None:
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)


# ── what its events tell ────────────────────────────────────────────────────────────────────────────────────────────


def ended(heard, code=0):
    return outcome(replace(EXIT, code=code), heard.said(), idle_s=None, now=NOW, prose=False)


def test_what_was_not_allowed_is_told_as_it_would_be_allowed():
    denials = [
        {"tool_name": "Bash", "tool_input": {"command": "npm test"}},
        {"tool_name": "Bash", "tool_input": {"command": "npm test"}},
        {"tool_name": "WebFetch", "tool_input": {"url": "x"}},
        {"tool_name": 3},
        "odd",
    ]
    worked = ended(told(result(permission_denials=denials)))
    assert worked.result.denied == ("Bash(npm test)", "WebFetch", "a tool")
    assert worked.degraded is None


def test_a_subscriptions_limit_is_over_when_its_event_says():
    limit = {"status": "rejected", "resetsAt": int(NOW.timestamp()) + 3600, "rateLimitType": "five_hour"}
    init = {"type": "system", "subtype": "init", "apiKeySource": "none", "model": "m", "session_id": "s1"}
    failed = ended(
        told(
            init,
            {"type": "rate_limit_event", "rate_limit_info": limit},
            result(is_error=True, result="limit"),
        )
    )
    assert (failed.kind, failed.retry_after_s, failed.of_login) == ("rate_limited", 3600, True)
    assert failed.usage.plan
    allowed = {"type": "rate_limit_event", "rate_limit_info": {**limit, "status": "allowed"}}
    assert ended(told(init, allowed, result())).result.summary == "done"


def test_a_model_that_refuses_needs_a_person():
    failed = ended(told(result(stop_reason="refusal", result="I will not")))
    assert (failed.kind, failed.message) == ("blocked", "the model refused: I will not")


def test_a_bound_that_was_set_ends_it_and_its_work_is_judged():
    bound = result(
        subtype="error_max_budget_usd", is_error=True, result="", errors=["Reached maximum budget ($1)"]
    )
    worked = ended(told(bound), code=1)
    assert worked.degraded == "error_max_budget_usd; exit 1"
    assert "Reached maximum budget" in worked.result.summary


def test_one_that_ran_out_of_time_and_was_interrupted_tells_what_it_used():
    aborted = result(
        subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools", result=""
    )
    end = replace(EXIT, code=0, ended="timeout")
    worked = outcome(end, told(aborted).said(), idle_s=None, now=NOW, prose=False)
    assert (worked.timed_out, worked.result.usage.cost_usd, worked.result.session) == (True, 0.5, "s1")


# ── money ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def message(name, **counts):
    return {"type": "assistant", "message": {"id": name, "usage": counts}}


def test_while_it_works_each_message_counts_once_with_its_largest_numbers():
    heard = told(message("a", output_tokens=1), message("a", output_tokens=9), message("b", output_tokens=2))
    assert (heard.usage.output_tokens, heard.usage.turns) == (11, 2)
    assert told(message("a", output_tokens=-4), message("b", output_tokens="9")).usage.tokens is None


@pytest.mark.parametrize(
    ("before", "total", "cost"),
    [
        (None, 0.5, 0.5),
        (Session(id="s1", usage=Usage(cost_usd=0.25)), 0.5, 0.25),
        (
            Session(id="s1", usage=Usage()),
            0.5,
            0.5,
        ),  # what nobody told before is in it: too much, never too little
        (Session(id="other", usage=Usage(cost_usd=0.25)), 0.5, 0.5),
        (Session(id="s1", usage=Usage(cost_usd=0.75)), 0.5, None),  # less than before: it cannot be
        (None, 0, None),  # a model without a price is not free
        (None, "0.5", None),
    ],
)
def test_a_sessions_total_is_lessened_by_what_this_run_used_in_it(before, total, cost):
    init = {"type": "system", "subtype": "init", "session_id": "s1", "model": "m"}
    heard = told(init, result(total_cost_usd=total), before=before)
    assert heard.said().usage.cost_usd == cost


def test_what_it_says_of_this_call_alone_is_taken_as_it_is_and_for_all_models():
    since = {"a": {"costUSD": 0.1, "outputTokens": 3}, "b": {"costUSD": 0.2, "inputTokens": 4}}
    usage = told(result(model_usage_since_last_result=since, total_cost_usd=9)).said().usage
    assert (round(usage.cost_usd, 9), usage.output_tokens, usage.input_tokens) == (0.3, 3, 4)
    since["b"]["costUSD"] = -1
    assert told(result(model_usage_since_last_result=since)).said().usage.cost_usd is None


@pytest.mark.parametrize("kind", ["rate_limited", "permanent", "transient", "unknown"])
def test_a_failure_that_tells_no_cost_has_an_unknown_one(kind):
    """An agent that worked for an hour and then met a limit may tell neither turns nor tokens."""
    assert explained(Failed(kind=kind, message="m"), "fix").usage == Usage()


def test_whatever_it_prints_is_no_exception():
    odd = [
        None,
        3,
        "x",
        [],
        {},
        {"id": []},
        {"id": "a", "content": [None, {"type": "tool_use"}], "usage": []},
    ]
    heard = Heard()
    for value in odd:
        for kind in ("assistant", "user", "system", "rate_limit_event", "result"):
            heard.hear({"type": kind, "message": value, "rate_limit_info": value, "subtype": value})
    heard.hear(
        {"type": "result", "permission_denials": odd, "usage": odd, "model_usage_since_last_result": odd}
    )
    assert heard.said() is not None


def test_the_news_of_a_try_says_when_it_is():
    retry = {"type": "system", "subtype": "api_retry", "error_status": 429, "error": "rate_limit"}
    assert Heard().hear({**retry, "retry_delay_ms": 8539}) == "trying again in 9 s after 429 rate_limit"
    assert Heard().hear(retry) == "trying again after 429 rate_limit"
