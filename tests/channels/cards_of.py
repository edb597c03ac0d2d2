"""Cards to show."""

from datetime import UTC, datetime
from typing import Any

from loopwright.cards import Card, Decided
from loopwright.core.showing import Effect, Shown
from loopwright.core.values import Score, Scored

AT = datetime(2026, 11, 30, 10, 2, tzinfo=UTC)
PATCH = "diff --git a/app.py b/app.py\n--- a/app.py\n+++ b/app.py\n@@ -1 +1 @@\n-old\n+<b>new</b>\n"


def shown(**said: Any) -> Shown:
    return Shown(
        **{
            "run": "fix-abcd",
            "goal": "Make it <green>",
            "iteration": 3,
            "number": 1,
            "about": "accept",
            "question": "accept iteration 3?",
            "why": "every required gate passed",
            "effects": tuple(
                Effect(answer=a, does=f"{a}: what that does") for a in ("approve", "revise", "reject")
            ),
            "silence": "the run rests",
            "deadline": datetime(2099, 1, 1, tzinfo=UTC),
            "blockers": (),
            "gates": (Scored(gate="pytest", score=Score(0.5, "2 failed <script>", status="fail")),),
            "score": 0.5,
            "trend": (0.2, None, 0.5),
            "cost_usd": 1.5,
            "projected_usd": 2.0,
            "tokens": 1000,
            "plan": False,
            "seconds": 61.0,
            "alerts": (),
            "before": "a" * 40,
            "after": "b" * 40,
            "summary": "I did it\nand more",
        }
        | said
    )


def card(**said: Any) -> Card:
    return Card(
        **{
            "run": "fix-abcd",
            "loop": "fix",
            "about": "needs_you",
            "title": "fix-abcd: accept iteration 3?",
            "head": {"run": "fix-abcd", "reason": "approval_requested", "iterations": 3, "duration_s": 61.0},
            "shown": shown(),
            "approval": "0123456789abcdef",
            "files": 1,
            "added": 1,
            "removed": 1,
            "patch": PATCH,
        }
        | said
    )


def news(**said: Any) -> Card:
    head = {
        "run": "fix-abcd",
        "reason": "budget",
        "explanation": "it cost what it may",
        "next": "loopwright resume fix-abcd --add-budget 5",
        "iterations": 3,
        "duration_s": 61.0,
        "score": 0.5,
        "cost_usd": 5.0,
        "tokens": 100,
        "plan": False,
    }
    plain = {
        "about": "failed",
        "title": "fix-abcd failed: budget",
        "head": head,
        "shown": None,
        "approval": None,
    }
    return card(**plain | said)


APPROVED = Decided(answer="approve", by="mira", channel="slack", at=AT, note="good")
