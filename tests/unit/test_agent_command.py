"""A command as an agent: what it is given, and what its end means."""

import asyncio
import json
import os
import shutil
import stat
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loopwright.agents._said import Said, last_result, outcome, read
from loopwright.agents.command import command
from loopwright.core.values import Attempt, Failed, Feedback, Left, Usage, Worked
from loopwright.errors import ConfigError, NotStartable
from loopwright.ports import Place
from loopwright.supervise import Exit

CASES = Path(__file__).parents[1] / "cases" / "agents"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ATTEMPT = Attempt(
    run="r",
    iteration=1,
    number=1,
    key="r/1",
    goal=(CASES / "prompt_with_option_text.txt").read_text(encoding="utf-8"),
    feedback=Feedback(reasons=("pytest: 1 failed",)),
    left=Left(iterations=1, seconds=60, attempts=1),
    deadline_s=30.0,
)
EXIT = Exit(
    code=0,
    signal=None,
    ended="exited",
    stdout=b"",
    stderr=b"",
    stdout_bytes=0,
    stderr_bytes=0,
    truncated=0,
    seconds=1.0,
    quiet_s=0.0,
    leftovers=0,
)


@pytest.fixture
def place(tmp_path):
    root, artifacts = tmp_path / "root", tmp_path / "artifacts"
    root.mkdir()
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "KEPT": "yes"}
    return Place(root=root, project=root, artifacts=artifacts, env=env, timeout_s=30, grace_s=0.3)


def call(place, run, attempt=ATTEMPT, **options):
    return asyncio.run(command(run=run, **options).call(attempt, place))


def line(**fields):
    return json.dumps({"type": "result", **fields}).encode()


def said(**fields):
    return read(line(**fields))


def judged(end=EXIT, **fields):
    return outcome(end, said(**fields), idle_s=None, now=NOW)


# --- how it ends: the case files themselves are in tests/cli/test_agents_cases.py ------------------


def test_the_deadline_of_the_attempt_binds_too(place):
    outcome = call(place, ["sleep", "4"], replace(ATTEMPT, deadline_s=0.2))
    assert outcome.timed_out


# --- what it is given -----------------------------------------------------------------------------


def test_the_prompt_comes_on_stdin_and_stands_in_a_file_only_we_may_read(place):
    outcome = call(
        place, ["sh", "-c", 'cat >got; test "$(cat got)" = "$(cat "$LOOPWRIGHT_PROMPT_FILE")" && echo same']
    )
    assert outcome.result.summary == "same"
    text = (place.root / "got").read_text()
    assert text.startswith("# Goal\n\nmax_iterations is 3 --max-iterations=3")
    assert "pytest: 1 failed" in text
    assert stat.S_IMODE((place.artifacts / "prompt.md").stat().st_mode) == 0o600


def test_the_feedback_file_has_no_goal(place):
    call(place, ["sh", "-c", 'cp "$LOOPWRIGHT_FEEDBACK_FILE" got'])
    text = (place.root / "got").read_text()
    assert "pytest: 1 failed" in text
    assert "max-iterations" not in text


