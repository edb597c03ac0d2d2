"""Comments that tell a checker to look away, counted in a patch."""

from __future__ import annotations

import pytest

from loopwright.evidence.suppressions import added, tools


def patch(*lines: str, file: str = "a.py") -> str:
    """A patch of one file."""
    head = (f"diff --git a/{file} b/{file}", f"--- a/{file}", f"+++ b/{file}  # noqa", "@@ -1 +1 @@")
    return "\n".join((*head, *lines)) + "\n"


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (["/x/.venv/bin/ruff", "check", "."], {"ruff"}),
        (["python3", "-m", "mypy", "a"], {"mypy"}),
        (["sh", "-c", "ruff check ."], set()),
        (["npx", "eslint", "."], {"eslint"}),
        ([], set()),
    ],
)
def test_the_tools_of_a_command(command, found):
    assert tools(command) == found


@pytest.mark.parametrize(
    ("tool", "line"),
    [
        ("ruff", "import os  # noqa: F401"),
        ("ruff", "# ruff: noqa"),
        ("mypy", "x = 1  # type: ignore[assignment]"),
        ("pyright", "x = 1  # pyright: ignore"),
        ("pylint", "x = 1  # pylint: disable=all"),
        ("coverage", "if x:  # pragma: no cover"),
        ("eslint", "// eslint-disable-next-line no-console"),
        ("tsc", "// @ts-expect-error"),
        ("golangci-lint", "x := 1 //nolint:errcheck"),
        ("bandit", "x = 1  # nosec"),
        ("biome", "// biome-ignore lint: x"),
        ("clippy", "#[allow(dead_code)]"),
    ],
)
def test_a_comment_that_is_added_counts_for_its_tool(tool, line):
    assert added(patch(f"+{line}"), {tool}) == 1
    assert added(patch(f" {line}", f"-{line}"), {tool}) == 0
    assert added(patch(f"+{line}"), {"ruff", "tsc"} - {tool}) == 0


def test_moved_code_and_prose_are_nothing():
    line = "import os  # noqa"
    assert added(patch(f"-{line}") + patch(f"+{line}", file="b.py"), {"ruff"}) == 0
    assert added(patch(f"+{line}", file="README.md"), {"ruff"}) == 0
    assert added(patch(f"-{line}", f"+{line}", f"+{line}", f"+{line}"), {"ruff"}) == 2
    assert added(patch(f"+{line}"), ()) == 0
