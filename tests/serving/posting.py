"""A post at work, and a channel that writes down what it is shown: for tests, and as a process of its own.

`python posting.py PROJECT` sends what is due in that project's store until it is ended.
"""

import asyncio
import functools
import json
import os
import signal
import sys
import threading
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from pathlib import Path

from loopwright.cards import Channel
from loopwright.channels import _words
from loopwright.errors import Undelivered
from loopwright.serving.card import Source
from loopwright.serving.post import Pace, Post
from loopwright.stores.opened import open_store, owner

FAST = Pace(look_s=0.02, lease_s=5.0, try_s=2.0, delays_s=(0.02, 0.05))
URL = "sqlite:///s.db"


class Wire:
    """Appends what it is shown to `file`; what the file `<file>.mode` says is what happens to it."""

    def __init__(self, file, environ):
        self.file = Path(file)
        self.environ = environ

    async def show(self, card, ref):
        mode = self.file.with_suffix(".mode")
        word, _, rest = (mode.read_text() if mode.exists() else "").partition(" ")
        line = {"pid": os.getpid(), "ref": ref, "mode": word, **asdict(card)}
        line["key"] = _words.key_of(card, again=ref is not None)
        with self.file.with_suffix(".tries").open("a") as tries:
            tries.write(json.dumps(line, default=str) + "\n")
        match word:
            case "down":
                raise Undelivered("it is down")
            case "wait":
                raise Undelivered("not so fast", retry_after_s=float(rest))
            case "never":
                raise Undelivered("no such channel", final=True)
            case "broken":
                raise RuntimeError(f"a fault with {self.environ.get('WIRE_TOKEN')} in it")
            case "hangs":
                await asyncio.sleep(60)
        with self.file.open("a") as sent:
            sent.write(json.dumps(line, default=str) + "\n")
        if word == "dies":
            mode.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return f"ref-{self.file.stem}"


def wire(*, file: str, name: str = "wire", remote: bool = True) -> Channel:
    return Channel(name=name, open=lambda environ: Wire(file, environ), remote=remote)


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def made(project, *, environ=None, public_url=None, pace=FAST, tell=print, url=URL):
    """A post of this project."""
    own = threading.local()

    @contextmanager
    def stores():
        if not hasattr(own, "store"):
            own.store = open_store(url, project)
        yield own.store

    source = Source(
        project=project, environ=dict(os.environ) if environ is None else environ, public_url=public_url
    )
    return Post(source=lambda: source, stores=stores, me=owner(), tell=tell, pace=pace)


def awaited(test):
    """A test that is a coroutine."""

    @functools.wraps(test)
    def called(**given):
        asyncio.run(test(**given))

    return called


@asynccontextmanager
async def at_work(post):
    task = asyncio.create_task(post.work())
    try:
        yield post
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task.exception()


async def until(holds, seconds=20.0):
    """The first true value of `holds`, looked at often."""
    async with asyncio.timeout(seconds):
        while not (value := holds()):  # noqa: ASYNC110 - files and stores tell nobody
            await asyncio.sleep(0.005)
    return value


async def looked(post, times=3):
    """Waits until the post has looked so often from now on."""
    began = post._desk._looks
    await until(lambda: post._desk._looks >= began + times)


if __name__ == "__main__":
    asyncio.run(made(Path(sys.argv[1]), tell=lambda line: print(line, flush=True)).work())
