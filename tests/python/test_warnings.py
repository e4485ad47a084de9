"""Warnings point at the line of the caller's, and not into the package."""

from __future__ import annotations

import unittest
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import macaw
from macaw import _data
from macaw._columns import Columns
from support import TestCase, needs, rows


class Warnings(TestCase):
    def check(self, call: Callable[[], Any], *words: str) -> None:
        """The call warns with each of the words, each time from this file."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        for word in words:
            self.assertTrue(any(word in str(w.message) for w in caught), (word, caught))
        self.assertEqual({w.filename for w in caught}, {__file__})

    def test_of_a_run(self) -> None:
        x, y = rows()
        job = self.job("run", algorithm="scaffold", data=(x, y + 1), model=["linear 4"])
        self.check(lambda: macaw.simulate(**job), "scaffold", "classes count from 0")

    def test_of_classes_that_are_floats(self) -> None:
        x, y = rows()
        floats = (x, (y > 0).astype(np.float32))
        job = self.job("run", data=floats, partition=macaw.iid(20), model=["linear 1"])
        self.check(lambda: macaw.simulate(**job), "y is float and has 0.0 and 1.0 alone")

    def test_of_segments_that_are_not_used(self) -> None:
        texts = [{"input_ids": [5, 2, 9], "label": n % 2, "token_type_ids": [0, 1, 1]}
                 for n in range(40)]  # fmt: skip
        columns = Columns()
        _data.prepared(texts, None, columns, self.folder)
        self.assertIn("token_type_ids of the rows is not used", columns.warnings[0])
        dropped = Columns()
        dropped.take({"drop_columns": ["token_type_ids"]})
        _data.prepared(texts, None, dropped, self.folder)
        self.assertEqual((dropped.warnings, dropped.notes), ([], []))

    def test_of_rows_that_have_one_class(self) -> None:
        x, y = rows()
        job = self.job("run", data=(x, y * 0), model=["linear 1"], partition=macaw.iid(20))
        self.check(lambda: macaw.simulate(**job), "all rows have one class")

    def test_of_a_stream(self) -> None:
        def read() -> None:
            with macaw.stream(**self.job("run", algorithm="scaffold")) as stream:
                for _ in stream:
                    pass

        self.check(read, "scaffold")

    def test_of_a_result(self) -> None:
        jump = {"kind": "step", "gamma": 1000, "every": 8}
        job = self.job("run", local={"lr": 0.2, "lr_schedule": jump}, rounds=12,
                       evaluation={"every": 1})  # fmt: skip
        self.check(lambda: macaw.simulate(**job), "unstable")

    @needs("torch")
    def test_of_padding_that_a_module_attends_to(self) -> None:
        from torch import nn

        block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True)
        net = nn.Sequential(
            nn.Embedding(5, 8), block, nn.LayerNorm(8), nn.Flatten(), nn.Linear(48, 3)
        )
        rng = np.random.default_rng(2)
        x, y = rng.integers(5, size=(60, 6)), rng.integers(3, size=60)
        ragged = [list(row[: 3 + i % 4]) for i, row in enumerate(x)]
        job = self.job("run", data=(ragged, y), partition=macaw.iid(4), cohort=2, model=net,
                       rounds=1, run={"task": "classification"})  # fmt: skip
        self.check(lambda: macaw.simulate(**job), "transformer layers leave padding out")

    def test_of_turns_that_did_not_count(self) -> None:
        x, y = rows()
        x[5:8] *= 1e30  # the losses of their clients are no numbers
        job = self.job("run", data=(x, y), partition=macaw.iid(20), cohort=20)
        self.check(lambda: macaw.simulate(**job), "turns of clients did not count")

    def test_of_test_rows_that_train(self) -> None:
        x, y = rows()
        job = self.job("run", data=(x, y), test=(x[:50], y[:50]))
        self.check(lambda: macaw.simulate(**job), "50 of the 50 test examples equal a training")

    def test_of_a_run_of_a_sweep_that_fails(self) -> None:
        job = self.job("run", seed=None, local={"lr": macaw.grid([0.1, 1e9])}, rounds=6,
                       out=self.folder / "sweep")  # fmt: skip
        self.check(lambda: macaw.sweep(**job), "is not in the table: round")
        (why,) = macaw.SweepResult(self.folder / "sweep").failed.values()
        self.assertIn("all 5 clients had to be left out", why)

    def test_of_clients_that_are_divided_anew(self) -> None:
        x, y = rows()
        job = self.job("run", data=(x, y), client=np.arange(len(y)) % 7)
        self.check(lambda: macaw.simulate(**job), "the clients of the data are not used")

    def test_of_data(self) -> None:
        x, y = rows()
        bits = (x > 0).astype(np.uint8)
        self.check(lambda: macaw.prepare((bits, y), cache=self.folder), "uint8")

    @needs("torch")
    def test_of_a_sweep(self) -> None:
        from torch import nn

        job = self.job("s", model=nn.Sequential(nn.Linear(8, 3)), rounds=1,
                       local={"lr": macaw.grid([0.1, 0.2])})  # fmt: skip
        del job["seed"]
        self.check(
            lambda: macaw.sweep(**job, seeds=[1, 2], progress=False),
            "same initial weights", "is of test rows",
        )  # fmt: skip


if __name__ == "__main__":
    unittest.main()
