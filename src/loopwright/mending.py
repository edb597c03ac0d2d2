"""What a store keeps beside a journal, made anew where it is damaged or missing.

Rule: the journal alone is the truth; stores that keep nothing for people have nothing to mend.
"""

from __future__ import annotations

from collections.abc import Iterator

from loopwright.core.events import IterationClosed
from loopwright.core.state import LoopState
from loopwright.journal import commits, followed, kept_of
from loopwright.ports import Kept, Store


def mended(store: Store, run: str) -> list[str]:
    """What was made anew, a line each; `Corrupt` when the journal itself is damaged."""
    mend = getattr(store, "mend", None)
    done: list[str] = [] if mend is None else mend(run, lambda: _kept(store, run))
    return done


def _kept(store: Store, run: str) -> Iterator[tuple[int, Kept]]:
    """What belongs beside each commit."""
    state = LoopState()
    for commit in commits(store, run):
        closed = None
        for _, event, after in followed(store, run, state, commit):
            state = after
            closed = state if isinstance(event, IterationClosed) else closed
        yield commit.n, kept_of(state, closed)
