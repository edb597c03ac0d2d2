"""Command lines of known tools: which tool it is, behind which launcher, and how it is asked for a report.

Rule: a command line that works keeps working. It is taken for a tool only when the tool is plainly the program and
nothing in its arguments asks for another report, for changes, for watching or for no work at all; whatever is not
understood stays a plain command. The words are run as they were written, ours are added to them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from loopwright.argv import words
from loopwright.errors import ConfigError
from loopwright.gates._tool import Command, Source, arguments, name_of, resolve, source
from loopwright.ports import Place

_PYTHON = re.compile(r"python[\d.]*")
_MODULES: Final = frozenset({"pytest", "ruff", "mypy", "pyright"})  # run by python -m
_NODE: Final = frozenset({"pyright", "tsc", "eslint", "jest", "vitest"})
_TOOLS: Final = _MODULES | _NODE | {"go", "cargo"}
_RUNNERS: Final = frozenset(
    {("poetry", "run"), ("pdm", "run"), ("pipenv", "run"), ("yarn", "run"), ("pnpm", "exec"), ("bun", "x")}
)

# The gates that are not called as their tool.
GATES: Final[Mapping[str, str]] = {"go": "gotest", "mypy": "types", "pyright": "types", "tsc": "types"}


def _set(words_: str) -> frozenset[str]:
    return frozenset(words_.split())


# Launchers that take options: those that stand alone, and those with a value.
_OPTIONS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    "uv": (
        _set("""--frozen --locked --isolated --no-sync --no-project --all-extras --no-dev --all-groups --offline
            --exact --active --quiet -q --no-progress --all-packages --dev --no-config"""),
        _set("""--with --with-editable --with-requirements --extra --no-extra --group --no-group --only-group -p
            --python --package --env-file --from -w"""),
    ),
    "npx": (
        _set("--no-install --yes -y --no --quiet -q --prefer-offline --offline"),
        _set("-p --package"),
    ),
}

# What a tool must not be asked for; with it, the command line stays a plain command.
_REFUSED: Final[Mapping[str, frozenset[str]]] = {
    "pytest": _set("""-h --help -V --version --junitxml --junit-xml --collect-only --collectonly --co --fixtures
        --funcargs --fixtures-per-test --markers --setup-plan --setup-only --cache-show --looponfail -f no:junitxml -pno:junitxml"""),
    "ruff": _set("""-h --help -V --version --fix --fix-only --diff --watch -w --output-format --output-file -o
        --add-noqa --add-ignore --show-files --show-settings --statistics --exit-zero -e --exit-non-zero-on-fix
        --stdin-filename -s --silent -"""),
    "mypy": _set("-h --help -V --version -O --output --install-types --non-interactive"),
    "pyright": _set("""-h --help --version -w --watch --createstub --verifytypes --ignoreexternal --stats --verbose
        --dependencies -"""),
    "tsc": _set("""-h --help -v --version -w --watch --init --showconfig --listfilesonly --all --clean --dry --locale
        --nocheck"""),
    "eslint": _set("""-h --help -v --version -f --format -o --output-file --fix --fix-dry-run --fix-type --init
        --print-config --env-info --mcp --inspect-config --stdin --stdin-filename --suppress-all --suppress-rule
        --prune-suppressions"""),
    "jest": _set("""-h --help -v --version --watch --watchAll --json --outputFile --showConfig --listTests --init
        --clearCache"""),
    "vitest": _set("""-h --help -v --version --watch -w --ui --reporter --reporters --outputFile --mergeReports
        --standalone --clearCache --listTags"""),
    "go": _set("-c -list -h -help -n -i -toolexec"),
    "cargo": _set("""-h --help -V --version --no-run --list --format --message-format --logfile --build-plan
        --unit-graph"""),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A command line of a tool: its launcher and the tool with its subcommand (`start`), and the arguments."""

    tool: str
    start: tuple[str, ...]
    args: tuple[str, ...]


def known(argv: Sequence[str]) -> Known | None:
    """The tool that a command line starts, when it can be asked for a report as well; else `None`."""
    found = _found(tuple(argv))
    if found is None:
        return None
    refused = _REFUSED[found.tool]
    for word in found.args:
        if word == "-args" and found.tool == "go":
            break
        if _spelled(found.tool, word) in refused and not word.endswith("=false"):
            return None
    return found


def _spelled(tool: str, word: str) -> str:
    """An option as the table has it: without its value, in the one spelling that its tool takes for all."""
    option = word.partition("=")[0]
    bare = option.lstrip("-")
    if tool == "go" and option.startswith("-"):
        return f"-{bare}"
    if tool == "tsc" and option.startswith("-"):
        return f"--{bare.lower()}" if len(bare) > 1 else option
    if tool in {"jest", "vitest"} and option.startswith("--"):
        camel = re.sub(r"-(\w)", lambda letter: letter[1].upper(), bare)
        return f"--{camel.partition('.')[0]}"
    return option


def _found(argv: tuple[str, ...]) -> Known | None:
    at = _tool_at(argv)
    if at is None or at >= len(argv):
        return None
    tool = PurePosixPath(argv[at]).name
    tool = "pytest" if tool == "py.test" else tool
    if tool not in _TOOLS:
        return None
    last = at + 1
    rest = argv[last:]
    if tool == "ruff":
        if rest[:1] != ("check",):
            return None
        last += 1
    elif tool == "go":
        if rest[:1] != ("test",):
            return None
        last += 1
    elif tool == "cargo":
        last += bool(rest and rest[0].startswith("+"))
        if argv[last : last + 1] not in {("test",), ("t",)}:
            return None
        last += 1
    elif tool == "vitest" and rest and not rest[0].startswith("-"):
        if rest[0] in {"watch", "dev", "bench", "init", "list", "typecheck", "complete"}:
            return None
        last += rest[0] in {"run", "related"}
    elif tool == "jest" and rest[:1] == ("init",):
        return None
    return Known(tool=tool, start=argv[:last], args=argv[last:])


