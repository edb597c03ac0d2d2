"""Claude Code, run without a terminal (`claude -p`), heard through its stream of JSON events.

Facts, seen with 2.1.197 and 2.1.332. The prompt is read from stdin. `result` is the last event; `is_error` decides,
not `subtype`, which says "success" beside API errors; exit codes say little (0 after SIGINT, on which it still tells
what it used, unless telemetry is off: then it ends too soon; 143 after TERM without a result). API errors are tried
again inside, eleven times in three minutes: CLAUDE_CODE_MAX_RETRIES bounds that. Each message comes in several events
with the same id, whose numbers grow. After `--resume` the session id stays; `usage` is of this call, `total_cost_usd`
of the whole session, `model_usage_since_last_result` of this call (not in 2.1.197). As root, bypassing permissions is
refused unless IS_SANDBOX=1. A message of a subagent has `parent_tool_use_id`. It looks with git unasked, and asks
before `git diff --output=FILE`: a rule `Bash(git diff:*)` would let that through. `apiKeySource` "none" means that a
subscription pays. No `--max-turns` is given: time and money bound it. `--max-budget-usd` ends it at the
message that was too much, before the tools that it calls.

Rule: as for every adapter (`_cli`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from loopwright.agents._cli import (
    Cli,
    Talk,
    Trust,
    agent,
    behind,
    brief,
    inside,
    login_of,
)
from loopwright.agents._said import CLAUDE, Said, count_of, dollars, parts_of, read_result, text_of
from loopwright.agents.failures import Failure
from loopwright.agents.patterns import own
from loopwright.argv import words
from loopwright.core.values import PARTS, UNKNOWN_USAGE, Attempt, Session, Usage
from loopwright.ports import Agent, Place

KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
GET: Final = "npm install -g @anthropic-ai/claude-code, then log in: claude"
LEAST: Final = (2, 0)
QUIET: Final = {
    "CLAUDE_CODE_MAX_RETRIES": "1",  # loopwright waits itself, longer and in sight
    "DISABLE_AUTOUPDATER": "1",
}
_PERMISSIONS: Final = frozenset({"--dangerously-skip-permissions", "--permission-mode"})
_MODELS: Final = {
    "input_tokens": "inputTokens",
    "cache_write_tokens": "cacheCreationInputTokens",
    "cache_read_tokens": "cacheReadInputTokens",
    "output_tokens": "outputTokens",
}
_DENIED: Final = 20  # kinds of denied calls that are kept
_MESSAGES: Final = 1000  # whose numbers may still grow: the events of one come close together
_RESULTS: Final = 1000  # of one attempt that are counted: it may go on by itself after one


def claude(
    *,
    model: str | None = None,
    args: tuple[str, ...] = (),
    run: str | list[str] = "claude",
    session: Talk = "fresh",
    trust: Trust = "edit",
    allow: tuple[str, ...] = (),
    env: tuple[str, ...] = (),
    errors: tuple[dict[str, Any], ...] = (),
) -> Agent:
    """An agent that is Claude Code.

    `args` come behind its own options; `run` names another program or a launcher. `session = "continue"` goes on with
    the session of the attempt before. `trust = "edit"`: it may edit files here, look with git, and run the gates'
    commands; `allow` adds more, in Claude's own words (`Bash(npm test)`); `"full"` skips its permissions. `errors` as for a command.
    """

    def argv(attempt: Attempt, place: Place) -> tuple[str, ...]:
        words = ["-p", "--output-format", "stream-json", "--verbose"]
        words += ["--model", model] if model else []
        if session == "continue" and attempt.session is not None:
            words += ["--resume", attempt.session.id]
        if attempt.left.budget_usd is not None:
            words += ["--max-budget-usd", f"{max(0.0001, attempt.left.budget_usd):.4f}"]
        return (*words, *_permissions(trust, allow, args, place), *args)

    def environ(place: Place) -> Mapping[str, str]:
        return {**QUIET, "IS_SANDBOX": "1"} if place.sandbox else QUIET

    start = words(run)
    return agent(
        Cli(
            name="claude",
            start=start,
            argv=argv,
            env=environ,
            events=lambda attempt: Heard(
                before=attempt.session if session == "continue" else None, workdir=attempt.workdir or ""
            ),
            get=GET,
            fix="log in again (claude, then /login), or set ANTHROPIC_API_KEY",
            least=LEAST,
            login=partial(_login, start),
            keys=(*KEYS, *env),
            trust=trust,
            interrupts=True,
            own=own(errors),
        )
    )


def asked(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    """The arguments of a `claude` command line that go to the adapter; `None` where no work is asked of it."""
    if argv and (argv[0] in _OTHER or not argv[0].startswith("-")):
        return None
    kept, skip = [], False
    for word in argv:
        name = word.partition("=")[0]
        if not skip and name not in _OURS:
            kept.append(word)
        skip = not skip and _OURS.get(name, 0) > 0 and "=" not in word
    return tuple(kept)


# Options that the adapter says itself, with the number of words that follow; and those that ask for no work.
_OURS: Final = {"-p": 0, "--print": 0, "--verbose": 0, "--output-format": 1, "--input-format": 1}
_OTHER: Final = frozenset({"-v", "--version", "-h", "--help"})


def _login(start: tuple[str, ...], place: Place) -> str:
    return login_of(behind("claude", start), place, *KEYS, "CLAUDE_CONFIG_DIR")


def _permissions(
    trust: Trust, allow: tuple[str, ...], args: tuple[str, ...], place: Place
) -> tuple[str, ...]:
    """What it may do, in its own options; nothing where the user's own arguments say it."""
    if any(word.partition("=")[0] in _PERMISSIONS for word in args):
        return ()
    if trust == "full":
        return ("--permission-mode", "bypassPermissions")
    gates = [f"Bash({shlex.join(command)})" for command in place.commands]
    tools = dict.fromkeys((*gates, *allow))
    return ("--permission-mode", "acceptEdits", *(("--allowedTools", *tools) if tools else ()))


