"""Runs for the page to show, written fact by fact, in a store of their own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from loopwright.core import events as ev
from loopwright.core.values import Score, Usage, Verdict
from loopwright.journal import Journal

T0 = datetime.now(UTC) - timedelta(hours=3)
SPEC = {
    "goal": "Make it good",
    "name": "tidy",
    "agent": "claude",
    "gates": ["pytest", {"use": "score", "name": "depth", "run": "x", "mark": 1, "weight": 3.0, "min": 0.8}],
    "threshold": 0.85,
    "until": "passed",
    "limits": {"max_iterations": 20, "max_duration": 1800.0, "budget": 6.0},
    "approval": {"when": "passed", "on_timeout": "hold"},
}


class Written:
    """A run that is written down: each word is a fact, a second after the one before."""

    def __init__(self, store, run="tidy-abcd", **spec):
        self.journal = Journal(store, run)
        self.at = T0
        self.number = 0
        self.say(ev.RunStarted(run=run, spec={**SPEC, **spec}, digest="d", origin="hand"))
        self.say(ev.Claimed(epoch=1, owner="1:1@elsewhere@boot", host="elsewhere", boot="boot"))

    def say(self, *facts):
        self.at += timedelta(seconds=1)
        self.journal.record(self.at, *facts)
        self.journal.flush()
        return self

    def begin(self):
        self.number += 1
        run = self.journal.run
        return self.say(
            ev.AttemptStarted(iteration=self.number, attempt=1, key=f"{run}/{self.number}", allowance_s=60)
        )

    def work(
        self, *values, summary="did it", cost=0.25, reason="1 test fails", failing=("t::a",), passed=False
    ):
        """An iteration up to its verdict: the values of pytest and depth."""
        self.begin()
        self.say(
            ev.AttemptSucceeded(
                result=None, seconds=2.0, summary=summary, usage=Usage(cost_usd=cost, tokens=100)
            )
        )
        for name, value in zip(("pytest", "depth"), values, strict=False):
            good = value >= 0.8
            score = Score(value, "" if good else reason, status="pass" if good else "fail", graded=True, failing=() if good else failing)  # fmt: skip
            self.say(ev.GateScored(gate=name, score=score, seconds=0.5))
        mean = sum(values) / len(values)
        blockers = (
            () if passed else tuple(n for n, v in zip(("pytest", "depth"), values, strict=False) if v < 0.8)
        )
        verdict = Verdict(score=mean, passed=passed, required_score=mean, blockers=blockers, reasons=tuple(f"{b}: {reason}" for b in blockers), graded=True)  # fmt: skip
        return self.say(ev.Judged(verdict=verdict))

    def close(self, outcome="not_accepted"):
        return self.say(ev.IterationClosed(outcome=outcome))

    def ask(self, about="accept", question="accept iteration 1?", deadline=None, ident="a1" * 16):
        number = self.journal.state.requests + 1
        asked = ev.ApprovalRequested(id=ident, number=number, iteration=self.number, about=about, digest="d", question=question, deadline=deadline)  # fmt: skip
        return self.say(asked)

    def decide(self, answer, **more):
        state = self.journal.state
        return self.say(
            ev.ApprovalDecided(id=state.approval.id, answer=answer, by="ann", channel="slack", **more)
        )

    def end(self, phase, reason):
        return self.say(ev.RunFinished(phase=phase, reason=reason, explanation=f"because of {reason}"))

    def alert(self, kind="OSCILLATION", action="note"):
        return self.say(ev.AlertRaised(kind=kind, iteration=self.number, action=action, message="it swings"))

    @property
    def state(self):
        return self.journal.state
