"""A server as the triggers see it: loops from real files, a real store in a folder, and nobody who works on the runs."""

import hashlib
import hmac
import json
import os
from datetime import UTC, datetime

from loopwright import codec
from loopwright.serving import hooks
from loopwright.serving.book import Book
from loopwright.serving.live import Live
from loopwright.stores.opened import open_store
from loopwright.unattended import Server

WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SECRET = "a secret of the hook"
ENV = {"HOOK_SECRET": SECRET.replace(" ", "-")}
HOOK = '[[trigger]]\nwebhook = "ci"\nsecret = "HOOK_SECRET"\nsignature = "github"\n'
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


def delivery(payload, name="d-1", event="issues", secret=ENV["HOOK_SECRET"]):
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "content-type": "application/json",
        "x-github-event": event,
        "x-github-delivery": name,
        "x-hub-signature-256": f"sha256={digest}",
    }, body


def sent(server, payload, name="d-1", hook="ci", **how):
    return hooks.received(server, hook, *delivery(payload, name, **how), NOW)
