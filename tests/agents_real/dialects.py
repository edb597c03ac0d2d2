"""How a model tells each CLI to change a file or to run a command: the tools and arguments of that CLI.

Rule: a dialect turns one wish into the turns a scripted model takes for it, and nothing else; a scenario is written
once, in wishes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Turn = dict[str, Any]


def said(text: str) -> Turn:
    """A turn that ends an attempt with these words."""
    return {"text": text}


def _called(name: str, **arguments: Any) -> Turn:
    return {"tool_calls": [{"name": name, "args": arguments}]}


def _claude_change(folder: str, name: str, old: str | None, new: str) -> list[Turn]:
    path = f"{folder}/{name}"
    look = (
        [_called("Read", file_path=path)] if old is not None else []
    )  # it writes over nothing it has not read
    return [*look, _called("Write", file_path=path, content=new)]


def _claude_shell(command: str) -> list[Turn]:
    return [_called("Bash", command=command, description="as asked")]


def _codex_change(_folder: str, name: str, old: str | None, new: str) -> list[Turn]:
    def lines(sign: str, text: str) -> str:
        return "".join(f"{sign}{line}\n" for line in text.splitlines())

    body = (
        f"*** Add File: {name}\n{lines('+', new)}"
        if old is None
        else f"*** Update File: {name}\n@@\n{lines('-', old)}{lines('+', new)}"
    )
    patch = f"*** Begin Patch\n{body}*** End Patch\n"
    return [{"tool_calls": [{"name": "apply_patch", "input": patch}]}]


def _codex_shell(command: str) -> list[Turn]:
    return [_called("exec_command", cmd=command)]


def _opencode_change(folder: str, name: str, old: str | None, new: str) -> list[Turn]:
    path = f"{folder}/{name}"
    look = [_called("read", filePath=path)] if old is not None else []
    return [*look, _called("write", filePath=path, content=new)]


def _opencode_shell(command: str) -> list[Turn]:
    return [_called("bash", command=command, description="as asked")]


def _aider_change(_folder: str, name: str, old: str | None, new: str) -> list[Turn]:
    return [{"text": f"{name}\n```python\n<<<<<<< SEARCH\n{old or ''}=======\n{new}>>>>>>> REPLACE\n```\n"}]


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The tools of one CLI."""

    api: str
    change: Callable[[str, str, str | None, str], list[Turn]]  # (folder, name, old text or None, new text)
    shell: Callable[[str], list[Turn]] | None
    ends: bool = True  # whether an attempt goes on until a turn without a tool call
    sides: tuple[dict[str, Any], ...] = ()  # requests that are not part of the work

    def attempt(self, *turns: list[Turn], words: str = "Done.") -> list[Turn]:
        """The turns of one attempt."""
        flat = [turn for group in turns for turn in group]
        return [*flat, said(words)] if self.ends else flat


TITLE = {"when": {"has_tools": False}, "reply": {"text": "A title"}}

CLAUDE = Dialect(api="anthropic", change=_claude_change, shell=_claude_shell)
CODEX = Dialect(api="responses", change=_codex_change, shell=_codex_shell)
OPENCODE = Dialect(api="chat", change=_opencode_change, shell=_opencode_shell, sides=(TITLE,))
AIDER = Dialect(api="chat", change=_aider_change, shell=None, ends=False)