@dataclass(slots=True, kw_only=True)
class Heard:
    """What Claude's events tell of one attempt. `before` is the session that it goes on with."""

    before: Session | None = None
    workdir: str = ""
    session: str | None = None
    model: str | None = None
    plan: bool = False
    over: bool = False
    messages: dict[str, dict[str, int]] = field(default_factory=dict)  # the last of them
    sums: dict[str, int] = field(default_factory=dict)  # of all: what it used is asked for at each event
    turns: int = 0
    limit: str = ""  # a limit that it told of, and when it is over
    later: float = 0.0  # what it waits before it tries again: where the server asks for more, that
    result: Mapping[str, Any] = field(default_factory=dict)
    since: dict[str, Mapping[str, Any]] = field(
        default_factory=dict
    )  # what each result tells since the last one

    @property
    def usage(self) -> Usage:
        """What the messages heard so far used: of each the largest numbers it came with."""
        if not any(self.sums.values()):
            return replace(UNKNOWN_USAGE, model=self.model, plan=self.plan)
        parts = {name: self.sums.get(name, 0) for name in PARTS}
        return Usage(model=self.model, plan=self.plan, turns=self.turns, **parts)

    def hear(self, event: Mapping[str, Any]) -> str:
        """Takes one event; a line of news."""
        match event["type"], event.get("subtype"):
            case "system", "init":
                self.session = text_of(event.get("session_id"), 200) or None
                self.model = text_of(event.get("model"), 200) or None
                self.plan = event.get("apiKeySource") == "none"
                return f"claude {brief(event.get('claude_code_version'))}, {self.model}"
            case "system", "api_retry":
                status, error = event.get("error_status"), brief(event.get("error"))
                delay = (count_of(event.get("retry_delay_ms")) or 0) / 1000
                self.later = delay if status == 429 else 0.0
                soon = f" in {delay:.0f} s" if delay else ""
                return f"trying again{soon} after {status or 'an error'} {error}".strip()
            case "rate_limit_event", _:
                self.limit = _limit(event.get("rate_limit_info"))
            case "assistant", _:
                return self._message(event)
            case "result", _:
                self.result, self.over = event, True
                since = event.get("model_usage_since_last_result")
                if isinstance(since, Mapping) and len(self.since) < _RESULTS:
                    self.since[text_of(event.get("uuid"), 100)] = since  # one that comes twice counts once
        return ""

    def _message(self, event: Mapping[str, Any]) -> str:
        message = event.get("message")
        if not isinstance(message, Mapping):
            return ""
        if said := text_of(message.get("id"), 200):
            self._count(said, parts_of(message.get("usage"), CLAUDE))
        content = message.get("content")
        news = [self._news(part) for part in content] if isinstance(content, list) else []
        return next(filter(None, reversed(news)), "")

    def _count(self, message: str, parts: Mapping[str, int]) -> None:
        """Counts what a message used beyond what was counted of it before."""
        if message not in self.messages:
            self.turns += 1
            if len(self.messages) >= _MESSAGES:
                self.messages.pop(next(iter(self.messages)))
        known = self.messages.setdefault(message, {})
        for name, count in parts.items():
            more = max(0, count - known.get(name, 0))
            known[name] = known.get(name, 0) + more
            self.sums[name] = self.sums.get(name, 0) + more

    def _news(self, part: object) -> str:
        if not isinstance(part, Mapping):
            return ""
        if part.get("type") == "text":
            return brief(part.get("text"))
        given = part.get("input")
        if part.get("type") != "tool_use" or not isinstance(given, Mapping):
            return ""
        what = given.get("command") or given.get("file_path") or given.get("pattern") or ""
        return f"{brief(part.get('name'))} {inside(what, self.workdir)}".strip()

    def said(self) -> Said | None:
        """What its result says; `None` without one."""
        if not self.over:
            return None
        said = read_result(self.result)
        bound, error = self.result.get("subtype"), said.error
        bound = bound if isinstance(bound, str) and bound.startswith("error_max") else ""
        gone = "No conversation found with session" in error
        refused = "the model refused" if self.result.get("stop_reason") == "refusal" else None
        return replace(
            said,
            summary=said.summary or said.error if bound else said.summary,
            session="" if gone else said.session or self.session,
            usage=self._used(said),
            error="" if bound else f"{error}{self.limit or self._later(error)}" if error else "",
            cut="" if bound else said.cut,
            bound=bound,
            refused=(),
            denied=tuple(dict.fromkeys(_denials(self.result.get("permission_denials"))))[:_DENIED],
            needs_human=refused and f"{refused}: {said.summary}",
            failure=Failure("no_output", f"its session is gone: {error}") if gone else None,
        )

    def _later(self, error: str) -> str:
        """How long the server asked it to wait, where the error itself does not say when a limit is over."""
        stated = "reset" in error.lower() or "try again" in error.lower()
        return f" · retry-after: {self.later:.0f}" if self.later and not stated else ""

    def _used(self, said: Said) -> Usage:
        """What this attempt used: of a session that went on, without what came before."""
        models = [m for since in self.since.values() for m in since.values() if isinstance(m, Mapping)]
        cost, turns = said.usage.cost_usd, said.usage.turns
        if models:
            costs = [dollars(m.get("costUSD")) for m in models]
            cost = None if None in costs else sum(c for c in costs if c is not None)
            parts = _summed([parts_of(m, _MODELS) for m in models])
        else:
            went_on = self.before is not None and self.before.id == self.session
            so_far = self.before.usage.cost_usd if went_on and self.before is not None else None
            if cost is not None and so_far is not None:
                cost = cost - so_far if cost >= so_far else None
            parts = {name: getattr(said.usage, name) for name in PARTS}
        if cost == 0 and any(parts.values()):
            cost = None  # a model without a price is not free
        return Usage(cost_usd=cost, turns=turns, model=self.model, plan=self.plan, **parts)


def _summed(parts: list[dict[str, int]]) -> dict[str, int]:
    return {name: sum(part.get(name, 0) for part in parts) for name in PARTS}


def _denials(listed: object) -> Iterator[str]:
    """Each call that was not allowed, as it would be allowed."""
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, Mapping):
            name, given = text_of(entry.get("tool_name"), 100) or "a tool", entry.get("tool_input")
            command = text_of(given.get("command"), 500) if isinstance(given, Mapping) else ""
            yield f"{name}({command})" if command else name


def _limit(info: object) -> str:
    """A subscription's limit that was reached, with the time it is over, for the line that tells of an error."""
    if not isinstance(info, Mapping) or info.get("status") != "rejected":
        return ""
    resets = count_of(info.get("resetsAt"))
    kind = brief(info.get("rateLimitType")).replace("_", " ")
    return f" · {kind} usage limit reached" + (f" · resetsAt: {resets}" if resets else "")
