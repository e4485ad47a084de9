"""What a notebook's cells define, as a file for the run's processes: one law for all of it."""

from __future__ import annotations

import itertools
import linecache
import runpy
import sys
import textwrap
import types
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import macaw
from macaw import _cells, _rule_file
from support import TestCase

RULE = """
    from macaw.rules import Rule, Train
    class Mine(Rule):
        def prepare(self, ctx):
            return [Train(ctx.model, mu=MU)]
"""


class Cells(TestCase):
    """A module whose cells are known to linecache alone, as those of a notebook are."""

    def setUp(self) -> None:
        super().setUp()
        self.numbers = itertools.count()
        self.module: Any = types.ModuleType(f"notebook_{id(self)}")
        modules = mock.patch.dict(sys.modules, {self.module.__name__: self.module})
        modules.start()
        self.addCleanup(modules.stop)

    def cell(self, text: str) -> None:
        text = textwrap.dedent(text)
        name = f"<{self.module.__name__} {next(self.numbers)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        self.addCleanup(linecache.cache.pop, name, None)
        exec(compile(text, name, "exec"), vars(self.module))

    def written(self, name: str) -> Path:
        return _cells.written([getattr(self.module, name)], "train", self.folder, "train")

    def loaded(self, name: str) -> Any:
        """As another process has it."""
        return runpy.run_path(str(self.written(name)))[name]

    def rule_file(self) -> str:
        return _rule_file.file_of(self.module.Mine(), self.folder).read_text()


class AFile(Cells):
    def test_has_a_name_that_shadows_one_of_python(self) -> None:
        self.cell("def round(x):\n    return 123\nsum, max = 7, None\n")
        self.cell("def use(x):\n    return [round(x), sum, max, abs(x), __name__]\n")
        self.assertEqual(self.loaded("use")(-1)[:4], [123, 7, None, 1])
        self.assertNotIn("abs", self.written("use").read_text().replace("abs(x)", ""))

    def test_has_no_open_of_a_notebook(self) -> None:
        """Which has one of its own beside the cells, and needs IPython."""
        self.cell("def open(*_): ...\ndef use():\n    return open\n")
        self.module.open.__module__ = "IPython.core.interactiveshell"
        self.assertIs(self.loaded("use")(), open)

    def test_has_the_definition_that_there_is_of_several(self) -> None:
        self.cell("""
            def twice(x):
                return x + 1
            first = twice
            def twice(x):
                return x + 2
            class Box:
                def get(self): return 1
            class Box:
                def get(self): return 2
            def use(x):
                return twice(x), Box().get()
        """)
        self.assertEqual(self.loaded("use")(1), (3, 2))
        self.assertEqual(self.loaded("twice")(1), 3)

    def test_has_what_a_definition_uses(self) -> None:
        self.cell("""
            import functools, numpy
            from math import sqrt
            def named(name):
                def change(item):
                    item.tag = name
                    return item
                return change
            STEP, RATES, HALF = 0.5, {"a": [1, (2, None)]}, numpy.float64(0.5)
            @named("step")
            def step(x):
                return sqrt(x) * STEP
            again = step
            @named("box")
            class Box:
                @property
                def size(self): return RATES["a"]
            def use(x):
                return again(x) + HALF, step.tag, Box.tag, Box().size
        """)
        self.assertEqual(self.loaded("use")(4.0), (1.5, "step", "box", [1, (2, None)]))

    def test_has_second_names_in_a_cycle_behind_the_first(self) -> None:
        self.cell("""
            def step(x):
                return x if x > 2 else again(x + 1)
            again = step
            def use(x, first=again(0)):
                return again(x) + first
        """)
        self.assertEqual(self.loaded("step")(0), 3)
        self.assertEqual(self.loaded("use")(1), 6)

    def test_has_numbers_and_words_of_numpy(self) -> None:
        self.cell("""
            import numpy
            WORD, FLAG, COUNT = numpy.str_("a"), numpy.bool_(True), numpy.int16(3)
            TIME = numpy.timedelta64(5, "ns")
            def use():
                return WORD, FLAG, COUNT
            def wait():
                return TIME
        """)
        found = self.loaded("use")()
        self.assertEqual(found, ("a", True, 3))
        kinds = [type(value) for value in found]
        self.assertEqual(kinds, [np.str_, np.bool_, np.int16])
        with self.assertRaisesRegex(macaw.ConfigError, "wait uses TIME"):
            self.written("wait")

    def test_has_whole_lines_where_a_text_has_odd_ends_of_lines(self) -> None:
        self.cell('WORD = "a\u2028b\x0cc\x85d"\ndef use():\n    return 5\nLAST = 1\n')
        self.assertEqual(self.loaded("use")(), 5)
        self.assertNotIn("LAST", self.written("use").read_text())

    def test_has_nothing_whose_text_does_not_make_it(self) -> None:
        self.cell("""
            from collections import OrderedDict, namedtuple
            ORDER, PAIR = OrderedDict(a=1), namedtuple("Pair", "a")(1)
            def order(): return ORDER
            def pair(): return PAIR
            def enclosed():
                value = 3
                def inner(): return value
                return inner
            inner = enclosed()
            def use(): return inner()
        """)
        for name, said in (
            ("order", "uses ORDER, a OrderedDict"),
            ("pair", "uses PAIR, a Pair"),
            ("use", "inner is defined inside another function and uses value"),
        ):
            with self.assertRaisesRegex(macaw.ConfigError, said) as caught:
                self.written(name)
            self.assertEqual(caught.exception.key, "train")


class ARule(Cells):
    def test_goes_with_what_it_uses(self) -> None:
        self.cell("MU = 0.5\n" + textwrap.dedent(RULE))
        self.assertIn("MU = 0.5\n", self.rule_file())
        builtin = macaw.simulate(**self.job("builtin", algorithm=macaw.FedProx(mu=0.5)))
        run = macaw.simulate(**self.job("cell", algorithm=self.module.Mine()))
        self.assertEqual(run.digest, builtin.digest)

    def test_is_the_definition_that_there_is_of_several(self) -> None:
        one, two = (textwrap.dedent(RULE).replace("MU", f"{mu}") for mu in (1.0, 2.0))
        self.cell(one + two)
        self.assertIn("mu=2.0", self.rule_file())
        self.assertNotIn("mu=1.0", self.rule_file())

    def test_keeps_its_decorators(self) -> None:
        text = textwrap.dedent(RULE).replace("class Mine", "@renamed\nclass Mine")
        self.cell('def renamed(kind):\n    kind.name = "other"\n    return kind\n'
                  + text.replace("MU", "1.0"))  # fmt: skip
        self.assertRegex(self.rule_file(), r"def renamed\(kind\):(.|\n)*@renamed\nclass Mine")

    def test_shadows_a_name_of_python(self) -> None:
        self.cell("def sum(x): return x\n" + textwrap.dedent(RULE).replace("MU", "sum(1.0)"))
        self.assertIn("def sum(x): return x", self.rule_file())

    def test_that_uses_a_thing_beside_it_is_refused(self) -> None:
        self.cell("MU = object()\n" + textwrap.dedent(RULE))
        with self.assertRaisesRegex(macaw.ConfigError, "Mine uses MU, a object") as caught:
            self.rule_file()
        self.assertEqual(caught.exception.key, "algorithm")


if __name__ == "__main__":
    unittest.main()
