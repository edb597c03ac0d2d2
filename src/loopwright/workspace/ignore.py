"""What snapshots leave out, by name.

The rule: what is left out is decided once, at snapshot 0. The patterns of every `.gitignore` and of
`.git/info/exclude` are copied then into one file of ours, each rewritten to mean the same from the
workspace root; a pattern that an agent adds later hides nothing.
"""

# Names are bytes here, which pathlib cannot hold.
# ruff: noqa: PTH118, PTH123

from __future__ import annotations

import fnmatch
import os
import re
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

LITTER_FOLDERS = frozenset(
    b"__pycache__ .pytest_cache .ruff_cache .mypy_cache .hypothesis .tox .nox .venv node_modules "
    b".import_linter_cache .agent-state".split()
)
LITTER_FILES = (b".coverage", b".coverage.*", b"*.pyc", b".DS_Store", b".loopwright-*.tmp")
_LITTER_FILE = re.compile("|".join(fnmatch.translate(name.decode()) for name in LITTER_FILES).encode())
_GITIGNORE_LIMIT = 4 * 1024 * 1024  # bytes read of one file of patterns

_EXAMPLE = re.compile(rb"\.(example|sample|template|tmpl|dist)$")
_SOURCE = re.compile(
    rb"\.(py|pyi|js|mjs|ts|tsx|jsx|go|rs|java|kt|rb|php|cs|c|h|cc|cpp|swift|md|rst|html|css|vue)$"
)
_SECRET = re.compile(
    rb"\.env|\.env\..*|\.envrc|.*\.(pem|key|p12|pfx|ppk|jks|keystore|kdbx)|id_(rsa|dsa|ecdsa|ed25519).*"
    rb"|credentials.*|secrets\.(json|ya?ml|toml)|service[-_]account.*\.json"
    rb"|[._]netrc|\.npmrc|\.pypirc|\.pgpass|\.git-credentials|\.htpasswd|\.dockercfg",
    re.DOTALL,
)


def is_secret(path: bytes) -> bool:
    """True when the file's name looks like one that holds a secret (`.env`, `*.pem`, `id_rsa` …).

    Examples (`.env.example`), public keys (`id_rsa.pub`) and source code (`credentials.py`) do not.
    """
    name = path.rpartition(b"/")[2].lower()
    if _SECRET.fullmatch(name) is None or _EXAMPLE.search(name) or name.endswith(b".pub"):
        return False
    return not (name.startswith((b"credentials", b"id_")) and _SOURCE.search(name))


def is_litter(name: bytes) -> bool:
    """True when a file or folder of this name is what tools leave behind, never work."""
    return name in LITTER_FOLDERS or _LITTER_FILE.fullmatch(name) is not None


def frozen_patterns(root: Path, *, top: Path | None = None, info: Path | None = None) -> bytes:
    """The text of one exclude file, relative to `root`, that ignores what git would ignore there now.

    `top` is the top folder of the user's repository, `info` its `info/exclude`. Tool litter is added
    last, so that no `!pattern` brings it back.
    """
    lines: list[bytes] = []
    top = top or root
    inner = os.fsencode(root.relative_to(top)).split(b"/") if root != top else []
    if info is not None:
        lines += _from_above(patterns_in(os.fsencode(info)), inner)
    for depth in range(len(inner)):
        folder = os.path.join(os.fsencode(top), *inner[:depth])
        lines += _from_above(patterns_in(os.path.join(folder, b".gitignore")), inner[depth:])
    for prefix, patterns in _below(os.fsencode(root)):
        lines += [_from_below(pattern, prefix) for pattern in patterns]
    lines += [name + b"/" for name in sorted(LITTER_FOLDERS)]
    lines += LITTER_FILES
    return b"\n".join(lines) + b"\n"


def exactly(path: bytes) -> bytes:
    """A pattern that matches this one path below the root and what it holds."""
    return b"/" + _literal(path)


def _literal(path: bytes) -> bytes:
    # A newline cannot be written in a file of patterns; "?" is one character, whatever it is.
    return re.sub(rb"([\\*?\[\] ])", rb"\\\1", path).replace(b"\n", b"?")


