"""Starting a program with the prompt of an attempt.

Rule: the prompt reaches it whole, on stdin, in a file or as one word, and never through a shell.
"""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

from loopwright import prompt as prompts
from loopwright.core.values import Attempt, Failed
from loopwright.errors import NotStartable
from loopwright.ports import Place
from loopwright.supervise import Exit, Process, supervise

Prompt = Literal["stdin", "file", "arg"]

ARGUMENT_BYTES: Final = 128 << 10  # Linux takes no longer argument (MAX_ARG_STRLEN)
TEXT: Final = "{prompt}"
FILE: Final = "{prompt_file}"


def probe(argv: tuple[str, ...], place: Place) -> str:
    """The command as it will run, its program resolved; NotStartable names the nearest fix."""
    program = argv[0]
    path = place.env.get("PATH", os.defpath)
    found = place.root / program if "/" in program else shutil.which(program, path=path)
    if found is None:
        raise NotStartable(f"there is no program {program!r} on PATH: {_nearest(program, path, place.root)}")
    if not Path(found).is_file():
        raise NotStartable(f"there is no program {found}: a path with a / starts at {place.root}")
    if not os.access(found, os.X_OK):
        raise NotStartable(f"{found} is not executable: chmod +x it, or name its interpreter before it")
    return shlex.join((str(found), *argv[1:]))


def _nearest(program: str, path: str, root: Path) -> str:
    if (root / program).is_file():
        return f"write ./{program} for the file in {root}"
    names: set[str] = set()
    for folder in path.split(os.pathsep):
        try:
            names.update(os.listdir(folder or "."))  # noqa: PTH208 - names only, and PATH is long
        except OSError:
            continue
    near = difflib.get_close_matches(program, sorted(names), n=1)
    return f"did you mean {near[0]!r}?" if near else "install it, or write its path"


async def prompted(
    argv: tuple[str, ...],
    attempt: Attempt,
    place: Place,
    *,
    way: Prompt = "stdin",
    env: Mapping[str, str] | None = None,
    linger_s: float | None = None,
    idle_cpu: float = 0.01,
    finished: Callable[[bytes], bool] | None = None,
    each: Callable[[bytes], bool] | None = None,
    stuck: Callable[[], bool] | None = None,
    observe: Callable[[bytes], None] | None = None,
) -> Exit | Failed:
    """How the program ended that got the prompt this `way`, or why it could not be started.

    `finished`, `each`, `stuck`, `observe`, `linger_s` and `idle_cpu` as for `supervise`; `env` comes on top of the place's.
    """
    text = place.redact.text(prompts.prompt(attempt))
    feedback = place.redact.text(prompts.feedback(attempt))
    try:
        files = _write(text, feedback, place.artifacts.absolute())
    except OSError as error:
        return Failed(
            kind="permanent", message=f"the prompt cannot be written to {place.artifacts}: {error.strerror}"
        )
    full = _arguments(argv, way, text, str(files["LOOPWRIGHT_PROMPT_FILE"]))
    if any(len(os.fsencode(word)) >= ARGUMENT_BYTES for word in full):
        return Failed(
            kind="permanent",
            message=f'the prompt is too long for an argument ({len(text):,} characters): use prompt = "file" or "stdin"',
        )
    process = Process(
        argv=(*place.sandbox, *full),
        cwd=place.root,
        env={**place.env, **(env or {}), **{name: str(path) for name, path in files.items()}},
        log=place.artifacts / "agent.log",
        timeout_s=min(place.timeout_s, attempt.deadline_s),
        stdin=text.encode() if way == "stdin" else b"",
        idle_s=place.idle_s,
        idle_cpu=idle_cpu,
        grace_s=place.grace_s,
        linger_s=linger_s,
        finished=finished,
        each=each,
        active=place.active,
        stuck=stuck,
        redact=place.redact,
    )
    try:
        return await supervise(process, observe=observe)
    except NotStartable as error:
        return Failed(kind="permanent", message=str(error))


def _write(text: str, feedback: str, folder: Path) -> dict[str, Path]:
    """The prompt and the feedback as new files only we may read; the prompt's age is the attempt's."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "LOOPWRIGHT_PROMPT_FILE": folder / "prompt.md",
        "LOOPWRIGHT_FEEDBACK_FILE": folder / "feedback.md",
    }
    for path, content in zip(files.values(), (text, feedback), strict=True):
        path.unlink(missing_ok=True)  # it may be a link the last attempt left there
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
    return files


def _arguments(argv: tuple[str, ...], way: Prompt, text: str, path: str) -> tuple[str, ...]:
    """The words as they are run. The text is one whole word, so that nothing in it is read as an option."""
    full = tuple(text if way == "arg" and word == TEXT else word.replace(FILE, path) for word in argv)
    placed = any(word == TEXT or FILE in word for word in argv)
    return full if way != "arg" or placed else (*full, text)
