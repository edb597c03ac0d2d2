"""What the gates of a loop name: tools, programs, files. Read from how they are written; nothing runs.

Rule: what a program that looks at the work is given (`grep -q done app.py`, `ruff check src`) is the work; what any
other is given is evidence. A script runs the tools that its text mentions; a program that is not known may run any.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from loopwright.workspace import runners

_FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):[A-Za-z_][\w.]*")
_PROGRAM = re.compile(r"[\w+-][\w.+-]*")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_SYNTAX = frozenset(
    ("if", "then", "else", "elif", "fi", "while", "until", "for", "do", "done", "case", "esac", "{", "}", "!")
)
_TAKES = frozenset({"-X", "-W", "--check-hash-based-pycs"})  # options of Python with a word behind them
_MOST_FOLDERS = 8  # that a shell may be in
_MOST_DEPTH = 4  # of a shell in a shell


@dataclass(frozen=True, slots=True)
class Word:
    """A word that may be a file of the workspace: relative to the folder `cwd`; `tests` when given to a test runner.

    `of` is the module it belongs to (with `:` behind it, in a package around it): where the module was there, a new
    file of it would be run in its place.
    """

    text: str
    cwd: str = ""
    tests: bool = False
    of: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """What gates name: kinds of tools, words that may be files, programs looked for on PATH, those behind a wrapper.

    `scripts` are files whose text says what else is run. `tests`: a runner of tests is started, or what says that it is.
    """

    kinds: frozenset[str] = frozenset()
    words: frozenset[Word] = frozenset()
    programs: frozenset[str] = frozenset()
    wrapped: frozenset[str] = frozenset()
    scripts: frozenset[Word] = frozenset()
    tests: bool = False

    def __or__(self, other: Named) -> Named:
        return Named(
            self.kinds | other.kinds,
            self.words | other.words,
            self.programs | other.programs,
            self.wrapped | other.wrapped,
            self.scripts | other.scripts,
            self.tests or other.tests,
        )

    @property
    def cwds(self) -> frozenset[str]:
        """The folders that gates run in."""
        return frozenset(word.cwd for word in self.words) | {""}


def named(gates: Iterable[Any]) -> Named:
    """What these gates name, each as a loop's `spec` has it: a text, or a table with `use` and options."""
    found = Named()
    for gate in gates:
        found |= _gate(gate if isinstance(gate, Mapping) else {"use": str(gate)})
    return found


def _gate(gate: Mapping[str, Any]) -> Named:
    use, cwd = str(gate.get("use", "")), str(gate.get("cwd") or "")
    if (script := re.fullmatch(r"script:(.*)#[^#]*", use)) is not None:
        return Named(words=frozenset({Word(script[1])}))
    argv = _words(use)
    name = argv[0].partition(":")[0] if argv else ""
    if (function := _FUNCTION.fullmatch(use)) is not None and name not in _REPORTS:
        return Named(words=_module(function[1], ""))
    found = Named(words=frozenset({Word("", cwd)}))
    if "run" in gate:
        found |= _command(_words(gate["run"]), cwd)
    if name == "judge":
        rubric = str(gate.get("rubric") or use.partition(":")[2])
        words = frozenset({Word(rubric[1:].strip(), cwd)} if rubric.startswith("@") else ())
        return found | Named(words=words) | _command(_words(gate.get("agent")), cwd)
    if name == "types":
        found |= _command([str(gate.get("tool", "mypy"))], cwd)
    elif len(argv) == 1 and (name in runners.TESTERS or name in runners.CHECKERS):
        found |= _command([name, *_words(gate.get("args", ()))], cwd)
    elif "run" not in gate and not (len(argv) == 1 and name in _REPORTS):
        found |= _command(argv, cwd)
    if "python" in found.kinds:
        found |= Named(programs=frozenset({"python", "python3"}))
    return found


def starts_tests(argv: list[str]) -> bool:
    """Whether a command starts a runner of tests (`unittest`, `go`), or what calls itself one (`make test`, `t/run.sh`)."""
    return _command([str(word) for word in argv], "").tests


# Gates that only read what another gate's command wrote.
_REPORTS = frozenset({"junit", "lint", "sarif", "tap", "score", "checklist", "diff", "judge"})


