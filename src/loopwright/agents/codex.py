"""Codex, run without a terminal (`codex exec`), heard through its stream of JSON events.

Facts, seen with 0.171.0. The prompt is read from stdin at `-`; options of `exec` stand before `resume ID`, which takes
no `-s` itself. No option bounds turns or money, and tokens are told once, in `turn.completed`: the sum of the whole
thread, with what caches held inside `input_tokens`; dollars never. `error` events are tries that go on
("Reconnecting... 2/5 (…)") or, just before `turn.failed`, the end; an item of type error is a warning. Errors are texts
without a code. How often it tries again (5 x 6 requests, 25 s) can be set for a provider of the user's own and not for
the built-in one, which refuses to be configured. It waits without an end for a network that is not there, and in
silence for as long as a 429 asks it to. Its sandbox lets commands write here and in the temporary folders, not in
`.git`, and without network; what that stops are plain errors of the commands (one that
ends at once now and then comes without an event). What it refuses itself (a patch to a file
outside, `rm -f`, asking for more rights) is on stderr only. A thread that is gone is told there, too. The built-in
provider logs in with CODEX_API_KEY, else with auth.json; OPENAI_API_KEY is for providers that name it. As npm installs
it, it is a wrapper around the real program: both must be ended.

Rule: as for every adapter (`_cli`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Final

from loopwright.agents._cli import Cli, Talk, Trust, agent, behind, brief, inside, login_of
from loopwright.agents._said import Said, parts_of, text_of
from loopwright.agents.failures import Failure
from loopwright.agents.patterns import own
from loopwright.argv import words
from loopwright.core.values import NO_USAGE, UNKNOWN_USAGE, Attempt, Session, Usage
from loopwright.errors import ConfigError
from loopwright.ports import Agent, Place
from loopwright.supervise import Exit

KEYS: Final = ("CODEX_API_KEY", "OPENAI_API_KEY")
GET: Final = "npm install -g @openai/codex, then log in: codex login"
LEAST: Final = (0, 100)
QUIET: Final = (
    *("-c", "check_for_update_on_startup=false", "-c", "analytics.enabled=false"),
    *("-c", "allow_login_shell=false"),  # a login shell forgets PATH, and with it the project's own tools
)
NETWORK: Final = "network"  # the word of `allow` for it; all others are folders
WAITS: Final = 2  # times in a row that it says it waits for the network: seen 4 s and 12 s after its start
GONE: Final = "no rollout found for thread id"
_COUNTS: Final = {
    "input_tokens": "input_tokens",
    "cache_write_tokens": "cache_write_input_tokens",
    "cache_read_tokens": "cached_input_tokens",
    "output_tokens": "output_tokens",
}
_DENIED: Final = 20  # places that are kept
_SEEN: Final = 8192  # characters at the end of a command's output that are looked at
_SHELL: Final = re.compile(r"^(?:/\S*/)?(?:ba|z|da)?sh -l?c ")
# The errors of programs that the sandbox stopped, with the place they could not write to.
_READ_ONLY: Final = re.compile(
    r"(?P<before>(?:[./]|[^\s'\"`:]+/)[^\s'\"`:]*)['\"`]?: Read-only file system"
    r"|\b(?:Errno 30\] |EROFS: )read-only file system(?:: |, \w+ )['\"](?P<after>[^'\"\n]+)",
    re.IGNORECASE,
)
_OFFLINE: Final = re.compile(
    r"\[Errno 1\] Operation not permitted|\b(?:connect|socket)\b[^\n]{0,40}(?:EPERM|Operation not permitted)"
    r"|Could not resolve host|Temporary failure in name resolution|\bEAI_AGAIN\b"
)


def codex(
    *,
    model: str | None = None,
    args: tuple[str, ...] = (),
    run: str | list[str] = "codex",
    session: Talk = "fresh",
    trust: Trust = "edit",
    allow: tuple[str, ...] = (),
    env: tuple[str, ...] = (),
    errors: tuple[dict[str, Any], ...] = (),
) -> Agent:
    """An agent that is Codex.

    `args` come behind its own options of `exec`; `run` names another program or a launcher. `session = "continue"` goes
    on with the thread of the attempt before. `trust = "edit"`: its sandbox, in which it may edit files and run commands,
    but reach nothing outside; `allow` adds folders to write to, and the word `network`; `"full"`: no sandbox.
    `errors` as for a command. Raises `ConfigError` for what cannot be allowed.
    """
    for word in allow:
        if word != NETWORK and word[:1] not in {"/", "."}:
            raise ConfigError(
                f'allow: {word!r} is neither a folder ("/srv/data", "./.git") nor "{NETWORK}": codex has no list of '
                f"commands, all of them run in its sandbox"
            )
    start = words(run)
    used = model or _model(args)

    def argv(attempt: Attempt, _place: Place) -> tuple[str, ...]:
        said = ("-m", model) if model else ()
        going = session == "continue" and attempt.session is not None
        thread = ("resume", attempt.session.id) if going and attempt.session is not None else ()
        limits = _permissions(trust, allow, args)
        return ("exec", "--json", "--skip-git-repo-check", *said, *limits, *QUIET, *args, *thread, "-")

    return agent(
        Cli(
            name="codex",
            start=start,
            argv=argv,
            env=lambda _: {},
            events=lambda attempt: Heard(
                before=attempt.session if session == "continue" else None,
                workdir=attempt.workdir or "",
                model=used,
                sandboxed=trust == "edit",
            ),
            get=GET,
            fix="log in again (codex login), or set CODEX_API_KEY",
            least=LEAST,
            login=partial(_login, start),
            keys=(*KEYS, *env),
            trust=trust,
            own=own(errors),
            last=partial(_last, args),
            retries=lambda event: event["type"] == "error" and "429" in text_of(event.get("message")),
        )
    )


def asked(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    """The arguments of a `codex exec` command line that go to the adapter; `None` where no work is asked of it."""
    if not argv or argv[0] not in {"exec", "e"} or not _OTHER.isdisjoint(argv):
        return None
    kept: list[str] = []
    valued = False
    for word in argv[1:]:
        if not valued and not word.startswith("-"):
            return None  # a prompt of its own, or another verb
        if valued or word not in {"-", "--json", "--skip-git-repo-check"}:
            kept.append(word)
        valued = not valued and word in _VALUED
    return tuple(kept)


_OTHER: Final = frozenset({"-V", "--version", "-h", "--help"})
_VALUED: Final = frozenset(
    {
        *("-c", "--config", "--enable", "--disable", "-i", "--image", "-m", "--model", "-p", "--profile"),
        *("-s", "--sandbox", "-C", "--cd", "--add-dir", "--local-provider", "--remote", "--output-schema"),
        *("--remote-auth-token-env", "--thread-source", "--color", "-o", "--output-last-message"),
    }
)
_SANDBOX: Final = frozenset(
    {"-s", "--sandbox", "--dangerously-bypass-approvals-and-sandbox", "--approve-for-me", "-p", "--profile"}
)
_SETTINGS: Final = ("sandbox_mode=", "default_permissions=")


def _permissions(trust: Trust, allow: tuple[str, ...], args: tuple[str, ...]) -> tuple[str, ...]:
    """What it may do, in its own options; nothing where the user's own arguments say it."""
    if any(word.partition("=")[0] in _SANDBOX or word.startswith(_SETTINGS) for word in args):
        return ()
    if trust == "full":
        return ("--dangerously-bypass-approvals-and-sandbox",)
    folders = [word for folder in allow if folder != NETWORK for word in ("--add-dir", folder)]
    online = ("-c", "sandbox_workspace_write.network_access=true") if NETWORK in allow else ()
    return ("-s", "workspace-write", *folders, *online)


