"""SARIF 2.1.0: the results of static analysis, of any tool.

Rule: a run without a list of results has not scanned, and neither has one that says it failed; an empty list is
clean. A result counts at its own level, else that of its rule, else `warning`; suppressed ones are counted apart and
shown, so that nobody suppresses their way to green unseen.

Format: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html (§3.14 runs, §3.20 invocations, §3.27 results).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import unquote

from loopwright.errors import BadEvidence
from loopwright.evidence import strict_json
from loopwright.evidence.lint import Finding, Findings, gathered
from loopwright.evidence.text import one_line

Level = Literal["error", "warning", "note", "none"]

LEVELS: Final[tuple[Level, ...]] = ("none", "note", "warning", "error")
_T = TypeVar("_T")
_NOT_FOUND = {"pass", "notApplicable", "informational"}  # kinds that are no finding


@dataclass(slots=True)
class _Seen:
    """What the runs hold together."""

    active: list[Finding] = field(default_factory=list)
    suppressed: int = 0
    lower: int = 0  # below the level that counts
    problem: BadEvidence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """What one run says of its rules, looked up once: there may be many results and many rules."""

    driver: Sequence[Mapping[str, Any]]
    extensions: Sequence[Sequence[Mapping[str, Any]]]
    by_id: Mapping[str, Mapping[str, Any]]
    set_: Mapping[int | str, Mapping[str, Any]]  # what an invocation set, by a rule's index or id


def read(
    data: bytes, name: str, *, level: Level = "warning", root: Path | None = None
) -> tuple[Findings, BadEvidence | None]:
    """The results at or above `level`, with paths relative to `root`, and why not all was scanned, if it was not.

    Raises BadEvidence: `malformed` (no SARIF), `no_runs`, and those of `strict_json`. `no_results` (a run without a
    list of results) and `failed` (the tool says that it failed) are returned.
    """
    document, chatter = strict_json.only_value(data, name)
    if not isinstance(document, dict) or "runs" not in document:
        raise BadEvidence("malformed", f"{name} is not SARIF: it has no runs")
    runs = document["runs"]
    if runs is not None and not _all_dicts(runs):
        raise BadEvidence("malformed", f"{name} is not SARIF: runs is no list of runs")
    if not runs:
        raise BadEvidence("no_runs", f"{name} records no run of a tool: nothing was scanned")
    seen = _Seen()
    for run in runs:
        _run(seen, run, name, level)
    found = gathered(seen.active, root, warnings=seen.lower, chatter=chatter)
    return replace(found, suppressed=seen.suppressed), seen.problem


def _run(seen: _Seen, run: Mapping[str, Any], name: str, level: Level) -> None:
    results = run.get("results")
    tool = _name(run)
    if results is None:
        seen.problem = seen.problem or BadEvidence(
            "no_results", f"{name}: the run of {tool} has no results: nothing was scanned"
        )
        results = []
    if not _all_dicts(results):
        raise BadEvidence("malformed", f"{name} is not SARIF: the results of {tool} are no list")
    if run.get("invocations") is not None and not _all_dicts(run["invocations"]):
        raise BadEvidence("malformed", f"{name} is not SARIF: the invocations of {tool} are no list")
    for why in _failures(run):
        seen.problem = seen.problem or BadEvidence("failed", f"{name}: {tool} says that it failed{why}")
    rules = _rules(run)
    for result in results:
        _result(seen, rules, result, level)


def _result(seen: _Seen, rules: _Rules, result: Mapping[str, Any], level: Level) -> None:
    if str(result.get("kind")) in _NOT_FOUND or result.get("baselineState") == "absent":
        return
    rule = _rule(rules, result)
    if LEVELS.index(_level(rules, result, rule)) < LEVELS.index(level):
        seen.lower += 1
    elif _suppressed(result):
        seen.suppressed += 1
    else:
        seen.active.append(_finding(result, rule))


def _suppressed(result: Mapping[str, Any]) -> bool:
    """Whether people accepted it: one suppression that is rejected or under review makes it active."""
    found = result.get("suppressions")
    if not isinstance(found, list) or not found:
        return False
    return all(isinstance(each, dict) and each.get("status", "accepted") == "accepted" for each in found)


def _level(rules: _Rules, result: Mapping[str, Any], rule: Mapping[str, Any]) -> Level:
    """Its own level, that set for this run, its rule's, or `warning`; what is no level counts as an error."""
    index = result.get("ruleIndex", _dict(result.get("rule")).get("index"))
    set_ = (rules.set_.get(key, {}) for key in (index, result.get("ruleId")) if isinstance(key, int | str))
    for source in (result, *set_, _dict(rule.get("defaultConfiguration"))):
        found = source.get("level")
        if found is not None:
            return found if found in LEVELS else "error"
    return "warning"


