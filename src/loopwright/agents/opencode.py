"""opencode, run without a terminal (`opencode run`), heard through its stream of JSON events.

Facts, seen with 1.18.33. The prompt is read from stdin, 1 MB of it whole. There is no last event: when it is done it
exits, with 1 after an `error` event, with 0 also where it was stopped at a tool. Each step tells its own tokens and
dollars in `step_finish` (`output` without `reasoning`, `input` without caches), so nothing is summed over a session;
an id may come twice. A model without a price costs 0. The request for a session's title is in no step: `--title` saves
it. Errors have a name, a status, headers and a body. It tries again itself, 5 times in 70 s or for as long as a
Retry-After asks, without a word in the stream; nothing lowers that, but its log on stderr tells of each ("stream
error"). A plug-in could tell more, but opencode waits for npm before it loads one. A session that is gone is told on
stderr. It uses 1.2 % of a CPU while it waits. Configuration is merged: the user's, the project's, then
OPENCODE_CONFIG_CONTENT. Of the rules of an agent the last that fits decides, and those of `agent.NAME.permission` come
after those of `permission`; a key that is there already keeps its place. Each command of a pipeline or a substitution
is looked up by itself. What is denied is an error of the tool and the work goes on; what would be asked is refused
without a person (no `--auto`), and that ends the run. A tool that is denied whole is not offered to the model.

Rule: as for every adapter (`_cli`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, Final

from loopwright.agents._cli import (
    LOOKING,
    Cli,
    Talk,
    Trust,
    agent,
    behind,
    brief,
    inside,
    login_of,
)
from loopwright.agents._said import Said, count_of, dollars, event_of, text_of
from loopwright.agents.failures import Failure, classify
from loopwright.agents.patterns import own
from loopwright.argv import words
from loopwright.core.values import NO_USAGE, PARTS, UNKNOWN_USAGE, Attempt, Usage
from loopwright.ports import Agent, Place
from loopwright.supervise import Exit

PROVIDERS: Final[Mapping[str, tuple[str, ...]]] = {  # what they log in with
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "google": ("GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "xai": ("XAI_API_KEY",),
    "opencode": ("OPENCODE_API_KEY",),
}
CONTENT: Final = "OPENCODE_CONFIG_CONTENT"
KEYS: Final = (
    *(key for keys in PROVIDERS.values() for key in keys),
    *(CONTENT, "OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR"),
)
GET: Final = "npm install -g opencode-ai, then log in: opencode auth login"
LEAST: Final = (1, 1)
QUIET: Final = dict.fromkeys(
    ("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_LSP_DOWNLOAD", "OPENCODE_DISABLE_TERMINAL_TITLE"), "1"
)
CONFIG: Final[Mapping[str, Any]] = {"autoupdate": False, "share": "disabled"}
LOGS: Final = ("--print-logs", "--log-level", "ERROR")
IDLE_CPU: Final = 0.03  # seen 0.012 while it waits for its model
BUILD: Final = "build"  # its own agent that may work
_LET: Final = ("glob", "grep", "list", "lsp", "skill", "edit", "todowrite", "todoread")
_READ: Final = {"*": "allow", "*.env": "deny", "*.env.*": "deny", "*.env.example": "allow"}
STOPPED: Final = ("The user has specified a rule", "The user rejected permission")
_GONE: Final = "Session not found"
_TROUBLE: Final = re.compile(
    r"^timestamp=(?P<time>\S+) level=ERROR .*message=\"stream error\".* small=false "
    r".*error\.error=\"(?P<what>(?:[^\"\\]|\\.)+)\"",
    re.MULTILINE,
)
_WORD: Final = re.compile(r"(?P<name>[A-Za-z_]+)(?:\((?P<pattern>.+)\))?", re.DOTALL)
MIDDLE: Final = "it ended without a last step"
_DENIED: Final = 20  # kinds of denied calls that are kept


def opencode(
    *,
    model: str | None = None,
    args: tuple[str, ...] = (),
    run: str | list[str] = "opencode",
    session: Talk = "fresh",
    trust: Trust = "edit",
    allow: tuple[str, ...] = (),
    env: tuple[str, ...] = (),
    errors: tuple[dict[str, Any], ...] = (),
) -> Agent:
    """An agent that is opencode.

    `model` is `provider/model`; `args` come behind its own options of `run`; `run` names another program or a launcher.
    `session = "continue"` goes on with the session of the attempt before. `trust = "edit"`: it may edit files here, look
    with git, and run the gates' commands; `allow` adds more (`bash(npm test)`, `webfetch`); `"full"` lets it do all that
    its own configuration does not deny. `errors` as for a command.
    """
    start, used = words(run), model or _after(args, "-m", "--model")
    free = trust == "full" or "--auto" in args

    def argv(attempt: Attempt, _place: Place) -> tuple[str, ...]:
        said = ["run", "--format", "json", *LOGS]
        said += [] if _after(args, "--title") else ["--title", "loopwright"]
        said += ["--model", model] if model else []
        if session == "continue" and attempt.session is not None:
            said += ["--session", attempt.session.id]
        if trust == "full" and "--auto" not in args:
            said += ["--auto"]
        if not free and not _after(args, "--agent"):
            said += ["--agent", BUILD]
        return (*said, *args)

    return agent(
        Cli(
            name="opencode",
            start=start,
            argv=argv,
            env=lambda place: environment(place, None if free else allow, _after(args, "--agent") or BUILD),
            events=lambda attempt: Heard(workdir=attempt.workdir or "", model=used),
            get=GET,
            fix="log in again (opencode auth login), or set the key of its provider",
            least=LEAST,
            login=partial(_login, start, (used or "").partition("/")[0]),
            keys=(*KEYS, *env),
            trust=trust,
            own=own(errors),
            last=last,
            idle_cpu=IDLE_CPU,
        )
    )


def asked(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    """The arguments of an `opencode run` command line that go to the adapter; `None` where no work is asked of it."""
    if not argv or argv[0] != "run":
        return None
    kept: list[str] = []
    valued = ""
    for word in argv[1:]:
        name = word.partition("=")[0]
        if not valued and (not word.startswith("-") or name in _OTHER):
            return None  # a prompt of its own, a server elsewhere, or no work
        if "--format" not in {valued, name}:
            kept.append(word)
        valued = word if not valued and word in _VALUED else ""
    return tuple(kept)


_OTHER: Final = frozenset(
    {"-h", "--help", "-v", "--version", "-i", "--interactive", "--attach", "--command", "--share"}
)
_VALUED: Final = frozenset(
    {
        *("--format", "-m", "--model", "-s", "--session", "--agent", "-f", "--file", "--title", "--dir"),
        *("--port", "--variant", "--log-level", "-p", "--password", "-u", "--username"),
    }
)


def environment(place: Place, allow: tuple[str, ...] | None, name: str = BUILD) -> Mapping[str, str]:
    """The variables it runs with; its agent of that name gets our rules, `None` for none."""
    rules = {} if allow is None else {"agent": {name: {"permission": permission(allow, place)}}}
    both = _merged(_configured(place.env.get(CONTENT)), {**CONFIG, **rules})
    return {**QUIET, CONTENT: json.dumps(both)}


def permission(allow: tuple[str, ...], place: Place) -> dict[str, Any]:
    """The rules of `trust = "edit"` in opencode's own words: nothing it does not name is allowed, or asked."""
    looking = [text for command in LOOKING for text in (command, f"{command} *")]
    writing = dict.fromkeys(("git * --ou*", "git *>*"), "deny")  # --output, and where its shell sends it
    gates = [shlex.join(command) for command in place.commands]
    rules: dict[str, Any] = {
        "*": "deny",
        "read": dict(_READ),
        **dict.fromkeys(_LET, "allow"),
        "external_directory": {"*": "deny"},
        "bash": {"*": "deny", **dict.fromkeys(looking, "allow"), **writing, **dict.fromkeys(gates, "allow")},
    }
    for word in allow:
        found = _WORD.fullmatch(word)
        name, pattern = (found["name"].lower(), found["pattern"]) if found else ("bash", word)
        if pattern is None:
            rules[name] = "allow"
        else:
            known = rules.get(name, "deny")
            known = dict(known) if isinstance(known, dict) else {"*": known}
            pattern = f"{pattern[:-2]}*" if pattern.endswith(":*") else pattern  # as Claude says it
            rules[name] = {**known, pattern: "allow"}
    return rules


