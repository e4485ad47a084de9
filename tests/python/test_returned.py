"""Kinds of arrays that a train function returns: floats are taken, and others refused."""

from __future__ import annotations

import functools
import unittest

import numpy as np
import own_functions as own

import macaw
from macaw._weights import array_given
from support import TestCase, needs


class Arrays(TestCase):
    def run_of(self, kind: str) -> macaw.Run:
        train = functools.partial(own.returns_as, kind=kind)
        return macaw.simulate(
            **self.job(kind, model=["linear 3"], init="zero", train=train, rounds=2)
        )

    def test_of_floats_are_taken(self) -> None:
        digest = self.run_of("float32").digest
        for kind in ("float16", "float64", "longdouble", "object", "list", "no mask"):
            self.assertEqual(self.run_of(kind).digest, digest, kind)

    @needs("torch")
    def test_of_floats_of_torch_are_taken(self) -> None:
        digest = self.run_of("float32").digest
        for kind in ("torch float16", "torch bfloat16", "torch float64"):
            self.assertEqual(self.run_of(kind).digest, digest, kind)
        with self.assertRaisesRegex(macaw.TrainError, r"returned 0\.weight as int64"):
            self.run_of("torch int64")

    def test_of_others_are_refused_by_name_and_kind(self) -> None:
        for kind in ("int64", "uint8", "bool", "complex64", "str"):
            told = "<U" if kind == "str" else kind
            with self.assertRaisesRegex(macaw.TrainError, f"returned 0.weight as {told}"):
                self.run_of(kind)
        with self.assertRaisesRegex(macaw.TrainError, r"returned 0\.weight with masked values"):
            self.run_of("masked")

    def test_of_whole_numbers_are_those_of_a_counter(self) -> None:
        counter = array_given("count", np.array([3]), np.float32, whole=True)
        self.assertEqual((counter.dtype, counter.tolist()), (np.float32, [3.0]))
        with self.assertRaisesRegex(TypeError, "complex"):
            array_given("count", np.array([3j]), np.float32, whole=True)


if __name__ == "__main__":
    unittest.main()
