"""Codex: what its recorded output comes to, what is run, what it was not allowed."""

import asyncio
import json
import time
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path

import pytest
from test_agent_command import ATTEMPT, EXIT

from loopwright.agents import _cli
from loopwright.agents._said import event_of, outcome
from loopwright.agents.codex import Heard, asked, codex
from loopwright.core.values import Session, Usage
from loopwright.errors import ConfigError
from loopwright.ports import Place

SAMPLES = Path(__file__).parents[1] / "cases" / "agent-samples" / "codex"
NOW = datetime(2026, 11, 29, 13, 37).astimezone()
EDIT = "01a22783-6473-7fa3-acbd-b1dd9cbac4e5"
BEFORE = Session(
    id=EDIT,
    usage=Usage(input_tokens=1500, cache_write_tokens=0, cache_read_tokens=1200, output_tokens=70),
    iteration=1,
)

# case: what it comes to, tokens (input without caches, read from a cache, output), the start of its text or message.
# "s" stands for the session of its first event, "-" for none.
TABLE = """
denied           done              720   600    0  120  s  I was not allowed to.
edit             done             2770  1500 1200   70  s  Done: hello.txt created.
edit-ww          done             2770  1500 1200   70  s  Done: hello.txt created.
e429once         done             2770  1500 1200   70  s  Done: hello.txt created.
schema           done              120   100    0   20  s  {"ok": true}
resume           done             1530   500 1000   30  s  Second answer.
shell            timed_out           -     -    -    -  -  -
shell-ww         timed_out           -     -    -    -  -  -
ctx              context_overflow    0     -    -    -  s  the context is full: Codex ran out of room
e401             permanent           0     -    -    -  s  authentication: unexpected status 401 Unauthorized
e403             permanent           0     -    -    -  s  authentication: unexpected status 403 Forbidden
e404             permanent           0     -    -    -  s  model: model: fake-model not found
quota            permanent           0     -    -    -  s  billing: Quota exceeded.
e429             rate_limited        0     -    -    -  s  rate limited: exceeded retry limit, last status: 429
e429long         rate_limited        -     -    -    -  s  rate limited: Reconnecting... 1/5 (exceeded retry limit
usage            rate_limited        0     -    -    -  s  rate limited: You’ve hit your usage limit.
e500             transient           0     -    -    -  s  a passing fault: We’re currently experiencing high demand
e500-mr0         transient           0     -    -    -  s  a passing fault: We’re currently experiencing high demand
e529             transient           0     -    -    -  s  a passing fault: unexpected status 503
instream         transient           0     -    -    -  s  a passing fault: Selected model is at capacity.
middrop          transient           -     -    -    -  s  a passing fault: stream disconnected before completion
refused          transient           0     -    -    -  s  a passing fault: Reconnecting... waiting for network
refused-mr0      transient           0     -    -    -  s  a passing fault: Reconnecting... waiting for network
resume-not-found no_output           -     -    -    -  "" its session is gone: Error: thread/resume
hang             unknown             -     -    -    -  -  killed by SIGTERM
term             unknown             -     -    -    -  -  killed by SIGTERM
kill             unknown             -     -    -    -  -  killed by SIGKILL
int              unknown             -     -    -    -  -  exit 1
"""
ROWS = {cells[0]: cells[1:] for row in TABLE.strip().splitlines() if (cells := row.split(maxsplit=7))}


@pytest.fixture
def place(tmp_path):
    (tmp_path / "home" / ".codex").mkdir(parents=True)
    env = {"PATH": "/bin:/usr/bin", "HOME": str(tmp_path / "home")}
    return Place(root=tmp_path, project=tmp_path, artifacts=tmp_path / "a", env=env, timeout_s=9)


def recorded(case):
    """The events of a sample and how it ended; where its harness ended it, as loopwright would have."""
    meta = json.loads((SAMPLES / f"{case}.meta.json").read_text())
    out, err = (SAMPLES / f"{case}{ending}" for ending in (".jsonl", ".stderr.txt"))
    heard = Heard(model="gpt-5.5", workdir="/WORK", before=BEFORE if case == "resume" else None)
    for line in out.read_bytes().splitlines() if out.exists() else ():
        if (event := event_of(line)) is not None:  # the harness cut the last one
            heard.hear(event)
    status = meta["exit_code"]
    stderr = err.read_bytes() if err.exists() else b""
    if status is None:
        return heard, replace(EXIT, code=143, ended="lingered" if heard.over else "timeout", stderr=stderr)
    signalled = status < 0
    return heard, replace(
        EXIT, code=None if signalled else status, signal=-status if signalled else None, stderr=stderr
    )


def test_the_table_has_every_sample():
    assert sorted(ROWS) == sorted(path.name.split(".")[0] for path in SAMPLES.glob("*.meta.json"))


