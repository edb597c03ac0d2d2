"""A server of schedules for tests: the real ticker over a real store, a day in seconds, and ends where it hurts.

`slots_process.py FOLDER STORE MINUTES SECONDS KILLS`: so many minutes from noon on pass in so many seconds. Two servers are
killed so often, and kill themselves now and then right behind a write.
"""

import asyncio
import itertools
import os
import random
import signal
import sys
import time
import traceback
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from loopwright.core import events as ev
from loopwright.errors import LoopwrightError
from loopwright.journal import Journal
from loopwright.serving import slots, starts
from loopwright.serving.book import Book
from loopwright.stores.opened import open_store

NOON = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


class Host:
    def __init__(self, project, url, dice):
        self.project, self.url, self.dice = project, url, dice
        self.environ = {"PATH": "/usr/bin:/bin"}
        self.book = Book([project], project=project, environ=self.environ)
        self.book.refresh()
        self.open = open_store(url, project)
        self.tell = lambda line: print(line, flush=True)
        if dice is not None:
            self.cut_after(self.open, "signal")
            self.cut_after(starts, "begin")

    def cut_after(self, thing, name):
        real = getattr(thing, name)

        def called(*args, **more):
            done = real(*args, **more)
            if self.dice.random() < 0.02:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        setattr(thing, name, called)

    @contextmanager
    def stores(self):
        yield self.open

    def nudge(self):
        """Runs end soon: now and then the oldest is over."""
        active = [run for run, _ in self.open.heads(active=True)]
        for run in active[1:] if len(active) > 3 else []:
            with suppress(LoopwrightError):  # another server was first
                journal = Journal(self.open, run)
                journal.record(
                    datetime.now(UTC),
                    ev.RunFinished(phase="stopped", reason="stopped_by_user", explanation="over"),
                )
                journal.flush()


def serve(folder, url, t0, minutes, seconds, seed):
    """One server, till the virtual time is over."""
    end = NOON + timedelta(minutes=minutes)

    def now():
        return min(end, NOON + (time.time() - t0) / seconds * timedelta(minutes=minutes))

    host = Host(folder, url, random.Random(seed) if seed else None)

    async def work():
        ticking = asyncio.create_task(slots.tick(host, now=now, wait_s=0.01, mend_s=0.1))
        left_s = max(0.0, t0 + seconds - time.time())
        await asyncio.wait([ticking], timeout=left_s + 0.3)  # the last slots, and what others left behind
        if ticking.done():
            ticking.result()
        ticking.cancel()

    asyncio.run(work())


def first_look(folder, url):
    """At noon the schedules are seen for the first time: what comes after it is theirs."""
    slots.step(Host(folder, url, None), slots.Watch(), lambda: NOON)


def forked(work, *args):
    """A process that has it all loaded: a server that comes back at once."""
    child = os.fork()
    if child == 0:
        try:
            work(*args)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def main(folder, url, minutes, seconds, kills):
    """Two servers that are killed and come back, and in the end one that is left alone; prints how many died."""
    folder, minutes, seconds, dice = Path(folder), int(minutes), float(seconds), random.Random(int(minutes))
    _, status = os.waitpid(forked(first_look, folder, url), 0)
    assert status == 0, status
    t0, died, seed = time.time(), 0, itertools.count(1)
    running = [forked(serve, folder, url, t0, minutes, seconds, next(seed)) for _ in range(2)]
    while time.time() < t0 + seconds or died < int(kills):
        time.sleep(dice.uniform(0.0, 2 * seconds / int(kills)))
        os.kill(dice.choice(running), signal.SIGKILL)
        time.sleep(0.01)
        for i, child in enumerate(running):
            gone, status = os.waitpid(child, os.WNOHANG)
            if gone:
                died += os.WIFSIGNALED(status)
                assert os.WIFSIGNALED(status) or status == 0, status
                running[i] = forked(serve, folder, url, t0, minutes, seconds, next(seed))
    for child in running:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    _, status = os.waitpid(forked(serve, folder, url, t0, minutes, seconds, 0), 0)
    assert status == 0, status
    print(f"died {died}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
