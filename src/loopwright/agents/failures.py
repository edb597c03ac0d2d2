"""What an agent's error text means: the kind of failure, and when to try again.

Rule: pure, and fed from the error channel only (structured fields, exit status, the END of stderr), never from what
an agent wrote as prose. The user's own rules come first; then the last line that means something decides, and within
a line the first row of the table (`patterns`) that fits.
"""

from __future__ import annotations

import re
import signal as signals
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from loopwright.agents import times
from loopwright.agents.patterns import ADVICE, LINE_CHARS, RULES, Rule
from loopwright.core.values import FailureKind
from loopwright.prompt import clean, fit

TAIL_CHARS: Final = 8192
TAIL_LINES: Final = 60
_CODE: Final = re.compile(  # a line of a program, as tracebacks quote them, says nothing about this run
    r"[^\w\"']*(?:\d+\W+)?(?:(?:raise|except|assert|import|def|class)\s|if\s.*:|from\s\S+\simport\b)"
)
_NOT_FOUND: Final = re.compile(r":? (?:command )?not found\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Failure:
    """What an error text means: the kind, the line that says so, and seconds not to try again before."""

    kind: FailureKind
    message: str
    retry_after_s: float | None = None


def classify(
    text: str, now: datetime, *, own: tuple[Rule, ...] = (), rules: tuple[Rule, ...] = RULES
) -> Failure:
    """What the end of an error text means at `now`; `unknown` with the end of the text where no rule fits.

    `own` are the user's rules (`patterns.own`): they count before every row of the table, whatever line
    they fit. `retry_after_s` is a lower bound, 0 to a year, and only there when waiting can help. A clock
    time without a zone is read in the zone of `now`; a `now` without a zone is UTC.
    """
    now = now if now.tzinfo else now.replace(tzinfo=UTC)
    said = clean(text[-TAIL_CHARS:]).replace('\\"', '"')  # a body inside a body
    lines = [line.strip() for line in said.splitlines() if line.strip()][-TAIL_LINES:]
    telling = [line for line in lines if not _CODE.match(line)]
    joined = " ".join(telling)
    tried = [*reversed(telling), *([joined] if len(telling) > 1 else [])]  # some tools wrap their messages
    for table in (own, rules, ADVICE if rules else ()):
        most = LINE_CHARS if table is own else TAIL_CHARS
        for line in tried:
            rule = next((rule for rule in table if rule.pattern.search(line[-most:])), None)
            if rule is None:
                continue
            if table is rules and rule.kind == "rate_limited" and (lasting := _lasting(telling, rules)):
                return lasting
            if rule.kind not in {"rate_limited", "transient"}:
                return Failure(rule.kind, f"{rule.why}: {fit(line, 500)}")
            seconds, note = times.wait(line, now)
            if seconds is None and not note:
                seconds, note = times.wait(joined, now)
            return Failure(rule.kind, f"{rule.why}: {fit(line, 500)}{note}", seconds)
    return Failure("unknown", fit("\n".join(lines), 2000))


def of_exit(
    code: int | None, signal: int | None, stderr: str, now: datetime, *, own: tuple[Rule, ...] = ()
) -> Failure:
    """What an exit status (or the signal that ended it) with the end of stderr means; the status comes first."""
    if signal is not None:
        memory = "; out of memory?" if signal == signals.SIGKILL else ""
        said = classify(stderr, now, rules=()).message
        return Failure("unknown", _with(f"{status(code, signal)}{memory}", said))
    failure = classify(stderr, now, own=own)
    last = (clean(stderr[-TAIL_CHARS:]).strip().splitlines() or [""])[-1].strip()
    if code == 127 or (failure.kind == "unknown" and _NOT_FOUND.search(last) and "sh:" in last):
        return Failure("permanent", _with(f"command not found (exit {code})", last))
    if code == 126:
        return Failure("permanent", _with("the command is not executable (exit 126)", last))
    if (
        failure.kind == "unknown"
        and code == 2
        and re.search(r"^usage:", stderr[-TAIL_CHARS:], re.IGNORECASE | re.MULTILINE)
    ):
        return Failure("permanent", _with("the command line (exit 2)", fit(last, 500)))
    if failure.kind == "unknown":
        inner = f", killed by {_signal_name(code - 128)} inside" if code and 128 < code < 160 else ""
        return Failure("unknown", _with(f"exit {code}{inner}", failure.message))
    return Failure(failure.kind, f"{failure.message} (exit {code})", failure.retry_after_s)


def status(code: int | None, signal: int | None) -> str:
    """An exit status in words: `exit 1`, `killed by SIGKILL`."""
    return f"exit {code}" if signal is None else f"killed by {_signal_name(signal)}"


def _with(what: str, detail: str) -> str:
    return f"{what}: {detail}" if detail else what


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _lasting(lines: list[str], rules: tuple[Rule, ...]) -> Failure | None:
    """The billing fault that a 429 stands beside: waiting does not fill an account."""
    for line in reversed(lines):
        for rule in rules:
            if rule.why == "billing" and rule.pattern.search(line):
                return Failure(rule.kind, f"{rule.why}: {fit(line, 500)}")
    return None
