"""Readers: small functions that turn a value somebody wrote into one that can be used, or say what is wrong.

Rule: a reader never stops at the first fault, never guesses, and gives back read-only values. Reading
what a reader gave is the same again.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, Final, NoReturn, TypeAlias

from loopwright import units
from loopwright.core.values import MOST
from loopwright.units import shown

Fault: TypeAlias = tuple[str, str]  # the key, dotted, and what is wrong with its value
Read: TypeAlias = Callable[[Any], Any]
COUNTED: Final = 10**12  # no count is larger; numbers end at the core's MOST
LONGEST_S: Final = 3650 * 86400.0


class ReadOnly(dict[str, Any]):
    """A table nobody can change; still a dict, because JSON writers know no other."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a loop is immutable: make another one with dataclasses.replace")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadOnly, (dict(self),)


class WrongError(ValueError):
    """A value that cannot be used: what is wrong, for each key inside it ("" is the value itself)."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = faults
        super().__init__("; ".join(f"{key}: {what}" if key else what for key, what in faults))


def wrong(what: str) -> WrongError:
    """A fault of the value itself."""
    return WrongError(("", what))


def inside(key: str, sub: str) -> str:
    """The full name of `sub` inside `key`."""
    return key + sub if not sub or not key or sub.startswith("[") else f"{key}.{sub}"


def take(faults: list[Fault], key: str, read: Read, value: object) -> Any:
    """What `read` makes of `value`; `None` with its faults added when it cannot be used."""
    try:
        return read(value)
    except WrongError as bad:
        faults.extend((inside(key, sub), what) for sub, what in bad.faults)
        return None


def hint(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known word, else nothing."""
    near = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown(word: str, known: Iterable[str], what: str = "key") -> str:
    """What is wrong with a word nobody knows: the nearest right one, or all of them."""
    known = list(known)
    near = hint(word, known)
    return f"unknown {what}{near}" if near or not known else f"unknown {what}; known here: {', '.join(known)}"


def text(value: object) -> str:
    """A text that says something."""
    if not isinstance(value, str):
        raise wrong(f"expected text, got {shown(value)}")
    if not value.strip():
        raise wrong("an empty text")
    if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise wrong("a text with a NUL character or bytes that are not UTF-8")
    return value


def flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise wrong(f"expected true or false, got {shown(value)}")
    return value


def one_of(*words: str) -> Read:
    """One of these words."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            near = hint(value, words) if isinstance(value, str) else ""
            raise wrong(f"expected one of {', '.join(words)}, got {shown(value)}{near}")
        return value

    return read


def finite(value: float) -> bool:
    """Whether this is a number that JSON and a float can hold."""
    return abs(value) <= 2**63 if isinstance(value, int) else isfinite(value)


def count(least: int = 1, most: int = COUNTED) -> Read:
    """A whole number from `least` to `most`."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong(f"expected a whole number, got {shown(value)}")
        if not least <= value <= most:
            raise wrong(
                f"{shown(value)} is {'below' if value < least else 'above'} {least if value < least else most}"
            )
        return value

    return read


def number(*, least: float | None = None, most: float = MOST) -> Read:
    """A finite number from `least` (else above 0) to `most`, as a float."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(f"expected a number, got {shown(value)}")
        if not finite(value):
            raise wrong(f"{shown(value)} is not a finite number")
        if least is not None and value < least:
            raise wrong(f"{value!r} is below {least:g}")
        if least is None and value <= 0:
            raise wrong(f"{value!r} is not above 0")
        if value > most:
            raise wrong(f"{value!r} is above {most:g}")
        return float(value)

    return read


def length(value: object) -> float:
    """A duration above zero, in seconds."""
    try:
        found = units.seconds(value)
    except ValueError as error:
        raise wrong(str(error)) from None
    if not 0 < found <= LONGEST_S:
        raise wrong(f"{shown(value)} is {'not above 0' if found <= 0 else 'more than ten years'}")
    return found


def list_of(read: Read) -> Read:
    """A list, each item read by `read`, as a tuple."""

    def read_all(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise wrong(f"expected a list, got {shown(value)}")
        faults: list[Fault] = []
        items = tuple(take(faults, f"[{i}]", read, item) for i, item in enumerate(value))
        if faults:
            raise WrongError(*faults)
        return items

    return read_all


def table(
    reads: Mapping[str, Read],
    *,
    rest: Read | None = None,
    build: Read | None = None,
    stray: Callable[[str, Iterable[str]], str] = unknown,
) -> Read:
    """A table with these keys, read-only, or what `build` makes of it; others by `rest`, else `stray` says."""

    def read(value: object) -> Any:
        if is_dataclass(value) and not isinstance(value, type):  # what an earlier read built
            value = {f.name: getattr(value, f.name) for f in fields(value)}
        if not isinstance(value, Mapping):
            raise wrong(f"expected a table, got {shown(value)}")
        faults: list[Fault] = []
        found = {}
        for key, item in value.items():
            how = reads.get(key, rest)
            if how is None:
                faults.append((str(key), stray(str(key), reads)))
            else:
                found[key] = take(faults, str(key), how, item)
        if faults:
            raise WrongError(*faults)
        try:
            return build(found) if build else ReadOnly(found)
        except ValueError as error:  # what the value itself does not allow
            raise error if isinstance(error, WrongError) else wrong(str(error)) from None

    return read


def plain(value: object) -> Any:
    """A value made of texts, numbers, lists and tables, read-only and finite."""
    if isinstance(value, Mapping):
        return table({}, rest=plain)(value)
    if isinstance(value, list | tuple):
        return list_of(plain)(value)
    if isinstance(value, int | float) and not finite(value):
        raise wrong(f"{shown(value)} is not a finite number")
    if value is not None and not isinstance(value, str | bool | int | float):
        raise wrong(f"expected text, a number, a list or a table, got {shown(value)}")
    return value


def thawed(value: Any) -> Any:
    """The JSON form of what `plain` and the other readers made: dicts and lists of its own."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: thawed(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    return [thawed(item) for item in value] if isinstance(value, list | tuple) else value
