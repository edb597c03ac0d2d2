"""What a program that worked as an agent says of its attempt, and what its end comes to.

Rule: only the error channel decides an outcome: how the process ended, the end of its stderr, and the structured
fields of its result. Prose is a summary and never more. Money that makes no sense is unknown money.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf
from typing import Any, Final

from loopwright.agents import failures
from loopwright.agents.patterns import Rule
from loopwright.core.values import UNKNOWN_USAGE, Failed, Result, Usage, Worked
from loopwright.prompt import clean, fit
from loopwright.supervise import Exit

SUMMARY_BYTES: Final = 2048
OUTPUT_BYTES: Final = 1_000_000
ABSURD_USD: Final = 10_000.0
ABSURD_COUNT: Final = 10**12
NO_MESSAGE: Final = "no message"
_EVENTS: Final = 50  # lines from the end in which an error is looked for
# Our parts of the tokens by the names that Claude gives them in a `usage`.
CLAUDE: Final[Mapping[str, str]] = {
    "input_tokens": "input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "output_tokens": "output_tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a result line says, in our fields or Claude's; unknown is `None`.

    `error` is the text of an error it reports, with its status and type, else empty; `failure` what it means, where its
    fields say so themselves. `cut` names a
    subtype that says the work is incomplete, `bound` a bound it was given that ended it. `refused` are the tools it was not allowed to use, and did nothing
    else for it; `denied` is what it was not allowed while it worked, as it would be allowed.
    """

    summary: str = ""
    output: Any = None
    usage: Usage = UNKNOWN_USAGE
    session: str | None = None
    error: str = ""
    cut: str = ""
    bound: str = ""
    refused: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    needs_human: str | None = None
    claims_done: bool = False
    failure: failures.Failure | None = None

    @property
    def good(self) -> bool:
        """Whether it tells of complete work."""
        return not (self.error or self.cut or self.refused or self.needs_human or self.usage.turns == 0)


def outcome(
    end: Exit,
    said: Said | None,
    *,
    idle_s: float | None,
    now: datetime,
    why: str = "",
    prose: bool = True,
    own: tuple[Rule, ...] = (),
) -> Worked | Failed:
    """What an ended command comes to; `now`, in the local zone, is for clock times its errors name.

    `why` it was cut, where its reader had it ended; `prose`: its stdout is for people to read. `own`: the user's rules.
    """
    cut = end.ended in {"timeout", "idle", "cut"}
    bad = None if said is None else _reported(end, said, now, own)
    if bad is not None and not (cut and bad.kind == "unknown"):  # being ended makes some report an error
        return bad
    if cut:
        quiet = f"idle {idle_s:g} s" if end.ended == "idle" and idle_s is not None else why or None
        return Worked(result=_result(end, said, prose=prose), timed_out=True, degraded=quiet)
    ended_well = end.code == 0 or end.ended == "lingered"
    if not ended_well and (said is None or not said.good):
        return _unexplained(end, said, now, own, prose=prose)
    wrong = [word for word in (said.cut, said.bound) if word] if said is not None else []
    wrong += [] if ended_well else [failures.status(end.code, end.signal)]
    wrong += [end.log_problem] if end.log_problem else []
    wrong += [f"{end.survivors} of its processes could not be ended"] if end.survivors else []
    return Worked(result=_result(end, said, prose=prose), degraded="; ".join(wrong) or None)


def _reported(end: Exit, said: Said, now: datetime, own: tuple[Rule, ...]) -> Failed | None:
    """The failure the result line itself reports, whatever the exit code."""
    if said.error:
        failure = said.failure or failures.classify(said.error, now, own=own)
        if failure.kind == "unknown" and end.code:
            failure = failures.of_exit(
                end.code, end.signal, end.stderr.decode(errors="replace"), now, own=own
            )
        message = failure.message if failure.kind != "unknown" else f"it reports an error: {said.error}"
        return Failed(
            kind=failure.kind,
            message=message,
            retry_after_s=failure.retry_after_s,
            usage=said.usage,
            session=said.session,
            of_login=of_login(failure),
        )
    if said.refused:
        message = f"it was not allowed to use {', '.join(said.refused)}"
        return Failed(kind="blocked", message=message, usage=said.usage, session=said.session)
    if said.needs_human:
        return Failed(kind="blocked", message=said.needs_human, usage=said.usage, session=said.session)
    return None


