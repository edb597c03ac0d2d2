"""`judge`: the scores of one iteration, weighed into a verdict.

Rules. Passed means: every required gate has status pass, on evidence nobody tampered with.
Replacing a pass by fail, error, skipped or nothing never passes. Advisory gates move the score,
never the decision. The verdict is recorded, not recomputed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from loopwright.core.fingerprint import fingerprint
from loopwright.core.frozen import frozen
from loopwright.core.values import Score, Scored, Verdict, finite

SKIPPED = Score(0.0, "did not run", status="skipped")
HEAVIEST = 1e6  # a weight; sums of them stay finite
ROUNDING = 1e-9  # three times 0.85 weighs 0.8499999999999999 in floating point


@frozen
class Rule:
    """How one gate counts. `min` is the mark for a score without a status (`None`: the threshold)."""

    name: str
    weight: float = 2.0
    required: bool = True
    min: float | None = None
    objective: bool = False
    min_gain: float = 0.0

    def __post_init__(self) -> None:
        finite("weight", self.weight, low=0, high=HEAVIEST)
        finite("min_gain", self.min_gain, low=0)
        if self.min is not None:
            finite("min", self.min)


def settle(rule: Rule, threshold: float, score: Score) -> Score:
    """`score` with its status: one that has none passes at or above the gate's `min`."""
    if score.status is not None:
        return score
    mark = threshold if rule.min is None else rule.min
    if score.value >= mark:
        return replace(score, status="pass", graded=True)
    reason = score.reason or f"{score.value:.2f} is below {mark:.2f}"
    return replace(score, status="fail", graded=True, reason=reason)


def judge(
    rules: Sequence[Rule],
    threshold: float,
    scores: Iterable[Scored],
    ran: frozenset[str],
    refusals: Sequence[tuple[str, str]] = (),
) -> Verdict:
    """The verdict on these scores.

    `ran` names the gates that were scored in an earlier iteration; `refusals` are blockers that are
    no gate's, with their reasons: whatever the scores, the work has not passed.
    """
    have = {s.gate: s.score for s in scores}
    rows = [(rule, have.get(rule.name, SKIPPED)) for rule in rules]
    required = [(r, s) for r, s in rows if r.required]
    required_score = _mean(required)
    blockers = (*(name for name, _ in refusals), *(r.name for r, s in required if s.status != "pass"))
    reasons = [f"{name}: {why}" for name, why in refusals]
    reasons += [_reason(r, s) for r, s in required if s.status != "pass"]
    if not blockers and required_score is not None and required_score < threshold - ROUNDING:
        blockers = ("threshold",)
        reasons.append(f"threshold: the required gates score {required_score:.4g}, {threshold:.4g} is wanted")
    reasons += [_reason(r, s) for r, s in rows if not r.required and s.status in {"fail", "error"}]
    counted = [(r, s) for r, s in rows if s.status != "skipped" or r.required or r.name in ran]
    score = required_score if len(counted) == len(required) == len(rows) else _mean(counted)
    graded = [(r, s) for r, s in rows if s.graded or s.failing]
    goal, objective = _objective(rows)
    return Verdict(
        score=1.0 if score is None else score,
        passed=not blockers,
        required_score=required_score,
        blockers=blockers,
        reasons=tuple(reasons),
        graded=bool(graded),
        failing=tuple(f"{r.name}:{item}" for r, s in graded for item in s.failing),
        fingerprint=fingerprint(
            [
                *((name, (), why) for name, why in refusals),
                *((f"{r.name} {s.status}", s.failing, s.reason) for r, s in rows if s.status != "pass"),
            ]
        )
        if blockers
        else "",
        broken=tuple(r.name for r, s in required if s.status == "error" and s.cause == "tool"),
        objective=objective,
        min_gain=goal.min_gain if goal else 0.0,
        unsure=tuple(r.name for r, s in required if s.unsure and s.status == "pass"),
    )


def _objective(rows: Sequence[tuple[Rule, Score]]) -> tuple[Rule | None, float | None]:
    """The gate whose raw number is the aim, and that number so that more is better (`None`: not measured)."""
    for rule, score in rows:
        if rule.objective:
            raw = score.raw
            return rule, None if raw is None else -raw if score.direction == "min" else raw
    return None, None


def _mean(rows: Sequence[tuple[Rule, Score]]) -> float | None:
    """The weighted mean of values; an error or a skip is worth nothing. `None` when nothing has weight."""
    total = sum(r.weight for r, _ in rows)
    if total <= 0:
        return None
    worth = sum(r.weight * (s.value if s.status in {"pass", "fail"} else 0.0) for r, s in rows)
    return min(1.0, worth / total)


def _reason(rule: Rule, score: Score) -> str:
    said = score.reason.strip() or {"fail": "failed", "error": "could not judge"}.get(
        score.status or "", "did not run"
    )
    mark = {"error": " (error)", "skipped": " (skipped)"}.get(score.status or "", "")
    advisory = "" if rule.required else " (advisory)"
    return f"{rule.name}{mark}{advisory}: {said}"
