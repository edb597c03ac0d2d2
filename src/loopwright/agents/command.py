"""An agent that is a command: it reads the prompt, works, and may say how it went in one last JSON line.

Rule: only the error channel decides an outcome: how the process ended, the end of its stderr, and the structured
fields of its result line. Prose on stdout is a summary and never more. Money that makes no sense is unknown money.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final, Literal

from loopwright import prompt as prompts
from loopwright.agents import failures, patterns
from loopwright.agents.patterns import Rule
from loopwright.argv import words
from loopwright.core.values import UNKNOWN_USAGE, Attempt, Failed, Result, Usage, Worked
from loopwright.errors import ConfigError, NotStartable
from loopwright.ports import Agent, Place
from loopwright.prompt import clean, fit
from loopwright.supervise import Exit, Process, supervise

Prompt = Literal["stdin", "file", "arg"]

SUMMARY_BYTES: Final = 2048
OUTPUT_BYTES: Final = 1_000_000
ARGUMENT_BYTES: Final = 128 << 10  # Linux takes no longer argument (MAX_ARG_STRLEN)
ABSURD_USD: Final = 10_000.0
ABSURD_COUNT: Final = 10**12
TEXT: Final = "{prompt}"
FILE: Final = "{prompt_file}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a result line says, in our fields or Claude's; unknown is `None`.

    `error` is the text of an error it reports, with its status and type, else empty. `cut` names a
    subtype that says the work is incomplete. `refused` are the tools it was not allowed to use.
    """

    summary: str = ""
    output: Any = None
    usage: Usage = UNKNOWN_USAGE
    session: str | None = None
    error: str = ""
    cut: str = ""
    refused: tuple[str, ...] = ()
    needs_human: str | None = None
    claims_done: bool = False

    @property
    def good(self) -> bool:
        """Whether it tells of complete work."""
        return not (self.error or self.cut or self.refused or self.needs_human or self.usage.turns == 0)


def command(
    *,
    run: str | list[str],
    prompt: Prompt = "stdin",
    result: Literal["auto", "none"] = "auto",
    linger: float = 10.0,
    env: tuple[str, ...] = (),
    errors: tuple[dict[str, Any], ...] = (),
) -> Agent:
    """An agent that is this command; never a shell.

    `prompt`: how it gets the prompt: on stdin, in a file, or as its last argument (where the word
    `{prompt}` stands instead, if it does). `{prompt_file}` in a word is the file's path in every
    mode; LOOPWRIGHT_PROMPT_FILE always names it. `result = "auto"` reads the last line of stdout
    that is a JSON object with `"type": "result"`; after it the process has `linger` seconds to end.
    `env` names variables it may see. `errors` are rows of `{kind, pattern}` that say what its error texts mean, before
    the table of `patterns`. ConfigError for what is no command or no such row.
    """
    argv = words(run)
    if not isfinite(linger) or linger < 0:
        raise ConfigError(f"linger is {linger!r}: it is a length of time, such as 10s")
    if prompt not in {"stdin", "file", "arg"} or result not in {"auto", "none"}:
        raise ConfigError(
            f'prompt is "stdin", "file" or "arg" and result "auto" or "none", not {prompt}, {result}'
        )
    reading, own = result == "auto", patterns.own(errors)
    return Agent(
        name=Path(argv[0]).name,
        call=partial(_call, argv, prompt, linger if reading else None, own),
        probe=partial(probe, argv),
        keys=tuple(env),
    )


def probe(argv: tuple[str, ...], place: Place) -> str:
    """The command as it will run, its program resolved; NotStartable names the nearest fix."""
    program = argv[0]
    path = place.env.get("PATH", os.defpath)
    found = place.root / program if "/" in program else shutil.which(program, path=path)
    if found is None:
        raise NotStartable(f"there is no program {program!r} on PATH: {_nearest(program, path, place.root)}")
    if not Path(found).is_file():
        raise NotStartable(f"there is no program {found}: a path with a / starts at {place.root}")
    if not os.access(found, os.X_OK):
        raise NotStartable(f"{found} is not executable: chmod +x it, or name its interpreter before it")
    return shlex.join((str(found), *argv[1:]))


def _nearest(program: str, path: str, root: Path) -> str:
    if (root / program).is_file():
        return f"write ./{program} for the file in {root}"
    names: set[str] = set()
    for folder in path.split(os.pathsep):
        try:
            names.update(os.listdir(folder or "."))  # noqa: PTH208 - names only, and PATH is long
        except OSError:
            continue
    near = difflib.get_close_matches(program, sorted(names), n=1)
    return f"did you mean {near[0]!r}?" if near else "install it, or write its path"


