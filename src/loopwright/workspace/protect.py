"""Evidence files: what they were before the agent worked, whether they still are, and how to put them back.

The rule: evidence is hashed from disk, whatever git ignores or believes, and no symlink is followed out
of the workspace. A digest is the sha256 of a file's bytes, with `+x` behind it when it is executable;
of a symlink it is `link:` and the sha256 of where it points, of anything unreadable it is `unreadable`.
"""

# Names are bytes here, which pathlib cannot hold.
# ruff: noqa: PTH112, PTH114, PTH115, PTH118, PTH123

from __future__ import annotations

import hashlib
import os
import re
import stat
from typing import TYPE_CHECKING

from loopwright.errors import WorkspaceError
from loopwright.sites import glob_pattern
from loopwright.workspace import ignore, place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

MOST_FILES = 50_000
MOST_BYTES = 2 * 1024**3
_UNREADABLE = "unreadable"


def protected(root: Path, globs: Iterable[str]) -> dict[str, str]:
    """Every file that a glob names, as path → digest, sorted by path.

    `*` and `?` match within a name, `**` any number of folders. A glob without `/` matches at any depth,
    one with `/` from the root; naming a folder names all it holds. Tool litter is passed over, unless a
    glob names it. A symlink inside the root brings what it points to with it. WorkspaceError above
    50,000 files or 2 GB.
    """
    root = root.resolve()
    names = [os.fsencode(glob) for glob in globs]
    patterns = [glob_pattern(name) for name in names]
    named = {part for name in names for part in name.split(b"/")}
    found: dict[bytes, str] = {}
    size = 0
    for start in {_start(root, name) for name in names}:
        for path, real, links in _walk(root, start, named):
            if not any(pattern.fullmatch(path) for pattern in patterns):
                continue
            for each in {real, *links} - found.keys():
                found[each], length = _digest(root, each)
                size += length
            if len(found) > MOST_FILES or size > MOST_BYTES:
                raise WorkspaceError(
                    f"{', '.join(map(os.fsdecode, names))} protect more than {MOST_FILES:,} files or "
                    f"{MOST_BYTES:,} bytes: name fewer"
                )
    return {os.fsdecode(path): found[path] for path in sorted(found)}


def matcher(globs: Iterable[str]) -> Callable[[bytes], bool]:
    """Whether a path is one that these globs name."""
    patterns = [glob_pattern(os.fsencode(glob)) for glob in globs]
    return lambda path: any(pattern.fullmatch(path) for pattern in patterns)


def digest_of(root: Path, path: bytes) -> str:
    """The digest of what stands at `path` below the root."""
    return _digest(root, path)[0]


def digest(mapping: Mapping[str, str]) -> str:
    """One sha256 for a whole mapping, whatever its order."""
    whole = hashlib.sha256()
    for path in sorted(mapping):
        whole.update(os.fsencode(path) + b"\0" + mapping[path].encode() + b"\n")
    return whole.hexdigest()


