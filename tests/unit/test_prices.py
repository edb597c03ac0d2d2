"""Dollars from tokens: figures calculated by hand from list prices, and what stays unknown."""

import socket
import sys

import pytest

from loopwright.core.values import UNKNOWN_USAGE, Usage
from loopwright.prices import priced


def usage(model, fresh=1500, written=0, read=1200, out=70, **more):
    return Usage(
        model=model,
        input_tokens=fresh,
        cache_write_tokens=written,
        cache_read_tokens=read,
        output_tokens=out,
        **more,
    )


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("prices are looked up without a network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize(
    ("used", "dollars_per_million"),
    [  # Sonnet 4.5: 3 in, 3.75 cache write, 0.30 cache read, 15 out
        (usage("claude-sonnet-4-5"), 1500 * 3 + 1200 * 0.3 + 70 * 15),
        (usage("claude-sonnet-4-5", written=2000), 1500 * 3 + 2000 * 3.75 + 1200 * 0.3 + 70 * 15),
        (usage("claude-sonnet-4-5", fresh=11, written=15378, read=15178, out=230), 11 * 3 + 15378 * 3.75 + 15178 * 0.3 + 230 * 15),
        (usage("anthropic/claude-sonnet-4-5-20250929"), 1500 * 3 + 1200 * 0.3 + 70 * 15),
        (usage("claude-sonnet-4-5@20250929"), 1500 * 3 + 1200 * 0.3 + 70 * 15),
        (usage("openrouter/anthropic/claude-sonnet-4.5"), 1500 * 3 + 1200 * 0.3 + 70 * 15),
        (usage("claude-sonnet-4-5", written=None, read=None), 1500 * 3 + 70 * 15),
        (usage("claude-sonnet-4-5", fresh=0, read=0, out=0, written=1000), 1000 * 3.75),
        # Opus 4.1: 15 in, 1.50 cache read, 75 out
        (usage("claude-opus-4-1[1m]"), 1500 * 15 + 1200 * 1.5 + 70 * 75),
        # GPT-5.5: 5 in, 0.50 cache read, 30 out
        (usage("openai/gpt-5.5"), 1500 * 5 + 1200 * 0.5 + 70 * 30),
        (usage("gpt-5.5-codex"), 1500 * 5 + 1200 * 0.5 + 70 * 30),
        (usage("gpt-5.5-2026-04-01"), 1500 * 5 + 1200 * 0.5 + 70 * 30),
        # Gemini 2.5 Pro: 1.25 in, 0.125 cache read, 10 out
        (usage("gemini/gemini-2.5-pro"), 1500 * 1.25 + 1200 * 0.125 + 70 * 10),
        (usage("vertex_ai/gemini-2.5-pro"), 1500 * 1.25 + 1200 * 0.125 + 70 * 10),
    ],
)  # fmt: skip
def test_what_it_costs(used, dollars_per_million):
    assert priced(used).cost_usd == pytest.approx(dollars_per_million / 1e6)


def test_many_short_requests_are_not_one_long_one():
    """Sonnet 4.5 asks twice as much for a request of more than 200,000 tokens."""
    many = usage("claude-sonnet-4-5", fresh=1_000_000, read=0, out=10_000)
    assert priced(many).cost_usd == pytest.approx(3 + 0.15)
    spread = usage("claude-sonnet-4-5", fresh=1_000_000, read=0, out=10_000, turns=10)
    assert priced(spread).cost_usd == pytest.approx(3 + 0.15)
    long = usage("claude-sonnet-4-5", fresh=1_000_000, read=0, out=10_000, turns=1)
    assert priced(long).cost_usd == pytest.approx(6 + 0.225)


def test_the_rest_of_a_usage_stays():
    used = usage("claude-sonnet-4-5", turns=3, plan=True)
    found = priced(used)
    assert found.cost_usd is not None
    assert (found.tokens, found.turns, found.plan, found.model) == (2770, 3, True, "claude-sonnet-4-5")


@pytest.mark.parametrize(
    "used",
    [
        UNKNOWN_USAGE,
        usage("claude-sonnet-4-5", cost_usd=0.5),
        usage("claude-sonnet-4-5", cost_usd=0.0),
        usage(None),
        usage(""),
        usage("/"),
        usage("fake-model"),
        usage("openai/fake-model"),
        usage("claude-sonnet-99"),
        usage("sonnet"),  # nobody knows which
        usage("ollama/llama3"),  # runs at home
        usage("fake/gpt-5.5"),  # another place asks what it likes
        usage("claude-sonnet-4-5", fresh=None),
        usage("claude-sonnet-4-5", out=None),
        usage("claude-sonnet-4-5", fresh=0, read=0, out=0),
        Usage(model="claude-sonnet-4-5", tokens=1000),
    ],
)
def test_what_cannot_be_priced_stays_as_it_is(used):
    assert priced(used) == used


def test_without_the_package_nothing_is_known(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert priced(usage("claude-sonnet-4-5")).cost_usd is None
