"""Doing a thing once: a file that is written when it differs, a command that runs until it has succeeded.

Rule: what is done again does nothing, and what is not certain to be done is done again. A crash never leaves half a
file. Between the effect of a command and its record there is a moment that no program can close: killed there, the
command runs again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loopwright.calling import alone
from loopwright.errors import Corrupt, Locked, LoopwrightError, StoreError, UsageError
from loopwright.redact import Redactor, redactor
from loopwright.state_folder import create_state
from loopwright.supervise import Exit, Process, child_environment, supervise, tool_path

StrPath = str | os.PathLike[str]

FOLDER: Final = Path(".agent-state", "once")
SAID_BYTES: Final = 256 << 20  # of each stream: all of it is in memory once
GRACE_S: Final = 5.0
CHUNK: Final = 1 << 20
MARKS: Final = ("LOOPWRIGHT_RUN", "LOOPWRIGHT_WORKDIR")  # by which what a run started is found again
VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What `write_once` did: exactly one of `wrote` and `skipped` is true. `path` is the real file, links followed."""

    wrote: bool
    skipped: bool
    path: Path
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command of `run_once` ended, now or (`skipped`) when it succeeded earlier.

    `returncode` is negative for the signal that ended it. `stdout` and `stderr` are whole, without secrets.
    """

    key: str
    returncode: int
    stdout: bytes
    stderr: bytes
    skipped: bool

    @property
    def text(self) -> str:
        """Stdout as text; what is not UTF-8 is shown as `\ufffd`."""
        return self.stdout.decode("utf-8", "replace")


def write_once(path: StrPath, content: str | bytes) -> Written:
    """The file at `path` has this content (text as UTF-8), written only when it had another.

    Once it returns the content is on disk; after a crash at any moment the file is the old or the new one, whole. A
    file that was there keeps its mode; a link stays and what it points to is written. Folders are not made. Raises
    OSError, naming `path`; then the old content stands.
    """
    if not isinstance(content, str | bytes | bytearray | memoryview):
        raise TypeError(f"the content is {type(content).__name__}: write_once takes text or bytes")
    data = content.encode() if isinstance(content, str) else bytes(content)
    digest = hashlib.sha256(data).hexdigest()
    given = Path(path)
    try:
        real = Path(os.path.realpath(given))
        mode = _mode(real)
        same = mode is not None and _holds(real, data)
        if not same:
            _replace(real, data, mode)
        _sync_folder(real.parent)  # the one who wrote it before us may have been killed before this
    except OSError as error:
        why = error.strerror or str(error)
        if isinstance(error, FileNotFoundError) and not real.parent.is_dir():
            why = f"there is no folder {real.parent} (make it first)"
        raise OSError(error.errno, f"cannot write: {why}", str(given)) from error
    return Written(wrote=not same, skipped=same, path=real, sha256=digest)


def _mode(real: Path) -> int | None:
    """The mode of the file that is there, `None` when none is."""
    try:
        found = os.stat(real, follow_symlinks=False)  # noqa: PTH116 - every call to the system goes through os here
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(21, "it is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(22, "it is no regular file, or a link that leads to itself")
    return stat.S_IMODE(found.st_mode)


def _holds(real: Path, data: bytes) -> bool:
    """Whether the file holds exactly this, and on disk."""
    descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size != len(data):
            return False
        view, at = memoryview(data), 0
        while chunk := os.read(descriptor, CHUNK):
            if view[at : at + len(chunk)] != chunk:
                return False
            at += len(chunk)
        if at != len(data):
            return False
        os.fsync(descriptor)
        return True
    finally:
        os.close(descriptor)


def _replace(real: Path, data: bytes, mode: int | None) -> None:
    """A new file takes the place of the old one at once, or not at all."""
    temp = real.parent / f".{secrets.token_hex(8)}.loopwright.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(
        temp, flags, 0o666 if mode is None else 0o600
    )  # a private one is private from its first byte
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temp, real)  # noqa: PTH105 - see _mode
    except BaseException:
        with suppress(OSError):  # the reason of the failure is the one to tell
            os.unlink(temp)  # noqa: PTH108 - see _mode
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def run_once(
    argv: Sequence[StrPath],
    *,
    key: str,
    inputs: Sequence[StrPath] = (),
    env: Mapping[str, str] | None = None,
    cwd: StrPath | None = None,
    timeout_s: float = 600.0,
    folder: StrPath | None = None,
) -> Ran:
    """Runs a command unless it has succeeded under this `key` with the same argv, cwd, inputs and env.

    `inputs` are files and folders, compared by what they hold; `env` is added to the environment, from which
    secret-looking names are withheld. What ends with another code than 0 is returned and never remembered; nor is
    what is ended after `timeout_s` seconds, with all it started (`subprocess.TimeoutExpired`). Success is on record
    in `folder` (default: the current one) under `.agent-state/once/`; one record per key, other arguments replace
    it. Of several processes one runs the command and the others wait for it, `timeout_s` at most (`Locked`). Raises
    `NotStartable`, `UsageError` for an input that is not there, `Corrupt` for a record that is damaged.
    """
    words = tuple(os.fsdecode(word) for word in argv)
    place = Path(cwd or ".").resolve()
    if not key or not words or isinstance(argv, str | bytes):
        raise UsageError("run_once needs a key and a command, which is a list of words")
    allow = dict(env or {})
    redact = redactor({**os.environ, **allow})
    records = Path(folder or ".").resolve() / FOLDER
    _create(records)
    name = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    record = records / f"{name}.json"
    with _locked(records / f"{name}.lock", key, timeout_s + 2 * GRACE_S):
        asked = _asked(words, place, inputs, allow)
        if (known := _known(record, key)) is not None and _same(known, asked):
            out, err = (_said(record, known, stream) for stream in ("stdout", "stderr"))
            return Ran(key=key, returncode=0, stdout=out, stderr=err, skipped=True)
        end = _run(words, place, allow, redact, timeout_s)
        if end.ended == "timeout":
            raise subprocess.TimeoutExpired(list(words), timeout_s, end.stdout, end.stderr)
        code = -(end.signal or 0) if end.code is None else end.code
        if code == 0:
            _keep(record, key, asked, end, redact.value(list(words)))
        return Ran(key=key, returncode=code, stdout=end.stdout, stderr=end.stderr, skipped=False)


def _run(
    words: tuple[str, ...], place: Path, env: Mapping[str, str], redact: Redactor, timeout_s: float
) -> Exit:
    inherited, _ = child_environment(os.environ, allow=MARKS)
    process = Process(
        argv=words,
        cwd=place,
        env={**inherited, "PATH": tool_path(place, inherited.get("PATH", os.defpath)), **env},
        log=Path(os.devnull),
        timeout_s=timeout_s,
        grace_s=GRACE_S,
        log_bytes=0,
        head_bytes=0,
        tail_bytes=SAID_BYTES,
        redact=redact,
    )
    end = alone(lambda: supervise(process))
    if max(end.stdout_bytes, end.stderr_bytes) > SAID_BYTES:
        raise LoopwrightError(f"{words[0]} said more than {SAID_BYTES >> 20} MB: let it write to a file")
    return end


def _create(records: Path) -> None:
    create_state(records.parent)
    try:
        records.mkdir(mode=0o700, exist_ok=True)
        if records.is_symlink():
            raise StoreError(f"{records} is a link: replace it by a folder")
    except OSError as error:
        raise StoreError(f"{records} cannot be made: {error.strerror or error}") from error


@contextmanager
def _locked(file: Path, key: str, limit_s: float) -> Iterator[None]:
    """The key is ours; the kernel gives it back when we die."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    end, pause_s = time.monotonic() + limit_s, 0.001
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Locked(f"{key!r} is being run by another process for too long ({file})") from None
                time.sleep(pause_s)
                pause_s = min(0.1, pause_s * 1.5)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was only forked holds it, too
    finally:
        os.close(descriptor)


