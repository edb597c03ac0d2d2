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

    `ran` names the gates scored in an earlier iteration; `refusals` are blockers that are no gate's, with their reasons.
    """
    have = {s.gate: s.score for s in scores}
    failures: list[tuple[str, Sequence[str], str]] = []
    blockers, reasons, advice, failing, broken, required, counted = [], [], [], [], [], [], []
    for name, why in refusals:
        blockers.append(name)
        reasons.append(f"{name}: {why}")
        failures.append((name, (), why))
    graded, goal, objective = False, None, None
    for rule in rules:
        score = have.get(rule.name, SKIPPED)
        status = score.status
        if rule.required:
            required.append((rule, score))
        if rule.required or status != "skipped" or rule.name in ran:
            counted.append((rule, score))
        if score.graded or score.failing:
            graded = True
            failing += [f"{rule.name}:{item}" for item in score.failing]
        if rule.objective and goal is None:
            goal, objective = rule, _objective(score)
        if status == "pass":
            continue
        failures.append((f"{rule.name} {status}", score.failing, score.reason))
        if rule.required:
            blockers.append(rule.name)
            reasons.append(_reason(rule, score))
            if status == "error" and score.cause == "tool":
                broken.append(rule.name)
        elif status != "skipped":
            advice.append(_reason(rule, score))
    required_mean = _mean(required)
    mean = required_mean if len(counted) == len(required) else _mean(counted)
    if not blockers and required_mean is not None and required_mean < threshold - ROUNDING:
        blockers.append("threshold")
        reasons.append(f"threshold: the required gates score {required_mean:.4g}, {threshold:.4g} is wanted")
    return Verdict(
        score=1.0 if mean is None else mean,
        passed=not blockers,
        required_score=required_mean,
        blockers=tuple(blockers),
        reasons=(*reasons, *advice),
        graded=graded,
        failing=tuple(failing),
        fingerprint=fingerprint(failures) if blockers else "",
        broken=tuple(broken),
        objective=objective,
        min_gain=goal.min_gain if goal else 0.0,
        unsure=tuple([r.name for r, s in required if s.unsure and s.status == "pass"]),
    )


def _objective(score: Score) -> float | None:
    """The raw number that is the aim, so that more is better; `None`: not measured."""
    return None if score.raw is None else -score.raw if score.direction == "min" else score.raw


def _mean(rows: Sequence[tuple[Rule, Score]]) -> float | None:
    """The weighted mean of values; an error or a skip is worth nothing. `None` when nothing has weight."""
    total = worth = 0.0
    for rule, score in rows:
        total += rule.weight
        if score.status in {"pass", "fail"}:
            worth += rule.weight * score.value
    return min(1.0, worth / total) if total > 0 else None


def _reason(rule: Rule, score: Score) -> str:
    said = score.reason.strip() or {"fail": "failed", "error": "could not judge"}.get(
        score.status or "", "did not run"
    )
    mark = {"error": " (error)", "skipped": " (skipped)"}.get(score.status or "", "")
    advisory = "" if rule.required else " (advisory)"
    return f"{rule.name}{mark}{advisory}: {said}"
