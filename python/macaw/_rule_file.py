"""The file of a rule's class, which is what a run loads."""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import linecache
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

from ._source import used_names
from .errors import ConfigError
from .rules import Rule


def file_of(rule: Rule, cache: Path) -> Path:
    """The file that defines the rule's class. A class of a notebook's cell is written to one, with
    the imports that it uses."""
    kind = type(rule)
    try:
        file = inspect.getsourcefile(kind)
    except (TypeError, OSError):  # of no file
        file = None
    if file is not None and Path(file).is_file():
        tree = ast.parse(Path(file).read_text())
        if any(isinstance(n, ast.ClassDef) and n.name == kind.__name__ for n in tree.body):
            return Path(file).resolve()
    text = f"{_imports(kind, source := _source(kind))}\n\n{source}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = cache / "rules" / f"{kind.name}-{digest}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path.resolve()


def _source(kind: type[Rule]) -> str:
    for value in vars(kind).values():
        if not isinstance(value, types.FunctionType) or value.__qualname__.startswith("__"):
            continue
        text = "".join(linecache.getlines(value.__code__.co_filename))
        for node in ast.walk(ast.parse(text)) if text else ():
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                return textwrap.dedent(ast.get_source_segment(text, node) or "") + "\n"
    raise ConfigError(
        f"the source of the class {kind.__name__} cannot be found: put it into a file, import it "
        "from there, and the run loads that file",
        key="algorithm",
    )


def _imports(kind: type[Rule], source: str) -> str:
    """What the source uses of the names beside the class."""
    beside = vars(sys.modules[kind.__module__])
    lines = []
    for name in used_names(source):
        if name in vars(builtins) or name == kind.__name__:
            continue
        if name not in beside:  # a local name
            continue
        lines.append(_import(kind, name, beside[name]))
    return "from __future__ import annotations\n\n" + "\n".join(lines)


def _import(kind: type[Rule], name: str, value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__} as {name}"
    home = sys.modules.get(getattr(value, "__module__", None) or "")
    own = getattr(value, "__name__", name)
    named = home is not None and home.__name__ not in ("__main__", "__mp_main__")
    if home is not None and named and getattr(home, own, None) is value:
        return f"from {home.__name__} import {own} as {name}"
    raise ConfigError(
        f"the class {kind.__name__} uses {name}, which is defined beside it and in no module: put "
        "both into a file, and import the class from there",
        key="algorithm",
    )
