"""Which files decide what a gate sees, by the tool that reads them: tables, and nothing else.

Rule: data. A kind of tool brings names of files that count whole, and tables of shared files (`pyproject.toml`,
`package.json`, `setup.cfg`, `tox.ini`) of which only the named ones count: adding a dependency decides no gate.
Names are globs of one path part, at any depth.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The files that one kind of tool reads: whole ones, and per shared file the tables that count."""

    names: tuple[str, ...] = ()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


_DIALECTS: Final = ("js", "cjs", "mjs", "ts", "cts", "mts")
_RC: Final = ("", ".json", ".json5", ".yaml", ".yml", ".js", ".cjs", ".mjs", ".ts")


def _config(*stems: str) -> tuple[str, ...]:
    """Each of these config files in every dialect of JavaScript."""
    return tuple(f"{stem}.{end}" for stem in stems for end in _DIALECTS)


def _rc(*stems: str) -> tuple[str, ...]:
    return tuple(f"{stem}{end}" for stem in stems for end in _RC)


# What counts in every loop: how it is defined, what is ignored, what others run on this work.
ALWAYS: Final = Kind(
    names=(
        *("loop.toml", ".gitignore", ".gitlab-ci.yml", ".travis.yml", "Jenkinsfile", "azure-pipelines.yml"),
        *(
            "bitbucket-pipelines.yml",
            ".drone.yml",
            ".woodpecker.yml",
            "appveyor.yml",
            ".pre-commit-config.yaml",
        ),
    ),
    parts={"pyproject.toml": ("tool.loopwright",)},
)
# Folders of which every file counts in every loop.
FOLDERS: Final = (".github/workflows", ".github/actions", ".circleci", ".buildkite", ".woodpecker")

