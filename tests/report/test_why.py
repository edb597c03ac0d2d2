"""What `why` says, for every ending and for every state a run can rest in: one text each, to be read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from sim import BROKEN, FAIL, PASS, REQUIRED, Sim, answered, crashed, failed, graded, script, worked
from told import history

from loopwright.core import events as ev
from loopwright.core.apply import PHASES
from loopwright.core.decide import decide
from loopwright.core.limits import Limits
from loopwright.core.monitors import Critical, Degradation, Monitors, Stall
from loopwright.core.policy import Asking, Policy
from loopwright.core.values import Score
from loopwright.report.gather import gather
from loopwright.report.why import why

RED = Score(
    0.5, "2 of 4 tests failed\ntest_a: 1 != 2\ntest_b: boom", status="fail", graded=True, failing=("a", "b")
)


def policy(**more) -> Policy:
    return Policy(**{"gates": REQUIRED, "threshold": 1.0, "limits": Limits(max_iterations=6), **more})


def limited(**limits) -> Policy:
    return policy(limits=Limits(**{"max_iterations": 6, **limits}))


def ended(*args, **more):
    return Sim(*args, **more).run(200)


def stepped(commands: int, *args, **more):
    """A run in the middle: after so many commands."""
    sim = Sim(*args, **more)
    for _ in range(commands):
        sim.perform(decide(sim.policy, sim.state, sim.now))
    return sim


def at_work():
    sim = Sim(policy())
    sim.record(ev.AttemptStarted(iteration=1, attempt=1, key="r/1", allowance_s=900.0))
    return sim


CASES = {
    "quality_reached": lambda: ended(policy(), gates=script(FAIL, PASS)),
    "approved": lambda: ended(
        policy(approval=Asking(when="passed")),
        gates=script(PASS),
        people=answered("approve", note="ship it", channel="slack"),
    ),
    "overridden": lambda: ended(
        policy(approval=Asking(when="always")),
        gates=script(RED),
        people=answered("approve", override="good enough for a demo"),
    ),
    "already_satisfied": lambda: ended(policy(baseline=True, if_passing="finish"), gates=script(PASS)),
    "limits_reached": lambda: ended(
        policy(until="limits", baseline=True, limits=Limits(max_iterations=3)), gates=script(FAIL, PASS)
    ),
    "max_iterations": lambda: ended(policy(), gates=script(graded(0.2, "a", "b"), RED)),
    "max_duration": lambda: ended(limited(max_duration=3), agent=script(worked(seconds=2))),
    "max_wait": lambda: ended(limited(max_wait=100), agent=script(failed("rate_limited", retry_after=60))),
    "budget": lambda: ended(limited(budget=1), agent=script(worked(cost=0.4))),
    "cost_unknown": lambda: ended(limited(budget=1), agent=script(worked(cost=None))),
    "max_tokens": lambda: ended(limited(max_tokens=25)),
    "converged": lambda: ended(limited(max_iterations=20), gates=script(graded(0.5, "a"))),
    "consecutive_errors": lambda: ended(policy(), agent=script(failed("unknown"))),
    "permanent_error": lambda: ended(policy(), agent=script(failed("permanent"))),
    "gate_error": lambda: ended(policy(), gates=script(BROKEN)),
    "gate_error at once": lambda: ended(policy(baseline=True), gates=script(BROKEN)),
    "interrupted_too_often": lambda: ended(policy(), agent=script(crashed())),
    "health": lambda: ended(
        policy(monitors=Monitors(stall=Stall(action="stop"))), agent=script(worked("same"))
    ),
    "critical": lambda: ended(
        policy(
            monitors=Monitors(
                stall=Stall(action="note"), degradation=Degradation(window=2), critical=Critical(alerts=2)
            ),
            limits=Limits(convergence=None),
        ),
        agent=script(worked("same")),
        gates=script(*(graded(v) for v in (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2))),
    ),
    "rejected": lambda: ended(
        policy(approval=Asking(when="passed")),
        gates=script(PASS),
        people=answered("reject", note="no", channel="terminal"),
    ),
    "rejected by silence": lambda: ended(
        policy(approval=Asking(when="passed", on_timeout="reject")), gates=script(PASS)
    ),
    "stopped_by_user": lambda: ended(policy(), signals={3: [ev.StopRequested(by="ann")]}),
    "stopped at once": lambda: ended(policy(), signals={1: [ev.StopRequested(now=True, by="ann")]}),
    "policy_violation": lambda: ended(policy(), agent=script(failed("policy_violation"))),
    "asking": lambda: stepped(4, policy(approval=Asking(when="passed")), gates=script(PASS)),
    "asking about a block": lambda: stepped(
        2, policy(approval=Asking(on_timeout="reject")), agent=script(failed("blocked"))
    ),
    "expired": lambda: ended(policy(approval=Asking(when="passed")), gates=script(PASS)),
    "paused": lambda: ended(policy(), signals={3: [ev.PauseRequested(now=True, by="ann")]}),
    "waiting": lambda: stepped(2, policy(), agent=script(failed("rate_limited", retry_after=60))),
    "at work": at_work,
    "judging": lambda: stepped(2, policy()),
    "crashed": at_work,
}

TEXTS = """\
## quality_reached
Iteration 2 passed every required gate (score 1.00).
figures:
  iterations  2 of 6
  work        2.2s of 30m
  money       $0.00, no budget
  best        1.00 in iteration 2, passed