@pytest.mark.parametrize("case", ROWS)
def test_what_a_sample_comes_to(case, place):
    kind, tokens, taken, held, given, session, text = ROWS[case]
    heard, end = recorded(case)
    said = facts(codex()).last(heard.said(), end, place)
    ended = outcome(end, said, idle_s=None, now=NOW, prose=False)
    result = getattr(ended, "result", ended)
    expected = [None if cell == "-" else int(cell) for cell in (tokens, taken, held, given)]
    usage = result.usage
    assert [usage.tokens, usage.input_tokens, usage.cache_read_tokens, usage.output_tokens] == expected
    assert usage.cost_usd == (0.0 if tokens == "0" else None)  # no answer began: nothing was used
    assert getattr(ended, "kind", "timed_out" if getattr(ended, "timed_out", False) else "done") == kind
    said_session = result.session if result.session is None or result.session != heard.session else "s"
    assert said_session == {"-": None, '""': ""}.get(session, session)
    words = getattr(ended, "message", None) or result.summary
    assert words.startswith("" if text == "-" else text)


def test_a_usage_limit_is_over_at_the_time_it_names():
    heard, end = recorded("usage")
    ended = outcome(end, heard.said(), idle_s=None, now=NOW, prose=False)
    assert ended.retry_after_s == 2 * 3600
    assert ended.of_login


def test_tokens_that_cannot_be_true_are_unknown():
    heard, _ = recorded("resume")
    for usage in (
        {"input_tokens": 100, "cached_input_tokens": 200, "output_tokens": 5},
        {"input_tokens": 1000, "output_tokens": 50},  # less than the thread had used before
        {"input_tokens": "many", "output_tokens": 5},
        {},
    ):
        heard.hear({"type": "turn.completed", "usage": usage})
        assert heard.usage.tokens is None
        assert heard.usage.turns == 1


def test_another_thread_is_counted_from_nothing():
    heard, _ = recorded("resume")
    heard.before = replace(BEFORE, id="another")
    assert heard.usage.tokens == 4300


def test_what_its_sandbox_stopped_is_told_as_allow_would_let_it():
    heard, _ = recorded("denied")
    assert heard.said().denied == ("../outside", "/srv/data", "./.git", "network")
    codex(allow=heard.said().denied)
    free = Heard(sandboxed=False)
    for line in (SAMPLES / "denied.jsonl").read_bytes().splitlines():
        free.hear(event_of(line))
    assert free.said().denied == ()


@pytest.mark.parametrize(
    ("output", "denied"),
    [
        ("Error: EROFS: read-only file system, open '/opt/x/y.json'", ("/opt/x",)),
        ("/bin/bash: line 3: /opt/x: Read-only file system", ("/opt",)),
        ("touch: cannot touch '.': Read-only file system", ("./",)),
        ("error: Read-only file system (os error 30)", ()),
        ("curl: (6) Could not resolve host: example.com", ("network",)),
        ("Error: connect EPERM 1.2.3.4:443", ("network",)),
        ("chown: changing ownership of 'x': Operation not permitted", ()),
        ("FAILED test_x.py::test_read_only_file_system", ()),
    ],
)
def test_what_an_error_of_a_command_means(output, denied):
    heard = Heard()
    item = {"type": "command_execution", "status": "failed", "exit_code": 1, "aggregated_output": output}
    heard.hear({"type": "item.completed", "item": item})
    heard.hear({"type": "turn.completed"})
    assert heard.said().denied == denied


def test_what_a_command_prints_that_ends_well_means_nothing():
    heard = Heard()
    output = "sh: 1: /opt/x: Read-only file system"
    item = {"type": "command_execution", "status": "completed", "exit_code": 0, "aggregated_output": output}
    heard.hear({"type": "item.completed", "item": item})
    heard.hear({"type": "turn.completed"})
    assert heard.said().denied == ()


def test_trouble_that_passed_is_none():
    heard = Heard()
    waits = {"type": "error", "message": "Reconnecting... waiting for network (Connection failed)"}
    heard.hear(waits)
    assert not heard.over
    assert heard.said().error
    heard.hear({"type": "item.completed", "item": {"type": "agent_message", "text": "on"}})
    assert heard.said() is None
    heard.hear(waits)
    assert not heard.over
    heard.hear(waits)
    assert heard.over
    heard.hear({"type": "turn.completed"})
    assert heard.said().good


def test_the_news_it_makes():
    heard = Heard(workdir="/WORK", model="gpt-5.5")
    lines = [
        line for case in ("edit", "denied") for line in (SAMPLES / f"{case}.jsonl").read_bytes().splitlines()
    ]
    assert list(filter(None, map(heard.hear, map(event_of, lines))))[:6] == [
        "codex, gpt-5.5",
        "edits hello.txt",
        "Done: hello.txt created.",
        "codex, gpt-5.5",
        "echo x > ../outside/a.txt",
        """python3 -c 'open("/srv/data/x", "w")'""",
    ]


# ── what is run ─────────────────────────────────────────────────────────────────────────────────────────

OURS = "exec --json --skip-git-repo-check"
QUIET = "-c check_for_update_on_startup=false -c analytics.enabled=false -c allow_login_shell=false"
GOING = replace(ATTEMPT, session=BEFORE)


def facts(agent):
    """The facts of the CLI behind an agent."""
    return agent.call.args[0]


