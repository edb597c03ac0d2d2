"""Where things were said: the line of each key of a TOML text, and faults told with their places.

Rule: it reads only what `tomllib` has accepted, and it may know less than all: a key without a place has
the place of what holds it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from loopwright.readers import Fault

_TOKEN: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?!")|\'\'\'.*?\'\'\'(?!\')|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''
    r'|#[^\n]*|[\[\]{},=\n]|[^\s\[\]{},="\'#]+',
    re.DOTALL,
)


@dataclass(slots=True)
class _Scan:
    """Where the scan stands: the table it is in, its tables so far, and what it has found."""

    table: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)


def lines(text: str) -> dict[str, int]:
    """The line, from 1, of every table, key and item of a list of keys: `limits.budget`, `gate[1].weight`, `gates[0]`."""
    scan = _Scan()
    for statement in _statements(text):
        words = [word for word, _ in statement]
        line = statement[0][1]
        if words[0] == "[":
            _header(scan, words, line)
        elif "=" in words:
            at = words.index("=")
            key = _join(scan.table, _key(words[:at]))
            scan.found.setdefault(key, line)
            _items(scan, key, statement[at + 1 :])
    return scan.found


def _statements(text: str) -> Iterator[list[tuple[str, int]]]:
    """The tokens of each header or assignment, with their lines; brackets may span lines."""
    statement: list[tuple[str, int]] = []
    depth, line, at = 0, 1, 0
    for match in _TOKEN.finditer(text):
        word = match[0]
        line += text.count("\n", at, match.start())
        at = match.start()
        depth += (word in {"[", "{"}) - (word in {"]", "}"})
        if word == "\n" and depth <= 0:
            if statement:
                yield statement
            statement = []
        elif word != "\n" and not word.startswith("#"):
            statement.append((word, line))
    if statement:
        yield statement


def _header(scan: _Scan, words: list[str], line: int) -> None:
    many = words[:2] == ["[", "["]
    name = _key([word for word in words if word not in {"[", "]"}])
    for part in sorted(scan.counts, key=len, reverse=True):  # inside the last of a list of tables
        if name.startswith(f"{part}."):
            name = f"{part}[{scan.counts[part] - 1}]{name[len(part) :]}"
            break
    if many:
        scan.counts[name] = scan.counts.get(name, 0) + 1
        scan.found.setdefault(name, line)
        name = f"{name}[{scan.counts[name] - 1}]"
    scan.found.setdefault(name, line)
    scan.table = name


def _items(scan: _Scan, key: str, value: list[tuple[str, int]]) -> None:
    """The lines of a list's items, which may stand on several."""
    if not value or value[0][0] != "[":
        return
    depth, number, fresh = 0, 0, False
    for word, line in value:
        if depth == 1 and word == ",":
            number, fresh = number + 1, True
        elif depth == 1 and word != "]" and fresh:
            scan.found[f"{key}[{number}]"] = line
            fresh = False
        depth += (word in {"[", "{"}) - (word in {"]", "}"})
        if depth == 1 and word == "[" and number == 0:
            fresh = True


def _key(words: list[str]) -> str:
    """A dotted key as we write it, quotes taken off."""
    text = "".join(words)
    if '"' not in text and "'" not in text:
        return text
    try:
        table = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:  # pragma: no cover - the text was accepted as a whole
        return text
    parts = []
    while isinstance(table, dict):
        ((part, table),) = table.items()
        parts.append(part)
    return ".".join(parts)


def _join(table: str, key: str) -> str:
    return f"{table}.{key}" if table else key


def holders(key: str) -> list[str]:
    """A dotted key and what holds it, innermost first: `gate[0].weight`, `gate[0]`, `gate`."""
    return [key[:i] for i in range(len(key), 0, -1) if i == len(key) or key[i] in ".["]


def told(faults: Iterable[Fault], places: Mapping[str, str]) -> list[str]:
    """Faults as messages with their places, top of the file first, those of the whole (place of `""`) last."""
    lines = []
    for key, what in faults:
        holder = next((part for part in holders(key) if part in places), "")
        place = places.get(holder, "")
        shown = key
        if place.startswith("--"):  # an option says itself which key it sets
            shown = key[len(holder) :].lstrip(".")
            if shown.startswith("["):
                place, shown = place + shown, ""
        at = re.search(r":(\d+)$", place)
        number = float(at[1]) if at else float("inf")
        lines.append((number, ": ".join(part for part in (place, shown, what) if part)))
    return [line for _, line in sorted(lines, key=lambda each: each[0])]