def _words(command: Any) -> list[str]:
    if not isinstance(command, str):
        return [str(word) for word in command or ()]
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _command(argv: list[str], cwd: str, *, wrapped: bool = False, depth: int = 0) -> Named:
    """What one command names."""
    argv = list(argv)
    while argv and (_ASSIGNED.match(argv[0]) or argv[0] in _SYNTAX):
        del argv[0]
    if not argv or depth > _MOST_DEPTH:
        return Named()
    program, rest = PurePosixPath(argv[0]).name or argv[0], argv[1:]
    on_path = frozenset({program}) if _PROGRAM.fullmatch(argv[0]) else frozenset()
    found = Named(programs=frozenset() if wrapped else on_path, wrapped=on_path if wrapped else frozenset())
    if "/" in argv[0]:
        found |= _script(argv[0], cwd)
    if program in runners.WRAPPERS:
        project = program in runners.LAUNCHERS
        return found | _wrapped(rest, cwd, wrapped=wrapped or project, project=project, depth=depth)
    if program in runners.SHELLS:
        return found | _shell(rest, cwd, depth)
    if re.fullmatch(r"(python|pypy)[\d.]*w?", program):
        return found | _python(rest, cwd, depth)
    if argv[0] in {".", "source"}:
        return found | _given(rest, cwd) | _script(rest[0] if rest else "", cwd)
    if program in runners.CHECKERS:
        return found | Named(kinds=frozenset(runners.CHECKERS[program]), words=_configs(rest, cwd))
    if program in runners.TESTERS:
        inner = Named()
        if program == "coverage" and rest[:1] == ["run"]:
            inner = _python(rest[1:], cwd, depth)
        kinds = frozenset(runners.TESTERS[program])
        return found | inner | Named(kinds=kinds, tests=True) | _given(rest, cwd)
    found |= _given(rest, cwd)
    if program in runners.RUNNERS:
        tests = program in {"tox", "nox"} or any("test" in word for word in rest)
        found |= _given([word[2:] for word in rest if re.match("-[Cf].", word)], cwd)
        for folder in {cwd} | {posixpath.join(cwd, word.text) for word in found.words}:  # of -C, --prefix
            found |= runs(program, folder)
        return found | Named(scripts=found.words, tests=tests)
    found |= Named(tests="test" in program)
    return found if "/" in argv[0] else found | Named(kinds=runners.EVERYTHING)


def runs(program: str, cwd: str = "") -> Named:
    """What a program that is mentioned brings: its kinds, and the files of its own that say what else it runs."""
    kinds, files = runners.RUNNERS.get(program, ((), ()))
    known = runners.TESTERS.get(program) or runners.CHECKERS.get(program) or kinds
    return Named(kinds=frozenset(known), scripts=frozenset(Word(file, cwd) for file in files))


def mentioned(text: str) -> Named:
    """What a script brings by the programs that its text mentions."""
    found = Named()
    for program in set(re.findall(r"[A-Za-z][\w.-]*", text)):
        found |= runs(program)
        if re.fullmatch(r"(python|pypy)[\d.]*", program):
            found |= Named(kinds=frozenset({"python"}))
    return found


def _script(text: str, cwd: str) -> Named:
    word = Word(text, cwd)
    return Named(words=frozenset({word}), scripts=frozenset({word}))


def _run_file(text: str, cwd: str) -> Named:
    """A script that an interpreter runs; it may call itself a test."""
    *folders, name = PurePosixPath(text).parts or ("",)
    within = () if text.startswith("/") else folders
    return _script(text, cwd) | Named(tests="test" in name or bool(runners.TEST_FOLDERS.intersection(within)))


def _wrapped(rest: list[str], cwd: str, *, wrapped: bool, project: bool, depth: int) -> Named:
    """What is named behind `uv run`, `timeout 60`, `env A=b` and the like: from the first program that is known."""
    known = {
        name
        for name in runners.TESTERS.keys() | runners.CHECKERS.keys()
        if not project or name not in runners.UTILITIES
    }
    for at, word in enumerate(rest):
        name = PurePosixPath(word).name
        if (
            name in known
            or name in runners.WRAPPERS
            or name in runners.RUNNERS.keys() | runners.SHELLS
            or name.startswith("python")
        ):
            return _command(rest[at:], cwd, wrapped=wrapped, depth=depth + 1)
    left = [word for word in rest if not word.startswith("-") and word not in {"run", "exec"}]
    if project:  # its word is a script of the project, which may run anything
        tool = frozenset(word for word in left[:1] if _PROGRAM.fullmatch(word))
        return _given(left, cwd) | Named(kinds=runners.EVERYTHING, wrapped=tool)
    return _command(left, cwd, wrapped=wrapped, depth=depth + 1) if left else Named()


