"""Run any agent in a loop that knows when to stop.

>>> from loopwright import Loop, gate, run
>>> @gate
... def long_enough(text):
...     return len(text) >= 3
>>> def add_a_letter(attempt):
...     return (attempt.previous or "") + "a"
>>> final = run(Loop("write three letters", agent=add_a_letter, gates=[long_enough]), store="memory:")
>>> final.passed, final.reason, final.output, final.iterations
(True, 'quality_reached', 'aaa', 3)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopwright.core.values import Attempt, Result, Score, Usage
    from loopwright.errors import (
        ConfigError,
        Locked,
        LoopwrightError,
        PermanentError,
        RateLimited,
        RetryableError,
        UsageError,
    )
    from loopwright.gates.function import gate
    from loopwright.hosts.door import Final, run
    from loopwright.idempotency import run_once, write_once
    from loopwright.loop import Loop

__all__ = [
    "Attempt",
    "ConfigError",
    "Final",
    "Locked",
    "Loop",
    "LoopwrightError",
    "PermanentError",
    "RateLimited",
    "Result",
    "RetryableError",
    "Score",
    "Usage",
    "UsageError",
    "gate",
    "run",
    "run_once",
    "write_once",
]

__version__ = "0.1.0"

_HOMES = {
    **dict.fromkeys(("Attempt", "Result", "Score", "Usage"), "loopwright.core.values"),
    **dict.fromkeys(("Final", "run"), "loopwright.hosts.door"),
    **dict.fromkeys(("run_once", "write_once"), "loopwright.idempotency"),
    "Loop": "loopwright.loop",
    "gate": "loopwright.gates.function",
}


def __getattr__(name: str) -> Any:
    """The public names, each imported when it is first used: `import loopwright` loads nothing else."""
    if name not in __all__:
        raise AttributeError(f"module 'loopwright' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "loopwright.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
