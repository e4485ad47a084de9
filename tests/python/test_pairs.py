"""Functions that pair every output with every label, and those that do not."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

from macaw._pairs import pairs_all


def auc(outputs: Any, y: Any) -> float:
    positive, negative = outputs[y > 0].ravel(), outputs[y <= 0].ravel()
    return float((positive[:, None] > negative[None, :]).mean())


def r2(outputs: Any, y: Any) -> float:
    return 1 - float(((outputs - y) ** 2).sum() / ((y - y.mean()) ** 2).sum())


class Pairs(unittest.TestCase):
    def check(self, expected: bool, *functions: Any, classes: bool = False) -> None:
        for number, function in enumerate(functions):
            self.assertEqual(pairs_all(function, classes, np.asarray), expected, number)

    def test_are_found(self) -> None:
        self.check(True, r2, lambda o, y: ((o - y) ** 2).mean(), lambda o, y: abs(o - y).max())
        self.check(True, lambda o, y: ((o > 0) == y).mean(), classes=True)

    def test_are_not_where_shapes_are_made_equal(self) -> None:
        self.check(False, lambda o, y: r2(o[:, 0], y), lambda o, y: ((o - y[:, None]) ** 2).mean(),
                   lambda o, y: ((o.ravel() - y) ** 2).mean(),
                   lambda o, y: ((o.squeeze(1) - y) ** 2).mean())  # fmt: skip
        self.check(False, auc, lambda o, y: ((o[:, 0] > 0) == y).mean(), classes=True)

    def test_are_not_where_y_is_not_used(self) -> None:
        self.check(False, lambda o, y: o.mean(), lambda o, y: 1.0)

    def test_are_not_where_the_function_fails(self) -> None:
        self.check(False, lambda o, y: o[:, 3].mean(), lambda o, y: "word")
