"""An agent that is a Python function of an attempt.

Rule: whatever the function does becomes one outcome, and what it returns is JSON before anybody keeps it, so that
a run resumed from its journal sees the same value as one that never stopped.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import traceback
from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from types import TracebackType
from typing import Any, Final, TypeAlias

from loopwright import calling
from loopwright.agents import http_errors
from loopwright.agents.failures import Failure
from loopwright.calling import Late, Raised, Threads, is_async
from loopwright.core.values import Attempt, Failed, Result, Usage, Worked
from loopwright.errors import ConfigError, PermanentError, RateLimited, RetryableError
from loopwright.ports import Agent, Place
from loopwright.prompt import clean, fit
from loopwright.redact import Redactor

OUTPUT_BYTES: Final = 1_000_000
LARGE: Final = 1 << 53  # from here on not every reader of JSON keeps all digits
TRACE_BYTES: Final = 4096
TEXT_BYTES: Final = 2000
YEAR_S: Final = 365 * 86400.0
MISTAKES: Final = (
    TypeError,
    NameError,
    ImportError,
    AttributeError,
    SyntaxError,
)  # the code, not the weather
_FIXES: Final = {
    "set": "sorted(…) makes a list of it",
    "frozenset": "sorted(…) makes a list of it",
    "bytes": "decode it",
    "datetime": "isoformat() makes a string of it",
    "date": "isoformat() makes a string of it",
    "Decimal": "str(…) or float(…) makes JSON of it",
    "Failed": "raise RetryableError, RateLimited or PermanentError instead",
    "Worked": "return its Result",
}

Work: TypeAlias = Callable[[Attempt], Any]


def function_agent(fn: Work, *, name: str | None = None) -> Agent:
    """An agent that calls `fn(attempt)`, which returns any JSON value (at most 1 MB) or a `Result`.

    A sync function runs in a daemon thread, an async one is awaited. Raised errors become kinds:
    `PermanentError` and mistakes in the code (TypeError, NameError, ImportError, AttributeError,
    SyntaxError) permanent, `RetryableError` transient and `RateLimited` rate limited, not before their
    `retry_after_s`; an HTTP error of any client by its status and words, TimeoutError, ConnectionError and the like
    (also as the cause of another) transient, anything else unknown. After `attempt.deadline_s` the attempt is a
    timeout: async functions are cancelled; a thread cannot be ended, may still be running, and what
    it returns later is dropped. ConfigError when `fn` cannot be called with exactly one argument.
    """
    title = name or str(getattr(inspect.unwrap(getattr(fn, "func", fn)), "__name__", type(fn).__name__))
    _check(fn, title)
    threads = Threads(fn)

    async def call(attempt: Attempt, place: Place) -> Worked | Failed:
        value = await threads.call(attempt, timeout_s=attempt.deadline_s, grace_s=place.grace_s)
        match value:
            case Late(running=running):
                return _late(title, attempt.deadline_s, running=running, thread=not is_async(fn))
            case Raised(error=error):
                return _failed(title, error, place.redact, await http_errors.failure(error))
            case _:
                return _worked(title, value, place.redact)

    return Agent(name=title, call=call, in_folder=False, in_process=True, placed=False)


def _check(fn: Work, title: str) -> None:
    if not callable(fn):
        raise ConfigError(f"the agent {title} is a {type(fn).__name__}, not a function")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise ConfigError(f"the agent {title} is a generator: return one value instead of yielding")
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return  # some built-in functions have none
    try:
        signature.bind(object())
    except TypeError:
        raise ConfigError(
            f"the agent {title}{signature} must take exactly one argument, the attempt: def {title}(attempt)"
        ) from None


def _late(title: str, deadline_s: float, *, running: bool, thread: bool) -> Failed:
    """The deadline has passed: what is still said is dropped."""
    rest = ""
    if running:
        rest = "; it does not stop when cancelled and may still be running"
        if thread:
            rest = "; a thread cannot be ended, so it may still be running, and what it returns is dropped"
    return Failed(kind="timeout", message=f"{title} took longer than {deadline_s:g} s{rest}")


def _failed(title: str, error: BaseException, redact: Redactor, told: Failure | None = None) -> Failed:
    """What a raised error comes to; `told` is what a server said with it."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, asyncio.CancelledError):
        return Failed(kind="unknown", message=f"{title} was cancelled from inside")
    said = clean(redact.text(_text(error)))
    what = fit(clean(f"{title} raised {type(error).__name__}: {said}"), 1000)
    if isinstance(error, PermanentError):
        return Failed(kind="permanent", message=fit(said, TEXT_BYTES) or what)
    if isinstance(error, RetryableError | RateLimited):
        return Failed(
            kind="transient" if isinstance(error, RetryableError) else "rate_limited",
            message=fit(said, TEXT_BYTES) or what,
            retry_after_s=_seconds(error.retry_after_s),
        )
    if told is not None:
        message = f"{title}: {clean(redact.text(told.message))}"
        return Failed(kind=told.kind, message=fit(message, TEXT_BYTES), retry_after_s=told.retry_after_s)
    if isinstance(error, MISTAKES):
        return Failed(kind="permanent", message=f"{what}\n{_trace(error, redact)}")
    if http_errors.passing(error):
        return Failed(kind="transient", message=what)
    return Failed(kind="unknown", message=f"{what}\n{_trace(error, redact)}")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception whose own text fails
        return "(its message cannot be shown)"


