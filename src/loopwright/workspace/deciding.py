"""The files that decide what gates see, as they are now on disk, whatever git ignores.

Rule: found by name at every depth, and hashed anew each time. Only lists of folders are remembered: while a
folder's change time, which no program can set, is the same and not of this moment, it holds the same names.
A new file with such a name counts; a file that a gate's command names counts when it was there at the start.
Installed packages (`.venv`, `node_modules`) are looked at no further than the programs that gates start.
"""

# Names are bytes here, which pathlib cannot hold.
# ruff: noqa: PTH110, PTH112, PTH113, PTH116, PTH117, PTH118, PTH119, PTH120, PTH123, PTH208

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loopwright.errors import WorkspaceError
from loopwright.workspace import behind, ignore, place, protect, runners
from loopwright.workspace.named import Named, Word
from loopwright.workspace.runners import Kind
from loopwright.workspace.sections import deciding

MOST_FOLDERS = 200_000
WHOLE = "whole:"  # before the digest of a file that counts whole
_PART = "part:"
_KINDS = ""  # beside the paths: the kinds of tools whose files count
STANDS = "stands"  # of a file that only may not be new
_RACY_NS = 100_000_000  # a folder changed so lately may change again within the tick of its clock
_MOST_BYTES = 16 * 1024 * 1024  # of a shared file that is parsed
_MOST_SCRIPT = 256 * 1024
_MOST_CONFIGS = 200
_REPORTS = frozenset({b"htmlcov", b"coverage", b"cache"})
_ENVIRONMENTS = frozenset({b"venv", b"env", b".env", b"virtualenv"})
_EXCLUDE = b".git/info/exclude"


@dataclass(frozen=True, slots=True)
class _Folder:
    sign: tuple[int, int]
    hits: tuple[bytes, ...]
    folders: tuple[bytes, ...]
    links: tuple[bytes, ...]  # to folders