@pytest.mark.parametrize(
    ("options", "argv"),
    [
        ({}, f"{OURS} -s workspace-write {QUIET} -"),
        ({"model": "gpt-5.5"}, f"{OURS} -m gpt-5.5 -s workspace-write {QUIET} -"),
        ({"trust": "full"}, f"{OURS} --dangerously-bypass-approvals-and-sandbox {QUIET} -"),
        (
            {"allow": ("/srv", "network")},
            f"{OURS} -s workspace-write --add-dir /srv -c sandbox_workspace_write.network_access=true {QUIET} -",
        ),
        ({"session": "continue"}, f"{OURS} -s workspace-write {QUIET} resume {EDIT} -"),
        ({"args": ("-s", "read-only")}, f"{OURS} {QUIET} -s read-only -"),
        ({"args": ("-c", "sandbox_mode=read-only")}, f"{OURS} {QUIET} -c sandbox_mode=read-only -"),
    ],
)
def test_what_is_run(options, argv, place):
    assert " ".join(facts(codex(**options)).argv(GOING, place)) == argv


def test_what_cannot_be_allowed_is_said():
    with pytest.raises(ConfigError, match="codex has no list of commands"):
        codex(allow=("Bash(npm test)",))


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("exec -", ""),
        (
            "exec --json --full-auto -m gpt-5.5 -s workspace-write -",
            "--full-auto -m gpt-5.5 -s workspace-write",
        ),
        ("exec -c model=gpt-5.5 --skip-git-repo-check", "-c model=gpt-5.5"),
        ("exec mend-it", None),
        ("exec resume --last", None),
        ("exec --help", None),
        ("login", None),
        ("", None),
    ],
)
def test_a_typed_command_line(typed, kept):
    assert asked(tuple(typed.split())) == (None if kept is None else tuple(kept.split()))


@pytest.mark.parametrize(
    ("options", "model"),
    [
        ({"model": "a"}, "a"),
        ({"args": ("-m", "b")}, "b"),
        ({"args": ("--model=c",)}, "c"),
        ({"args": ("-c", 'model="d"')}, "d"),
        ({"args": ("-c", "model_provider=e", "-m")}, None),
    ],
)
def test_the_model_whose_tokens_they_are(options, model):
    assert facts(codex(**options)).events(ATTEMPT).usage.model == model


@pytest.mark.parametrize(
    ("auth", "env", "args", "plan"),
    [
        ({"auth_mode": "chatgpt", "tokens": {"id_token": "x"}}, {}, (), True),
        ({"OPENAI_API_KEY": None, "tokens": {"id_token": "x"}}, {}, (), True),
        ({"auth_mode": "apikey", "OPENAI_API_KEY": "sk-x"}, {}, (), False),
        ({"auth_mode": "chatgpt"}, {"CODEX_API_KEY": "sk-x"}, (), False),
        ({"auth_mode": "chatgpt"}, {}, ("-c", "model_provider=own"), False),
        ([], {}, (), False),
        (None, {}, (), False),
    ],
)
def test_whether_a_plan_pays(auth, env, args, plan, place):
    place = replace(place, env={**place.env, **env})
    if auth is not None:
        (Path(place.env["HOME"]) / ".codex" / "auth.json").write_text(json.dumps(auth))
    heard, end = recorded("edit")
    assert facts(codex(args=args)).last(heard.said(), end, place).usage.plan is plan


def test_logins_have_names_without_their_secrets(place):
    def login(**env):
        return codex().login(replace(place, env={**place.env, **env}))

    kept = Path(place.env["HOME"]) / ".codex" / "auth.json"
    names = [
        login(),
        login(OPENAI_API_KEY="sk-one"),
        login(OPENAI_API_KEY="sk-two"),
        login(CODEX_API_KEY="k"),
    ]
    assert len(set(names)) == 4
    assert not any(secret in name for name in names for secret in ("sk-", place.env["HOME"]))
    kept.write_text('{"auth_mode": "chatgpt"}')
    assert login(OPENAI_API_KEY="sk-one") == login() == names[0]  # that key is not what it logs in with


# ── how it is ended ─────────────────────────────────────────────────────────────────────────────────────


def test_a_wait_in_silence_is_ended_and_a_short_one_is_not(place, monkeypatch):
    monkeypatch.setattr(_cli, "RETRY_S", 0.3)
    error = json.dumps(
        {"type": "error", "message": "Reconnecting... 1/5 (last status: 429 Too Many Requests)"}
    )
    went_on = json.dumps({"type": "item.started", "item": {"type": "command_execution", "command": "x"}})
    done = json.dumps({"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}})

    def call(script):
        agent = codex(run=["sh", "-c", f"cat > /dev/null; {script}"])
        alive = count().__next__
        works = replace(place, idle_s=2, grace_s=0.3, timeout_s=30, active=alive)
        return asyncio.run(agent.call(ATTEMPT, works))

    began = time.monotonic()
    waited = call(f"echo '{error}'; exec sleep 60")
    assert waited.kind == "rate_limited"
    assert time.monotonic() - began < 15
    assert call(f"echo '{error}'; echo '{went_on}'; sleep 1; echo '{done}'").result.usage.tokens == 2
