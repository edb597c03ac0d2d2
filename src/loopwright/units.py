"""Durations and sizes as people write them.

Rule: a bare number is seconds, or bytes; a text says its unit. Nothing is guessed and nothing is rounded.
"""

from __future__ import annotations

import re
from typing import Final

MANY: Final = 1e15
_NUMBER: Final = r"(\d+(?:\.\d+)?)"
_DURATION: Final = re.compile(
    rf"(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m(?!s))?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?", re.ASCII
)
_SECONDS: Final = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_SIZE: Final = re.compile(rf"{_NUMBER} ?(B|kB|KB|MB|GB|KiB|MiB|GiB)", re.ASCII)
_BYTES: Final = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}


def seconds(value: object) -> float:
    """The seconds in `value`: a number of them, or "90s", "30m", "2h", "1h30m", "1d", "500ms".

    `ValueError` says what is wrong; zero and negative numbers are the caller's to judge.
    """
    if isinstance(value, str):
        found = _DURATION.fullmatch(value)
        if not value or found is None:
            raise ValueError(
                f'{value!r} is not a duration; write "90s", "30m", "1h30m" or a number of seconds'
            )
        parts = zip(found.groups(), _SECONDS, strict=True)
        return sum(float(text) * unit for text, unit in parts if text is not None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        what = f"expected a duration, got {shown(value)}"
        raise ValueError(what)  # noqa: TRY004 - one error type for bad values
    if not abs(value) < MANY:  # false for NaN
        raise ValueError(f"{shown(value)} is not a finite number of seconds")
    return float(value)


def size(value: object) -> int:
    """The bytes in `value`: a number of them, or "64MB", "512KiB"; `ValueError` says what is wrong."""
    if isinstance(value, str):
        found = _SIZE.fullmatch(value)
        if found is None:
            raise ValueError(f'{value!r} is not a size; write "64MB", "512KiB" or a number of bytes')
        return int(float(found[1]) * _BYTES[found[2]])
    if isinstance(value, bool) or not isinstance(value, int):
        what = f"expected a size, got {shown(value)}"
        raise ValueError(what)  # noqa: TRY004 - one error type for bad values
    return value


def duration(length: float) -> str:
    """Seconds as `seconds` reads them: "30m", "1h30m", "1.5s", "500ms"."""
    if length < 1:
        return f"{length * 1000:g}ms"
    whole, rest = divmod(length, 60.0)
    hours, minutes = divmod(int(whole), 60)
    tail = f"{rest:.3f}".rstrip("0").rstrip(".")
    return "".join(
        (
            f"{hours}h" if hours else "",
            f"{minutes}m" if minutes else "",
            f"{tail}s" if tail != "0" else "",
        )
    )


def shown(value: object) -> str:
    """A value as an error message names it, in a loop file's words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) > MANY:
        return "a number of many digits"
    if isinstance(value, str | int | float):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}…"
    if isinstance(value, list | tuple):
        return "a list"
    return "a table" if hasattr(value, "keys") else f"a {type(value).__name__}"
