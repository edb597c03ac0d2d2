"""What the adapters of coding-agent CLIs share: start one, hear it as it works, end it when it costs too much.

Rule: an adapter is facts (a command line, an environment, what its events mean), and nothing else decides what
comes of an attempt than what decides it for every command (`_said`). What was heard of an attempt that did not come
to its end is a part, and a part of the cost is an unknown cost.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, Literal, Protocol, TypeAlias

from loopwright.agents._prompted import Prompt, probe, prompted
from loopwright.agents._said import Said, event_of, outcome
from loopwright.agents.patterns import Rule
from loopwright.core.values import UNKNOWN_USAGE, Attempt, Failed, Left, Usage, Worked
from loopwright.errors import NotStartable
from loopwright.ports import Agent, Place
from loopwright.prices import priced
from loopwright.prompt import clean
from loopwright.supervise import Exit

Trust = Literal["edit", "full"]
Talk = Literal["fresh", "continue"]
Call: TypeAlias = Callable[[Attempt, Place], Awaitable[Worked | Failed]]

LIMITS: Final[Mapping[str, Any]] = {"max_duration": 14400.0, "attempt_timeout": 2700.0, "idle_timeout": 900.0}
LINGER_S: Final = 10.0  # after its last event
RETRY_S: Final = 300.0  # without a word after it said that it waits: loopwright waits longer, and in sight
VERSION_S: Final = 30.0
MORE: Final = 1.01  # times as many tokens as were looked at before are looked at again
LINE: Final = 120  # characters of a line of news
_VERSION: Final = re.compile(r"(?<!\d)\d{1,9}(?:\.\d{1,9})+")
# What git may be asked without changing anything; `trust = "edit"` lets it.
LOOKING: Final = ("git status", "git diff", "git log", "git show")


class Events(Protocol):
    """What is heard of one attempt."""

    @property
    def usage(self) -> Usage:
        """What it used so far."""

    @property
    def over(self) -> bool:
        """Whether it said its last word."""

    def hear(self, event: Mapping[str, Any]) -> str:
        """Takes one event; a line of news for whoever watches, or nothing."""

    def said(self) -> Said | None:
        """What it says of the attempt, once it is over; `None` when it did not get to say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cli:
    """The facts of one CLI.

    `argv` is what follows `start`, for this attempt, `before` what starts it, if another program does; `get` says how it
    is installed, `fix` what to do when its login is refused. `least` is the oldest version whose options these are.
    `login` names what it logs in with, never the secret. `own` are the user's rules for its error texts.
    `last` makes what was said whole, with what its events do not tell. `retries` are the events of one that says that it
    waits and tries again: it may do so for `RETRY_S`. `idle_cpu` is the share of CPU time it uses doing nothing.
    `interrupts`: on SIGINT it still tells what it used.
    """

    name: str
    start: tuple[str, ...]
    argv: Callable[[Attempt, Place], tuple[str, ...]]
    env: Callable[[Place], Mapping[str, str]]
    get: str
    fix: str
    least: tuple[int, ...]
    login: Callable[[Place], str]
    keys: tuple[str, ...]
    before: tuple[str, ...] = ()
    way: Prompt = "stdin"
    idle_cpu: float = 0.01
    interrupts: bool = False
    trust: Trust = "edit"
    version: tuple[str, ...] = ("--version",)
    events: Callable[[Attempt], Events] | None = None  # none: it prints text, and its adapter calls it itself
    own: tuple[Rule, ...] = ()
    last: Callable[[Said | None, Exit, Place], Said | None] = lambda said, _end, _place: said
    retries: Callable[[Mapping[str, Any]], bool] = lambda _event: False


def agent(cli: Cli, call: Call | None = None) -> Agent:
    """The agent that this CLI is; `call` where it is not heard through its events."""
    return Agent(
        name=cli.name,
        call=call or partial(_call, cli),
        probe=partial(_probe, cli),
        limits=LIMITS,
        keys=cli.keys,
        login=cli.login,
    )


def _probe(cli: Cli, place: Place) -> str:
    """What will run and its version; `NotStartable` says how to get it where it is missing or too old."""
    try:
        found = probe(cli.start, place)
    except NotStartable as error:
        why = str(error).partition(": ")[0]  # without a guess at what else was meant: it was named exactly
        raise NotStartable(f"{why}; to get it: {cli.get}") from None
    version = version_of((*shlex.split(found), *cli.version), place)
    numbers = tuple(map(int, version.split("."))) if version else ()
    if numbers and numbers < cli.least:
        least = ".".join(map(str, cli.least))
        raise NotStartable(
            f"{found} is version {version}, and {least} is the oldest that is known: {cli.get}"
        )
    free = ', trust = "full": it may do whatever you may' if cli.trust == "full" else ""
    return f"{found} ({version or 'of an unknown version'}{free})"


