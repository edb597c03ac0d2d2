"""An agent that is a command: it reads the prompt, works, and may say how it went in one last JSON line.

Rule: as for every program (`_said`): only the error channel decides an outcome, and never prose.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from loopwright.agents import patterns
from loopwright.agents._prompted import Prompt, probe, prompted
from loopwright.agents._said import last_result, outcome, read
from loopwright.agents.patterns import Rule
from loopwright.argv import words
from loopwright.core.values import Attempt, Failed, Worked
from loopwright.errors import ConfigError
from loopwright.ports import Agent, Place


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


async def _call(
    argv: tuple[str, ...],
    way: Prompt,
    linger_s: float | None,
    own: tuple[Rule, ...],
    attempt: Attempt,
    place: Place,
) -> Worked | Failed:
    """One attempt: write the prompt down, run the command, read how it went."""
    reading = linger_s is not None
    end = await prompted(
        argv,
        attempt,
        place,
        way=way,
        linger_s=linger_s,
        finished=_finished if reading else None,
        observe=place.hear,
    )
    if isinstance(end, Failed):
        return end
    said = last_result(end) if reading else None
    return outcome(end, said, idle_s=place.idle_s, now=datetime.now().astimezone(), own=own)


def _finished(line: bytes) -> bool:
    return b'"result"' in line and read(line) is not None