def _tool_at(argv: tuple[str, ...], at: int = 0) -> int | None:
    """Where the tool's name stands, behind launchers; `None` where that cannot be said."""
    if at >= len(argv):
        return None
    name, second = PurePosixPath(argv[at]).name, argv[at + 1 : at + 2]
    if _PYTHON.fullmatch(name):
        return _module_at(argv, at + 1)
    if name == "env":
        at += 1
        while at < len(argv) and re.match(r"[A-Za-z_]\w*=", argv[at]):
            at += 1
        return _tool_at(argv, at)
    if (name == "uv" and second == ("run",)) or name in {"uvx", "npx"}:
        behind = _behind(argv, at + 1 + (name == "uv"), *_OPTIONS["npx" if name == "npx" else "uv"])
        if behind is not None and name == "uv" and argv[behind : behind + 1] == ("-m",):
            return _module_at(argv, behind)
        return None if behind is None else _tool_at(argv, behind)
    if (name, *second) in _RUNNERS:
        return _tool_at(argv, at + 2 + (argv[at + 2 : at + 3] == ("--",)))
    if name in {"pnpm", "yarn", "bunx"}:
        return at + 1 if second and second[0] in _NODE else None
    return at


def _module_at(argv: tuple[str, ...], at: int) -> int | None:
    """Where the module of `-m MODULE` stands, if it is a tool."""
    return at + 1 if argv[at : at + 1] == ("-m",) and _MODULES.intersection(argv[at + 1 : at + 2]) else None


def _behind(argv: tuple[str, ...], at: int, alone: frozenset[str], valued: frozenset[str]) -> int | None:
    """The first word that is no option of the launcher; `None` for an option that is not known."""
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "-m":
        option, equals, _ = argv[at].partition("=")
        if argv[at] == "--":
            return at + 1
        if option in valued:
            at += 1 if equals else 2
        elif argv[at] in alone:
            at += 1
        else:
            return None
    return at


# How a tool is told to report: into a file of the artifacts folder, or on stdout.
_FILES: Final[Mapping[str, tuple[str, Callable[[str], tuple[str, ...]]]]] = {
    "jest": ("jest.json", lambda path: ("--json", f"--outputFile={path}")),
    "vitest": (
        "vitest.json",
        lambda path: ("--reporter=default", "--reporter=json", f"--outputFile.json={path}"),
    ),
    "eslint": ("eslint.json", lambda path: ("--format", "json", "--output-file", path)),
}
_MYPY: Final = (
    "--no-pretty",
    "--no-color-output",
    "--show-error-codes",
    "--hide-error-context",
    "--error-summary",
)


def source_of(
    kind: str,
    tools: Collection[str],
    *,
    run: Command | None,
    report: str | list[str] | None,
    args: str | Sequence[str],
    after: tuple[str, ...],
    default: tuple[str, ...] = (),
) -> tuple[Source, str]:
    """Where a gate's evidence comes from, and its name.

    The command is `run` with `args`, or `default` with them where neither `run` nor a report is named. A command line
    of one of `tools` is asked for a report, unless `report` names one. ConfigError for what cannot be.
    """
    more = arguments(args)
    start = default if run is None and report is None and not after else () if run is None else words(run)
    argv = (*start, *more)
    found = known(argv) if start and report is None else None
    if found is not None and found.tool in tools:
        return _reporting(found), "gotest" if found.tool == "go" else found.tool
    if more and run is None:
        why = "leave no room for the report that the gate reads" if start else "belong to a command"
        raise ConfigError(f"{kind}: the args {' '.join(more)!r} {why}: write run = … instead")
    return source(kind, run=list(argv) or None, report=report, after=after), name_of(kind, list(argv) or None)


def _reporting(found: Known) -> Source:
    """The command line with the report it is asked for in addition."""
    own = (_FILES[found.tool][0],) if found.tool in _FILES else ()

    def argv(place: Place) -> tuple[str, ...]:
        asked = _asked(found, str(place.artifacts.absolute()))
        return (resolve(found.start[0], place), *found.start[1:], *asked)

    return Source(argv=argv, own=own, stdout=not own)


def _asked(found: Known, folder: str) -> tuple[str, ...]:
    """The arguments, with those that ask for a report."""
    tool, args = found.tool, found.args
    if tool in _FILES:
        name, asked = _FILES[tool]
        return (*asked(f"{folder}/{name}"), *args)
    if tool == "mypy":  # the last one of two that contradict each other wins
        cut = args.index("--") if "--" in args else len(args)
        return (*args[:cut], *_MYPY, *args[cut:])
    if tool == "pyright":
        return args if "--outputjson" in args else ("--outputjson", *args)
    if (
        tool == "tsc"
    ):  # it says how many files there were; what -b finds up to date was not checked by this run
        force = ("--force",) if args[:1] in {("-b",), ("--build",)} else ()
        return (*args, *force, "--pretty", "false", "--diagnostics")
    if tool == "go":  # a result from go's cache is not of this run
        counted = any(word.lstrip("-").partition("=")[0] == "count" for word in args)
        return ("-json", *(() if counted else ("-count=1",)), *args)
    return args
