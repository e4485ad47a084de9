"""The scripts of examples/python, as people start them."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest

import macaw
from support import SOURCE, TestCase, needs


class AnExample(TestCase):
    def run_of(self, name: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, SOURCE / "examples/python" / name, *arguments],
            cwd=self.folder, env={**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")},
            capture_output=True, text=True,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_of_arrays_trains_them(self) -> None:
        self.assertIn("finished, 200 rounds, test_accuracy", self.run_of("arrays.py"))
        (run,) = (self.folder / "runs").iterdir()
        self.assertGreater(macaw.Run(run).summary["final"]["test_accuracy"], 0.5)

    @needs("torch")
    def test_of_training_of_ones_own_trains(self) -> None:
        self.assertIn("3 rounds", self.run_of("own_training.py", "3"))
        (run,) = (self.folder / "runs").iterdir()
        self.assertEqual(len(macaw.Run(run).rows), 3)
        self.assertIn("model_norm", macaw.Run(run).rows[-1])

    @needs("matplotlib")
    def test_of_a_paper_makes_its_figures_and_its_table(self) -> None:
        self.assertIn("tabular", self.run_of("paper.py"))
        made = [file.name for file in (self.folder / "sweeps/paper/figures").iterdir()]
        self.assertEqual(sorted(made), ["clients.svg", "curves.pdf", "table.tex"])


if __name__ == "__main__":
    unittest.main()
