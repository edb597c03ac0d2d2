"""Findings of linters: ruff's JSON, eslint's JSON, any JSON array of findings, or `file:line:column: message` lines.

Rule: whatever the linter lists counts, also what has no rule (a file it could not even parse); what it did not say
is not assumed. Nothing printed is no evidence of a clean tree.

Formats: `ruff check --output-format json` (0.1 to 0.17), https://eslint.org/docs/latest/use/formatters/#json.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from loopwright.errors import BadEvidence
from loopwright.evidence import strict_json
from loopwright.evidence.text import decoded, one_line, plain

Format = Literal["auto", "ruff", "eslint", "json", "text"]

KEPT = 200  # findings kept; all are counted
_MOST = 300_000
_PARSE_RULES = {"invalid-syntax", "syntax-error", "E902", "E999"}  # the file was not linted
_LINE = re.compile(r"^(?P<path>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)?\s*(?P<message>\S.*)$")
_PATH = ("path", "file", "filename", "filePath", "file_path", "fileName")
_RULE = ("rule", "code", "ruleId", "rule_id", "check_name", "symbol", "check")
_MESSAGE = ("message", "msg", "description", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding; `syntax`: the file could not be parsed, so nothing else in it was checked."""

    path: str
    rule: str
    message: str
    line: int | None = None
    column: int | None = None
    syntax: bool = False

    def __str__(self) -> str:
        where = ":".join(str(p) for p in (self.path, self.line, self.column) if p is not None)
        return one_line(f"{where} {self.rule} {self.message}", 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a linter found. `count` is all that counts, `items` the first 200 (files that cannot be parsed first).

    `ids` name them without line numbers, which move with every edit. `warnings` (eslint's severity 1) do not count.
    `files` is how many files were checked, `None` when the report does not say. `chatter`: text around the JSON.
    `unchecked`: why not all was checked, which never passes. `suppressed` ones do not count and are shown.
    """

    count: int
    items: tuple[Finding, ...]
    ids: tuple[str, ...]
    syntax: int = 0
    warnings: int = 0
    files: int | None = None
    chatter: str = ""
    unchecked: str = ""
    suppressed: int = 0


def read(
    data: bytes, name: str, form: Format = "auto", *, root: Path | None = None, warnings: bool = False
) -> Findings:
    """The findings in `data`, with paths relative to `root`; with `warnings`, eslint's warnings count as well.

    Raises BadEvidence: `no_output` (nothing printed), `malformed` (no such format), `inconsistent` (eslint counts
    errors it does not list), and those of `strict_json`.
    """
    if not data.strip():
        raise BadEvidence("no_output", f"{name} is empty: a linter that checked something says so")
    if form == "text":
        return gathered(_text(data, name), root)
    document, chatter = strict_json.only_value(data, name)
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise BadEvidence("malformed", f"{name} is not a list of findings")
    if form == "auto":
        form = _recognised(document)
    if form == "eslint":
        return _eslint(document, name, root, chatter, strict=warnings)
    found = [_ruff(item, name) if form == "ruff" else _generic(item, name) for item in document]
    return gathered(found, root, chatter=chatter)


def _recognised(document: Sequence[dict[str, Any]]) -> Literal["ruff", "eslint", "json"]:
    if document and all("filePath" in item and "messages" in item for item in document):
        return "eslint"
    if all("filename" in item and "location" in item and "code" in item for item in document):
        return "ruff"
    return "json"


def _ruff(item: dict[str, Any], name: str) -> Finding:
    """Ruff's finding; a file that cannot be parsed has the code null, `syntax-error` or `invalid-syntax` by version."""
    if "filename" not in item or "message" not in item:
        raise BadEvidence("malformed", f"{name} is not ruff's JSON: an entry without filename or message")
    code = item.get("code")
    rule = str(code) if code else "syntax-error"
    at = item.get("location")
    at = at if isinstance(at, dict) else {}
    return Finding(
        path=str(item["filename"] or "(no file)"),
        rule=rule,
        message=str(item["message"]),
        line=_line(at.get("row")),
        column=_line(at.get("column")),
        syntax=not code or rule in _PARSE_RULES,
    )


def _eslint(
    document: Sequence[dict[str, Any]], name: str, root: Path | None, chatter: str, *, strict: bool
) -> Findings:
    """ESLint's result: severity 2 counts, as it does for eslint's own exit code; a fatal message always does."""
    found: list[Finding] = []
    warnings = claimed = 0
    for file in document:
        messages = file.get("messages")
        if "filePath" not in file or not isinstance(messages, list):
            raise BadEvidence(
                "malformed", f"{name} is not eslint's JSON: an entry without filePath or messages"
            )
        claimed += _line(file.get("errorCount")) or 0
        for message in messages:
            if not isinstance(message, dict):
                raise BadEvidence("malformed", f"{name} is not eslint's JSON: a message that is no object")
            fatal = bool(message.get("fatal"))
            if message.get("severity") == 1 and not fatal and not strict:
                warnings += 1
                continue
            found.append(
                Finding(
                    path=str(file["filePath"]),
                    rule=str(message.get("ruleId") or ("parse-error" if fatal else "(no rule)")),
                    message=str(message.get("message", "")),
                    line=_line(message.get("line")),
                    column=_line(message.get("column")),
                    syntax=fatal,
                )
            )
    if claimed and not found:
        raise BadEvidence("inconsistent", f"{name} counts {claimed} errors and lists none")
    return gathered(found, root, warnings=warnings, files=len(document), chatter=chatter)


def _generic(item: dict[str, Any], name: str) -> Finding:
    """A finding of a linter we do not know: it must at least name a file or a message."""
    where = item.get("location")
    nested = {**where, **item} if isinstance(where, dict) else item
    path, message = _first(nested, _PATH), _first(nested, _MESSAGE)
    if not path and not message:
        keys = ", ".join(list(item)[:6]) or "no keys"
        raise BadEvidence("malformed", f"{name} holds something that is no finding ({keys})")
    lines = nested.get("lines")
    begin = lines.get("begin") if isinstance(lines, dict) else None
    return Finding(
        path=path or "(no file)",
        rule=_first(nested, _RULE) or "(no rule)",
        message=message,
        line=next((n for k in ("line", "row", "lineNumber") if (n := _line(nested.get(k)))), _line(begin)),
        column=_line(nested.get("column")),
    )


def _first(item: dict[str, Any], keys: Sequence[str]) -> str:
    return next((str(item[key]) for key in keys if isinstance(item.get(key), str | int) and item[key]), "")


def _text(data: bytes, name: str) -> list[Finding]:
    """Lines as compilers write them; the first word of the message is the rule where it looks like one."""
    found: list[Finding] = []
    for line in decoded(data, name).splitlines():
        must_be_few(len(found), name)
        if m := _LINE.match(line):
            first, _, rest = m["message"].partition(" ")
            coded = bool(rest) and re.fullmatch(r"[A-Z]+[0-9]+:?", first) is not None
            found.append(
                Finding(
                    path=m["path"],
                    rule=first.rstrip(":") if coded else "(no rule)",
                    message=rest if coded else m["message"],
                    line=place(m["line"]),
                    column=place(m["column"]),
                )
            )
    return found


def place(digits: str | None) -> int | None:
    """The number of a line or column as a report writes it; of one that no file has, its first digits."""
    return None if digits is None else int(digits[:9])


def must_be_few(count: int, name: str) -> None:
    """BadEvidence `too_large` for more findings than anybody will ever read."""
    if count > _MOST:
        raise BadEvidence("too_large", f"{name} lists more than {_MOST:,} findings")


def _line(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def gathered(
    found: Sequence[Finding],
    root: Path | None,
    *,
    warnings: int = 0,
    files: int | None = None,
    chatter: str = "",
) -> Findings:
    """These findings with paths relative to `root`, ordered: files that cannot be parsed first, then by place; the same tree gives the same order."""
    prefixes = tuple({f"{root}/", f"{root.resolve()}/"} - {"//"}) if root else ()
    items = sorted(
        (_cleaned(f, prefixes) for f in found),
        key=lambda f: (not f.syntax, f.path, f.line or 0, f.column or 0, f.rule),
    )
    seen: Counter[str] = Counter()
    ids = []
    for item in items[:KEPT]:
        id_ = f"{item.path}: {item.rule}"
        seen[id_] += 1
        ids.append(id_ if seen[id_] == 1 else f"{id_} ({seen[id_]})")
    return Findings(
        count=len(items),
        items=tuple(items[:KEPT]),
        ids=tuple(ids),
        syntax=sum(item.syntax for item in items),
        warnings=warnings,
        files=files,
        chatter=one_line(plain(chatter), 500),
    )


def _cleaned(found: Finding, prefixes: tuple[str, ...]) -> Finding:
    path = plain(found.path)
    for prefix in prefixes:
        path = path.removeprefix(prefix)
    return Finding(
        path=path[:300],
        rule=plain(found.rule)[:80],
        message=plain(found.message)[:600],
        line=found.line,
        column=found.column,
        syntax=found.syntax,
    )
