"""A server as the triggers see it: loops from real files, a real store in a folder, and nobody who works on the runs."""

import os

from loopwright import codec
from loopwright.serving.book import Book
from loopwright.serving.live import Live
from loopwright.stores.opened import open_store
from loopwright.unattended import Server

LOOP = 'goal = "x"\nagent = "true"\ngates = ["true"]\n'


def live(project, url=None, *, tell=None, environ=None, **loops):
    """A server of these loop files (name → what they say of triggers and the like)."""
    for name, said in loops.items():
        (project / f"{name}.loop.toml").write_text(LOOP + said, encoding="utf-8")
    files = sorted(project.glob("*.loop.toml"))
    environ = {"PATH": os.environ["PATH"], **(environ or {})}
    book = Book(files, project=project, environ=environ)
    book.refresh()
    assert not book.problems, book.problems
    (project / ".agent-state").mkdir(exist_ok=True)
    told = tell if tell is not None else []
    return Live(
        project=project,
        environ=environ,
        book=book,
        store=open_store(url, project),
        server=Server(),
        tell=told.append,
        url=url,
    )


def runs(store):
    """Every run on record."""
    return {run for run, _ in store.heads(limit=100_000)}


def said(store, loop):
    """What stands under `trigger:<loop>`, by key."""
    return {key: codec.loads(body) for key, body in store.signals(f"trigger:{loop}")}
