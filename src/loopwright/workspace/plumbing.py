"""One git process at a time, and the git dir of our own that snapshots are made with.

The rule: git reads no configuration but the one written here. No hook, filter, attribute, exclude,
fsmonitor, pager or alias of the user's or the agent's takes part, and the user's own git dir is
opened to read commits and refs, to write `refs/loopwright/`, and to make a branch that was asked for.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import subprocess
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loopwright.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMEOUT_S = 120.0  # for one git process; hashing 2 GB takes about 10 s
_OLDEST = (2, 30)
_FIXED = {
    "PATH": os.defpath,
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    # An object that is not there is not there: git would ask the remote of a partial clone for it, by a command
    # that the repository's configuration names. No configuration undoes these.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_AUTHOR_NAME": "loopwright",
    "GIT_AUTHOR_EMAIL": "loopwright@localhost",
    "GIT_COMMITTER_NAME": "loopwright",
    "GIT_COMMITTER_EMAIL": "loopwright@localhost",
}
# What is set here wins over every `.gitattributes`: bytes go in and out as they are, and no file can
# be declared binary to hide its lines from the diff.
RAW = b"* -text -ident -filter !eol !working-tree-encoding !diff !merge !whitespace !delta\n"
_SNAPSHOT = b"loopwright snapshot\n"
_SETTINGS = r"^(extensions\.objectformat|core\.sharedrepository)$"
_CONFIG = """\
[core]
\trepositoryformatversion = {version}
\tbare = false
\tfileMode = true
\tsymlinks = true
\tignoreCase = false
\tprecomposeUnicode = false
\tprotectHFS = false
\tprotectNTFS = false
\tautocrlf = false
\tsafecrlf = false
\tquotePath = false
\tfsmonitor = false
\tuntrackedCache = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tlogAllRefUpdates = false
\tsharedRepository = {shared}
\t{fsync}
[extensions]
\tobjectFormat = {format}
[gc]
\tauto = 0
"""


@dataclass(frozen=True, kw_only=True)
class Repository:
    """The user's repository around a workspace: top folder, git dir, the git dir its worktrees share."""

    top: Path
    git_dir: Path
    shared: Path


