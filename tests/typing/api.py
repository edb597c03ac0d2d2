"""The types of the public API, checked by mypy and never run."""

from __future__ import annotations

from typing import assert_type

from loopwright import Attempt, Final, Loop, Result, Score, Usage, gate, run


@gate
def whole(text: str) -> bool:
    return bool(text)


@gate(weight=3, required=False, min=0.5)
def share(text: str) -> float:
    return len(text) / 10


@gate
async def told(text: str) -> Score:
    return Score(1.0, "why", raw=3.0, unit="words")


def work(attempt: Attempt) -> Result:
    return Result({"n": attempt.iteration}, usage=Usage(cost_usd=0.1))


loop = Loop("goal", agent=work, gates=["pytest", whole, share, told], budget=5, max_duration="2h")
final = run(loop, "green-1")
assert_type(final, Final)
assert_type(final.passed, bool)
assert_type(final.iterations, int)
assert_type(final.cost_usd, float | None)
