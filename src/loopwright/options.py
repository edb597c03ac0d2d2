"""What a factory is asked for in a loop: its signature is the schema of its options.

Rule: every fault of every option comes at once, each with its key; nothing is guessed.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, get_args, get_origin

from loopwright import units, vocabulary
from loopwright.readers import Fault, WrongError, hint, inside, wrong

_POSITIONAL: Final = frozenset(
    {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    }
)


def is_factory(value: object) -> bool:
    """Whether this makes an agent or gate from keywords, instead of being one."""
    if not callable(value):
        return False
    try:
        kinds = {parameter.kind for parameter in inspect.signature(value).parameters.values()}
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    return not kinds & _POSITIONAL


def parameters(label: str, maker: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The options of a factory with their types, in order."""
    try:
        types = typing.get_type_hints(maker)
    except Exception as error:
        raise wrong(f"the types of the options of {label} cannot be read: {error}") from error
    found = inspect.signature(maker).parameters
    return {
        name: found[name].replace(annotation=types.get(name, Any))
        for name in found
        if found[name].kind is inspect.Parameter.KEYWORD_ONLY
    }


def options_of(
    label: str,
    taken: Mapping[str, inspect.Parameter],
    own: Mapping[str, Any],
    shared: Mapping[str, Any] | None,
    argument: str | None,
) -> dict[str, Any]:
    """The keywords for a factory, each checked by itself, so that all faults come at once.

    `shared` are those that every gate has; `None` for what is no gate.
    """
    faults: list[Fault] = []
    given = {**own, **{key: item for key, item in (shared or {}).items() if key in taken}}
    if argument is not None:
        first = next(iter(taken), None)
        if first is None or first in given:
            faults.append(("", f"{label} has no place for {argument!r}"))
        else:
            given[first] = argument
    options = {}
    for name, value in given.items():
        if name not in taken:
            known = [*taken, *(vocabulary.GATE if shared is not None and (shared or own) else ())]
            faults.append((name, vocabulary.stray(name, known, f"option of {label}")))
            continue
        try:
            options[name] = converted(name, value, taken[name].annotation)
        except WrongError as bad:
            faults.extend((inside(name, sub), what) for sub, what in bad.faults)
    faults += [
        (name, f"missing: {label} needs it")
        for name, parameter in taken.items()
        if parameter.default is inspect.Parameter.empty and name not in given
    ]
    if faults:
        raise WrongError(*faults)
    return options


def converted(name: str, value: Any, annotation: Any) -> Any:
    """`value` as a parameter of this type takes it; "10s" for a float and "64MB" for `…bytes` are numbers."""
    import msgspec

    if isinstance(value, str) and annotation is not Any and not _accepts(annotation, str):
        try:
            if name.endswith("bytes") and (_accepts(annotation, int) or _accepts(annotation, float)):
                value = units.size(value)
            elif _accepts(annotation, float):
                value = units.seconds(value)
        except ValueError as error:
            raise wrong(str(error)) from None
    try:
        return msgspec.convert(value, annotation, dec_hook=_unknown_to_msgspec)
    except msgspec.ValidationError as error:
        raise _explained(str(error), value, annotation) from None
    except (NotImplementedError, TypeError):  # a type that says nothing about data, such as a callable
        return value


def _unknown_to_msgspec(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError


def _accepts(annotation: Any, kind: type) -> bool:
    """Whether a parameter of this type takes a value of `kind` as it is."""
    if get_origin(annotation) is Literal:
        return any(isinstance(word, kind) for word in get_args(annotation))
    if get_origin(annotation) in {typing.Union, UnionType}:
        return any(_accepts(each, kind) for each in get_args(annotation))
    return annotation is kind


def _explained(message: str, value: Any, annotation: Any) -> WrongError:
    """What msgspec says, in our words: what was expected, at which item, and the nearest right word."""
    what, _, at = message.partition(" - at `$")
    sub = at.rstrip("`").removeprefix(".")
    choices = [word for word in _literals(annotation) if isinstance(word, str)]
    if choices and isinstance(value, str):
        return WrongError((sub, f"expected one of {', '.join(choices)}, got {value!r}{hint(value, choices)}"))
    what = what.replace("`", "").replace("Expected", "expected")
    for ours, theirs in (("list", "array"), ("table", "object"), ("nothing", "null")):
        what = re.sub(rf"\b{theirs}\b", ours, what)
    return WrongError((sub, what))


def _literals(annotation: Any) -> list[object]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) in {typing.Union, UnionType}:
        return [word for each in get_args(annotation) if each is not NoneType for word in _literals(each)]
    return []
