"""A Python function as a gate: `@gate`, bare or with options.

Rule: what a function returns is a score or the gate is in error; an exception is never a fail, because a gate that
broke has judged nothing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, overload

from loopwright import calling
from loopwright.calling import Late, Raised, Threads, is_async
from loopwright.core.judge import Rule
from loopwright.core.values import LARGEST, Cause, Score, finite
from loopwright.errors import BadEvidence, ConfigError, NotStartable
from loopwright.gates.measure import as_score, told, unproven
from loopwright.ports import Diff, Gate, Measure, Place, Seen
from loopwright.redact import Redactor

Function = TypeVar("Function", bound=Callable[..., Any])

_MARK = "__loopwright_gate__"
# The gate's own code is wrong: trying again, or another answer of the agent, will not mend it.
_MISTAKES = (
    TypeError,
    NameError,
    ImportError,
    AttributeError,
    SyntaxError,
    NotImplementedError,
    NotStartable,
)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a gate function gets for an agent that works in a folder.

    `output` is what the agent returned, `summary` its own words (claims, no evidence), `workdir` the folder as it
    is now.
    """

    output: Any
    summary: str
    workdir: Path
    seen: Seen

    @cached_property
    def diff(self) -> Diff:
        """What changed since the run began: `.lines .text .paths`; BadEvidence where no snapshots are kept."""
        found = self.seen.diff()
        if found is None:
            raise BadEvidence("no_diff", "there is no diff: this workspace keeps no snapshots")
        return found


@overload
def gate(fn: Function, /) -> Function: ...
@overload
def gate(
    *,
    name: str | None = None,
    weight: float | None = None,
    required: bool = True,
    min: float | None = None,
    timeout: float | None = None,
    after: tuple[str, ...] | list[str] = (),
    parallel: bool = False,
    writes: bool = False,
    objective: bool = False,
    min_gain: float = 0.0,
) -> Callable[[Function], Function]: ...
def gate(
    fn: Function | None = None,
    /,
    *,
    name: str | None = None,
    weight: float | None = None,
    required: bool = True,
    min: float | None = None,  # noqa: A002 - the word of the loop file
    timeout: float | None = None,
    after: tuple[str, ...] | list[str] = (),
    parallel: bool = False,
    writes: bool = False,
    objective: bool = False,
    min_gain: float = 0.0,
) -> Function | Callable[[Function], Function]:
    """The function itself, marked as a gate: it can still be called, and stands in `gates=[…]`.

    It takes the agent's output (for an agent that works in a folder: a `Work`), or that and `seen`
    (`.iteration .previous .scores`), and returns True or False, a number from 0 to 1, or a `Score`. A number passes
    at or above `min` (default: the loop's threshold). `weight` is 2, or 1 when not `required`; `timeout` is seconds.
    Async functions are awaited, others run in a thread. ConfigError for options out of range.
    """
    for option, value, high in (
        ("weight", weight, LARGEST),
        ("min", min, 1.0),
        ("min_gain", min_gain, LARGEST),
    ):
        _checked(option, value, high)
    if timeout is not None and _checked("timeout", timeout, LARGEST) == 0:
        raise ConfigError("gate: timeout is 0 seconds")

    def marked(function: Function) -> Function:
        _arguments(function)
        rule = Rule(
            name=name or _name(function),
            weight=weight if weight is not None else 2.0 if required else 1.0,
            required=required,
            min=min,
            objective=objective,
            min_gain=min_gain,
        )
        made = Gate(
            rule=rule,
            check=_check(function),
            timeout=timeout,
            after=tuple(after),
            parallel=parallel,
            writes=writes,
            in_process=True,
            placed=False,
        )
        try:
            setattr(function, _MARK, made)
        except AttributeError:
            raise ConfigError(f"gate: {_name(function)} takes no attributes; wrap it in a function") from None
        return function

    return marked if fn is None else marked(fn)


def as_gate(fn: Callable[..., Any]) -> Gate:
    """The gate that `fn` is: with the options given to `@gate`, else with the defaults.

    ConfigError for what cannot be called with one or two arguments.
    """
    made = getattr(fn, _MARK, None)
    if isinstance(made, Gate):
        return made
    _arguments(fn)
    return Gate(rule=Rule(name=_name(fn)), check=_check(fn), in_process=True, placed=False)


def _checked(option: str, value: float | None, high: float) -> float | None:
    try:
        return None if value is None else finite(f"gate: {option}", value, low=0, high=high)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _name(fn: Callable[..., Any]) -> str:
    while not hasattr(fn, "__name__") and hasattr(fn, "func"):  # functools.partial
        fn = fn.func
    name = str(getattr(fn, "__name__", type(fn).__name__))
    return "function" if name == "<lambda>" else name


def _arguments(fn: Callable[..., Any]) -> int:
    """How many arguments the function takes: 1, or 2 when it wants to see the run as well."""
    if not callable(fn):
        raise ConfigError(f"{fn!r} is no gate: it cannot be called")
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # some built-in functions have none
        return 1
    positional = [
        p for p in signature.parameters.values() if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}
    ]
    for count in (2, 1):
        # The second parameter is `seen` when it is called so or has no default; others are the function's own.
        if count == 2 and (
            len(positional) < 2
            or (positional[1].default is not positional[1].empty and positional[1].name != "seen")
        ):
            continue
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count
    raise ConfigError(f"{_name(fn)}{signature} is no gate: it takes the result, or (result, seen)")


def _check(fn: Callable[..., Any]) -> Callable[[Seen, Place], Awaitable[Measure]]:
    count = _arguments(fn)
    threads = Threads(fn)

    async def check(seen: Seen, place: Place) -> Measure:
        work = seen.output
        if seen.workdir is not None:
            work = Work(output=seen.output, summary=seen.summary, workdir=seen.workdir, seen=seen)
        value = await threads.call(*(work, seen)[:count], timeout_s=place.timeout_s, grace_s=place.grace_s)
        if isinstance(value, Late):
            late = f"took longer than {place.timeout_s:g} s"
            if not is_async(fn):
                late += "; a thread cannot be ended, so it may still be running"
            return unproven(BadEvidence("timeout", late))
        return value if isinstance(value, bool) else _scored(value, place.redact)

    return check


def _scored(value: Any, redact: Redactor) -> Score:
    """The score of what a function returned, or `Raised`."""
    error = value.error if isinstance(value, Raised) else None
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, asyncio.CancelledError):
        return unproven(BadEvidence("cancelled", "was cancelled from inside"))
    try:
        if error is not None and not isinstance(error, BadEvidence):
            cause: Cause = "tool" if isinstance(error, _MISTAKES) else "evidence"
            said = told(error, without=calling.__file__, redact=redact)
            return Score(0.0, said, status="error", cause=cause)
        return as_score(value, redact) if error is None else unproven(error)
    except BadEvidence as bad:
        return unproven(bad)