## approved
Iteration 1 passed every required gate (score 1.00).
ann approved it (slack): “ship it”.
figures:
  iterations  1 of 6
  work        1.1s of 30m
  money       $0.00, no budget
  best        1.00 in iteration 1, passed

## overridden
Iteration 1 did not pass every required gate.
ann accepted it although it did not pass (“good enough for a demo”).
figures:
  iterations  1 of 6
  work        1.1s of 30m
  money       $0.00, no budget
  best        0.50 in iteration 1, not passed
held back by:
  tests: 2 of 4 tests failed
    test_a: 1 != 2
    test_b: boom

## already_satisfied
Every required gate passed before any work, so no agent was started.
figures:
  iterations  0 of 6
  work        0.1s of 30m
  best        1.00 in iteration 0, passed
With if_passing = "run" it works on all the same.

## limits_reached
It worked until a limit was met, as it was told to, and kept the best: iteration 1 (score 1.00).
3 iterations done, 3 allowed; the best is iteration 1 (score 1.00).
figures:
  iterations  3 of 3
  work        3.4s of 30m
  money       $0.00, no budget
  best        1.00 in iteration 1, passed
A fork of it with a higher limit works on.

## max_iterations
It had all the iterations it may have and none was accepted: 6 iterations done, 6 allowed.
figures:
  iterations  6 of 6   <- decided
  work        6.6s of 30m
  money       $0.00, no budget
  best        0.50 in iteration 2, not passed
held back by:
  tests: 2 of 4 tests failed
    test_a: 1 != 2
    test_b: boom
It ends well when what holds it back (tests) passes; it goes on with more iterations.

## max_duration
Agents and gates used up their time: 4 s of agents and gates, 3 s allowed.
figures:
  iterations  2 of 6
  work        4.2s of 3s   <- decided
  money       $0.00, no budget
  best        0.00 in iteration 1, not passed
held back by:
  tests: it is red
It ends well when what holds it back (tests) passes; it goes on with more time.

## max_wait
It waited as long as it may for the agent to be available: the agent asked to wait 60 s more, 65 s of 100 s of waiting are used.
figures:
  iterations  1 of 6
  work        2.0s of 30m
  waiting     1m05s of 1m40s   <- decided
  money       $0.00, no budget
It goes on once the agent's own limit is lifted; a new run may be allowed to wait longer (limits.max_wait).

## budget
The money does not reach for another attempt: $0.80 of $1.00 spent and another attempt may cost $0.40.
figures:
  iterations  2 of 6
  work        2.2s of 30m
  money       $0.80 of $1.00   <- decided
  best        0.00 in iteration 1, not passed
held back by:
  tests: it is red
It goes on with a larger budget. If an attempt costs less than was set aside for it, a new run can be told what one costs (limits.reserve).

## cost_unknown
It cannot be known what was spent, and unknown is never zero: 1 attempt did not report a cost, so the budget of $1.00 cannot be kept; set limits.reserve to an estimate per attempt.
figures:
  iterations  1 of 6
  work        1.1s of 30m
  money       $0.00 of $1.00, 1 attempt told no cost   <- decided
  best        0.00 in iteration 1, not passed
