"""The generators of train= and evaluate= are seeded before each call, torch's with any model."""

from __future__ import annotations

import subprocess
import sys
import unittest
from typing import Any

import own_functions as own

import macaw
from support import TestCase, needs


class Seeding(TestCase):
    def run_of(self, name: str, train: Any, **changes: Any) -> macaw.Run:
        job = self.job(name, model=["linear 3"], train=train, workers={"slots": 1})
        return macaw.simulate(**(job | changes))

    def repeats(self, train: Any) -> None:
        """Whether runs have the same bytes, on other slots and after a resume, too."""
        first = self.run_of("first", train)
        self.assertEqual(self.run_of("second", train).digest, first.digest)
        self.assertEqual(self.run_of("slots", train, workers={"slots": 3}).digest, first.digest)
        self.run_of("part", train, on_round=lambda run: run.round < 2)
        self.assertEqual(macaw.resume(self.folder / "part").digest, first.digest)
        self.assertNotEqual(self.run_of("seed", train, seed=8).digest, first.digest)

    @needs("torch")
    def test_of_torch_without_a_module(self) -> None:
        import own_torch

        self.repeats(own_torch.draws)
        generator = self.run_of("generator", own_torch.draws_of_the_turn)
        self.assertEqual(
            self.run_of("generator-2", own_torch.draws_of_the_turn).digest, generator.digest
        )

    @needs("torch")
    def test_of_torch_that_the_function_imports_first(self) -> None:
        self.repeats(own.imports_torch_and_draws)

    def test_imports_no_torch(self) -> None:
        code = (
            "import sys; from macaw._seeding import Seeding; seeding = Seeding(); seeding.begin(1);"
            "assert 'torch' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_of_an_evaluation(self) -> None:
        for name in ("one", "two"):
            self.run_of(name, own.draws, evaluate=own.draws_to_evaluate)
        one, two = (macaw.Run(self.folder / name) for name in ("one", "two"))
        self.assertEqual([r["test_loss"] for r in one.rows], [r["test_loss"] for r in two.rows])
        self.assertEqual(len({row["test_loss"] for row in one.rows}), 1, "the same in each round")


if __name__ == "__main__":
    unittest.main()
