"""Losses and metrics of the caller's that pair every output with every label.

Of a model with one output they get outputs of shape [rows, 1], and y of shape [rows]. What computes
``outputs - y`` then broadcasts both to [rows, rows], without an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

_ROWS = 16

ADVICE = (
    "it pairs every output with every y: outputs have shape [rows, 1], and y has shape [rows]; "
    "take the outputs as outputs[:, 0]"
)


def pairs_all(value: Callable[[Any, Any], Any], is_whole: bool, made: Callable[[Any], Any]) -> bool:
    """Whether the order of y among the rows makes no difference, and does once shapes are equal.

    value: of (outputs, y); is_whole: y has classes; made: makes its arrays of NumPy's.
    """
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(_ROWS, 1)).astype(np.float32)
    y = np.arange(_ROWS) % 3 // 2 if is_whole else rng.normal(size=_ROWS).astype(np.float32)
    orders = [rng.permutation(_ROWS) for _ in range(4)]

    def ignores_order(outputs: Any) -> bool:
        first, *others = (float(value(made(outputs), made(y[order]))) for order in orders)
        return all(math.isclose(first, other, rel_tol=1e-5, abs_tol=1e-7) for other in others)

    try:
        return ignores_order(outputs) and not ignores_order(outputs[:, 0])
    except Exception:  # it takes no such shapes
        return False
