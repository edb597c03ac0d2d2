"""Comments that tell a checker to look away, counted in a patch."""

from __future__ import annotations

import pytest

from loopwright.evidence.suppressions import TESTS, added, tools


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
        (["pytest", "--cov=app", "--cov-fail-under=90"], {"coverage"}),
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
        ("ruff", "import os  # NOQA"),
        ("ruff", "# ruff: disable[F401]"),
        ("mypy", '# mypy: disable-error-code="misc"'),
        ("mypy", "from typing import no_type_check as no"),
        ("pyright", "# pyright: reportMissingImports=false"),
        ("eslint", '/* eslint no-console: "off" */'),
        ("coverage", "if x:  # PRAGMA NO COVER"),
        (TESTS, "@pytest.mark.xfail"),
        (TESTS, "@unittest.skip('x')"),
        (TESTS, "test.only('x', () => {"),
        (TESTS, "xit('x', () => {"),
        (TESTS, '    @pytest.mark.skipif(True, reason="x")'),
    ],
)
def test_a_comment_that_is_added_counts_for_its_tool(tool, line):
    assert added(patch(f"+{line}"), {tool}) == 1
    assert added(patch(f" {line}", f"-{line}"), {tool}) == 0
    assert added(patch(f"+{line}"), {"ruff", "tsc"} - {tool}) == 0


@pytest.mark.parametrize(
    ("tool", "before", "after", "counts"),
    [
        ("ruff", "import os  # noqa: F401", "import os  # noqa", 1),
        ("ruff", "import os  # noqa", "import os  # noqa: F401", 0),
        ("ruff", "import os  # noqa: F401", "# ruff: noqa", 1),
        ("mypy", "x = 1  # type: ignore[misc]", "# mypy: ignore-errors", 1),
        ("eslint", "// eslint-disable-next-line no-console", "/* eslint-disable */", 1),
        ("eslint", "/* eslint-disable */", "// eslint-disable-next-line no-console", 0),
        ("mypy", "x = 1", "# mypy: strict", 0),
        ("pyright", "x = 1", "# pyright: strict", 0),
        (TESTS, "x = 1", "@pytest.mark.skipif(sys.platform == 'win32', reason='x')", 0),
        (TESTS, "x = 1", "fit = model.fit(x)", 0),
    ],
)
def test_a_wider_comment_is_not_made_up_for_by_a_narrower_one(tool, before, after, counts):
    assert added(patch(f"-{before}", f"+{after}"), {tool}) == counts


def test_moved_code_and_prose_are_nothing():
    line = "import os  # noqa"
    assert added(patch(f"-{line}") + patch(f"+{line}", file="b.py"), {"ruff"}) == 0
    assert added(patch(f"+{line}", file="README.md"), {"ruff"}) == 0
    assert added(patch(f"-{line}", f"+{line}", f"+{line}", f"+{line}"), {"ruff"}) == 2
    assert added(patch(f"+{line}"), ()) == 0
