"""Means over rows, as functions and Trainers give them, and the sums that a run takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: What people call the means, and the run's names of their sums.
SUM_OF = {"loss": "loss", "accuracy": "correct", "mae": "absolute_error"}


def means_in(names: Sequence[str]) -> list[str]:
    """The means that a run with these sums takes."""
    return [mean for mean, name in SUM_OF.items() if name in names]


def sums_of_means(
    means: Mapping[str, Any], names: Sequence[str], rows: int, *, all_of: bool
) -> dict[str, float]:
    """Sums by the run's names, of which the first is that of the rows.

    all_of: those of means that are not given are 0, as of an evaluation; else they are left out.
    """
    sums = dict.fromkeys(names, 0.0) if all_of else {}
    sums[names[0]] = float(rows)
    return sums | {SUM_OF[mean]: float(value) * rows for mean, value in means.items()}
