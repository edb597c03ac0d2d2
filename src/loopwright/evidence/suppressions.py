"""Comments that tell a checker to look away: how many a patch adds, beyond those it takes out.

Rule: counted in what changed, over all files together, so moving code is nothing. Prose is not code: files of text are
passed over. What each tool takes for such a comment: its documentation, as of 2026.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Final

# Per tool: what covers a whole file or all from here on, what covers a line whatever it breaks, and the rest.
TESTS: Final = "tests"  # no tool, but marks that tell any runner of tests to pass one over
_NONE: Final = r"(?!)"  # matches nothing
_NOQA: Final = (
    r"#\s*(?:ruff|flake8)\s*:\s*(?:noqa|disable|file-ignore)",
    r"#\s*noqa\b(?!\s*:)",
    r"#\s*noqa\b|#\s*ruff\s*:\s*ignore|#\s*isort\s*:\s*(?:skip|off)",
)
_TYPES: Final = (
    r"#\s*mypy\s*:(?!\s*(?:strict\b|disallow|warn|check|enable))",
    r"#\s*type\s*:\s*ignore\b(?!\[)",
    r"#\s*type\s*:\s*ignore|\bno_type_check\b",
)
_PYRIGHT: Final = (
    rf"{_TYPES[0]}|#\s*pyright\s*:(?!\s*(?:strict\b|ignore))",
    rf"{_TYPES[1]}|#\s*pyright\s*:\s*ignore\b(?!\[)",
    rf"{_TYPES[2]}|#\s*pyright\s*:(?!\s*strict\b)",
)
_SKIPS: Final = (
    r"\bpytest\.mark\.(?:skip\b|xfail)|\bpytest\.(?:skip|xfail)\s*\(|\bskipif\s*\(\s*(?:True|1|not False)\b"
    r"|@(?:unittest\.)?(?:skip\b|expectedFailure)|\.skipTest\(|\bSkipTest\b"
    r"|\b(?:it|test|describe|suite|context)\.(?:skip|only|todo|fixme|failing)\b|^[+-]\s*[xf](?:it|describe|test)\s*\(\s*[\"'`]"
    r"|\bt\.Skip(?:f|Now)?\(|#\[ignore\b"
)
_LOOKS_AWAY: Final[Mapping[str, tuple[str, str, str]]] = {
    "ruff": _NOQA,
    "flake8": _NOQA,
    "black": (_NONE, _NONE, r"#\s*(?:fmt|yapf)\s*:\s*(?:off|skip|disable)"),
    "isort": (r"isort\s*:\s*skip_file", _NONE, r"#\s*isort\s*:\s*(?:skip|off)"),
    "pylint": (r"pylint\s*:\s*skip-file", r"pylint\s*:\s*disable\s*=\s*all", r"pylint\s*:\s*disable"),
    "mypy": _TYPES,
    "pyright": _PYRIGHT,
    "basedpyright": _PYRIGHT,
    "bandit": (_NONE, r"#\s*nosec\b(?!\s*:?\s*B\d)", r"#\s*nosec\b"),
    "coverage": (_NONE, _NONE, r"pragma[:\s]?\s*no\s*(?:cover|branch)|(?:istanbul|c8|v8) ignore"),
    "eslint": (
        r"eslint-disable(?!-)|/\*\s*eslint\s+[\w@\"'/-]+\s*:",
        r"eslint-disable-(?:next-)?line\s*(?:\*/|--|$)",
        r"eslint-disable",
    ),
    "biome": (r"biome-ignore-(?:all|start)", _NONE, r"biome-ignore"),
    "prettier": (_NONE, _NONE, r"prettier-ignore"),
    "tsc": (r"@ts-nocheck", _NONE, r"@ts-(?:ignore|expect-error)"),
    "golangci-lint": (_NONE, r"//\s*nolint\b(?!:)", r"//\s*nolint"),
    "shellcheck": (_NONE, _NONE, r"#\s*shellcheck\s+disable"),
    TESTS: (_NONE, _NONE, _SKIPS),
    "clippy": (r"#!\[(?:allow|expect)\(", _NONE, r"#\[(?:cfg_attr\(.*)?(?:allow|expect)\("),
}
_PROSE: Final = frozenset({".md", ".rst", ".txt", ".adoc", ".patch", ".diff", ".json", ".toml", ".lock"})


def tools(command: Collection[str]) -> frozenset[str]:
    """The tools in a command line, or among the words of a script, that can be told to look away."""
    names = frozenset(PurePosixPath(word).name for word in command)
    measured = {"coverage"} if any(word.startswith("--cov") for word in command) else set()
    return (names | measured) & _LOOKS_AWAY.keys() - {TESTS}


def added(patch: str, names: Collection[str]) -> int:
    """How many such comments for these tools the patch (a unified diff) adds, less those it takes out; 0 at least.

    A wider one is not made up for by a narrower one that goes.
    """
    if not names:
        return 0
    wide, blanket, all_ = (
        re.compile("|".join(_LOOKS_AWAY[name][width] for name in sorted(names)), re.IGNORECASE)
        for width in range(3)
    )
    net = [0, 0, 0]  # of a file; of these and of a line, whatever it breaks; of all
    code, header = False, False
    for line in patch.splitlines():
        if line.startswith("diff --git "):
            code, header = PurePosixPath(line.rstrip('"')).suffix not in _PROSE, True
        elif line.startswith("@@"):
            header = False
        elif code and not header and line[:1] in {"+", "-"}:
            widest = 0 if wide.search(line) else 1 if blanket.search(line) else 2 if all_.search(line) else 3
            for width in range(widest, 3):
                net[width] += 1 if line[0] == "+" else -1
    return max(0, *net)
