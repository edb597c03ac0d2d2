"""A coroutine that may end at once runs, from its first step to its last, as in a task of its own."""

from __future__ import annotations

import asyncio
import contextvars

import anyio
import pytest

from loopwright.calling import Late, Raised, Threads
from loopwright.stand_in import StandIn, dismiss, stand_in

WHO = contextvars.ContextVar("who", default="nobody")


def ran(work):
    """What `work` comes to in an event loop that complains of all that is left."""
    return asyncio.run(work(), debug=True)


async def ready():
    """The stand-in of this event loop."""
    loop = asyncio.get_running_loop()
    found = stand_in(loop)
    if found is None:
        await asyncio.sleep(0)
        found = stand_in(loop)
    assert found is not None
    return found


async def begun(work):
    """The value of a coroutine that a stand-in begins."""
    value, task = (await ready()).begin(work)
    return value if task is None else await task


def test_what_ends_at_once_needs_no_turn_and_is_in_no_task_of_its_caller():
    async def own():
        return asyncio.current_task()

    async def main():
        turned = []
        await ready()
        asyncio.get_running_loop().call_soon(turned.append, 1)
        first, second = await begun(own()), await begun(own())
        assert not turned
        return first is second, first is asyncio.current_task()

    assert ran(main) == (True, False)


def test_what_does_not_end_at_once_stays_in_the_task_in_which_it_began():
    async def own(steps):
        seen = {asyncio.current_task()}
        for _ in range(steps):
            await asyncio.sleep(0)
            seen.add(asyncio.current_task())
        await asyncio.sleep(0.001)
        return seen | {asyncio.current_task()}

    async def main():
        first, second = await begun(own(2)), await begun(own(0))
        return len(first), len(second), first & second

    assert ran(main) == (1, 1, set())


def test_timeouts_and_task_groups_that_begin_with_the_first_step_hold_to_the_last():
    async def late():
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    async def scoped():
        with anyio.move_on_after(0.01) as scope:
            await anyio.sleep(10)
        return scope.cancelled_caught

    async def grouped():
        async with asyncio.TaskGroup() as group:
            task = group.create_task(asyncio.sleep(0.001, "slept"))
        return task.result()

    async def torn():
        async def fails():
            raise ValueError("inside")

        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            await asyncio.Event().wait()

    async def main():
        with pytest.raises(TimeoutError):
            await begun(late())
        with pytest.raises(ExceptionGroup):
            await begun(torn())
        return await begun(scoped()), await begun(grouped()), asyncio.current_task().cancelling()

    assert ran(main) == (True, "slept", 0)


def test_each_has_a_context_of_its_own_in_all_its_steps():
    async def known(name, wait):
        before = WHO.get()
        WHO.set(name)
        if wait:
            await asyncio.sleep(0)
        return before, WHO.get()

    async def main():
        WHO.set("caller")
        told = [await begun(known("a", wait=False)), await begun(known("b", wait=True))]
        WHO.set("later")
        return [*told, await begun(known("c", wait=True)), WHO.get()]

    assert ran(main) == [("caller", "a"), ("caller", "b"), ("later", "c"), "later"]


def test_a_future_that_others_await_too_or_that_is_over_meanwhile():
    async def both(future):
        return await future

    async def main():
        future, quick = asyncio.get_running_loop().create_future(), await ready()
        other = asyncio.create_task(
            both(future)
        )  # awaits it after ours has begun to, and before its task goes on
        _, task = quick.begin(both(future))
        await asyncio.sleep(0)
        future.set_result("shared")
        told = [await task, await other]
        future = asyncio.get_running_loop().create_future()
        _, task = (await ready()).begin(both(future))
        future.set_result("soon")
        return [*told, await task]

    assert ran(main) == ["shared", "shared", "soon"]


@pytest.mark.parametrize("turns", [0, 1, 3])
@pytest.mark.parametrize("what", ["future", "turn", "nested", "over"])
def test_a_task_that_took_over_is_cancelled_like_any_other(what, turns):
    heard = []

    async def nested(future):
        return await future

    async def work(future):
        try:
            if what == "turn":
                for _ in range(100):
                    await asyncio.sleep(0)
            elif what == "nested":
                await asyncio.create_task(nested(future))
            else:
                await future
        except asyncio.CancelledError:
            heard.append("cancelled")
            await asyncio.sleep(0)
            heard.append("mended")
            raise

    async def main():
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        _, task = (await ready()).begin(work(future))
        for _ in range(turns):
            await asyncio.sleep(0)
        if what == "over" and not turns:
            future.set_result(None)
        task.cancel()
        await asyncio.wait({task})
        return task.cancelled(), len(asyncio.all_tasks())

    assert ran(main) == (True, 1)
    assert heard == ["cancelled", "mended"]


def test_one_that_cancels_its_own_task():
    inner = []

    async def ends():
        asyncio.current_task().cancel()
        return "ended"

    async def waits():
        asyncio.current_task().cancel()
        inner.append(asyncio.create_task(asyncio.Event().wait()))
        await inner[0]

    async def main():
        told = await begun(ends())
        _, task = (await ready()).begin(waits())
        await asyncio.wait({task})
        await asyncio.sleep(0)
        return told, task.cancelled(), inner[0].cancelled(), await begun(asyncio.sleep(0, "next"))

    assert ran(main) == ("ended", True, True, "next")


def test_none_is_left_when_it_is_dismissed():
    async def main():
        loop = asyncio.get_running_loop()
        first = await ready()
        assert stand_in(loop) is first
        dismiss(loop)
        dismiss(loop)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return await ready() is first

    assert ran(main) is False


def test_dismissed_with_the_end_of_the_loop_it_leaves_no_complaint(recwarn):
    loop = asyncio.new_event_loop()

    async def main():
        assert StandIn(loop).free
        assert await begun(asyncio.sleep(0, "done")) == "done"
        stand_in(loop)
        dismiss(loop)
        return [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]

    left = loop.run_until_complete(main())
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()
    assert not recwarn.list


def test_a_function_that_was_quick_is_waited_for_when_it_is_not():
    calls = []

    async def work(number):
        calls.append(number)
        if number == 3:
            raise LookupError("three")
        if number == 4:
            await asyncio.sleep(0.001)
        if number >= 5:
            await asyncio.Event().wait()
        return number

    async def main():
        threads = Threads(work)
        told = [await threads.call(n, timeout_s=20, grace_s=1) for n in range(5)]
        quick = Threads(work)
        for n in range(2):
            await quick.call(n, timeout_s=20, grace_s=1)
        return told, await quick.call(5, timeout_s=0.01, grace_s=1)

    told, late = ran(main)
    assert [t for t in told if not isinstance(t, Raised)] == [0, 1, 2, 4]
    assert isinstance(told[3].error, LookupError)
    assert late == Late(running=False)


def test_a_caller_that_is_cancelled_while_a_quick_function_waits_takes_it_along():
    heard = []

    async def work(number):
        if number < 2:
            return number
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append(number)
            raise

    async def main():
        threads = Threads(work)
        for n in range(2):
            await threads.call(n, timeout_s=20, grace_s=1)
        caller = asyncio.create_task(threads.call(2, timeout_s=20, grace_s=1))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait({caller})
        return caller.cancelled()

    assert ran(main)
    assert heard == [2]
