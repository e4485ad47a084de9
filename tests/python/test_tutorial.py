"""docs/tutorial.ipynb: every cell of code runs, in order, in one process, as a notebook runs it."""

from __future__ import annotations

import ast
import json
import linecache
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from support import SOURCE

NOTEBOOK = SOURCE / "docs/tutorial.ipynb"


def cells() -> list[dict[str, Any]]:
    """The notebook's cells of code."""
    found = json.loads(NOTEBOOK.read_text())["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def run_cell(text: str, file: str, module: types.ModuleType) -> None:
    """Runs a cell in the notebook's module. The value of its last expression is printed. As in a
    notebook, only linecache has the source, which is where the class of a rule is looked up."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    tree = ast.parse(text, file)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, file, "exec"), module.__dict__)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), file, "eval"), module.__dict__)
        if value is not None:
            print(repr(value))


class TestTutorial(unittest.TestCase):
    def test_every_cell_runs(self) -> None:
        self.assertGreater(len(cells()), 5)
        with tempfile.TemporaryDirectory() as folder:
            # docs/ of a tree that has the examples, and where runs may be written.
            (docs := Path(folder) / "docs").mkdir()
            (Path(folder) / "examples").symlink_to(SOURCE / "examples")
            module = types.ModuleType("tutorial")
            before = Path.cwd()
            os.chdir(docs)
            self.addCleanup(os.chdir, before)
            cache = {"XDG_CACHE_HOME": str(Path(folder) / "cache")}
            with mock.patch.dict(os.environ, cache), mock.patch.dict(sys.modules, tutorial=module):
                for number, cell in enumerate(cells(), 1):
                    run_cell("".join(cell["source"]), f"<tutorial, cell {number}>", module)
            os.chdir(before)

    def test_is_kept_without_outputs(self) -> None:
        for cell in cells():
            self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None), cell["source"])


if __name__ == "__main__":
    unittest.main()
