"""What ``train=``, ``loss=`` and ``evaluate=`` are, in 16 digits, wherever their files lie.

A run's summary has them (cli/config/inputs.h), so that runs by other functions are other
configurations. Neither the weights of a module count nor what a script does when it is started.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ._source import Homes

_INSTALLED = ("site-packages", "dist-packages")


def identity_of(homes: Homes, module: Any) -> str:
    """Of the functions, with their arguments, and of the module that they get; None: it has
    tensors alone."""
    functions = sorted(homes.functions.items())
    words: list[Any] = [[role, home.name, home.arguments] for role, home in functions]
    files = {Path(home.file) for _, home in functions}
    if module is not None:
        words.append(re.sub(r" at 0x[0-9a-f]+", "", repr(module)))
        kinds = {type(layer) for layer in module.modules()}
        words += sorted({f"{kind.__module__}.{kind.__qualname__}" for kind in kinds})
        files |= set(_own_files(kinds))
    if homes.main is not None:
        files.add(homes.main)
    words += sorted(_text_of(file) for file in files)
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:16]


def _own_files(kinds: Iterable[type]) -> Iterable[Path]:
    """The files of classes that are in no installed package."""
    for kind in kinds:
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if file is not None and Path(file).is_file() and file.endswith(".py"):
            path = Path(file).resolve()
            if not set(_INSTALLED) & set(path.parts):
                yield path


def _text_of(file: Path) -> str:
    """The file's text, without what it does under ``if __name__ == "__main__"`` alone; of a file
    that is no Python, its bytes' digest."""
    try:
        with tokenize.open(file) as opened:
            text = opened.read()
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return hashlib.sha256(file.read_bytes()).hexdigest()
    lines = text.split("\n")  # as ast counts them; splitlines also splits at U+2028
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test).startswith("__name__ =="):
            lines[node.lineno - 1 : node.end_lineno] = [""] * (
                (node.end_lineno or node.lineno) - node.lineno + 1
            )
    return "\n".join(line for line in lines if line.strip())
