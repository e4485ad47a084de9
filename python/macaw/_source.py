"""Where a function of the caller's is defined, so that another process can load it.

A function of a module is imported there by the module's name; one of a script by the script's
file, whose part under ``if __name__ == "__main__"`` does not run; of a notebook's cell, the source
is written to a file, with what it uses.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import inspect
import json
import linecache
import math
import symtable
import sys
import textwrap
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ConfigError

_MAIN = "__main__"
_MAINS = (_MAIN, "__mp_main__")  # the second one in a process of multiprocessing


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
    of_main = [item for item in (*bare.values(), *kinds) if item.__module__ in _MAINS]
    main = None
    if of_main:
        main = _file_of(_MAIN) or _written(of_main, next(iter(bare)), cache)
    homes = {}
    for role, function in bare.items():
        module, name = function.__module__, function.__qualname__
        file = main if module in _MAINS else _file_of(module)
        if file is None:
            raise ConfigError(
                f"{role}: {name} is of the module {module}, which is of no file: put it into one",
                key=role,
            )
        if _found(sys.modules[module], name) is not function:
            raise ConfigError(
                f"{role}: {module}.{name} is another object by now (a decorator, or a cell that "
                "was run again): give the function that is there under its name",
                key=role,
            )
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        loaded = _MAIN if module in _MAINS else module
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


def _found(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def used_names(source: str) -> list[str]:
    """What the source uses and does not define inside its functions, in the order of its names."""
    found: set[str] = set()
    tables = [symtable.symtable(source, "<source>", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        of_module = table.get_type() == "module"
        found |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (of_module or symbol.is_global())
        }
    return sorted(found)


def _written(wanted: Iterable[Any], role: str, cache: Path) -> Path:
    """A file with the source of functions and classes of a notebook's cells."""
    collected = _Collected(role)
    for item in wanted:
        collected.add(item)
    text = collected.text()
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = cache / "train" / f"{role}-{digest}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path.resolve()


class _Collected:
    """The source of functions and classes, of what they use, and the imports of both."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._imports: dict[str, None] = {}
        self._sources: dict[str, str] = {}  # by name, what a source uses first

    def text(self) -> str:
        head = ["from __future__ import annotations", *self._imports]
        return "\n".join([*head, "", *self._sources.values()])

    def add(self, item: Any) -> None:
        name = item.__name__
        if name in self._sources:
            return
        source = self._sources[name] = _source_of(item, self._role)
        beside = vars(sys.modules[item.__module__])
        for other in used_names(source):
            if other in beside and other != name and not hasattr(builtins, other):
                self._use(other, beside[other], item)
        self._sources[name] = self._sources.pop(name)  # behind what it uses

    def _use(self, name: str, value: Any, user: Any) -> None:
        if isinstance(value, types.ModuleType):
            self._imports[f"import {value.__name__} as {name}"] = None
            return
        own = getattr(value, "__name__", name)
        home = getattr(value, "__module__", None)
        named = isinstance(value, (types.FunctionType, type))
        if named and home == user.__module__ and own == name:
            self.add(value)
        elif home in sys.modules and home not in _MAINS and _found(sys.modules[home], own) is value:
            self._imports[f"from {home} import {own} as {name}"] = None
        elif _is_literal(value):
            self._sources.setdefault(name, f"{name} = {value!r}\n")
        else:
            raise ConfigError(
                f"{self._role}: {user.__name__} uses {name}, a {type(value).__name__} that is "
                "defined beside it and in no module: put both into a file and import them from "
                "there, or make it inside the function",
                key=self._role,
            )


def _is_literal(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_literal, value))
    if isinstance(value, Mapping):
        return all(map(_is_literal, value)) and all(map(_is_literal, value.values()))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, str)


def _source_of(item: Any, role: str) -> str:
    """As inspect.getsource, which does not find the classes of a notebook's cell."""
    codes = [item.__code__] if isinstance(item, types.FunctionType) else [
        value.__code__ for value in vars(item).values() if isinstance(value, types.FunctionType)
    ]  # fmt: skip
    for code in codes:
        text = "".join(linecache.getlines(code.co_filename))
        try:
            tree = ast.parse(text)
        except SyntaxError:  # a cell with a line for IPython alone
            tree = ast.Module([], [])
        for node in tree.body:
            named = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == item.__name__
            if named:
                lines = text.splitlines(keepends=True)
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])  # type: ignore[attr-defined]
                return textwrap.dedent("".join(lines[first - 1 : node.end_lineno])) + "\n"
    try:
        return textwrap.dedent(inspect.getsource(item)) + "\n"
    except (OSError, TypeError) as error:
        raise ConfigError(
            f"{role}: the source of {item.__name__} cannot be found: put it into a file and import "
            "it from there",
            key=role,
        ) from error
