"""What scripts and configurations say they read and run, taken from their text; nothing of it runs.

Rule: a word of a script is the work or a check, and only its name can say which: what is called like a check is one.
What a script includes, and what the configuration of a tool extends or sets up by, always is.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from loopwright.workspace import runners
from loopwright.workspace.named import Named, Word, mentioned, named

_MOST_WORDS = 5000  # of one text
_MOST_FILES = 100
_MOST_TEXT = 256 * 1024
_TOKEN = re.compile(r"[\w./:@+-]+")
_WORD = re.compile(r"[\w@+./-]+")
_INCLUDED = re.compile(r"^[ \t]*(?:-?include|sinclude|\.|source)[ \t]+(.+)$", re.MULTILINE)
_CHECK = r"(?:^|[-_.])(?:tests?|specs?|checks?|ci|e2e|smoke{})(?:[-_.]|$)"
_CALLED = re.compile(_CHECK.format(""))
_SHELL_CALLED = re.compile(_CHECK.format("|lint|verify|validate|gates?|grade|acceptance"))
_WRITTEN = re.compile(
    r"""(?:>{1,2}|(?<!-)-o|\btee\b|(?<![\w-])--[\w-]{0,40}(?:output|report|xml|file|log)[\w-]{0,40}[=\s:])\s*["']?([\w@./+-]+)""",
    re.IGNORECASE,
)
_KEYS = re.compile(
    r"""(?:\b(?:extends?|preset|plugins|require|runner|testRunner|environment|testEnvironment|reporters?|transform
        |resolver|rulePaths?|setup\w*|global(?:Setup|Teardown))\b["']?\s*[:=]|\bfrom\b|\bimport\b|\brequire\b)\s*""",
    re.VERBOSE,
)
_QUOTED = re.compile(r"""["'`]([^"'`\n]+)["'`]""")
_PROGRAM = re.compile(r"[\w+-][\w.+-]*")
_CONFIGS = frozenset({"js", "cjs", "mjs", "ts", "cts", "mts", "json", "json5", "toml", "yaml", "yml"})
_ENDS = ("", *(f".{end}" for end in ("json", "js", "cjs", "mjs", "ts", "cts", "mts")))
_RULE = re.compile(
    r"^([^\s:#=][^:#=\n]*):(?!=)([^\n]*)((?:\n(?:\t[^\n]*|[ ]*(?:#[^\n]*)?(?=\n)))*)", re.MULTILINE
)
_RUN = re.compile(
    r"\b(?:npm|pnpm|yarn|bun)\s+(?:run(?:-script)?\s+)?(?:--?\S+\s+)*([\w:.-]+)|\brun-[sp]\s+([^&|;]+)"
)


def words_behind(root: Path, command: Sequence[str], cwd: str = "") -> frozenset[str]:
    """The words of a gate's command, and of all that it runs by scripts, `make` targets and `npm` scripts in `root`."""
    argv = [PurePosixPath(command[0]).name if command[0][:1] == "/" else command[0], *command[1:]]
    said = frozenset(_TOKEN.findall("\n".join(argv)))
    left = [(word, said) for word in named([{"use": "command", "run": argv, "cwd": cwd}]).scripts]
    read = set[str]()
    while left and len(read) < _MOST_FILES:
        word, given = left.pop()
        path = posixpath.normpath(posixpath.join(word.cwd, word.text))
        if path in read:
            continue
        read.add(path)
        text = reached(posixpath.basename(path), _text(root, path), sorted(given))
        words = frozenset(_TOKEN.findall(text))
        said |= words
        more = {Word(each, word.cwd) for each in checks(text)} | mentioned(text).scripts
        left += [(each, words) for each in more]
    return said


def tools(root: Path, gates: Named) -> Named:
    """The tools that these gates' scripts mention, also by the files of the runners they mention; as words the checks they run."""
    kinds, words, programs, read = frozenset[str](), set[Word](), set[str](), set[tuple[str, str]]()
    left = set(gates.scripts)
    while left:
        word = left.pop()
        path = posixpath.normpath(posixpath.join(word.cwd, word.text))
        if (path, word.cwd) in read or len(read) >= _MOST_FILES or not (text := _text(root, path)):
            continue
        read.add((path, word.cwd))
        more = mentioned(text)
        kinds |= more.kinds | ({"python"} if path.endswith(".py") else frozenset())
        programs |= frozenset(_PROGRAM.findall(text))
        beside = posixpath.dirname(path)
        found = {Word(each, cwd) for each in checks(text) for cwd in {word.cwd, beside}}
        found = {each for each in found if _file(root, posixpath.join(each.cwd, each.text))}
        words |= found
        left |= found | more.scripts | {Word(each.text, beside) for each in more.scripts}
    return Named(kinds=kinds, words=frozenset(words), wrapped=frozenset(programs))


