"""The command line: one file per group of verbs, no logic of its own."""

from __future__ import annotations

import sys


def main() -> None:
    """The program `loopwright`: runs the verb and exits with the code of DESIGN §11."""
    if sys.argv[1:] == ["--version"]:  # answered without loading anything
        from loopwright import __version__

        print(f"loopwright {__version__}")
        sys.exit(0)
    from loopwright.cli.app import run_app

    sys.exit(run_app())
