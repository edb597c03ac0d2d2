"""Fetches the real coding-agent CLIs into `.venv/agents`: make test-agents.

Rule: one that cannot be had takes no other with it; why it cannot is left in `.venv/agents/NAME.failed`, for the tests
to say. What is pinned stands in package.json here and in requirements/agents.txt.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INTO = ROOT / ".venv" / "agents"
LIMIT_S = 600

PROGRAMS = {  # by what is to be on PATH: where the packages leave it
    "claude": "npm/node_modules/@anthropic-ai/claude-code-*/claude",
    "codex": "npm/node_modules/.bin/codex",
    "opencode": "npm/node_modules/opencode-*/bin/opencode",
    "aider": "aider/bin/aider",
}


def fetch(*argv: str, cwd: Path = ROOT) -> str:
    """Runs this; the end of what it said if it failed, else nothing."""
    try:
        done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr or done.stdout).strip()[-600:]


def from_npm() -> str:
    """The packages of npm."""
    folder = INTO / "npm"
    folder.mkdir()
    shutil.copy(HERE / "package.json", folder)
    flags = ("--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
    return fetch("npm", "install", *flags, cwd=folder)


def from_pypi() -> str:
    """aider, in an environment of its own: it pins a hundred packages."""
    python = INTO / "aider" / "bin" / "python"
    wanted = str(ROOT / "requirements" / "agents.txt")
    return fetch(sys.executable, "-m", "venv", str(INTO / "aider")) or fetch(
        str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q", "-r", wanted
    )


def main() -> None:
    """Fetches all, links what came into `bin`, and says so."""
    shutil.rmtree(INTO, ignore_errors=True)
    (INTO / "bin").mkdir(parents=True)
    begun = time.monotonic()
    with ThreadPoolExecutor() as pool:
        npm, pypi = pool.submit(from_npm), pool.submit(from_pypi)
    wrong = {name: (pypi if name == "aider" else npm).result() for name in PROGRAMS}
    for name, pattern in PROGRAMS.items():
        found = next(iter(sorted(INTO.glob(pattern))), None)
        why = wrong[name] or "its package has nothing for this machine"
        if found is not None:
            (INTO / "bin" / name).symlink_to(found)
            why = fetch(str(INTO / "bin" / name), "--version")
        if why:
            (INTO / f"{name}.failed").write_text(why)
        print(f"{name}: {why or 'installed'}")
    print(f"agents fetched in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