def test_a_link_in_place_of_the_prompt_is_replaced(place, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    place.artifacts.mkdir()
    (place.artifacts / "prompt.md").symlink_to(victim)
    call(place, ["true"])
    assert victim.read_text() == "mine"
    assert not (place.artifacts / "prompt.md").is_symlink()


@pytest.mark.parametrize("way", ["stdin", "file", "arg"])
def test_the_prompt_file_can_be_a_word(place, way):
    outcome = call(place, ["head", "-c", "6", "{prompt_file}"], prompt=way)
    assert outcome.result.summary == "# Goal"


def test_the_prompt_as_an_argument_is_one_word(place):
    show = 'echo "$#"; printf %s "$1" | head -c 6'
    assert call(place, ["sh", "-c", show, "sh"], prompt="arg").result.summary == "# Goal"
    assert (
        call(place, ["sh", "-c", 'echo "$2/$#"', "sh", "{prompt}", "last"], prompt="arg").result.summary
        == "last/2"
    )


def test_a_prompt_too_long_for_an_argument_is_not_cut(place):
    outcome = call(place, ["true"], replace(ATTEMPT, goal="x" * 200_000), prompt="arg")
    assert outcome.kind == "permanent"
    assert 'use prompt = "file"' in outcome.message


def test_the_environment_is_the_given_one_and_the_folder_too(place, monkeypatch):
    monkeypatch.setenv("NOT_GIVEN", "1")
    outcome = call(place, ["sh", "-c", 'echo "$KEPT${NOT_GIVEN-} $(pwd)"'])
    assert outcome.result.summary == f"yes {place.root.resolve()}"


def test_output_can_be_heard(place):
    heard = []
    call(replace(place, hear=heard.append), ["echo", "hello"])
    assert b"".join(heard) == b"hello\n"


def test_cancelling_ends_it(place):
    async def main():
        started = asyncio.Event()
        here = replace(place, hear=lambda chunk: started.set())
        task = asyncio.create_task(command(run=["sh", "-c", "echo x; exec sleep 60"]).call(ATTEMPT, here))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 20


# --- what cannot run ------------------------------------------------------------------------------


def test_probe_names_the_resolved_command(place):
    assert (
        command(run="sh -c 'exit 1'").probe(place)
        == f"{shutil.which('sh', path=place.env['PATH'])} -c 'exit 1'"
    )
    script = place.root / "fix.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o700)
    assert command(run="./fix.sh").probe(place) == str(script)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("pyton3", "did you mean 'python3'"),
        ("fix.sh", "write ./fix.sh"),
        ("./fix.sh", "chmod +x"),
        ("./gone.sh", "a path with a / starts at"),
        ("zzqqzzqqzz", "install it"),
    ],
)
def test_probe_names_the_nearest_fix(place, run, said):
    (place.root / "fix.sh").write_text("#!/bin/sh\n")
    with pytest.raises(NotStartable, match=said.replace("+", r"\+")):
        command(run=run).probe(place)
    assert call(place, run).kind == "permanent"


@pytest.mark.parametrize(
    "options", [{"linger": -1}, {"linger": float("nan")}, {"prompt": "x"}, {"result": "x"}]
)
def test_bad_options_are_config_errors(options):
    with pytest.raises(ConfigError):
        command(run="true", **options)


def test_a_shell_line_is_a_config_error():
    with pytest.raises(ConfigError, match="sh -c"):
        command(run="cat x | grep y")


def test_the_agent_tells_its_name_and_keys():
    agent = command(run="/usr/bin/env python3", env=("A",))
    assert (agent.name, agent.keys, agent.in_folder) == ("env", ("A",), True)


# --- the result line ------------------------------------------------------------------------------


def test_our_fields():
    found = said(
        summary="done", cost_usd=0.5, tokens=7, turns=2, claims_done=True, output={"a": 1}, session_id="s"
    )
    assert found == Said(
        summary="done",
        usage=Usage(cost_usd=0.5, tokens=7, turns=2),
        claims_done=True,
        output={"a": 1},
        session="s",
    )
    assert judged(summary="done", output={"a": 1}).result.output == {"a": 1}


def test_claudes_fields():
    usage = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_creation_input_tokens": 4,
        "cache_read_input_tokens": 8,
    }
    found = said(
        result="done", is_error=False, subtype="success", num_turns=3, total_cost_usd=0.1, usage=usage
    )
    parts = Usage(
        input_tokens=1, output_tokens=2, cache_write_tokens=4, cache_read_tokens=8, cost_usd=0.1, turns=3
    )
    assert found == Said(summary="done", usage=parts)
    assert parts.tokens == 15


