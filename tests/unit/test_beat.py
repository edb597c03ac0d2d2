"""The coarse timer that a process shares."""

import asyncio

from loopwright.beat import BEAT_S, beat_of


def test_who_joined_is_called_until_it_leaves_and_the_timer_rests_with_nobody():
    async def looked():
        loop = asyncio.get_running_loop()
        beat, calls, twice = beat_of(loop), [], loop.create_future()

        def look():
            calls.append(loop.time())
            if len(calls) == 2:
                beat.leave("me")
                twice.set_result(None)

        beat.join("me", look)
        await asyncio.wait_for(twice, 20 * BEAT_S)
        await asyncio.sleep(1.5 * BEAT_S)
        return beat, calls

    beat, calls = asyncio.run(looked())
    assert len(calls) == 2
    assert beat._timer is None


def test_a_limit_ends_what_is_awaited_and_a_lifted_one_does_not(monkeypatch):
    async def limited(seconds):
        loop = asyncio.get_running_loop()
        late, lifted = loop.create_future(), loop.create_future()
        beat = beat_of(loop)
        beat.limit(loop, late, seconds)
        beat.limit(loop, lifted, seconds)
        beat.lift(lifted)
        began = loop.time()
        await asyncio.wait_for(late, 10)
        return loop.time() - began, lifted.done(), beat_of(loop) is beat

    for exact in (10.0, 0.0):  # with a timer of its own, and with the beat
        monkeypatch.setattr("loopwright.beat.EXACT_S", exact)
        took, done, same = asyncio.run(limited(0.05))
        assert took >= 0.05
        assert (done, same) == (False, True)


def test_each_event_loop_has_its_own():
    async def mine():
        return beat_of(asyncio.get_running_loop())

    assert asyncio.run(mine()) is not asyncio.run(mine())
