"""What the fake LLM server answers: an ordered script of turns, and what each of them expects to be asked.

Rule: every model request takes the next turn; nothing here knows a wire format beyond reading a request.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field
from string import Template
from typing import Any

TEXT_KEYS = (
    "content",
    "text",
    "output",
    "parts",
    "functionResponse",
    "response",
    "arguments",
    "input",
    "functionCall",
    "args",
)


def flat(x: Any) -> str:
    """All text inside a message, whatever the API's nesting."""
    if isinstance(x, str):
        return x
    if isinstance(x, list):
        return "\n".join(flat(i) for i in x)
    if isinstance(x, dict):
        return "\n".join(flat(x[k]) for k in TEXT_KEYS if k in x)
    return "" if x is None else str(x)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What one request asks, in terms common to the four APIs."""

    api: str
    body: dict[str, Any]
    path: str
    stream: bool
    model: str
    messages: list[Any]
    system: str
    tools: list[str | None]

    @property
    def last(self) -> str:
        """The text of the last message."""
        return flat(self.messages[-1]) if self.messages else ""

    def unmet(self, want: dict[str, Any]) -> list[str]:
        """Which conditions of a `when` / `expect` block do not hold."""
        everything = json.dumps(self.body, ensure_ascii=False)
        tests = {
            "api": lambda v: self.api == v,
            "path": lambda v: re.search(v, self.path) is not None,
            "model": lambda v: re.search(v, self.model) is not None,
            "stream": lambda v: self.stream == v,
            "last_contains": lambda v: v in self.last,
            "system_contains": lambda v: v in self.system,
            "body_contains": lambda v: v in everything or v in flat(self.messages),
            "body_lacks": lambda v: v not in everything,
            "has_tool": lambda v: v in self.tools,
            "has_tools": lambda v: bool(self.tools) == v,
            "min_messages": lambda v: len(self.messages) >= v,
            "max_messages": lambda v: len(self.messages) <= v,
        }
        return [f"{k}={v!r}" for k, v in want.items() if not tests[k](v)]


def asked(api: str, body: dict[str, Any], path: str) -> Asked:
    """The request, read."""
    if api == "gemini":
        messages = body.get("contents") or []
        system = flat(body.get("systemInstruction") or body.get("system_instruction") or "")
        tools = [
            f.get("name")
            for t in body.get("tools") or []
            for f in t.get("functionDeclarations") or t.get("function_declarations") or []
        ]
    elif api == "responses":
        given = body.get("input") or []
        messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
        system = flat(body.get("instructions") or "")
        tools = [t.get("name") or t.get("type") for t in body.get("tools") or []]
    else:
        messages = body.get("messages") or []
        said = [flat(m) for m in messages if m.get("role") in {"system", "developer"}]
        system = flat(body.get("system") or "") or "\n".join(said)
        tools = [(t.get("function") or t).get("name") or t.get("type") for t in body.get("tools") or []]
    named = re.search(r"/models/([^:/]+):", path)
    return Asked(
        api=api,
        body=body,
        path=path,
        stream=bool(body.get("stream")) or ":streamGenerateContent" in path,
        model=body.get("model") or (named.group(1) if named else ""),
        messages=messages,
        system=system,
        tools=tools,
    )


@dataclass
class Script:
    """The turns, how far they are used up, and which expectations were not met."""

    data: dict[str, Any]
    variables: dict[str, str]
    lock: Any = field(default_factory=threading.Lock)
    turns: list[dict[str, Any]] = field(default_factory=list)
    pos: int = 0
    count: int = 0
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.variables:
            filled = {k: json.dumps(v)[1:-1] for k, v in self.variables.items()}
            self.data = json.loads(Template(json.dumps(self.data)).safe_substitute(filled))
        self.turns = [t for t in self.data.get("turns", []) for _ in range(int(t.get("times", 1)))]

    def pick(self, ask: Asked) -> tuple[str, dict[str, Any]]:
        """The turn for this request, with its name for the log."""
        with self.lock:
            self.count += 1
            for i, side in enumerate(self.data.get("sides", [])):
                if not ask.unmet(side.get("when", {})):
                    return f"side{i}", side["reply"]
            label, turn = self._next()
            bad = ask.unmet(turn.get("expect", {}))
            if bad:
                self.failures.append(f"request {self.count} ({label}): unmet {', '.join(bad)}")
                if self.data.get("strict"):
                    turn = {"error": {"status": 400, "message": f"fakellm: unmet {', '.join(bad)}"}}
            return label, turn

    def _next(self) -> tuple[str, dict[str, Any]]:
        if self.pos < len(self.turns):
            self.pos += 1
            return f"turn{self.pos - 1}", self.turns[self.pos - 1]
        if self.data.get("when_exhausted") == "repeat_last" and self.turns:
            return "repeat", self.turns[-1]
        self.failures.append(f"request {self.count}: script exhausted")
        nothing = {"error": {"status": 400, "message": "fakellm: the script has no turn left"}}
        return "exhausted", self.data.get("exhausted_reply") or nothing
