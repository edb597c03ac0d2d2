"""The tables of a shared file that decide a gate, as one digest.

Rule: formatting and comments decide nothing; a file that cannot be parsed counts whole, and one with none of
its tables counts not at all.
"""

from __future__ import annotations

import configparser
import fnmatch
import hashlib
import json
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=64)
def deciding(name: str, data: bytes, tables: tuple[str, ...]) -> str | None:
    """The digest of these tables of the file called `name`; `None` when it has none of them."""
    try:
        text = data.decode("utf-8-sig")
        found = _ini(text, tables) if name.endswith((".cfg", ".ini", ".txt")) else _tree(name, text, tables)
    except (ValueError, configparser.Error, RecursionError):  # JSON, TOML and UTF-8 errors are ValueErrors
        return f"part:{hashlib.sha256(data).hexdigest()}"
    if not found:
        return None
    whole = json.dumps(found, sort_keys=True, default=str).encode("utf-8", "surrogatepass")
    return f"part:{hashlib.sha256(whole).hexdigest()}"


def _ini(text: str, tables: tuple[str, ...]) -> dict[str, Any]:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True, default_section="\0")
    parser.read_string(text)
    return {
        name: dict(parser.items(name))
        for name in parser.sections()
        if any(fnmatch.fnmatchcase(name, table) for table in tables)
    }


def _tree(name: str, text: str, tables: tuple[str, ...]) -> dict[str, Any]:
    document = tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
    found = {table: value for table in tables if (value := _at(document, table)) is not None}
    return {table: value for table, value in found.items() if value not in ({}, [])}


def _at(document: object, dotted: str) -> object:
    """What stands at a dotted key."""
    for part in dotted.split("."):
        if not isinstance(document, Mapping):
            return None
        document = document.get(part)
    return document