@pytest.mark.parametrize("cost", ["-1", "NaN", "Infinity", "1e999", "10001", "true", '"0.5"', "null", "[1]"])
def test_a_cost_that_cannot_be_is_unknown(cost):
    for name in ("cost_usd", "total_cost_usd"):
        found = read(f'{{"type": "result", "{name}": {cost}}}'.encode())
        assert found.usage.cost_usd is None


@pytest.mark.parametrize("count", ["-1", "1.5", "true", "1e400", '"3"', "10000000000000000"])
def test_a_count_that_cannot_be_is_unknown(count):
    found = read(f'{{"type":"result","tokens":{count},"turns":{count}}}'.encode())
    assert found.usage == Usage()
    assert (
        read(f'{{"type":"result","usage":{{"input_tokens":5,"output_tokens":{count}}}}}'.encode()).usage
        == Usage()
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"the result is in",
        b'{"type": "assistant", "result": 1}',
        b'[{"type": "result"}]',
        b'{"type": "result"',
        b'{"type": ["result"]}',
        b'{"type":"result","x":' + b"[" * 100_000,
        b"",
    ],
)
def test_what_is_no_result_line(raw):
    assert read(raw) is None


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_of_any_length_costs_no_other_field(sign):
    raw = f'{{"type":"result","is_error":true,"result":"no","cost_usd":0.5,"tokens":{sign}{"9" * 5000}}}'
    found = read(raw.encode())
    assert (found.error, found.usage) == ("no", Usage(cost_usd=0.5))


@pytest.mark.parametrize("value", ["NaN", '"\\ud800"', '"' + "x" * 1_000_001 + '"'])
def test_an_output_that_is_no_json_is_left_out(value):
    found = read(f'{{"type":"result","summary":"s","output":{value}}}'.encode())
    assert (found.output, found.summary) == (None, "s")


def test_a_summary_is_clean_and_bounded():
    found = said(result="\x1b[31mred\u202e\ud800" + "x" * 9999)
    assert found.summary.startswith("red<U+202E>\ufffdx")
    assert len(found.summary.encode()) <= 2048


def test_the_last_result_line_counts_even_when_other_events_follow(place):
    first, last = line(summary="first").decode(), line(summary="last").decode()
    other = json.dumps({"type": "tool", "result": "x"})
    outcome = call(place, ["printf", "%s\\n", first, last, other, "bye"])
    assert outcome.result.summary == "last"
    assert last_result(replace(EXIT, stdout=b"{}\n")) is None


def test_result_none_reads_no_result_line(place):
    outcome = call(place, ["echo", line(is_error=True, result="no").decode()], result="none")
    assert outcome.result.usage == Usage()
    assert outcome.result.summary.startswith('{"type": "result"')


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        (
            {"is_error": True, "result": "Invalid API key", "api_error_status": 401},
            "permanent",
            "authentication",
        ),
        (
            {"is_error": True, "api_error_status": 400, "result": "Credit balance is too low"},
            "permanent",
            "billing",
        ),
        (
            {
                "is_error": True,
                "api_error_status": 429,
                "result": "You've hit your session limit · resets 3pm (UTC)",
            },
            "rate_limited",
            "resets 3pm",
        ),
        ({"is_error": True, "terminal_reason": "prompt_too_long", "result": ""}, "context_overflow", ""),
        ({"is_error": True, "error": {"message": "[API Error: 500 oops]"}}, "transient", ""),
        ({"is_error": True, "errors": ["Connection refused"]}, "transient", ""),
        ({"is_error": True, "subtype": "error_max_turns", "num_turns": 0}, "unknown", "error_max_turns"),
        ({"is_error": "yes"}, "unknown", "no message"),
        ({"status": "error", "error": {"type": "x", "message": "code 429"}}, "rate_limited", "code 429"),
        ({"error": "Invalid API key", "is_error": False}, "permanent", "authentication"),
        (  # prose, cut off by a limit of the agent's own
            {
                "is_error": True,
                "subtype": "error_max_turns",
                "result": "I now handle HTTP 429 Too Many Requests",
            },
            "unknown",
            "error_max_turns",
        ),
        ({"permission_denials": {"tool_name": "Write"}}, "blocked", "Write"),
        (
            {"permission_denials": [{"tool_name": "Write"}, {"tool_name": "Write"}, "Bash", {}]},
            "blocked",
            "Write, Bash",
        ),
        ({"needs_human": "the password"}, "blocked", "the password"),
        ({"needs_human": True}, "blocked", "asks for a person"),
    ],
)
@pytest.mark.parametrize("code", [0, 1])
def test_what_a_result_reports_decides_whatever_the_exit_code(fields, kind, message, code):
    failed = judged(replace(EXIT, code=code), **fields, cost_usd=0.5, session_id="s")
    assert isinstance(failed, Failed)
    assert failed.kind == kind
    assert message in failed.message
    assert failed.usage.cost_usd == 0.5