def _asked(
    words: tuple[str, ...], place: Path, inputs: Sequence[StrPath], env: Mapping[str, str]
) -> dict[str, Any]:
    """What must be the same for a command to be the same."""
    names = [os.fsdecode(one) for one in inputs]
    return {
        "argv": list(words),
        "cwd": str(place),
        "inputs": {name: _content(place / name, name) for name in names},
        "env": dict(sorted(env.items())),
    }


def _content(path: Path, name: str) -> str:
    """The digest of a file, or of a folder with all in it; links inside a folder count by where they lead."""
    digest = hashlib.sha256()
    try:
        if not path.is_dir():
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        for below in sorted(path.rglob("*")):
            if below.is_symlink():
                held = f"link {os.readlink(below)}"  # noqa: PTH115 - the text, not a path
            elif below.is_dir():
                held = "folder"
            else:
                with below.open("rb") as file:
                    held = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(os.fsencode(f"{below.relative_to(path)}\0{held}\0"))
    except OSError as error:
        raise UsageError(f"the input {name} cannot be read: {error.strerror} ({error.filename})") from None
    return f"folder {digest.hexdigest()}"


def _print(asked: Mapping[str, Any], salt: str) -> str:
    """The fingerprint of what was asked: values of the environment and words of a command are nobody's to read."""
    text = json.dumps([salt, asked], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _same(known: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    return bool(known["asked"] == _print(asked, known["salt"]))


def _known(record: Path, key: str) -> dict[str, Any] | None:
    """The record, `None` without one; Corrupt when it is not as it was written."""
    try:
        text = record.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{record} cannot be read: {error.strerror}") from None
    try:
        found = json.loads(text)
        body = found["once"]
        whole = found["sha256"] == _digest(body) and body["v"] == VERSION and body["key"] == key
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise Corrupt(f"{record} is damaged: remove it, and {key!r} will run again")
    return dict(body)


def _digest(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def _said(record: Path, known: Mapping[str, Any], stream: str) -> bytes:
    """What the command said when it succeeded."""
    file = record.with_name(known[stream]["file"])
    try:
        data = file.read_bytes()
    except OSError as error:
        raise Corrupt(
            f"{file} cannot be read ({error.strerror}): remove {record.name} to run it again"
        ) from None
    if hashlib.sha256(data).hexdigest() != known[stream]["sha256"]:
        raise Corrupt(f"{file} is damaged: remove {record.name}, and {known['key']!r} will run again")
    return data


def _keep(record: Path, key: str, asked: Mapping[str, Any], end: Exit, shown: list[str]) -> None:
    """Puts the success on record; what it said first, what is no longer named last."""
    nonce, salt = secrets.token_hex(8), secrets.token_hex(16)
    body: dict[str, Any] = {"v": VERSION, "key": key, "command": shown, "salt": salt}
    body["asked"] = _print(asked, salt)
    body["inputs"] = asked["inputs"]
    try:
        for stream, data in (("stdout", end.stdout), ("stderr", end.stderr)):
            file = record.with_name(f"{record.stem}.{nonce}.{stream}")
            _replace(file, data, 0o600)
            body[stream] = {"file": file.name, "sha256": hashlib.sha256(data).hexdigest()}
        document = json.dumps({"once": body, "sha256": _digest(body)}, indent=2) + "\n"
        _replace(record, document.encode(), 0o600)
        _sync_folder(record.parent)
        for old in record.parent.glob(f"{record.stem}.*.std*"):
            if nonce not in old.name:
                old.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"{key!r} succeeded and could not be put on record ({error.strerror or error}): it would run again"
        ) from error
