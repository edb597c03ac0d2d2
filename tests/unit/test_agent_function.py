"""A Python function as an agent: what it returns, raises and holds up."""

import asyncio
import contextvars
import functools
import math
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import pytest

from loopwright import calling
from loopwright.agents.function import function_agent
from loopwright.core.values import Attempt, Failed, Feedback, Left, Result, Usage, Worked
from loopwright.errors import ConfigError, PermanentError, RetryableError
from loopwright.ports import Place

ATTEMPT = Attempt(
    run="r",
    iteration=1,
    number=1,
    key="r/1",
    goal="g",
    feedback=Feedback(),
    left=Left(iterations=1, seconds=60, attempts=1),
    deadline_s=20.0,
)
PLACE = Place(root=Path(), project=Path(), artifacts=Path(), env={}, timeout_s=20, grace_s=0.2)


def call(fn, **fields):
    return asyncio.run(function_agent(fn).call(replace(ATTEMPT, **fields), PLACE))


def raising(error):
    def work(attempt):
        raise error

    return work


class Colour(StrEnum):
    RED = "red"


@dataclass
class Point:
    x: int = 1


@pytest.mark.parametrize(
    ("value", "output"),
    [
        (None, None),
        (True, True),
        ("é 🙂", "é 🙂"),
        ({"a": [1, 2.5, {"b": None}]}, {"a": [1, 2.5, {"b": None}]}),
        ((1, (2,)), [1, [2]]),  # as a resumed run would read it
        (2**70, 2**70),
        (Colour.RED, "red"),
    ],
)
def test_any_json_value_is_an_output(value, output):
    outcome = call(lambda attempt: value)
    assert outcome == Worked(result=Result(output))
    assert type(outcome.result.output) is type(output)


def test_a_result_keeps_what_it_knows():
    usage = Usage(cost_usd=0.1, tokens=5)
    given = Result([1], summary="done \x1b[1m", usage=usage, session="s", claims_done=True)
    outcome = call(lambda attempt: given)
    assert outcome == Worked(result=replace(given, summary="done "))


def test_needing_a_person_is_blocked():
    outcome = call(lambda attempt: Result(needs_human="the password", usage=Usage(cost_usd=1)))
    assert outcome == Failed(kind="blocked", message="the password", usage=Usage(cost_usd=1))


def test_the_function_sees_the_attempt():
    assert call(lambda attempt: attempt.key).result.output == "r/1"


async def polite(attempt):
    await asyncio.sleep(0)
    return "async"


def returns_an_awaitable(attempt):
    return polite(attempt)


class Callable:
    async def __call__(self, attempt):
        return "async object"


@pytest.mark.parametrize(
    ("fn", "output"),
    [
        (polite, "async"),
        (functools.partial(polite), "async"),
        (returns_an_awaitable, "async"),
        (Callable(), "async object"),
        (functools.partial(lambda more, attempt: more, "partial"), "partial"),
        (lambda attempt, more="default": more, "default"),
    ],
)
def test_what_may_be_a_function(fn, output):
    assert call(fn).result.output == output


def test_the_name_is_the_functions_own_unless_given():
    assert function_agent(polite).name == "polite"
    assert function_agent(functools.partial(polite)).name == "polite"
    assert function_agent(Callable()).name == "Callable"
    assert function_agent(polite, name="me").name == "me"
    assert not function_agent(polite).in_folder


@pytest.mark.parametrize(
    "fn", [lambda: 1, lambda a, b: 1, lambda *, attempt: 1, lambda attempt: (yield), "text", 7]
)
def test_what_may_not_is_found_when_the_loop_is_built(fn):
    with pytest.raises(ConfigError, match="the agent"):
        function_agent(fn)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "the output is nan, which JSON has no word for"),
        ({"a": [1, -math.inf]}, "the output['a'][1] is -inf"),
        ({1: 2}, "the keys of JSON are strings"),
        ({"when": {1, 2}}, "the output['when'] is a set, not JSON: sorted("),
        (b"x", "is a bytes, not JSON: decode it"),
        (Point(), "dataclasses.asdict"),
        (Path("x"), "str(…)"),
        (Failed(kind="unknown", message=""), "raise RetryableError"),
        (object(), "return None, booleans"),
        ("half \ud83d", "half a character"),
        ({"\ud83d": 1}, "half a character"),
        ("x" * 1_000_000, "1 MB is the most"),
        ("é" * 500_000, "1 MB is the most"),
        (Result(summary=3), "Result.summary is a int"),
        (Result(usage=0.5), "write Usage(cost_usd="),
        (Result(session=3), "Result.session is a int"),
    ],
)
def test_what_is_no_json_is_permanent_and_names_the_fix(value, said):
    outcome = call(lambda attempt: value)
    assert outcome.kind == "permanent"
    assert said in outcome.message


def test_an_output_that_holds_itself():
    knot = []
    knot.append(knot)
    assert "holds itself" in call(lambda attempt: knot).message


def test_just_under_one_megabyte_is_an_output():
    assert isinstance(call(lambda attempt: "x" * 999_998), Worked)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermanentError("no"), "permanent"),
        (RetryableError("later"), "transient"),
        (TypeError("t"), "permanent"),
        (NameError("n"), "permanent"),
        (ModuleNotFoundError("m"), "permanent"),
        (AttributeError("a"), "permanent"),
        (SyntaxError("s"), "permanent"),
        (TimeoutError("slow"), "transient"),
        (ConnectionResetError("reset"), "transient"),
        (ValueError("v"), "unknown"),
        (RuntimeError("r"), "unknown"),
        (StopIteration("s"), "unknown"),
        (SystemExit(0), "unknown"),
        (asyncio.CancelledError(), "unknown"),
    ],
)
def test_what_is_raised_becomes_a_kind(error, kind):
    outcome = call(raising(error))
    assert outcome.kind == kind
    assert outcome.message


