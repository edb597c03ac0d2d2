"""Histories of scripted runs, as `journal.history` gives them: facts with the spec that a host would record."""

from dataclasses import asdict, replace

from sim import Sim

from loopwright.core import events as ev
from loopwright.core.apply import apply
from loopwright.core.state import LoopState


def history(sim: Sim):
    """Each fact with its number, time and the state after it."""
    policy = sim.policy
    spec = {
        "goal": "g",
        "name": "loop",
        "threshold": policy.threshold,
        "until": policy.until,
        "limits": asdict(policy.limits),
        "approval": asdict(policy.approval),
    }
    state, facts = LoopState(), []
    for n, (at, event) in enumerate(sim.facts):
        fact = replace(event, spec=spec) if isinstance(event, ev.RunStarted) else event
        state = apply(state, fact, at)
        facts.append((n, at, fact, state))
    return facts
