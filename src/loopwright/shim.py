"""Where the shim is that stands above every program, as Python starts it soonest.

Rule: a script that is named on a command line Python compiles at each start, 3 ms for every agent and gate. It is named
as compiled where Python would keep that for any module, and only while source and compiled form agree.
"""

from __future__ import annotations

import struct
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("_shim.py")


def shim() -> str:
    """The path of the shim for the command line of a Python like this one."""
    compiled = _compiled()
    return str(
        compiled if compiled is not None and compiled.exists() else SOURCE
    )  # somebody may tidy up meanwhile


@cache
def _compiled() -> Path | None:
    """The compiled shim, made anew when it is not as its source is; `None` when Python keeps none."""
    try:
        SourceFileLoader("_shim", str(SOURCE)).get_code("_shim")
        compiled = Path(cache_from_source(str(SOURCE)))
        magic, flags, when, size = struct.unpack("<4sLLL", compiled.read_bytes()[:16])
        source = SOURCE.stat()
    except (OSError, ImportError, NotImplementedError, struct.error):
        return None
    agrees = (when, size) == (int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF)
    return compiled if magic == MAGIC_NUMBER and not flags and agrees else None