def is_config(path: str) -> bool:
    """Whether this is the configuration of a tool, which may extend others."""
    name = posixpath.basename(path)
    stem, dot, end = name.rpartition(".")
    return name not in {"package.json", "loop.toml"} and (end in _CONFIGS or not (stem and dot))


def _file(root: Path, path: str) -> Path | None:
    """The file that a path leads to, if it is one below the root: no pipe, which would be waited for."""
    path = posixpath.relpath(path, root) if path[:1] == "/" else posixpath.normpath(path)
    try:
        return root / path if not path.startswith("..") and (root / path).is_file() else None
    except (OSError, ValueError):
        return None


def _text(root: Path, path: str) -> str:
    """What a file below the root says; nothing where there is none."""
    file = _file(root, path)
    try:
        if file is None:
            return ""
        with file.open("rb") as content:
            return content.read(_MOST_TEXT).decode("latin-1")
    except OSError:
        return ""


def checks(text: str) -> Iterator[str]:
    """The paths in a script that are called like checks, and all that it includes."""
    written = set(_WRITTEN.findall(text))
    words = (word.rstrip(".") for word in dict.fromkeys(_WORD.findall(text)) if "/" in word or "." in word)
    for path in islice(words, _MOST_WORDS):
        if is_check(path) and path not in written:
            yield path.removeprefix("./")
    for line in _INCLUDED.findall(text):
        yield from (word.strip("\"'") for word in line.split() if not word.startswith("#"))


def phantoms(text: str, words: Iterable[str]) -> Iterator[str]:
    """The targets of a Makefile among these words that are commands and not files: a file of this name would stop them.

    One that is said to be phony cannot be stopped, one whose recipe writes it is a file.
    """
    rules = _rules(text)
    phony = " ".join(before for target, (before, _) in rules.items() if target == ".PHONY").split()
    for word in words:
        recipe = rules.get(word, ("", ""))[1]
        if (
            recipe.strip()
            and word not in phony
            and not re.search(rf"\$@|(?:-o|>|touch)\s*{re.escape(word)}\b", recipe)
        ):
            yield word


def is_check(path: str) -> bool:
    """Whether a file is called like one that checks something, or stands where tests do."""
    *folders, name = path.split("/")
    called = _SHELL_CALLED if name.endswith((".sh", ".bash")) or "." not in name else _CALLED
    return called.search(name.lower()) is not None or bool(runners.TEST_FOLDERS & set(folders))


def extended(text: str) -> Iterator[str]:
    """The paths, from its own folder, by which a configuration extends itself or sets its tool up."""
    for key in _KEYS.finditer(text):
        rest = text[key.end() : key.end() + 1000].lstrip("(")
        span = rest.partition("]")[0] if rest[:1] == "[" else rest.partition("\n")[0].partition(",")[0]
        for word in _QUOTED.findall(span):
            path = posixpath.normpath(word.replace("<rootDir>", "."))
            if not path.startswith(("/", "..")) or word.startswith("../"):
                yield from (path + end for end in _ENDS)


def reached(name: str, text: str, words: Sequence[str]) -> str:
    """The part of the file of a runner that is run when the runner is given these words; else all of it."""
    if name == "package.json":
        return "\n".join(_scripts(text, words))
    if name.lower() in {"makefile", "gnumakefile"}:
        return "\n".join(_recipes(text, [word for word in words if not word.startswith("-")]))
    return text


def _scripts(text: str, words: Sequence[str]) -> Iterator[str]:
    try:
        document: Any = json.loads(text)
        scripts: dict[str, Any] = dict(document["scripts"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    left, seen = list(words), set[str]()
    while left:
        name = left.pop()
        name = "test" if name in {"t", "tst"} else name
        for each in (f"pre{name}", name, f"post{name}"):
            if each not in seen and isinstance(script := scripts.get(each), str):
                seen.add(each)
                yield script
                left += [word for found in _RUN.findall(script) for some in found for word in some.split()]


def _rules(text: str) -> dict[str, tuple[str, str]]:
    """Each target of a Makefile with what comes before it and its recipe."""
    rules: dict[str, tuple[str, str]] = {}
    for targets, before, recipe in _RULE.findall(text):
        for target in targets.split():
            old = rules.get(target, ("", ""))
            rules[target] = f"{old[0]} {before}", f"{old[1]}\n{recipe}"
    return rules


def _recipes(text: str, words: Iterable[str]) -> Iterator[str]:
    rules = _rules(text)
    first = next((target for target in rules if not target.startswith(".")), "")
    left, seen = [word for word in words if word in rules] or [first], set[str]()
    yield from (
        line for line in text.splitlines() if re.match(r"[\w.-]+\s*[:?+]?=", line)
    )  # what is filled in
    while left:
        if (target := left.pop()) in seen:
            continue
        seen.add(target)
        before, recipe = rules.get(target, ("", ""))
        yield recipe
        left += before.partition(";")[0].split()
        left += re.findall(r"(?:\bmake|\$[({]MAKE[)}])\s+([\w.-]+)", recipe)
        yield before.partition(";")[2]
