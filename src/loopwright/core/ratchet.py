"""Ratchets: what the tests of iteration 0 were may not become less, whatever they say now; and known failures.

Rule: compared are the counts that a required gate's own report gave, then and now: fewer tests that ran, or more that
were skipped (an expected failure is a skip), are not passed; nor are comments, more than there were, that tell a checker to
look away. A gate without counts has no ratchet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from loopwright.core.closing import short
from loopwright.core.judge import Rule
from loopwright.core.values import Score, Scored

Counts = tuple[int, int]  # tests that ran, tests that were skipped


def counts(scores: Iterable[Scored]) -> dict[str, Counts]:
    """What each gate's tests were: how many ran, how many were skipped."""
    found = {}
    for scored in scores:
        told = scored.score.evidence.get("counts")
        if isinstance(told, Mapping) and scored.score.status in {"pass", "fail"}:
            ran, skipped = told.get("executed"), told.get("skipped")
            if isinstance(ran, int) and isinstance(skipped, int):
                found[scored.gate] = (ran, skipped)
    return found


def slipped(rules: Sequence[Rule], then: Mapping[str, Counts], scores: Iterable[Scored]) -> list[str]:
    """What of the required gates' evidence is less than it was `then`, a line each."""
    scores = [s for s in scores if s.score.evidence]
    if not scores:
        return []
    now = counts(scores)
    away = {s.gate: s.score.evidence.get("suppressions") for s in scores}
    lines = []
    for rule in rules:
        if not rule.required:
            continue
        if rule.name in then and rule.name in now:
            (ran, skipped), (runs, skips) = then[rule.name], now[rule.name]
            if runs < ran:
                lines.append(
                    f"{rule.name}: fewer tests ran than at iteration 0 ({runs}, not {ran}): bring them back"
                )
            if skips > skipped:
                lines.append(
                    f"{rule.name}: more tests were skipped than at iteration 0 ({skips}, not {skipped})"
                )
        if isinstance(more := away.get(rule.name), int) and more > 0:
            lines.append(
                f"{rule.name}: more comments or marks than at the start tell it to look away ({more} more): mend what it finds instead"
            )
    return lines


def forgiven(scores: Iterable[Scored], known: Collection[str]) -> tuple[Scored, ...]:
    """The scores, as passes where tests fail that all failed at iteration 0 (`known`, as `Closed.failing` has them).

    Only for a gate that counts tests and named every one that failed: what is not named is not known.
    """
    return tuple(replace(s, score=_passed(s)) if _only_known(s, known) else s for s in scores)


def _only_known(scored: Scored, known: Collection[str]) -> bool:
    score = scored.score
    told = score.evidence.get("counts")
    if score.status != "fail" or not isinstance(told, Mapping) or not score.failing:
        return False
    named = {short(f"{scored.gate}:{item}") for item in score.failing}
    return len(named) == told.get("failed", 0) + told.get("errors", 0) and named <= set(known)


def _passed(scored: Scored) -> Score:
    score = scored.score
    return replace(score, value=1.0, status="pass", reason=f"{len(score.failing)} fail, as at iteration 0")
