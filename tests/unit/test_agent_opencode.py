"""opencode: what its recorded output comes to, what is run, what it may do."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from test_agent_command import ATTEMPT, EXIT

from loopwright.agents._said import event_of, outcome
from loopwright.agents.opencode import Heard, asked, opencode
from loopwright.core.values import NO_USAGE, Session, Usage
from loopwright.ports import Place

SAMPLES = Path(__file__).parents[1] / "cases" / "agent-samples" / "opencode"
NOW = datetime(2026, 11, 29, 13, 37).astimezone()


@pytest.fixture
def place(tmp_path):
    env = {"PATH": "/bin:/usr/bin", "HOME": str(tmp_path)}
    return Place(root=tmp_path, project=tmp_path, artifacts=tmp_path / "a", env=env, timeout_s=9, idle_s=60)


def recorded(case):
    """The events of a sample and how it ended; where its harness ended it, as loopwright would have."""
    meta = json.loads((SAMPLES / f"{case}.meta.json").read_text())
    out, err = (SAMPLES / f"{case}{ending}" for ending in (".jsonl", ".stderr.txt"))
    heard = Heard(model="fake/fake-model", workdir="/WORK")
    for line in out.read_bytes().splitlines() if out.exists() else ():
        if (event := event_of(line)) is not None:
            heard.hear(event)
    status, stderr = meta["exit_code"], err.read_bytes() if err.exists() else b""
    if status is None:
        return heard, replace(EXIT, code=143, ended="timeout", stderr=stderr)
    signalled = status < 0
    return heard, replace(
        EXIT, code=None if signalled else status, signal=-status if signalled else None, stderr=stderr
    )


def facts(agent):
    """The facts of the CLI behind an agent."""
    return agent.call.args[0]


def ended(heard, end, place):
    """What this comes to."""
    said = facts(opencode()).last(heard.said(), end, place)
    return outcome(end, said, idle_s=None, now=NOW, prose=False)


def test_a_limit_is_over_after_the_time_its_header_names(place):
    for header, seconds in ({"retry-after": "900"}, 900), ({"Retry-After-MS": "1500"}, 1.5):
        heard = Heard()
        data = {"message": "slow down", "statusCode": 429, "isRetryable": True, "responseHeaders": header}
        heard.hear({"type": "error", "error": {"name": "APIError", "data": data}})
        end = ended(heard, replace(EXIT, code=1), place)
        assert (end.kind, end.retry_after_s, end.of_login) == ("rate_limited", seconds, True)


def step(**part):
    return {
        "type": "step_finish",
        "sessionID": "s",
        "part": {"reason": "stop", "cost": 0.5, "tokens": {"input": 9, "output": 1}, **part},
    }


def test_a_request_that_was_rejected_cost_nothing_and_one_that_began_an_unknown_sum():
    error = {
        "type": "error",
        "error": {"name": "APIError", "data": {"message": "slow down", "statusCode": 429}},
    }
    heard = Heard()
    heard.hear(error)
    assert heard.said().usage == NO_USAGE
    heard = Heard()
    heard.hear({"type": "step_start", "sessionID": "s", "part": {}})
    heard.hear(error)
    assert heard.said().usage == Usage()


def test_a_step_told_twice_is_counted_once():
    heard = Heard()
    for event in (step(id="a"), step(id="a"), step(id="b")):
        heard.hear(event)
    assert (heard.usage.cost_usd, heard.usage.tokens, heard.usage.turns) == (1.0, 20, 2)


@pytest.mark.parametrize(
    ("part", "usage"),
    [
        ({"cost": 0}, Usage(turns=2, input_tokens=18, output_tokens=2, cache_write_tokens=0, cache_read_tokens=0)),
        ({"cost": -1}, Usage(turns=2, input_tokens=18, output_tokens=2, cache_write_tokens=0, cache_read_tokens=0)),
        ({"tokens": {"input": -9, "output": 1}}, Usage(cost_usd=1.0, turns=2)),
        ({"tokens": None}, Usage(cost_usd=1.0, turns=2)),
    ],
)  # fmt: skip
def test_what_cannot_be_true_of_one_step_is_unknown_of_all(part, usage):
    heard = Heard()
    heard.hear(step(id="a"))
    heard.hear(step(id="b", **part))
    assert heard.usage == usage


def test_no_step_is_no_success(place):
    assert ended(Heard(), EXIT, place).kind == "no_output"
    heard = Heard()
    heard.hear(step(id="a", reason="tool-calls"))
    assert ended(heard, EXIT, place).kind == "no_output"
    assert (
        ended(heard, replace(EXIT, code=None, signal=9, ended="timeout"), place).result.usage.tokens is None
    )


def test_how_a_last_step_ended(place):
    for reason, kind, degraded in (
        ("stop", "done", None),
        ("length", "done", "its last answer was cut"),
        ("content-filter", "blocked", None),
    ):
        heard = Heard(text="No.")
        heard.hear(step(id="a", reason=reason))
        end = ended(heard, EXIT, place)
        assert (getattr(end, "kind", "done"), getattr(end, "degraded", None)) == (kind, degraded)


def test_trouble_that_passed_is_none(place):
    heard = Heard()
    heard.hear({"type": "error", "error": {"name": "UnknownError", "data": {"message": "overloaded"}}})
    assert ended(heard, replace(EXIT, code=1), place).kind == "transient"
    heard.hear(step(id="a"))
    assert heard.said().good


@pytest.mark.parametrize("ended_by", ["idle", "timeout"])
@pytest.mark.parametrize(
    ("last_ms", "what", "kind"),
    [
        (0, "your rate limit", "rate_limited"),
        (1796000403926, "Cannot reach it", "transient"),
        (1796000403928, "your rate limit", "done"),
    ],
)
def test_a_wait_in_silence_is_told_by_its_log(last_ms, what, kind, ended_by, place):
    """The log tells of its error at 1796000403927 ms."""
    line = (
        'timestamp=2026-11-30T01:00:03.927Z level=ERROR run=1 message="stream error" providerID=p modelID=m '
        f'session.id=s small=false agent=build mode=primary error.error="AI_APICallError: {what}"\n'
    ).encode()
    stdout = json.dumps({"type": "step_start", "timestamp": last_ms}).encode() if last_ms else b""
    end = replace(EXIT, code=143, ended=ended_by, stderr=line, stdout=stdout)
    assert getattr(ended(Heard(), end, place), "kind", "done") == kind


def test_what_it_was_not_allowed_is_told_as_allow_would_let_it(place):
    heard, end = recorded("denied")
    words = ("bash(touch evil)", "bash(git diff && touch evil2)", "external_directory(/tmp/*)", "external_directory(/etc/*)")  # fmt: skip
    assert ended(heard, end, place).result.denied == words
    rules = rules_of(opencode(allow=words), place)
    assert rules["bash"]["touch evil"] == "allow"
    assert rules["external_directory"] == {"*": "deny", "/tmp/*": "allow", "/etc/*": "allow"}
    heard, end = recorded("asked")
    assert ended(heard, end, place).result.denied == ("bash(touch evil)",)


def test_the_news_it_makes():
    heard = Heard(workdir="/WORK", model="fake/fake-model")
    lines = [line for case in ("edit", "denied", "e401") for line in (SAMPLES / f"{case}.jsonl").read_bytes().splitlines()]  # fmt: skip
    news = list(filter(None, map(heard.hear, map(event_of, lines))))
    assert news[:5] == [
        "opencode, fake/fake-model",
        "write hello.txt",
        "Done: hello.txt created.",
        "bash git status --short",
        "not allowed: bash touch evil",
    ]
    assert news[-1].startswith("HTTP 401 · APIError · Incorrect API key provided")


# ── what is run ─────────────────────────────────────────────────────────────────────────────────────────

OURS = "run --format json --print-logs --log-level ERROR"
TITLE = "--title loopwright"
GOING = replace(ATTEMPT, session=Session(id="ses_1", usage=Usage(), iteration=1))


@pytest.mark.parametrize(
    ("options", "argv"),
    [
        ({}, f"{OURS} {TITLE} --agent build"),
        ({"model": "anthropic/opus"}, f"{OURS} {TITLE} --model anthropic/opus --agent build"),
        ({"session": "continue"}, f"{OURS} {TITLE} --session ses_1 --agent build"),
        ({"trust": "full"}, f"{OURS} {TITLE} --auto"),
        ({"args": ("--auto",)}, f"{OURS} {TITLE} --auto"),
        ({"args": ("--title", "x", "--agent", "mine")}, f"{OURS} --title x --agent mine"),
    ],
)
def test_what_is_run(options, argv, place):
    assert " ".join(facts(opencode(**options)).argv(GOING, place)) == argv


def content(agent, place):
    return json.loads(facts(agent).env(place)["OPENCODE_CONFIG_CONTENT"])


def rules_of(agent, place):
    return content(agent, place)["agent"]["build"]["permission"]


def test_what_it_may_do(place):
    place = replace(place, commands=(("npm", "test"), ("sh", "-c", "make && true")))
    rules = rules_of(opencode(allow=("Bash(cargo test:*)", "make lint", "webfetch", "Edit(docs/*)")), place)
    assert next(iter(rules)) == "*"  # the last that fits decides
    assert rules["*"] == "deny"
    assert next(iter(rules["bash"].items())) == ("*", "deny")
    assert {"npm test", "sh -c 'make && true'", "cargo test*", "make lint", "git status", "git diff *"} < set(
        rules["bash"]
    )
    assert rules["webfetch"] == rules["glob"] == "allow"
    assert rules["edit"] == {"*": "allow", "docs/*": "allow"}
    assert "agent" not in content(opencode(trust="full"), place)
    assert "agent" not in content(opencode(args=("--auto",)), place)
    assert set(content(opencode(args=("--agent", "mine")), place)["agent"]) == {"mine"}


def test_what_the_user_configures_is_kept_and_ours_comes_last(place):
    theirs = {"model": "a/b", "autoupdate": True, "agent": {"build": {"model": "a/c", "permission": {"edit": "ask", "bash": {"npm *": "allow"}}}}}  # fmt: skip
    both = content(opencode(), replace(place, env={"OPENCODE_CONFIG_CONTENT": json.dumps(theirs)}))
    assert (both["model"], both["agent"]["build"]["model"], both["autoupdate"]) == ("a/b", "a/c", False)
    rules = both["agent"]["build"]["permission"]
    assert (rules["edit"], next(iter(rules)), list(rules["bash"])[:2]) == ("allow", "*", ["npm *", "*"])
    for odd in ("{", "[1]"):
        assert (
            content(opencode(), replace(place, env={"OPENCODE_CONFIG_CONTENT": odd}))["share"] == "disabled"
        )


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("run", ""),
        ("run --format json --auto -m a/b", "--auto -m a/b"),
        ("run --format=json --agent build", "--agent build"),
        ("run mend-it", None),
        ("run --attach http://x", None),
        ("run --help", None),
        ("serve", None),
        ("", None),
    ],
)
def test_a_typed_command_line(typed, kept):
    assert asked(tuple(typed.split())) == (None if kept is None else tuple(kept.split()))


def test_logins_have_names_without_their_secrets(place):
    def login(model=None, **env):
        return opencode(model=model).login(replace(place, env={**place.env, **env}))

    names = [
        login(),
        login("anthropic/x"),
        login("anthropic/x", ANTHROPIC_API_KEY="sk-one"),
        login("openai/x", ANTHROPIC_API_KEY="sk-one"),
    ]
    assert len(set(names)) == 4
    assert not any(secret in name for name in names for secret in ("sk-", place.env["HOME"]))