held back by:
  tests: it is red
A new run needs an agent that says what it uses, or an estimate of what an attempt costs (limits.reserve).

## max_tokens
The tokens are used up: 30 of 25 tokens used.
figures:
  iterations  3 of 6
  work        3.3s of 30m
  money       $0.00, no budget
  tokens      30 of 25   <- decided
  best        0.00 in iteration 1, not passed
held back by:
  tests: it is red
A new run needs a higher limits.max_tokens.

## converged
Nothing got better over 2 × 3 graded iterations: the best score did not rise by 0.01 and no failing item went away.
Best score 0.50, 1 item still failing. It was nudged to try another way before.
figures:
  iterations  6 of 20
  work        6.6s of 30m
  money       $0.00, no budget
  best        0.50 in iteration 1, not passed
held back by:
  tests: at 0.5
It goes on with a note that says what to try; a smaller goal or another agent may help more than time.

## consecutive_errors
3 iterations in a row brought no result.
The last one: unknown: it was unknown
figures:
  iterations       3 of 6
  work             3.0s of 30m
  money            $0.00, no budget
  errors in a row  3 of 3   <- decided
It goes on when it is resumed, better once what makes the agent fail is mended.

## permanent_error
The agent failed in a way that trying again cannot mend:
  it was permanent
figures:
  iterations       1 of 6
  work             1.0s of 30m
  money            $0.00, no budget
  errors in a row  1 of 3
It goes on when it is resumed, once that is mended.

## gate_error
A required gate's tool could not run, twice in a row, so nothing can be judged.
figures:
  iterations  2 of 6
  work        2.2s of 30m
  money       $0.00, no budget
  best        0.00 in iteration 1, not passed
held back by:
  tests (error): not found
It goes on when it is resumed, once the tool or the gate's command is mended.

## gate_error at once
A required gate's tool could not run, before any work, so nothing can be judged.
figures:
  iterations  0 of 6
  work        0.1s of 30m
  best        0.00 in iteration 0, not passed
held back by:
  tests (error): not found
It goes on when it is resumed, once the tool or the gate's command is mended.

## interrupted_too_often
3 crashes in a row cut the agent off.
figures:
  iterations  1 of 6
  work        1.5s of 30m
It goes on when it is resumed; something ends its process: memory, a reboot, a kill.

## health
A monitor stopped it:
  STALL in iteration 3: nothing changed since iteration 1, and the same things keep it from passing
figures:
  iterations  3 of 6
  work        3.3s of 30m
  money       $0.00, no budget
  best        0.00 in iteration 1, not passed
held back by:
  tests: it is red
It goes on with a note that says what to try; monitors.stall says when this happens.

## critical
Too many alerts in a short time stopped it:
  DEGRADATION in iteration 2: the score only fell over 2 iterations, 0.90 to 0.80
  DEGRADATION in iteration 5: the score only fell over 2 iterations, 0.60 to 0.50
figures:
  iterations  5 of 20
  work        5.5s of 30m
  money       $0.00, no budget
  best        0.90 in iteration 1, not passed
held back by:
  tests: at 0.5
It goes on with a note that says what to try; monitors.critical says when this happens.

## rejected
“accept iteration 1 (score 1.00, passed every required gate)?” was asked on 2026-03-01 12:00:01 UTC.
ann rejected it (terminal): “no”.
figures:
  iterations  1 of 6
  work        1.1s of 30m
  money       $0.00, no budget
  best        1.00 in iteration 1, passed
It goes on when it is resumed, best with a note that says what is wanted instead.

## rejected by silence
“accept iteration 1 (score 1.00, passed every required gate)?” was asked on 2026-03-01 12:00:01 UTC.
Nobody answered in time, and here silence is a no (approval.on_timeout = "reject").
figures:
  iterations  1 of 6
  work        1.1s of 30m
  money       $0.00, no budget
  best        1.00 in iteration 1, passed
It goes on when it is resumed; with on_timeout = "hold" it would have waited.

## stopped_by_user
ann asked it to stop, after the iteration that was under way. Its state and its work are kept.
figures:
  iterations  1 of 6
  work        1.1s of 30m
  money       $0.00, no budget
  best        0.00 in iteration 1, not passed
