"""The gate that is a command: its exit status decides, and nothing it prints.

Rule: a command that was cut off, killed or could not be started has not judged: that is an error, not a fail.
"""

from __future__ import annotations

from dataclasses import replace

from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import ConfigError
from loopwright.gates._tool import Ran, judged, name_of, probe, said, source
from loopwright.ports import Gate, Measure, Place, Seen


def command(*, run: str | list[str], ok: tuple[int, ...] = (0,)) -> Gate:
    """A gate that passes when the command `run` exits with one of the codes in `ok`.

    Value 1 or 0, not graded. The reason of a fail is the end of what it said. ConfigError for what is no command.
    """
    if not ok or not all(0 <= code <= 255 for code in ok):
        raise ConfigError(f"command: ok is {list(ok)}; it lists exit codes, 0 to 255")
    origin = replace(source("command", run=run, report=None), stdout=False)  # only the exit status counts

    def judge(ran: Ran) -> Score:
        if ran.code in ok:
            return Score(1.0, f"exit {ran.code}" if ran.code else "", status="pass")
        return Score(0.0, said(ran, f"exit {ran.code}"), status="fail")

    async def check(seen: Seen, place: Place) -> Measure:
        return await judged(origin, seen, place, judge)

    return Gate(rule=Rule(name=name_of("command", run)), check=check, probe=probe(origin), python=True)
