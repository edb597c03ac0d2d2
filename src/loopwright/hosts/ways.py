"""How a host goes about a run, and what came of it.

Rule: values only. The environment is read by the caller and passed down here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Final

from loopwright.core.head import exit_code
from loopwright.core.state import LoopState
from loopwright.drive import Waiting
from loopwright.journal import Journal
from loopwright.ports import Follow, Observe, Store
from loopwright.running import Run
from loopwright.together import Together

STATE: Final = ".agent-state"


def silent(_: str) -> None:
    """Nobody is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How a host goes about a run: where, with what environment, who watches, what is asked of it."""

    project: Path
    store: Store | str | None = None
    together: Together | None = None  # of `store`, where one process hosts many runs
    environ: Mapping[str, str] = field(default_factory=dict)
    narrow: bool = (
        False  # agent and gates see what is listed of it and what the loop lets through, nothing else
    )
    observe: tuple[Observe, ...] = ()
    follow: tuple[
        Callable[[Journal], Follow], ...
    ] = ()  # each makes one that watches, for a run that is opened
    hear: Callable[[bytes], None] | None = None
    begin: Callable[[str], None] = lambda _: None
    tell: Callable[[str], None] = silent  # a line of news for the person who started it
    signals: Callable[[Run], None] = lambda _: None  # connects Ctrl-C and TERM to the open run
    patience_s: float = inf  # a longer wait for a time is given back, for the host to come again then
    since: datetime | None = (
        None  # the present is this or later: what was to end then is over, whatever the clock says
    )
    holds: bool = False  # an agent's lost login makes a run wait for it, instead of ending it
    wait: bool = False  # for the person who is asked, instead of giving the run back
    person: Callable[[Run], None] = lambda _: None  # called again and again while one is waited for
    accept_changes: bool = False
    origin: str = "hand"
    defined_in: tuple[Path, ...] = ()  # the files that the loop is written in
    by: str = ""
    note: str | None = None
    add: Mapping[str, float] = field(default_factory=dict)
    scratch: Path | None = None  # for a rehearsal: what would be written in the project goes to this folder

    @property
    def state(self) -> Path:
        """The folder for what is kept beside the journal."""
        return self.scratch or self.project / STATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What came of it: the state, and what is waited for when the run is not over."""

    state: LoopState
    waiting: Waiting | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of DESIGN §11; 6 while something is waited for."""
        code = exit_code(self.state)
        return 6 if code is None else code
