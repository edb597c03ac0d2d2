"""Any agent of the Agent Client Protocol: what it tells, what it may do, how a conversation with it ends."""

import asyncio
import json
import shlex
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from test_agent_command import ATTEMPT, EXIT

from loopwright.agents import _acp
from loopwright.agents._said import outcome
from loopwright.agents.acp import Heard, acp, allowed
from loopwright.core.values import Left, Session, Usage
from loopwright.errors import ConfigError, NotStartable
from loopwright.ports import Place

TESTS = Path(__file__).parents[1]
SAMPLES = TESTS / "cases" / "agent-samples" / "acp"
NOW = datetime(2026, 11, 29, 13, 37).astimezone()
DONE = {"stopReason": "end_turn"}


@pytest.fixture
def place(tmp_path):
    (tmp_path / "w").mkdir()
    env = {"PATH": f"{Path(sys.executable).parent}:/bin:/usr/bin", "HOME": str(tmp_path)}
    return Place(root=tmp_path / "w", project=tmp_path, artifacts=tmp_path / "a", env=env, timeout_s=20)


def ended(heard, end=EXIT):
    return outcome(end, heard.said(), idle_s=None, now=NOW, prose=False)


# ── what was recorded ───────────────────────────────────────────────────────────────────────────────────

# sample: its name, its answer, dollars, tokens (input without caches, read from a cache, output), its text
TABLE = [
    ("opencode", "OpenCode", {"usage": {"inputTokens": 500, "outputTokens": 30, "totalTokens": 1530, "cachedReadTokens": 1000}}, 0.00176, None, None, None, None),
    ("gemini-cli", "gemini-cli", {"_meta": {"quota": {"token_count": {"input_tokens": 2700, "output_tokens": 70}}}}, None, 2770, 2700, None, 70),
    ("qwen-code-0.15.10", "qwen-code", {}, None, 2770, 1500, 1200, 70),
    ("copilot", "Copilot", {"usage": {"inputTokens": 2700, "outputTokens": 70, "totalTokens": 2770, "cachedReadTokens": 1200}}, None, 2770, 1500, 1200, 70),
]  # fmt: skip


def test_the_table_has_every_sample():
    assert sorted(row[0] for row in TABLE) == sorted(path.name.split(".session")[0] for path in SAMPLES.iterdir() if path.suffix == ".jsonl")  # fmt: skip


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_what_a_sample_comes_to(row):
    sample, name, answer, cost, tokens, taken, held, given = row
    heard = Heard(workdir="/WORK")
    heard.hear({"type": "agent", "info": {"name": name}})
    heard.hear({"type": "session", "session": "s"})
    news = []
    for line in (SAMPLES / f"{sample}.session_update.jsonl").read_text().splitlines():
        news.append(heard.hear({"type": "update", "update": json.loads(line)}))
    assert any(line.startswith("edit ") for line in news)
    assert heard.said() is None
    heard.hear({"type": "result", **DONE, **answer})
    result = ended(heard).result
    assert (result.session, result.summary) == ("s", "Done: hello.txt created.")
    usage = result.usage
    assert [usage.cost_usd, usage.tokens, usage.input_tokens, usage.cache_read_tokens, usage.output_tokens] == [cost, tokens, taken, held, given]  # fmt: skip


def test_the_cost_of_a_session_that_went_on_is_without_what_came_before():
    before = Session(id="s", usage=Usage(cost_usd=0.5), iteration=1)
    for session, amount, cost in (
        ("s", 0.75, 0.25),
        ("s", 0.25, None),
        ("other", 0.75, 0.75),
        ("other", 0, None),
    ):
        heard = Heard(before=before)
        heard.hear({"type": "session", "session": session})
        chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}}
        update = {"sessionUpdate": "usage_update", "cost": {"amount": amount, "currency": "USD"}}
        for found in (chunk, update):
            heard.hear({"type": "update", "update": found})
        assert heard.usage.cost_usd == cost
    heard.hear({"type": "update", "update": {**update, "cost": {"amount": 3, "currency": "EUR"}}})
    assert heard.usage.cost_usd is None


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        ({"stopReason": "end_turn"}, "done", None),
        ({"stopReason": "max_tokens"}, "done", "its last answer was cut"),
        ({"stopReason": "max_turn_requests"}, "done", "its own limit of turns"),
        ({"stopReason": "cancelled"}, "done", "its turn was cancelled"),
        ({"stopReason": "refusal"}, "blocked", "the model refused: No."),
        ({"error": {"code": -32000, "message": "Authentication required"}}, "permanent", "authentication: "),
        ({"error": {"code": -32603, "message": "oops", "data": {"status": 503}}}, "transient", "a passing fault: "),
        ({"error": {"code": -32603, "message": "slow", "data": {"error": "HTTP 429", "retry-after": 9}}}, "rate_limited", "rate"),
        ({"error": "broken"}, "unknown", "it reports an error: broken"),
    ],
)  # fmt: skip
def test_how_an_answer_is_taken(answer, kind, text):
    heard = Heard(text="No.", worked=True)
    heard.hear({"type": "result", **answer})
    end = ended(heard)
    assert getattr(end, "kind", "done") == kind
    assert (getattr(end, "message", None) or end.degraded or "").startswith(text or "")


