"""A click to a real request on record: the first counts, the second is told, and only who may decides."""

import asyncio
import os
from contextlib import closing

import pytest
from fake_slack import ENVIRON
from test_slack_hear import sent

from loopwright.channels.slack import slack
from loopwright.cli.app import run_app
from loopwright.hosts.people import requests
from loopwright.serving.answers import answered
from loopwright.stores.sqlite import SqliteStore

LOOP = """goal = "g"
agent = "true"
gates = ["true"]
if_passing = "run"
[workspace]
mode = "none"
[approval]
approvers = ["slack:U0MIRA", "slack:U0JON"]
"""


@pytest.fixture
def asked(fake, card, tmp_path, monkeypatch):
    """A run that waits for a person, its message, and `press(word, user)`: what that person is told."""
    for name in [name for name in os.environ if name.startswith("LOOPWRIGHT_")]:
        monkeypatch.delenv(name)
    (tmp_path / "loop.toml").write_text(LOOP)
    assert run_app(["run", "--as", "r1", "--no-wait", "-C", str(tmp_path)]) == 6
    with closing(SqliteStore(tmp_path / ".agent-state/loopwright.db")) as store:
        (request,) = requests(store, "r1")
        line = slack(channel="#loops", url=fake.url).open(ENVIRON)
        ref = asyncio.run(line.show(card(run="r1", approval=request.request.id), None))
        message = fake.messages[tuple(ref.split("/"))]
        words = []

        async def answer(said):
            told = answered(store, said, "slack", environ={})
            words.append(told.word)
            return told

        def press(word, user):
            payload = word if isinstance(word, dict) else fake.click(message, word, user=user)
            reply = sent(payload, answer, url=fake.url)
            assert reply.status == 200
            return words[-1:], "" if fake.told.empty() else fake.told.get()["text"]

        yield press, lambda: [key for key, _ in store.signals("r1") if key.startswith("decision/")]


def test_the_first_click_counts_and_every_other_is_told(asked):
    press, decisions = asked
    assert press("approve", "U0MIRA") == (["recorded"], "")
    assert decisions()
    word, text = press("approve", "U0MIRA")  # a double click, or Slack that sends it again
    assert word == ["again"]
    assert text.startswith("already approved by U0MIRA (slack) at ")
    word, text = press("reject", "U0JON")
    assert word == ["conflict"]
    assert "already approved by" in text
    assert len(decisions()) == 1


def test_who_is_not_among_the_approvers_decides_nothing(asked):
    press, decisions = asked
    word, text = press("approve", "U0EVE")
    assert word == ["refused"]
    assert "U0EVE on slack is not among" in text
    assert decisions() == []
    assert press("reject", "U0JON") == (["recorded"], "")


def test_an_old_button_says_that_it_is_old(asked, fake):
    press, decisions = asked
    click = fake.click(next(iter(fake.messages.values())), "approve", user="U0MIRA")
    click["actions"][0]["value"] = "approve:00000000:r1"
    word, text = press(click, "U0MIRA")
    assert word == ["unknown"]
    assert "no request" in text
    click["actions"][0]["value"] = "approve:00000000:gone"
    assert press(click, "U0MIRA")[0] == ["unknown"]
    assert decisions() == []
