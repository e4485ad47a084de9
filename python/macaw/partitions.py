"""Who gets which rows: a function for each scheme of `macaw partitions`."""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _files
from ._names import checked
from .errors import ConfigError

if TYPE_CHECKING:
    from os import PathLike


@dataclass(frozen=True)
class Partition:
    """The keys of ``[partition]``. Anything that it holds is checked when a run begins."""

    scheme: str
    keys: dict[str, Any] = field(default_factory=dict)


def _make(scheme: str, **keys: Any) -> Partition:
    return Partition(scheme, {key: value for key, value in keys.items() if value is not None})


@checked
def dirichlet(
    concentration: float,
    clients: int,
    *,
    by: Literal["class", "client", "quantity"] = "class",
    min_size: int | None = None,
    seed: int | None = None,
) -> Partition:
    """Skewed classes: smaller concentrations give a client fewer classes. Or skewed sizes.

    by: "class" draws, per class, the clients' shares (NIID-bench; sizes are skewed, too),
    "client" draws, per client, the shares of the classes (Hsu 2019; equal sizes), and "quantity"
    draws the clients' shares of all rows (NIID-bench's quantity skew; the same classes for all).
    """
    return _make(
        f"dirichlet-{by}",
        concentration=concentration,
        clients=clients,
        min_size=min_size,
        seed=seed,
    )


@checked
def iid(clients: int, *, seed: int | None = None) -> Partition:
    """Rows at random, equally many each."""
    return _make("iid", clients=clients, seed=seed)


@checked
def shards(clients: int, shards_per_client: int = 2, *, seed: int | None = None) -> Partition:
    """Rows sorted by class, cut into shards, which are dealt at random (McMahan 2017)."""
    return _make("shards", clients=clients, classes_per_client=shards_per_client, seed=seed)


@checked
def sorted_blocks(clients: int) -> Partition:
    """Rows sorted by class, in equal blocks: client i has the i-th. Nothing is drawn."""
    return _make("sorted", clients=clients)


@checked
def k_classes(clients: int, classes_per_client: int, *, seed: int | None = None) -> Partition:
    """So many classes each; the rows of a class equally among its owners."""
    return _make("k-classes", clients=clients, classes_per_client=classes_per_client, seed=seed)


@checked
def lognormal(
    sigma: float, clients: int, *, min_size: int | None = None, seed: int | None = None
) -> Partition:
    """Rows at random, sizes of a LogNormal(0, sigma)."""
    return _make("lognormal", concentration=sigma, clients=clients, min_size=min_size, seed=seed)


@checked
def power_law(
    exponent: float, clients: int, *, min_size: int | None = None, seed: int | None = None
) -> Partition:
    """Rows at random, the r-th largest size proportional to r**-exponent."""
    return _make("power-law", concentration=exponent, clients=clients, min_size=min_size, seed=seed)


class _Matrix:
    """A matrix of counts, which becomes a file when a run begins."""

    def __init__(self, counts: Any) -> None:
        self.counts = counts

    def file_in(self, folder: Path) -> Path:
        counts = np.asarray(self.counts)
        whole = counts.ndim == 2 and counts.size > 0 and counts.dtype.kind in "iuf"
        if not whole or not ((counts >= 0) & (counts < 2**32) & (counts == counts // 1)).all():
            raise ConfigError(
                "histogram: counts must be whole numbers from 0, a row a client and a column a "
                f"class; found {counts.dtype} {list(counts.shape)}",
                key="partition.path",
            )
        npy = io.BytesIO()
        np.save(npy, np.ascontiguousarray(counts, "<i8"), allow_pickle=False)
        digest = hashlib.sha256(npy.getvalue()).hexdigest()[:16]
        file = folder / f"histogram-{digest}.npy"
        _files.keep(file, npy.getvalue())
        return file


@checked
def histogram(
    counts: str | PathLike[str] | Any, clients: int | None = None, *, seed: int | None = None
) -> Partition:
    """So many rows of each class for each client, drawn at random without replacement.

    counts: a matrix of whole numbers, a row a client and a column a class, or the path of one
    (.npy, .npz or CSV). If the data have too few rows of a class, every client gets the same share
    of its rows of every class.
    clients: so many of the matrix's clients, drawn; by default all.
    """
    path = Path(counts) if isinstance(counts, (str, os.PathLike)) else _Matrix(counts)
    return _make("histogram", path=path, clients=clients, seed=seed)


@checked
def natural() -> Partition:
    """The data's own clients."""
    return _make("natural")


@checked
def from_file(path: str | PathLike[str]) -> Partition:
    """As a JSON file says: {"client": [row, ...], ..., "test": [...]} (docs/guides/data.md)."""
    return _make("file", path=path)