def test_no_turns_are_for_those_to_judge_who_see_the_work():
    assert judged(turns=0, summary="x").result.usage.turns == 0
    assert judged(replace(EXIT, code=1), num_turns=0, result="x").kind == "no_op"


def test_a_control_character_costs_no_field():
    raw = b'{"type":"result","is_error":true,"result":"\x1b[31mHTTP 429\tnow"}'
    assert read(raw).error == "HTTP 429 now"


def test_a_reset_in_a_result_is_waited_for():
    failed = judged(is_error=True, api_error_status=429, result="You've hit your limit · resets 3pm (UTC)")
    assert failed.retry_after_s == 15 * 3600


@pytest.mark.parametrize(
    "fields", [{}, {"permission_denials": []}, {"needs_human": ""}, {"needs_human": None}]
)
def test_a_good_result(fields):
    assert isinstance(judged(**fields), Worked)


def test_stderr_explains_an_error_the_result_does_not():
    end = replace(EXIT, code=1, stderr=b"Error: 401 invalid api key")
    assert judged(end, is_error=True, subtype="error_during_execution").kind == "permanent"
    assert judged(replace(end, code=0), is_error=True, subtype="error_during_execution").kind == "unknown"
    assert judged(end, turns=0).kind == "permanent"


def test_an_incomplete_result_is_degraded_and_not_good():
    assert judged(subtype="error_max_turns", num_turns=5).degraded == "error_max_turns"
    assert judged(replace(EXIT, code=1), subtype="error_max_turns", num_turns=5).kind == "unknown"


def test_what_went_wrong_beside_a_good_result_is_named():
    assert judged(replace(EXIT, code=None, signal=15), summary="s").degraded == "killed by SIGTERM"
    worked = judged(replace(EXIT, log_problem="the log could not be written: full", survivors=2), summary="s")
    assert worked.degraded == "the log could not be written: full; 2 of its processes could not be ended"


def test_an_error_made_by_the_timeout_itself_costs_no_work():
    end = replace(EXIT, code=143, ended="timeout")
    assert judged(end, is_error=True, subtype="error_during_execution", cost_usd=1).timed_out
    assert judged(end, is_error=True, result="API Error: 429").kind == "rate_limited"


def test_stdout_prose_never_decides(place):
    outcome = call(place, ["sh", "-c", "echo 'Error: 401 invalid api key'; exit 1"])
    assert outcome.kind == "unknown"
    assert outcome.message == "exit 1; its last line: Error: 401 invalid api key"
    outcome = call(place, ["sh", "-c", "echo 'HTTP 429'; exit 0"])
    assert isinstance(outcome, Worked)


def test_no_output_is_an_honest_nothing(place):
    outcome = call(place, ["true"])
    assert (outcome.result.output, outcome.result.summary) == ("", "")


def test_a_program_that_is_missing_inside_a_shell(place):
    assert call(place, ["sh", "-c", "zzqqzzqq"]).kind == "permanent"


def test_the_last_line_is_cleaned_and_short(place):
    outcome = call(place, ["printf", "a\\n\\033[31m%s\\n\\n", "x" * 500])
    assert outcome.result.summary == "x" * 199 + "…"