@pytest.mark.parametrize("error", [SystemExit(3), TimeoutError("slow"), asyncio.CancelledError()])
def test_async_functions_raise_the_same_way(error):
    async def work(attempt):
        raise error

    assert call(work).kind == ("transient" if isinstance(error, TimeoutError) else "unknown")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (7, 7.0),
        (-1, 0.0),
        (1e300, 365 * 86400),
        (10**400, 365 * 86400),
        (-(10**400), 0.0),
        (math.nan, None),
        (math.inf, None),
        ("x", None),
        (None, None),
    ],
)
def test_a_time_to_wait_is_bounded(given, kept):
    outcome = call(raising(RetryableError("later", retry_after_s=given)))
    assert (outcome.kind, outcome.message, outcome.retry_after_s) == ("transient", "later", kept)


def test_the_traceback_ends_in_the_users_code_and_shows_none_of_ours():
    def inner():
        raise ValueError("boom")

    def work(attempt):
        inner()

    message = call(work).message
    assert message.startswith("work raised ValueError: boom\n")
    assert "test_agent_function.py" in message
    assert message.endswith("ValueError: boom")
    assert "agents/function.py" not in message


def test_messages_are_clean_and_bounded():
    message = call(raising(ValueError("\x1b[31m" + "x" * 100_000))).message
    assert "\x1b" not in message
    assert len(message.encode()) < 6000

    class Rude(Exception):
        def __str__(self):
            raise ValueError

        def __getattr__(self, name):
            raise ValueError(name)

    assert "Rude: (its message cannot be shown)" in call(raising(Rude())).message


@pytest.mark.parametrize("sync", [True, False])
def test_a_keyboard_interrupt_is_not_ours(sync):
    async def work(attempt):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(raising(KeyboardInterrupt()) if sync else work)


def test_a_late_thread_is_a_timeout_and_its_result_is_dropped():
    release, ended = threading.Event(), threading.Event()

    def work(attempt):
        release.wait(10)
        ended.set()
        return "late"

    began = time.monotonic()
    outcome = call(work, deadline_s=0.05)
    assert time.monotonic() - began < 5
    assert outcome.kind == "timeout"
    assert "longer than 0.05 s" in outcome.message
    assert "may still be running" in outcome.message
    release.set()
    assert ended.wait(10)


def test_a_late_coroutine_is_cancelled():
    seen = []

    async def work(attempt):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    outcome = call(work, deadline_s=0.05)
    assert (outcome.kind, seen) == ("timeout", ["cancelled"])
    assert "still be running" not in outcome.message


def test_a_coroutine_that_will_not_be_cancelled_is_left_behind():
    async def main():
        done = asyncio.Event()

        async def work(attempt):
            while not done.is_set():
                try:
                    await done.wait()
                except asyncio.CancelledError:
                    continue

        outcome = await function_agent(work).call(
            replace(ATTEMPT, deadline_s=0.01), replace(PLACE, grace_s=0.01)
        )
        done.set()
        return outcome

    assert "does not stop when cancelled" in asyncio.run(main()).message


@pytest.mark.parametrize("sync", [True, False])
def test_being_cancelled_goes_through_at_once(sync):
    async def main():
        loop, started, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def blocked(attempt):
            loop.call_soon_threadsafe(started.set)
            release.wait(10)

        async def waiting(attempt):
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(function_agent(blocked if sync else waiting).call(ATTEMPT, PLACE))
        await started.wait()
        task.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        release.set()
        return time.monotonic() - began

    assert asyncio.run(main()) < 2


def test_a_blocking_function_does_not_hold_the_loop():
    async def main():
        gate = threading.Event()
        task = asyncio.create_task(function_agent(lambda attempt: gate.wait(10)).call(ATTEMPT, PLACE))
        await asyncio.sleep(0)
        gate.set()  # never reached if the call ran in this thread
        return await task

    assert asyncio.run(main()).result.output is True


def test_threads_are_used_again_and_as_many_as_are_needed():
    async def main():
        gate = threading.Barrier(50)

        def work(attempt):
            gate.wait(10)  # passes only when all of them run at the same time
            return threading.get_ident()

        agent = function_agent(work)
        rounds = []
        for _ in range(2):
            outcomes = await asyncio.gather(*(agent.call(ATTEMPT, PLACE) for _ in range(50)))
            rounds.append({outcome.result.output for outcome in outcomes})
        return rounds

    first, second = asyncio.run(main())
    assert first == second
    assert len(first) == 50


def test_idle_threads_end(monkeypatch):
    monkeypatch.setattr(calling, "IDLE_S", 0.01)
    seen = []
    assert call(lambda attempt: seen.append(threading.current_thread())) == Worked(result=Result())
    seen[0].join(10)
    assert not seen[0].is_alive()


def test_a_hanging_function_does_not_hold_the_exit_up():
    script = """
import asyncio, threading
from loopwright import calling
from loopwright.agents.function import function_agent
from test_agent_function import ATTEMPT, PLACE, replace

hang = function_agent(lambda attempt: threading.Event().wait(60))
print(asyncio.run(hang.call(replace(ATTEMPT, deadline_s=0.05), PLACE)).kind)
"""
    command = [sys.executable, "-c", script]
    ended = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=30, check=True
    )
    assert ended.stdout == "timeout\n"


def test_the_functions_context_is_the_callers():
    word = contextvars.ContextVar("word")

    async def main():
        word.set("here")
        return await function_agent(lambda attempt: word.get()).call(ATTEMPT, PLACE)

    assert asyncio.run(main()).result.output == "here"