def _seconds(value: Any) -> float | None:
    """A time to wait as given by user code, 0 to a year; `None` for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not isfinite(value):
        return None
    return float(min(YEAR_S, max(0.0, value)))  # of an integer beyond all floats: a year


def _trace(error: BaseException, redact: Redactor) -> str:
    """The end of the traceback, without our own frames: 8 frames and 4 KB at most."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in {__file__, calling.__file__}:
        trace = trace.tb_next
    try:
        lines = list(traceback.TracebackException(type(error), error, trace, limit=-8).format())
    except Exception:  # noqa: BLE001 - an exception whose fields fail
        return "(its traceback cannot be shown)"
    text = clean(redact.text("".join(lines))).strip().encode(errors="replace")
    return text[-TRACE_BYTES:].decode(errors="ignore")


def _worked(title: str, value: Any, redact: Redactor) -> Worked | Failed:
    """The outcome of a returned value: a `Result` as it is, anything else as its output."""
    if value is None or (isinstance(value, int) and abs(value) < LARGE):
        return Worked(result=Result(value))  # the same value after any journal
    result = value if isinstance(value, Result) else Result(value)
    try:
        text = json.dumps(_plain(result.output, "the output"), ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except RecursionError:
        return Failed(
            kind="permanent", message=f"{title}: the output holds itself or is nested too deep for JSON"
        )
    except (ValueError, TypeError) as error:
        return Failed(kind="permanent", message=f"{title}: {error}")
    if size > OUTPUT_BYTES:
        fix = "write it to a file and return its path"
        return Failed(
            kind="permanent", message=f"{title}: the output is {size:,} bytes, 1 MB is the most: {fix}"
        )
    if problem := _odd(result):
        return Failed(kind="permanent", message=f"{title}: {problem}")
    session = None if result.session is None else clean(result.session)
    if result.needs_human:
        asked = fit(clean(redact.text(result.needs_human)), TEXT_BYTES)
        return Failed(kind="blocked", message=asked, usage=result.usage, session=session)
    summary = fit(clean(redact.text(result.summary)), TEXT_BYTES)
    return Worked(result=replace(result, output=json.loads(text), summary=summary, session=session))


def _odd(result: Result) -> str:
    """What is wrong with the other fields of a Result, if anything."""
    if not isinstance(result.summary, str):
        return f"Result.summary is a {type(result.summary).__name__}, not a string"
    if not isinstance(result.usage, Usage):
        return f"Result.usage is a {type(result.usage).__name__}: write Usage(cost_usd=…)"
    if not isinstance(result.claims_done, bool):
        return f"Result.claims_done is a {type(result.claims_done).__name__}, not True or False"
    for field in ("session", "needs_human"):
        value = getattr(result, field)
        if value is not None and not isinstance(value, str):
            return f"Result.{field} is a {type(value).__name__}, not a string or None"
    return ""


def _plain(value: Any, where: str) -> Any:
    """`value`, checked to be JSON; the ValueError names the place and the nearest fix."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{where} is {value}, which JSON has no word for: return None instead")
        return value
    if isinstance(value, str):
        if not value.isascii():
            _encodable(value, where)
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"{where} has the key {key!r}: the keys of JSON are strings, write str(key)")  # noqa: TRY004 - one error type for all of them
            _encodable(key, where)
        return {key: _plain(item, f"{where}[{fit(repr(key), 80)}]") for key, item in value.items()}
    raise ValueError(f"{where} is a {type(value).__name__}, not JSON: {_fix(value)}")


def _encodable(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{where} holds half a character: encode(errors='replace') mends it") from None


def _fix(value: Any) -> str:
    """How to make JSON of a value."""
    kind = type(value)
    if hasattr(kind, "model_dump"):
        return "return its model_dump(mode='json')"
    if hasattr(kind, "__dataclass_fields__") and kind.__name__ not in _FIXES:
        return "dataclasses.asdict(…) makes a dict of it"
    if hasattr(kind, "tolist"):
        return "tolist() makes plain values of it"
    if hasattr(kind, "__fspath__"):
        return "str(…) makes a string of it"
    if hasattr(kind, "__float__"):
        return "float(…) makes a number of it"
    return _FIXES.get(kind.__name__, "return None, booleans, numbers, strings, lists or dicts")
