"""`frozen`: a frozen dataclass that is quick to make.

Rule: to everybody, type checkers included, it is `dataclass(frozen=True, kw_only=True)`, without slots so that
`replacing.replace` copies it. Only how `__init__` stores the fields differs: the standard one calls
`object.__setattr__` for each, which is half of what a value costs, and an iteration makes fifty.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, TypeVar, dataclass_transform

T = TypeVar("T")


class _Factory:
    """What a field that has a `default_factory` is given by default."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY: Final = _Factory()


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """The class as a frozen dataclass; a field is given by name unless it is `field(kw_only=False)`."""
    made = dataclass(frozen=True, kw_only=True, init=False)(cls)
    made.__init__ = _init(made)  # type: ignore[method-assign]
    return made


def _init(cls: Any) -> Any:
    """`__init__` that makes one `__dict__` of all fields, as `replace` does.

    Items added one by one to `self.__dict__` are stored quicker yet, but every later look at them is twice as slow: such
    a dict shares its keys with others of the class, and the interpreter's short cuts know only the other two kinds.
    """
    places, names = ["self"], ["*"]
    held = []
    known: dict[str, Any] = {"_FACTORY": _FACTORY, "_set": object.__setattr__}
    for f in fields(cls):
        default, value = "", f.name
        if f.default is not MISSING:
            default, known[f"_default_{f.name}"] = f"=_default_{f.name}", f.default
        elif f.default_factory is not MISSING:
            default, known[f"_default_{f.name}"] = "=_FACTORY", f.default_factory
            value = f"_default_{f.name}() if {f.name} is _FACTORY else {f.name}"
        (names if f.kw_only else places).append(f"{f.name}{default}")
        held.append(f"'{f.name}': {value}")
    told = ", ".join(places + names if names[1:] else places)
    text = f"def made({', '.join(known)}):\n def __init__({told}):\n  _set(self, '__dict__', {{{', '.join(held)}}})"
    if hasattr(cls, "__post_init__"):
        text += "\n  self.__post_init__()"
    text += "\n return __init__"
    # As the standard library makes its own, of names that stand in our classes, and where their types are known.
    space: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), space)  # noqa: S102
    init = space["made"](**known)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {**{f.name: f.type for f in fields(cls)}, "return": None}
    return init
