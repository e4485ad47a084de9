"""Where a function of the caller's is defined, so that another process can load it.

A function of a module is imported there by the module's name; one of a script by the script's
file, whose part under ``if __name__ == "__main__"`` does not run; of a notebook's cell, the source
is written to a file, with what it uses.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _cells
from .errors import ConfigError

_MAIN = "__main__"


@dataclass(frozen=True)
class Home:
    """Where a function is: `name` in the module, or in the file that stands for ``__main__``."""

    module: str
    file: str
    name: str
    arguments: dict[str, Any]  # of functools.partial
    digest: str  # of the file

    def keys(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Homes:
    """Functions of a run by the arguments that gave them, and the file for ``__main__``, if any."""

    functions: dict[str, Home]
    main: Path | None


def homes_of(functions: Mapping[str, Any], kinds: Iterable[type], cache: Path) -> Homes:
    """Where another process finds the functions, and the classes of what is unpickled there."""
    bare = {}
    arguments: dict[str, dict[str, Any]] = {}
    for role, function in functions.items():
        arguments[role] = {}
        while isinstance(function, functools.partial):
            arguments[role] = {**_plain(function, role), **arguments[role]}
            function = function.func
        _refuse_unnamed(function, role)
        bare[role] = function
    of_main = [item for item in (*bare.values(), *kinds) if item.__module__ in _cells.MAINS]
    main = None
    if of_main:
        main = _file_of(_MAIN) or _written(of_main, next(iter(bare)), cache)
    homes = {}
    for role, function in bare.items():
        module, name = function.__module__, function.__qualname__
        file = main if module in _cells.MAINS else _file_of(module)
        if file is None:
            raise ConfigError(
                f"{role}: {name} is of the module {module}, which is of no file: put it into one",
                key=role,
            )
        if _cells.found(sys.modules[module], name) is not function:
            raise ConfigError(
                f"{role}: {module}.{name} is another object by now (a decorator, or a cell that "
                "was run again): give the function that is there under its name",
                key=role,
            )
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        loaded = _MAIN if module in _cells.MAINS else module
        homes[role] = Home(loaded, str(file), name, arguments[role], digest)
    return Homes(homes, main)


def _plain(partial: functools.partial[Any], role: str) -> dict[str, Any]:
    if partial.args:
        raise ConfigError(
            f"{role}: functools.partial with arguments by position; give them by name", key=role
        )
    for key, value in partial.keywords.items():
        try:
            if json.loads(json.dumps(value)) == value:
                continue
        except (TypeError, ValueError):
            pass
        raise ConfigError(
            f"{role}: {key}={value!r} of functools.partial cannot be given to another process: "
            "numbers, words, and lists and dicts of them can",
            key=role,
        )
    return dict(partial.keywords)


def _refuse_unnamed(function: Any, role: str) -> None:
    if not isinstance(function, types.FunctionType):
        kind = type(function).__name__
        raise ConfigError(
            f"{role}: expected a function, got {kind}: the run's processes load it by its name; "
            f"write `def {role}(…)` around it",
            key=role,
        )
    if function.__name__ == "<lambda>":
        raise ConfigError(
            f"{role}: a lambda has no name by which the run's processes could load it: write a "
            "function with def",
            key=role,
        )
    if "<locals>" in function.__qualname__:
        free = ", ".join(function.__code__.co_freevars)
        uses = f" and uses {free} of it" if free else ""
        raise ConfigError(
            f"{role}: {function.__name__} is defined inside {function.__qualname__.split('.')[0]}"
            f"{uses}, where the run's processes cannot find it: move it to the top of the file; "
            "functools.partial(function, name=value) gives it what it needs",
            key=role,
        )


def _file_of(module: str) -> Path | None:
    """The module's file; None for a notebook, a prompt and the like."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not Path(file).is_file() or Path(file).suffix != ".py":
        return None
    return Path(file).resolve()


def _written(wanted: Iterable[Any], role: str, cache: Path) -> Path:
    return _cells.written(wanted, role, cache / "train", role)
