"""aider, run for one message (`aider --message-file`), read from the text it prints.

Facts, seen with 0.86.2. Exit 0 whatever happens (2 for a wrong option): an API error is a line `litellm.…Error: …`, and
what the model writes stands on the same stdout. `Tokens: 1.2k sent, 40 received. Cost: $0.0043 message, $0.0043
session.` follows each answer that came whole, so only what stands behind the last of these is aider's own word, and
there it still quotes edits that it could not apply. Tokens are rounded, and a cache's writes are counted twice in what
was sent; the cost is there when aider knows the model's price. It tries again by itself for 80 seconds, with no option
against that. All confirmations get yes, but commands that the model suggests get no: it never runs them. So it adds
files by itself, also outside the folder, where git does not refuse them. It stages the files it makes (here in a copy
of the index), would make a repository where there is none (`--no-git`), keeps `.aider.tags.cache.v4` beside `.git`
(removed), and `--analytics-disable` is for ever (`--no-analytics` is not). `.aider.conf.yml` and `load` may lie in the
workspace: what could run commands there is switched off in `trust = "edit"`. There are no sessions; the chat of the
attempt before is given to it as a file. Prices of unknown models are looked up at GitHub; no network is no error.

Rule: as for every adapter (`_cli`).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from loopwright.agents._cli import Cli, Talk, Trust, agent, behind, explained, login_of
from loopwright.agents._prompted import FILE, prompted
from loopwright.agents._said import Said, dollars, outcome, text_of
from loopwright.agents.patterns import own
from loopwright.argv import words
from loopwright.core.values import UNKNOWN_USAGE, Attempt, Failed, Usage, Worked
from loopwright.ports import Agent, Place
from loopwright.prompt import clean
from loopwright.supervise import Exit

KEYS: Final = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "OPENROUTER_API_KEY",
    "DEEPSEEK_API_KEY",
    "AZURE_API_KEY",
    "GROQ_API_KEY",
    "XAI_API_KEY",
    "MISTRAL_API_KEY",
)
GET: Final = "python -m pip install aider-chat, and set the key of your model's maker, such as OPENAI_API_KEY"
LEAST: Final = (0, 86)
ALONE: Final = (  # one message, nobody there, and nothing of the user's is changed but files of the workspace
    *("--yes-always", "--no-pretty", "--no-stream", "--no-fancy-input"),
    *("--no-check-update", "--no-show-release-notes", "--no-show-model-warnings", "--no-analytics"),
    *("--no-detect-urls", "--no-notifications", "--disable-playwright"),
    *("--no-gitignore", "--no-auto-commits", "--no-dirty-commits"),
)
EDITS: Final = ("--no-suggest-shell-commands", "--no-auto-lint", "--no-auto-test", "--load", os.devnull)
WIDE: Final = {"COLUMNS": "10000", "NO_COLOR": "1", "TERM": "dumb"}  # its lines stay lines
CHAT: Final = "aider.chat.md"
_CACHE: Final = ".aider.tags.cache.v4"

_NUMBER: Final = r"\d{1,12}(?:\.\d{1,12})?"
_TOKENS: Final = re.compile(
    rf"Tokens: (?P<sent>{_NUMBER}k?) sent(?:, (?P<written>{_NUMBER}k?) cache write)?"
    rf"(?:, (?P<read>{_NUMBER}k?) cache hit)?, (?P<received>{_NUMBER}k?) received\."
)
_COST: Final = re.compile(rf"(?:.* )?Cost: \${_NUMBER} message, \$(?P<session>{_NUMBER}) session\.")
_MODEL: Final = re.compile(r"(?:Main m|M)odel: (\S+) with ")
_ERROR: Final = re.compile(r"litellm\.[A-Za-z.]{1,60}: ")
_FULL: Final = re.compile(r"Model \S{1,200} has hit a token limit!")
_AGAIN: Final = re.compile(r"Retrying in [\d.]+ seconds")
# What shows that an error line behind the last answer is part of an edit that is quoted, not aider's last word.
_QUOTED: Final = re.compile(
    r"[<>]{5,9} (?:SEARCH|REPLACE)|Only \d+ reflections allowed|The LLM did not conform|Applied edit to "
)
_UNFIT: Final = re.compile(r"Only \d+ reflections allowed")


def aider(
    *,
    model: str | None = None,
    args: tuple[str, ...] = (),
    run: str | list[str] = "aider",
    session: Talk = "fresh",
    trust: Trust = "edit",
    env: tuple[str, ...] = (),
    errors: tuple[dict[str, Any], ...] = (),
) -> Agent:
    """An agent that is aider.

    `args` come behind its own options, such as files it should know from the start; `run` names another program or a
    launcher. `session = "continue"` gives it the chat of the attempt before. `trust = "edit"`: it edits files and runs
    nothing; `"full"`: it lints and tests as its own configuration says. `errors` as for a command.
    """

    def argv(attempt: Attempt, place: Place) -> tuple[str, ...]:
        folder = place.artifacts.absolute()
        said = ["--model", model] if model else []
        said += ["--message-file", FILE, "--chat-history-file", str(folder / CHAT)]
        said += ["--input-history-file", str(folder / "aider.input"), *ALONE]
        said += ["--restore-chat-history"] if session == "continue" and attempt.session else []
        said += EDITS if trust == "edit" else ()
        return (*said, *(() if _top(place.root) else ("--no-git",)), *args)

    start = words(run)
    cli = Cli(
        name="aider",
        start=start,
        argv=argv,
        env=partial(_environ, trust),
        get=GET,
        fix="set the key of the model's maker, such as OPENAI_API_KEY",
        least=LEAST,
        login=partial(_login, start, model or ""),
        keys=(*KEYS, *env),
        way="file",
        trust=trust,
        own=own(errors),
    )
    return agent(cli, partial(_call, cli, session))


def asked(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    """The arguments of an `aider` command line that go to the adapter; `None` where no work of ours is asked of it."""
    if any(word.partition("=")[0] in _OTHER for word in argv):
        return None
    return tuple(word for word in argv if word not in _OURS)


_OURS: Final = frozenset({"--yes", *ALONE})
_OTHER: Final = frozenset(  # a message of its own, or no work at all
    {"-m", "--msg", "--message", "-f", "--message-file", "-h", "--help", "--version", "--list-models", "--models"}
    | {"--gui", "--browser", "--commit", "--lint", "--test", "--apply", "--exit", "--upgrade", "--update", "--load"}
)  # fmt: skip


def _login(start: tuple[str, ...], model: str, place: Place) -> str:
    maker = model.partition("/")[0].upper()
    first = [key for key in KEYS if maker and key.startswith(maker)]
    return login_of(behind("aider", start), place, *first, *KEYS)


def _environ(trust: Trust, place: Place) -> Mapping[str, str]:
    """Its environment; where it only edits, with a copy of the index, because it stages the files it makes."""
    index = _index(_top(place.root)) if trust == "edit" else None
    if index is None:
        return WIDE
    copy = place.artifacts.absolute() / "aider.index"
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(index, copy)
    except OSError:
        return WIDE
    return {**WIDE, "GIT_INDEX_FILE": str(copy)}


def _top(root: Path) -> Path | None:
    """The folder of the repository that `root` is in."""
    return next((at for at in (root, *root.resolve().parents) if (at / ".git").exists()), None)


def _index(top: Path | None) -> Path | None:
    if top is None:
        return None
    git = top / ".git"
    if git.is_file():  # of a worktree
        told = git.read_text(encoding="utf-8", errors="surrogateescape").strip()
        git = top / told.removeprefix("gitdir: ")
    return git / "index" if (git / "index").is_file() else None


async def _call(cli: Cli, session: Talk, attempt: Attempt, place: Place) -> Worked | Failed:
    """One attempt: the prompt in a file, and what it printed read once it has ended."""
    chat = place.artifacts.absolute() / CHAT
    before = Path(attempt.session.id) if session == "continue" and attempt.session else None
    with suppress(OSError):  # the chat of a run that was tidied up is gone: then this one begins anew
        chat.parent.mkdir(parents=True, exist_ok=True)
        chat.unlink(missing_ok=True)
        if before is not None:
            shutil.copyfile(before, chat)
    cache = (_top(place.root) or place.root) / _CACHE
    ours = not cache.exists()
    try:
        end = await prompted(
            (*cli.start, *cli.argv(attempt, place)),
            attempt,
            place,
            way=cli.way,
            env=cli.env(place),
            observe=place.hear,
        )
    finally:
        if ours and not cache.is_symlink():
            shutil.rmtree(cache, ignore_errors=True)
    if isinstance(end, Failed):
        return end
    said = heard(end)
    if said is not None and session == "continue":
        said = replace(said, session=str(chat))
    ended = outcome(end, said, idle_s=place.idle_s, now=datetime.now().astimezone(), own=cli.own)
    return explained(ended, cli.fix)


def heard(end: Exit) -> Said | None:
    """What an aider that ended says of its attempt; `None` where it did not get to ask its model."""
    lines = [clean(line).rstrip() for line in end.stdout.decode(errors="replace").splitlines()]
    answers = [at for at, line in enumerate(lines) if _TOKENS.match(line)]
    last = answers[-1] if answers else -1
    after = lines[last + 1 :]
    error = _error(after)
    model = next((found[1] for line in lines if (found := _MODEL.match(line))), None)
    if not answers and not error:
        return Said(usage=Usage(turns=0, model=model)) if end.code == 0 else None
    whole = end.ended == "exited" and end.code == 0
    return Said(
        summary=text_of("\n".join(_answer(lines, answers))),
        usage=_usage(lines, answers, model, end) if whole else replace(UNKNOWN_USAGE, model=model),
        error=error,
        cut="it could not apply all its edits" if any(_UNFIT.match(line) for line in after) else "",
    )


def _error(after: list[str]) -> str:
    """The error that ended it, as one line, out of what it printed behind the last answer; empty if there is none."""
    starts = [at for at, line in enumerate(after) if _ERROR.match(line) or _FULL.match(line)]
    said = after[starts[-1] :] if starts else []
    if not said or any(_QUOTED.match(line) for line in said):
        return ""
    if _FULL.match(said[0]):
        return f"the context window is full: {said[0]}"
    return " ".join(line.strip() for line in said if line.strip() and not _AGAIN.match(line))


def _answer(lines: list[str], answers: list[int]) -> list[str]:
    """The model's last answer, with as little of aider's own words before it as can be told."""
    if not answers:
        return []
    said = lines[answers[-2] + 1 if len(answers) > 1 else 0 : answers[-1]]
    own_words = (
        [at for at, line in enumerate(said) if line.startswith("Repo-map: ")] if len(answers) < 2 else []
    )
    said = said[own_words[0] + 1 :] if own_words else said
    while said and (not said[0] or said[0].endswith(" to the chat.")):
        said = said[1:]
    return said


def _usage(lines: list[str], answers: list[int], model: str | None, end: Exit) -> Usage:
    """What the answers used; tokens are unknown where lines were left out, the cost is that of the last line."""
    costs = [found["session"] for line in lines if (found := _COST.fullmatch(line))]
    cost = dollars(float(costs[-1])) if costs else None
    if not answers:
        return Usage(cost_usd=0.0, tokens=0, turns=0, model=model)  # nothing was answered
    if end.stdout_bytes > len(end.stdout):
        return Usage(cost_usd=cost, model=model)
    parts = [Parts.of(found) for at in answers if (found := _TOKENS.match(lines[at]))]
    return Usage(
        cost_usd=cost or None,
        model=model,
        turns=len(answers),
        input_tokens=sum(part.fresh for part in parts),
        cache_write_tokens=sum(part.written for part in parts),
        cache_read_tokens=sum(part.read for part in parts),
        output_tokens=sum(part.received for part in parts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The tokens of one answer: `fresh` are those that no cache held."""

    fresh: int
    written: int
    read: int
    received: int

    @classmethod
    def of(cls, found: re.Match[str]) -> Parts:
        """The parts that a line of tokens tells."""
        sent, written, read, received = (
            round(float((found[name] or "0").removesuffix("k")) * (1000 if (found[name] or "").endswith("k") else 1))
            for name in ("sent", "written", "read", "received")
        )  # fmt: skip
        return cls(fresh=max(0, sent - 2 * written - read), written=written, read=read, received=received)
