"""The closed vocabulary of a loop: every key, what it may hold, and what is not available yet.

Rule: one vocabulary for the loop file, `--set` and the Python call. A key or value that is not here is
an error with the nearest right word; a key that is here and cannot be honoured yet (`LATER`) is refused.
Nothing is ever ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from loopwright.core.judge import HEAVIEST
from loopwright.core.limits import Backoff, Convergence
from loopwright.core.monitors import Critical, Degradation, HighErrorRate, Oscillation, Slowdown, Stall
from loopwright.core.state import ALERTS, RECENT
from loopwright.ports import Agent, Gate
from loopwright.readers import (
    Fault,
    Read,
    ReadOnly,
    WrongError,
    count,
    flag,
    length,
    list_of,
    number,
    one_of,
    plain,
    table,
    take,
    text,
    thawed,
    unknown,
    wrong,
)
from loopwright.sites import branch, commands, glob, inner_folder, inner_path, notes, revision
from loopwright.unattended import NEWS, server, trigger, variable
from loopwright.units import shown

# Accepted by shape, refused by value: the key, and the values that work in this version. A value that
# ends in ":" is a URL scheme; an empty list or table is always fine, it asks for nothing.
LATER: Final[Mapping[str, tuple[object, ...]]] = {
    "workspace.path": (".",),
    "workspace.remote": (),
    "deliver.to": ("none", "branch"),
    "store.url": ("memory:", "files:", "sqlite:"),
    "store.artifacts": (),
}


def stray(word: str, known: Iterable[str], what: str = "key") -> str:
    """What is wrong with a key that its table does not have: where it belongs, or the nearest right one."""
    if word in TOP:
        return f"unknown {what}: it belongs above the first [table]"
    if word in LIMITS:
        return f"unknown {what}: it belongs in [limits]"
    return unknown(word, known, what)


_table = partial(table, stray=stray)
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,57}[A-Za-z0-9_-])?")


def loop_name(value: object) -> str:
    """A name that run ids can begin with: `<name>-<4 letters>` is an id."""
    found = text(value)
    if not _NAME.fullmatch(found) or ".." in found:
        raise wrong(f"{shown(found)} is not a name: letters, digits, '.', '_' and '-', 59 at most")
    return found


def gate_name(value: object) -> str:
    """A name for a table row and a file: one line, no slash."""
    found = text(value)
    if len(found) > 80 or not found.isprintable() or "/" in found:
        raise wrong(f"{shown(found)} is not a gate's name: one line without '/', 80 characters at most")
    return found


def _window(least: int) -> Read:
    def read(value: object) -> int:
        found: int = count(least)(value)
        if found > RECENT:
            raise wrong(f"{found} is more than the {RECENT} iterations a run remembers")
        return found

    return read


def _convergence(value: object) -> Any:
    if value is False:
        return False
    if value is True:
        raise wrong("expected a table or false, got true")
    return _table(
        {"window": _window(1), "within": number(most=1.0), "patience": count()}, build=_checked_convergence
    )(value)


def _checked_convergence(found: dict[str, Any]) -> Convergence:
    whole = {**thawed(Convergence()), **found}
    if (back := whole["window"] * whole["patience"]) > RECENT:
        raise wrong(f"window × patience looks back {back} iterations and a run remembers {RECENT}")
    return Convergence(**found)


def _checked_backoff(found: dict[str, Any]) -> Backoff:
    rule = Backoff(**found)
    if rule.max < rule.first:
        raise wrong(f"max ({rule.max:g} s) is below first ({rule.first:g} s)")
    return rule


def _checked_oscillation(found: dict[str, Any]) -> Oscillation:
    rule = Oscillation(**found)
    if rule.changes > rule.window - 2:
        raise wrong(
            f"{rule.window} scores change direction {rule.window - 2} times at most, not {rule.changes}"
        )
    return rule


_ACTION: Final = one_of("note", "nudge", "ask", "stop", "off")


def _monitor(build: Read, **numbers: Read) -> Read:
    read_table = _table({"action": _ACTION, **numbers}, build=build)

    def read(value: object) -> Any:
        if isinstance(value, str):
            return build({"action": _ACTION(value)})
        if isinstance(value, bool):
            raise wrong(f'expected an action or a table, got {shown(value)}; "off" turns it off')
        return read_table(value)

    return read


LIMITS: Final[Mapping[str, Read]] = {
    "max_iterations": count(),
    "max_duration": length,
    "max_wait": length,
    "attempts": count(),
    "attempt_timeout": length,
    "idle_timeout": length,
    "gate_timeout": length,
    "max_consecutive_errors": count(),
    "budget": number(),
    "budget_per_day": number(),
    "max_tokens": count(),
    "convergence": _convergence,
    "backoff": _table(
        {"first": length, "factor": number(least=1.0, most=1000.0), "max": length}, build=_checked_backoff
    ),
    "grace": length,
    "reserve": number(),
}

MONITORS: Final[Mapping[str, Read]] = {
    "oscillation": _monitor(_checked_oscillation, window=_window(3), changes=count(), above=number(most=1.0)),
    "degradation": _monitor(lambda t: Degradation(**t), window=_window(2), drop=number(most=1.0)),
    "slowdown": _monitor(lambda t: Slowdown(**t), window=_window(2), ratio=number(least=1.0)),
    "high_error_rate": _monitor(lambda t: HighErrorRate(**t), window=_window(1), rate=number(most=1.0)),
    "stall": _monitor(lambda t: Stall(**t), window=_window(2)),
    "critical": _table({"alerts": count(1, ALERTS), "within": _window(1)}, build=lambda t: Critical(**t)),
}


def _named(value: object) -> Any:
    """A text, or a table whose `use` names what it is."""
    if not isinstance(value, Mapping):
        return text(value)
    read = _table({"use": text}, rest=plain)(value)
    if "use" not in read:
        raise WrongError(("use", "missing: it says what this is"))
    return read


def agent(value: object) -> Any:
    """A name, a command, a table with `use`, a function or an `Agent`."""
    if isinstance(value, Agent) or callable(value):
        return value
    if isinstance(value, str | Mapping):
        return _named(value)
    raise wrong(f"expected a name, a command, a table or a function, got {shown(value)}")


GATE: Final[Mapping[str, Read]] = {
    "use": text,
    "name": gate_name,
    "weight": number(least=0.0, most=HEAVIEST),
    "required": flag,
    "min": number(),
    "timeout": length,
    "clean": flag,
    "cwd": inner_folder,
    "env": list_of(variable),
    "writes": flag,
    "parallel": flag,
    "after": list_of(text),
    "objective": flag,
    "min_gain": number(least=0.0),
}


def gate(value: object) -> Any:
    """A name, a command, a table with `use`, a function or a `Gate`."""
    if isinstance(value, Gate) or callable(value):
        return value
    if isinstance(value, str):
        return text(value)
    if not isinstance(value, Mapping):
        raise wrong(f"expected a name, a command, a table or a function, got {shown(value)}")
    faults: list[Fault] = []
    if "use" not in value:
        faults.append(("use", 'missing: it names the gate, such as use = "command"'))
    found = take(faults, "", _table(GATE, rest=plain), value) or {}
    if found.get("clean") and found.get("writes"):
        faults.append(("writes", "what a gate with clean = true writes is thrown away: say one of the two"))
    if faults:
        raise WrongError(*faults)
    return found


WORKSPACE: Final[Mapping[str, Read]] = {
    "mode": one_of("in_place", "worktree", "folder", "none"),
    "path": text,
    "base": revision,
    "setup": commands,
    "link": list_of(inner_path),
    "watch": list_of(text),
    "remote": text,
}


def _store_url(value: object) -> str:
    found = text(value)
    if not re.match(r"(memory|files|sqlite|postgresql|s3):", found):
        raise wrong(
            f"{shown(found)} is not a store: memory:, files:DIR, sqlite:///PATH, postgresql://…, s3://…"
        )
    return found


def _sandbox(value: object) -> Any:
    if value in ([], ()):
        raise wrong('an empty list; say "none", "bwrap", or the words to start commands through')
    return list_of(text)(value) if isinstance(value, list | tuple) else one_of("none", "bwrap")(value)


APPROVAL: Final[Mapping[str, Read]] = {
    "when": one_of("never", "passed", "always", "alert"),
    "channels": list_of(_named),
    "timeout": length,
    "on_timeout": one_of("hold", "reject", "continue"),
    "approvers": list_of(text),
}
DELIVER: Final[Mapping[str, Read]] = {"to": one_of("none", "branch", "pr"), "branch": branch}
NOTIFY: Final[Mapping[str, Read]] = {"to": list_of(_named), "on": list_of(one_of(*NEWS))}
STORE: Final[Mapping[str, Read]] = {"url": _store_url, "artifacts": text}
TOP: Final[Mapping[str, Read]] = {
    "name": loop_name,
    "goal": text,
    "agent": agent,
    "improve": agent,
    "gates": list_of(gate),
    "threshold": number(most=1.0),
    "until": one_of("passed", "limits"),
    "start_from": one_of("last", "best"),
    "if_passing": one_of("run", "finish"),
    "protected": list_of(glob),
    "on_tamper": one_of("restore", "block", "ask"),
    "may_change": list_of(glob),
    "known_failures": one_of("allow"),
    "prompt": text,
    "notes": notes,
    "env": list_of(variable),
    "sandbox": _sandbox,
    "labels": _table({}, rest=text),
}
# Every key of a loop by its dotted name; the keys of `limits` and `store` stand one by one.
KEYS: Final[Mapping[str, Read]] = {
    **TOP,
    "baseline": flag,  # said by --no-baseline and in Python, not in a file
    **{f"limits.{name}": read for name, read in LIMITS.items()},
    "monitors": _table(MONITORS),
    "approval": _table(APPROVAL, build=lambda found: ReadOnly({"when": "passed", **found})),
    "workspace": _table(WORKSPACE),
    "deliver": _table(DELIVER),
    "notify": _table(NOTIFY),
    **{f"store.{name}": read for name, read in STORE.items()},
    "server": server,
    "trigger": list_of(trigger),
}


def read(given: Mapping[str, object]) -> tuple[dict[str, Any], list[Fault]]:
    """What is said (by dotted key; `None` is not said) in its usable form, and every fault of it."""
    faults: list[Fault] = []
    found = {key: take(faults, key, KEYS[key], value) for key, value in given.items() if value is not None}
    for key in LATER:
        head, _, tail = key.partition(".")
        value = found.get(key)
        if value is None and isinstance(found.get(head), Mapping):
            value = found[head].get(tail)
        if refusal := refused(key, value):
            faults.append((key, refusal))
    return found, faults


def refused(key: str, value: object) -> str | None:
    """Why this value cannot be honoured in this version, `None` when it can."""
    works = LATER.get(key, (value,))
    if value is None or value in works or (isinstance(value, tuple | Mapping) and not value):
        return None
    schemes = [word for word in works if isinstance(word, str) and word.endswith(":")]
    if isinstance(value, str) and any(value.startswith(scheme) for scheme in schemes):
        return None
    if not works:
        return "not available in this version"
    return f"{shown(value)} is not available in this version; available: {', '.join(str(w).lower() for w in works)}"


def flat(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """A loop file's tables by dotted key, values untouched, and every key that is not one of ours."""
    given: dict[str, Any] = {}
    faults: list[Fault] = []
    for key, value in document.items():
        if key in {"limits", "store"}:
            if not isinstance(value, Mapping):
                faults.append((key, f"expected a table, got {shown(value)}"))
                continue
            known = LIMITS if key == "limits" else STORE
            given |= {f"{key}.{name}": item for name, item in value.items() if name in known}
            faults += [(f"{key}.{name}", stray(name, known)) for name in value if name not in known]
        elif key in KEYS:
            given[key] = value
        else:
            near = [
                *(word for word in KEYS if "." not in word and word != "baseline"),
                "limits",
                "store",
                "gate",
            ]
            faults.append(
                (key, "unknown key: it belongs in [limits]" if key in LIMITS else unknown(key, near))
            )
    return given, faults
