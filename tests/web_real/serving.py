"""A server with its page, as one process: `python serving.py FOLDER LOOPFILE`; prints the address that lets one in.

Rule: what `loopwright serve` does with them, no more: it drives runs in one thread and shows them from another.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from loopwright.serving.book import Book
from loopwright.serving.host import first_look, host
from loopwright.serving.live import Live
from loopwright.state_folder import create_state
from loopwright.stores.opened import open_store
from loopwright.web import server


def main() -> int:
    """Serves until a signal ends it."""
    project = Path(sys.argv[1]).resolve()
    environ = {**os.environ, "USER": "mira", "LOGNAME": "mira"}
    book = Book([project / name for name in sys.argv[2:]], project=project, environ=environ)
    first_look(book)
    create_state(project / ".agent-state")
    live = Live(
        project=project,
        environ=environ,
        book=book,
        store=open_store(None, project),
        server=book.server,
        tell=lambda line: print(line, file=sys.stderr, flush=True),
    )
    served = server.start(live, port=int(os.environ.get("PORT", "0")))

    def ready() -> None:
        print(served.links()["mira"], flush=True)

    try:
        return 128 + asyncio.run(host(live, ready=ready))
    finally:
        served.stop()


if __name__ == "__main__":
    sys.exit(main())