def _after(args: tuple[str, ...], *names: str) -> str | None:
    """The value of an option."""
    for name, value in pairwise((*args, "")):
        if name in names:
            return value or None
        if name.partition("=")[0] in names:
            return name.partition("=")[2] or None
    return None


def _configured(content: str | None) -> dict[str, Any]:
    """What the user configures in the environment; nothing where it cannot be read."""
    try:
        found = json.loads(content or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _merged(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Both tables; where they differ, ours."""
    both = dict(theirs)
    for name, value in ours.items():
        known = both.pop(name, None)  # the last rule decides, so ours come last
        inner = isinstance(known, dict) and isinstance(value, Mapping)
        both[name] = _merged(known, value) if inner and isinstance(known, dict) else value
    return both


def _login(start: tuple[str, ...], provider: str, place: Place) -> str:
    name = behind("opencode", start)
    return login_of(f"{name}-{provider}" if provider else name, place, *PROVIDERS.get(provider, ()))


def last(said: Said | None, end: Exit, _place: Place) -> Said | None:
    """What it said, with what only its end and its stderr tell."""
    if said is not None:
        return said
    told = end.stderr.decode(errors="replace")
    if end.ended == "exited" and _GONE in told:
        gone = Failure("no_output", f"its session is gone: {_GONE}")
        return Said(error=gone.message, session="", failure=gone)
    if end.ended == "exited" and end.code == 0:
        return Said(error=MIDDLE, failure=Failure("no_output", MIDDLE))
    if end.ended in {"idle", "timeout"} and (trouble := _waits(told, end.stdout)):
        known = classify(trouble, datetime.now().astimezone())
        passing = Failure("transient", f"a passing fault: {trouble}") if known.kind == "unknown" else None
        return Said(error=trouble, failure=passing)
    return None


def _waits(told: str, stdout: bytes) -> str:
    """The error that its log tells of after its last event: it waited to try again when it was ended."""
    found = list(_TROUBLE.finditer(told))
    events = (event_of(line) for line in reversed(stdout.splitlines()))
    last = next((event.get("timestamp") for event in events if event is not None), 0)
    try:
        at = datetime.fromisoformat(found[-1]["time"]).timestamp() * 1000 if found else None
    except ValueError:
        return ""
    return text_of(found[-1]["what"]) if at is not None and isinstance(last, int) and at > last else ""


@dataclass(slots=True, kw_only=True)
class Heard:
    """What opencode's events tell of one attempt."""

    workdir: str = ""
    model: str | None = None
    session: str | None = None
    text: str = ""
    trouble: str = ""  # the error that stands, until something goes on
    reason: str = ""  # why its last step ended; empty while one goes on
    refused: bool = False  # a person would have been asked, and that ended it
    began: bool = False  # to answer: that may cost
    over: bool = False  # there is no last event: that it exits is its end
    steps: dict[str, Usage] = field(default_factory=dict)
    denied: dict[str, None] = field(default_factory=dict)

    @property
    def usage(self) -> Usage:
        """What its steps used so far, each counted once; the cost is unknown where that of one is."""
        steps = list(self.steps.values())
        if not steps:
            rejected = self.trouble and not self.began
            return replace(NO_USAGE if rejected else UNKNOWN_USAGE, model=self.model)
        costs = [step.cost_usd for step in steps if step.cost_usd is not None]
        parts: dict[str, Any] = {}
        if not any(step.tokens is None for step in steps):
            parts = {name: sum(getattr(step, name) for step in steps) for name in PARTS}
        cost = sum(costs) if len(costs) == len(steps) else None
        return Usage(cost_usd=cost, turns=len(steps), model=self.model, **parts)

    def hear(self, event: Mapping[str, Any]) -> str:
        """Takes one event; a line of news."""
        self.began = self.began or event["type"] != "error"
        if self.session is None:
            self.session = text_of(event.get("sessionID"), 200) or None
        part = event.get("part")
        part = part if isinstance(part, Mapping) else {}
        match event["type"]:
            case "step_start":
                self.reason = ""
                if not self.steps:
                    return f"opencode, {self.model or 'its own model'}"
            case "step_finish":
                self.reason, self.trouble = text_of(part.get("reason"), 100) or "stop", ""
                self.steps[str(part.get("id") or len(self.steps))] = _step(part)
            case "text":
                self.text = text_of(part.get("text")) or self.text
                return brief(self.text)
            case "tool_use":
                return self._tool(part)
            case "error":
                self.trouble = _error(event.get("error"))
                return brief(self.trouble)
        return ""

    def _tool(self, part: Mapping[str, Any]) -> str:
        name, state = brief(part.get("tool")) or "a tool", part.get("state")
        state = state if isinstance(state, Mapping) else {}
        given, error = state.get("input"), state.get("error")
        given = given if isinstance(given, Mapping) else {}
        if isinstance(error, str) and error.startswith(STOPPED):
            self.refused = self.refused or error.startswith(STOPPED[1])
            if len(self.denied) < _DENIED:
                self.denied[denial(name, given, error)] = None
            return f"not allowed: {name} {inside(_what(given), self.workdir)}".strip()
        return f"{name} {inside(_what(given), self.workdir)}".strip()

    def said(self) -> Said | None:
        """What it said at its end, or the trouble it was in; `None` where it was in the middle of its work."""
        ended = self.steps and self.reason not in {"", "tool-calls"}
        if not (ended or self.trouble or self.refused):
            return None
        blocked = self.reason == "content-filter"
        return Said(
            summary=self.text,
            usage=self.usage,
            session=self.session,
            error=self.trouble,
            cut=_SHORT.get(self.reason, ""),
            denied=tuple(self.denied),
            needs_human=f"the model refused: {self.text}" if blocked else None,
        )


_SHORT: Final = {"length": "its last answer was cut", "tool-calls": "it ended at a tool"}


def _step(part: Mapping[str, Any]) -> Usage:
    """What one step used; unknown where it cannot be true."""
    tokens, cost = part.get("tokens"), dollars(part.get("cost"))
    tokens = tokens if isinstance(tokens, Mapping) else {}
    cache = tokens.get("cache")
    cache = cache if isinstance(cache, Mapping) else {}
    given, thought = count_of(tokens.get("output")), count_of(tokens.get("reasoning", 0))
    parts: dict[str, Any] = {
        "input_tokens": count_of(tokens.get("input")),
        "cache_write_tokens": count_of(cache.get("write", 0)),
        "cache_read_tokens": count_of(cache.get("read", 0)),
        "output_tokens": None if given is None or thought is None else given + thought,
    }
    if None in parts.values():
        return replace(UNKNOWN_USAGE, cost_usd=cost or None)
    used = any(parts.values())
    return Usage(cost_usd=cost or (None if used else cost), **parts)  # a model without a price is not free


def _error(error: object) -> str:
    """An error as one line, with its status and when to try again, for the table of failures."""
    error = error if isinstance(error, Mapping) else {}
    data = error.get("data")
    data = data if isinstance(data, Mapping) else {}
    status, headers, body = (data.get(key) for key in ("statusCode", "responseHeaders", "responseBody"))
    headers = {str(k).lower(): v for k, v in headers.items()} if isinstance(headers, Mapping) else {}
    parts = [f"HTTP {status}"] if isinstance(status, int) else []
    parts += [text_of(error.get("name"), 100), text_of(data.get("message"))]
    parts += ["connection error"] if status is None and data.get("isRetryable") is True else []
    parts += [f"{name}: {text_of(headers[name], 100)}" for name in _HEADERS if name in headers]
    parts += [text_of(body, 500)] if isinstance(body, str) and body.lstrip().startswith("{") else []
    return " · ".join(" ".join(part.split()) for part in parts if part) or "no message"


_HEADERS: Final = ("retry-after", "retry-after-ms", "anthropic-ratelimit-unified-reset")


def _what(given: Mapping[str, Any]) -> object:
    return next((given[key] for key in ("command", "filePath", "pattern", "url", "path") if key in given), "")


def denial(name: str, given: Mapping[str, Any], error: str) -> str:
    """What was not allowed, as `allow` would let it."""
    path = given.get("filePath") or given.get("path")
    if '"external_directory"' in error:
        folder = PurePosixPath(path).parent if isinstance(path, str) and path.startswith("/") else None
        return f"external_directory({brief(str(folder / '*'))})" if folder else "external_directory"
    command = brief(given.get("command"))
    return f"{name}({command})" if command else name