held back by:
  tests: it is red
It goes on when it is resumed.

## stopped at once
ann asked it to stop, at once. Its state and its work are kept.
figures:
  iterations  1 of 6
  work        1.0s of 30m
  money       $0.00, no budget
It goes on when it is resumed.

## policy_violation
The agent changed what is not its to change, so it was stopped:
  it was policy_violation
figures:
  iterations  1 of 6
  work        1.0s of 30m
  money       $0.00, no budget
It goes on when it is resumed; look first at what was done there.

## asking
It waits for a person since 2026-03-01 12:00:01 UTC: accept iteration 1 (score 1.00, passed every required gate)?
Without an answer by 2026-03-02 12:00:01 UTC, the run rests, with its work kept.
figures:
  iterations  1 of 6
  work        1.1s of 30m
  money       $0.00, no budget
It goes on with an answer.

## asking about a block
It waits for a person since 2026-03-01 12:00:01 UTC: it was blocked
Without an answer by 2026-03-02 12:00:01 UTC, it counts as a no.
figures:
  iterations  1 of 6
  work        1.0s of 30m
  money       $0.00, no budget
It goes on with an answer.

## expired
Nobody answered in time “accept iteration 1 (score 1.00, passed every required gate)?”; the work is kept and nothing runs.
figures:
  iterations  1 of 6
  work        1.1s of 30m
  money       $0.00, no budget
Resumed, it asks again.

## paused
Paused by ann; its state and its work are kept.
figures:
  iterations  1 of 6
  work        1.1s of 30m
  money       $0.00, no budget
  best        0.00 in iteration 1, not passed
held back by:
  tests: it is red
It goes on when it is resumed.

## waiting
It waits until 2026-03-01 12:01:06 UTC: rate limited.
The last attempt: it was rate_limited
figures:
  iterations  1 of 6
  work        1.0s of 30m
  waiting     1m05s of 8h
  money       $0.00, no budget
Then it goes on by itself.

## at work
The agent works on iteration 1, attempt 1, for 15m00s at most.
figures:
  iterations  1 of 6
  work        0.0s of 30m

## judging
Iteration 1 is being judged; gates that have spoken: tests.
figures:
  iterations  1 of 6
  work        1.1s of 30m
  money       $0.00, no budget

## crashed
The process that drove it is gone, in the middle of iteration 1. Nothing recorded is lost.
figures:
  iterations  1 of 6
  work        0.0s of 30m
It goes on when it is resumed.
"""


def told(name):
    return why(replace(gather(history(CASES[name]())), alone=name == "crashed")).lines


SAID = {
    name: body.strip("\n").splitlines()
    for name, _, body in (part.partition("\n") for part in TEXTS.split("## ")[1:])
}
WORDS = {
    "approved": "quality_reached",
    "overridden": "quality_reached",
    "critical": "health",
    "stopped": "stopped_by_user",
}


@pytest.mark.parametrize("name", CASES)
def test_it_says(name):
    assert told(name) == SAID[name]


def test_what_holds_back_though_no_gate_says_so_is_told_with_what_a_person_can_do():
    many, few = (replace(PASS, evidence={"counts": {"executed": n, "skipped": 0}}) for n in (3, 2))
    sim = ended(policy(baseline=True, limits=Limits(max_iterations=1)), gates=script(many, few))
    said = why(gather(history(sim)))
    assert said.blocked == (
        "ratchet: tests: fewer tests ran than at iteration 0 (2, not 3): bring them back",
    )
    assert said.change.endswith("(a run with --approve always asks); a new run counts anew.")


def test_every_ending_has_its_text():
    assert CASES.keys() == SAID.keys() >= PHASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_the_case_is_what_it_is_called(name):
    over = CASES[name]().state.finished
    word = name.partition(" ")[0]
    assert over is None or over.reason == WORDS.get(word, word)


def test_the_page_about_endings_shows_what_is_said():
    page = (Path(__file__).parents[2] / "docs/endings.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^`(\w+)`:\n\n```text\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL))
    assert shown.keys() == {"max_iterations", "budget", "rejected"}
    assert all(text.splitlines() == SAID[name] for name, text in shown.items())