def _below(root: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Each folder that has patterns, outer before inner, and these; those of repositories inside too."""
    folders = [b""]
    while folders:
        prefix = folders.pop()
        try:
            with os.scandir(os.path.join(root, prefix)) as entries:
                found = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            continue  # unreadable or gone: git cannot look into it either
        patterns = patterns_in(os.path.join(root, prefix, b".gitignore")) if b".gitignore" in found else []
        if prefix and b".git" in found:
            patterns = patterns_in(os.path.join(root, prefix, b".git/info/exclude")) + patterns
        if patterns:
            yield prefix, patterns
        if any(line in {b"*", b"/*", b"**"} for line in patterns) and not any(
            line[:1] == b"!" for line in patterns
        ):
            continue  # all of it is ignored, as in a virtual environment: nothing inside can matter
        inner = (name for name, is_folder in found.items() if is_folder and name not in LITTER_FOLDERS)
        folders += [os.path.join(prefix, name) for name in inner if name != b".git"]


def patterns_in(file: bytes) -> list[bytes]:
    """The lines of a file of patterns that say something; git too reads no symlink here. None when it is missing."""
    try:
        if not stat.S_ISREG(os.lstat(file).st_mode):
            return []
        with open(file, "rb") as text:
            content = text.read(_GITIGNORE_LIMIT)
    except OSError:
        return []
    lines = (line.removesuffix(b"\r") for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
    return [line for line in map(_without_trailing_spaces, lines) if line.strip(b"!/") and line[:1] != b"#"]


def _without_trailing_spaces(line: bytes) -> bytes:
    while line.endswith(b" ") and not line.endswith(b"\\ "):
        line = line[:-1]
    return line


def _split(line: bytes) -> tuple[bytes, bytes, bytes, bool]:
    """A pattern as (`!`, body, `/`, anchored), the slashes at both ends taken off."""
    negation, body = (b"!", line[1:]) if line[:1] == b"!" else (b"", line)
    only_folders = b"/" if body.endswith(b"/") else b""
    body = body.removesuffix(b"/")
    return negation, body.removeprefix(b"/"), only_folders, b"/" in body


def _from_below(line: bytes, prefix: bytes) -> bytes:
    if not prefix:
        return line
    negation, body, only_folders, anchored = _split(line)
    between = b"/" if anchored else b"/**/"
    return negation + exactly(prefix) + between + body + only_folders


def _from_above(lines: Sequence[bytes], inner: Sequence[bytes]) -> list[bytes]:
    """Patterns of a folder above the workspace, as seen from it.

    A pattern that would ignore the whole workspace is left out: whoever starts a run in an ignored
    folder means that folder.
    """
    if not inner:
        return list(lines)
    seen: list[bytes] = []
    for line in lines:
        negation, body, only_folders, anchored = _split(line)
        if not anchored:
            if not any(_matches(body, part) for part in inner):
                seen.append(line)
            continue
        rests = dict.fromkeys(_rests(tuple(body.split(b"/")), tuple(inner)))
        seen += [
            negation + b"/" + b"/".join(rest) + only_folders for rest in rests if set(rest) - {b"**", b"*"}
        ]
    return seen


def _rests(pattern: tuple[bytes, ...], inner: tuple[bytes, ...]) -> Iterator[tuple[bytes, ...]]:
    """What is left of a pattern after its first parts have matched all of `inner`."""
    if not inner:
        yield pattern
    elif pattern and pattern[0] == b"**":
        yield from _rests(pattern[1:], inner)
        yield from _rests(pattern, inner[1:])
    elif pattern and _matches(pattern[0], inner[0]):
        yield from _rests(pattern[1:], inner[1:])


def _matches(pattern: bytes, name: bytes) -> bool:
    if not re.search(rb"[*?\[]", pattern):
        return re.sub(rb"\\(.)", rb"\1", pattern) == name
    return fnmatch.fnmatchcase(name, pattern.replace(b"[^", b"[!"))
