"""The adapters that are tried, one row each."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import KEY, Denied, Row
from dialects import AIDER, CLAUDE, CODEX, OPENCODE

WRITES = """python3 -c 'open("made-by-shell", "w")'"""  # no CLI takes it for harmless
QUIET = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


def _claude(server: str, home: Path) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": server,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CONFIG_DIR": f"{home}/claude",
        **QUIET,
    }


def _codex(server: str, home: Path) -> dict[str, str]:
    folder = home / "codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(
        'model_provider = "fake"\ncheck_for_update_on_startup = false\n'
        "[analytics]\nenabled = false\n"
        f'[model_providers.fake]\nname = "fake"\nbase_url = "{server}/v1"\nenv_key = "OPENAI_API_KEY"\n'
        'wire_api = "responses"\n'
    )
    return {"CODEX_HOME": str(folder), "OPENAI_API_KEY": KEY}


def _opencode(server: str, home: Path) -> dict[str, str]:
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True, exist_ok=True)
    model = {
        "tool_call": True,
        "limit": {"context": 128_000, "output": 8000},
        "cost": {"input": 1, "output": 2},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{server}/v1", "apiKey": KEY},
        "models": {"fake-model": model},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "model": "fake/fake-model",
        "small_model": "fake/fake-model",
        "provider": {"fake": provider},
    }
    (folder / "opencode.json").write_text(json.dumps(config))
    return dict.fromkeys(
        ("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_LSP_DOWNLOAD"), "1"
    )


def _aider(server: str, _home: Path) -> dict[str, str]:
    return {"OPENAI_API_BASE": f"{server}/v1", "OPENAI_API_KEY": KEY}


def _claude_limit(reset: datetime) -> dict[str, Any]:
    hour = f"{reset:%I:%M%p}".lstrip("0").lower()
    return {
        "status": 429,
        "message": f"You've hit your session limit · resets {hour} (UTC)",
        "headers": {"x-should-retry": "false"},
    }


def _codex_limit(reset: datetime) -> dict[str, Any]:
    extra = {"plan_type": "plus", "resets_at": int(reset.timestamp())}
    return {
        "status": 429,
        "type": "usage_limit_reached",
        "message": "The usage limit has been reached",
        "extra": extra,
    }


def _openai_limit(reset: datetime) -> dict[str, Any]:
    seconds = int((reset - datetime.now(UTC)).total_seconds())
    return {
        "status": 429,
        "message": f"You've hit your usage limit, try again in {seconds} seconds.",
        "headers": {"retry-after": str(seconds)},
    }


ROWS = (
    Row(
        name="claude",
        program="claude",
        dialect=CLAUDE,
        agent={"use": "claude", "model": "claude-sonnet-4-5"},
        setting=_claude,
        price=(3.0, 15.0),
        limit=_claude_limit,
        tries=2,
        denied=Denied(WRITES, "made-by-shell", f"Bash({WRITES})"),
        can=frozenset({"shell", "deny", "looks", "session", "cut", "resets"}),
    ),
    Row(
        name="codex",
        program="codex",
        dialect=CODEX,
        agent={"use": "codex", "model": "gpt-5.5"},
        setting=_codex,
        price=(5.0, 30.0),
        limit=_codex_limit,
        # It tells nothing of a command that has ended before it looks: this one takes its time.
        denied=Denied("sleep 0.5; touch .git/made-by-shell", ".git/made-by-shell", "./.git"),
        can=frozenset({"shell", "deny", "session", "resets", "waits"}),
    ),
    Row(
        name="opencode",
        program="opencode",
        dialect=OPENCODE,
        agent={"use": "opencode", "model": "fake/fake-model"},
        setting=_opencode,
        price=(1.0, 2.0),
        limit=_openai_limit,
        denied=Denied(WRITES, "made-by-shell", f"bash({WRITES})"),
        can=frozenset({"shell", "deny", "looks", "session", "cut", "waits"}),
    ),
    Row(
        name="aider",
        program="aider",
        dialect=AIDER,
        agent={"use": "aider", "model": "openai/gpt-4o"},
        setting=_aider,
        price=(2.5, 10.0),
        limit=_openai_limit,
        can=frozenset({"resets", "waits"}),
    ),
    Row(
        name="acp",
        program="opencode",
        dialect=OPENCODE,
        agent={"use": "acp", "run": "opencode acp"},
        setting=_opencode,
        price=(1.0, 2.0),
        limit=_openai_limit,
        denied=Denied(WRITES, "made-by-shell", f"bash({WRITES})"),
        tokens=False,  # over it opencode tells those of its last step alone
        can=frozenset({"shell", "deny", "looks", "session", "waits"}),
    ),
)
