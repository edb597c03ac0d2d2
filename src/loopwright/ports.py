"""What an agent, a gate, a workspace and a store look like. Read this page to add one.

Rule: aliases, protocols and plain values only; nothing here does anything. A factory (one file, one
function) returns an `Agent` or a `Gate`; its keyword-only parameters are its options in a loop file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from loopwright.core.events import Event
from loopwright.core.frozen import frozen
from loopwright.core.judge import Rule
from loopwright.core.values import Attempt, Failed, Score, Scored, Usage, Worked
from loopwright.errors import StoreError, Taken
from loopwright.redact import PLAIN, Redactor

Observe: TypeAlias = Callable[[Event], None]
Follow: TypeAlias = Callable[[datetime, Event], None]  # the same, with when each fact happened


@frozen
class Place:
    """Where one attempt or gate works. `env` is its complete environment; seconds are limits.

    `root` is the workspace and current folder; `project` is where tools are looked up (usually the
    same); `artifacts` is a folder of its own for its files. `active` is a cheap fingerprint of the
    workspace (a sign of life when it changes); `hear` gets output as it comes, for a live view.
    `redact` takes secrets out of what is written down; use it before a text is cut short. `sandbox` are the words to
    put before every command that is started here. `commands` are those of the gates: an agent may run them. A gate that
    asks a model calls `spend` with what each answer cost, whatever it is worth.
    """

    root: Path
    project: Path
    artifacts: Path
    env: Mapping[str, str]
    timeout_s: float
    grace_s: float = 10.0
    idle_s: float | None = None
    active: Callable[[], object] | None = None
    hear: Callable[[bytes], None] | None = None
    redact: Redactor = PLAIN
    sandbox: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    spend: Callable[[Usage], None] = lambda usage: None  # noqa: ARG005 - where nobody counts


def _nothing_to_probe(place: Place) -> str:  # noqa: ARG001 - the shape of a probe
    """For what cannot be missing: a function."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Who does the work.

    `call` never raises for a failed attempt: it returns `Failed` with its kind. `probe` returns what
    will run (the resolved command, for the start line) and raises `NotStartable` when it cannot.
    `in_folder`: it works on files, so the default workspace is the folder, not `none`. `limits` are
    its own defaults by the names of `[limits]`; `keys` are environment names it may see.
    `in_process`: its code runs inside loopwright, so no sandbox can hold it. `login` names the login it uses, never
    the secret itself: runs of the same login share its limits. `placed`: it is told where it works; a function is
    not, so neither environment nor walls are made for it.
    """

    name: str
    call: Callable[[Attempt, Place], Awaitable[Worked | Failed]]
    in_folder: bool = True
    probe: Callable[[Place], str] = _nothing_to_probe
    limits: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    in_process: bool = False
    placed: bool = True
    login: Callable[[Place], str] | None = None


class Diff(Protocol):
    """What changed since snapshot 0: counts of lines and the files' names."""

    @property
    def lines(self) -> int:
        """Lines added and removed."""

    @property
    def text(self) -> str:
        """A unified diff, bounded."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files it touches, relative to the workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """One file through the run, `None` where there was none.

    `now` is how it is judged, `began` how this iteration began with it, `left` how the user last left it: at
    iteration 0, or with their last change of it. `elsewhere`: this iteration changed something else too.
    """

    now: bytes | None
    began: bytes | None
    left: bytes | None
    elsewhere: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All that was changed since snapshot 0, as git writes it: `--raw -z`, and a patch without lines around it.

    `whole` is false where the patch was cut. `secrets` are secret-looking files that no snapshot holds and that were
    not there at snapshot 0; `of_gates` are files that gates left.
    """

    raw: bytes
    patch: bytes
    whole: bool = True
    secrets: tuple[str, ...] = ()
    of_gates: frozenset[str] = frozenset()


@frozen
class Seen:
    """What a gate may look at beside the workspace; what is a function is looked up when asked for.

    `goal` and `threshold` are the loop's. `mark` is the best raw measure this gate took in earlier iterations, in its own direction; `spent_usd` what it spent
    itself in this run. `past` (of a path from
    the workspace's top) and `changes` are `None` where no snapshots are made.
    """

    iteration: int
    goal: str = ""
    threshold: float = 0.85
    output: Any = None
    summary: str = ""
    workdir: Path | None = None
    diff: Callable[[], Diff | None] = lambda: None
    previous: Any = None
    scores: tuple[Scored, ...] = ()
    mark: float | None = None
    spent_usd: float = 0.0
    past: Callable[[str], Past | None] = lambda path: None  # noqa: ARG005 - as in a workspace without snapshots
    changes: Callable[[], Changes | None] = lambda: None


