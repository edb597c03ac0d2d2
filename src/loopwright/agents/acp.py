"""Any agent that speaks the Agent Client Protocol (`opencode acp`, `gemini --acp`), through the bridge beside this file.

Facts, seen with opencode 1.18.33, and recorded of Gemini CLI 0.61, Qwen Code 0.15.10 and Copilot 1.0.102. The protocol
is JSON-RPC on stdin and stdout (`_acp`). The answer to a prompt is its end: `stopReason`, and tokens where the agent
tells them: Copilot its `usage`, opencode that of its last step alone, Gemini in `_meta.quota`, Qwen in the `_meta` of
message chunks. `usage_update.cost` is of the whole session and comes at the end. A session that is gone is an internal
error like any other. An agent asks for permission when its own configuration says so, and opencode as it is installed
never asks: it is given the rules of the adapter `opencode` instead. A refusal ends the turn of opencode. Its errors
have lost their status.

Rule: as for every adapter (`_cli`).
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from loopwright.agents import opencode
from loopwright.agents._cli import (
    LOOKING,
    Cli,
    Talk,
    Trust,
    agent,
    brief,
    inside,
    login_of,
    named,
)
from loopwright.agents._said import Said, count_of, dollars, parts_of, text_of
from loopwright.agents.failures import Failure
from loopwright.agents.patterns import own
from loopwright.argv import words
from loopwright.core.values import PARTS, UNKNOWN_USAGE, Attempt, Session, Usage
from loopwright.errors import ConfigError
from loopwright.ports import Agent, Place

BRIDGE: Final = (sys.executable, "-I", str(Path(__file__).with_name("_acp.py")))
KEYS: Final = (*opencode.KEYS, "GOOGLE_API_KEY", "GH_TOKEN", "GITHUB_TOKEN")
LAST_STEP: Final = frozenset({"opencode"})  # agents whose tokens are of their last step alone
_KINDS: Final[Mapping[str, str]] = {
    "bash": "execute",
    "shell": "execute",
    "write": "edit",
    "webfetch": "fetch",
}
_WORD: Final = re.compile(r"(?P<name>[A-Za-z_]+)(?:\((?P<pattern>.+)\))?", re.DOTALL)
_COUNTS: Final = {
    "input_tokens": "inputTokens",
    "cache_write_tokens": "cachedWriteTokens",
    "cache_read_tokens": "cachedReadTokens",
    "output_tokens": "outputTokens",
}
_QUOTA: Final = {"input_tokens": "input_tokens", "output_tokens": "output_tokens"}
_DENIED: Final = 20  # kinds of denied calls that are kept
AUTHENTICATE: Final = -32000


def acp(
    *,
    model: str | None = None,
    args: tuple[str, ...] = (),
    run: str | list[str] | None = None,
    session: Talk = "fresh",
    trust: Trust = "edit",
    allow: tuple[str, ...] = (),
    env: tuple[str, ...] = (),
    errors: tuple[dict[str, Any], ...] = (),
) -> Agent:
    """An agent that speaks the Agent Client Protocol.

    `run` is its command line (`gemini --acp`), `args` come behind it; `acp:COMMAND LINE` is short for `run`. `model` is
    one that the agent offers. `session = "continue"` goes on with the session of the attempt before, where the agent
    can. `trust = "edit"`: where the agent asks, it may edit files here, look with git, and run the gates' commands;
    `allow` adds kinds of tools (`fetch`) and commands (`execute(npm test)`); `"full"`: whatever it asks for. `errors` as for a command. Raises
    `ConfigError` without a command line.
    """
    if run is None:
        run, model = model, None
    if not run:
        raise ConfigError('acp: which agent? say run = "opencode acp" or "gemini --acp"')
    start = words(run)
    known = named(start) == "opencode"  # whose rules the adapter knows

    def argv(attempt: Attempt, place: Place) -> tuple[str, ...]:
        before = attempt.session.id if session == "continue" and attempt.session is not None else None
        rules = {"free": True} if trust == "full" else {"allow": allowed(allow, place), "looking": LOOKING}
        logs = opencode.LOGS if known else ()
        return (*logs, *args, json.dumps({"model": model, "session": before, **rules}))

    def environ(place: Place) -> Mapping[str, str]:
        return opencode.environment(place, None if trust == "full" else allow) if known else {}

    return agent(
        Cli(
            name="acp",
            before=BRIDGE,
            start=start,
            argv=argv,
            env=environ,
            events=lambda attempt: Heard(
                before=attempt.session if session == "continue" else None,
                workdir=attempt.workdir or "",
                model=model,
            ),
            get="install it as its own pages say",
            fix=f"log in again with {start[0]}, or set the key of its provider",
            least=(0,),
            login=partial(login_of, "-".join(Path(word).name for word in start if word[:1] != "-")),
            keys=(*KEYS, *env),
            trust=trust,
            own=own(errors),
            idle_cpu=opencode.IDLE_CPU,
            last=opencode.last if known else lambda said, _end, _place: said,
        )
    )


def allowed(allow: tuple[str, ...], place: Place) -> list[tuple[str, str | None]]:
    """Kinds of tools, each with a pattern of what it may be used for (`None`: anything), as the bridge reads them."""
    found: list[tuple[str, str | None]] = [("execute", shlex.join(command)) for command in place.commands]
    for word in allow:
        match = _WORD.fullmatch(word)
        if match is None:
            found.append(("execute", word))
            continue
        name, pattern = match["name"].lower(), match["pattern"]
        pattern = f"{pattern[:-2]}*" if pattern and pattern.endswith(":*") else pattern  # as Claude says it
        found.append((_KINDS.get(name, name), pattern))
    return found


@dataclass(slots=True, kw_only=True)
class Heard:
    """What the bridge tells of one attempt. `before` is the session that it goes on with."""

    before: Session | None = None
    workdir: str = ""
    model: str | None = None
    name: str = ""
    session: str | None = None
    text: str = ""
    message: str | None = None  # the id of the message that `text` is of
    news: str = ""  # the last
    worked: bool = False
    gone: bool = False
    over: bool = False
    cost: float | None = None  # of the session
    counts: dict[str, int] = field(default_factory=dict)  # summed over what came with chunks
    result: Mapping[str, Any] = field(default_factory=dict)
    denied: dict[str, None] = field(default_factory=dict)

    @property
    def usage(self) -> Usage:
        """What it used so far, as far as it tells: of a session that went on, without what came before."""
        went_on = self.before is not None and self.before.id == self.session
        so_far = self.before.usage.cost_usd if went_on and self.before is not None else None
        parts: dict[str, Any] = self.counts or ({} if went_on else self._told())
        cost = self.cost
        if cost is not None and so_far is not None:
            cost = cost - so_far if cost >= so_far else None
        if cost == 0 and (self.worked or any(parts.values())):
            cost = None  # a model without a price is not free
        if cost is None and not parts:
            return replace(UNKNOWN_USAGE, model=self.model)
        return Usage(cost_usd=cost, model=self.model, **parts)

    def _told(self) -> dict[str, int]:
        """The tokens that its answer tells; none of an agent that tells those of its last step."""
        if self.name.lower() in LAST_STEP:
            return {}
        meta = self.result.get("_meta")
        quota = meta.get("quota") if isinstance(meta, Mapping) else None
        quota = quota.get("token_count") if isinstance(quota, Mapping) else None
        return _counts(self.result.get("usage")) or parts_of(quota, _QUOTA)

    def hear(self, event: Mapping[str, Any]) -> str:
        """Takes one event; a line of news."""
        match event["type"]:
            case "agent":
                info = event.get("info")
                info = info if isinstance(info, Mapping) else {}
                self.name = text_of(info.get("name"), 100)
                return f"{brief(self.name) or 'an agent'} {brief(info.get('version'))}".strip()
            case "session":
                self.session = text_of(event.get("session"), 200) or None
            case "gone":
                self.gone = True
            case "denied":
                return self._denied(text_of(event.get("what"), 500))
            case "update":
                update = event.get("update")
                return self._update(update) if isinstance(update, Mapping) else ""
            case "result":
                self.result, self.over = event, True
        return ""

    def _denied(self, what: str) -> str:
        if len(self.denied) < _DENIED:
            self.denied[brief(what)] = None
        return f"not allowed: {brief(what)}"

    def _update(self, update: Mapping[str, Any]) -> str:
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                self._chunk(update)
            case "tool_call" | "tool_call_update":
                self.worked, self.message, self.text = True, None, ""  # what it says last is its summary
                return self._call(update)
            case "usage_update":
                cost = update.get("cost")
                if isinstance(cost, Mapping) and cost.get("currency") == "USD":
                    self.cost = dollars(cost.get("amount"))
        return ""

    def _chunk(self, update: Mapping[str, Any]) -> None:
        content, meta, message = (update.get(key) for key in ("content", "_meta", "messageId"))
        text = content.get("text") if isinstance(content, Mapping) else None
        if isinstance(text, str) and text:
            other = isinstance(message, str) and message != self.message
            self.text = (text if other else self.text + text)[:8192]
            self.message, self.worked = message if isinstance(message, str) else None, True
        for name, count in _counts(meta.get("usage") if isinstance(meta, Mapping) else None).items():
            self.counts[name] = self.counts.get(name, 0) + count

    def _call(self, update: Mapping[str, Any]) -> str:
        given, came = update.get("rawInput"), update.get("rawOutput")
        given = given if isinstance(given, Mapping) else {}
        error = came.get("error") if isinstance(came, Mapping) else None
        if isinstance(error, str) and error.startswith(opencode.STOPPED[0]):
            return self._denied(opencode.denial(_tool(update), given, error))
        news = f"{brief(update.get('kind'))} {inside(update.get('title'), self.workdir)}".strip()
        if update.get("status") not in {"pending", "in_progress"} or news == self.news:
            return ""
        self.news = news
        return news

    def said(self) -> Said | None:
        """What its answer says; `None` without one."""
        if not self.over:
            return None
        error, reason = self.result.get("error"), text_of(self.result.get("stopReason"), 100)
        lost = Failure("no_output", f"its session is gone: {_error(error)}") if self.gone else None
        idle = Failure("no_op", NOTHING) if not error and reason == "end_turn" and not self.worked else None
        summary = text_of(self.text)
        return Said(
            summary=summary,
            usage=self.usage,
            session="" if self.gone else self.session,
            error=_error(error) if error else NOTHING if idle else "",
            cut=_SHORT.get(reason, ""),
            bound="its own limit of turns" if reason == "max_turn_requests" else "",
            denied=tuple(self.denied),
            needs_human=f"the model refused: {summary}" if reason == "refusal" else None,
            failure=lost or idle,
        )


NOTHING: Final = "it ended its turn without a word or a call: nothing was done"
_SHORT: Final = {"max_tokens": "its last answer was cut", "cancelled": "its turn was cancelled"}


def _tool(update: Mapping[str, Any]) -> str:
    return "bash" if update.get("kind") == "execute" else brief(update.get("kind")) or "a tool"


def _counts(usage: object) -> dict[str, int]:
    """Our parts of the tokens; what caches held is taken out of the input where the total says that it is in there."""
    parts = parts_of(usage, _COUNTS)
    if not isinstance(usage, Mapping) or not {"input_tokens", "output_tokens"} <= parts.keys():
        return {}
    held = parts.get("cache_read_tokens", 0) + parts.get("cache_write_tokens", 0)
    if count_of(usage.get("totalTokens")) == parts["input_tokens"] + parts["output_tokens"]:
        parts["input_tokens"] -= held
    return {name: parts.get(name, 0) for name in PARTS} if parts["input_tokens"] >= 0 else {}


def _error(error: object) -> str:
    """An error of the protocol as one line, for the table of failures."""
    if not isinstance(error, Mapping):
        return text_of(error) or "no message"
    data = error.get("data")
    parts = ["authentication failed"] if error.get("code") == AUTHENTICATE else []
    parts += [text_of(error.get("message"))]
    parts += [text_of(json.dumps(data), 500)] if data else []
    return " · ".join(" ".join(part.split()) for part in parts if part) or "no message"
