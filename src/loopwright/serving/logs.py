"""What a server says while it works: a line for each fact of a run that people who operate it want, and its own news.

Rule: one line for each thing said, whatever is in it: no line ends, no control characters, no secrets. What people,
agents and gates said is left out unless it is asked for. A library says nothing by itself: nobody hears the logger
`loopwright` before `log_to`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

from loopwright.core import events as ev
from loopwright.journal import Journal
from loopwright.ports import Follow
from loopwright.redact import PLAIN, Redactor
from loopwright.serving.spans import loop_name

NAME: Final = "loopwright"
LONGEST: Final = 4000  # characters of a message
_FIELDS: Final = ("run", "loop", "iteration")
# What moves a cursor, hides text or turns it around, and what some readers take for the end of a line.
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def logger() -> logging.Logger:
    """The logger of this program, which nobody hears before `log_to`."""
    found = logging.getLogger(NAME)
    if not found.handlers:
        found.addHandler(logging.NullHandler())
    return found


def log_to(stream: TextIO, form: Literal["json", "text"], redact: Redactor = PLAIN) -> Callable[[], None]:
    """Writes what is said to `stream`, a line each; what it gives ends that."""
    found, out = logger(), logging.StreamHandler(stream)
    out.setFormatter(Lines(form, redact))
    before = found.level, found.propagate
    found.addHandler(out)
    found.setLevel(logging.INFO)
    found.propagate = False

    def end() -> None:
        found.removeHandler(out)
        found.setLevel(before[0])
        found.propagate = before[1]

    return end


class Lines(logging.Formatter):
    """Makes one line of a record: a JSON object, or text."""

    def __init__(self, form: Literal["json", "text"], redact: Redactor = PLAIN) -> None:
        super().__init__()
        self._form = form
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        at = datetime.fromtimestamp(getattr(record, "at", record.created), UTC)
        said: dict[str, Any] = {
            "ts": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "log"),
        }
        for name in _FIELDS:
            if (value := getattr(record, name, None)) is not None:
                said[name] = self._safe(value) if isinstance(value, str) else value
        said["message"] = self._safe(record.getMessage())
        if record.exc_info:
            said["error"] = self._safe(self.formatException(record.exc_info))
        if self._form == "json":
            return json.dumps(said)
        where = " ".join(str(said[name]) for name in ("run",) if name in said)
        more = f" ({said['error']})" if "error" in said else ""
        return " ".join(filter(None, (said["ts"], f"{said['level']:7}", where, said["message"]))) + more

    def _safe(self, text: str) -> str:
        clean = self._redact.text(text.encode("utf-8", "replace").decode())
        short = clean if len(clean) <= LONGEST else clean[: LONGEST - 1] + "…"
        return _UNSAFE.sub(lambda found: f"\\x{ord(found[0]):02x}", short)


@dataclass(frozen=True, slots=True)
class _Say:
    """What to say of a fact; `content` is what somebody else said."""

    text: str
    level: int = logging.INFO
    content: str = ""


def following(*, content: bool = False) -> Callable[[Journal], Follow]:
    """What says the facts of each run that it is told to follow (`Ways.follow`)."""

    def begin(journal: Journal) -> Follow:
        out, iteration = logger(), journal.state.iteration

        def follow(at: datetime, event: ev.Event) -> None:
            nonlocal iteration  # the fold may be ahead of the facts that are told
            if isinstance(event, ev.AttemptStarted):
                iteration = event.iteration
            say = said_of(event)
            if say is None or not out.isEnabledFor(say.level):
                return
            text = f"{say.text}: {say.content}" if content and say.content else say.text
            extra = {
                "at": at.timestamp(),
                "event": type(event).__name__,
                "run": journal.run,
                "loop": loop_name(journal.state.spec),
                "iteration": iteration,
            }
            out.log(say.level, "%s", text, extra=extra)

        return follow

    return begin


def said_of(event: ev.Event) -> _Say | None:
    """What is said of a fact; `None` for those that are no news to who operates a server."""
    match event:
        case ev.RunStarted(origin=origin):
            return _Say(f"run started by {origin[:80]}")
        case ev.Claimed(epoch=epoch, host=host):
            return _Say(f"taken up on {host}" + (f", time {epoch}" if epoch > 1 else ""))
        case ev.AttemptStarted(iteration=iteration, attempt=attempt):
            return _Say(f"iteration {iteration}: attempt {attempt} started")
        case ev.AttemptSucceeded(seconds=seconds, usage=usage):
            cost = "cost unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
            return _Say(f"attempt ended after {seconds:g} s, {cost}", content=event.summary)
        case ev.AttemptFailed(kind=kind, seconds=seconds):
            return _Say(f"attempt failed after {seconds:g} s: {kind}", logging.WARNING, event.message)
        case ev.AttemptInterrupted(cause=cause):
            return _Say(
                f"attempt interrupted: {cause}", logging.WARNING if cause == "crash" else logging.INFO
            )
        case ev.WaitStarted(seconds=seconds):
            return _Say(f"waits for {seconds:g} s", content=event.why)
        case ev.GateScored(gate=gate, score=score):
            level = logging.WARNING if score.status == "error" else logging.INFO
            return _Say(f"gate {gate}: {score.status}, {score.value:.3f}", level, score.reason)
        case ev.Judged(verdict=verdict):
            return _Say(f"judged: score {verdict.score:.3f}, {'passed' if verdict.passed else 'not passed'}")
        case ev.IterationClosed(outcome=outcome):
            return _Say(f"iteration closed: {outcome}")
        case ev.RunFinished(phase=phase, reason=reason):
            level = logging.WARNING if phase == "failed" else logging.INFO
            return _Say(f"run ended {phase}: {reason}", level, event.explanation)
        case _:
            return _of_people(event)


def _of_people(event: ev.Event) -> _Say | None:
    match event:
        case ev.AlertRaised(kind=kind, action=action, critical=critical):
            level = logging.ERROR if critical else logging.WARNING
            return _Say(f"alert {kind}, {action}", level, event.message)
        case ev.ApprovalRequested(number=number, about=about):
            return _Say(f"a person is asked about {about}, request {number}", content=event.question)
        case ev.ApprovalDecided(answer=answer, by=by, channel=channel):
            who = f" by {by} ({channel})" if by else ""
            return _Say(f"request decided: {answer}{who}", content=event.note)
        case ev.Noticed(channel=channel, problem=problem):
            text = f"shown on {channel}" if problem is None else f"a request met a problem on {channel}"
            return _Say(text, logging.INFO if problem is None else logging.WARNING, problem or "")
        case ev.Delivered(to=to, problem=problem):
            text = f"delivered as {to}" if problem is None else f"could not be delivered as {to}"
            return _Say(text, logging.INFO if problem is None else logging.WARNING, problem or "")
        case ev.StopRequested() | ev.PauseRequested() | ev.Resumed() | ev.RunReopened():
            by = f" by {event.by}" if event.by else ""
            return _Say(f"{_ASKED[type(event)]}{by}")
        case ev.EvidenceChanged(action=action, paths=paths):
            return _Say(f"evidence changed ({len(paths)} files): {action}", logging.WARNING)
        case _:
            return None


_ASKED: Final[dict[type, str]] = {
    ev.StopRequested: "stop asked",
    ev.PauseRequested: "pause asked",
    ev.Resumed: "resumed",
    ev.RunReopened: "reopened",
}
