"""What can go wrong, and the exit code each kind of wrong has (DESIGN §11).

    LoopwrightError                  1   a fault of loopwright itself
    ├── ConfigError                  2   the loop as written cannot be run; `problems` holds every one
    ├── UsageError                   2   what was asked cannot be done as asked
    ├── PermanentError               7   raised by an agent: trying again cannot help
    ├── RetryableError               –   raised by an agent: trying again may help (`retry_after_s`)
    ├── RateLimited                  –   raised by an agent: it is asked too often, or its plan is used up for now
    ├── NotStartable                 7   a program could not be started
    ├── Undelivered                  –   a channel could not be reached; trying again may help unless it is `final`
    ├── BadEvidence                  –   a report that proves nothing; becomes a gate's `error` score
    ├── WorkspaceError               2   the folder cannot be snapshotted, restored or used
    ├── Conflict                     3   work that cannot be brought to where others changed the same; nothing was
    ├── Locked                       8   another runner holds the run or the workspace
    ├── StoreError                   9   the store cannot be reached or written
    │   └── Corrupt                  9   what the store holds is damaged; says where
    ├── Taken                        –   another runner wrote this commit first (internal)
    └── IllegalEvent                 1   a fact that cannot follow the ones before it

Rule: a message says what happened, where, and what to do. Nothing below `cli/` prints or exits.
"""

from __future__ import annotations


class LoopwrightError(Exception):
    """Something loopwright could not do; the message is written for the person who asked."""

    exit_code = 1


class ConfigError(LoopwrightError):
    """A loop that cannot be run as written: every problem at once, each with its place."""

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class UsageError(LoopwrightError):
    """A request that cannot be carried out as asked."""

    exit_code = 2


class PermanentError(LoopwrightError):
    """Raised by an agent: the run fails now, another attempt cannot help."""

    exit_code = 7


class RetryableError(LoopwrightError):
    """Raised by an agent: another attempt may help, not before `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class RateLimited(LoopwrightError):
    """Raised by an agent: refused for now, tried again after `retry_after_s` seconds; no attempt is used up."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class NotStartable(LoopwrightError):
    """A program that could not be started: not found, not executable, not a program."""

    exit_code = 7


class Undelivered(LoopwrightError):
    """A channel could not be reached: not before `retry_after_s` seconds; `final` where trying again cannot help."""

    def __init__(self, message: str, *, retry_after_s: float | None = None, final: bool = False) -> None:
        self.retry_after_s = retry_after_s
        self.final = final
        super().__init__(message)


class BadEvidence(LoopwrightError):
    """A report that proves nothing: missing, stale, partial, malformed, empty.

    `code` is a short stable word for tables and tests, such as `no_tests` or `malformed`.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class WorkspaceError(LoopwrightError):
    """A folder that cannot be snapshotted, compared, restored or worked in."""

    exit_code = 2


class Conflict(LoopwrightError):
    """Work that cannot be brought to where somebody changed the same; the message names the files, none changed."""

    exit_code = 3


class Locked(LoopwrightError):
    """Another runner holds this run or workspace; the message names it."""

    exit_code = 8


class StoreError(LoopwrightError):
    """The store cannot be reached, read or written."""

    exit_code = 9


class Corrupt(StoreError):
    """The store holds damaged records; the message says which and what to do."""


class Taken(LoopwrightError):
    """Commit `n` already stands with other bytes: another runner was first."""

    def __init__(self, n: int, standing: bytes) -> None:
        self.n = n
        self.standing = standing
        super().__init__(f"commit {n} is already written")


class IllegalEvent(LoopwrightError):
    """A fact that cannot follow the facts before it; nothing was changed."""
