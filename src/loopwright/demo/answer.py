"""What the demo's command agents say and how they write: the manners of any command agent.

The prompt comes on stdin, progress goes to stdout line by line, and the last line of stdout is one JSON object of
type "result". A file is replaced whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path


def ignore_prompt() -> None:
    """Read the prompt to its end, so that whoever writes it is never left with a broken pipe."""
    if sys.stdin is not None and not sys.stdin.isatty():
        while sys.stdin.buffer.read(65536):
            pass


def say(line: str) -> None:
    """Show a sign of life at once, on terminals that cannot show every character too."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()


def finish(summary: str, turns: int) -> int:
    """Print the result line and return the exit code that goes with it."""
    result = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "num_turns": turns,
        "summary": summary,
        "cost_usd": 0.0,
        "tokens": 0,
    }
    say(json.dumps(result))
    return 0


def give_up(program: str, why: str) -> int:
    """Say on stderr why nothing could be done and return the exit code that goes with it."""
    sys.stderr.write(f"{program}: {why}\n")
    return 1


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file's content in one step, keeping its mode and what a link points to."""
    target = path.resolve()
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        fresh.write_bytes(data)
        shutil.copymode(target, fresh)
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