Measure: TypeAlias = Score | float | bool
Check: TypeAlias = Callable[[Seen, Place], Awaitable[Measure]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Who judges the work: `check` measures, `rule` says how it counts.

    A check returns a `Score` (with a status when it knows), a number or a bool, and raises
    `NotStartable` when its tool cannot run and `BadEvidence` for a report that proves nothing.
    `python`: it runs Python code of the workspace, so bytecode goes to the artifacts folder. `clean`: it
    judges a pristine checkout of the snapshot, with nothing beside it that git ignores. `in_process`: code
    that is not loopwright's runs inside it, so no sandbox can hold it. `commands` are what it runs, as a person
    would type it. `opinion`: it judges by a model, so it must not be the only required gate unless it is let to be (`alone`).
    `placed`: as for an agent.
    """

    rule: Rule
    check: Check
    probe: Callable[[Place], str] = _nothing_to_probe
    timeout: float | None = None
    after: tuple[str, ...] = ()
    parallel: bool = False
    writes: bool = False
    clean: bool = False
    cwd: str | None = None
    env: tuple[str, ...] = ()
    python: bool = False
    in_process: bool = False
    placed: bool = True
    commands: tuple[tuple[str, ...], ...] = ()
    opinion: bool = False
    alone: bool = False

    @property
    def name(self) -> str:
        """The gate's name in its loop."""
        return self.rule.name


@frozen
class Kept:
    """What a store keeps beside a commit, so that readers need not fold the journal.

    `head` is the run document as JSON (`None`: the one before may stand, it is one commit behind),
    `fold` a cached fold, now and then. `closed` is the iteration that this commit closed; `state` and
    `at_close` make the run's state as JSON for people (`core.head.readable`), as of this commit and as of
    that close, for stores that people read.
    """

    head: bytes | None
    active: bool
    fold: bytes | None = None
    closed: int | None = None
    state: Callable[[], bytes] = lambda: b"{}"
    at_close: Callable[[], bytes] = lambda: b"{}"


class Lease(Protocol):
    """Who drives a run just now; liveness only, the journal is the fence."""

    def renew(self) -> bool:
        """Whether it is still ours."""

    def release(self) -> None:
        """Gives it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """An agent's login that must wait: until a limit is over, or (`until` is `None`) until somebody lifts it.

    `why` is for people; `since` is when it was said. Times have their zone.
    """

    login: str
    until: datetime | None
    why: str
    since: datetime


Refused: TypeAlias = Taken | StoreError  # why one commit of several was not written: `Corrupt` is one


class Store(Protocol):
    """Keeps journals: blocking and small, the host gives it a thread.

    Commits are bytes the store never looks into, without a newline; `n` counts from 1. Damage found in
    them is the reader's (`codec`) to name. A store may also have `place(run, n)`, where a commit stands, for
    that message, `one(run, n)`, commit `n` looked up anew, where an append alone would not notice that it was
    spoilt, and `mend(run, kept_of)`, which makes anew what it keeps beside a journal (`mending`). It may be without
    ledgers and holds (`add total hold holds lift`, all of them): it then serves every run that needs none of these,
    and who needs one asks first (`ledger.kept`). `loopwright.testing.check_store` tries all that is said here.
    """

    @property
    def files(self) -> Sequence[Path]:
        """Files and folders it keeps: where they lie in a workspace they are no part of the work."""

    def append(self, run: str, n: int, commit: bytes) -> None:
        """Writes commit `n` if absent, durably; `Taken` (with what stands there) if not."""

    def read(self, run: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """The commits with a number above `after`, in order."""

    def append_with(self, run: str, n: int, commit: bytes, kept: Kept) -> None:
        """Like `append`; what is kept beside it becomes readable with it, or soon after."""

    def append_all(self, commits: Sequence[tuple[str, int, bytes, Kept]]) -> list[Refused | None]:
        """Like `append_with` for each of several runs, with one wait for the disk; for each, why it was not written.

        What is wrong with one run takes no other's commit with it; what is wrong with the store is raised, and
        nothing is written.
        """

    def heads(self, *, active: bool | None = None, limit: int = 1000) -> Iterable[tuple[str, bytes]]:
        """Runs with their heads, newest first; may be one commit behind."""

    def cached(self, run: str) -> tuple[int, bytes] | None:
        """A cached fold and the number of the commit it reaches to; may be missing or behind."""

    def signal(self, run: str, key: str, record: bytes) -> bool:
        """Whether this key was free: a signal is created once and its key is never free again."""

    def signals(self, run: str) -> Iterable[tuple[str, bytes]]:
        """The signals not yet settled, oldest first."""

    def settle(self, run: str, keys: Iterable[str]) -> None:
        """Marks signals as consumed."""

    def lease(self, run: str, owner: str, ttl: float) -> Lease | None:
        """A lease on the run, or `None` while another living owner has one."""

    def add(self, key: str, day: str, entry: str, amount: float) -> float:
        """Counts an entry in the ledger `key` of a day (`2026-11-30`), durably; the ledger's total with it.

        An entry is counted once: a second time, whatever the amount, changes nothing. Amounts may be negative;
        `ValueError` where one, or the total, is not finite. A damaged ledger is `Corrupt`, never zero.
        """

    def total(self, key: str, day: str, entry: str | None = None) -> float:
        """The total of a ledger, or what was counted of one entry; 0.0 where nothing was."""

    def hold(self, login: str, until: datetime | None, why: str) -> None:
        """Says, durably, that a login must wait; what was said last of a login is what counts."""

    def holds(self) -> Sequence[Hold]:
        """The holds in force, by login; one that is over is none. Damaged ones are `Corrupt`."""

    def lift(self, login: str) -> None:
        """Ends the hold of a login, durably, where there is one."""

    def close(self) -> None:
        """Lets go of files and connections."""