@dataclass(frozen=True, kw_only=True)
class Call:
    """One way to call git: the program, its environment, and the folder it works in."""

    program: str
    env: Mapping[str, str | bytes]
    cwd: Path
    options: tuple[str, ...] = ()
    hold: int | None = None  # a locked descriptor that git shares, so that the lock outlives us if it does

    def __call__(self, *args: str | bytes, stdin: bytes = b"", ok: tuple[int, ...] = (0,)) -> bytes:
        """What git wrote to stdout; WorkspaceError with its message when its exit code is not `ok`."""
        return self.told(*args, stdin=stdin, ok=ok)[0]

    def told(self, *args: str | bytes, stdin: bytes = b"", ok: tuple[int, ...] = (0,)) -> tuple[bytes, bytes]:
        """The same, and what it wrote to stderr: warnings."""
        try:
            done = subprocess.run(
                [self.program, *self.options, *args],
                input=stdin,
                capture_output=True,
                timeout=TIMEOUT_S,
                env=self.env,
                cwd=self.cwd,
                check=False,
                pass_fds=() if self.hold is None else (self.hold,),
                start_new_session=True,  # a Ctrl-C is ours to answer, not git's
            )
        except subprocess.TimeoutExpired:
            raise WorkspaceError(
                f"git {_word(args)} in {self.cwd} took longer than {TIMEOUT_S:.0f} s"
            ) from None
        except OSError as error:
            raise WorkspaceError(f"git {_word(args)} in {self.cwd} could not start: {error}") from error
        if done.returncode not in ok:
            said = done.stderr.decode(errors="replace").strip()[-2000:] or f"exit {done.returncode}"
            raise WorkspaceError(f"git {_word(args)} in {self.cwd} failed: {said}")
        return done.stdout, done.stderr

    def head(self, *args: str | bytes, limit: int) -> tuple[bytes, bool]:
        """The first `limit` bytes that git writes, and whether that was all."""
        with subprocess.Popen(
            [self.program, *self.options, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.env,
            cwd=self.cwd,
            start_new_session=True,
        ) as process:
            timer = threading.Timer(TIMEOUT_S, process.kill)
            timer.start()
            try:
                assert process.stdout is not None
                data = process.stdout.read(limit + 1)
                if len(data) > limit:
                    process.kill()
            finally:
                timer.cancel()
        if len(data) <= limit and process.returncode != 0:
            raise WorkspaceError(f"git {_word(args)} in {self.cwd} failed: exit {process.returncode}")
        return data[:limit], len(data) <= limit


def find_git() -> tuple[str, tuple[int, ...]]:
    """The git on PATH and its version; WorkspaceError when there is none or it is older than 2.30."""
    found = shutil.which("git")
    if found is None:
        raise WorkspaceError(
            "git is not on PATH: without it there are no snapshots (--workspace none runs without)"
        )
    text = Call(program=found, env=_FIXED, cwd=Path("/"))("version").decode(errors="replace")
    numbers = re.search(r"(\d+)\.(\d+)", text)
    version = tuple(int(n) for n in numbers.groups()) if numbers else (0, 0)
    if version < _OLDEST:
        raise WorkspaceError(f"{text.strip()} at {found} is too old: snapshots need git 2.30 or newer")
    return found, version


def find_repository(root: Path) -> Repository | None:
    """The repository that `root` is in, found as git finds it, but without asking its configuration."""
    for top in (root, *root.parents):
        git_dir = top / ".git"
        try:
            if git_dir.is_file():
                pointer = git_dir.read_bytes()
                if not pointer.startswith(b"gitdir:"):
                    continue
                git_dir = top / os.fsdecode(pointer.removeprefix(b"gitdir:").strip())
            pointed = git_dir / "commondir"
            shared = git_dir / os.fsdecode(pointed.read_bytes().strip()) if pointed.is_file() else git_dir
            if has_head(git_dir) and (shared / "objects").is_dir():
                return Repository(top=top, git_dir=git_dir.resolve(), shared=shared.resolve())
        except OSError as error:
            raise WorkspaceError(f"{git_dir} cannot be read: {error.strerror or error}") from error
    return None


def has_head(git_dir: Path) -> bool:
    """Whether git would know this folder by its HEAD: the name of a branch, or a commit."""
    head = git_dir / "HEAD"
    return head.is_file() and re.match(rb"ref:\s*\S|[0-9a-f]{40}", head.read_bytes()) is not None


def users_git(program: str, repository: Repository) -> Call:
    """Calls on the user's git dir, for its HEAD and for `refs/loopwright/`, without its hooks."""
    options = (
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "core.logAllRefUpdates=false",
        "core.fsync=reference",
    )
    return Call(
        program=program,
        env={**_FIXED, "GIT_DIR": os.fsencode(repository.git_dir)},
        cwd=repository.git_dir,
        options=tuple(word for option in options for word in ("-c", option)),
    )


def make_git_dir(own: Path, version: tuple[int, ...], users: Call | None) -> str:
    """Write (anew) the git dir of our own: the same object format as the user's, and no habits of theirs.

    Says with whom the user shares the repository, by `core.sharedRepository`. When the user's configuration cannot be
    read any more, what was written earlier stands.
    """
    settings: dict[str, str] = {}
    if users is not None:
        try:
            listed = users("config", "-z", "--get-regexp", _SETTINGS, ok=(0, 1))
        except WorkspaceError:
            written = own / "config"
            if not written.exists():
                raise
            return "umask" if "sharedRepository = umask" in written.read_text() else "unknown"
        pairs = (line.partition("\n") for line in listed.decode(errors="replace").split("\0") if line)
        settings = {name.lower(): value for name, _, value in pairs}
    object_format = settings.get("extensions.objectformat", "sha1")
    if object_format not in {"sha1", "sha256"}:
        raise WorkspaceError(f"a repository with objects of format {object_format!r} cannot be snapshotted")
    shared = settings.get("core.sharedrepository", "umask")
    config = _CONFIG.format(
        version=0 if object_format == "sha1" else 1,
        format=object_format,
        shared=shared if re.fullmatch(r"[a-z]+|0[0-7]{3}", shared) else "umask",
        # Both mean: what was acknowledged outlives a power cut. Each git knows one and warns of the other.
        fsync="fsync = objects,reference" if version >= (2, 36) else "fsyncObjectFiles = true",
    )
    if object_format == "sha1":
        config = config.replace("[extensions]\n\tobjectFormat = sha1\n", "")
    for folder in ("objects", "refs", "info", "runs"):
        (own / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in {
        "HEAD": b"ref: refs/heads/none\n",
        "info/attributes": RAW,
        "info/exclude": b"",
        "config": config.encode(),
    }.items():
        write_whole(own / name, content)
    return shared


def borrow_objects(own: Path, repository: Repository, users: Call) -> None:
    """Lets the git dir of our own see the user's commits, and stand where their HEAD does, without writing there."""
    head = users("rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1, 128))
    (own / "objects" / "info").mkdir(mode=0o700, exist_ok=True)
    write_whole(own / "objects/info/alternates", os.fsencode(repository.shared / "objects") + b"\n")
    if head.strip():  # else an unborn branch, as our own HEAD is
        write_whole(own / "HEAD", head)


def own_git(program: str, own: Path, root: Path, *, index: Path, objects: Path) -> Call:
    """Calls on the git dir of our own over the workspace; `objects` is where the user's objects are."""
    places = {"GIT_DIR": own, "GIT_WORK_TREE": root, "GIT_INDEX_FILE": index, "GIT_OBJECT_DIRECTORY": objects}
    return Call(
        program=program,
        env={**_FIXED, **{name: os.fsencode(path) for name, path in places.items()}},
        cwd=root,
    )


def copys_git(program: str, top: Path) -> Call:
    """Calls on the `.git` of a folder that we have just made; never once an agent has worked there."""
    places = {"GIT_DIR": top / ".git", "GIT_WORK_TREE": top}
    return Call(
        program=program, env={**_FIXED, **{name: os.fsencode(path) for name, path in places.items()}}, cwd=top
    )


def write_commit(objects: Path, tree: str) -> str:
    """The id of a commit of this tree, on disk; without parent or clock, so the same tree has one commit.

    Written here and not by `git commit-tree`, which takes 2 ms of a snapshot's 18 to start.
    """
    who = "loopwright <loopwright@localhost> 0 +0000"
    body = f"tree {tree}\nauthor {who}\ncommitter {who}\n\n".encode() + _SNAPSHOT
    raw = b"commit %d\0" % len(body) + body
    name = hashlib.new("sha1" if len(tree) == 40 else "sha256", raw, usedforsecurity=False).hexdigest()
    file = objects / name[:2] / name[2:]
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        temp = objects / f"tmp_obj_{secrets.token_hex(8)}"  # a name that git sweeps up after a crash
        with temp.open("wb") as out:
            out.write(zlib.compress(raw))
            out.flush()
            os.fchmod(out.fileno(), 0o444)
            os.fsync(out.fileno())
        temp.replace(file)
    return name


def is_snapshot(commit: bytes) -> bool:
    """Whether this commit, as git stores it, is one that `write_commit` made."""
    return commit.endswith(b"0 +0000\n\n" + _SNAPSHOT)


def write_whole(file: Path, content: bytes) -> None:
    """`file` with this content, replaced in one step and on disk; nothing is written when it has it already."""
    try:
        if file.read_bytes() == content:
            return
    except OSError:
        pass
    temp = file.with_name(f"{file.name}.{secrets.token_hex(8)}.new")
    try:
        with temp.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        temp.replace(file)
    except OSError:
        temp.unlink(missing_ok=True)
        raise
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """The names in `folder` are on disk when this returns."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def key_of(root: Path) -> str:
    """A short name for a workspace, the same for the same real path."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:16]


def _word(args: Sequence[str | bytes]) -> str:
    words = [os.fsdecode(word) for word in args]
    return next((word for word in words if not word.startswith("-") and "=" not in word), "")
