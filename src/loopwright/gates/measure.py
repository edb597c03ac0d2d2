"""`measure`: whatever a gate does becomes one score.

Rule: nothing a gate returns or raises gets out of here as anything but a `Score`, and nothing but a number that
was measured becomes a number.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import replace
from math import isfinite
from types import TracebackType

from loopwright.core import replacing
from loopwright.core.values import Score
from loopwright.errors import BadEvidence, NotStartable
from loopwright.evidence.text import clip, plain, steady
from loopwright.ports import Gate, Place, Seen
from loopwright.redact import PLAIN, Redactor

TRACE = 2500  # characters of a traceback in a reason
FRAMES = 6
REASON = 4000  # characters of a reason that are kept
ITEM, ITEMS = 500, 5000  # characters of a failing item, and how many of them
EVIDENCE = 1_000_000
# Checked once; each score has evidence of its own, for that is a dictionary.
_PASSED = Score(1.0, status="pass")
_FAILED = Score(0.0, "returned False", status="fail")


async def measure(gate: Gate, seen: Seen, place: Place) -> Score:
    """The gate's score, with or without a status; an `error` for whatever goes wrong, a bug of the gate included.

    Its cause is *tool* when the gate could not run (`NotStartable`, an exception), *evidence* when it ran and
    proves nothing (`BadEvidence`, whose code is in the evidence, or a value that is no score).
    """
    try:
        return as_score(await gate.check(seen, place), place.redact)
    except NotStartable as error:
        return Score(0.0, plain(str(error)), status="error", cause="tool")
    except BadEvidence as error:
        return unproven(error)
    except Exception as error:  # noqa: BLE001 - a gate may be anybody's code, and it must not end the run
        said = told(error, redact=place.redact)
        return Score(0.0, f"the gate broke: {said}", status="error", cause="tool")


def as_score(value: object, redact: Redactor = PLAIN) -> Score:
    """What a gate returned, as a score; BadEvidence (`no_score`, `not_finite`, `out_of_range`) for what is none.

    True and False pass and fail; a number from 0 to 1 is left to the gate's `min`.
    """
    if isinstance(value, Score):
        if not (value.reason or value.failing or value.evidence or value.status == "error"):
            return value  # nothing in it that may have to be cut or cleaned
        cause = "evidence" if value.status == "error" and value.cause is None else value.cause
        return replace(_kept(value, redact), cause=cause)
    if isinstance(value, bool):
        return replacing.replace(_PASSED if value else _FAILED, evidence={})
    if not isinstance(value, (int, float)):
        kind = type(value)
        name = (
            kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        )
        raise BadEvidence("no_score", f"returned {name}; a gate returns True or False, 0 to 1, or a Score")
    if isinstance(value, float) and not isfinite(value):
        raise BadEvidence("not_finite", f"returned {value}, not a finite number")
    if not 0 <= value <= 1:
        raise BadEvidence(
            "out_of_range", f"returned {value}; a score is 0 to 1, other units go into Score.raw"
        )
    return Score(float(value))


def _kept(score: Score, redact: Redactor) -> Score:
    """The score as it can be written down; BadEvidence `no_score` for evidence that is not JSON."""
    try:
        text = json.dumps(dict(score.evidence), allow_nan=False, ensure_ascii=False)
        evidence = json.loads(text.encode(errors="replace"))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadEvidence("no_score", f"returned a Score whose evidence is not JSON: {error}") from None
    if len(text) > EVIDENCE:
        raise BadEvidence("no_score", f"returned a Score with {len(text):,} characters of evidence")
    failing = tuple(clip(plain(redact.text(item)), ITEM) for item in tuple(score.failing)[:ITEMS])
    reason = clip(plain(redact.text(score.reason)), REASON)
    return replace(score, reason=reason, failing=failing, evidence=evidence)


def unproven(error: BadEvidence) -> Score:
    """The score of a gate that ran and proves nothing."""
    return Score(0.0, plain(str(error)), status="error", cause="evidence", evidence={"code": error.code})


def told(error: BaseException, *, without: str = __file__, redact: Redactor = PLAIN) -> str:
    """An exception and the end of its traceback, without our own frames (those of the file `without`)."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in {__file__, without}:
        trace = trace.tb_next
    try:
        found = traceback.TracebackException(type(error), error, trace, limit=-FRAMES)
        said = clip(redact.text("".join(found.format_exception_only()).strip()), TRACE // 2)
        where = redact.text("".join(found.stack.format()).rstrip())
    except Exception:  # noqa: BLE001 - an exception whose own text raises
        return type(error).__name__
    return clip(steady(plain(f"{said}\n{where}" if where else said)), TRACE)