class Deciding:
    """The files of one workspace that decide what these gates see; `free` are paths that never count.

    `project` is what the workspace is a copy of, if it is one.
    """

    def __init__(
        self,
        root: Path,
        gates: Named,
        files: tuple[str, ...],
        free: Callable[[bytes], bool],
        project: Path | None = None,
    ) -> None:
        self._root = root.resolve()
        self._project = project.resolve() if project is not None else self._root
        self._around = _up_to_top(self._root)
        self._gates = gates
        self._files = files
        self._free = free
        self._tools: dict[Path, tuple[tuple[int, int, int], str]] = {}
        behind_it = behind.tools(self._root, gates)
        self._words = gates.words | behind_it.words
        self._wrapped = gates.wrapped | behind_it.wrapped
        self._by_kinds(gates.kinds | behind_it.kinds)
        self._phantoms = {os.fsencode(path) for word in gates.scripts for path in self._targets(word)}

    def seen(self, known: Mapping[str, str] | None) -> dict[str, str]:
        """Path → digest of each, `whole:…`, `part:…` or `stands`; `known` is what it was at the start, if not now."""
        if known and (kinds := _PART + ",".join(sorted(self._kinds))) != known.get(_KINDS, kinds):
            # What scripts mentioned when the run began; by now they may have been changed.
            self._by_kinds(
                self._kinds | frozenset(known[_KINDS].removeprefix(_PART).split(",")) & runners.EVERYTHING
            )
        found: dict[bytes, str] = {}
        for path in self._walk():
            if path.endswith(b".pyi"):
                found[path] = STANDS
            else:
                self._take(path, found)
        before = [os.fsencode(path) for path, was in (known or {}).items() if was.startswith(WHOLE)]
        named = (
            [*self._named(), *self._extended(found)] if known is None else [*before, *self._instead(known)]
        )
        for path in named:
            if path not in found:
                self._take(path, found, whole=True)
        for path, file in self._programs(known):
            if (digest := self._program(file)) is not None:
                found[path] = digest
        for path in (*self._shadowing(), *self._phantoms):
            if os.path.lexists(os.path.join(os.fsencode(self._root), path)):
                found.setdefault(path, STANDS)
        if exclude := ignore.patterns_in(os.path.join(os.fsencode(self._root), _EXCLUDE)):
            found[_EXCLUDE] = f"part:{hashlib.sha256(repr(exclude).encode()).hexdigest()}"
        found |= self._above()
        stand = {path: was for path, was in (known or {}).items() if was == STANDS}
        mark = (known or {}).get(_KINDS, _PART + ",".join(sorted(self._kinds)))
        paths = {os.fsdecode(path): is_ for path, is_ in found.items() if not self._free(path)}
        return {_KINDS: mark} | stand | paths

    def _by_kinds(self, kinds: frozenset[str]) -> None:
        """Looks for what these kinds of tools read from now on."""
        self._kinds = kinds
        tables = (runners.ALWAYS, *(runners.KINDS[kind] for kind in sorted(kinds)))
        self._parts = _parts(tables)
        self._hit = _hits([*(name for table in tables for name in table.names), *self._parts])
        self._shadows = "python" in kinds
        self._stubs = bool({"mypy", "pyright"} & kinds)
        self._cache: dict[bytes, _Folder] = {}

    def _take(
        self, path: bytes, found: dict[bytes, str], *, whole: bool = False, root: Path | None = None
    ) -> None:
        root = root or self._root
        name = os.fsdecode(path.rpartition(b"/")[2])
        tables = () if whole else self._parts.get(name, ())
        if tables and (digest := _part(root, path, name, tables)) != "":
            if digest is not None:
                found[path] = digest
            return
        if place.look(root, path) is not None:
            found[path] = WHOLE + protect.digest_of(root, path)
        elif (linked := _content(root, os.fsdecode(path))) is not None:  # behind a link to a folder
            found[path] = f"part:{hashlib.sha256(linked).hexdigest()}"

    def _walk(self) -> Iterator[bytes]:
        """Every path with a name that counts. A link to a folder is followed, the links in it are not."""
        folders: list[tuple[bytes, bool]] = [(b"", False)]
        count = 0
        while folders:
            path, linked = folders.pop()
            count += 1
            if count > MOST_FOLDERS:
                raise WorkspaceError(
                    f"{self._root} holds more than {MOST_FOLDERS:,} folders: run in the project's own folder"
                )
            folder = self._folder(path)
            if folder is None:
                continue
            yield from (path + name for name in folder.hits)
            folders += [(path + name + b"/", linked) for name in folder.folders]
            if not linked:
                folders += [(path + name + b"/", True) for name in folder.links]

    def _folder(self, path: bytes) -> _Folder | None:
        full = os.path.join(os.fsencode(self._root), path)
        try:
            seen = os.stat(full)
            sign = seen.st_ino, seen.st_ctime_ns
            kept = self._cache.get(path)
            if kept is not None and kept.sign == sign:
                return kept
            now = time.time_ns()
            with os.scandir(full) as entries:
                found = [(e.name, e.is_dir(follow_symlinks=False), e.is_symlink()) for e in entries]
        except OSError:
            return None  # gone, or closed to us: then to gates as well
        hits, folders, links = [], [], []
        names = {each[0] for each in found} if self._stubs else frozenset[bytes]()
        for name, is_folder, is_link in found:
            if name in {b".git", b".agent-state"} or name in ignore.LITTER_FOLDERS:
                continue
            inner = os.path.join(full, name)
            if is_folder and not (
                name in _ENVIRONMENTS and os.path.exists(os.path.join(inner, b"pyvenv.cfg"))
            ):
                folders.append(name)
            elif is_link and os.path.isdir(inner):
                links.append(name)
            elif name.endswith(b".pyi") and name[:-1] in names:
                hits.append(name)  # a type checker reads it in the place of the module
            elif is_folder or not self._hit.fullmatch(path + name):
                continue
            elif name != b".gitignore" or not _is_report(path):
                hits.append(name)
        folder = _Folder(sign, tuple(hits), tuple(folders), tuple(links))
        if now - seen.st_ctime_ns > _RACY_NS:
            self._cache[path] = folder
        else:
            self._cache.pop(path, None)
        return folder

    def _named(self) -> Iterator[bytes]:
        """The files that gates name, those that are there."""
        for file in self._files:
            yield os.fsencode(file)
        for word in self._words:
            path = self._path(word)
            if not path:
                continue
            if not os.path.isdir(self._root / path):
                yield os.fsencode(path)
            elif word.tests and set(path.split("/")) & runners.TEST_FOLDERS:
                yield from map(os.fsencode, protect.protected(self._root, (f"/{path}/**",)))
            elif word.tests:
                inside = (f"/{path}/**/{name}" for name in runners.TEST_NAMES)
                yield from map(os.fsencode, protect.protected(self._root, inside))

    def _above(self) -> dict[bytes, str]:
        """What tools that look upwards find between the workspace and the top of its repository; it is never put back."""
        found: dict[bytes, str] = {}
        for up, folder in enumerate(self._around, 1):
            with contextlib.suppress(OSError):
                for name in filter(self._hit.fullmatch, os.listdir(os.fsencode(folder))):
                    inner: dict[bytes, str] = {}
                    self._take(name, inner, root=folder)
                    found |= {b"../" * up + path: _PART + is_ for path, is_ in inner.items()}
        return found

    def _targets(self, word: Word) -> Iterator[str]:
        """Where a file would keep `make` from a target that a gate names."""
        path = self._path(word)
        if os.path.basename(path).lower() in {"makefile", "gnumakefile"}:
            text = (_content(self._root, path, _MOST_SCRIPT) or b"").decode("latin-1")
            for target in behind.phantoms(text, sorted({each.text for each in self._gates.words})):
                if inner := self._path(Word(target, os.path.dirname(path))):
                    yield inner

    def _path(self, word: Word) -> str:
        """The path of a word from the root; empty when it is none below it."""
        if "\0" in word.text or not word.text:
            return ""
        path = os.path.normpath(os.path.join(word.cwd, word.text))
        if os.path.isabs(word.text):
            path = os.path.relpath(os.path.realpath(word.text), self._root)
        return "" if path == "." or {"..", ".git", ".agent-state"} & set(path.split("/")) else path

    def _instead(self, known: Mapping[str, str]) -> Iterator[bytes]:
        """Where a file would be run in the place of a module that a gate names and that was there."""
        modules: dict[tuple[str, str], list[str]] = {}
        for word in self._gates.words:
            if word.of and (path := self._path(word)):
                modules.setdefault((word.cwd, word.of), []).append(path)
        for (cwd, name), paths in modules.items():
            if any(path in known for path in modules.get((cwd, name.rstrip(":")), ())):
                yield from map(os.fsencode, paths)

    def _extended(self, found: Iterable[bytes]) -> Iterator[bytes]:
        """The files by which these configurations extend themselves or set their tool up."""
        left, seen = [path for path in map(os.fsdecode, found) if behind.is_config(path)], set[str]()
        while left and len(seen) < _MOST_CONFIGS:
            path = left.pop()
            if path in seen or (text := _content(self._root, path, _MOST_SCRIPT)) is None:
                continue
            seen.add(path)
            for other in behind.extended(text.decode("latin-1")):
                inner = self._path(Word(other, os.path.dirname(path)))
                if (
                    inner
                    and os.path.basename(inner) not in self._parts
                    and os.path.isfile(self._root / inner)
                ):
                    yield os.fsencode(inner)
                    left.append(inner)

    def _programs(self, known: Mapping[str, str] | None) -> Iterator[tuple[bytes, Path]]:
        """Where the project's own tools stand, also beside a copy of it, and what Python reads before them: as shown, and where."""
        own = self._gates.programs | runners.UTILITIES | runners.SHELLS  # no project brings those
        for top in dict.fromkeys((self._root, self._project)):
            before = "" if top == self._root else f"{top}/"
            for folder in (".venv/bin", "node_modules/.bin"):
                try:
                    there = set(os.listdir(top / folder))
                except OSError:
                    continue
                for program in (own | self._wrapped) & there:
                    path = f"{before}{folder}/{program}"
                    if program in own or known is None or path in known:
                        yield os.fsencode(path), top / folder / program
            if self._shadows:
                yield os.fsencode(f"{before}.venv/pyvenv.cfg"), top / ".venv/pyvenv.cfg"
                for packages in sorted((top / ".venv/lib").glob("python*/site-packages")):
                    for name in ("sitecustomize.py", "usercustomize.py"):
                        file = packages / name
                        yield os.fsencode(f"{before}{file.relative_to(top)}"), file

    def _program(self, file: Path) -> str | None:
        """The digest of a tool, which may be large: read again only when its change time is another or of this moment."""
        folder, name = (
            Path(os.path.realpath(file.parent)),
            os.fsencode(file.name),
        )  # an environment may be a link
        seen = place.look(folder, name)
        if seen is None:
            return None
        sign = seen.st_ino, seen.st_size, seen.st_ctime_ns
        kept = self._tools.get(file)
        if kept is None or kept[0] != sign:
            now = time.time_ns()
            kept = sign, _PART + protect.digest_of(folder, name)
            if now - seen.st_ctime_ns > _RACY_NS:
                self._tools[file] = kept
        return kept[1]

    def _shadowing(self) -> Iterator[bytes]:
        """Files beside the work or its tests that take the place of a module of Python or of a tool."""
        if not self._shadows:
            return
        for folder in {*self._gates.cwds, "tests", "test"}:
            try:
                with os.scandir(self._root / folder) as entries:
                    found = [(entry.name, entry.path) for entry in entries]
            except OSError:
                continue
            for name, full in found:
                stem, _, end = name.partition(".")
                if stem not in runners.SHADOWS:
                    continue
                inner = os.path.join(full, "__init__.py")
                if end in {"py", "pyc", "so"} or (not end and os.path.exists(inner)):
                    yield os.fsencode(os.path.relpath(full if end else inner, self._root))