async def _call(
    argv: tuple[str, ...],
    way: Prompt,
    linger_s: float | None,
    own: tuple[Rule, ...],
    attempt: Attempt,
    place: Place,
) -> Worked | Failed:
    """One attempt: write the prompt down, run the command, read how it went."""
    text = place.redact.text(prompts.prompt(attempt))
    feedback = place.redact.text(prompts.feedback(attempt))
    try:
        files = _write(text, feedback, place.artifacts.absolute())
    except OSError as error:
        return Failed(
            kind="permanent", message=f"the prompt cannot be written to {place.artifacts}: {error.strerror}"
        )
    full = _arguments(argv, way, text, str(files["LOOPWRIGHT_PROMPT_FILE"]))
    if any(len(os.fsencode(word)) >= ARGUMENT_BYTES for word in full):
        return Failed(
            kind="permanent",
            message=f'the prompt is too long for an argument ({len(text):,} characters): use prompt = "file" or "stdin"',
        )
    process = Process(
        argv=(*place.sandbox, *full),
        cwd=place.root,
        env={**place.env, **{name: str(path) for name, path in files.items()}},
        log=place.artifacts / "agent.log",
        timeout_s=min(place.timeout_s, attempt.deadline_s),
        stdin=text.encode() if way == "stdin" else b"",
        idle_s=place.idle_s,
        grace_s=place.grace_s,
        linger_s=linger_s,
        finished=None if linger_s is None else _finished,
        active=place.active,
        redact=place.redact,
    )
    try:
        end = await supervise(process, observe=place.hear)
    except NotStartable as error:
        return Failed(kind="permanent", message=str(error))
    said = None if linger_s is None else last_result(end)
    return outcome(end, said, idle_s=place.idle_s, now=datetime.now().astimezone(), own=own)


def _write(text: str, feedback: str, folder: Path) -> dict[str, Path]:
    """The prompt and the feedback as new files only we may read; the prompt's age is the attempt's."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "LOOPWRIGHT_PROMPT_FILE": folder / "prompt.md",
        "LOOPWRIGHT_FEEDBACK_FILE": folder / "feedback.md",
    }
    for path, content in zip(files.values(), (text, feedback), strict=True):
        path.unlink(missing_ok=True)  # it may be a link the last attempt left there
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
    return files


def _arguments(argv: tuple[str, ...], way: Prompt, text: str, path: str) -> tuple[str, ...]:
    """The words as they are run. The text is one whole word, so that nothing in it is read as an option."""
    full = tuple(text if way == "arg" and word == TEXT else word.replace(FILE, path) for word in argv)
    placed = any(word == TEXT or FILE in word for word in argv)
    return full if way != "arg" or placed else (*full, text)


def outcome(
    end: Exit, said: Said | None, *, idle_s: float | None, now: datetime, own: tuple[Rule, ...] = ()
) -> Worked | Failed:
    """What an ended command comes to; `now`, in the local zone, is for clock times its errors name; `own`: user's rules."""
    cut = end.ended in {"timeout", "idle"}
    bad = None if said is None else _reported(end, said, now, own)
    if bad is not None and not (cut and bad.kind == "unknown"):  # being ended makes some report an error
        return bad
    if cut:
        quiet = f"idle {idle_s:g} s" if end.ended == "idle" and idle_s is not None else None
        return Worked(result=_result(end, said), timed_out=True, degraded=quiet)
    ended_well = end.code == 0 or end.ended == "lingered"
    if not ended_well and (said is None or not said.good):
        return _unexplained(end, said, now, own)
    wrong = [said.cut] if said is not None and said.cut else []
    wrong += [] if ended_well else [failures.status(end.code, end.signal)]
    wrong += [end.log_problem] if end.log_problem else []
    wrong += [f"{end.survivors} of its processes could not be ended"] if end.survivors else []
    return Worked(result=_result(end, said), degraded="; ".join(wrong) or None)


def _reported(end: Exit, said: Said, now: datetime, own: tuple[Rule, ...]) -> Failed | None:
    """The failure the result line itself reports, whatever the exit code."""
    if said.error:
        failure = failures.classify(said.error, now, own=own)
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
        )
    if said.refused:
        message = f"it was not allowed to use {', '.join(said.refused)}"
        return Failed(kind="blocked", message=message, usage=said.usage, session=said.session)
    if said.needs_human:
        return Failed(kind="blocked", message=said.needs_human, usage=said.usage, session=said.session)
    return None


def _unexplained(end: Exit, said: Said | None, now: datetime, own: tuple[Rule, ...]) -> Failed:
    """The failure of a command that ended badly and brought no good result."""
    stderr = end.stderr.decode(errors="replace")
    failure = failures.of_exit(end.code, end.signal, stderr, now, own=own)
    usage = said.usage if said else UNKNOWN_USAGE
    kind, message = failure.kind, failure.message
    if kind == "unknown" and usage.turns == 0:
        kind, message = "no_op", f"it reports no turns: nothing was done ({message})"
    elif not stderr.strip() and (last := last_line(end.stdout)):
        message = f"{message}; its last line: {last}"
    session = said.session if said else None
    return Failed(
        kind=kind, message=message, retry_after_s=failure.retry_after_s, usage=usage, session=session
    )


