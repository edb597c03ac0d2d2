"""The policy of a run as far as its own record tells it, for readers that have no loop file.

Rule: everything but its gates, whose weights only the registry knows, and its monitors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from loopwright.core.limits import Backoff, Convergence, Limits, in_force
from loopwright.core.policy import Asking, Policy
from loopwright.core.state import LoopState
from loopwright.core.values import LIMITS

_ASKING: Final = ("when", "timeout", "on_timeout")


def limits_of(state: LoopState) -> Limits:
    """The limits in force: those the run was started with, with what people changed."""
    said = _table(state, "limits")
    given: dict[str, Any] = {name: said[name] for name in LIMITS if said.get(name) is not None}
    rule, backoff = said.get("convergence"), said.get("backoff")
    if rule is not None:
        given["convergence"] = Convergence(**rule) if rule else None
    if backoff:
        given["backoff"] = Backoff(**backoff)
    return in_force(Limits(**given), state)


def policy_of(state: LoopState) -> Policy:
    """The policy without gates and monitors: enough to ask how the run ends, not what passes."""
    approval = _table(state, "approval")
    return Policy(
        limits=limits_of(state),
        approval=Asking(**{name: approval[name] for name in _ASKING if name in approval}),
        until=state.spec.get("until") or "passed",
    )


def _table(state: LoopState, name: str) -> Mapping[str, Any]:
    found = state.spec.get(name)
    return found if isinstance(found, Mapping) else {}