def _shell(rest: list[str], cwd: str, depth: int) -> Named:
    """`sh -c SCRIPT` by its commands, `sh FILE` by the file."""
    options = [at for at, word in enumerate(rest) if re.fullmatch(r"-[a-z]*c[a-z]*", word)]
    if not options or options[0] + 1 >= len(rest):
        script = next((word for word in rest if not word.startswith("-")), "")
        return _given(rest, cwd) | _run_file(script, cwd)
    at = options[0] + 1
    found = _given(rest[at + 1 :], cwd) if len(rest) > at + 1 else Named()
    folders = [cwd]
    for command in _commands(rest[at]):
        for folder in folders:
            found |= _command(command, folder, depth=depth + 1)
        if command[:1] == ["cd"] and len(command) == 2 and len(folders) < _MOST_FOLDERS:
            folders += [posixpath.normpath(posixpath.join(folder, command[1])) for folder in folders]
    return found


def _commands(script: str) -> Iterator[list[str]]:
    """The simple commands of a shell script, without what they are redirected to."""
    for quoted in re.findall(r"\$\(([^()]*)\)|`([^`]*)`", script):
        yield from _commands("".join(quoted))
    lexer = shlex.shlex(script.replace("\n", ";"), posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    command: list[str] = []
    try:
        tokens = list(lexer)
    except ValueError:
        tokens = script.split()
    redirected = False
    for token in tokens:
        if token and set(token) <= set("<>&") and set(token) & set("<>"):
            redirected = True
        elif redirected:
            redirected = False
        elif token and set(token) <= set("|&;()"):
            yield command
            command = []
        elif not command and token in _SYNTAX:
            continue
        else:
            command.append(token)
    yield command


def _python(rest: list[str], cwd: str, depth: int) -> Named:
    """`python -m MODULE`, `python -c CODE`, `python FILE`."""
    found = Named(kinds=frozenset({"python"}))
    for at, word in enumerate(rest):
        if word == "-c":
            return found
        if word == "-m" and at + 1 < len(rest):
            module = rest[at + 1]
            if module in {**runners.TESTERS, **runners.CHECKERS} or module in runners.RUNNERS:
                tool = _command(rest[at + 1 :], cwd, wrapped=True, depth=depth + 1)
                return found | Named(tool.kinds, tool.words, tests=tool.tests)
            files = _module(module, cwd, run=True)
            return found | Named(words=files, scripts=files) | _given(rest[at + 2 :], cwd)
        if word.endswith(".py") or "/" in word or (not word.startswith("-") and rest[at - 1] not in _TAKES):
            main = _script(posixpath.join(word, "__main__.py"), cwd)
            return found | _given(rest[at:], cwd) | _run_file(word, cwd) | main
    return found


def _given(rest: Iterable[str], cwd: str) -> Named:
    """Every word that may be a file, also behind `=` and before `::`."""
    words = set()
    for word in rest:
        for text in {word, word.rpartition("=")[2]}:
            path = text.partition("::")[0]
            if path and not path.startswith("-"):
                words.add(Word(path, cwd, tests=True))
            if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", path):
                words |= _module(path, cwd)
    return Named(words=frozenset(words))


def _configs(rest: list[str], cwd: str) -> frozenset[Word]:
    """The files that a checker is told to be configured by."""
    found = set()
    for at, word in enumerate(rest):
        option, equals, value = word.partition("=")
        if option in runners.CONFIG_OPTIONS and (equals or at + 1 < len(rest)):
            found.add(Word(value if equals else rest[at + 1], cwd))
    return frozenset(found)


def _module(name: str, cwd: str, *, run: bool = False) -> frozenset[Word]:
    """The files that a dotted module may be; of one that is `run`, also those of the packages around it."""
    folders, own = ("", "src/"), name.replace(".", "/")
    ends = (".py", "/__init__.py", *(["/__main__.py"] if run else []))
    words = {Word(f"{folder}{own}{end}", cwd, of=name) for folder in folders for end in ends}
    while "/" in own:
        own = own.rpartition("/")[0]
        words |= {Word(f"{folder}{own}/__init__.py", cwd, of=f"{name}:" if run else "") for folder in folders}
    return frozenset(words)
