"""The example agent over a model, as the documentation has it, against the scripted server; and what its errors mean."""

import importlib.util
import re
import shutil
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from fakellm import Fake

from loopwright import Loop, RateLimited, Result, Usage, run
from loopwright.cli.app import run_app
from loopwright.core import events as ev
from loopwright.template import PLACEHOLDERS

EXAMPLE = Path(__file__).parents[2] / "examples" / "llm"
HAIKU = "slow rain on the roof\nthe kettle begins to hum\nnobody is late"


def example():
    spec = importlib.util.spec_from_file_location("llm_example", EXAMPLE / "agent.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.write


def fine(output):
    return "rain" in output


@pytest.fixture
def at(monkeypatch):
    """Runs a loop of the example against an address, and gives its result with the failures on the way."""

    def start(url, **said):
        monkeypatch.setenv("LLM_URL", f"{url}/v1")
        monkeypatch.setenv("LLM_KEY", "k-123")
        facts = []
        options = {"max_iterations": 3, "backoff": {"first": 0.01, "max": 0.02}} | said
        loop = Loop("a haiku about rain", agent=example(), gates=[fine], **options)
        final = run(loop, store="memory:", observe=facts.append)
        return final, [e for e in facts if isinstance(e, ev.AttemptFailed)], facts

    return start


def error(status, message="", **more):
    return {"error": {"status": status, "message": message, **more}}


def test_the_example_runs_as_it_stands_and_its_prompt_carries_the_feedback(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "llm"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    script = {
        "strict": True,
        "turns": [
            {"text": "one line", "usage": {"input": 50, "output": 3}, "expect": {"body_contains": "# Goal"}},
            {
                "text": HAIKU,
                "usage": {"input": 90, "output": 20},
                "expect": {"body_contains": "What does not pass yet"},
            },
        ],
    }
    with Fake(script) as fake:
        monkeypatch.setenv("LLM_URL", f"{fake.url}/v1")
        code = run_app(["run", "loop.toml", "--as", "r", "-C", str(folder)])
        assert (code, fake.failures, len(fake.entries)) == (0, [], 2)
    capsys.readouterr()
    assert run_app(["show", "r", "--json", "-C", str(folder)]) == 0
    assert '"tokens": 163' in capsys.readouterr().out
    assert run_app(["show", "r", "--prompt", "--iteration", "2", "-C", str(folder)]) == 0
    assert "> one line" in capsys.readouterr().out


def test_it_is_about_twenty_lines():
    lines = (EXAMPLE / "agent.py").read_text().partition("def write")[2].splitlines()
    assert len(lines) <= 22


FAILURES = [
    (error(401, "Incorrect API key provided", code="invalid_api_key"), "permanent", "permanent_error"),
    (error(404, "The model x does not exist", code="model_not_found"), "permanent", "permanent_error"),
    (error(404, "not here"), "permanent", "permanent_error"),
    (
        error(429, "You exceeded your current quota", code="insufficient_quota"),
        "permanent",
        "permanent_error",
    ),
    (error(429, "slow down"), "rate_limited", "quality_reached"),
    (error(500, "oops"), "transient", "quality_reached"),
    (error(503, "overloaded"), "transient", "quality_reached"),
    (
        error(400, "the maximum context length is 8192", code="context_length_exceeded"),
        "context_overflow",
        "quality_reached",
    ),
    (error(400, "no"), "unknown", "quality_reached"),
    ({"disconnect": "before"}, "transient", "quality_reached"),
    ({"disconnect": "mid"}, "transient", "quality_reached"),
]


@pytest.mark.parametrize(("turn", "kind", "reason"), FAILURES, ids=lambda value: str(value)[:40])
def test_what_the_server_refuses_has_its_kind(at, turn, kind, reason):
    with Fake({"turns": [turn, {"text": HAIKU}], "when_exhausted": "repeat_last"}) as fake:
        final, failed, _ = at(fake.url)
    assert [each.kind for each in failed] == [kind]
    assert final.reason == reason
    assert turn.get("error", {}).get("message", "") in failed[0].message


def test_the_wait_that_a_server_asks_for_is_kept(at):
    with Fake({"turns": [error(429, "slow", headers={"retry-after": "0.3"}), {"text": HAIKU}]}) as fake:
        began = time.monotonic()
        final, failed, facts = at(fake.url)
    assert final.passed
    assert failed[0].retry_after == 0.3
    assert time.monotonic() - began >= 0.3
    assert final.iterations == 1
    assert any(isinstance(e, ev.WaitStarted) and e.why == "rate limited" for e in facts)


def test_nobody_listens(at):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _, failed, _ = at(f"http://127.0.0.1:{port}", attempts=2, max_iterations=1)
    assert [each.kind for each in failed] == ["transient", "transient"]
    assert "refused" in failed[0].message


def test_an_answer_that_hangs_ends_with_the_attempt(at):
    with Fake({"turns": [{"hang": 5}]}) as fake:
        began = time.monotonic()
        _, failed, _ = at(fake.url, attempt_timeout=0.3, attempts=1, max_iterations=1)
    assert failed[0].kind in {"timeout", "transient"}
    assert time.monotonic() - began < 4


def test_an_error_whose_words_never_come_holds_nothing_up(at, monkeypatch):
    monkeypatch.setattr("loopwright.agents.http_errors.READING_S", 0.2)

    class Slow(urllib.error.HTTPError):
        def read(self, n=-1):
            time.sleep(2)
            return b""

    def work(attempt):
        raise Slow("http://x", 503, "busy", {}, None)

    began, facts = time.monotonic(), []
    run(
        Loop("g", agent=work, gates=[fine], attempts=1, max_iterations=1),
        store="memory:",
        observe=facts.append,
    )
    assert time.monotonic() - began < 1.5
    assert [e.kind for e in facts if isinstance(e, ev.AttemptFailed)] == ["transient"]


def test_a_function_says_itself_that_it_is_rate_limited():
    facts, times = [], []

    def work(attempt):
        times.append(attempt.number)
        if len(times) <= 4:  # more than there are attempts
            raise RateLimited("the plan is used up", retry_after_s=0.01)
        return Result("rain", usage=Usage(tokens=1))

    final = run(
        Loop("g", agent=work, gates=[fine], backoff={"first": 0.01}), store="memory:", observe=facts.append
    )
    assert final.passed
    failed = [e for e in facts if isinstance(e, ev.AttemptFailed)]
    assert {(e.kind, e.message, e.retry_after) for e in failed} == {
        ("rate_limited", "the plan is used up", 0.01)
    }
    assert len(failed) == 4


def test_the_page_shows_the_example_as_it_is():
    page = (EXAMPLE.parents[1] / "docs" / "llm-agents.md").read_text()
    assert f"```python\n{(EXAMPLE / 'agent.py').read_text()}```" in page


def test_the_page_names_every_placeholder():
    page = (EXAMPLE.parents[1] / "docs" / "llm-agents.md").read_text()
    assert set(re.findall(r"^\| `\{(\w+)\}` \|", page, re.MULTILINE)) == set(PLACEHOLDERS)
