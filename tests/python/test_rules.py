"""Rules in Python: FedProx as a class, from a file and from a cell of a notebook."""

from __future__ import annotations

import linecache
import sys
import types
import unittest

import macaw
from macaw.rules import Rule
from support import SOURCE, TestCase

FILE = SOURCE / "examples/rules/py_fedprox.py"


def module_of(name: str, file: str, text: str) -> types.ModuleType:
    """A module as a notebook has: its source is known to linecache alone."""
    module = types.ModuleType(name)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    sys.modules[name] = module
    exec(compile(text, file, "exec"), module.__dict__)
    return module


class ARule(TestCase):
    def test_of_a_file_is_the_builtin(self) -> None:
        sys.path.insert(0, str(FILE.parent))
        self.addCleanup(sys.path.remove, str(FILE.parent))
        from py_fedprox import PyFedProx  # type: ignore[import-not-found]

        builtin = macaw.simulate(**self.job("builtin", algorithm=macaw.FedProx(mu=0.5)))
        run = macaw.simulate(**self.job("python", algorithm=PyFedProx(mu=0.5)))
        self.assertEqual(run.digest, builtin.digest)

    def test_of_a_cell_is_the_builtin(self) -> None:
        cell = module_of("cell_1", "<ipython-input-1>", FILE.read_text())
        builtin = macaw.simulate(**self.job("builtin", algorithm=macaw.FedProx(mu=0.5)))
        run = macaw.simulate(**self.job("python", algorithm=cell.PyFedProx(mu=0.5)))
        self.assertEqual(run.digest, builtin.digest)

    def test_of_a_cell_that_uses_what_is_beside_it_is_refused(self) -> None:
        text = FILE.read_text().replace("mu=self.mu", "mu=self.mu * scale")
        cell = module_of("cell_2", "<ipython-input-2>", "scale = 2.0\n" + text)
        with self.assertRaisesRegex(macaw.ConfigError, "scale"):
            macaw.simulate(**self.job("python", algorithm=cell.PyFedProx(mu=0.5)))

    def test_without_a_source_is_refused(self) -> None:
        with self.assertRaisesRegex(macaw.ConfigError, "Nowhere"):
            macaw.simulate(**self.job("python", algorithm=type("Nowhere", (Rule,), {})()))

    def test_that_raises_says_where(self) -> None:
        text = FILE.read_text().replace("mu=self.mu", "mu=1 / 0")
        (self.folder / "rule.py").write_text(text)
        with self.assertRaisesRegex(macaw.RunError, r"ZeroDivisionError.*rule.py:\d+ in prepare"):
            macaw.simulate(**self.job("python", plugins=[self.folder / "rule.py"],
                                      algorithm="py_fedprox"))  # fmt: skip


if __name__ == "__main__":
    unittest.main()
