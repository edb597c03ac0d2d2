"""Functions by name: `module:name` → the object, and a function → the name it can be found by again.

Rule: what cannot be imported again is bound to its script (`script:PATH#name`), and said so; nothing is
pickled. The project folder is searched first while importing and last afterwards: what an agent writes
there never takes the place of a module that loopwright or Python itself still has to import.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from loopwright.errors import ConfigError
from loopwright.ports import Agent, Gate
from loopwright.readers import hint

SCRIPT: Final = "script:"


def imported(reference: str, project: Path) -> Any:
    """The object that `module:attr` names; `ConfigError` says why there is none."""
    if reference.startswith(SCRIPT):
        path, _, name = reference.removeprefix(SCRIPT).rpartition("#")
        raise ConfigError(f"{name} is defined in {path}, which cannot be imported: run that script again")
    name, _, attr = reference.partition(":")
    module = import_module(name, project)
    try:
        return attrgetter(attr)(module)
    except AttributeError:
        raise ConfigError(f"module {name!r} has no {attr!r}{hint(attr, vars(module))}") from None


def import_module(name: str, project: Path) -> ModuleType:
    """The module of this name, looked for in the project folder first; `ConfigError` says why there is none."""
    with _searching(project):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise ConfigError(f"module {name!r} cannot be imported: {raised(error)}") from error
            again = "if a script of yours defines it, run that script again"
            raise ConfigError(f"no module {name!r} in {project} and none installed; {again}") from None
        except (Exception, SystemExit) as error:  # other people's code
            raise ConfigError(f"module {name!r} cannot be imported: {raised(error)}") from error
    own = project.absolute().joinpath(*name.split("."))
    meant = [path for path in (own.with_suffix(".py"), own / "__init__.py") if path.is_file()]
    there = getattr(module, "__file__", None)
    if meant and there and not meant[0].samefile(there):
        raise ConfigError(
            f"module {name!r} is {there}, loaded earlier, and not {meant[0]}: rename one of them"
        )
    return module


@contextmanager
def _searching(project: Path) -> Iterator[None]:
    folder = str(project.absolute())
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)  # functions import their neighbours when they are called


def raised(error: BaseException) -> str:
    """An error of other people's code in one line, with its place."""
    told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    ours = Path(__file__).parent
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).parent != ours]
    at = frames[-1] if frames and "importlib" not in frames[-1].filename else None
    return f"{told} ({at.filename}:{at.lineno})" if at and not isinstance(error, SyntaxError) else told


def reference(value: object) -> str:
    """`module:name` of a function, agent or gate that can be imported again, else `script:PATH#name`."""
    fn: Any = value
    if isinstance(value, Agent | Gate):
        fn = value.call if isinstance(value, Agent) else value.check
    fn = inspect.unwrap(fn)
    fn = getattr(fn, "func", fn)  # a functools.partial
    module, name = getattr(fn, "__module__", ""), str(getattr(fn, "__qualname__", ""))
    if not module.startswith("__") and _found(module, name) is value:
        return f"{module}:{name}"
    title = value.name if isinstance(value, Agent | Gate) else name or type(fn).__name__
    code = getattr(fn, "__code__", None)
    path = code.co_filename if code else ""
    if not path or (isinstance(value, Agent | Gate) and fn.__module__.startswith("loopwright.")):
        path = getattr(sys.modules["__main__"], "__file__", None) or "<stdin>"
    return f"{SCRIPT}{path if path.startswith('<') else os.path.abspath(path)}#{title}"  # noqa: PTH100 - a link stays one


def _found(module: str, name: str) -> object:
    try:
        return attrgetter(name)(sys.modules[module])
    except (AttributeError, KeyError):  # also "<locals>" and "<lambda>": no attribute is called so
        return None
