"""The ends and the deviation of each column of rows that come in blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._features import lost_of
from ._safetensors import Array

_CHUNK = 1 << 22  # numbers that are looked at together


@dataclass
class Spread:
    """Of so many rows: each column's least and most, its mean, and its squares around that."""

    rows: int
    least: Array
    most: Array
    mean: Array
    squares: Array

    @staticmethod
    def of(x: Array) -> Spread | None:
        """x: at least one row of numbers, [rows, columns]. None: it has no column."""
        found = None
        many = max(1, _CHUNK // max(1, x.shape[1]))
        for begin in range(0, len(x) if x.shape[1] else 0, many):
            wide = x[begin : begin + many].astype(np.float64)
            mean = wide.mean(0)
            least, most = wide.min(0), wide.max(0)
            part = Spread(len(wide), least, most, mean, np.square(wide - mean).sum(0))
            found = part if found is None else found.with_(part)
        return found

    def with_(self, other: Spread) -> Spread:
        """Of the rows of both (Chan, Golub and LeVeque 1979)."""
        rows, apart = self.rows + other.rows, other.mean - self.mean
        return Spread(
            rows,
            np.minimum(self.least, other.least),
            np.maximum(self.most, other.most),
            self.mean + apart * (other.rows / rows),
            self.squares + other.squares + np.square(apart) * (self.rows * other.rows / rows),
        )

    def lost(self) -> str | None:
        """What to say of the first column that float32 hardly tells apart; None: there is none."""
        deviation = np.sqrt(self.squares / self.rows)
        for column in range(len(self.mean)):
            least, most = float(self.least[column]), float(self.most[column])
            if said := lost_of(least, most, float(deviation[column]), f"column {column} of x"):
                return said
        return None