def _unexplained(
    end: Exit, said: Said | None, now: datetime, own: tuple[Rule, ...], *, prose: bool
) -> Failed:
    """The failure of a command that ended badly and brought no good result."""
    stderr = end.stderr.decode(errors="replace")
    failure = failures.of_exit(end.code, end.signal, stderr, now, own=own)
    usage = said.usage if said else UNKNOWN_USAGE
    kind, message = failure.kind, failure.message
    if kind == "unknown" and usage.turns == 0:
        kind, message = "no_op", f"it reports no turns: nothing was done ({message})"
    elif prose and not stderr.strip() and (last := last_line(end.stdout)):
        message = f"{message}; its last line: {last}"
    session = said.session if said else None
    return Failed(
        kind=kind,
        message=message,
        retry_after_s=failure.retry_after_s,
        usage=usage,
        session=session,
        of_login=of_login(failure),
    )


def of_login(failure: failures.Failure) -> bool:
    """Whether a failure is of the login that the agent uses, which other runs use as well."""
    lost = failure.message.startswith(("authentication:", "billing:"))
    return failure.kind == "rate_limited" or (failure.kind == "permanent" and lost)


def _result(end: Exit, said: Said | None, *, prose: bool) -> Result:
    summary = said.summary if said else last_line(end.stdout) if prose else ""
    if said is None:
        return Result(summary, summary=summary)
    return Result(
        summary if said.output is None else said.output,
        summary=summary,
        usage=said.usage,
        session=said.session,
        claims_done=said.claims_done,
        denied=said.denied,
    )


def last_line(stdout: bytes) -> str:
    """The last line of output that says something, cleaned, at most 200 characters."""
    for line in reversed(stdout.decode(errors="replace").splitlines()):
        if text := clean(line[:4000]).strip():
            return text if len(text) <= 200 else text[:199] + "…"
    return ""


def last_result(end: Exit) -> Said | None:
    """What the last result line of the output says, `None` without one.

    One that only says that it failed has the words of the last error event before it.
    """
    said = read(end.result) if end.result is not None else None
    if said is None:
        for line in reversed(end.stdout.splitlines()):  # the last one that looked like it was another event
            if line.lstrip()[:1] == b"{" and b'"result"' in line and (said := read(line)) is not None:
                break
    if said is not None and said.error == NO_MESSAGE:
        return replace(said, error=error_event(end.stdout) or NO_MESSAGE)
    return said


def error_event(stdout: bytes) -> str:
    """The last error that is told as an event of its own: status, kind and message; empty without one."""
    for line in reversed(stdout.splitlines()[-_EVENTS:]):
        event = event_of(line) if b"rror" in line else None
        if event is None or not str(event["type"]).lower().endswith("error"):
            continue
        told = next((event[key] for key in ("data", "error") if isinstance(event.get(key), Mapping)), event)
        status = count_of(told.get("statusCode"))
        parts = [f"HTTP {status}"] if status else []
        parts += [text_of(told.get(key), 500) for key in ("errorType", "name", "code", "message")]
        return " · ".join(" ".join(part.split()) for part in parts if part)
    return ""


def read(line: bytes) -> Said | None:
    """What a line says if it is one JSON object with `"type": "result"`, else `None`."""
    found = event_of(line)
    return read_result(found) if found is not None and found["type"] == "result" else None


def event_of(line: bytes) -> Mapping[str, Any] | None:
    """An event, which is one JSON object with a `type`; `None` for anything else."""
    try:
        found = json.loads(line.decode(errors="replace"), strict=False, parse_int=_integer)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("type"), str) else None