def _up_to_top(root: Path) -> tuple[Path, ...]:
    """The folders above, up to the top of the repository that the workspace is a part of."""
    tops = (at for at, folder in enumerate((root, *root.parents)) if os.path.lexists(folder / ".git"))
    return tuple(root.parents[: next(tops, 0)])


def _parts(tables: Iterable[Kind]) -> dict[str, tuple[str, ...]]:
    parts: dict[str, tuple[str, ...]] = {}
    for table in tables:
        for name, some in table.parts.items():
            parts[name] = (*parts.get(name, ()), *some)
    return parts


def _is_report(folder: bytes) -> bool:
    """Whether tools keep caches and reports here, which they tell git to ignore themselves."""
    return any(part[:1] == b"." or part in _REPORTS for part in folder.split(b"/") if part)


def _hits(names: list[str]) -> re.Pattern[bytes]:
    each = "|".join(fnmatch.translate(name) for name in dict.fromkeys(names))
    below = "|".join(re.escape(folder) for folder in runners.FOLDERS)
    return re.compile(rf"(?s:(?:.*/)?(?:{each})|(?:{below})/.*)".encode())


def _part(root: Path, path: bytes, name: str, tables: tuple[str, ...]) -> str | None:
    """The digest of what counts of a shared file, `None` for nothing; empty when it is no file to be read."""
    file = place.read(root, path)
    if file is None:
        return ""
    with open(file, "rb") as content:
        if os.fstat(file).st_size > _MOST_BYTES:
            return ""
        return deciding(name, content.read(), tables)


def _content(root: Path, path: str, most: int = _MOST_BYTES) -> bytes | None:
    """What a regular file says, also behind a link to a folder."""
    try:
        file = os.open(root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    with open(file, "rb") as content:
        return content.read(most)
