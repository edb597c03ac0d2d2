"""What type checkers found: mypy's text or JSON lines, pyright's JSON, tsc's text.

Rule: errors count, notes and warnings do not. A checker that stopped (a file it could not read or parse, a
configuration it could not follow) has not checked the rest: that is never clean, whatever is allowed. What a checker
says at its end must be there and agree with what it listed.

Formats: https://mypy.readthedocs.io/en/stable/command_line.html ·
https://github.com/microsoft/pyright/blob/main/docs/command-line.md#json-output · tsc 3 to 7 without `--pretty`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from loopwright.errors import BadEvidence
from loopwright.evidence import strict_json
from loopwright.evidence.lint import Finding, Findings, gathered, must_be_few, place
from loopwright.evidence.text import decoded

Tool = Literal["mypy", "pyright", "tsc"]

_MYPY = re.compile(
    r"(?P<path>(?:[A-Za-z]:)?[^:\n]+?)(?::(?P<line>\d+))?(?::(?P<column>\d+))?(?::\d+:\d+)?: "
    r"(?P<severity>error|note|warning): (?P<message>.*)"
)
_MYPY_RULE = re.compile(r"[a-z][a-z0-9-]*\]")
_MYPY_FOUND = re.compile(
    r"Found (\d+) errors? in \d+ files? \((?:checked (\d+) source files?|(errors prevented.*))\)"
)
_MYPY_CLEAN = re.compile(r"Success: no issues found in (\d+) source files?")
_TSC = re.compile(
    r"(?:(?P<path>\S.*?)(?:\((?P<line>\d+),(?P<column>\d+)\): |:(?P<l2>\d+):(?P<c2>\d+) - ))?"
    r"error (?P<rule>TS(?P<code>\d+)): (?P<message>.*)"
)
_TSC_FILES = re.compile(r"Files:\s+(\d+)$")
_TSC_SYNTAX = range(1000, 2000)
_TSC_SETTINGS = (
    range(5000, 7000),
    range(18000, 18010),
)  # options, files that are not there, nothing to check


def read(
    data: bytes,
    name: str,
    tool: Tool,
    *,
    root: Path | None = None,
    ended_well: bool = False,
    warnings: bool = False,
) -> Findings:
    """What `tool` found, with paths relative to `root`; `ended_well`: it exited 0. With `warnings`, pyright's count too.

    Raises BadEvidence: `no_output` (nothing printed; tsc that ended well prints nothing), `malformed` (no such
    format), `incomplete` (its last line is missing), `inconsistent` (errors are counted and not listed), `no_files`
    (nothing was checked), `config` (only its configuration was found wrong), and those of `strict_json`.
    """
    if not data.strip() and not (tool == "tsc" and ended_well):
        raise BadEvidence("no_output", f"{name} is empty: a type checker says what it checked")
    if tool == "pyright":
        return _pyright(data, name, root, {"information"} if warnings else {"information", "warning"})
    lines = decoded(data, name).splitlines()
    return _mypy(lines, name, root, ended_well=ended_well) if tool == "mypy" else _tsc(lines, name, root)


def _mypy(lines: Sequence[str], name: str, root: Path | None, *, ended_well: bool) -> Findings:
    found: list[Finding] = []
    claimed: int | None = None
    files: int | None = None
    unchecked, as_json, blocked = "", False, ""
    for number, line in enumerate(lines, 1):
        must_be_few(len(found), name)
        if line.startswith("{"):
            as_json = True
            found += _mypy_json(line, f"line {number} of {name}")
        elif end := _MYPY_FOUND.fullmatch(line):
            claimed, files = (claimed or 0) + int(end[1][:9]), place(end[2])
            blocked = blocked or end[3] or ""
        elif end := _MYPY_CLEAN.fullmatch(line):
            claimed, files = claimed or 0, int(end[1][:9])
        elif (item := _MYPY.fullmatch(line)) and item["severity"] == "error":
            found.append(_mypy_line(item))
    syntax = [item for item in found if item.syntax]
    if blocked or (syntax and claimed is None):
        unchecked = "errors prevented further checking"
        found = [replace(item, syntax=True) for item in found]
    if claimed and not found:
        what = f"; {blocked}" if blocked else ""
        raise BadEvidence("inconsistent", f"{name} counts {claimed} errors and lists none{what}")
    if claimed is None and not found and not (as_json and ended_well):
        raise BadEvidence("incomplete", f"{name} lacks mypy's last line (Success or Found … errors)")
    if claimed is None and not as_json and not syntax:
        unchecked = "mypy's last line (Found … errors) is missing"
    if files == 0 and not found:
        raise BadEvidence("no_files", f"{name}: mypy checked no file")
    listed = gathered(found, root, files=files)
    return replace(listed, count=max(listed.count, claimed or 0), unchecked=unchecked)


def _mypy_line(item: re.Match[str]) -> Finding:
    """The finding of a line; its rule stands in brackets at the end, where it has one."""
    message, bracket, rule = item["message"].rpartition(" [")
    if not (bracket and _MYPY_RULE.fullmatch(rule)):
        message, rule = item["message"], "]"
    return _mypy_finding(
        item["path"], rule[:-1], message.rstrip(), place(item["line"]), place(item["column"])
    )


def _mypy_json(line: str, where: str) -> list[Finding]:
    """The finding of one line of `--output json`."""
    item = strict_json.of_line(line, where)
    if not isinstance(item, dict) or "file" not in item or "severity" not in item:
        raise BadEvidence("malformed", f"{where} is no finding of mypy: it lacks file or severity")
    if item["severity"] != "error":
        return []
    at = [
        item[key] if isinstance(item.get(key), int) and item[key] >= 0 else None for key in ("line", "column")
    ]
    return [_mypy_finding(str(item["file"]), item.get("code"), str(item.get("message", "")), *at)]


def _mypy_finding(path: str, rule: object, message: str, line: int | None, column: int | None) -> Finding:
    return Finding(
        path=path,
        rule=str(rule or "(no rule)"),
        message=message,
        line=line,
        column=column,
        syntax=rule == "syntax",
    )


def _pyright(data: bytes, name: str, root: Path | None, harmless: Collection[str]) -> Findings:
    document, chatter = strict_json.only_value(data, name)
    items = document.get("generalDiagnostics") if isinstance(document, dict) else None
    summary = document.get("summary") if isinstance(document, dict) else None
    if (
        not isinstance(items, list)
        or not isinstance(summary, dict)
        or not all(isinstance(i, dict) for i in items)
    ):
        raise BadEvidence("malformed", f"{name} is not what pyright --outputjson prints")
    claimed, files, warned = (
        strict_json.count(summary.get(key), f"summary.{key} of {name}")
        for key in ("errorCount", "filesAnalyzed", "warningCount")
    )
    found = [_pyright_finding(item) for item in items if str(item.get("severity")) not in harmless]
    if claimed > 0 and not found:
        raise BadEvidence("inconsistent", f"{name} counts {claimed} errors and lists none")
    if files <= 0 and not found:
        raise BadEvidence("no_files", f"{name}: pyright analyzed no file")
    listed = gathered(found, root, files=files, warnings=warned, chatter=chatter)
    return replace(listed, count=max(listed.count, claimed))


def _pyright_finding(item: dict[str, Any]) -> Finding:
    """Pyright counts lines and columns from 0."""
    span: object = item.get("range")
    start = span.get("start") if isinstance(span, dict) else None
    at = [start.get(key) for key in ("line", "character")] if isinstance(start, dict) else [None, None]
    line, column = (n + 1 if isinstance(n, int) and not isinstance(n, bool) else None for n in at)
    return Finding(
        path=str(item.get("file") or item.get("uri") or "(no file)"),
        rule=str(item.get("rule") or "(no rule)"),
        message=str(item.get("message", "")),
        line=line,
        column=column,
    )


def _tsc(lines: Sequence[str], name: str, root: Path | None) -> Findings:
    found: list[Finding] = []
    settings: list[str] = []
    files: int | None = None
    for line in lines:
        must_be_few(len(found), name)
        if counted := _TSC_FILES.match(line):
            files = max(files or 0, int(counted[1][:9]))
        elif item := _TSC.fullmatch(line):
            code = int(item["code"][:6])
            at = (item["line"] or item["l2"], item["column"] or item["c2"])
            if any(code in codes for codes in _TSC_SETTINGS):
                settings.append(f"{item['rule']} {item['message']}")
            found.append(
                Finding(
                    path=item["path"] or "(no file)",
                    rule=item["rule"],
                    message=item["message"],
                    line=place(at[0]),
                    column=place(at[1]),
                    syntax=code in _TSC_SYNTAX,
                )
            )
    if settings and len(settings) == len(found):
        raise BadEvidence("config", f"tsc could not do what it was told: {'; '.join(settings[:3])}")
    if not found and files == 0:
        raise BadEvidence(
            "no_files", f"{name}: tsc checked no file; a tsconfig that only refers to others needs tsc -b"
        )
    listed = gathered(found, root, files=files)
    why = "files with syntax errors keep tsc from checking types" if listed.syntax else ""
    return replace(listed, unchecked=why or ("; ".join(settings[:3])))
