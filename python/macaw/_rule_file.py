"""The file of a rule's class, which is what a run loads."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from . import _cells
from .rules import Rule


def file_of(rule: Rule, cache: Path) -> Path:
    """The file that defines the rule's class. A class of a notebook's cell is written to one, with
    what it uses."""
    kind = type(rule)
    try:
        file = inspect.getsourcefile(kind)
    except (TypeError, OSError):  # of no file
        file = None
    if file is not None and Path(file).is_file() and kind.__qualname__ == kind.__name__:
        tree = ast.parse(Path(file).read_text())
        if any(isinstance(n, ast.ClassDef) and n.name == kind.__name__ for n in tree.body):
            return Path(file).resolve()
    return _cells.written([kind], "algorithm", cache / "rules", kind.name)
