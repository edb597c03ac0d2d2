"""Serving: serve, start.

Rule: a start is on record before the verb returns, whether a server runs or not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import click

from loopwright.cli import words
from loopwright.cli.where import Where, enter, outside, places
from loopwright.errors import ConfigError, UsageError
from loopwright.hosts.take import made_id
from loopwright.redact import redactor
from loopwright.serving import starts
from loopwright.serving.book import Book
from loopwright.serving.heard import server_alive
from loopwright.serving.host import first_look, host
from loopwright.serving.live import Live
from loopwright.serving.logs import following, log_to, logger
from loopwright.serving.tracing import observer, with_content
from loopwright.state_folder import create_state
from loopwright.stores.opened import open_store, owner

LONGEST_S: Final = 45.0  # from the first signal to the end, at the very most


def _book(files: tuple[str, ...], project: Path, store: str | None, *, served: bool = False) -> Book:
    """The loops that a person named, all of them good, and fit to be `served` here."""
    named = [project / file for file in files]
    missing = [str(path) for path in named if not path.exists()]
    if missing:
        raise UsageError(f"there is no loop file {', '.join(missing)}")
    book = Book(named, project=project, environ=dict(os.environ), store=store)
    first_look(book, dict(os.environ) if served else None)
    return book


def _web() -> Any:
    """What starts the page; `ConfigError` where a plain install has none."""
    try:
        from loopwright.web.server import start
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("loopwright"):
            raise
        raise ConfigError(
            f'serve needs more than the base ({error.name} is missing): pip install "loopwright[serve]"'
        ) from None
    return start


@click.command("serve")
@click.argument("loopfiles", nargs=-1, metavar="[LOOPFILE|DIR]...")
@click.option("--host", "address", metavar="ADDRESS", help="Where the page listens (127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="On which port (7733).")
@click.option("--workers", type=click.IntRange(1, 1000), metavar="N", help="How many runs work at once (2).")
@click.option(
    "--log",
    "form",
    metavar="text|json",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How the log's lines are written.",
)
@places
def serve_(
    loopfiles: tuple[str, ...],
    address: str | None,
    port: int | None,
    workers: int | None,
    form: Literal["text", "json"],
    folder: str,
    store: str | None,
) -> int:
    """Host the runs of loops: start them, work on them, ask people.

    Ctrl-C or TERM hands every run over; the next server goes on with them.
    """
    outside("serve")
    start = _web()
    project = enter(folder)
    book = _book(loopfiles, project, store, served=True)
    given: dict[str, Any] = {"host": address, "port": port, "workers": workers}
    settings = replace(book.server, **{word: value for word, value in given.items() if value is not None})
    create_state(project / ".agent-state")
    environ = dict(os.environ)
    with ExitStack() as stack:
        stack.callback(log_to(sys.stderr, form, redactor(environ)))
        tell = logger().info
        runs = open_store(book.store, project)
        stack.callback(runs.close)
        follow = [following(content=with_content(environ))]
        if (tracing := observer(environ, tell=tell)) is not None:
            stack.callback(tracing.close)
            follow.append(tracing.follow)
        live = Live(
            project=project,
            environ=environ,
            book=book,
            store=runs,
            server=settings,
            tell=tell,
            url=book.store,
            follow=tuple(follow),
        )
        page = start(live)
        stack.callback(page.stop)
        _tell_page(page, tell)
        for loop in book.loops.values():
            tell(f"serving {loop.name} ({loop.file.name})")
        return 128 + asyncio.run(host(live, leaving=lambda: _leaving(page.stop)))


def _tell_page(page: Any, tell: Callable[[str], None]) -> None:
    """Where the page is: to a person with what lets them in, to a log without."""
    if sys.stderr.isatty():
        for name, link in page.links().items():
            click.echo(f"the page of {name}: {link}", err=True)
        return
    who = ", ".join(page.links())
    tell(f"the page is at {page.url} for {who}: their tokens are in .agent-state/server/tokens.json")


def _leaving(stop: Callable[[], None]) -> None:
    """Ends the page; and the process in any case, when a thread of it hangs: all that matters is in the store."""
    last = threading.Timer(LONGEST_S, os._exit, [128 + signal.SIGTERM])
    last.daemon = True
    last.start()
    stop()


@click.command("start")
@click.argument("loopfile")
@click.option("--key", metavar="K", help="The same key starts the same run, once.")
@places
def start_(loopfile: str, key: str | None, folder: str, store: str | None) -> int:
    """Put a run of LOOPFILE on record for a server, and print its id."""
    outside("start")
    project = enter(folder)
    book = _book((loopfile,), project, store)
    (served,) = book.loops.values()
    if book.store == "memory:":
        raise UsageError(
            "memory: is gone when this ends, so no server could find the run: name a store that lasts"
        )
    run = made_id(served.name) if key is None else starts.id_of_key(served.name, "key", key)
    create_state(project / ".agent-state")
    where = Where(project, book.store, named=store is not None)
    with ExitStack() as stack:
        runs = open_store(book.store, project)
        stack.callback(runs.close)
        begun = starts.begin(
            runs, served.assembled, run, project=project, environ=dict(os.environ), origin="start"
        )
        alive = server_alive(runs, owner())
    click.echo(run)
    resume = words.typed(f"loopwright resume {run}", run, where)
    if not begun:
        told = f"{run} was started before"
    elif alive:
        told = f"{run} is begun: the server here works on it"
    else:
        told = f"{run} waits for a server (loopwright serve); or {resume}"
    click.echo(told, err=True)
    return 0
