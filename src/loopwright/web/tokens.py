"""Who may use the page and the API: a token for each person, and what a browser is given for it.

Rules. A token is 256 random bits; the file that holds them is its owner's alone, and nobody is let in by one that is
not. Comparing takes the same time whatever is wrong. What is in the file now is what counts: a token that was taken out
lets nobody in, and what a browser got for it no longer does either. Nothing here is ever written to a log.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import pwd
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from loopwright.errors import ConfigError, LoopwrightError
from loopwright.state_folder import create_state
from loopwright.unattended import Server

Role: TypeAlias = Literal["decide", "read"]
SESSION_S: Final = 30 * 24 * 3600.0  # a browser that was not used for so long asks for the token again
_FILE: Final = "tokens.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who asks, and whether they may decide or only look."""

    name: str
    role: Role


def people_of(server: Server, environ: Mapping[str, str]) -> dict[str, Role]:
    """Everybody a server knows by name; where it names none, who runs it may decide."""
    known: dict[str, Role] = dict.fromkeys(server.viewers, "read")
    known |= dict.fromkeys(server.people, "decide")
    return known or {_me(environ): "decide"}


def _me(environ: Mapping[str, str]) -> str:
    named = environ.get("LOGNAME") or environ.get("USER")
    if named:
        return named
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


class Tokens:
    """The tokens of a server, read again whenever their file changes; safe to use from many threads."""

    def __init__(self, state: Path, known: Callable[[], Mapping[str, Role]]) -> None:
        self.folder = state / "server"
        self._state = state
        self._known = known
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] = ()
        self._kept: Mapping[str, str] = {}

    @property
    def file(self) -> Path:
        """Where they are kept."""
        return self.folder / _FILE

    def current(self) -> Mapping[str, str]:
        """The token of everybody the server knows, made where there is none yet.

        `ConfigError` when the file is readable or writable by others, or is no file of tokens.
        """
        names = self._known()
        with self._lock:
            seen = _stamp(self.file)
            if seen != self._seen or not seen:
                self._kept, self._seen = _read(self.file), seen
            if not names.keys() <= self._kept.keys():
                self._make(names)
            return {name: self._kept[name] for name in names}

    def rotate(self, name: str) -> str:
        """A new token for a person; the old one lets nobody in from now on."""
        with self._lock, self._alone():
            kept = {**_read(self.file), name: secrets.token_urlsafe(32)}
            _write(self.file, kept)
            self._seen = ()  # so that it is read again
        return kept[name]

    def person(self, token: str) -> Person | None:
        """Whose token it is."""
        given = token.encode("utf-8", "replace")
        found = None
        for name, own in self._tokens().items():
            if hmac.compare_digest(own.encode(), given):
                found = name
        return self._as_known(found)

    def session(self, person: Person) -> str:
        """What a browser of this person gets in the place of their token."""
        return _signed(self.current()[person.name], int(time.time()))

    def of_session(self, value: str) -> Person | None:
        """Whose browser it is; nobody's once their token is another, or after `SESSION_S`."""
        made, _, _ = value.partition(".")
        if not (made.isascii() and made.isdigit() and len(made) < 12):
            return None
        if (
            int(made) < time.time() - SESSION_S
        ):  # from the future is only a clock that was set back: it is signed
            return None
        given = value.encode("utf-8", "replace")
        found = None
        for name, own in self._tokens().items():
            if hmac.compare_digest(_signed(own, int(made)).encode(), given):
                found = name
        return self._as_known(found)

    def _tokens(self) -> Mapping[str, str]:
        """The tokens; none at all where their file cannot be trusted."""
        try:
            return self.current()
        except (LoopwrightError, OSError):
            return {}

    def _as_known(self, name: str | None) -> Person | None:
        role = None if name is None else self._known().get(name)
        return None if name is None or role is None else Person(name=name, role=role)

    def _make(self, names: Mapping[str, Role]) -> None:
        """Gives everybody a token who has none."""
        with self._alone():
            there = _read(self.file)  # another server of this folder may have made them meanwhile
            kept = {**{name: secrets.token_urlsafe(32) for name in names}, **there}
            if kept != there:
                _write(self.file, kept)
            self._kept, self._seen = kept, ()  # so that it is read again

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While it is open, no other server writes the tokens of this folder."""
        create_state(self._state)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(
            self.folder / "tokens.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _signed(token: str, made: int) -> str:
    mac = hmac.new(token.encode(), f"loopwright session v1 {made}".encode(), "sha256").hexdigest()
    return f"{made}.{mac}"


def _stamp(file: Path) -> tuple[int, ...]:
    """What changes whenever the file does; empty where there is none."""
    try:
        found = file.lstat()
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size, found.st_mode)


def _read(file: Path) -> Mapping[str, str]:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
    with os.fdopen(fd, "rb") as opened:
        found = os.fstat(fd)
        if (
            not stat.S_ISREG(found.st_mode)
            or found.st_uid != os.geteuid()
            or stat.S_IMODE(found.st_mode) & 0o077
        ):
            raise ConfigError(
                f"{file} can be read by others: chmod 600 {file}, or delete it and new ones are made"
            )
        body = opened.read(1 << 20)
    try:
        kept = json.loads(body)
        if not isinstance(kept, dict) or not all(isinstance(v, str) and len(v) >= 22 for v in kept.values()):
            raise ValueError
    except ValueError:
        raise ConfigError(f"{file} holds no tokens: delete it and new ones are made") from None
    return kept


def _write(file: Path, kept: Mapping[str, str]) -> None:
    """All of it or nothing, and never for others to read, not even for a moment."""
    temp = file.with_name(f".{_FILE}.{secrets.token_hex(8)}.new")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as opened:
        json.dump(dict(kept), opened, indent=2)
        opened.flush()
        os.fsync(fd)
    temp.replace(file)