def _rules(run: Mapping[str, Any]) -> _Rules:
    """What a run says of its rules. Of two of one id the first counts, the driver's before its extensions'."""
    tool = _dict(run.get("tool"))
    driver = _dicts(_dict(tool.get("driver")).get("rules"))
    extensions = [_dicts(each.get("rules")) for each in _dicts(tool.get("extensions"))]
    by_id: dict[str, Mapping[str, Any]] = {}
    for rule in (*driver, *(rule for rules in extensions for rule in rules)):
        if isinstance(rule.get("id"), str):
            by_id.setdefault(rule["id"], rule)
    set_: dict[int | str, Mapping[str, Any]] = {}
    for invocation in _dicts(run.get("invocations")):
        for override in _dicts(invocation.get("ruleConfigurationOverrides")):
            of, configuration = _dict(override.get("descriptor")), _dict(override.get("configuration"))
            for key in (of.get("index"), of.get("id")):
                if isinstance(key, int | str) and configuration.get("level") is not None:
                    set_.setdefault(key, configuration)
    return _Rules(driver=driver, extensions=extensions, by_id=by_id, set_=set_)


def _rule(rules: _Rules, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The description of a result's rule, by index or id, in the driver or the extension it names."""
    named = _dict(result.get("rule"))
    part = _dict(named.get("toolComponent")).get("index")
    owner = rules.driver if part is None else _at(rules.extensions, part, ())
    index = result.get("ruleIndex", named.get("index"))
    if index is not None and (rule := _at(owner, index, {})):
        return rule
    id_ = result.get("ruleId", named.get("id"))
    return rules.by_id.get(id_, {}) if isinstance(id_, str) else {}


def _finding(result: Mapping[str, Any], rule: Mapping[str, Any]) -> Finding:
    place = _dict(next(iter(_dicts(result.get("locations"))), {}).get("physicalLocation"))
    region = _dict(place.get("region"))
    uri = str(_dict(place.get("artifactLocation")).get("uri") or "(no file)")
    message = _dict(result.get("message"))
    id_ = result.get("ruleId") or rule.get("id") or _dict(result.get("rule")).get("id")
    line, column = region.get("startLine"), region.get("startColumn")
    return Finding(
        path=unquote(uri).removeprefix("file://"),
        rule=str(id_ or "(no rule)"),
        message=str(message.get("text") or message.get("markdown") or message.get("id") or ""),
        line=line if isinstance(line, int) and line > 0 else None,
        column=column if isinstance(column, int) and column > 0 else None,
    )


def _failures(run: Mapping[str, Any]) -> list[str]:
    """For each invocation that was no success, why."""
    found = []
    for invocation in _dicts(run.get("invocations")):
        if invocation.get("executionSuccessful", True) is True:  # some leave it out
            continue
        notes = [
            str(_dict(note.get("message")).get("text", ""))
            for key in ("toolExecutionNotifications", "toolConfigurationNotifications")
            for note in _dicts(invocation.get(key))
        ]
        code = invocation.get("exitCode")
        said = [*([f"exit {code}"] if isinstance(code, int) else []), *filter(None, notes[:3])]
        found.append(one_line(f": {'; '.join(said)}", 500) if said else "")
    return found


def _name(run: Mapping[str, Any]) -> str:
    return str(_dict(_dict(run.get("tool")).get("driver")).get("name") or "a tool")[:80]


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _all_dicts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _dicts(value: object) -> Sequence[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _at(items: Sequence[_T], index: object, none: _T) -> _T:
    return items[index] if isinstance(index, int) and 0 <= index < len(items) else none
