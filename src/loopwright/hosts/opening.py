"""What a run says of itself when it begins: what runs, every limit that binds, what is kept from it.

Rule: what is not said at the start is no surprise later: nothing binds a run that is not on these lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from loopwright.core.limits import Limits
from loopwright.loop import Loop
from loopwright.template import used
from loopwright.units import duration


def lines(
    run: str, *, place: Path, mode: str, programs: Iterable[str], limits: Limits, withheld: Iterable[str]
) -> list[str]:
    """The opening lines of `run`; `programs` say what agent and gates will run as."""
    where = "without a workspace" if mode == "none" else f"in {place}"
    told = [f"{run}: {where}", *(f"  {program}" for program in programs), f"  limits: {bounds(limits)}"]
    if names := ", ".join(withheld):
        told.append(f"  withheld from agent and gates: {names} (--env NAME lets one through)")
    return told


def asked_with(loop: Loop, notes: Path | None) -> list[str]:
    """What to know of a template of the user's, and of the notes that the agent keeps."""
    told = []
    if loop.prompt is not None:
        wanted = ("goal", "feedback", "notes") if loop.notes else ("goal", "feedback")
        if missing := [f"{{{word}}}" for word in wanted if word not in used(loop.prompt)]:
            told.append(
                f"  prompt: the template has no {' and no '.join(missing)}: the agent is not told that"
            )
    if notes is not None:
        told.append(f"  notes: {notes}, kept by the agent: in no snapshot, delivered nowhere")
    return told


def bounds(limits: Limits) -> str:
    """Every bound with its value, in the order they are looked at."""
    rule = limits.convergence
    bounds = (
        f"${limits.budget:.2f}" if limits.budget is not None else "",
        f"{limits.max_tokens} tokens" if limits.max_tokens is not None else "",
        f"{limits.max_iterations} iteration{'s' if limits.max_iterations > 1 else ''}",
        f"{duration(limits.max_duration)} of work",
        f"{duration(limits.max_wait)} of waiting",
        f"{limits.attempts} attempts of {duration(limits.attempt_timeout)} an iteration",
        f"{duration(limits.idle_timeout)} without a sign of life",
        f"{duration(limits.gate_timeout)} a gate",
        f"{limits.max_consecutive_errors} errors in a row",
        f"{rule.patience} × {rule.window} iterations without progress" if rule is not None else "",
    )
    return ", ".join(bound for bound in bounds if bound)
