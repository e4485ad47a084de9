"""The weights of a run in a module that two processes divide (FSDP1, FSDP2), beside a whole one."""

from __future__ import annotations

import json
import subprocess
import sys
import unittest
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np

import macaw
from support import TestCase, needs

HERE = Path(__file__).parent


class ADividedModule(TestCase):
    found: list[dict[str, Any]]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        try:
            from torch.distributed.fsdp import FSDPModule  # noqa: F401
        except ImportError as error:
            raise unittest.SkipTest(f"PyTorch 2.6 or later: {error}") from error

    def setUp(self) -> None:
        super().setUp()
        ranks = [
            subprocess.Popen([sys.executable, HERE / "divided_ranks.py", str(rank), self.folder])
            for rank in (0, 1)
        ]
        self.assertEqual([rank.wait(100) for rank in ranks], [0, 0])
        self.found = [json.loads((self.folder / f"{rank}.json").read_text()) for rank in (0, 1)]

    def test_takes_trains_corrects_and_gives_what_a_whole_one_does(self) -> None:
        whole = self.found[0]["whole"]
        self.assertNotEqual(whole["1"], whole["2"])
        for kind in ("fsdp1", "fsdp2"):
            with self.subTest(kind):
                first, other = (rank[kind] for rank in self.found)
                for round_ in ("1", "2"):
                    for name, expected in whole[round_].items():
                        np.testing.assert_allclose(
                            first[round_][name], expected, atol=1e-6, err_msg=f"{round_} {name}"
                        )
                        self.assertFalse(np.any(other[round_][name]), "rank 1 gets no numbers")
                self.assertEqual(first["moved"], [[0, 0], [0, 0]], "a buffer of its own")

    def test_gathers_what_the_run_has_and_no_frozen_tensor(self) -> None:
        for rank in self.found:
            self.assertEqual(rank["fsdp2"]["gathered"], [[5, 3], [3], [3]])


class AnOldPyTorch(TestCase):
    @needs("torch")
    def test_is_refused(self) -> None:
        from macaw._divided import refuse_old_torch

        old = ModuleType("torch.distributed.fsdp")
        with mock.patch.dict(sys.modules, {"torch.distributed.fsdp": old}):
            with self.assertRaises(macaw.ArgumentError) as caught:
                refuse_old_torch()
        self.assertIn("PyTorch 2.6 or later", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