def version_of(argv: tuple[str, ...], place: Place) -> str:
    """The version a program prints, such as `2.1.332`; empty where it prints none. `NotStartable` if it cannot run."""
    try:
        ran = subprocess.run(
            argv,
            cwd=place.root,
            env=dict(place.env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotStartable(f"{shlex.join(argv)} does not run: {error}") from None
    found = _VERSION.search(ran.stdout.decode(errors="replace"))
    if ran.returncode and not found:
        said = clean(ran.stderr.decode(errors="replace")).strip().splitlines()
        raise NotStartable(
            f"{shlex.join(argv)} ended with {ran.returncode}: {said[-1] if said else 'no word'}"
        )
    return found[0] if found else ""


async def _call(cli: Cli, attempt: Attempt, place: Place) -> Worked | Failed:
    """One attempt: the prompt goes in, events come out, and what it used is known while it works."""
    assert cli.events is not None
    events, cut = cli.events(attempt), ""
    waits_since: float | None = None
    known = 0  # tokens whose price was looked at

    def each(line: bytes) -> bool:
        nonlocal cut, waits_since, known
        event = event_of(line)
        if event is None:
            return False
        waits_since = monotonic() if cli.retries(event) else None
        news = events.hear(event)
        if news and place.hear is not None:
            place.hear(f"{place.redact.text(news)}\n".encode(errors="replace"))
        used = events.usage
        if (
            attempt.left.budget_usd is not None and (used.tokens or 0) > known * MORE
        ):  # to price takes its time
            used, known = priced(used), used.tokens or 0
        cut = cut or overspent(used, attempt.left)
        return bool(cut)

    end = await prompted(
        (*cli.before, *cli.start, *cli.argv(attempt, place)),
        attempt,
        place,
        way=cli.way,
        env=cli.env(place),
        linger_s=LINGER_S,
        idle_cpu=cli.idle_cpu,
        finished=lambda _: events.over,
        each=each,
        interrupts=cli.interrupts,
        stuck=lambda: waits_since is not None and monotonic() - waits_since >= RETRY_S,
    )
    if isinstance(end, Failed):
        return end
    said = cli.last(events.said(), end, place)
    now = datetime.now().astimezone()
    ended = outcome(end, said, idle_s=place.idle_s, now=now, why=cut, prose=False, own=cli.own)
    ended = explained(ended, cli.fix)
    return ended if said is not None else _partly(ended, events.usage, told=bool(cut))


def explained(ended: Worked | Failed, fix: str) -> Worked | Failed:
    """The end of an attempt as people read it: a refused login with its `fix`, tokens with what they cost."""
    if isinstance(ended, Failed):
        lost = ended.message.startswith("authentication")
        message = f"{ended.message}; {fix}" if lost else ended.message
        return replace(ended, message=message, usage=priced(ended.usage))
    return replace(ended, result=replace(ended.result, usage=priced(ended.result.usage)))


def overspent(usage: Usage, left: Left) -> str:
    """Why an attempt must end now: it used more than is left. Empty while it may go on, or where nothing is known."""
    if left.budget_usd is not None and usage.cost_usd is not None and usage.cost_usd > left.budget_usd:
        return f"ended at ${usage.cost_usd:.2f}, ${left.budget_usd:.2f} of the budget were left"
    if left.tokens is not None and usage.tokens is not None and usage.tokens > left.tokens:
        return f"ended at {usage.tokens:,} tokens, {left.tokens:,} were left"
    return ""


def _partly(ended: Worked | Failed, heard: Usage, *, told: bool) -> Worked | Failed:
    """The end of an attempt that did not get to tell what it used: only of one cut for its cost is a part enough."""
    usage = (
        priced(heard)
        if told
        else replace(UNKNOWN_USAGE, model=heard.model, turns=heard.turns, plan=heard.plan)
    )
    if isinstance(ended, Failed):
        return replace(ended, usage=usage)
    return replace(ended, result=replace(ended.result, usage=usage))


def behind(name: str, start: tuple[str, ...]) -> str:
    """The name of a CLI with what starts it where that is another program: one `npx` starts many CLIs."""
    return name if named(start) == name else f"{name}-{named(start)}"


def login_of(name: str, place: Place, *variables: str) -> str:
    """A name for the login that the first of these variables gives, else for the one kept in the home folder."""
    for variable in variables:
        if value := place.env.get(variable):
            return f"{name}/{variable}-{hashlib.sha256(value.encode()).hexdigest()[:8]}"
    return f"{name}/{hashlib.sha256(place.env.get('HOME', '').encode()).hexdigest()[:8]}"


def brief(text: object) -> str:
    """One line of a text, cleaned and short; empty for what is none."""
    line = " ".join(clean(text[: 8 * LINE]).split()) if isinstance(text, str) else ""
    return line if len(line) <= LINE else line[: LINE - 1] + "…"


def inside(path: object, place: str) -> str:
    """A path as it stands in the workspace."""
    text = brief(path)
    return text.removeprefix(f"{place}/") if place else text


def named(start: tuple[str, ...]) -> str:
    """The program of a command line, without its folder."""
    return Path(start[0]).name
