"""Texts that a loop takes from files: its goal, and the template of its prompts.

Rule: each is read once, at the start, and it is the text that goes on record. A placeholder is one known lower-case
word alone in braces; `{{word}}` is the text `{word}`, and other braces stay. What is put in is never looked at again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from loopwright.readers import Fault, WrongError, hint, text, wrong

PLACEHOLDERS: Final = (
    "goal",
    "iteration",
    "limits",
    "feedback",
    "previous",
    "best",
    "history",
    "notes",
)
MOST_BYTES: Final = 4 << 20  # of a goal or a template
MOST_TIMES: Final = 10  # that one placeholder stands in a template: its text may be long
_WORD: Final = re.compile(r"\{\{([a-z_]+)\}\}|\{([a-z_]+)\}")


def read_goal(goal: str, folder: Path) -> str:
    """The goal; for `@FILE`, a path below `folder`, what the file says. WrongError when it cannot be read."""
    if not goal.startswith("@"):
        return goal
    return _read(folder / goal[1:].strip(), "a goal that begins with @ names a file").strip()


def read_template(prompt: str, folder: Path) -> str:
    """The template: what the file `prompt` says, a path below `folder`; a text with a line break is one itself.

    It ends with a line break, so that reading it again gives the same. WrongError for a file that cannot be read
    and for every placeholder that is none, with its line.
    """
    inline = "\n" in prompt
    found = prompt if inline else _read(folder / prompt.strip(), "prompt names the file of a template")
    if faults := list(_faults(found, "" if inline else f"{prompt.strip()}:")):
        raise WrongError(*faults)
    return f"{found.strip()}\n"


def used(template: str) -> frozenset[str]:
    """The placeholders that stand in a template."""
    return frozenset(found[2] for found in _WORD.finditer(template) if found[2])


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with these values in the place of its placeholders."""
    return _WORD.sub(
        lambda found: f"{{{found[1]}}}" if found[1] else values.get(found[2], found[0]), template
    )


def _read(path: Path, what: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) <= MOST_BYTES:
            return text(data.decode("utf-8-sig"))
        why = f"{path} is larger than {MOST_BYTES >> 20} MB"
    except OSError as error:
        why = f"{path}: {error.strerror}"
    except UnicodeDecodeError:
        why = f"{path} is not UTF-8 text"
    except WrongError:
        why = f"{path} is empty or no text"
    raise wrong(f"{why} ({what})")


def _faults(template: str, file: str) -> Iterator[Fault]:
    """What is wrong with the placeholders, each with its line."""
    times: Counter[str] = Counter()
    for found in _WORD.finditer(template):
        if not (word := found[2]):
            continue
        times[word] += 1
        line = template.count("\n", 0, found.start()) + 1
        where = f"{file}{line}" if file else f"line {line}"
        if word not in PLACEHOLDERS and times[word] == 1:
            near = hint(word, PLACEHOLDERS) or f"; there are {', '.join(PLACEHOLDERS)}"
            yield (
                "",
                f"{where}: unknown placeholder {{{word}}}{near} (write {{{{{word}}}}} for the text itself)",
            )
        elif times[word] == MOST_TIMES + 1:
            yield "", f"{where}: {{{word}}} stands more than {MOST_TIMES} times"