def tampered(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """The paths that were changed or deleted, sorted; new files are not tampering (see `added`)."""
    return tuple(sorted(path for path, was in before.items() if after.get(path) != was))


def added(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """The paths that only `after` has, sorted."""
    return tuple(sorted(after.keys() - before.keys()))


def keep_copies(root: Path, mapping: Mapping[str, str], folder: Path) -> None:
    """A copy of each file of the mapping in `folder`, named by its digest, with its mode, on disk.

    A copy that is there already is kept. WorkspaceError when a file no longer is what the mapping says.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, was in mapping.items():
        if was == _UNREADABLE or (folder / was).exists():
            continue
        data, mode = _content(root, os.fsencode(path))
        if data is None or _name(data, mode) != was:
            raise WorkspaceError(
                f"{path!r} changed while it was copied: try again when nothing writes to {root}"
            )
        copy_mode = 0o600 if stat.S_ISLNK(mode) else stat.S_IMODE(mode) | stat.S_IRUSR
        place.put(folder, was.encode(), data, mode=copy_mode)


def put_back(root: Path, folder: Path, before: Mapping[str, str], paths: Iterable[str]) -> tuple[str, ...]:
    """These files with the bytes and mode they had when `keep_copies` copied them; the paths it wrote.

    Each is replaced in one step. Symlinks are not followed: a link or file that stands where a parent
    folder was is removed, a folder that stands in a file's place is moved aside as `<name>.replaced-…`.
    WorkspaceError when a copy is missing or damaged; files before it are back by then.
    """
    root = root.resolve()
    done: list[str] = []
    for path in paths:
        was = before.get(path)
        file = place.read(folder, was.encode()) if was is not None and was != _UNREADABLE else None
        if was is None or file is None:
            raise WorkspaceError(
                f"{path!r} cannot be put back: there is no copy of it in {folder}; bring it back yourself and start a new run"
            )
        with open(file, "rb") as copy:
            data, mode = copy.read(), stat.S_IMODE(os.fstat(file).st_mode)
        link = was.startswith("link:")
        if _name(data, stat.S_IFLNK if link else mode) != was:
            raise WorkspaceError(f"{path!r} cannot be put back: its copy in {folder} is damaged")
        try:
            place.put(root, os.fsencode(path), data, mode=mode, link=link, clear=True)
        except OSError as error:
            raise WorkspaceError(f"{path!r} cannot be put back: {error}") from error
        done.append(path)
    return tuple(done)


def _walk(root: Path, start: bytes, named: set[bytes]) -> Iterator[tuple[bytes, bytes, tuple[bytes, ...]]]:
    """Every file and link below `start`: the path it is reached by, where it is, the links on the way.

    Not `.git`, and litter only when a glob names it. Of links in links in links two are followed.
    """
    folders: list[tuple[bytes, bytes, tuple[bytes, ...]]] = [(start, start, ())]
    while folders:
        shown, folder, links = folders.pop()
        try:
            with os.scandir(os.path.join(os.fsencode(root), folder)) as entries:
                found = [
                    (entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in entries
                ]
        except OSError:
            continue  # gone or closed to us: its files are missing from the mapping, which is tampering
        for name, is_folder, is_link in found:
            if name in {b".git", b".agent-state"} or (ignore.is_litter(name) and name not in named):
                continue
            path, real = os.path.join(shown, name), os.path.join(folder, name)
            if is_folder:
                folders.append((path, real, links))
                continue
            yield path, real, links
            target = _target(root, real) if is_link else None
            if target is None:
                continue
            if os.path.isdir(os.path.join(os.fsencode(root), target)):
                if len(links) < 2:
                    folders.append((path, target, (*links, real)))
            else:
                yield path, target, (*links, real)


def _target(root: Path, link: bytes) -> bytes | None:
    """What the link stands for, as a path below the root; None when that is outside, not there, or holds the link."""
    real = os.path.realpath(os.path.join(os.fsencode(root), link))
    inside = os.path.relpath(real, os.fsencode(root))
    if {b".", b"..", b".git", b".agent-state"} & set(inside.split(b"/")) or link.startswith(inside + b"/"):
        return None
    if not os.path.lexists(real):
        return None
    return inside


def _start(root: Path, glob: bytes) -> bytes:
    """The folder from which a glob must be looked for: its parts without a wildcard, but for links."""
    start = b""
    for part in glob.removeprefix(b"./").lstrip(b"/").split(b"/")[:-1] if b"/" in glob.rstrip(b"/") else []:
        inner = os.path.join(start, part)
        if re.search(rb"[*?\[]", part) or os.path.islink(os.path.join(os.fsencode(root), inner)):
            break
        start = inner
    return start


def _digest(root: Path, path: bytes) -> tuple[str, int]:
    """The digest of what stands at `path`, and how many bytes were read; the walk came here by no link."""
    full = os.path.join(os.fsencode(root), path)
    try:
        # O_NONBLOCK: a FIFO in the place of evidence must not hold us.
        file = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        data, mode = _content(root, path)
        return (_UNREADABLE, 0) if data is None else (_name(data, mode), len(data))
    whole, length = hashlib.sha256(), 0
    try:
        seen = os.fstat(file)
        if not stat.S_ISREG(seen.st_mode):
            return _UNREADABLE, 0
        while block := os.read(file, 1024 * 1024):
            whole.update(block)
            length += len(block)
    except OSError:
        return _UNREADABLE, length
    finally:
        os.close(file)
    return whole.hexdigest() + _suffix(seen.st_mode), length


def _content(root: Path, path: bytes) -> tuple[bytes | None, int]:
    """The bytes of a file, or of a symlink where it points, and the mode; None when it cannot be read."""
    seen = place.look(root, path)
    if seen is not None and stat.S_ISLNK(seen.st_mode):
        return os.readlink(os.path.join(os.fsencode(root), path)), seen.st_mode
    file = place.read(root, path)
    if file is None:
        return None, 0
    with open(file, "rb") as content:
        return content.read(), os.fstat(file).st_mode


def _name(data: bytes, mode: int) -> str:
    sha256 = hashlib.sha256(data).hexdigest()
    return f"link:{sha256}" if stat.S_ISLNK(mode) else sha256 + _suffix(mode)


def _suffix(mode: int) -> str:
    return "+x" if mode & stat.S_IXUSR else ""
