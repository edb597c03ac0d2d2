"""Python packages that a folder apart would take from the user's checkout: editable installs.

Rule: files are read and nothing is run. A gate that imports the checkout in place of the copy judges the wrong files,
and would pass work that was never done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_FILE_BYTES: Final = 1 << 20
_PYTHONS: Final = ("python", "python3")


def leading_back(path: str, python_path: str, *, checkout: Path, root: Path) -> tuple[str, ...]:
    """What the first Python on `path` would import from `checkout` and not from `root`, a copy of it: `what (where)`.

    `python_path` is PYTHONPATH, which any Python heeds.
    """
    found = [("PYTHONPATH", root / entry) for entry in python_path.split(os.pathsep) if entry]
    inside = [root]
    if (prefix := _prefix(path, root)) is not None:
        found += (each for site in _sites(prefix) for each in _installed(site))
        inside.append(prefix)
    led = (f"{name} ({place})" for name, place in found if _leads(place, checkout, inside))
    return tuple(dict.fromkeys(led))


def _leads(place: Path, checkout: Path, inside: list[Path]) -> bool:
    try:
        real = Path(os.path.realpath(place))
    except ValueError:  # a NUL: no place
        return False
    return real.is_relative_to(checkout) and not any(real.is_relative_to(folder) for folder in inside)


def _prefix(path: str, root: Path) -> Path | None:
    """The installation or virtual environment that the first Python belongs to."""
    for folder in filter(None, path.split(os.pathsep)):
        for name in _PYTHONS:
            python = root / folder / name
            if not python.is_file():
                continue
            if (python.parent.parent / "pyvenv.cfg").is_file():
                return python.parent.parent.resolve()
            return python.resolve().parent.parent
    return None


def _sites(prefix: Path) -> list[Path]:
    return sorted({*prefix.glob("lib*/python3*/*-packages"), *prefix.glob("local/lib/python3*/*-packages")})


def _installed(site: Path) -> Iterator[tuple[str, Path]]:
    """What `site` does not hold itself but leads to: name and folder."""
    for file in sorted(site.glob("*.dist-info/direct_url.json")):
        try:
            said = json.loads(_text(file))
            editable = said["dir_info"]["editable"] is True
            url = urlsplit(said["url"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if editable and url.scheme == "file":
            yield file.parent.name.split("-")[0], Path(unquote(url.path))
    for file in sorted((*site.glob("*.egg-link"), *site.glob("*.pth"))):
        for line in _text(file).splitlines():
            if line.strip() not in {"", "."} and not line.startswith(("#", "import ", "import\t")):
                yield file.name, site / line.strip()


def _text(file: Path) -> str:
    try:
        with file.open("rb") as content:
            return content.read(_FILE_BYTES).decode(errors="replace")
    except OSError:
        return ""
