"""Who gets which rows: a function for each scheme of `macaw partitions`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ._names import checked

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


@checked
def natural() -> Partition:
    """The data's own clients."""
    return _make("natural")


@checked
def from_file(path: str | PathLike[str]) -> Partition:
    """As a JSON file says: {"client": [row, ...], ..., "test": [...]} (data/README.md)."""
    return _make("file", path=path)
