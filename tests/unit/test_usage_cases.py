"""The cases of `cases/usage`: what Claude's stream of events used, each message once and the result not on top."""

import json
from pathlib import Path

import pytest

from loopwright.agents.claude import Heard
from loopwright.core.values import Session, Usage

CASES = Path(__file__).parents[1] / "cases" / "usage"


def events(name):
    return [json.loads(line) for line in (CASES / name).read_text(encoding="utf-8").splitlines()]


def parts(usage):
    return usage.input_tokens, usage.cache_write_tokens, usage.cache_read_tokens, usage.output_tokens


def test_a_message_that_comes_in_several_events_counts_once():
    heard = Heard()
    *messages, result = events("stream_duplicates.jsonl")
    for event in messages:
        heard.hear(event)
    assert parts(heard.usage) == (11, 15378, 15178, 230)  # while it works
    assert heard.usage.cost_usd is None
    heard.hear(result)
    used = heard.said().usage
    assert parts(used) == (11, 15378, 15178, 230)
    assert (used.tokens, used.cost_usd, used.turns) == (11 + 15378 + 15178 + 230, 0.1234, 2)


def test_the_growing_numbers_of_a_message_are_never_summed():
    heard = Heard()
    for event in events("stream_duplicates.jsonl")[:2]:
        heard.hear(event)
    assert parts(heard.usage) == (4, 15178, 0, 180)


@pytest.mark.parametrize("number", range(4))
def test_a_cost_that_is_missing_or_cannot_be_true_is_unknown(number):
    """Not zero, no refund; the run that this comes to is in tests/cli/test_agents_cases.py."""
    lines = events("missing_and_negative.jsonl")
    assert len(lines) == 4
    heard = Heard()
    heard.hear(lines[number])
    assert heard.said().usage == Usage()


def test_what_an_earlier_attempt_of_the_session_used_is_not_counted_again():
    *_, result = events("stream_duplicates.jsonl")
    heard = Heard(before=Session(id="s", usage=Usage(cost_usd=0.1)))
    heard.hear({"type": "system", "subtype": "init", "session_id": "s"})
    heard.hear(result)
    assert heard.said().usage.cost_usd == pytest.approx(0.0234)
