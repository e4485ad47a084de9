"""A run whose client is one of trainer_programs.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import trainer_programs as programs

import macaw
from support import TestCase

HERE = Path(__file__).parent
ROWS = {
    "hugging": {"features": "int32", "input_shape": [programs.LENGTH], "classes": programs.TOKENS},
    "lightning": {"input_shape": [4], "classes": 3},
}


class TrainerCase(TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.ignore_warnings()

    def declare(self, kind: str, clients: str, rows: int = programs.TRAINED) -> Path:
        names = [{"name": c, "train": rows, "test": programs.TESTED} for c in clients]
        path = self.folder / "rows.json"
        path.write_text(json.dumps({"clients": names, **ROWS[kind]}))
        return path

    def job_of(self, kind: str, *options: str, clients: str = "a", **changes: Any) -> dict:
        program = [sys.executable, str(HERE / "trainer_programs.py"), kind, *options]
        job = {
            "model": programs.gpt("peft" in options) if kind == "hugging" else programs.net(),
            "data": self.declare(kind, clients),
            "data_options": {"source": "declared"},
            "cohort": len(clients),
            "rounds": 2,
            "seed": 5,
            "evaluation": {"clients": True},
            "workers": {"backend": "process", "command": program, "slots": 1},
            "run": {"task": "next-token"} if kind == "hugging" else {},
            "out": self.folder / "run",
            "cache": self.folder / "cache",
            "overwrite": True,
        }
        return {**job, **changes}

    def run_of(self, kind: str, *options: str, **changes: Any) -> macaw.Run:
        return macaw.simulate(**self.job_of(kind, *options, **changes))

    def assert_near(self, found: Any, expected: Any, tolerance: float = 1e-6) -> None:
        self.assertGreater(len(found), 0)
        for name, tensor in found.items():
            expects = np.asarray(expected[name].detach())
            np.testing.assert_allclose(np.asarray(tensor), expects, atol=tolerance, err_msg=name)
