"""The source of what a notebook's cells define, as a file that another process loads.

The law is one for functions that train and for rules: classes and functions come with their
decorators, with what they use of their kind beside them, with numbers, words and lists of them,
and with the imports of all.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import linecache
import math
import symtable
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import _files
from .errors import ConfigError

MAINS = ("__main__", "__mp_main__")  # the second one in a process of multiprocessing


def written(wanted: Iterable[Any], role: str, folder: Path, name: str) -> Path:
    """A file in the folder with the source of functions and classes. role: the argument."""
    collected = _Collected(role)
    for item in wanted:
        collected.add(item)
    text = collected.text()
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return _files.keep(folder / f"{name}-{digest}.py", text.encode())


def found(module: Any, name: str) -> Any:
    """What is there under the name, which may have points; else None."""
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


class _Collected:
    """The source of functions and classes, of what they use, and the imports of both."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._imports: dict[str, None] = {}
        self._sources: dict[str, str] = {}  # by name, what a source uses first
        self._seconds: dict[str, str] = {}  # second names of what has a source, and its first

    def text(self) -> str:
        head = ["from __future__ import annotations", *self._imports]
        lines = [*head, ""]
        for name, source in self._sources.items():
            lines.append(source)
            seconds = [second for second, own in self._seconds.items() if own == name]
            lines += [f"{second} = {name}\n" for second in seconds]
        return "\n".join(lines)

    def add(self, item: Any) -> None:
        name = item.__name__
        if name in self._sources:
            return
        source = self._sources[name] = _source_of(item, self._role)
        beside = vars(sys.modules[item.__module__])
        for other in _used_names(source):
            if other in beside and other != name and not _is_builtin(other, beside[other]):
                self._use(other, beside[other], item)
        self._sources[name] = self._sources.pop(name)  # behind what it uses

    def _use(self, name: str, value: Any, user: Any) -> None:
        if isinstance(value, types.ModuleType):
            self._imports[f"import {value.__name__} as {name}"] = None
            return
        own = getattr(value, "__name__", name)
        home = getattr(value, "__module__", None)
        named = isinstance(value, (types.FunctionType, type))
        beside = home == user.__module__
        there = home in sys.modules and found(sys.modules[home], own) is value
        if named and beside and own == name:
            self.add(value)
        elif named and beside and there:  # a second name
            self.add(value)
            self._seconds.setdefault(name, own)
        elif there and not beside and home not in MAINS:
            self._imports[f"from {home} import {own} as {name}"] = None
        elif _is_literal(value):
            self._sources.setdefault(name, f"{name} = {value!r}\n")
        elif _is_numpy_literal(value):
            self._imports["import numpy"] = None
            made = f"numpy.{type(value).__name__}({value.item()!r})"
            self._sources.setdefault(name, f"{name} = {made}\n")
        else:
            raise ConfigError(
                f"{self._role}: {user.__name__} uses {name}, a {type(value).__name__} that is "
                "defined beside it and in no module: put both into a file and import them from "
                "there, or make it inside the function",
                key=self._role,
            )


def _used_names(source: str) -> list[str]:
    """What the source uses and does not define inside its functions, in the order of its names."""
    used: set[str] = set()
    tables = [symtable.symtable(source, "<source>", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        of_module = table.get_type() == "module"
        used |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (of_module or symbol.is_global())
        }
    return sorted(used)


def _is_builtin(name: str, value: Any) -> bool:
    """Whether another process has the name by itself."""
    if not hasattr(builtins, name):
        return False
    if value is getattr(builtins, name) or name.startswith("__"):  # each module's own __name__
        return True
    # A notebook has an open and an exit of its own.
    root = str(getattr(value, "__module__", "")).partition(".")[0]
    return root in ("IPython", "ipykernel")


def _is_literal(value: Any) -> bool:
    """Whether the value's repr makes it."""
    if type(value) in (tuple, list):
        return all(map(_is_literal, value))
    if type(value) is dict:
        return all(map(_is_literal, value)) and all(map(_is_literal, value.values()))
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, str)


def _is_numpy_literal(value: Any) -> bool:
    """Whether a call of the value's type makes it. Times have a unit, too."""
    known = isinstance(value, (np.number, np.bool_, np.str_))
    return known and not isinstance(value, np.timedelta64) and _is_literal(value.item())


def _source_of(item: Any, role: str) -> str:
    """As inspect.getsource, which does not find the classes of a notebook's cell."""
    for code in _codes_of(item):
        text = "".join(linecache.getlines(code.co_filename))
        try:
            tree = ast.parse(text)
        except SyntaxError:  # a cell with a line for IPython alone
            continue
        if (lines := _lines_of(tree, item, code.co_firstlineno)) is not None:
            _refuse_enclosed(item, code, role)
            # As ast counts lines; splitlines also splits at form feeds and U+2028.
            chosen = text.split("\n")[lines[0] - 1 : lines[1]]
            return textwrap.dedent("\n".join(chosen)) + "\n\n"
    try:
        return textwrap.dedent(inspect.getsource(item)) + "\n"
    except (OSError, TypeError) as error:
        raise ConfigError(
            f"{role}: the source of {item.__name__} cannot be found: put it into a file and import "
            "it from there",
            key=role,
        ) from error


def _refuse_enclosed(item: Any, code: types.CodeType, role: str) -> None:
    if isinstance(item, types.FunctionType) and code.co_freevars:
        raise ConfigError(
            f"{role}: {item.__name__} is defined inside another function and uses "
            f"{', '.join(code.co_freevars)} of it: move it to the top of the cell",
            key=role,
        )


def _codes_of(item: Any) -> Iterator[types.CodeType]:
    """Of a function, or of a class's own methods."""
    if isinstance(item, types.FunctionType):
        yield item.__code__
        return
    for value in vars(item).values():
        value = getattr(value, "__func__", getattr(value, "fget", value))
        own = getattr(value, "__qualname__", "").startswith(f"{item.__qualname__}.")
        if own and isinstance(value, types.FunctionType):
            yield value.__code__


def _lines_of(tree: ast.Module, item: Any, line: int) -> tuple[int, int] | None:
    """The first and the last line of the item's definition: of several with one name, that which
    has the line of its code. None: it has none here."""
    is_class = isinstance(item, type)
    kinds = (ast.ClassDef,) if is_class else (ast.FunctionDef, ast.AsyncFunctionDef)
    places = []
    for node in ast.walk(tree):
        if isinstance(node, kinds) and node.name == item.__name__:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            end = node.end_lineno or first
            if first <= line <= end if is_class else first == line:
                places.append((first, end))
    return max(places, default=None)  # the innermost