def test_a_turn_without_a_word_or_a_call_is_nothing():
    heard = Heard()
    heard.hear({"type": "result", **DONE})
    assert ended(heard).kind == "no_op"


# ── what it may do ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("call", "denied"),
    [
        ({"kind": "edit", "locations": [{"path": "a.txt"}]}, ""),
        ({"kind": "delete", "rawInput": {"path": "sub/a.txt"}}, ""),
        ({"kind": "edit", "locations": [{"path": "a.txt"}, {"path": "/etc/x"}]}, "edit(a.txt)"),
        ({"kind": "edit", "content": [{"type": "diff", "path": "../x"}]}, "edit(../x)"),
        ({"kind": "edit", "locations": [{"path": "link/x"}]}, "edit(link/x)"),
        ({"kind": "edit", "title": "all"}, "edit(all)"),
        ({"kind": "edit", "locations": [{"path": "/srv/data/x"}]}, ""),
        ({"kind": "read", "locations": [{"path": "/etc/hosts"}]}, ""),
        ({"kind": "execute", "rawInput": {"command": "npm test"}}, ""),
        ({"kind": "execute", "title": "npm test"}, ""),
        ({"kind": "execute", "rawInput": {"command": ["npm", "test"]}}, ""),
        ({"kind": "execute", "rawInput": {"command": "npm test; rm -rf /"}}, "execute(npm test; rm -rf /)"),
        ({"kind": "execute", "rawInput": {"command": "git diff --stat"}}, ""),
        ({"kind": "execute", "rawInput": {"command": "git diff $(rm x)"}}, "execute(git diff $(rm x))"),
        (
            {"kind": "execute", "rawInput": {"command": "git diff --output=../x"}},
            "execute(git diff --output=../x)",
        ),
        ({"kind": "execute", "rawInput": {"command": "git push"}}, "execute(git push)"),
        ({"kind": "execute", "rawInput": {"command": "cargo test -q"}}, ""),
        ({"kind": "execute", "rawInput": {"command": "cargo test & rm x"}}, "execute(cargo test & rm x)"),
        ({"kind": "fetch", "title": "http://x"}, ""),
        ({"kind": "switch_mode"}, "switch_mode"),
        ({"title": "magic"}, "other(magic)"),
        ({}, "other"),
    ],
)
def test_what_is_allowed(call, denied, place, monkeypatch):
    monkeypatch.chdir(place.root)
    (place.root / "link").symlink_to("/etc")
    place = replace(place, commands=(("npm", "test"),))
    words = ("Bash(cargo test:*)", "webfetch", "edit(/srv/data/*)")
    settings = {"allow": allowed(words, place), "looking": ["git diff"]}
    assert _acp.denial(call, settings) == denied


def test_words_of_allow(place):
    assert allowed(("make lint", "execute(a b)", "Write(x)"), place) == [("execute", "make lint"), ("execute", "a b"), ("edit", "x")]  # fmt: skip


# ── the conversation ────────────────────────────────────────────────────────────────────────────────────


def converse(place, plan, attempt=ATTEMPT, **options):
    """What an agent by this plan comes to, and what it was sent."""
    path = place.project / "plan.json"
    path.write_text(json.dumps(plan))
    heard = Path(f"{path}.heard")
    heard.unlink(missing_ok=True)
    run = [sys.executable, "-I", str(TESTS / "agents" / "protocol.py"), str(path)]
    end = asyncio.run(acp(run=run, **options).call(attempt, place))
    return end, [json.loads(line) for line in heard.read_text().splitlines()]