def _result(end: Exit, said: Said | None) -> Result:
    summary = (said.summary if said else "") or ("" if said else last_line(end.stdout))
    if said is None:
        return Result(summary, summary=summary)
    return Result(
        summary if said.output is None else said.output,
        summary=summary,
        usage=said.usage,
        session=said.session,
        claims_done=said.claims_done,
    )


def last_line(stdout: bytes) -> str:
    """The last line of output that says something, cleaned, at most 200 characters."""
    for line in reversed(stdout.decode(errors="replace").splitlines()):
        if text := clean(line[:4000]).strip():
            return text if len(text) <= 200 else text[:199] + "…"
    return ""


def last_result(end: Exit) -> Said | None:
    """What the last result line of the output says, `None` without one."""
    if end.result is not None and (said := read(end.result)) is not None:
        return said
    for line in reversed(end.stdout.splitlines()):  # the last one that looked like it was another event
        if line.lstrip()[:1] == b"{" and b'"result"' in line and (said := read(line)) is not None:
            return said
    return None


def _finished(line: bytes) -> bool:
    return b'"result"' in line and read(line) is not None


def read(line: bytes) -> Said | None:
    """What a line says if it is one JSON object with `"type": "result"`, else `None`."""
    try:
        found = json.loads(line.decode(errors="replace"), strict=False, parse_int=_integer)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("type") != "result":
        return None
    subtype = found.get("subtype")
    subtype = subtype if isinstance(subtype, str) and subtype.startswith("error") else ""
    failed = found.get("is_error") not in (None, False, "", "false")  # anything odd is an error, too
    failed = failed or found.get("status") in ("error", "failed") or bool(found.get("error"))
    return Said(
        summary=_string(found.get("summary")) or _string(found.get("result")),
        output=_output(found.get("output")),
        usage=_usage(found),
        session=_string(found.get("session_id"), 200) or None,
        error=_error(found, subtype) if failed else "",
        cut="" if failed else subtype,
        refused=_refused(found.get("permission_denials")),
        needs_human=_needs_human(found.get("needs_human")),
        claims_done=found.get("claims_done") is True,
    )


def _integer(digits: str) -> int | float:
    """A number as JSON writes it; more digits than Python reads must not cost the line they stand in."""
    return int(digits) if len(digits) <= 4000 else inf


def _string(value: object, limit: int = SUMMARY_BYTES) -> str:
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
    return _string(value) or None


def _refused(value: object) -> tuple[str, ...]:
    """The tools named in a list of denials (or in one alone), each once, at most ten."""
    entries = value if isinstance(value, list) else [value] if value else []
    names = [entry.get("tool_name") if isinstance(entry, dict) else entry for entry in entries]
    return tuple(dict.fromkeys(_string(name, 100) or "a tool" for name in names))[:10]


def _error(found: Mapping[str, Any], subtype: str) -> str:
    """The error a result reports as one line: status, type and its own words. Never empty."""
    status, errors, nested = (found.get(key) for key in ("api_error_status", "errors", "error"))
    parts = [f"HTTP {status}"] if isinstance(status, int) else []
    parts += [_string(found.get(key), 100) for key in ("api_error_type", "terminal_reason")] + [subtype]
    parts += [_string(nested.get("message") if isinstance(nested, dict) else nested)]
    parts += [_string(item, 500) for item in errors[:5]] if isinstance(errors, list) else []
    if not subtype.startswith("error_max"):  # what was said before a limit cut it off is prose
        parts += [_string(found.get("result")) or _string(found.get("summary"))]
    return " · ".join(" ".join(part.split()) for part in parts if part) or "no message"


def _usage(found: Mapping[str, Any]) -> Usage:
    """Dollars, tokens and turns as reported; what cannot be true is unknown."""
    cost = found.get("cost_usd") if "cost_usd" in found else found.get("total_cost_usd")
    good = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost <= ABSURD_USD
    turns = found.get("turns") if "turns" in found else found.get("num_turns")
    return Usage(
        cost_usd=float(cost) if good and cost is not None else None,
        tokens=_tokens(found),
        turns=_count(turns),
    )


def _count(value: object) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= ABSURD_COUNT
    return int(value) if good and isinstance(value, int) else None


def _tokens(found: Mapping[str, Any]) -> int | None:
    """Our `tokens`, else the sum of Claude's four (its input excludes what the cache held)."""
    usage = found.get("usage")
    if "tokens" in found or not isinstance(usage, dict):
        return _count(found.get("tokens"))
    names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    counts = [_count(usage[name]) for name in names if usage.get(name) is not None]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
