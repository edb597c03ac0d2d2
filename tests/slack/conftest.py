import os
from datetime import UTC, datetime, timedelta

import pytest
from fake_slack import FakeSlack

from loopwright.cards import Card
from loopwright.core.showing import Effect, Shown
from loopwright.core.values import Score, Scored

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def fake(monkeypatch):
    """A Slack to talk to."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    with FakeSlack().running() as slack:
        yield slack


@pytest.fixture
def shown():
    """What a request shows, with other values where they are given."""

    def of(**given):
        gates = (
            Scored(
                gate="pytest",
                score=Score(0.875, "2 of 16 fail: t_a, t_b", status="fail", raw=14, unit="passed"),
            ),
            Scored(gate="ruff", score=Score(1.0, status="pass")),
            Scored(gate="judge", score=Score(0.0, "no answer", status="error", cause="tool")),
        )
        usual = {
            "run": "fix-abcd",
            "goal": "Make the suite green",
            "iteration": 3,
            "number": 1,
            "about": "accept",
            "question": "accept iteration 3 (score 0.91, passed every required gate)?",
            "why": "every required gate passed, and a person has the last word",
            "effects": (
                Effect(answer="approve", does="the run is complete, with this work"),
                Effect(answer="revise", does="the agent reads the note and goes on"),
                Effect(answer="reject", does="the run stops; its work is kept"),
            ),
            "silence": "the run rests, its work kept, until somebody lets it ask again",
            "deadline": NOON + timedelta(hours=12),
            "blockers": (),
            "gates": gates,
            "score": 0.91,
            "trend": (0.2, None, 0.5, 0.91),
            "cost_usd": 0.31,
            "projected_usd": 0.41,
            "tokens": 12000,
            "plan": False,
            "seconds": 75.0,
            "alerts": ("plateau (#2): no better for 3 iterations",),
            "before": "a",
            "after": "b",
            "summary": "I mended the parser.",
        }
        return Shown(**{**usual, **given})

    return of


@pytest.fixture
def card(shown):
    """A request's card, with other values where they are given."""

    def of(**given):
        usual = {
            "run": "fix-abcd",
            "loop": "fix",
            "about": "needs_you",
            "title": "accept iteration 3?",
            "head": {},
            "shown": shown(),
            "approval": "4f2a" * 16,
            "files": 2,
            "added": 10,
            "removed": 3,
            "patch": "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
        }
        return Card(**{**usual, **given})

    return of
