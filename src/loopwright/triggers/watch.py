"""Files of the project that start runs when they change: which they are, what they hold, when to look again.

Rule: what the files hold decides, never an event: events only say when to look. Folders of tools, `.git` and our own are
not looked into, links are not followed, and what cannot be read is named.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import stat
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from loopwright.errors import UsageError
from loopwright.sites import glob_pattern
from loopwright.workspace.ignore import is_litter

MOST: Final = 50_000  # files, and folders: each folder costs one watch of the system
STEP_MS: Final = 50  # how soon the watching ends when it is told to
GROUP_MS: Final = 500
POLL_TICKS: Final = 10

Globs: TypeAlias = tuple[str, ...]
Print: TypeAlias = tuple[int, ...]
Changed: TypeAlias = Literal["", "files", "folders"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What globs name: `files` by their path from the project with what tells that one changed; `folders` to watch."""

    files: dict[str, Print]
    folders: frozenset[str]
    problems: tuple[str, ...]


def problems(globs: Globs) -> list[str]:
    """What is wrong with the globs of a watch trigger, before anything is looked at."""
    found = []
    for glob in globs:
        try:
            glob_pattern(os.fsencode(glob))
        except re.error as error:
            found.append(f"trigger watch: {glob!r} is no glob: {error.msg}")
        parts = glob.removeprefix("./").split("/")
        if glob.startswith(("/", "~")) or ".." in parts or ".git" in parts or ".agent-state" in parts:
            found.append(f"trigger watch: {glob!r} does not name files of the project, as 'src/**/*.py' does")
    return found


def look(project: Path, globs: Globs) -> Found:
    """The files that are there now; `UsageError` where there are more than can be watched."""
    match = _matcher(globs)
    files: dict[str, Print] = {}
    inner, folders, told = [""], [], []
    for folder in inner:  # it grows
        if len(inner) > MOST:
            raise UsageError(f"watch: more than {MOST:,} folders: name fewer, as 'src/**' does")
        try:
            with os.scandir(os.path.join(project, folder)) as entries:  # noqa: PTH118 - a tenth of the time
                for entry in entries:
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.name == ".git" or is_litter(os.fsencode(entry.name)):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if _leads(path, globs):
                            inner.append(path)
                    elif match(path):
                        files[path] = _print(entry)
            folders.append(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            told.append(f"{folder or '.'}: {error.strerror}")
        if len(files) > MOST:
            raise UsageError(f"watch: more than {MOST:,} files: name fewer, as 'src/**/*.py' does")
    return Found(files=files, folders=frozenset(folders), problems=tuple(told))


def digest(project: Path, found: Found, known: dict[str, tuple[Print, str]]) -> tuple[str, tuple[str, ...]]:
    """The digest of these files, names and contents, and which could not be read; `known` saves reading twice."""
    whole, told = hashlib.sha256(), list(found.problems)
    for path in sorted(found.files):
        print_ = found.files[path]
        seen = known.get(path)
        if seen is None or seen[0] != print_:
            seen = known[path] = (print_, _held(project / path))
        if seen[1].startswith("!"):
            told.append(f"{path}: {seen[1][1:]}")
            del known[path]  # it is tried again
        whole.update(f"{path}\0{seen[1]}\0".encode("utf-8", "surrogateescape"))
    for gone in known.keys() - found.files.keys():
        del known[gone]
    return whole.hexdigest(), tuple(told)


async def changes(
    project: Path, folders: Iterable[str], globs: Globs, *, tick_ms: int, tell: Callable[[str], None]
) -> AsyncGenerator[Changed, None]:
    """What changed in `folders`: soon after it did, else nothing every `tick_ms`, until it is cancelled or cannot go on.

    The first comes once everything is watched; `folders` where there are others to watch. Where the system cannot watch
    so much, it is looked at again and again.
    """
    from watchfiles import Change, awatch  # only a server with such a trigger needs it

    match = _matcher(globs)

    def wanted(change: Change, name: str) -> bool:
        path = os.path.relpath(name, project)
        if any(part == ".git" or is_litter(os.fsencode(part)) for part in path.split("/")):
            return False
        return change is Change.deleted or match(path) or _any_folder([name])

    try:
        async for found in awatch(
            *(project / folder for folder in sorted(folders)),
            watch_filter=wanted,
            debounce=GROUP_MS,
            step=STEP_MS,
            rust_timeout=tick_ms,
            yield_on_timeout=True,
            recursive=False,
            ignore_permission_denied=False,  # it would hide that there are too many to watch
            force_polling=False,
        ):
            made = (name for change, name in found if change is Change.added)
            yield "folders" if _any_folder(made) else "files" if found else ""
    except (FileNotFoundError, PermissionError):  # a folder that changed meanwhile: who asks looks again
        yield "folders"
        return
    except (OSError, RuntimeError) as error:
        tell(
            f"watch: the system cannot watch the files ({_why(error)}): they are looked at every {POLL_TICKS * tick_ms / 1000:g} s or more instead;"
            " raise fs.inotify.max_user_watches and max_user_instances (sysctl)"
        )
    async for changed in polled(project, globs, tick_ms=tick_ms):
        yield changed


async def polled(project: Path, globs: Globs, *, tick_ms: int) -> AsyncGenerator[Changed, None]:
    """As `changes`, without the system's help: it takes ten ticks to see one, more where looking takes long."""
    last: Any = None
    while True:
        began = time.monotonic()
        now = (await asyncio.to_thread(look, project, globs)).files
        took_ms = 1000 * (time.monotonic() - began)
        yield "files" if last is not None and now != last else ""
        last = now
        for _ in range(max(POLL_TICKS, round(20 * took_ms / tick_ms))):  # a twentieth of the time at most
            await asyncio.sleep(tick_ms / 1000)
            yield ""


def _any_folder(names: Iterable[str]) -> bool:
    return any(os.path.isdir(name) for name in names)  # noqa: PTH112 - no path is made of it


def _matcher(globs: Globs) -> Callable[[str], bool]:
    patterns = [glob_pattern(os.fsencode(glob)) for glob in globs]
    return lambda path: any(pattern.fullmatch(os.fsencode(path)) for pattern in patterns)


def _leads(folder: str, globs: Globs) -> bool:
    """Whether a file in this folder, or below it, can have such a name."""
    return any(_may(folder.split("/"), glob) for glob in globs)


def _may(folder: list[str], glob: str) -> bool:
    glob = glob.removeprefix("./").rstrip("/")
    if "/" not in glob:
        return True  # at any depth
    for part, name in zip(glob.removeprefix("/").split("/"), folder, strict=False):
        if re.search(r"[*?\[]", part):
            return True
        if part != name:
            return False
    return True


def _print(entry: os.DirEntry[str]) -> Print:
    """What changes when a file does; nothing where it is gone."""
    try:
        st = entry.stat(follow_symlinks=False)
    except OSError:
        return ()
    return (st.st_mode, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns)


def _held(path: Path) -> str:
    """What a file holds, as a digest; `!` and why where it cannot be read. A link is where it leads, unfollowed."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return f"link {path.readlink()}"
        if not stat.S_ISREG(mode):
            return "no file"
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "gone"
    except OSError as error:
        return f"!{error.strerror or error}"


def _why(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
