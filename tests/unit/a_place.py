"""A place for a gate to work in, and its score, for the tests of gates."""

import asyncio
import os
import sys
from pathlib import Path

from loopwright.gates.measure import measure
from loopwright.ports import Place, Seen

CASES = Path(__file__).parents[1] / "cases"
BIN = Path(sys.executable).parent


def place(tmp_path, **options):
    root = tmp_path / "work"
    root.mkdir(exist_ok=True)
    path = os.pathsep.join([str(BIN), "/usr/local/bin", "/usr/bin", "/bin"])
    given = {
        "root": root,
        "project": root,
        "artifacts": tmp_path / "artifacts",
        # Our own plug-ins of pytest are none of these projects' business, and compiling them takes seconds.
        "env": {"PATH": path, "HOME": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        "timeout_s": 60.0,
        "grace_s": 0.3,
    }
    return Place(**given | options)


def score(gate, where, **seen):
    return asyncio.run(measure(gate, Seen(**{"iteration": 1, "workdir": where.root} | seen), where))


def write(root, **files):
    """Files by name; `tests__test_a` is tests/test_a.py."""
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
