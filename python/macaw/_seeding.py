"""What a function of the caller's may draw from: random, NumPy, and torch once it is there."""

from __future__ import annotations

import importlib.abc
import random
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np


class Seeding(importlib.abc.MetaPathFinder):
    """Seeds these generators before each call.

    torch is never imported for it. Where a function imports torch itself, it is seeded as soon as
    it is there: nothing has drawn from it yet.
    """

    def __init__(self) -> None:
        self._seed = 0
        sys.meta_path.insert(0, self)

    def begin(self, seed: int) -> None:
        """Before a call."""
        self._seed = seed
        random.seed(seed)
        np.random.seed(seed % 2**32)
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(seed)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds torch as the other finders do, and has it seeded behind its import."""
        if name != "torch":
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            _run_after_import(spec.loader, lambda torch: torch.manual_seed(self._seed))
        return spec


def _run_after_import(loader: Any, then: Any) -> None:
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        then(module)

    loader.exec_module = exec_module
