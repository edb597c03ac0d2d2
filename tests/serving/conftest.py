"""The stage of each test, in a git repository: what a server starts works in a worktree."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cli"))


@pytest.fixture
def stage(tmp_path):
    from stage import Stage

    made = Stage.made(tmp_path)
    made.git("init", "--quiet")
    made.write("seed.txt", "seed\n")
    made.git("add", "seed.txt")
    made.git("commit", "--quiet", "-m", "seed")
    return made