def chunk(text):
    return {"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}}


def test_a_whole_conversation(place):
    news = []
    place = replace(place, hear=lambda line: news.append(line.decode().strip()), commands=(("npm", "test"),))
    call = {"toolCallId": "1", "kind": "execute", "rawInput": {"command": "npm test"}}
    plan = {
        "prompt": [
            {"line": "not a message"},
            {"update": {"sessionUpdate": "tool_call", "title": "npm test", "status": "in_progress", **call}},
            {"ask": {"toolCallId": "1"}},  # what it is about was told before
            {"ask": {"toolCallId": "2", "kind": "execute", "rawInput": {"command": "rm -rf /"}}},
            {"call": "fs/read_text_file"},
            {"line": "x" * (17 << 20)},
            chunk("All "),
            chunk("good."),
            {"result": DONE},
        ]
    }
    big = replace(ATTEMPT, goal="x" * 1_000_000)
    end, sent = converse(place, plan, big, model="m")
    assert end.result.summary == "All good."
    assert end.result.denied == ("execute(rm -rf /)",)
    assert (end.result.session, end.degraded) == ("s", None)
    methods = [message.get("method") for message in sent]
    assert methods[:4] == ["initialize", "session/new", "session/set_model", "session/prompt"]
    assert "x" * 1_000_000 in sent[3]["params"]["prompt"][0]["text"]
    assert [m["result"]["outcome"].get("optionId") for m in sent[4:6]] == ["allow_once", "reject_once"]
    assert sent[6]["error"]["code"] == _acp.NO_METHOD
    assert sent[1]["params"]["cwd"] == str(place.root.resolve())
    assert news == ["plan 1", "execute npm test", "not allowed: execute(rm -rf /)"]


def test_full_trust_allows_all(place):
    plan = {"prompt": [{"ask": {"toolCallId": "2", "kind": "other"}}, chunk("x"), {"result": DONE}]}
    end, sent = converse(place, plan, trust="full")
    assert end.result.denied == ()
    assert sent[3]["result"]["outcome"]["optionId"] == "allow_once"


@pytest.mark.parametrize(
    ("able", "method"),
    [
        ({"loadSession": True}, "session/load"),
        ({"loadSession": True, "sessionCapabilities": {"resume": {}}}, "session/resume"),
        ({}, "session/new"),
    ],
)
def test_a_session_goes_on_where_the_agent_can(able, method, place):
    going = replace(ATTEMPT, session=Session(id="s7", usage=Usage(), iteration=1))
    plan = {"able": able, "prompt": [chunk("on"), {"result": DONE}]}
    end, sent = converse(place, plan, going, session="continue")
    assert sent[1]["method"] == method
    assert end.result.session == ("s" if method == "session/new" else "s7")


def test_a_session_that_is_gone(place):
    going = replace(ATTEMPT, session=Session(id="s7", usage=Usage(), iteration=1))
    plan = {"able": {"loadSession": True}, "load": {"error": {"code": -32603, "message": "no"}}, "prompt": []}
    end, _ = converse(place, plan, going, session="continue")
    assert (end.kind, end.session) == ("no_output", "")
    plan["load"]["error"]["code"] = _acp.AUTHENTICATE
    end, _ = converse(place, plan, going, session="continue")
    assert end.kind == "permanent"
    assert "log in again" in end.message


def test_an_agent_that_ends_without_an_answer(place):
    end, _ = converse(place, {"prompt": [chunk("x"), {"exit": 3}]})
    assert "the agent ended (exit 3) before it answered session/prompt" in end.message
    assert end.usage.tokens is None


def test_it_is_cut_for_its_cost(place):
    dear = {"update": {"sessionUpdate": "usage_update", "cost": {"amount": 2, "currency": "USD"}}}
    plan = {"prompt": [chunk("x"), dear, {"ask": {"toolCallId": "1"}}, {"call": "wait"}]}
    left = Left(iterations=1, seconds=60, attempts=1, budget_usd=1.0)
    end, _ = converse(place, plan, replace(ATTEMPT, left=left))
    assert (end.timed_out, end.result.usage.cost_usd) == (True, 2.0)


def test_which_agent_must_be_said(place):
    with pytest.raises(ConfigError, match="which agent"):
        acp()
    assert acp(model="gemini --acp").call.args[0].start == ("gemini", "--acp")
    with pytest.raises(NotStartable, match="install it"):
        acp(run="no-such-agent --acp").probe(place)


def test_opencode_gets_the_rules_of_its_adapter(place):
    def content(**options):
        found = acp(run="opencode acp", **options).call.args[0].env(place)
        return json.loads(found["OPENCODE_CONFIG_CONTENT"])

    assert content()["agent"]["build"]["permission"]["bash"]["*"] == "deny"
    assert "agent" not in content(trust="full")
    assert acp(run="gemini --acp").call.args[0].env(place) == {}


def test_what_is_run(place):
    facts = acp(run="gemini --acp", args=("--debug",), model="m").call.args[0]
    *words, settings = facts.argv(ATTEMPT, place)
    assert shlex.join((*facts.start, *words)) == "gemini --acp --debug"
    assert json.loads(settings)["model"] == "m"
