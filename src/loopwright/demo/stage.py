"""The folder the demo plays in: copies of its project, each a repository of its own.

Rule: only a folder that an earlier demo made, and marked, is ever removed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from loopwright.errors import UsageError

FOLDER: Final = "loopwright-demo"
MARK: Final = ".made-by-loopwright-demo"
TOOLS: Final = ("pytest", "ruff")


def set_up(place: Path) -> Path:
    """A fresh `loopwright-demo` in `place`; `UsageError` when one stands there that no demo made."""
    folder = place / FOLDER
    if folder.is_symlink() or (folder.exists() and not (folder / MARK).is_file()):
        raise UsageError(f"{folder} exists and was not made by the demo: move it away, or use -C DIR")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    return folder


def add_project(folder: Path, name: str) -> Path:
    """A copy of the demo's project in `folder`, committed to a repository of its own where there is git."""
    copy = folder / name
    with as_file(files("loopwright.demo") / "project") as project:
        shutil.copytree(
            project, copy, ignore=shutil.ignore_patterns("__pycache__", ".*_cache", ".agent-state")
        )
    git = shutil.which("git")
    if git is not None:
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        who = ("-c", "user.name=loopwright demo", "-c", "user.email=demo@loopwright.invalid")
        for verb in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "as found")):
            subprocess.run([git, *verb], cwd=copy, env=env, check=True, timeout=30, capture_output=True)
    return copy


def tools_path(environ_path: str, executable: str) -> str:
    """PATH with this Python's own tools first, as in an activated environment; `UsageError` if one is missing."""
    path = os.pathsep.join(p for p in (str(Path(executable).parent), environ_path) if p)
    missing = [tool for tool in TOOLS if shutil.which(tool, path=path) is None]
    if missing:
        raise UsageError(f"the demo needs {' and '.join(missing)}: pip install 'loopwright[demo]'")
    return path