def read_result(found: Mapping[str, Any]) -> Said:
    """What a result in our fields or Claude's says."""
    subtype = found.get("subtype")
    subtype = subtype if isinstance(subtype, str) and subtype.startswith("error") else ""
    failed = found.get("is_error") not in (None, False, "", "false")  # anything odd is an error, too
    failed = failed or found.get("status") in ("error", "failed") or bool(found.get("error"))
    failed = failed or found.get("exitCode") not in (None, 0)
    return Said(
        summary=text_of(found.get("summary")) or text_of(found.get("result")),
        output=_output(found.get("output")),
        usage=_usage(found),
        session=text_of(found.get("session_id"), 200) or None,
        error=_error(found, subtype) if failed else "",
        cut="" if failed else subtype,
        refused=_refused(found.get("permission_denials")),
        needs_human=_needs_human(found.get("needs_human")),
        claims_done=found.get("claims_done") is True,
    )


def _integer(digits: str) -> int | float:
    """A number as JSON writes it; more digits than Python reads must not cost the line they stand in."""
    return int(digits) if len(digits) <= 4000 else inf


def text_of(value: object, limit: int = SUMMARY_BYTES) -> str:
    """A text, cleaned and bounded; empty for what is none."""
    return fit(clean(value).strip(), limit) if isinstance(value, str) else ""


def _output(value: Any) -> Any:
    """`value` if it is strict JSON of a bearable size."""
    try:
        size = len(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
    except (ValueError, RecursionError):
        return None
    return value if size <= OUTPUT_BYTES else None


def _needs_human(value: object) -> str | None:
    if value is True:
        return "it asks for a person and does not say why"
    return text_of(value) or None


def _refused(value: object) -> tuple[str, ...]:
    """The tools named in a list of denials (or in one alone), each once, at most ten."""
    entries = value if isinstance(value, list) else [value] if value else []
    names = [entry.get("tool_name") if isinstance(entry, dict) else entry for entry in entries]
    return tuple(dict.fromkeys(text_of(name, 100) or "a tool" for name in names))[:10]


def _error(found: Mapping[str, Any], subtype: str) -> str:
    """The error a result reports as one line: status, type and its own words. Never empty."""
    status, errors, nested = (found.get(key) for key in ("api_error_status", "errors", "error"))
    parts = [f"HTTP {status}"] if isinstance(status, int) else []
    parts += [text_of(found.get(key), 100) for key in ("api_error_type", "terminal_reason")] + [subtype]
    parts += [text_of(nested.get("message") if isinstance(nested, dict) else nested)]
    parts += [text_of(item, 500) for item in errors[:5]] if isinstance(errors, list) else []
    if not subtype.startswith("error_max"):  # what was said before a limit cut it off is prose
        parts += [text_of(found.get("result")) or text_of(found.get("summary"))]
    return " · ".join(" ".join(part.split()) for part in parts if part) or NO_MESSAGE


def _usage(found: Mapping[str, Any]) -> Usage:
    """Dollars, tokens and turns as reported; what cannot be true is unknown."""
    cost = found.get("cost_usd") if "cost_usd" in found else found.get("total_cost_usd")
    turns = found.get("turns") if "turns" in found else found.get("num_turns")
    tokens = count_of(found.get("tokens")) if "tokens" in found else None
    parts = {} if "tokens" in found else parts_of(found.get("usage"), CLAUDE)
    return Usage(cost_usd=dollars(cost), tokens=tokens, turns=count_of(turns), **parts)


def parts_of(usage: object, names: Mapping[str, str]) -> dict[str, Any]:
    """Our parts of the tokens from a table that has them by these `names`; none where one of them cannot be true."""
    if not isinstance(usage, Mapping):
        return {}
    said = {ours: count_of(usage[theirs]) for ours, theirs in names.items() if usage.get(theirs) is not None}
    known = {name: count for name, count in said.items() if count is not None}
    return known if len(known) == len(said) else {}


def dollars(value: object) -> float | None:
    """A sum of money that may be true; `None` for a negative, an absurd one, or what is no number."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= ABSURD_USD
    return float(value) if good and isinstance(value, int | float) else None


def count_of(value: object) -> int | None:
    """A count that may be true, else `None`."""
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= ABSURD_COUNT
    return int(value) if good and isinstance(value, int) else None
