"""A small job, and folders that go away."""

from __future__ import annotations

import os
import tempfile
import unittest
import warnings
from pathlib import Path
from typing import Any

import numpy as np

BUILD = Path(os.environ["MACAW_BUILD"])
SOURCE = Path(__file__).parent.parent.parent


def rows(count: int = 600, seed: int = 1) -> tuple[Any, Any]:
    """Classes that a linear layer can learn."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 8)).astype(np.float32)
    return x, np.argmax(x @ rng.normal(size=(8, 3)), axis=1)


def job(folder: Path, name: str, **changes: Any) -> dict[str, Any]:
    """Arguments of a run of a fraction of a second."""
    arguments: dict[str, Any] = {
        "model": ["linear 8", "relu", "linear 3"],
        "data": rows(),
        "partition": {"scheme": "dirichlet-class", "clients": 20, "min_size": 2},
        "cohort": 5,
        "rounds": 4,
        "seed": 7,
        "out": folder / name,
        "cache": folder / "cache",
    }
    arguments.update(changes)
    return arguments


class TestCase(unittest.TestCase):
    """Each test has a folder of its own, which holds the cache and the runs."""

    def setUp(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = Path(self._folder.name)

    def ignore_warnings(self) -> None:
        """Until the end of the test: its runs are too short for the advice that macaw gives."""
        quiet = warnings.catch_warnings()
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)
        warnings.simplefilter("ignore")

    def job(self, name: str, **changes: Any) -> dict[str, Any]:
        return job(self.folder, name, **changes)


def needs(module: str) -> Any:
    """Skips a test where a module is not installed."""
    try:
        __import__(module)
    except ImportError as error:
        return unittest.skip(str(error))
    return lambda test: test
