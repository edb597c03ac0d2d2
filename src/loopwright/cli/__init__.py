"""The command line: one file per group of verbs, no logic of its own."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def main() -> None:
    """The program `loopwright`: runs the verb and exits with the code of DESIGN §11."""
    if sys.argv[1:] == ["--version"]:  # answered without loading anything
        from loopwright import __version__

        print(f"loopwright {__version__}")
        sys.exit(0)
    from loopwright.cli.app import run_app

    code = run_app()
    _let_go()
    sys.exit(code)


def _let_go() -> None:
    """Flushes both streams; one that nobody reads must not turn the run's exit code into Python's 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