KINDS: Final[Mapping[str, Kind]] = {
    "python": Kind(names=("sitecustomize.py", "usercustomize.py")),
    "pytest": Kind(
        names=("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
        parts={
            "pyproject.toml": ("tool.pytest", "project.entry-points.pytest11"),
            "setup.cfg": ("tool:pytest", "pytest"),
            "tox.ini": ("pytest", "tool:pytest"),
            "entry_points.txt": ("pytest11",),
        },
    ),
    "coverage": Kind(
        names=(".coveragerc", ".coveragerc.toml"),
        parts={
            "pyproject.toml": ("tool.coverage",),
            "setup.cfg": ("coverage:*",),
            "tox.ini": ("coverage:*",),
        },
    ),
    "ruff": Kind(names=("ruff.toml", ".ruff.toml", ".ignore"), parts={"pyproject.toml": ("tool.ruff",)}),
    "mypy": Kind(
        names=("mypy.ini", ".mypy.ini"),
        parts={"pyproject.toml": ("tool.mypy",), "setup.cfg": ("mypy", "mypy-*")},
    ),
    "pyright": Kind(
        names=("pyrightconfig.json",), parts={"pyproject.toml": ("tool.pyright", "tool.basedpyright")}
    ),
    "pylint": Kind(
        names=(
            ".pylintrc",
            "pylintrc",
            "pylintrc.toml",
            ".pylintrc.toml",
            ".flake8",
            ".bandit",
            ".isort.cfg",
        ),
        parts={
            "pyproject.toml": ("tool.pylint", "tool.black", "tool.isort", "tool.bandit", "tool.importlinter"),
            "setup.cfg": ("flake8", "pylint", "pylint.*", "isort", "pycodestyle"),
            "tox.ini": ("flake8", "pylint", "pycodestyle"),
        },
    ),
    "tox": Kind(
        names=("tox.toml", "noxfile.py", "tasks.py"),
        parts={
            "tox.ini": ("*",),  # any of them may be filled in: {[base]commands}
            "setup.cfg": ("tox:*",),
            "pyproject.toml": ("tool.tox", "tool.nox", "tool.poe", "tool.hatch.envs", "tool.pdm.scripts"),
        },
    ),
    "make": Kind(
        names=(
            *("Makefile", "makefile", "GNUmakefile", "*.mk"),
            *("justfile", "Justfile", ".justfile", "Taskfile.yml", "Taskfile.yaml"),
        )
    ),
    "npm": Kind(
        names=(".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "bunfig.toml", "deno.json", "deno.jsonc"),
        parts={"package.json": ("scripts",)},
    ),
    "jest": Kind(
        names=(
            *_config("jest.config", "jest.setup", "setupTests", "babel.config"),
            *("jest.config.json", "babel.config.json", *_rc(".babelrc", ".swcrc")),
        ),
        parts={"package.json": ("jest", "babel")},
    ),
    "vitest": Kind(
        names=(
            *_config("vitest.config", "vite.config", "vitest.workspace", "vitest.setup"),
            "vitest.workspace.json",
        )
    ),
    "mocha": Kind(
        names=(
            *_rc(".mocharc", ".nycrc", ".c8rc"),
            *_config("ava.config", "karma.conf", "playwright.config", "cypress.config"),
        ),
        parts={"package.json": ("mocha", "ava", "nyc", "c8", "tap")},
    ),
    "eslint": Kind(
        names=(
            *_config("eslint.config", "prettier.config"),
            *_rc(".eslintrc", ".prettierrc"),
            *(".eslintignore", ".prettierignore", "biome.json", "biome.jsonc"),
        ),
        parts={"package.json": ("eslintConfig", "eslintIgnore", "prettier")},
    ),
    "tsc": Kind(names=("tsconfig*.json", "jsconfig.json")),
    "go": Kind(names=(".golangci.yml", ".golangci.yaml", ".golangci.toml", "go.work")),
    "ruby": Kind(names=("Rakefile", ".rspec", "spec_helper.rb", "rails_helper.rb", ".rubocop.yml")),
    "php": Kind(names=("phpunit.xml", "phpunit.xml.dist", "phpstan.neon", "phpstan.neon.dist")),
    "jvm": Kind(names=(".mvn/maven.config", ".mvn/jvm.config", ".mvn/extensions.xml", "gradle.properties")),
    "cargo": Kind(
        names=(
            *("clippy.toml", ".clippy.toml", "rust-toolchain", "rust-toolchain.toml", "nextest.toml"),
            *(".cargo/config.toml", ".cargo/config"),
        ),
        parts={
            "Cargo.toml": (
                *("lints", "workspace.lints", "profile", "test", "package.autotests"),
                *("lib.test", "lib.doctest", "lib.harness"),
            )
        },
    ),
}

_PYTEST: Final = ("python", "pytest", "coverage")
_NODE: Final = ("npm", "jest", "vitest", "mocha", "eslint", "tsc")
EVERYTHING: Final = frozenset(KINDS)

# Programs that run tests: the files and folders they are given are evidence.
TESTERS: Final[Mapping[str, tuple[str, ...]]] = {
    "pytest": _PYTEST,
    "py.test": _PYTEST,
    "unittest": ("python",),
    "doctest": ("python",),
    "coverage": _PYTEST,
    "jest": ("npm", "jest", "tsc"),
    "vitest": ("npm", "vitest", "tsc"),
    "mocha": ("npm", "mocha", "tsc"),
    "ava": ("npm", "mocha", "tsc"),
    "playwright": _NODE,
    "go": ("go",),
    "gotest": ("go",),
    "cargo": ("cargo",),
    "bats": (),
    "diff": (),
    "cmp": (),
}
# What every system has, and shells themselves: they look at the work, and no project brings one of its own.
UTILITIES: Final = frozenset(
    (
        *("true", "false", "test", "[", ":", "grep", "egrep", "fgrep", "rg", "cat"),
        *("head", "tail", "wc", "ls", "find", "stat", "file", "sed", "awk", "sort"),
        *("uniq", "tr", "cut", "tee", "echo", "printf", "read", "cd", "exit", "return"),
        *("set", "unset", "export", "sleep", "date", "touch", "rm", "mkdir", "cp", "mv"),
        *("ln", "jq", "git", "pwd", "sha256sum", "mktemp", "basename", "dirname", "seq", "kill"),
        *("wait", "trap", "umask", "ulimit"),
    )
)
# Programs that look at the work: what they are given is the work, all but their config.
CHECKERS: Final[Mapping[str, tuple[str, ...]]] = {
    "ruff": ("ruff",),
    "mypy": ("mypy",),
    "dmypy": ("mypy",),
    "pyright": ("pyright",),
    "basedpyright": ("pyright",),
    **dict.fromkeys(("pylint", "flake8", "black", "isort", "bandit", "lint-imports"), ("pylint",)),
    **dict.fromkeys(("eslint", "prettier", "biome"), ("npm", "eslint")),
    "tsc": ("tsc",),
    "golangci-lint": ("go",),
    "gofmt": (),
    **dict.fromkeys(("py_compile", "compileall", "json.tool"), ("python",)),
    **dict.fromkeys(
        ("gcc", "g++", "cc", "clang", "rustc", "javac", "shellcheck", "hadolint", "yamllint"), ()
    ),
    **dict.fromkeys(UTILITIES, ()),
}
# Programs whose own files say what else they run: the kinds that count, and those files.
RUNNERS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    **dict.fromkeys(("make", "gmake"), (("make",), ("Makefile", "makefile", "GNUmakefile"))),
    "just": (("make",), ("justfile", "Justfile", ".justfile")),
    "task": (("make",), ("Taskfile.yml", "Taskfile.yaml")),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), (("npm",), ("package.json",))),
    "tox": (("tox", "python"), ("tox.ini", "tox.toml", "pyproject.toml", "setup.cfg")),
    "nox": (("tox", "python"), ("noxfile.py",)),
    "invoke": (("tox", "python"), ("tasks.py",)),
    "pre-commit": ((), (".pre-commit-config.yaml",)),
}
# Programs that run the one named behind them.
WRAPPERS: Final = frozenset(
    {"env", "exec", "time", "timeout", "nice", "nohup", "stdbuf", "xvfb-run", "command", "sudo", "setsid"}
    | {"uv", "uvx", "poetry", "pipenv", "pdm", "hatch", "rye", "npx", "bunx", "pnpx"}
)
# Those of them that are given a script of the project as well, by a name of its own: `hatch run test`.
LAUNCHERS: Final = frozenset({"uv", "uvx", "poetry", "pipenv", "pdm", "hatch", "rye", "npx", "bunx", "pnpx"})
SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
CONFIG_OPTIONS: Final = frozenset(
    {"-c", "--config", "--config-file", "--rcfile", "--cov-config", "--project", "-p", "--settings-path"}
)
TEST_FOLDERS: Final = frozenset(
    {"test", "tests", "spec", "specs", "__tests__", "t", "testing", "e2e", "integration"}
)
TEST_NAMES: Final = ("test_*.py", "*_test.py", "*.test.*", "*.spec.*", "*_test.go", "*.bats")

# Modules that a file of the same name beside the tests would take the place of: Python's own, and the tools.
SHADOWS: Final = (
    frozenset(sys.stdlib_module_names)
    | {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "coverage", "pytest_cov", "xdist", "execnet"}
    | {
        "sitecustomize",
        "usercustomize",
        "flake8",
        "pylint",
        "black",
        "isort",
        "bandit",
        "pyright",
        "tox",
        "nox",
    }
    | {"mypy", "mypy_extensions", "ruff", "typing_extensions", "pytest_asyncio", "pytest_timeout", "py"}
) - {"test", "tests", "idlelib", "turtledemo", "this", "antigravity"}
