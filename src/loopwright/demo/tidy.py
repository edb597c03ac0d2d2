"""Lint findings that ruff can remove safely, one file at a time.

The fixed text is asked for on a pipe and nothing is written: who asks decides, after the tests have had their say.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Tidied:
    """A file with fewer findings: its new text and what was removed, such as "F401"."""

    path: str
    source: bytes
    rules: tuple[str, ...]


def ruff() -> list[str] | None:
    """The command that starts ruff: the one of this Python, else the one on PATH, else None."""
    if importlib.util.find_spec("ruff"):
        return [sys.executable, "-m", "ruff"]
    found = shutil.which("ruff")
    return [found] if found else None


def findings(command: Sequence[str], sources: Sequence[str]) -> list[dict[str, Any]]:
    """What ruff finds in these files, with the project's own settings; raises RuntimeError if it cannot look."""
    if not sources:
        return []
    done = _run([*command, "check", "--no-cache", "--output-format=json", "--", *sources])
    if done.returncode > 1:
        raise RuntimeError(done.stderr.decode("utf-8", "replace").strip())
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def tidied(command: Sequence[str], sources: Sequence[str]) -> list[Tidied]:
    """The files from which ruff can remove findings without changing what the code does, in order of their names."""
    by_file: dict[str, Counter[str]] = {}
    for finding in findings(command, sources):
        if (finding.get("fix") or {}).get("applicability") == "safe":
            by_file.setdefault(finding["filename"], Counter())[finding["code"]] += 1
    known = {str(Path(path).resolve()): path for path in sources}
    fixed = []
    for name in sorted(by_file):
        path = known.get(str(Path(name).resolve()))
        if path is None:
            continue
        before = Path(path).read_bytes()
        check = [*command, "check", "--no-cache", "--quiet", "--fix-only", "--stdin-filename", path, "-"]
        done = _run(check, before)
        if done.returncode == 0 and done.stdout not in (b"", before):
            fixed.append(Tidied(path, done.stdout, tuple(sorted(by_file[name]))))
    return fixed


def _run(command: list[str], text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, input=text, capture_output=True, check=False)