def _model(args: tuple[str, ...]) -> str | None:
    """The model that arguments ask for."""
    for name, value in pairwise((*args, "")):
        if name in {"-m", "--model"}:
            return value or None
        if name.startswith("--model="):
            return name.partition("=")[2]
        if name in {"-c", "--config"} and value.startswith("model="):
            return value.partition("=")[2].strip("\"'")
    return None


def _login(start: tuple[str, ...], place: Place) -> str:
    """Its login: its own key, else what it keeps, else the key that a provider of the user's may name."""
    kept = () if _auth(place) else ("OPENAI_API_KEY",)
    return login_of(behind("codex", start), place, "CODEX_API_KEY", *kept, "CODEX_HOME")


def _auth(place: Place) -> Mapping[str, Any]:
    """What `codex login` keeps; empty where nothing is kept or it cannot be read."""
    home = place.env.get("CODEX_HOME") or f"{place.env.get('HOME', '')}/.codex"
    try:
        found = json.loads((Path(home) / "auth.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _flat(args: tuple[str, ...], place: Place) -> bool:
    """Whether a ChatGPT plan pays: it is logged in with one, and uses no provider of the user's own."""
    own = "--oss" in args or any(word.startswith("model_provider=") for word in args)
    if own or place.env.get("CODEX_API_KEY"):
        return False
    auth = _auth(place)
    mode = auth.get("auth_mode")
    if isinstance(mode, str):
        return mode.startswith("chatgpt")
    return bool(auth.get("tokens")) and not auth.get("OPENAI_API_KEY")


def _last(args: tuple[str, ...], said: Said | None, end: Exit, place: Place) -> Said | None:
    """What it said, with what only its stderr and its login tell."""
    if said is None:
        told = end.stderr.decode(errors="replace")
        if GONE not in told:
            return None
        lost = Failure("no_output", f"its session is gone: {brief(told)}")
        return Said(error=lost.message, session="", failure=lost)
    return replace(said, usage=replace(said.usage, plan=_flat(args, place)))


@dataclass(slots=True, kw_only=True)
class Heard:
    """What Codex's events tell of one attempt. `before` is the session that it goes on with."""

    before: Session | None = None
    workdir: str = ""
    model: str | None = None
    sandboxed: bool = True
    session: str | None = None
    text: str = ""
    turns: int = 0  # things that it did or said: it does not tell how often it asked its model
    waits: int = 0
    trouble: str = ""  # the error that stands, until something goes on
    over: bool = False
    answered: bool = False  # its model began to answer: that may cost
    counts: Mapping[str, Any] | None = None
    denied: dict[str, None] = field(default_factory=dict)

    @property
    def usage(self) -> Usage:
        """What it used: nothing is known of it before it is over, and nothing it is where no answer began."""
        usage = replace(UNKNOWN_USAGE, model=self.model, turns=self.turns or None)
        if self.counts is None:
            return replace(NO_USAGE, model=self.model) if self.over and not self.answered else usage
        return Usage(model=usage.model, turns=usage.turns, **self._used(self.counts))

    def hear(self, event: Mapping[str, Any]) -> str:
        """Takes one event; a line of news."""
        match event["type"]:
            case "thread.started":
                self.session = text_of(event.get("thread_id"), 200) or None
                return f"codex, {self.model or 'its own model'}"
            case "item.started" | "item.updated" | "item.completed":
                return self._item(event.get("item"), ended=event["type"] == "item.completed")
            case "turn.completed":
                usage = event.get("usage")
                self.counts = usage if isinstance(usage, Mapping) else {}
                self.trouble, self.over = "", True
            case "error":
                return self._error(event.get("message"))
            case "turn.failed":
                error = event.get("error")
                self._error(error.get("message") if isinstance(error, Mapping) else "")
                self.over = True
        return ""

    def _error(self, message: object) -> str:
        self.trouble = text_of(message) or self.trouble or "no message"
        self.answered = self.answered or "stream disconnected" in self.trouble
        self.waits = self.waits + 1 if "waiting for network" in self.trouble else 0
        self.over = self.over or self.waits >= WAITS
        return brief(self.trouble)

    def _item(self, item: object, *, ended: bool) -> str:
        if not isinstance(item, Mapping) or item.get("type") == "error":
            return ""
        self.trouble, self.waits, self.answered = "", 0, True
        self.turns += ended and item.get("type") != "reasoning"
        match item.get("type"), ended:
            case "agent_message", True:
                self.text = text_of(item.get("text"))
                return brief(self.text)
            case "command_execution", False:
                return brief(_typed(text_of(item.get("command"))))
            case "command_execution", True:
                self._stopped(item)
            case "file_change", True:
                changes = item.get("changes")
                listed = changes if isinstance(changes, list) else []
                paths = [inside(c.get("path"), self.workdir) for c in listed if isinstance(c, Mapping)]
                return brief(f"edits {', '.join(paths)}")
            case "mcp_tool_call", False:
                return f"{brief(item.get('server'))} {brief(item.get('tool'))}".strip()
        return ""

    def _stopped(self, item: Mapping[str, Any]) -> None:
        """Takes what the sandbox did not let a command do, as `allow` would let it."""
        output = item.get("aggregated_output")
        if self.sandboxed and item.get("status") != "completed" and isinstance(output, str):
            for what in _denials(output[-_SEEN:], self.workdir):
                if len(self.denied) < _DENIED:
                    self.denied[what] = None

    def said(self) -> Said | None:
        """What it said at its end, or the trouble it was in; `None` without either."""
        if not self.over and not self.trouble:
            return None
        return Said(
            summary=self.text,
            usage=self.usage,
            session=self.session,
            error=self.trouble,
            denied=tuple(self.denied),
        )

    def _used(self, counts: Mapping[str, Any]) -> dict[str, Any]:
        """What this attempt used: of a thread that went on, without what came before; none where it cannot be true."""
        parts = parts_of(counts, _COUNTS)
        if not {"input_tokens", "output_tokens"} <= parts.keys():
            return {}
        parts["input_tokens"] -= parts.get("cache_read_tokens", 0) + parts.get("cache_write_tokens", 0)
        if self.before is not None and self.before.id == self.session:
            so_far = self.before.usage
            parts = {name: count - (getattr(so_far, name) or 0) for name, count in parts.items()}
        return parts if min(parts.values()) >= 0 else {}


def _typed(command: str) -> str:
    """A command as its model wrote it, without the shell that runs it."""
    shell = _SHELL.match(command)
    try:
        return shlex.split(command[shell.end() :])[0] if shell else command
    except (ValueError, IndexError):
        return command


def _denials(output: str, workdir: str) -> Iterator[str]:
    """The folders that could not be written to, and the network, as words of `allow`."""
    for found in _READ_ONLY.finditer(output):
        said = found["before"] or found["after"]
        path = PurePosixPath(said.removeprefix(f"{workdir}/") if workdir else said)
        top = "".join(path.parts[:1])
        yield (
            str(path.parent) if top in {"/", ".."} else f"./{top}"
        )  # here it is kept from whole folders: .git, .codex
    if _OFFLINE.search(output):
        yield NETWORK
