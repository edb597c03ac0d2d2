"""A project as its files tell of it: settings, requirements, scripts, test folders.

Rule: files are read, nothing is run. They are other people's: what is too large, broken or no text says nothing.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from loopwright.supervise import tool_path

MOST_BYTES: Final = 1 << 20  # of one file
MOST_NAMES: Final = 2_000  # looked at in one folder
TEST_FOLDERS: Final = ("tests", "test", "spec", "__tests__")
_TEST: Final = re.compile(r"test_.*\.py|.*_test\.py")
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A folder, and what its pyproject.toml, package.json and requirements say."""

    root: Path
    path: str
    pyproject: Mapping[str, Any] = field(default_factory=dict)
    package: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, str] = field(default_factory=dict)  # each Python requirement: where it stands

    def first(self, *names: str) -> str:
        """The first of these files that is there, else nothing."""
        return next((name for name in names if (self.root / name).is_file()), "")

    def like(self, pattern: str) -> str:
        """A file of the top folder with such a name, else nothing."""
        return next((name for name in names(self.root) if re.fullmatch(pattern, name)), "")

    def tool(self, name: str) -> Mapping[str, Any] | None:
        """`[tool.NAME]` of pyproject.toml."""
        found = _table(self.pyproject.get("tool")).get(name)
        return found if isinstance(found, Mapping) else None

    def section(self, file: str, name: str) -> Mapping[str, str] | None:
        """A section of a file such as setup.cfg."""
        parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
        try:
            parser.read_string(text(self.root / file))
        except configparser.Error:
            return None
        return parser[name] if parser.has_section(name) else None

    def wants(self, name: str) -> str:
        """Where package.json names this package, else nothing."""
        for key in ("devDependencies", "dependencies"):
            if name in _table(self.package.get(key)):
                return f"package.json: {key}.{name}"
        return ""

    def script(self, word: str) -> str:
        """The script of package.json that calls this program, else nothing."""
        for name, line in _table(self.package.get("scripts")).items():
            if isinstance(line, str) and word in re.split(r"[\s;&|]+", line):
                return f"package.json: scripts.{name}"
        return ""

    def tests(self) -> tuple[str, ...]:
        """The folders that hold tests by their names: at the top, or where pytest is told to look."""
        # Told `src`, pytest finds tests among the work: that folder is not theirs.
        said = (
            path for path in map(PurePosixPath, self._testpaths()) if path.name in (*TEST_FOLDERS, "testing")
        )
        names = dict.fromkeys((*TEST_FOLDERS, *(str(path) for path in said if ".." not in path.parts)))
        return tuple(name for name in names if name[0] != "/" and (self.root / name).is_dir())

    def _testpaths(self) -> list[str]:
        table = self.tool("pytest") or {}
        places = [table.get("testpaths"), _table(table.get("ini_options")).get("testpaths")]
        for file, section in (("pytest.ini", "pytest"), ("tox.ini", "pytest"), ("setup.cfg", "tool:pytest")):
            places.append((self.section(file, section) or {}).get("testpaths"))
        said = [place.split() if isinstance(place, str) else place for place in places]
        return [str(path) for each in said if isinstance(each, list) for path in each]

    def python_tests(self) -> str:
        """A file of Python tests in the top folder or a test folder, else nothing."""
        for folder in (".", *self.tests()):
            for name in names(self.root / folder):
                if _TEST.fullmatch(name):
                    return name if folder == "." else f"{folder}/{name}"
        return ""

    def program(self, name: str) -> str | None:
        """Where this program is: in the project's own tools, else on PATH."""
        return shutil.which(name, path=tool_path(self.root, self.path))

    def node_tool(self, name: str) -> bool:
        """Whether npx finds this installed: here, or above up to the repository's root."""
        for folder in (self.root, *self.root.parents):
            if (folder / "node_modules" / ".bin" / name).exists():
                return True
            if (folder / ".git").exists():
                break
        return False


def look(root: Path, path: str) -> Project:
    """The project in this folder; programs are looked for on `path`."""
    pyproject = _toml(root / "pyproject.toml")
    return Project(
        root=root,
        path=path,
        pyproject=pyproject,
        package=_json(root / "package.json"),
        required=dict(_requirements(root, pyproject)),
    )


def names(folder: Path) -> list[str]:
    """The names in a folder, sorted; the first of them where there are very many."""
    try:
        with os.scandir(folder) as found:
            return sorted(entry.name for entry, _ in zip(found, range(MOST_NAMES), strict=False))
    except OSError:
        return []


def text(file: Path) -> str:
    """What a file says; nothing where there is none that can be read."""
    try:
        if not file.is_file() or file.stat().st_size > MOST_BYTES:
            return ""
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return ""


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _toml(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text(file))
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _json(file: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(text(file) or "{}")
    except (ValueError, RecursionError):
        return {}
    return _table(found)


def _requirements(root: Path, pyproject: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each Python requirement of the project, with where it stands."""
    for name in names(root):
        if re.fullmatch(r".*requirements.*\.(txt|in)", name):
            yield from _listed(text(root / name).splitlines(), name)
    tool = _table(pyproject.get("tool"))
    poetry = _table(tool.get("poetry"))
    project = _table(pyproject.get("project"))
    lists = [project.get("dependencies"), _table(tool.get("uv")).get("dev-dependencies")]
    lists += _table(project.get("optional-dependencies")).values()
    lists += _table(pyproject.get("dependency-groups")).values()
    tables = [_table(poetry.get("dependencies")), _table(poetry.get("dev-dependencies"))]
    tables += [_table(_table(group).get("dependencies")) for group in _table(poetry.get("group")).values()]
    for each in lists:
        if isinstance(each, list):
            yield from _listed([line for line in each if isinstance(line, str)], "pyproject.toml")
    for table in tables:
        yield from _listed([str(name) for name in table], "pyproject.toml")


def _listed(lines: list[str], where: str) -> Iterator[tuple[str, str]]:
    for line in lines:
        if found := _REQUIREMENT.match(line):
            yield re.sub(r"[-_.]+", "-", found[1]).lower(), where
