"""The gate on a list of tasks in a Markdown file, which the agent works through and ticks.

Rule: a tick is a claim. It counts when the list is the one the user left (an item that is gone or reworded is not
done), when not more are ticked than one iteration may, and when something else was changed with it.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Iterator

from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import BadEvidence, ConfigError
from loopwright.evidence.checklist import Item, items
from loopwright.evidence.text import one_line, plain
from loopwright.ports import Gate, Measure, Past, Place, Seen
from loopwright.readers import WrongError
from loopwright.sites import inner_path

MAX_BYTES = 1_000_000
_SHOWN = 5  # items named in a reason


def checklist(*, file: str, per_iteration: int = 1) -> Gate:
    """A gate that passes when every item of the task list in `file` is ticked.

    Value: items ticked ÷ all, ticks that count only. An item that is gone or reworded since the user last left the
    list, more than `per_iteration` ticks in one iteration, and a tick without any other change are fails. No file, no
    items and a workspace without snapshots are errors. ConfigError for a path outside the workspace.
    """
    try:
        name = inner_path(file.removeprefix("./"))
    except WrongError as bad:
        raise WrongError(*(("file", what) for _, what in bad.faults)) from None
    if per_iteration < 1:
        raise ConfigError(f"checklist: per_iteration is {per_iteration}; it is 1 or more")

    async def check(seen: Seen, place: Place) -> Measure:
        past = await asyncio.to_thread(seen.past, _from_top(name, seen, place))
        if past is None:
            raise BadEvidence(
                "no_snapshots",
                f"what was done to {name} cannot be told without snapshots: they need git on PATH and a workspace "
                "that is not none",
            )
        if past.now is None:
            raise BadEvidence("missing_report", _missing(name, past, place))
        for text in (past.now, past.began, past.left):
            if text is not None and len(text) > MAX_BYTES:
                raise BadEvidence("too_large", f"{name} is larger than {MAX_BYTES:,} bytes")
        return _score(name, past, past.now, per_iteration, seen.mark)

    return Gate(rule=Rule(name="checklist"), check=check)


def _from_top(name: str, seen: Seen, place: Place) -> str:
    """The path from the workspace's top folder, for a gate that has a `cwd`."""
    return name if seen.workdir is None else os.path.relpath(place.root / name, seen.workdir)


def _missing(name: str, past: Past, place: Place) -> str:
    if (place.root / name).is_file():
        return (
            f"{name} is in no snapshot, so nobody can tell what was changed in it: take it out of .gitignore"
        )
    return f"there is no {name}" + ("; put it back" if past.left is not None else "")


def _score(name: str, past: Past, text: bytes, per_iteration: int, mark: float | None) -> Score:
    now, left, began = items(text), items(past.left or b""), items(past.began or b"")
    listed, wanted = _texts(now), _texts(left)
    if not listed and not wanted:
        raise BadEvidence("no_items", f"{name} has no items: one is written '- [ ] text'")
    gone = wanted - listed
    ticked, users, before = _texts(i for i in now if i.ticked), _ticked(left), _ticked(began)
    known = (users | before) & ticked
    accepted = int(mark or 0) + ((users - before) & ticked).total()
    accepted = max((users & ticked).total(), min(known.total(), accepted))
    may = per_iteration if past.elsewhere else 0
    early = ticked.total() - accepted > may
    new = (ticked - known) or (ticked - users)
    counted = accepted + may if early else ticked.total()
    total = (listed | wanted).total()
    open_ = [item.text for item in now if not item.ticked]
    done = not (gone or early or open_)
    told = [
        *([f"gone or reworded: {_named(gone)}: put it back as it was"] if gone else []),
        *(_too_early(new, may, elsewhere=past.elsewhere) if early else []),
        f"{counted} of {total} items done" + (f"; next: {_named(open_[:per_iteration])}" if open_ else ""),
    ]
    failing = [*(f"gone: {text}" for text in gone), *(f"not done: {text}" for text in new if early), *open_]
    return Score(
        counted / total,
        "\n".join(told),
        status="pass" if done else "fail",
        raw=float(counted),
        unit="items",
        direction="max",
        graded=True,
        failing=tuple(one_line(plain(text), 200) for text in dict.fromkeys(failing)),
        evidence={"file": name, "items": total, "ticked": ticked.total(), "gone": gone.total()},
    )


def _too_early(new: Iterable[str], may: int, *, elsewhere: bool) -> Iterator[str]:
    if not elsewhere:
        yield f"ticked without a change elsewhere: {_named(new)}: do the work, or untick it"
    else:
        yield f"ticked at once: {_named(new)}: {may} in an iteration may be, so untick the others"


def _texts(found: Iterable[Item]) -> Counter[str]:
    return Counter(item.text for item in found)


def _ticked(found: Iterable[Item]) -> Counter[str]:
    return _texts(item for item in found if item.ticked)


def _named(texts: Iterable[str]) -> str:
    names = [repr(one_line(plain(text), 100)) for text in texts]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
