"""The gate on the change itself: how large it is, what it touches, and what it must not bring in.

Rule: it is judged by git objects of our own, which nothing in the tree can hide from; what was not looked at to its
end is an error. A reason names a file and a line, never a secret.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import nextafter

from loopwright.core.judge import Rule
from loopwright.core.values import Score
from loopwright.errors import BadEvidence, ConfigError
from loopwright.evidence import patch
from loopwright.evidence.secret_text import secrets as secrets_in
from loopwright.evidence.text import clip, one_line, plain
from loopwright.ports import Changes, Gate, Measure, Place, Seen
from loopwright.sites import glob_pattern

_REASON = 3800  # characters; 4 KB of it reach the next prompt
_LISTED = 20  # broken rules named in a reason
_KEPT = 200  # and in the failing items

Rules = Sequence[tuple[str, re.Pattern[bytes]]]


def diff(
    *,
    max_lines: int | None = None,
    max_files: int | None = None,
    forbid: tuple[str, ...] = (),
    forbid_text: tuple[str, ...] = (),
    secrets: bool = True,
) -> Gate:
    """A gate that passes when the change since snapshot 0 breaks no rule.

    `max_lines` counts lines added and removed, `max_files` files; files that gates leave do not count. `forbid` are
    globs of paths that may not change, `forbid_text` regular expressions that no added line may match, `secrets` looks
    for added secrets and secret-looking files. Value: the smaller of max ÷ lines and max ÷ files, at most 1, and divided
    by 1 + the number of other broken rules. ConfigError for a glob or expression that is none, or no rule at all.
    """
    for name, most in (("max_lines", max_lines), ("max_files", max_files)):
        if most is not None and most < 1:
            raise ConfigError(f"diff: {name} is {most}; it is 1 or more")
    if max_lines is None and max_files is None and not (forbid or forbid_text or secrets):
        raise ConfigError("diff: no rule: give max_lines, max_files, forbid, forbid_text or secrets")
    paths = _compiled("forbid", forbid, lambda glob: glob_pattern(os.fsencode(glob)))
    texts = _compiled("forbid_text", forbid_text, lambda text: re.compile(text.encode()))

    async def check(seen: Seen, place: Place) -> Measure:
        changes = await asyncio.to_thread(seen.changes)
        if changes is None:
            raise BadEvidence(
                "no_snapshots",
                "there is no diff without snapshots: they need git on PATH and a workspace that is not none",
            )
        if not changes.whole:
            raise BadEvidence(
                "too_large", f"the change is larger than {len(changes.patch):,} bytes: not all was looked at"
            )
        known = {
            text: name for text, name in place.redact.literals.items() if secrets and text in changes.patch
        }
        look = _Look(paths=paths, texts=texts, secrets=secrets, known=known)
        await asyncio.to_thread(look.over, changes)
        return look.score(max_lines, max_files)

    return Gate(rule=Rule(name="diff"), check=check)


def _compiled(name: str, given: Sequence[str], compile_: Callable[[str], re.Pattern[bytes]]) -> Rules:
    found = []
    for text in given:
        try:
            found.append((text, compile_(text)))
        except re.error as error:
            raise ConfigError(f"diff: {name}: {text!r} cannot be read: {error}") from None
    return tuple(found)


@dataclass(slots=True, kw_only=True)
class _Look:
    """What was found in a change: its size, and the rules it breaks as (item, reason)."""

    paths: Rules
    texts: Rules
    secrets: bool
    known: dict[bytes, str]  # values of secret variables that are somewhere in the patch
    files: int = 0
    lines: int = 0
    binary: int = 0
    broken: list[tuple[str, str]] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)
    before: set[bytes] = field(default_factory=set)  # secrets in removed lines
    after: list[tuple[bytes, str, str]] = field(default_factory=list)

    def over(self, changes: Changes) -> None:
        """Looks at every file and line once."""
        names = patch.paths(changes.raw)
        for path in (*names, *changes.secrets):
            for glob, pattern in self.paths:
                if pattern.fullmatch(os.fsencode(path)):
                    self._breaks(f"forbid: {path}", f"{path}: may not be changed ({glob})")
        tallies: dict[str, patch.Tally] = {}
        for line in patch.lines(changes.patch):
            tallies.setdefault(line.path, patch.Tally()).add(line)
            self._line(line)
        for secret, item, reason in self.after:
            if secret not in self.before:  # it was only moved
                self._breaks(item, reason)
        for path in changes.secrets if self.secrets else ():
            self._breaks(f"secret: {path}", f"{path}: a file of this name holds secrets; remove it")
        own = {path for path in names if _shown(path) in changes.of_gates}
        self.files = len(names) - len(own) + len(changes.secrets)
        self.lines = sum(tally.lines for path, tally in tallies.items() if path not in own)
        self.binary = sum(tally.binary for path, tally in tallies.items() if path not in own)

    def _line(self, line: patch.Line) -> None:
        where = f"{line.path}:{line.number}"
        if line.number:
            for text, pattern in self.texts:
                if pattern.search(line.text):
                    self._breaks(f"forbid_text: {line.path}: {text}", f"{where}: may not be added ({text})")
        if self.secrets:
            for kind, secret in self._secrets(line):
                if line.number:
                    self.after.append((secret, f"secret: {line.path}", f"{where}: {kind}"))
                else:
                    self.before.add(secret)

    def _secrets(self, line: patch.Line) -> Iterator[tuple[str, bytes]]:
        for text, name in self.known.items():
            if text in line.text:
                yield f"holds the value of {name}", text
        yield from secrets_in(line.path, line.text)

    def _breaks(self, item: str, reason: str) -> None:
        self.count[item] += 1
        if len(self.broken) < _KEPT:
            n = self.count[item]
            self.broken.append((item if n == 1 else f"{item} ({n})", reason))

    def score(self, max_lines: int | None, max_files: int | None) -> Score:
        """How far the change is within its rules."""
        sizes = (("lines", self.lines, max_lines), ("files", self.files, max_files))
        over = [
            (f"max_{what}", f"{n:,} {what} changed, {most:,} may be")
            for what, n, most in sizes
            if most and n > most
        ]
        value = min([1.0, *(most / n for _, n, most in sizes if most and n > most)])
        value /= 1 + self.count.total()
        told = [reason for _, reason in (*over, *self.broken[:_LISTED])]
        if (rest := self.count.total() - _LISTED) > 0:
            told.append(f"and {rest:,} more")
        size = f"{self.lines:,} lines in {self.files:,} files" + (
            f", {self.binary} binary" if self.binary else ""
        )
        return Score(
            value if not told else min(value, nextafter(1.0, 0.0)),
            clip("\n".join(one_line(plain(line), 300) for line in told or [size]), _REASON),
            status="fail" if told else "pass",
            raw=float(self.lines),
            unit="lines",
            direction="min",
            graded=True,
            failing=tuple(one_line(plain(item), 300) for item, _ in (*over, *self.broken)),
            evidence={"lines": self.lines, "files": self.files, "binary": self.binary},
        )


def _shown(path: str) -> str:
    return os.fsencode(path).decode(errors="replace")
