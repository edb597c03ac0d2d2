"""Comments that tell a checker to look away: how many a patch adds, beyond those it takes out.

Rule: counted in what changed, over all files together, so moving code is nothing. Prose is not code: files of text are
passed over. What each tool takes for such a comment: its documentation, as of 2026.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Final

_NOQA: Final = r"#\s*(?:ruff:\s*|flake8:\s*)?noqa\b"
_TYPES: Final = r"#\s*type:\s*ignore|@(?:typing\.)?no_type_check\b"
_LOOKS_AWAY: Final = {
    "ruff": _NOQA,
    "flake8": _NOQA,
    "pylint": r"pylint:\s*(?:disable|skip-file)",
    "mypy": _TYPES + r"|#\s*mypy:\s*ignore-errors",
    "pyright": _TYPES + r"|#\s*pyright:\s*(?:ignore|basic|off)",
    "basedpyright": _TYPES + r"|#\s*pyright:\s*(?:ignore|basic|off)",
    "bandit": r"#\s*nosec\b",
    "coverage": r"pragma:\s*no\s?(?:cover|branch)|(?:istanbul|c8|v8) ignore",
    "eslint": r"eslint-disable",
    "biome": r"biome-ignore",
    "tsc": r"@ts-(?:ignore|nocheck|expect-error)",
    "golangci-lint": r"//\s*nolint",
    "clippy": r"#!?\[allow\(",
}
_PROSE: Final = frozenset({".md", ".rst", ".txt", ".adoc", ".patch", ".diff", ".json", ".toml", ".lock"})


def tools(command: Collection[str]) -> frozenset[str]:
    """The tools in a command line that can be told to look away."""
    return frozenset(PurePosixPath(word).name for word in command) & _LOOKS_AWAY.keys()


def added(patch: str, names: Collection[str]) -> int:
    """How many such comments for these tools the patch (a unified diff) adds, less those it takes out; 0 at least."""
    if not names:
        return 0
    comment = re.compile("|".join(_LOOKS_AWAY[name] for name in sorted(names)))
    net, code, header = 0, False, False
    for line in patch.splitlines():
        if line.startswith("diff --git "):
            code, header = PurePosixPath(line.rstrip('"')).suffix not in _PROSE, True
        elif line.startswith("@@"):
            header = False
        elif code and not header and line[:1] in {"+", "-"} and comment.search(line):
            net += 1 if line[0] == "+" else -1
    return max(0, net)
